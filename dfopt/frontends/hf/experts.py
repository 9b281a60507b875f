"""Layers of experts, as the types of ``model_types/experts.yaml`` say where they are."""

from __future__ import annotations

from typing import Any

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters, head_dim_of, local_in_turn

__all__ = ["ffn_of_experts", "letters", "ling", "to_the_last", "unplaced"]


def to_the_last(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of expert layers up to the last; dense layers after them are not drawn."""
    if given["last"] not in (-1, given["layers"] - 1):
        raise ValueError(f"last: found {given['last']} of {given['layers']} layers, expected the last one, or -1")
    return {}


def unplaced(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of layers in which global attention has no positions next to windowed layers."""
    turns = local_in_turn(given)
    types = turns.get("types") or given.get("types") or []
    return {**turns, "own": {"global": {"rotary_dim": 0}} if "local" in types else {}}


def ling(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Ling: shared experts as large as others, and a default head size."""
    head_dim = given["head_dim"] or head_dim_of(given)
    if given.get("shared_ffn", given["expert_ffn"]) != given["expert_ffn"]:
        raise ValueError(f"shared_ffn: found {given['shared_ffn']}, expected {given['expert_ffn']}, as all experts")
    return {"head_dim": head_dim}


def letters(value: Any) -> dict[str, Any] | None:
    """Value of a layer pattern: a number, or letters of one period; None if it cannot be read."""
    if isinstance(value, str) and len(value) > 1 and value == "L" * (len(value) - 1) + "G":
        return {"pattern": len(value)}
    return {"pattern": value} if value is None or is_whole(value) else None


def ffn_of_experts(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of a model with expert layers only, without a dense size."""
    return {"ffn": given["expert_ffn"]}
