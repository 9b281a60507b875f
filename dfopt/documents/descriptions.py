"""What the fields of documents mean: texts that stand in the docstrings of their classes, read when someone asks.

A class describes each of its fields in the section ``Attributes`` of its docstring. The first line of a field has its
unit, where it has one, and an example as a file would have it; the text explains it to someone who has not read the
rest::

    latency : seconds, e.g. 700 ns
        Time of one hop ...

A field that a class inherits is described by the class that it comes from.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from dfopt.units import Unit, exact

_HEADING: Final = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)
_ENTRY: Final = re.compile(r"^(\w+)(?: : (.*))?\n((?:(?: +.*)?\n)+)", re.MULTILINE)
_PLAIN: Final = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "anything"}


@dataclass(frozen=True)
class FieldDoc:
    """Documentation of a document's field: name in files, type, unit, default, text."""

    name: str
    type: str
    unit: str  # empty: no number, or one without a unit
    default: str  # as a file would have it; empty: the field is required
    choices: tuple[str, ...]  # all values that it may have, where they can be listed
    written: str  # the example that the class gives, if it gives one
    text: str
    annotation: Any = None

    @property
    def example(self) -> str:
        """Example value as in a file; for a part, the examples of its required fields."""
        return self.written or _composed(self.annotation)

    @property
    def summary(self) -> str:
        """First sentence of the text."""
        return re.split(r"(?<=[^.]\.)(?<!Fig\.)\s+(?=[A-Z0-9`])", self.text, maxsplit=1)[0]


@cache
def fields_of(model: type[BaseModel]) -> tuple[FieldDoc, ...]:
    """Documentation of every field of a document or part, from its docstring and types.

    Examples
    --------
    >>> from dfopt.documents.memories import Sram
    >>> capacity = fields_of(Sram)[0]
    >>> capacity.name, capacity.type, capacity.unit, capacity.default
    ('capacity', 'bytes', 'B', '')
    """
    on_axes = model.axis_fields() if hasattr(model, "axis_fields") else ()
    return (*on_axes, *(_described(model, name, field) for name, field in model.model_fields.items()))


def prose_of(docstring: str | None) -> str:
    """Docstring without its sections."""
    return _HEADING.split(inspect.cleandoc(docstring or ""), maxsplit=1)[0].strip()


@cache
def _attributes(model: type) -> dict[str, tuple[str, str]]:
    """Header and text of each field that the docstring of a class itself describes."""
    _, *sections = _HEADING.split(inspect.cleandoc(model.__dict__.get("__doc__") or ""))
    listed = dict(zip(sections[::2], sections[1::2], strict=True)).get("Attributes", "")
    return {name: (header, " ".join(text.split())) for name, header, text in _ENTRY.findall(f"{listed}\n")}


def _described(model: type[BaseModel], name: str, field: FieldInfo) -> FieldDoc:
    header, text = next((own[name] for base in model.__mro__ if name in (own := _attributes(base))), ("", ""))
    stated, _, example = header.partition("e.g. ")
    units = [unit for part in (*field.metadata, field.annotation) for unit in _inside(part, Unit)]
    symbols = dict.fromkeys(unit.symbol for unit in units if unit.symbol)
    literals = _inside(field.annotation, Literal)
    return FieldDoc(
        name=field.serialization_alias or name,
        type=_unit_type(field.metadata) or _type(field.annotation),
        unit=stated.rstrip(", ") or " or ".join(symbols),
        default="" if field.is_required() else _default(field, units),
        choices=tuple(dict.fromkeys(_value(choice) for literal in literals for choice in get_args(literal))),
        written=example,
        text=text,
        annotation=field.annotation,
    )


def _inside(annotation: Any, wanted: Any) -> Iterator[Any]:
    """The units, or the literals, that a type is made of."""
    if isinstance(annotation, wanted) if isinstance(wanted, type) else get_origin(annotation) is wanted:
        yield annotation
    elif get_origin(annotation) is not Literal:
        for part in (*getattr(annotation, "__metadata__", ()), *get_args(annotation)):
            yield from _inside(part, wanted)


def _unit_type(metadata: Iterable[Any]) -> str:
    return next((unit.dimension.replace("_", " ") for unit in metadata if isinstance(unit, Unit)), "")


def _type(annotation: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _unit_type(annotation.__metadata__) or _type(parts[0])
    if origin is Literal:
        return "one of " + ", ".join(map(_value, parts)) if len(parts) > 1 else _value(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in parts if part is not type(None)))
    if origin is tuple:
        several = parts[-1] is Ellipsis
        return f"list of {_type(parts[0])}" if several else f"list of {len(parts)}: {', '.join(map(_type, parts))}"
    if origin is dict:
        return f"mapping of {_type(parts[0])} to {_type(parts[1])}"
    return _PLAIN.get(annotation) or str(getattr(annotation, "__name__", annotation)).strip("_")


def _composed(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        needs = getattr(annotation, "EXAMPLE", ())  # one of several forms, where each field may be left out
        needed = (field for field in fields_of(annotation) if not field.default or field.name in needs)
        return f"{{{', '.join(f'{field.name}: {field.example}' for field in needed)}}}"
    inner = next(filter(None, map(_composed, reversed(parts))), "")
    if inner and origin is dict:
        return f"{{{next(iter(get_args(parts[0])), 'name')}: {inner}}}"
    return f"[{inner}]" if inner and origin is tuple else inner


def _default(field: FieldInfo, units: Sequence[Unit]) -> str:
    value = field.get_default(call_default_factory=True)
    return exact(value, units[0].dimension) if isinstance(value, float) and units else _value(to_jsonable_python(value))


def _value(value: Any) -> str:
    """A value as a file would have it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_value(item)}' for key, item in value.items() if item is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return "None" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}" or '""'
