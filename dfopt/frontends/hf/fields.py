"""What a table of Hugging Face configs is made of: a row for each field, an entry for each type of model.

Tables are data files (:mod:`dfopt.frontends.hf.families`). A row is a mapping whose first key is its kind, an entry of
:data:`_KINDS`. What a class takes for a field left out is a value, or a mapping whose first key is one of
:data:`_DEFAULTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Annotated, Any, Final, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, ValidationInfo

from dfopt.documents.scalars import resolve
from dfopt.errors import did_you_mean

__all__ = [
    "Default", "Entry", "Family", "Field", "FieldRow", "Gives", "WeightNames", "divide", "is_whole", "number_of_layers",
]  # fmt: skip

Gives = Callable[[Any], dict[str, Any] | None]
"""Parameters of the decoder that a value gives; none if the value is not understood."""
Takes = Callable[[Mapping[str, Any]], Any]
"""What a class takes for a field that a config leaves out; none where other fields are missing."""

_MOST_LAYERS: Final = 1000


def is_whole(value: Any, least: int = 1) -> TypeGuard[int]:
    """Whether a value is an integer of at least ``least``; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def number_of_layers(data: Mapping[str, Any]) -> int | None:
    """Number of layers in a config, or None."""
    number = data.get("num_hidden_layers")
    return number if is_whole(number) and number <= _MOST_LAYERS else None


# --- rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """How to read a field of a Hugging Face config.

    Attributes
    ----------
    gives : callable
        From a value to parameters; None for a value that it does not understand.
    expected : str
        Description of valid values, for errors.
    needed : bool
        Whether the config must have the field.
    """

    gives: Gives
    expected: str
    needed: bool = False


def _count(
    parameter: str,
    *,
    least: int = 1,
    most: int | None = None,
    also: Sequence[str | None] = (),
    alike: bool = False,
    expected: str = "",
    needed: bool = True,
) -> Field:
    """A whole number, some words or null; if ``alike``, a list of the same one for every layer stands for it, too."""

    def gives(value: Any) -> dict[str, Any] | None:
        if alike and isinstance(value, list) and value and all(each == value[0] for each in value):
            value = value[0]
        valid = is_whole(value, least) and (most is None or value <= most)
        return {parameter: value} if valid or ((value is None or isinstance(value, str)) and value in also) else None

    number = f"a whole number from {least} on{'' if most is None else f', {most} at most'}"
    words = ", or ".join(
        [*(word or "null" for word in also), number, *(["a list of the same one for every layer"] if alike else [])]
    )
    return Field(gives, expected or words, needed)


def _number(parameter: str, *, most: float, needed: bool = False) -> Field:
    """A number above 0."""

    def gives(value: Any) -> dict[str, Any] | None:
        valid = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= most
        return {parameter: value} if valid else None

    return Field(gives, f"a number above 0, {most} at most", needed)


def _optional(parameter: str, *, needed: bool = False) -> Field:
    """A whole number of at least one, or null, which is said too."""
    return _count(parameter, also=(None,), needed=needed)


def _natural(parameter: str, *, expected: str = "a whole number from 0 on", needed: bool = True) -> Field:
    """A whole number, which may be 0; the same for none."""

    def gives(value: Any) -> dict[str, Any] | None:
        return {parameter: value or 0} if value is None or is_whole(value, 0) else None

    return Field(gives, expected, needed)


def _whole_number(least: int, *, expected: str = "a whole number from 1 on", needed: bool = False) -> Field:
    """A whole number of at least so much, which gives nothing."""
    return Field(lambda value: {} if is_whole(value, least) else None, expected, needed)


def _values(
    values: Mapping[str, Mapping[str, Any]], *, why: str = "", expected: str = "", needed: bool = False
) -> Field:
    """A field with a few values, and what each gives."""
    return _one_of([(resolve(word), {**given}) for word, given in values.items()], why, expected, needed)


def _when(given: Mapping[str, Any], *, needed: bool = False) -> Field:
    """True or false, of which true gives something."""
    return _one_of([(True, {**given}), (False, {})], "", "", needed)


def _only(values: Any, *, why: str = "", expected: str = "", needed: bool = False) -> Field:
    """A field with a value, or one of a list of them, under which it changes nothing."""
    return _one_of([(value, {}) for value in (values if isinstance(values, list) else [values])], why, expected, needed)


def _flag(parameter: str, *, needed: bool = False) -> Field:
    """True or false, which is said."""
    return _one_of([(value, {parameter: value}) for value in (True, False)], "", "", needed)


def _one_of(values: Sequence[tuple[Any, dict[str, Any]]], why: str, expected: str, needed: bool) -> Field:
    """A field with a few values; True is not 1."""

    def gives(value: Any) -> dict[str, Any] | None:
        return next((given for word, given in values if type(word) is type(value) and word == value), None)

    words = " or ".join("null" if word is None else str(word) for word, _ in values)
    words = re.sub(r"\b(True|False)\b", lambda word: word[0].lower(), words)
    return Field(gives, expected or (f"{words}: {why}" if why else words), needed)


def _each(
    parameter: str, *, of: Mapping[str, Any], null: bool = False, expected: str = "", needed: bool = False
) -> Field:
    """A list of words or numbers, one for every layer, each of which is known; or null, if that says nothing."""
    choices = [(resolve(word), given) for word, given in of.items()]

    def gives(value: Any) -> dict[str, Any] | None:
        if value is None and null:
            return {}
        if not isinstance(value, list) or not value:
            return None
        matches = [[given for word, given in choices if type(word) is type(layer) and word == layer] for layer in value]
        return {parameter: [match[0] for match in matches]} if all(matches) else None

    return Field(gives, expected or f"a list of {' and '.join(str(word) for word, _ in choices)}", needed)


def _places(parameter: str, *, null: bool = True) -> Field:
    """Numbers of layers, or null."""

    def gives(value: Any) -> dict[str, Any] | None:
        places = isinstance(value, list) and all(is_whole(place, 0) for place in value)
        return {parameter: value} if places or (value is None and null) else None

    return Field(gives, f"{'null, or ' if null else ''}numbers of layers")


def _mapping(sizes: Mapping[str, str], *, words: Sequence[str] = ()) -> Field:
    """A mapping of sizes, and of fields that change nothing."""

    def gives(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Mapping) or set(value) - {*words, *sizes}:
            return None
        parameters = {parameter: value.get(name) for name, parameter in sizes.items()}
        return parameters if all(map(is_whole, parameters.values())) else None

    return Field(gives, f"a mapping with {' and '.join(sizes)}, and no fields that are not known", needed=True)


def _coded(gives: Callable[..., dict[str, Any] | None], *, expected: str, to: str = "", needed: bool = False) -> Field:
    """What a function understands, which gives a parameter of this name or several."""
    return Field(partial(gives, to=to) if to else gives, expected, needed)


_KINDS: Final[Mapping[str, Callable[..., Field]]] = {
    "count": _count, "optional": _optional, "natural": _natural, "number": _number, "whole": _whole_number,
    "values": _values, "when": _when, "flag": _flag, "only": _only, "each": _each, "places": _places,
    "mapping": _mapping, "code": _coded,
}  # fmt: skip

# --- what a class takes for fields left out -----------------------------------------------------------------


def _same_as(name: str) -> Takes:
    return lambda data: data.get(name) if is_whole(data.get(name)) else None


def divide(names: Sequence[str]) -> Takes:
    """Default of a field: the quotient of two other fields if they are integers and it is whole, else None."""

    def takes(data: Mapping[str, Any]) -> int | None:
        size, by = (data.get(name) for name in names)
        return size // by if is_whole(size) and is_whole(by) and size % by == 0 else None

    return takes


def _times(times: int | str, *, of: str) -> Takes:
    """A default that is a multiple of another field: by a number, or by a third field."""

    def takes(data: Mapping[str, Any]) -> int | None:
        size, often = data.get(of), data.get(times) if isinstance(times, str) else times
        return often * size if is_whole(size) and is_whole(often) else None

    return takes


def _unless(name: str, *, value: Any) -> Takes:
    """A value, unless another field stands for it."""
    takes = _described(value, _DEFAULTS, {}) if isinstance(value, Mapping) else lambda data: value
    return lambda data: takes(data) if data.get(name) in (None, []) else None


def _layers(turns: Sequence[str], *, first: Sequence[str] = ()) -> Takes:
    """Kinds of layers, in turn behind the first ones."""

    def takes(data: Mapping[str, Any]) -> list[str] | None:
        number = number_of_layers(data)
        return None if number is None else [*first, *islice(cycle(turns), number)][:number]

    return takes


def _computed(takes: Takes) -> Takes:
    return takes


_DEFAULTS: Final[Mapping[str, Callable[..., Takes]]] = {
    "same_as": _same_as, "divide": divide, "times": _times, "unless": _unless, "layers": _layers, "code": _computed,
}  # fmt: skip

# --- from data ----------------------------------------------------------------------------------------------


def _function(name: Any, code: Mapping[str, Any]) -> Any:
    """The function that a table names, of those that its reader knows."""
    if not isinstance(name, str) or name not in code:
        raise ValueError(f"no function {name} {did_you_mean(str(name), code)}".strip())
    return code[name]


def _described(entry: Mapping[str, Any], kinds: Mapping[str, Callable[..., Any]], code: Mapping[str, Any]) -> Any:
    """What a mapping describes, whose first key is a kind and whose others are its options."""
    kind, argument = next(iter(entry.items()))
    if kind not in kinds:
        raise ValueError(f"no kind {kind}, expected {' or '.join(kinds)}")
    options = {name: value for name, value in entry.items() if name != kind}
    try:
        return kinds[kind](_function(argument, code) if kind == "code" else argument, **options)
    except TypeError as error:  # an option that the kind does not have
        raise ValueError(f"{kind}: {error}") from None


def _row(entry: Any, info: ValidationInfo) -> Field:
    """The row of an entry; of a plain value the one that has it, and no other."""
    if isinstance(entry, Field):
        return entry
    return _described(entry, _KINDS, info.context or {}) if isinstance(entry, Mapping) else _only(entry)


def _default(value: Any, info: ValidationInfo) -> Any:
    return _described(value, _DEFAULTS, info.context or {}) if isinstance(value, Mapping) else value


def _code(name: Any, info: ValidationInfo) -> Any:
    return _function(name, info.context or {})


def _spelled_out(names: Any) -> Any:
    """Names with each of the words in braces: ``attn.{q,k}_proj``."""
    expanded = []
    for name in names:
        front, brace, rest = name.partition("{")
        words, _, end = rest.partition("}")
        expanded += [f"{front}{word}{end}" for word in words.split(",")] if brace else [name]
    return tuple(expanded)


FieldRow = Annotated[Field, PlainValidator(_row)]
Default = Annotated[Any, PlainValidator(_default)]
Names = Annotated[tuple[str, ...], BeforeValidator(_spelled_out)]


class Entry(BaseModel):
    """Base of the parts of a data file."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class WeightNames(Entry):
    """Weight names of a model type, by part of the model.

    ``few`` are small weights that always count with those of attention: routers, and gates of experts. ``*`` stands for
    the layer's number. Names follow one of the prefixes ``fronts``.
    """

    fronts: Names = ("model.",)
    layer: str = "layers.*."
    mixer: Names = tuple(f"self_attn.{name}_proj" for name in "qkvo")
    mixers: dict[str, Names] = {}  # of kinds of mixers whose names are others
    dense: Names = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    experts: Names = tuple(f"mlp.experts.0.{name}_proj" for name in ("gate", "up", "down"))
    shared: Names = tuple(f"mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down"))
    few: Names = ("mlp.gate",)


class Family(Entry):
    """How to read the configs of one ``model_type``: fixed parameters, fields and defaults.

    A value of ``left_out`` may be a function of the config, which returns None if other values are missing.
    """

    always: dict[str, Any] = {}
    left_out: dict[str, Default] = {}
    fields: dict[str, FieldRow]  # that its configs may have, in the order of the tables
    words: frozenset[str] = frozenset()  # fields that change no shape, cost or size of this type
    stack: Annotated[Callable[..., dict[str, Any]] | None, BeforeValidator(_code)] = None  # its layers in full
    steps: tuple[Annotated[Callable[..., dict[str, Any]], BeforeValidator(_code)], ...] = ()  # to work out layers
    alike: bool = False  # a decoder, whose layers are all alike
    names: dict[str, str] = {}  # other names that its fields have
    modules: WeightNames = WeightNames()
    classes: tuple[str, ...] = ()  # what language models of this type are called that have another name than others
    left: dict[str, str] = {}  # fields of parts that are left out, and what those are
