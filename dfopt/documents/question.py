"""A question: a workload, a machine, what is fixed by hand and what is assumed, before anything is looked up.

Every door asks with this one document: the command line, ``df.solve``, studies, and a file of one's own.
:func:`dfopt.questions.resolve` looks its names up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, SerializerFunctionWrapHandler, field_serializer, field_validator
from pydantic_core import CoreSchema, PydanticOmit
from pydantic_core.core_schema import is_instance_schema

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document
from dfopt.documents.calibration import Calibration
from dfopt.documents.graph import Graph
from dfopt.documents.names import in_documents
from dfopt.documents.request import Request
from dfopt.documents.stack import Stack
from dfopt.documents.system import Source

AUTO: Final = "auto"
"""Assumptions that are the calibration of the chip where it has one for the phase, else the default profile."""


class _InPython:
    """Marks a document that a question may hold in Python: a file has its name. Pydantic's own mark would make the
    validators of all that is in such documents, for files."""

    @staticmethod
    def __get_pydantic_core_schema__(source: type, _handler: object) -> CoreSchema:
        return is_instance_schema(source)

    @staticmethod
    def __get_pydantic_json_schema__(_schema: object, _handler: object) -> dict[str, Any]:
        raise PydanticOmit


class Question(Document):
    """A question to the search: workload, system, assumptions and options, by name or as documents.

    In Python a graph, a system, a stack or assumptions may also be documents. A file has their names or paths only;
    documents are left out of it.

    Attributes
    ----------
    graph : e.g. llama-3.1-8b
        Workload: a zoo name, the path of a graph file, or a Hugging Face config.json. None: the question does not name
        it.
    parameters : e.g. {phase: decode, batch: 128}
        Parameters of the workload that you set. ``batch: max`` asks for the largest batch that fits. ``microbatch`` and
        ``recompute`` take one value, a list, or ``all``.
    system : e.g. h100-8
        Machine: a zoo name, the path of a system file, or a design. None: the question does not name it.
    chips : chips, e.g. 64
        Number of chips, in place of the system's own number. None: the system's own.
    nodes : nodes, e.g. 8
        Number of nodes, in place of the system's own number. None: the system's own.
    set : e.g. {network.cluster.size: 8}
        Fields of the system or of the assumptions that you change, by their dotted paths.
    stack : e.g. microbump-8
        Stack of dies that the chip is, as a zoo name or a path; dfopt then reports heat. None: the system's own stack,
        if any.
    assumptions : e.g. calibrated
        Profile of assumptions, or the path of assumptions or of a calibration. ``calibrated`` is the calibration of the
        chip. ``auto`` uses that calibration where the chip has one for this phase, otherwise ``default``, which is
        ideal. None: the question does not say.
    options : e.g. {tp: 8, gap: 1%}
        Choices that you fix and options of the search. All other choices are free.

    Examples
    --------
    >>> question = Question(graph="llama-3.1-8b", system="h100-8", parameters={"phase": "decode", "batch": 128})
    >>> question.changed(parameters={"batch": 64}, options={"tp": 8}).to_data()["options"]
    {'tp': 8}
    """

    SCHEMA: ClassVar[str] = "dfopt/question/2"
    EARLIER: ClassVar[tuple[str, ...]] = ("dfopt/question/1",)

    graph: str | Annotated[Graph, _InPython] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    system: str | Annotated[Source, _InPython] | None = None
    chips: int | None = Field(default=None, ge=1)
    nodes: int | None = Field(default=None, ge=1)
    set: dict[str, Any] = Field(default_factory=dict)
    stack: str | Annotated[Stack, _InPython] | None = None
    assumptions: str | Annotated[Assumptions, _InPython] | Annotated[Calibration, _InPython] | None = AUTO
    options: Request = Request()

    @classmethod
    def _converted(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Before version 2 no partition took its tokens in blocks, where nothing else was asked for."""
        given = data.get("set", {})
        return {**data, "set": {"token_blocks": "none", **given}} if isinstance(given, dict) else data

    @field_validator("parameters", mode="before")
    @classmethod
    def _by_words(cls, given: Any) -> Any:
        return in_documents(given) if isinstance(given, dict) else given

    @field_serializer("graph", "system", "stack", "assumptions", mode="wrap", when_used="json")
    def _names_only(self, value: Any, handler: SerializerFunctionWrapHandler) -> str | None:
        return value if isinstance(value, str) else None

    @field_serializer("options", when_used="json")
    def _options_given(self, options: Request) -> dict[str, Any]:
        return options.stated()

    def to_data(self) -> dict[str, Any]:
        """JSON-compatible data without empty fields."""
        return {name: value for name, value in super().to_data().items() if value not in (None, {})}

    def named(self) -> Self:
        """The question with documents replaced by their names."""
        fields = ("graph", "system", "stack", "assumptions")
        return self.model_copy(update={f: None for f in fields if not isinstance(getattr(self, f), str | None)})

    def changed(self, **changes: Any) -> Self:
        """A copy with some fields replaced; mappings and options are merged by key.

        Raises
        ------
        PlanError
            For an option that does not exist, or a value that it cannot have.
        """
        given: dict[str, Any] = {}
        for name, value in changes.items():
            if name == "options":
                given[name] = Request.of(**{**self.options.asked(), **in_documents(value)}) if value else self.options
            elif isinstance(value, Mapping):
                given[name] = {**getattr(self, name), **(in_documents(value) if name == "parameters" else value)}
            elif value is not None:
                given[name] = value
        return self.model_copy(update=given)
