"""Layers of delta rules mixed with attention: Qwen3-Next, Qwen3.5 and Kimi Linear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import HEADED, FamilyParameters, every_so_many, mixer_of, put_together, routed

__all__ = ["delta_layers", "kda_layers", "linear_attention"]


def delta_layers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of gated-delta-rule layers and gated-attention layers."""
    order, every = given.get("types"), given.get("interval")
    in_turn = None if every is None else every_so_many(given["layers"], every, "delta", "attention")
    if order is None and in_turn is None:
        raise ValueError("types: missing, expected linear_attention and full_attention, or full_attention_interval")
    if None not in (order, in_turn) and order != in_turn:
        raise ValueError(f"interval: found {every}, but layer_types say otherwise")
    inside: dict[str, Any] = {"kind": "mlp", "ffn": given.get("ffn")}
    if "experts" in given:
        names = ("experts", "chosen", "shared")
        inside = mixer_of("moe", given, *names, ffn=given["expert_ffn"], shared_gate=True)
    sizes = ("key_heads", "value_heads", "key_dim", "value_dim", "convolution", "state_bytes")
    mixers = {
        "delta": mixer_of("gated_delta_net", given, *sizes),
        "attention": mixer_of("attention", given, *HEADED, "gate", qk_norm="head"),
    }
    layers = {name: {"mixer": mixer, "feed_forward": inside} for name, mixer in mixers.items()}
    return put_together(given, layers, order or in_turn or (), ["attention"])


def kda_layers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Kimi delta attention and latent attention, with a few dense layers first."""
    own, number = given["linear"], given["layers"]
    kinds = {place: "kda" for place in own["kda_layers"]} | {place: "latent" for place in own["full_attn_layers"]}
    if sorted(kinds) != list(range(1, number + 1)) or len(own["kda_layers"]) + len(own["full_attn_layers"]) != number:
        raise ValueError(f"linear: found {len(kinds)} places of layers, expected each from 1 to {number} once")
    dim = own["head_dim"]
    sizes = {"key_dim": dim, "value_dim": dim, "decay_rank": dim, "gate_rank": dim}
    mixers = {
        "kda": {"kind": "kda", "heads": own["num_heads"], "convolution": own["short_conv_kernel_size"], **sizes},
        "latent": mixer_of("mla", given, "heads", "rank", "query_rank", "nope_dim", "rotary_dim", "value_dim"),
    }
    inside = {"dense": {"kind": "mlp", "ffn": given["ffn"]}, "experts": routed(given)}
    forwards = ["dense" if place < given["dense"] else "experts" for place in range(number)]
    order = [f"{kinds[place + 1]}_{forward}" for place, forward in enumerate(forwards)]
    layers = {f"{a}_{b}": {"mixer": mixers[a], "feed_forward": inside[b]} for a in mixers for b in inside}
    return put_together(given, layers, order, order[-1:])


_OF_KDA: Final = ("head_dim", "num_heads", "short_conv_kernel_size")


def linear_attention(value: Any) -> dict[str, Any] | None:
    """Value of the linear-attention block: sizes, and layer numbers from 1; None if it cannot be read."""
    if not isinstance(value, Mapping) or set(value) != {*_OF_KDA, "kda_layers", "full_attn_layers"}:
        return None
    places = [value[name] for name in ("kda_layers", "full_attn_layers")]
    valid = all(isinstance(layers, list) and all(map(is_whole, layers)) for layers in places)
    return {"linear": value} if valid and all(is_whole(value[name]) for name in _OF_KDA) else None
