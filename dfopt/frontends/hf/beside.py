"""What decoders of ``model_types/beside.yaml`` say in their own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters, local_everywhere

__all__ = ["as_model_max_length", "baichuan", "chatglm", "length", "local_or_told", "qwen_ffn", "turning", "wide"]


def qwen_ffn(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Qwen's MLP, whose config states gate and up projection together."""
    if given["ffn"] % 2:
        raise ValueError(f"ffn: found {given['ffn']}, expected an even number, for gate and up projection")
    return {"ffn": given["ffn"] // 2}


def wide(data: Mapping[str, Any]) -> str | None:
    """Data type of the weights if exactly one of the flags ``bf16``, ``fp16`` and ``fp32`` is set, else None."""
    types = [name for flag, name in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")) if data.get(flag)]
    return types[0] if len(types) == 1 else None


_AS_LONG: Final = "as model_max_length"


def baichuan(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Baichuan's positions: rotary in smaller models, ALiBi in larger ones."""
    turns, length = given.get("turns"), given.get("length")
    if None not in (turns, length) and turns != length:
        raise ValueError(f"length: found {length}, but max_position_embeddings says {turns}")
    return {} if turns else {"rotary_dim": 0}


def turning(value: Any) -> dict[str, Any] | None:
    """Value of the number of rotary positions; None if it cannot be read."""
    if value == _AS_LONG:
        return {}
    return {"turns": value, "positions": value} if is_whole(value) else None


def as_model_max_length(data: Mapping[str, Any]) -> str | None:
    """Default of the number of positions: that of ``model_max_length`` if it is given, else None."""
    return _AS_LONG if is_whole(data.get("model_max_length")) else None


def length(value: Any) -> dict[str, Any] | None:
    """Value of the number of positions; None if it cannot be read."""
    return {"length": value, "positions": value} if is_whole(value) else None


def chatglm(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of ChatGLM: key and value heads, and rotary positions on half of the features."""
    if given["grouped"] and "groups" not in given:
        raise ValueError("groups: missing, but multi_query_attention is true")
    return {"kv_heads": given["groups"] if given["grouped"] else given["heads"], "rotary_dim": given["head_dim"] // 2}


def local_or_told(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of windows in every layer, unless the config lists layer types."""
    return {} if given.get("types") else local_everywhere(given)
