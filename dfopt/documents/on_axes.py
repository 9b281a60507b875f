"""What documents say about the axes of a plan: keys for a degree and for network dims of every axis."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema

from dfopt.documents.axes import Dims, groups, keys
from dfopt.documents.base import Part, problem
from dfopt.documents.copying import of_extra
from dfopt.documents.descriptions import FieldDoc
from dfopt.errors import did_you_mean


def _known_group(name: str) -> str:
    if name not in groups():
        raise problem(f"found {name!r}, expected {' or '.join(map(repr, groups()))}", did_you_mean(name, groups()))
    return name


Group = Annotated[str, AfterValidator(_known_group), Field(json_schema_extra={"enum": [*groups()]})]


def _known_key(key: str) -> str:
    if key not in keys():
        raise problem("unknown key", did_you_mean(key, keys(), f"axes of a plan: {', '.join(keys())}"))
    return key


class OnAxes(Part):
    """A part with fields for every plan axis; as a request, None leaves a field free.

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
        if name not in keys():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._FREE[keys()[name][1]]

    @of_extra
    def said_of_axes(self) -> tuple[tuple[str, Any], ...]:
        """Given fields of axes: (key, value) in the order of keys."""
        return tuple(sorted(self.__pydantic_extra__.items()))

    @cached_property
    def _hash(self) -> int:  # of the axes too
        fields = (self.__dict__[name] for name in type(self).__pydantic_fields__)
        return hash((*fields, *self.said_of_axes))

    @model_validator(mode="after")
    def _matches_keys(self) -> Self:
        """Values of the kind that their keys are for; what says nothing is not kept, so that equal parts are equal."""
        for key, value in list(self.__pydantic_extra__.items()):
            axis, dims = keys()[key]
            if value is not None and isinstance(value, tuple) != dims:
                wanted = "network dims, as a list" if dims else "a whole number"
                raise problem(f"found {value!r}, expected {wanted}", f"{key}: of {axis.title}", f"$.{key}")
            if value == self._FREE[dims]:
                del self.__pydantic_extra__[key]
            elif value is None:
                raise problem("found nothing", "leave it out", f"$.{key}")
        return self

    def _lean(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        data, as_json = Part._lean(self, handler, info), info.mode == "json"
        stated: dict[str, Any] = {key: data.pop(key) for key in ("schema", "schema_") if key in data}
        for key, (axis, dims) in keys().items():
            free = self._FREE[dims]
            if key in data:
                stated[key] = data.pop(key)
            elif not axis.optional and not (as_json and free is None):
                stated[key] = [] if as_json and dims else free
        return {**stated, **data}

    @classmethod
    def axis_fields(cls) -> tuple[FieldDoc, ...]:
        """Documentation of the degree and network dims of every axis."""
        degree, dims = ("None", "None") if cls._FREE[0] is None else ("1", "[]")
        free = " None: dfopt chooses." if degree == "None" else ""
        along = "Network dims, or parts of dims such as x[8], along which {} runs." + free
        return tuple(
            FieldDoc(key, "list of text", "", dims, (), "[node]", along.format(axis.title))
            if of_dims
            else FieldDoc(key, "whole number", "chips", degree, (), "8", axis.text + free)
            for key, (axis, of_dims) in keys().items()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        json_schema = handler.resolve_ref_schema(handler(schema))
        kinds: dict[str, Any] = {
            "list of text": {"type": "array", "items": {"type": "string"}},
            "whole number": {"type": "integer", "minimum": 1},
        }
        for field in cls.axis_fields():
            json_schema.setdefault("properties", {})[field.name] = {**kinds[field.type], "description": field.text}
        json_schema["additionalProperties"] = False
        return json_schema

    @property
    def on_axes(self) -> dict[str, Any]:
        """Given fields of axes, by document key."""
        return dict(self.__pydantic_extra__)

    @property
    def asked_degrees(self) -> dict[str, int]:
        """Given degrees by axis."""
        return {key: value for key, value in self.__pydantic_extra__.items() if not keys()[key][1]}

    @property
    def asked_dims(self) -> dict[str, Dims]:
        """Given network dims by axis."""
        return {keys()[key][0].name: value for key, value in self.__pydantic_extra__.items() if keys()[key][1]}
