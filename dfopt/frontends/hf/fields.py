"""What a table of Hugging Face configs is made of: a row for each field, an entry for each type of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

__all__ = [
    "BLOCKS", "HEADS", "SIZES", "Family", "Field", "Gives", "Modules", "count", "few", "flag", "head_dim_of",
    "heads_of", "is_whole", "listed", "natural", "one_of", "optional", "unless",
]  # fmt: skip

SIZES: Final[Mapping[str, str]] = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
}
"""Sizes that configs of every type have, and what they are called here."""
HEADS: Final[Mapping[str, str]] = {"num_key_value_heads": "kv_heads", "head_dim": "head_dim"}
"""Those of attention with keys and values of its own."""

Gives = Callable[[Any], dict[str, Any] | None]
"""Parameters of the decoder that a value gives; none if the value is not understood."""


@dataclass(frozen=True)
class Modules:
    """What the weights of a type of model are called, by the part that they belong to.

    ``few`` are weights that count with those of attention, whatever is done with them: routers, and gates of experts.
    ``*`` stands for the layer's number. Names begin behind one of ``fronts``.
    """

    fronts: tuple[str, ...] = ("model.",)
    layer: str = "layers.*."
    mixer: tuple[str, ...] = tuple(f"self_attn.{name}_proj" for name in "qkvo")
    mixers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of kinds of mixers whose names are others
    dense: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    experts: tuple[str, ...] = tuple(f"mlp.experts.0.{name}_proj" for name in ("gate", "up", "down"))
    shared: tuple[str, ...] = tuple(f"mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down"))
    few: tuple[str, ...] = ("mlp.gate",)


BLOCKS: Final = Modules(
    experts=tuple(f"block_sparse_moe.experts.0.{name}" for name in ("w1", "w2", "w3")), few=("block_sparse_moe.gate",)
)
"""What the weights of experts are called in Mixtral, and in types made after it."""


@dataclass(frozen=True)
class Family:
    """A ``model_type``: parameters of its architecture, and what its config class takes for fields left out.

    A value of ``left_out`` may be a function of the config, which gives none where others are missing.
    """

    always: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # fields that only some families have
    unused: tuple[str, ...] = ()  # fields that say something of layers which a model of this type does not have
    heads_share_hidden: bool = False  # the type had no head_dim at first: then hidden_size / num_attention_heads
    fields: Mapping[str, Field] | None = None  # instead of the rows of `FIELDS` that decoders have
    words: frozenset[str] = frozenset()  # fields that change no shape, cost or size of this type
    stack: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None  # what its layers are, where they differ
    names: Mapping[str, str] = field(default_factory=dict)  # other names that its fields have
    modules: Modules = Modules()
    classes: tuple[str, ...] = ()  # what language models of this type are called that have another name than others
    left: Mapping[str, str] = field(default_factory=dict)  # fields of parts that are left out, and what those are


@dataclass(frozen=True)
class Field:
    """A field of configs: what its values give, what is expected, and whether a file must have it."""

    gives: Gives
    expected: str
    needed: bool = False


def is_whole(value: Any, least: int = 1) -> TypeGuard[int]:
    """Whether a value is a whole number of at least so much; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def few(parameter: str) -> Field:
    """Numbers of layers, which are written out one by one: a thousand at most."""

    def gives(value: Any) -> dict[str, Any] | None:
        return {parameter: value} if is_whole(value) and value <= 1000 else None

    return Field(gives, "a whole number from 1 on, 1000 at most", needed=True)


def heads_of(data: Mapping[str, Any]) -> int | None:
    """What a class takes for heads of keys and values: as many as of queries."""
    heads = data.get("num_attention_heads")
    return heads if is_whole(heads) else None


def head_dim_of(data: Mapping[str, Any]) -> int | None:
    """What a class takes for the features of a head: those of the residual, divided among the heads."""
    hidden, heads = data.get("hidden_size"), data.get("num_attention_heads")
    return hidden // heads if is_whole(hidden) and is_whole(heads) and hidden % heads == 0 else None


def unless(name: str, value: Any) -> Callable[[Mapping[str, Any]], Any]:
    """What a class takes for a field unless another one stands for it."""
    return lambda data: value if data.get(name) in (None, []) else None


def count(parameter: str, needed: bool = True) -> Field:
    """A whole number of at least one, which every file must have."""
    return Field(lambda value: {parameter: value} if is_whole(value) else None, "a whole number from 1 on", needed)


def optional(parameter: str, needed: bool = False) -> Field:
    """A whole number of at least one, or null, which is said too."""
    expected = "null, or a whole number from 1 on"
    return Field(lambda value: {parameter: value} if value is None or is_whole(value) else None, expected, needed)


def natural(parameter: str, needed: bool = True) -> Field:
    """A whole number, which may be 0; the same for none."""

    def gives(value: Any) -> dict[str, Any] | None:
        return {parameter: value or 0} if value is None or is_whole(value, 0) else None

    return Field(gives, "a whole number from 0 on", needed)


def one_of(expected: str, values: Mapping[Any, dict[str, Any]], needed: bool = False) -> Field:
    """A field with a few values; True is not 1."""

    def gives(value: Any) -> dict[str, Any] | None:
        known = [given for key, given in values.items() if type(key) is type(value) and key == value]
        return known[0] if known else None

    return Field(gives, expected, needed)


def flag(true: dict[str, Any] | None = None, false: dict[str, Any] | None = None, needed: bool = False) -> Field:
    """True or false; with one of them left out it must be the other."""
    known = {one: given for one, given in ((True, true), (False, false)) if given is not None}
    return one_of(" or ".join(str(one).lower() for one in known), known, needed)


def listed(parameter: str, known: Mapping[Any, Any], needed: bool = False) -> Field:
    """A list of words or numbers, one for every layer, each of which is known."""

    def gives(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, list) or not value or any(isinstance(one, (list, dict)) for one in value):
            return None
        found = [[given for key, given in known.items() if type(key) is type(one) and key == one] for one in value]
        return {parameter: [one[0] for one in found]} if all(found) else None

    return Field(gives, f"a list of {' and '.join(str(one) for one in known)}", needed)
