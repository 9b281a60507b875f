"""Layers of attention beside Mamba 2 or short convolutions: Bamba, Granite 4, Falcon-H1, LFM2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dfopt.frontends.hf.fields import divide, is_whole
from dfopt.frontends.hf.layers import HEADED, FamilyParameters, mixer_of, put_together
from dfopt.frontends.hf.mamba import mamba2_of

__all__ = ["bamba", "falcon_h1", "granite", "half_of_a_head", "lfm2"]


def _scan(given: FamilyParameters, inner: int) -> dict[str, Any]:
    """The mixer of Mamba 2, whose heads have so many features together."""
    heads, dim = given["m_heads"], given["m_dim"]
    dim = inner // heads if dim == "auto" else dim
    if heads * dim != inner:
        raise ValueError(f"m_heads: found {heads} of {dim} features, expected {inner} together")
    return mamba2_of({**given, "m_dim": dim})


def _attention(given: FamilyParameters, **more: Any) -> dict[str, Any]:
    return mixer_of("attention", given, *HEADED, "bias", "rotary_dim", **more)


def _mlp(given: FamilyParameters) -> dict[str, Any]:
    return {"kind": "mlp", "ffn": given["ffn"], **({"bias": True} if given.get("mlp_bias") else {})}


def _in_places(given: FamilyParameters, usual: str, other: str) -> list[str]:
    """The kinds of layers, of which those that a list names are of the other one."""
    number, places = given["layers"], given.get("places") or []
    if any(place >= number for place in places):
        raise ValueError(f"places: found layer {max(places)} of {number}")
    return [other if place in places else usual for place in range(number)]


def bamba(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Mamba 2 layers and listed attention layers, each with an MLP (Bamba)."""
    layers = {
        "mamba": {"mixer": _scan(given, given["expand"] * given["hidden"]), "feed_forward": _mlp(given)},
        "attention": {"mixer": _attention(given), "feed_forward": _mlp(given)},
    }
    return put_together(given, layers, _in_places(given, "mamba", "attention"))


def half_of_a_head(data: Mapping[str, Any]) -> int | None:
    """Default number of rotary features: half of a head."""
    dim = data.get("head_dim") or divide(("hidden_size", "num_attention_heads"))(data)
    return dim // 2 if is_whole(dim, 2) else None


def granite(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Mamba 2 and attention layers, each with an MLP and perhaps experts (Granite)."""
    inside: dict[str, Any] = {"kind": "mlp", "ffn": given["shared_ffn"]}
    if given["experts"]:
        if not given["chosen"]:
            raise ValueError(f"chosen: found none, but {given['experts']} experts")
        inside = mixer_of("moe", given, "experts", "chosen", ffn=given["ffn"], shared=given["shared_ffn"])
    placed = {} if given["placed"] else {"rotary_dim": 0}
    layers = {"attention": {"mixer": _attention({**given, **placed}), "feed_forward": inside}}
    if "mamba" in given["types"]:
        sizes = [
            name for name in ("m_heads", "m_groups", "state", "convolution", "expand", "chunk") if name not in given
        ]
        if sizes:
            raise ValueError(f"{sizes[0]}: missing, but there are layers of Mamba")
        layers["mamba"] = {"mixer": _scan(given, given["expand"] * given["hidden"]), "feed_forward": inside}
    return put_together(given, layers, given["types"])


def falcon_h1(given: FamilyParameters) -> dict[str, Any]:
    """Stack of layers with attention and Mamba 2 in parallel, and an MLP (Falcon H1)."""
    inner = given["inner"] or given["expand"] * given["hidden"]
    both = {"kind": "beside", "mixers": [_attention(given), _scan(given, inner)]}
    return put_together(given, {"layer": {"mixer": both, "feed_forward": _mlp(given)}}, ["layer"] * given["layers"])


def lfm2(given: FamilyParameters) -> dict[str, Any]:
    """Stack of gated-convolution and attention layers, with MLPs or experts after some dense layers (LFM2)."""
    types = given.get("types")
    if types is None and given.get("places") is None:
        raise ValueError("types: missing, expected conv and full_attention, or full_attn_idxs")
    order = types or _in_places(given, "convolution", "attention")
    if None not in (types, given.get("places")) and types != _in_places(given, "convolution", "attention"):
        raise ValueError("places: found other layers than layer_types says")
    inside = {"dense": {"kind": "mlp", "ffn": _adjusted(given)}}
    if "experts" in given:
        inside["experts"] = mixer_of("moe", given, "experts", "chosen", "router_bias", ffn=given["expert_ffn"])
    dense = given.get("dense", given["layers"])
    kinds = [f"{kind}_{'dense' if place < dense else 'experts'}" for place, kind in enumerate(order)]
    bias = {"bias": True} if given["bias"] else {}
    mixers = {
        "convolution": mixer_of("gated_convolution", given, "convolution", inner=given["hidden"], **bias),
        "attention": mixer_of("attention", given, *HEADED, qk_norm="head"),
    }
    layers = {f"{a}_{b}": {"mixer": mixers[a], "feed_forward": inside[b]} for a in mixers for b in inside}
    return put_together(given, layers, kinds)


def _adjusted(given: FamilyParameters) -> int:
    """The features inside an MLP: two thirds of what is said, in so many steps of a size."""
    size: int = given["ffn"]
    if not given.get("adjusts"):
        return size
    size, step = int(given["factor"] * int(2 * size / 3)), given["multiple"]
    return int(step * math.ceil(size / step))
