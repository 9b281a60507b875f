"""Hugging Face configs of decoders whose layers are alike, dense or of experts, each of which has something special.

That stands in the entry of a type: norms behind the parts of a layer, attention and MLP side by side, biases, experts
beside a shared one. Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers
5.23; ``configuration_internlm2.py`` beside InternLM 2 on the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import (
    BLOCKS,
    Family,
    Field,
    Modules,
    count,
    flag,
    head_dim_of,
    heads_of,
    is_whole,
    natural,
    one_of,
)
from dfopt.frontends.hf.layers import Given, dense_first, experts_in_turn, local_everywhere, made_by
from dfopt.frontends.hf.rows import FIELDS, NOTHING, rows

__all__ = ["DECODER_FAMILIES", "GRANITE_WORDS", "HUNYUAN_WORDS", "NO_LATENT", "PLAIN", "QKV_BIAS", "ROUTER_WORDS"]

_HEADS: Final[dict[str, Any]] = {"num_key_value_heads": heads_of, "head_dim": head_dim_of}
PLAIN: Final[dict[str, Any]] = {"hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, **_HEADS}


def _layers(value: Any) -> dict[str, Any] | None:
    whole = isinstance(value, list) and all(is_whole(one, 0) for one in value)
    return {"only_dense": value or []} if whole or value is None else None


GRANITE_WORDS: Final = frozenset({
    "attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier",
})  # fmt: skip
_YES: Final = one_of("true", {True: NOTHING})
QKV_BIAS: Final = flag({"bias": "qkv"}, NOTHING)
_NO_BIAS: Final = one_of("false: biases of the type are not counted", {False: NOTHING})
_GLM_4: Final = Family(
    always={"norms": "pre_post"},
    left_out={**PLAIN, "attention_bias": True, "head_dim": 128, "partial_rotary_factor": 0.5},
    fields=rows("head_dim", "partial_rotary_factor", attention_bias=QKV_BIAS, mlp_bias=_NO_BIAS),
    stack=made_by(),
    modules=Modules(dense=("mlp.gate_up_proj", "mlp.down_proj")),
)
ROUTER_WORDS: Final = frozenset({
    "ep_size", "moe_router_enable_expert_bias", "n_group", "rope_interleave", "routed_scaling_factor", "scoring_func",
    "topk_group", "topk_method", "router_jitter_noise", "moe_norm_min", "seq_aux", "aux_loss_alpha",
})  # fmt: skip
NO_LATENT: Final = {
    name: one_of("null: it has no latent attention", {None: NOTHING})
    for name in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
}
HUNYUAN_WORDS: Final = ROUTER_WORDS | {
    "add_classification_head", "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views",
    "bos_token", "capacity_factor", "cla_share_factor", "class_num", "dense_list", "eod_token_id", "eos_token",
    "group_limited_greedy", "im_end_id", "im_newline_id", "im_start_id", "image_token_id", "mask_init_id",
    "max_position_interpolation", "moe_drop_tokens", "moe_random_routing_dropped_token", "org_vocab_size", "pad_id",
    "pool_type", "position_embedding_xdrope", "skip_cls_token", "text_end_id", "text_start_id", "video_end_id",
    "video_start_id", "xdrope_section",
}  # fmt: skip
_EXPERTS: Final = Family(
    always={"router_bias": True},
    left_out={
        **PLAIN,
        "n_shared_experts": 0,
        "first_k_dense_replace": 0,
        "num_nextn_predict_layers": 0,
        "partial_rotary_factor": 1.0,
    },
    fields=rows(
        "head_dim",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "n_shared_experts",
        "first_k_dense_replace",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        attention_bias=QKV_BIAS,
        moe_layer_freq=one_of("1: every layer behind the dense ones has experts", {1: NOTHING}),
    ),
    words=ROUTER_WORDS,
    stack=made_by(dense_first),
)


_GLM_4_MOE: Final = replace(
    _EXPERTS,
    left_out={
        **_EXPERTS.left_out,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "use_qk_norm": False,
        "partial_rotary_factor": 0.5,
    },
    fields={**(_EXPERTS.fields or {}), "use_qk_norm": flag({"qk_norm": "head"}, NOTHING, needed=True)},
    names={"num_mtp_layers": "num_nextn_predict_layers"},
)


def _to_the_last(given: Given) -> dict[str, Any]:
    """Experts up to the last layer: layers behind them that are dense again are not drawn."""
    if given["last"] not in (-1, given["layers"] - 1):
        raise ValueError(f"last: found {given['last']} of {given['layers']} layers, expected the last one, or -1")
    return {}


DECODER_FAMILIES: Final[Mapping[str, Family]] = {
    "olmo2": Family(
        always={"norms": "post", "qk_norm": "all"},
        left_out=PLAIN,
        fields=rows("head_dim", "attention_bias"),
        stack=made_by(),
    ),
    "granite": Family(
        left_out={**PLAIN, "mlp_bias": False},
        fields=rows("head_dim", "attention_bias", "mlp_bias"),
        words=GRANITE_WORDS,
        stack=made_by(),
    ),
    # its norms have gains only, and are counted with biases: a hundred-thousandth of all
    "cohere": Family(
        always={"norm": "layernorm", "parallel": "shared"},
        left_out={**PLAIN, "tie_word_embeddings": True, "use_qk_norm": False},
        fields=rows("head_dim", "attention_bias", use_qk_norm=flag({"qk_norm": "all"}, NOTHING)),
        words=frozenset({"logit_scale", "model_max_length"}),
        stack=made_by(),
    ),
    "starcoder2": Family(
        always={"norm": "layernorm", "gated": False},
        left_out={"use_bias": True, "tie_word_embeddings": True, "head_dim": head_dim_of, "sliding_window": None},
        fields=rows(
            "head_dim",
            "use_bias",
            "sliding_window",
            mlp_type=one_of("default: not gated", {"default": NOTHING}),
            norm_type=one_of("layer_norm", {"layer_norm": NOTHING}),
        ),
        words=frozenset({"embedding_dropout", "residual_dropout"}),
        stack=made_by(local_everywhere),
        modules=Modules(dense=("mlp.c_fc", "mlp.c_proj")),
    ),
    "glm": replace(_GLM_4, always={}),
    "glm4": _GLM_4,
    "glm4v_text": replace(
        _GLM_4,
        always={"norms": "pre_post", "bias": "qkv"},
        fields={**(_GLM_4.fields or {}), "attention_bias": one_of("true", {True: NOTHING})},
        left_out={**_GLM_4.left_out, "head_dim": head_dim_of},
    ),
    "glm4_moe": _GLM_4_MOE,
    "glm4v_moe_text": replace(_GLM_4_MOE, left_out={**_GLM_4_MOE.left_out, "attention_bias": True}),
    "dots1": replace(
        _EXPERTS,
        always={"router_bias": True, "qk_norm": "head"},
        fields={
            **(_EXPERTS.fields or {}),
            "attention_bias": flag({"bias": "all"}, NOTHING),
            "layer_types": FIELDS["layer_types"],
            "use_sliding_window": FIELDS["use_sliding_window"],
            "sliding_window": one_of("null: windows of later layers are not drawn", {None: NOTHING}),
        },
    ),
    "ernie4_5": Family(
        left_out={"use_bias": False, "tie_word_embeddings": True, **_HEADS, "head_dim": 128},
        fields=rows("head_dim", "use_bias"),
        words=frozenset({"compression_ratio", "freq_allocation", "rope_3d"}),
        stack=made_by(),
    ),
    "ernie4_5_moe": Family(
        always={"router_bias": True},
        left_out={
            "use_bias": False,
            "tie_word_embeddings": True,
            **_HEADS,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
            "moe_num_shared_experts": 2,
        },
        fields=rows(
            "head_dim",
            "use_bias",
            "moe_intermediate_size",
            moe_num_experts=count("experts"),
            moe_k=count("chosen"),
            moe_num_shared_experts=natural("shared"),
            moe_layer_start_index=natural("dense"),
            moe_layer_end_index=Field(
                lambda value: {"last": value} if is_whole(value, -1) else None, "-1, or the last layer", needed=True
            ),
            moe_layer_interval=one_of("1: every layer behind the dense ones has experts", {1: NOTHING}, needed=True),
            num_nextn_predict_layers=natural("predicts", needed=False),
            moe_use_aux_free=one_of("true or false", {True: NOTHING, False: NOTHING}),
        ),
        names={"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
        words=ROUTER_WORDS | {"compression_ratio", "freq_allocation", "moe_capacity", "moe_gate", "rope_3d"},
        stack=made_by(_to_the_last, dense_first),
    ),
    "qwen2_moe": Family(
        always={"shared_gate": True},
        left_out={
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "qkv_bias": True,
            "mlp_only_layers": [],
            "head_dim": head_dim_of,
        },
        fields=rows(
            "head_dim",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "decoder_sparse_step",
            "use_sliding_window",
            layer_types=FIELDS["layer_types"],
            mlp_only_layers=Field(_layers, "null, or numbers of layers", needed=True),
            qkv_bias=QKV_BIAS,
            sliding_window=Field(lambda value: NOTHING, "of layers that it does not have"),
        ),
        stack=made_by(experts_in_turn),
        modules=Modules(
            shared=tuple(f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")),
            few=("mlp.gate", "mlp.shared_expert_gate"),
        ),
    ),
    "hunyuan_v1_dense": Family(
        always={"qk_norm": "head"},
        left_out=PLAIN,
        fields=rows(
            "head_dim",
            "attention_bias",
            mlp_bias=_NO_BIAS,
            num_experts=one_of("1: it has no experts", {1: NOTHING}),
            norm_type=one_of("rms", {"rms": NOTHING}),
            use_mla=one_of("false: it has no latent attention", {False: NOTHING}),
            **NO_LATENT,
            use_cla=one_of("false: keys and values that layers share are not drawn", {False: NOTHING}),
            use_qk_norm=one_of("true", {True: NOTHING}),
            use_rotary_pos_emb=one_of("true", {True: NOTHING}),
        ),
        names={"attention_head_dim": "head_dim"},
        words=HUNYUAN_WORDS,
        stack=made_by(),
    ),
    "seed_oss": Family(
        left_out={**PLAIN, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "head_dim": 128},
        fields=rows("head_dim", "mlp_bias", attention_bias=QKV_BIAS, attention_out_bias=_NO_BIAS),
        words=frozenset({"residual_dropout"}),
        stack=made_by(),
    ),
    "ministral3": Family(
        left_out={"tie_word_embeddings": False, "hidden_act": "silu", **_HEADS, "sliding_window": None},
        fields=rows("head_dim", "sliding_window"),
        stack=made_by(local_everywhere),
    ),
    "apertus": Family(
        always={"qk_norm": "head", "gated": False},
        left_out={**PLAIN, "hidden_act": "xielu"},
        fields=rows("head_dim", "attention_bias", mlp_bias=_NO_BIAS, post_norm=_NO_BIAS, qk_norm=_YES),
        stack=made_by(),
    ),
    "arcee": Family(
        always={"gated": False},
        left_out={**PLAIN, "hidden_act": "relu2", "mlp_bias": False},
        fields=rows("head_dim", "attention_bias", "mlp_bias"),
        stack=made_by(),
    ),
    "nemotron": Family(
        always={"norm": "layernorm", "gated": False},
        left_out={**PLAIN, "hidden_act": "relu2", "mlp_bias": False, "partial_rotary_factor": 0.5},
        fields=rows("head_dim", "attention_bias", "mlp_bias", "partial_rotary_factor"),
        stack=made_by(),
    ),
    # norms of every head by itself, as many gains as of all of them
    "stablelm": Family(
        always={"norm": "layernorm"},
        left_out={
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            **_HEADS,
            "partial_rotary_factor": 0.25,
            "qk_layernorm": False,
            "use_parallel_residual": False,
            "use_qkv_bias": False,
        },
        fields=rows(
            "head_dim",
            "partial_rotary_factor",
            qk_layernorm=flag({"qk_norm": "all"}, NOTHING, needed=True),
            use_parallel_residual=flag({"parallel": "shared"}, NOTHING, needed=True),
            use_qkv_bias=flag({"bias": "qkv"}, NOTHING, needed=True),
        ),
        stack=made_by(),
    ),
    "granitemoe": Family(
        left_out=PLAIN,
        fields=rows("head_dim", "attention_bias", "num_local_experts", "num_experts_per_tok"),
        words=GRANITE_WORDS,
        stack=made_by(),
        modules=BLOCKS,
    ),
    "olmoe": Family(
        always={"qk_norm": "all"},
        left_out=PLAIN,
        fields=rows("head_dim", "attention_bias", "num_experts", "num_experts_per_tok"),
        words=frozenset({"clip_qkv"}),
        names={"num_local_experts": "num_experts"},
        stack=made_by(),
    ),
    "phimoe": Family(
        always={"norm": "layernorm"},
        left_out={**PLAIN, "lm_head_bias": False, "sliding_window": None},
        fields=rows(
            "head_dim",
            "attention_bias",
            "sliding_window",
            "num_local_experts",
            "num_experts_per_tok",
            lm_head_bias=flag({"head": {"kind": "logits", "bias": True}}, NOTHING, needed=True),
        ),
        words=frozenset({"input_jitter_noise", "original_max_position_embeddings", "router_jitter_noise"}),
        stack=made_by(local_everywhere),
        modules=BLOCKS,
    ),
    "internlm2": Family(
        left_out={"tie_word_embeddings": False, "head_dim": head_dim_of, "num_key_value_heads": heads_of},
        fields=rows("head_dim", bias=_NO_BIAS),
        words=frozenset({"attn_implementation"}),
        stack=made_by(),
        modules=Modules(
            mixer=("attention.wqkv", "attention.wo"), dense=("feed_forward.w1", "feed_forward.w2", "feed_forward.w3")
        ),
    ),
}
