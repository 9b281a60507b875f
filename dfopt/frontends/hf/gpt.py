"""Positions that are learned or added, and heads, of the types of ``model_types/gpt.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters

__all__ = [
    "as_wide",
    "falcon",
    "learned_positions",
    "mpt_attention",
    "mpt_layers",
    "neo_layers",
    "one_head_or_all",
    "turns_of_lists",
]


def learned_positions(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of learned positions, without rotary ones."""
    return {"learned_positions": given["positions"] + given.get("more_positions", 0), "rotary_dim": 0}


def falcon(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Falcon: key and value heads, and parallel attention and MLP with one norm or two."""
    parameters: dict[str, Any] = {"rotary_dim": 0} if given["alibi"] else {}
    if given["new_architecture"]:
        parameters |= {"parallel": "shared" if given.get("norms_beside") == 1 else "own"}
    else:
        one_head = {"kv_heads": 1} if given["multi_query"] else {"kv_heads": given["heads"]}
        parameters |= one_head | ({"parallel": "shared"} if given["beside"] else {})
    return parameters


def as_wide(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of a model whose embedding is as wide as the residual stream."""
    if given.get("embedded") not in (None, given["hidden"]):
        raise ValueError(f"embedded: found {given['embedded']}, expected {given['hidden']}, as hidden_size")
    return {}


def turns_of_lists(value: Any) -> dict[str, Any] | None:
    """Value of a list of layer types with repeats; None if it cannot be read."""
    valid = isinstance(value, list) and all(
        isinstance(turn, list)
        and len(turn) == 2
        and isinstance(turn[0], list)
        and all(kind in ("global", "local") for kind in turn[0])
        and is_whole(turn[1])
        and len(turn[0]) * turn[1] <= 10**4
        for turn in value
    )
    return {"turns": [kind for kinds, times in value for kind in kinds * times]} if valid else None


def neo_layers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of global and windowed attention layers (GPT-Neo)."""
    types, turns = given.get("types"), given.get("turns")
    if None not in (types, turns) and types != turns:
        raise ValueError("turns: found other layers than attention_layers says")
    return {"types": types or turns}


_OF_MPT: Final = frozenset({
    "alibi_bias_max", "attn_impl", "attn_pdrop", "attn_uses_sequence_id", "clip_qkv", "kv_n_heads", "softmax_scale",
})  # fmt: skip


def mpt_attention(value: Any) -> dict[str, Any] | None:
    """Value of MPT's attention block: key and value heads, with ALiBi; None if it cannot be read."""
    if not isinstance(value, Mapping) or set(value) - {*_OF_MPT, "alibi", "attn_type", "prefix_lm", "qk_ln"}:
        return None
    heads: dict[str, dict[str, int]] = {"multihead_attention": {}, "multiquery_attention": {"kv_heads": 1}}
    if is_whole(value.get("kv_n_heads")):
        heads["grouped_query_attention"] = {"kv_heads": value["kv_n_heads"]}
    kind = value.get("attn_type")
    others = value.get("prefix_lm") is not True and value.get("qk_ln") is not True
    if not isinstance(kind, str) or kind not in heads or value.get("alibi") is not True or not others:
        return None
    return {"of_attention": heads[kind]}


def mpt_layers(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of MPT: key and value heads of its attention block, and no rotary positions."""
    return {"rotary_dim": 0, **given["of_attention"]}


def one_head_or_all(data: Mapping[str, Any]) -> int | None:
    """Default number of key and value heads: 1, or None (all) if every head has its own."""
    heads = data.get("num_attention_heads")
    return 1 if data.get("multi_query") is not False else heads if is_whole(heads) else None
