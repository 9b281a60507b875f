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
    """A window of every layer, or null."""
    if value is None:
        return {}
    return {"window": value, "global_every": 0} if is_whole(value) else None


def all_global(value: Any) -> dict[str, Any] | None:
    """Attention of every layer to all tokens."""
    return {} if isinstance(value, list) and set(map(str, value)) == {"full_attention"} else None


def placed(value: Any) -> dict[str, Any] | None:
    """Which layers carry positions, of which an empty list says as little as none."""
    if value in (None, []):
        return {"placed": None}
    valid = isinstance(value, list) and all(type(flag) is int and flag in (0, 1) for flag in value)
    return {"placed": ["chunked" if flag else "global" for flag in value]} if valid else None


def word(value: Any) -> dict[str, Any] | None:
    """Any word, which changes nothing."""
    return {} if isinstance(value, str) else None


def index_pattern(value: Any) -> dict[str, Any] | None:
    """Which layers have an indexer, as a list or a string; or null."""
    return {"index_pattern": value} if value is None or isinstance(value, (str, list)) else None


def whole_numbers(value: Any, to: str) -> dict[str, Any] | None:
    """A whole number for every layer, or null."""
    valid = isinstance(value, list) and value and all(map(is_whole, value))
    return {to: value} if valid or value is None else None


def intermediate_size(data: Mapping[str, Any]) -> Any:
    """Experts as large as an MLP."""
    return data.get("intermediate_size")


def latent_size(data: Mapping[str, Any]) -> int | None:
    """No latent features of experts, where there are experts."""
    return 0 if data.get("n_routed_experts") else None
