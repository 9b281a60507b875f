"""A question: a workload, a machine, what is fixed by hand and what is assumed, before anything is looked up.

Every door asks with this one document: the command line, ``df.optimize``, studies, and a file of one's own.
:func:`dfopt.questions.resolve` looks its names up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import Field, InstanceOf, SerializerFunctionWrapHandler, field_serializer

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.base import Document
from dfopt.documents.calibration import Calibration
from dfopt.documents.design import Design
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.stack import Stack
from dfopt.documents.system import System

__all__ = ["AUTO", "Question"]

AUTO: Final = "auto"
"""Assumptions that are the calibration of the chip where it has one for the phase, else the default profile."""


class Question(Document):
    """What is asked of a search.

    In Python a graph, a system, a stack or assumptions may be documents, too. A file has their names or paths: a
    document in a question is left out of it.

    Examples
    --------
    >>> question = Question(graph="llama-3.1-8b", system="h100-8", parameters={"phase": "decode", "batch": 128})
    >>> question.changed(parameters={"batch": 64}, options={"tp": 8}).to_data()["options"]
    {'tp': 8}
    """

    SCHEMA: ClassVar[str] = "dfopt/question/1"

    graph: str | InstanceOf[Graph] | None = Field(default=None, description="zoo name or path of the workload")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="parameters of the workload, such as phase: decode or batch: 128. batch: max is the largest batch"
        " that fits. microbatch and recompute take one value, a list, or all",
    )
    system: str | InstanceOf[System] | InstanceOf[Design] | None = Field(
        default=None, description="zoo name or path of the machine, or of a design that makes one"
    )
    chips: int | None = Field(default=None, ge=1, description="size of the machine, instead of its own")
    nodes: int | None = Field(default=None, ge=1, description="its nodes, instead of its own")
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="changes of single fields, of the system (network.cluster.size: 8) or of the assumptions",
    )
    stack: str | InstanceOf[Stack] | None = Field(default=None, description="the chip as this stack of dies")
    assumptions: str | InstanceOf[Assumptions] | InstanceOf[Calibration] | None = Field(
        default=AUTO,
        description="profile, or path of assumptions or of a calibration; calibrated: the calibration of the chip."
        " auto: that where the chip has one for this phase, else default, which is ideal",
    )
    options: Request = Field(default=Request(), description="what is fixed, and how to search; the rest is free")

    @field_serializer("graph", "system", "stack", "assumptions", mode="wrap", when_used="json")
    def _names_only(self, value: Any, handler: SerializerFunctionWrapHandler) -> str | None:
        return value if isinstance(value, str) else None

    @field_serializer("options", when_used="json")
    def _options_given(self, options: Request) -> dict[str, Any]:
        return options.said()

    def to_data(self) -> dict[str, Any]:
        """JSON-able data without what says nothing."""
        return {name: value for name, value in super().to_data().items() if value not in (None, {})}

    def named(self) -> Self:
        """The question with names only: what is a document stands elsewhere."""
        fields = ("graph", "system", "stack", "assumptions")
        return self.model_copy(update={f: None for f in fields if not isinstance(getattr(self, f), str | None)})

    def changed(self, **changes: Any) -> Self:
        """The same question with some fields changed; mappings and options key by key.

        Raises
        ------
        PlanError
            For an option that does not exist, or a value that it cannot have.
        """
        given: dict[str, Any] = {}
        for name, value in changes.items():
            if name == "options":
                given[name] = Request.of(**{**self.options.asked(), **value}) if value else self.options
            elif isinstance(value, Mapping):
                given[name] = {**getattr(self, name), **value}
            elif value is not None:
                given[name] = value
        return self.model_copy(update=given)
