"""Values of fields that no kind of row describes, and of fields left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dfopt.frontends.hf.fields import is_whole

__all__ = [
    "all_global",
    "index_pattern",
    "intermediate_size",
    "latent_size",
    "placed",
    "whole_numbers",
    "window",
    "word",
]


def window(value: Any) -> dict[str, Any] | None:
    """Value of the window of all layers, which may be null; None if it cannot be read."""
    if value is None:
        return {}
    return {"window": value, "global_every": 0} if is_whole(value) else None


def all_global(value: Any) -> dict[str, Any] | None:
    """Value of a layer-type list with global attention only; None if it cannot be read."""
    return {} if isinstance(value, list) and set(map(str, value)) == {"full_attention"} else None


def placed(value: Any) -> dict[str, Any] | None:
    """Value of a list of layers with positions, which may be empty; None if it cannot be read."""
    if value in (None, []):
        return {"placed": None}
    valid = isinstance(value, list) and all(type(flag) is int and flag in (0, 1) for flag in value)
    return {"placed": ["chunked" if flag else "global" for flag in value]} if valid else None


def word(value: Any) -> dict[str, Any] | None:
    """Value of a text that changes nothing; None if it cannot be read."""
    return {} if isinstance(value, str) else None


def index_pattern(value: Any) -> dict[str, Any] | None:
    """Value of the layers with an indexer, as a list, string or null; None if it cannot be read."""
    return {"index_pattern": value} if value is None or isinstance(value, (str, list)) else None


def whole_numbers(value: Any, to: str) -> dict[str, Any] | None:
    """Value of a list with one integer per layer, or null; None if it cannot be read."""
    valid = isinstance(value, list) and value and all(map(is_whole, value))
    return {to: value} if valid or value is None else None


def intermediate_size(data: Mapping[str, Any]) -> Any:
    """Default size of experts: that of an MLP."""
    return data.get("intermediate_size")


def latent_size(data: Mapping[str, Any]) -> int | None:
    """Default number of latent features of experts: 0 for a model with routed experts, else None."""
    return 0 if data.get("n_routed_experts") else None
