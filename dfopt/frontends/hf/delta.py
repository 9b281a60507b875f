"""Hugging Face configs of delta rules mixed with attention: Qwen3-Next, Qwen3.5 and Kimi Linear.

Sources: the configs on the hub; ``configuration_qwen3_next.py`` and ``configuration_qwen3_5.py`` of transformers 5.23
and the ``modeling_*.py`` beside them. Kimi Linear: ``configuration_kimi.py`` and ``modeling_kimi.py`` of
moonshotai/Kimi-Linear-48B-A3B-Instruct, whose decay and gate pass through as many features as a head has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import (
    Family,
    Field,
    Modules,
    count,
    flag,
    heads_of,
    is_whole,
    listed,
    natural,
    one_of,
    optional,
    unless,
)
from dfopt.frontends.hf.layers import Given, every_so_many
from dfopt.frontends.hf.mixed import HEADED, NO_BIAS, STATE_TYPES, mixer_of, put_together
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["DELTA_FAMILIES"]


def _delta_layers(given: Given) -> dict[str, Any]:
    """Layers of the gated delta rule, and of gated attention."""
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


_DELTA: Final = {
    **rows("head_dim", "num_experts_per_tok", attention_bias=NO_BIAS),
    "layer_types": listed("types", {"linear_attention": "delta", "full_attention": "attention"}),
    "full_attention_interval": count("interval", needed=False),
    "linear_conv_kernel_dim": count("convolution"),
    "linear_key_head_dim": count("key_dim"),
    "linear_num_key_heads": count("key_heads"),
    "linear_num_value_heads": count("value_heads"),
    "linear_value_head_dim": count("value_dim"),
    "attn_output_gate": flag({"gate": "element"}, {}),
    "mamba_ssm_dtype": STATE_TYPES,
    "mtp_num_hidden_layers": natural("predicts", needed=False),
    "mtp_use_dedicated_embeddings": one_of("false: their embedding is that of the model", {False: NOTHING}),
    "mlp_only_layers": Field(lambda value: NOTHING if value in ([], None) else None, "[]: every layer is alike"),
    "num_experts": count("experts"),
    "moe_intermediate_size": count("expert_ffn"),
    "shared_expert_intermediate_size": count("shared"),
    "decoder_sparse_step": one_of("1: every layer has experts", {1: NOTHING}),
    "use_sliding_window": one_of("false: attention is to all tokens", {False: NOTHING}),
    "sliding_window": one_of("null: attention is to all tokens", {None: NOTHING}),
}
_EXPERTS: Final = (
    "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
    "decoder_sparse_step",
)  # fmt: skip
_DELTA_LEFT_OUT: Final = {
    "tie_word_embeddings": False,
    "attention_bias": False,
    "full_attention_interval": unless("layer_types", 4),
    "attn_output_gate": True,
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 0,
}
_DELTA_MODULES: Final = Modules(
    mixers={
        "gated_delta_net": tuple(
            f"linear_attn.{name}" for name in ("in_proj_qkv", "in_proj_z", "in_proj_qkvz", "out_proj")
        )
    },
    shared=tuple(f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")),
    # rates and decays of heads, by the names that either family has
    few=(
        "mlp.gate",
        "mlp.shared_expert_gate",
        *(f"linear_attn.{name}" for name in ("conv1d", "in_proj_b", "in_proj_a", "in_proj_ba")),
    ),
)
# whichever features of a head carry its position, a kernel reads and writes all of them
_DELTA_WORDS: Final = frozenset({"partial_rotary_factor"})
_QWEN_MOE: Final = Family(
    left_out=_DELTA_LEFT_OUT,
    fields=_DELTA,
    words=_DELTA_WORDS,
    unused=("intermediate_size",),
    stack=_delta_layers,
    modules=_DELTA_MODULES,
)
_QWEN: Final = replace(_QWEN_MOE, fields={name: row for name, row in _DELTA.items() if name not in _EXPERTS}, unused=())


def _kda_layers(given: Given) -> dict[str, Any]:
    """Layers of Kimi delta attention and of latent attention, a few dense ones first."""
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
    experts = mixer_of("moe", given, "experts", "chosen", ffn=given["expert_ffn"], router_bias=True)
    experts |= {"shared": given["shared"] * given["expert_ffn"]} if given["shared"] else {}
    inside = {"dense": {"kind": "mlp", "ffn": given["ffn"]}, "experts": experts}
    forwards = ["dense" if place < given["dense"] else "experts" for place in range(number)]
    order = [f"{kinds[place + 1]}_{forward}" for place, forward in enumerate(forwards)]
    layers = {f"{a}_{b}": {"mixer": mixers[a], "feed_forward": inside[b]} for a in mixers for b in inside}
    return put_together(given, layers, order, order[-1:])


_OF_KDA: Final = ("head_dim", "num_heads", "short_conv_kernel_size")


def _linear(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, Mapping) or set(value) != {*_OF_KDA, "kda_layers", "full_attn_layers"}:
        return None
    places = [value[name] for name in ("kda_layers", "full_attn_layers")]
    known = all(isinstance(one, list) and all(map(is_whole, one)) for one in places)
    return {"linear": value} if known and all(is_whole(value[name]) for name in _OF_KDA) else None


_KIMI_LINEAR: Final = Family(
    left_out={
        "tie_word_embeddings": False,
        "moe_layer_freq": 1,
        "num_shared_experts": 0,
        "num_key_value_heads": heads_of,
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
    },
    fields={
        **rows("first_k_dense_replace", "num_nextn_predict_layers"),
        "num_key_value_heads": Field(lambda value: NOTHING if is_whole(value) else None, "a whole number"),
        "num_experts": count("experts"),
        "num_experts_per_token": count("chosen"),
        "num_shared_experts": natural("shared"),
        "moe_intermediate_size": count("expert_ffn"),
        "moe_layer_freq": one_of("1: every layer behind the dense ones has experts", {1: NOTHING}),
        "attention_bias": NO_BIAS,
        "kv_lora_rank": count("rank"),
        "qk_nope_head_dim": count("nope_dim"),
        "qk_rope_head_dim": count("rotary_dim"),
        "v_head_dim": count("value_dim"),
        "q_lora_rank": optional("query_rank", needed=True),
        "linear_attn_config": Field(
            _linear, f"{', '.join(_OF_KDA)}, and kda_layers and full_attn_layers, lists of places", needed=True
        ),
    },
    # of latent attention the parts of a head count; those that carry its position are there, if it carries any or not
    words=frozenset({
        "head_dim", "mla_use_nope", "moe_renormalize", "moe_router_activation_func", "num_expert_group", "qk_head_dim",
        "routed_scaling_factor", "topk_group", "use_grouped_topk",
    }),
    names={"model_max_length": "max_position_embeddings"},
    stack=_kda_layers,
    modules=Modules(
        mixer=tuple(
            f"self_attn.{name}"
            for name in ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
        ),
        mixers={
            "kda": tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "f_a", "f_b", "g_a", "g_b", "b", "o"))
        },
        experts=tuple(f"block_sparse_moe.experts.0.{name}" for name in ("w1", "w2", "w3")),
        shared=tuple(f"block_sparse_moe.shared_experts.{name}_proj" for name in ("gate", "up", "down")),
        few=("block_sparse_moe.gate",),
    ),
)  # fmt: skip
DELTA_FAMILIES: Final[Mapping[str, Family]] = {
    "qwen3_next": _QWEN_MOE,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN_MOE,
    "kimi_linear": _KIMI_LINEAR,
}
