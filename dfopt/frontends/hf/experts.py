"""Hugging Face configs of more decoders of experts: Hunyuan, EXAONE, Solar, Trinity, DBRX, Ling, DeepSeek's first.

Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23; ``configuration_bailing_moe.py``,
``configuration_bailing_moe_v2.py`` (Ling) and ``configuration_deepseek.py`` (DeepSeekMoE) beside the models on the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.decoders import GRANITE_WORDS, HUNYUAN_WORDS, NO_LATENT, PLAIN, QKV_BIAS, ROUTER_WORDS
from dfopt.frontends.hf.fields import (
    BLOCKS,
    Family,
    Field,
    Modules,
    count,
    flag,
    is_whole,
    listed,
    natural,
    one_of,
    unless,
)
from dfopt.frontends.hf.layers import Given, dense_first, local_in_turn, made_by
from dfopt.frontends.hf.mixed import NO_BIAS
from dfopt.frontends.hf.rows import FIELDS, NOTHING, rows

__all__ = ["EXPERT_FAMILIES"]


def _one_for_all(parameter: str, least: int = 1) -> Field:
    """A whole number, or a list of it for every layer."""

    def gives(value: Any) -> dict[str, Any] | None:
        one = value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else value
        return {parameter: one} if is_whole(one, least) else None

    return Field(gives, f"a whole number from {least} on, or a list of the same one for every layer", needed=True)


def _hunyuan(given: Given) -> dict[str, Any]:
    """Experts beside some that every token uses, all as large as each other."""
    return {"shared": given["shared"] * given["expert_ffn"]}


def _unplaced(given: Given) -> dict[str, Any]:
    """Layers that attend to all tokens carry no position where others attend to a window."""
    found = local_in_turn(given)
    types = found.get("types") or given.get("types") or []
    return {**found, "own": {"global": {"rotary_dim": 0}} if "local" in types else {}}


def _ling(given: Given) -> dict[str, Any]:
    """Shared experts are as large as the others; heads of no size are those that the residual is divided among."""
    if given["head_dim"] == 0 and given["hidden"] % given["heads"]:
        raise ValueError(f"heads: found {given['heads']}, expected a divisor of the {given['hidden']} features")
    if given.get("shared_ffn", given["expert_ffn"]) != given["expert_ffn"]:
        raise ValueError(f"shared_ffn: found {given['shared_ffn']}, expected {given['expert_ffn']}, as all experts")
    return {"head_dim": given["head_dim"] or given["hidden"] // given["heads"]}


def _trinity(given: Given) -> dict[str, Any]:
    return {**_unplaced(given), "shared": given["shared"]}


def _parts(*known: str, **sizes: str) -> Field:
    """A mapping of sizes, and of fields that change nothing."""

    def gives(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Mapping) or set(value) - {*known, *sizes} or not all(map(is_whole, _of(value, sizes))):
            return None
        return {parameter: value[name] for name, parameter in sizes.items()}

    return Field(gives, f"a mapping with {' and '.join(sizes)}, and no fields that are not known", needed=True)


def _of(value: Mapping[str, Any], names: Mapping[str, str]) -> list[Any]:
    return [value.get(name) for name in names]


def _letters(value: Any) -> dict[str, Any] | None:
    """How often a layer attends to all tokens: the last of so many, or of so many letters."""
    if isinstance(value, str) and len(value) > 1 and value == "L" * (len(value) - 1) + "G":
        return {"pattern": len(value)}
    return {"pattern": value} if value is None or is_whole(value) else None


_OF_DBRX: Final = ("num_key_value_heads", "intermediate_size")  # which stand in mappings of their own
_SHARED: Final = Modules(
    shared=tuple(f"mlp.shared_mlp.{name}_proj" for name in ("gate", "up", "down")), few=("mlp.gate.wg",)
)
_WITH_DENSE: Final = {**PLAIN, "first_k_dense_replace": 0, "num_nextn_predict_layers": 0}
_BAILING: Final = Family(
    left_out={
        **{name: value for name, value in PLAIN.items() if name != "attention_bias"},
        "use_qkv_bias": False,
        "use_bias": False,
        "num_shared_experts": 0,
        "first_k_dense_replace": 0,
        "num_nextn_predict_layers": 0,
        "use_qk_norm": False,
        "moe_router_enable_expert_bias": False,
        "partial_rotary_factor": 1.0,
    },
    fields=rows(
        "rotary_dim",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "first_k_dense_replace",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        num_shared_experts=natural("shared"),
        head_dim=natural("head_dim"),
        use_qkv_bias=flag({"bias": "qkv"}, NOTHING, needed=True),
        use_bias=NO_BIAS,
        use_qk_norm=flag({"qk_norm": "head"}, NOTHING, needed=True),
        use_rmsnorm=one_of("true", {True: NOTHING}),
        moe_router_enable_expert_bias=flag({"router_bias": True}, {"router_bias": False}, needed=True),
        # as large as the others, whatever stands here: shared ones are as many times as large
        moe_shared_expert_intermediate_size=count("shared_ffn", needed=False),
        norm_head=one_of("false", {False: NOTHING}),
        multi_gate=one_of("false", {False: NOTHING}),
        use_sliding_window=FIELDS["use_sliding_window"],
    ),
    words=ROUTER_WORDS
    | {
        "embedding_dropout",
        "norm_softmax",
        "output_dropout",
        "router_dtype",
        "score_function",
        "using_split_qkv_in_self_attention",
    }
    | {"mtp_loss_scaling_factor", "moe_router_topk_scaling_factor"},
    stack=made_by(_ling, dense_first),
    modules=Modules(mixer=("attention.query_key_value", "attention.dense")),
)
EXPERT_FAMILIES: Final[Mapping[str, Family]] = {
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING,
    "deepseek": Family(
        left_out={**_WITH_DENSE, "n_shared_experts": 0, "moe_layer_freq": 1},
        fields=rows(
            "head_dim",
            "attention_bias",
            "n_routed_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "n_shared_experts",
            "first_k_dense_replace",
            num_nextn_predict_layers=one_of("0", {0: NOTHING}),
            moe_layer_freq=one_of("1: every layer behind the dense ones has experts", {1: NOTHING}, needed=True),
        ),
        words=ROUTER_WORDS,
        stack=made_by(dense_first),
    ),
    "dbrx": Family(
        always={"norm": "layernorm"},  # whose biases are counted, and are not there
        left_out={"hidden_act": "silu", "tie_word_embeddings": False, "head_dim": PLAIN["head_dim"]},
        fields={
            **{name: row for name, row in rows("head_dim").items() if name not in _OF_DBRX},
            "attn_config": _parts("attn_pdrop", "clip_qkv", "model_type", "rope_theta", kv_n_heads="kv_heads"),
            "ffn_config": _parts(
                "ffn_act_fn", "hidden_size", "model_type", "moe_jitter_eps", "moe_loss_weight",
                "moe_normalize_expert_weights", "uniform_expert_assignment", "top_k",
                ffn_hidden_size="ffn", moe_num_experts="experts", moe_top_k="chosen",
            ),
        },
        names={
            "d_model": "hidden_size", "max_seq_len": "max_position_embeddings", "n_heads": "num_attention_heads",
            "n_layers": "num_hidden_layers",
        },
        words=frozenset({"emb_pdrop"}),
        stack=made_by(),
        modules=Modules(
            fronts=("transformer.",), layer="blocks.*.",
            mixer=("norm_attn_norm.attn.Wqkv", "norm_attn_norm.attn.out_proj"),
            experts=tuple(f"ffn.experts.mlp.{name}" for name in ("w1", "v1", "w2")), few=("ffn.router.layer",),
        ),
    ),
    "hunyuan_v1_moe": Family(
        always={"qk_norm": "head"},
        left_out={**PLAIN, "num_shared_expert": 1, "moe_intermediate_size": lambda data: data.get("intermediate_size")},
        fields=rows(
            "head_dim",
            "attention_bias",
            "num_experts",
            mlp_bias=NO_BIAS,
            moe_topk=_one_for_all("chosen"),
            num_shared_expert=_one_for_all("shared"),
            moe_intermediate_size=_one_for_all("expert_ffn"),
            moe_layer_num_skipped=one_of("0: every layer has experts", {0: NOTHING}),
            norm_type=one_of("rms", {"rms": NOTHING}),
            use_cla=one_of("false: keys and values that layers share are not drawn", {False: NOTHING}),
            use_mla=one_of("false: it has no latent attention", {False: NOTHING}),
            use_mixed_mlp_moe=one_of("true: an expert that every token uses", {True: NOTHING}),
            use_qk_norm=one_of("true", {True: NOTHING}),
            use_rotary_pos_emb=one_of("true", {True: NOTHING}),
            **NO_LATENT,
        ),
        names={
            "attention_head_dim": "head_dim", "num_local_experts": "num_experts", "num_experts_per_tok": "moe_topk",
        },
        words=HUNYUAN_WORDS,
        stack=made_by(_hunyuan),
        modules=_SHARED,
    ),
    "exaone_moe": Family(
        always={"router_bias": True, "qk_norm": "head"},
        left_out={
            **{name: value for name, value in PLAIN.items() if name != "attention_bias"},
            "sliding_window": 4096,
            "sliding_window_pattern": unless("layer_types", 4),
            "num_shared_experts": 1,
            "first_k_dense_replace": unless("mlp_layer_types", 1),
            "num_nextn_predict_layers": 0,
        },
        fields=rows(
            "head_dim",
            "sliding_window",
            "layer_types",
            "mlp_layer_types",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "num_nextn_predict_layers",
            num_shared_experts=natural("shared"),
            first_k_dense_replace=natural("dense", needed=False),
            sliding_window_pattern=Field(
                _letters, "null, a whole number, or letters L and the last of them G"
            ),
            is_moe_layer=listed("sparse", {True: True, False: False}),
        ),
        words=ROUTER_WORDS,
        stack=made_by(_unplaced, dense_first),
    ),
    "hy_v3": Family(
        always={"router_bias": True, "qk_norm": "head"},
        left_out={
            **PLAIN,
            "mlp_bias": False,
            "num_shared_experts": 1,
            "num_nextn_predict_layers": 0,
            "first_k_dense_replace": unless("mlp_layer_types", 1),
        },
        fields=rows(
            "head_dim",
            "attention_bias",
            "mlp_layer_types",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "num_nextn_predict_layers",
            first_k_dense_replace=natural("dense", needed=False),
            mlp_bias=NO_BIAS,
            num_shared_experts=natural("shared"),
            qk_norm=one_of("true", {True: NOTHING}),
        ),
        names={"num_local_experts": "num_experts"},
        words=ROUTER_WORDS | {"enable_moe_fp32_combine", "route_norm", "router_scaling_factor"},
        stack=made_by(dense_first),
        modules=Modules(few=("mlp.gate", "mlp.router.gate")),
    ),
    "solar_open": Family(
        always={"router_bias": True},
        left_out={**_WITH_DENSE, "n_shared_experts": 1, "head_dim": 128, "partial_rotary_factor": 1.0},
        fields=rows(
            "head_dim",
            "n_routed_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "n_shared_experts",
            "partial_rotary_factor",
            "num_nextn_predict_layers",
            attention_bias=QKV_BIAS,
            first_k_dense_replace=one_of("0: every layer has experts", {0: NOTHING}),
            use_qk_norm=one_of("false", {False: NOTHING}),
        ),
        names={"num_local_experts": "n_routed_experts"},
        unused=("intermediate_size",),
        words=ROUTER_WORDS,
        stack=made_by(lambda given: {"ffn": given["expert_ffn"]}, dense_first),
    ),
    "afmoe": Family(
        always={"router_bias": True, "qk_norm": "head", "norms": "pre_post", "gate": "element"},
        left_out={
            **PLAIN,
            "num_dense_layers": 1,
            "num_shared_experts": 2,
            "sliding_window": 1024,
            "global_attn_every_n_layers": unless("layer_types", 4),
        },
        fields=rows(
            "head_dim",
            "attention_bias",
            "sliding_window",
            "layer_types",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            num_dense_layers=natural("dense"),
            num_shared_experts=natural("shared"),
            global_attn_every_n_layers=count("pattern", needed=False),
        ),
        names={"num_local_experts": "num_experts"},
        words=ROUTER_WORDS | {
            "load_balance_coeff", "mup_enabled", "num_expert_groups", "num_limited_groups", "route_norm", "route_scale",
            "score_func", "use_grouped_mm",
        },
        stack=made_by(_trinity, dense_first),
    ),
    "flex_olmo": Family(
        always={"norms": "post", "qk_norm": "all"},
        left_out=PLAIN,
        fields=rows("head_dim", "attention_bias", "num_experts", "num_experts_per_tok"),
        names={"num_local_experts": "num_experts"},
        stack=made_by(),
    ),
    "granitemoeshared": Family(
        left_out={**PLAIN, "shared_intermediate_size": 0},
        fields=rows(
            "head_dim",
            "attention_bias",
            "num_local_experts",
            "num_experts_per_tok",
            shared_intermediate_size=natural("shared"),
        ),
        words=GRANITE_WORDS,
        stack=made_by(),
        modules=replace(BLOCKS, shared=("shared_mlp.input_linear", "shared_mlp.output_linear")),
    ),
}  # fmt: skip
