"""What a table of Hugging Face configs is made of: a row for each field, an entry for each type of model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["HEADS", "SIZES", "Family", "Field", "Gives", "count", "is_whole", "one_of"]

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
class Family:
    """A ``model_type``: parameters of its architecture, and what its config class takes for fields left out."""

    always: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # fields that only some families have
    unused: tuple[str, ...] = ()  # fields that say something of layers which a model of this type does not have
    heads_share_hidden: bool = False  # the type had no head_dim at first: then hidden_size / num_attention_heads
    fields: Mapping[str, Field] | None = None  # instead of the rows of `FIELDS` that decoders have
    words: frozenset[str] = frozenset()  # fields that change no shape, cost or size of this type
    stack: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None  # what its layers are, where they differ


@dataclass(frozen=True)
class Field:
    """A field of configs: what its values give, what is expected, and whether a file must have it."""

    gives: Gives
    expected: str
    needed: bool = False


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number of at least so much; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def count(parameter: str) -> Field:
    """A whole number of at least one, which every file must have."""

    def gives(value: Any) -> dict[str, Any] | None:
        return {parameter: value} if is_whole(value) else None

    return Field(gives, "a whole number from 1 on", needed=True)


def one_of(expected: str, values: Mapping[Any, dict[str, Any]], needed: bool = False) -> Field:
    """A field with a few values; True is not 1."""

    def gives(value: Any) -> dict[str, Any] | None:
        known = [given for key, given in values.items() if type(key) is type(value) and key == value]
        return known[0] if known else None

    return Field(gives, expected, needed)
