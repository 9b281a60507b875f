"""Hugging Face configs of attention beside Mamba 2 or short convolutions: Bamba, Granite 4, Falcon-H1, LFM2.

Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23, and the configs on the hub.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.decoders import GRANITE_WORDS
from dfopt.frontends.hf.fields import (
    Family,
    Field,
    Modules,
    count,
    flag,
    head_dim_of,
    heads_of,
    is_whole,
    listed,
    natural,
    one_of,
    optional,
)
from dfopt.frontends.hf.layers import Given
from dfopt.frontends.hf.mamba import SCAN_WORDS, mamba2_of
from dfopt.frontends.hf.mixed import CONV_BIAS, HEADED, NO_BIAS, mixer_of, put_together
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["HYBRID_FAMILIES"]


def _places(parameter: str) -> Field:
    """A list of layers, or null."""

    def gives(value: Any) -> dict[str, Any] | None:
        whole = isinstance(value, list) and all(is_whole(one, 0) for one in value)
        return {parameter: value} if whole or value is None else None

    return Field(gives, "null, or numbers of layers")


def _head(value: Any) -> dict[str, Any] | None:
    return {"m_dim": value} if value == "auto" or is_whole(value) else None


_OF_MAMBA: Final[Mapping[str, Field]] = {
    "mamba_n_heads": count("m_heads"),
    "mamba_d_head": Field(_head, "auto, or a whole number from 1 on", needed=True),
    "mamba_n_groups": count("m_groups"),
    "mamba_d_state": count("state"),
    "mamba_d_conv": count("convolution"),
    "mamba_expand": count("expand"),
    "mamba_chunk_size": count("chunk"),
    "mamba_conv_bias": CONV_BIAS,
    "mamba_proj_bias": NO_BIAS,
}
_LEFT_OUT: Final[dict[str, Any]] = {
    "tie_word_embeddings": False,
    "attention_bias": False,
    "num_key_value_heads": heads_of,
    "head_dim": head_dim_of,
    "mamba_d_head": "auto",
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
}
_OF_MIXERS: Final = {"mamba2": ("mamba.in_proj", "mamba.out_proj")}


def _scan(given: Given, inner: int) -> dict[str, Any]:
    """The mixer of Mamba 2, whose heads have so many features together."""
    heads, dim = given["m_heads"], given["m_dim"]
    dim = inner // heads if dim == "auto" else dim
    if heads * dim != inner:
        raise ValueError(f"m_heads: found {heads} of {dim} features, expected {inner} together")
    return mamba2_of({**given, "m_dim": dim})


def _attention(given: Given, **more: Any) -> dict[str, Any]:
    return mixer_of("attention", given, *HEADED, "bias", "rotary_dim", **more)


def _mlp(given: Given) -> dict[str, Any]:
    return {"kind": "mlp", "ffn": given["ffn"], **({"bias": True} if given.get("mlp_bias") else {})}


def _in_places(given: Given, usual: str, other: str) -> list[str]:
    """The kinds of layers, of which those that a list names are of the other one."""
    number, places = given["layers"], given.get("places") or []
    if any(place >= number for place in places):
        raise ValueError(f"places: found layer {max(places)} of {number}")
    return [other if place in places else usual for place in range(number)]


# --- Bamba --------------------------------------------------------------------------------------------------


def _bamba(given: Given) -> dict[str, Any]:
    """Layers of Mamba 2, and of attention where a list says so, each with an MLP."""
    layers = {
        "mamba": {"mixer": _scan(given, given["expand"] * given["hidden"]), "feed_forward": _mlp(given)},
        "attention": {"mixer": _attention(given), "feed_forward": _mlp(given)},
    }
    return put_together(given, layers, _in_places(given, "mamba", "attention"))


def _half_of_a_head(data: Mapping[str, Any]) -> int | None:
    dim = data.get("head_dim") or head_dim_of(data)
    return dim // 2 if is_whole(dim, 2) else None


_BAMBA: Final = Family(
    left_out={**_LEFT_OUT, "mlp_bias": False, "attn_layer_indices": None, "attn_rotary_emb": _half_of_a_head},
    fields=rows(
        "head_dim",
        "attention_bias",
        "mlp_bias",
        **_OF_MAMBA,
        attn_layer_indices=_places("places"),
        attn_rotary_emb=count("rotary_dim", needed=False),
        partial_rotary_factor=one_of("0.5: half of a head", {0.5: NOTHING}),
    ),
    words=SCAN_WORDS | {"embedding_multiplier", "initializer_cfg", "z_loss_coefficient"},
    stack=_bamba,
    modules=Modules(
        mixers=_OF_MIXERS,
        dense=tuple(f"feed_forward.{name}_proj" for name in ("gate", "up", "down")),
        few=("mamba.conv1d",),
    ),
)

# --- Granite 4 ----------------------------------------------------------------------------------------------


def _granite(given: Given) -> dict[str, Any]:
    """Layers of Mamba 2 and of attention, each with an MLP, beside experts if there are any."""
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


def _every_layer_mamba(data: Mapping[str, Any]) -> list[str] | None:
    number = data.get("num_hidden_layers")
    return ["mamba"] * number if is_whole(number) and number <= 10**3 else None


_GRANITE: Final = Family(
    left_out={**_LEFT_OUT, "layer_types": _every_layer_mamba, "position_embedding_type": None},
    fields=rows(
        "head_dim",
        "attention_bias",
        # a model without layers of Mamba says nothing of them
        **{name: replace(row, needed=False) for name, row in _OF_MAMBA.items()},
        layer_types=listed(
            "types",
            {"mamba": "mamba", "linear_attention": "mamba", "attention": "attention", "full_attention": "attention"},
        ),
        num_local_experts=natural("experts"),
        num_experts_per_tok=natural("chosen"),
        shared_intermediate_size=count("shared_ffn"),
        position_embedding_type=one_of(
            "rope, nope or null", {"rope": {"placed": True}, "nope": {"placed": False}, None: {"placed": False}}
        ),
        normalization_function=one_of("rmsnorm", {"rmsnorm": NOTHING}),
    ),
    names={"layers_block_type": "layer_types"},
    words=SCAN_WORDS | GRANITE_WORDS | {"init_method", "rope"},
    stack=_granite,
    modules=Modules(
        mixers=_OF_MIXERS,
        dense=("shared_mlp.input_linear", "shared_mlp.output_linear"),
        experts=("block_sparse_moe.input_linear", "block_sparse_moe.output_linear"),
        shared=("shared_mlp.input_linear", "shared_mlp.output_linear"),
        few=("block_sparse_moe.router.layer", "mamba.conv1d"),
    ),
)

# --- Falcon-H1 ----------------------------------------------------------------------------------------------


def _falcon(given: Given) -> dict[str, Any]:
    """Layers of attention and Mamba 2 side by side, and an MLP."""
    inner = given["inner"] or given["expand"] * given["hidden"]
    both = {"kind": "beside", "mixers": [_attention(given), _scan(given, inner)]}
    return put_together(given, {"layer": {"mixer": both, "feed_forward": _mlp(given)}}, ["layer"] * given["layers"])


_FALCON: Final = Family(
    left_out={**_LEFT_OUT, "mlp_bias": False, "projectors_bias": False, "mamba_rms_norm": False},
    fields=rows(
        "head_dim",
        "attention_bias",
        "mlp_bias",
        **_OF_MAMBA,
        mamba_d_ssm=optional("inner", needed=True),
        # of its scan's norm the gains are counted, and it is drawn with the gate, whether it is there or not
        mamba_rms_norm=flag(NOTHING, NOTHING),
        mamba_use_mlp=one_of("true", {True: NOTHING}),
        projectors_bias=NO_BIAS,
        attn_layer_indices=one_of("null: every layer has both", {None: NOTHING}),
    ),
    words=SCAN_WORDS
    | {"attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier", "key_multiplier"}
    | {"lm_head_multiplier", "mlp_multipliers", "ssm_in_multiplier", "ssm_multipliers", "ssm_out_multiplier"}
    | {"mamba_norm_before_gate", "mlp_expansion_factor"},
    stack=_falcon,
    modules=Modules(
        mixers={"beside": (*(f"self_attn.{name}_proj" for name in "qkvo"), "mamba.in_proj", "mamba.out_proj")},
        dense=tuple(f"feed_forward.{name}_proj" for name in ("gate", "up", "down")),
        few=("mamba.conv1d",),
    ),
)

# --- LFM2 ---------------------------------------------------------------------------------------------------


def _lfm2(given: Given) -> dict[str, Any]:
    """Layers of a convolution between gates, and of attention, with an MLP or with experts behind some dense ones."""
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


def _adjusted(given: Given) -> int:
    """The features inside an MLP: two thirds of what is said, in so many steps of a size."""
    size: int = given["ffn"]
    if not given.get("adjusts"):
        return size
    size, step = int(given["factor"] * int(2 * size / 3)), given["multiple"]
    return int(step * math.ceil(size / step))


def _factor(value: Any) -> dict[str, Any] | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 100
    return {"factor": value} if known else None


_LFM2_MOE: Final = Family(
    left_out={
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "head_dim": head_dim_of,
        "conv_bias": False,
        "use_expert_bias": True,
    },
    fields=rows(
        "head_dim",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        num_dense_layers=natural("dense"),
        layer_types=listed("types", {"conv": "convolution", "full_attention": "attention"}),
        full_attn_idxs=_places("places"),
        conv_L_cache=count("convolution"),
        conv_bias=flag({"bias": True}, {"bias": False}, needed=True),
        use_expert_bias=flag({"router_bias": True}, {"router_bias": False}, needed=True),
        use_pos_enc=one_of("true", {True: NOTHING}),
    ),
    names={
        "block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings", "block_dim": "hidden_size",
        "conv_dim": "hidden_size", "conv_dim_out": "hidden_size", "num_heads": "num_attention_heads",
    },
    words=frozenset({
        "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_xavier_init",
        "conv_use_xavier_init", "routed_scaling_factor", "theta",
    }),
    stack=_lfm2,
    modules=Modules(
        mixer=(*(f"self_attn.{name}_proj" for name in "qkv"), "self_attn.out_proj"),
        mixers={"gated_convolution": ("conv.in_proj", "conv.out_proj")},
        dense=tuple(f"feed_forward.{name}" for name in ("w1", "w2", "w3")),
        experts=tuple(f"feed_forward.experts.0.{name}" for name in ("w1", "w2", "w3")),
        few=("feed_forward.gate", "conv.conv"),
    ),
)  # fmt: skip
_OF_EXPERTS: Final = (
    "num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_dense_layers", "use_expert_bias",
)  # fmt: skip
_LFM2: Final = replace(
    _LFM2_MOE,
    left_out={
        **{name: value for name, value in _LFM2_MOE.left_out.items() if name not in _OF_EXPERTS},
        "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
    },
    fields={
        **{name: row for name, row in (_LFM2_MOE.fields or {}).items() if name not in _OF_EXPERTS},
        "block_auto_adjust_ff_dim": flag({"adjusts": True}, {"adjusts": False}, needed=True),
        "block_ffn_dim_multiplier": Field(_factor, "a number above 0, 100 at most", needed=True),
        "block_multiple_of": count("multiple"),
        "block_use_swiglu": one_of("true", {True: NOTHING}),
    },
)
HYBRID_FAMILIES: Final[Mapping[str, Family]] = {
    "bamba": _BAMBA,
    "falcon_h1": _FALCON,
    "granitemoehybrid": _GRANITE,
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2_MOE,
}
