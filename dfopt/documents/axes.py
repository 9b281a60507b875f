"""The axes of a plan: named ways to share the chips out, and what each of them splits. No other module names them.

A new axis is an entry of :data:`AXES`, with a rule of legality of its own if it has one. What it splits says who counts
it, and everyone else goes over all axes: documents have its degree under its name (``tp``) and its network dims under
``tp_dims``, and so have pins, requests, the command line, labels and frames.

==========  ========================================================================================================
it splits   the chips along it
==========  ========================================================================================================
kernels     share the work and the weights of every kernel: shardings are chosen over all such axes together
layers      are the stages of a pipeline, each with some of the layers
batch       hold copies of the weights and work on different samples; their gradients are added up after a step
==========  ========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from dfopt.documents.base import Part, problem
from dfopt.errors import did_you_mean

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph

Splits = Literal["kernels", "layers", "batch"]
Dims = tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """One way to share chips out.

    Attributes
    ----------
    name : str
        Key of its degree in documents and name of its option; in labels as capitals.
    title : str
        For people.
    splits : str
        What its chips share, see the module.
    refuses : callable, optional
        (graph, degree) -> why this graph cannot use it, or nothing; beside the rules for all axes that split the same.
    optional : bool
        Left out of documents where its degree is 1; those of version 1 have the keys of the others in any case.
    """

    name: str
    title: str
    splits: Splits
    refuses: Callable[[Graph, int], str | None] | None = None
    optional: bool = True

    @property
    def dims_key(self) -> str:
        """Key of its network dims in documents."""
        return f"{self.name}_dims"

    @property
    def keys(self) -> tuple[str, str]:
        """Keys of its degree and of its network dims."""
        return self.name, self.dims_key

    @property
    def dims_option(self) -> str:
        """Its network dims on the command line."""
        return f"--{self.name}-dims"

    @property
    def label(self) -> str:
        """In labels of plans and in messages."""
        return self.name.upper()


class Share(NamedTuple):
    """What a plan gives to an axis."""

    axis: Axis
    degree: int
    dims: Dims


# the order is that of labels, and in which they take neighbours of a network dim that they share
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("tp", "tensor parallelism", "kernels", optional=False),
        Axis("pp", "pipeline parallelism", "layers", optional=False),
        Axis("dp", "data parallelism", "batch", optional=False),
    )
}


@contextmanager
def one_more(axis: Axis) -> Iterator[Axis]:
    """Let plans have another axis for a while, behind the others: to try it out, and for tests.

    Examples
    --------
    >>> from dfopt.documents.plan import Plan
    >>> with one_more(Axis("ep", "expert parallelism", "batch")):
    ...     print(Plan(tp=4, ep=2, ep_dims=("x",)).label)
    TP4 PP1 DP1 EP2(x)
    """
    AXES[axis.name] = axis
    _forget()
    try:
        yield axis
    finally:
        del AXES[axis.name]
        _forget()


def _forget() -> None:
    groups.cache_clear()
    _keys.cache_clear()


@cache
def groups() -> dict[str, tuple[tuple[Axis, ...], slice]]:
    """Groups of chips that a kernel's communication may be over: axes, and which of their network dims.

    An axis that splits kernels or the batch by its name; of the first, the first network dim alone or the others;
    ``all`` of both kinds together.

    Examples
    --------
    >>> list(groups())
    ['tp', 'tp_first', 'tp_rest', 'dp', 'all']
    """
    inside = tuple(axis for axis in AXES.values() if axis.splits != "layers")
    found: dict[str, tuple[tuple[Axis, ...], slice]] = {}
    for axis in inside:
        found[axis.name] = (axis,), slice(None)
        if axis.splits == "kernels":
            found |= {f"{axis.name}_first": ((axis,), slice(1)), f"{axis.name}_rest": ((axis,), slice(1, None))}
    return {**found, "all": (inside, slice(None))}


def _known_group(name: str) -> str:
    if name not in groups():
        raise problem(f"found {name!r}, expected {' or '.join(map(repr, groups()))}", did_you_mean(name, groups()))
    return name


Group = Annotated[str, AfterValidator(_known_group), Field(json_schema_extra={"enum": [*groups()]})]


@cache
def _keys() -> dict[str, tuple[Axis, bool]]:
    """Keys of documents: their axis, and whether they hold its network dims."""
    keys = {axis.name: (axis, False) for axis in AXES.values()}
    return keys | {axis.dims_key: (axis, True) for axis in AXES.values()}


def _known_key(key: str) -> str:
    if key not in _keys():
        raise problem("unknown key", did_you_mean(key, _keys(), f"axes of a plan: {', '.join(_keys())}"))
    return key


class OnAxes(Part):
    """A part with keys for every axis: here what someone asks for, where None is free.

    Examples
    --------
    >>> asked = OnAxes(tp=8, tp_dims=("x",))
    >>> asked.tp, asked.pp, asked.asked_degrees
    (8, None, {'tp': 8})
    """

    model_config = ConfigDict(extra="allow")
    _FREE: ClassVar[tuple[Any, Any]] = (None, None)  # degree and dims that say nothing
    if TYPE_CHECKING:
        __pydantic_extra__: dict[str, Any]

        def __init__(self, **data: Any) -> None: ...

    else:
        __pydantic_extra__: dict[Annotated[str, AfterValidator(_known_key)], Annotated[int, Field(ge=1)] | Dims | None]

    def __getattr__(self, name: str) -> Any:
        """The degree or the dims of an axis."""
        if name in (extra := self.__pydantic_extra__):
            return extra[name]
        if name not in (keys := _keys()):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._FREE[keys[name][1]]

    def __hash__(self) -> int:
        """Equal for equal parts."""
        return hash((*self.__dict__.values(), *sorted(self.__pydantic_extra__.items())))

    @model_validator(mode="after")
    def _said(self) -> Self:
        """Values of the kind that their keys are for; what says nothing is not kept, so that equal parts are equal."""
        for key, value in list(self.__pydantic_extra__.items()):
            axis, dims = _keys()[key]
            if value is not None and isinstance(value, tuple) != dims:
                wanted = "network dims, as a list" if dims else "a whole number"
                raise problem(f"found {value!r}, expected {wanted}", f"{key}: of {axis.title}", f"$.{key}")
            if value == self._FREE[dims]:
                del self.__pydantic_extra__[key]
            elif value is None:
                raise problem("found nothing", "leave it out", f"$.{key}")
        return self

    @model_serializer(mode="wrap")
    def _lean(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data, as_json = Part._lean(self, handler, info), info.mode == "json"
        said: dict[str, Any] = {key: data.pop(key) for key in ("schema", "schema_") if key in data}
        for key, (axis, dims) in _keys().items():
            free = self._FREE[dims]
            if key in data:
                said[key] = data.pop(key)
            elif not axis.optional and not (as_json and free is None):
                said[key] = [] if as_json and dims else free
        return {**said, **data}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler.resolve_ref_schema(handler(schema))
        names: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
        degree: dict[str, Any] = {"type": "integer", "minimum": 1}
        for key, (axis, dims) in _keys().items():
            said = f"network dims of {axis.title}" if dims else f"degree of {axis.title}"
            made.setdefault("properties", {})[key] = {**(names if dims else degree), "description": said}
        made["additionalProperties"] = False
        return made

    @property
    def on_axes(self) -> dict[str, Any]:
        """What is said about axes, by the keys of documents."""
        return dict(self.__pydantic_extra__)

    @property
    def asked_degrees(self) -> dict[str, int]:
        """Degrees that are given, by axis."""
        return {key: value for key, value in self.__pydantic_extra__.items() if not _keys()[key][1]}

    @property
    def asked_dims(self) -> dict[str, Dims]:
        """Network dims that are given, by axis."""
        return {_keys()[key][0].name: value for key, value in self.__pydantic_extra__.items() if _keys()[key][1]}
