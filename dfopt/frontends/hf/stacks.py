"""Hugging Face configs of latent attention, and of gpt-oss.

Sources: the configs and the config classes that lie beside them on the hub (``configuration_deepseek.py`` of
DeepSeek-V3 and Kimi K2); the DeepSeek-V3 report (arXiv 2412.19437) for what the fields mean. gpt-oss: its model card
(arXiv 2508.10925), which has biases everywhere, sinks, and all but the experts in bf16. GLM-5.2, GLM-4.7-Flash and
DeepSeek-V2: ``configuration_glm_moe_dsa.py``, ``configuration_glm4_moe_lite.py``, ``configuration_deepseek_v2.py`` of
transformers 5.23.
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
    head_dim_of,
    heads_of,
    is_whole,
    listed,
    natural,
    one_of,
    optional,
    unless,
)
from dfopt.frontends.hf.layers import Given, dense_first, made_by
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["LATENT_FAMILIES"]

_LATENT_WORDS: Final = frozenset({
    "aux_loss_alpha", "ep_size", "indexer_rope_interleave", "n_group", "rope_interleave", "routed_scaling_factor",
    "scoring_func", "seq_aux", "topk_group", "topk_method",
})  # fmt: skip
"""Fields of the router's formula and of the order of features: with all experts on every chip they change no size."""
_LATENT: Final[Mapping[str, Field]] = rows(
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "first_k_dense_replace",
    "num_nextn_predict_layers",
    kv_lora_rank=count("rank"),
    qk_nope_head_dim=count("nope_dim"),
    qk_rope_head_dim=count("rotary_dim"),
    v_head_dim=count("value_dim"),
    q_lora_rank=optional("query_rank", needed=True),
    # latent attention computes keys and values of every head, whatever the config says of K/V heads
    num_key_value_heads=Field(lambda value: NOTHING if is_whole(value) else None, "a whole number"),
    attention_bias=one_of("false: biases of the type are not counted", {False: NOTHING}),
    mlp_bias=one_of("false: biases of the type are not counted", {False: NOTHING}),
    moe_layer_freq=one_of("1: every layer behind the dense ones has experts", {1: NOTHING}, needed=True),
)
_LATENT_MODULES: Final = Modules(
    mixer=(
        "self_attn.q_proj", "self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa",
        "self_attn.kv_b_proj", "self_attn.o_proj",
    ),
)  # fmt: skip
_LATENT_FAMILY: Final = Family(
    always={"router_bias": True},
    left_out={
        "attention_bias": False,
        "tie_word_embeddings": False,
        "moe_layer_freq": 1,
        "n_shared_experts": 1,
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
    },
    fields=_LATENT,
    # of latent attention the parts of a head count, and not their sums, which its class works out
    unused=("head_dim", "partial_rotary_factor", "qk_head_dim"),
    words=_LATENT_WORDS,
    stack=made_by(dense_first),
    modules=_LATENT_MODULES,
)
_INDEXED: Final = {
    **_LATENT,
    "index_n_heads": count("index_heads"),
    "index_head_dim": count("index_dim"),
    "index_topk": count("top_k"),
}
_KINDS: Final = {
    "mlp_layer_types": listed("sparse", {"dense": False, "sparse": True}),
    "layer_types": listed("all_alike", {"deepseek_sparse_attention": "alike", "indexed_attention": "alike"}),
}
_SPARSE_FAMILY: Final = replace(
    _LATENT_FAMILY,
    fields={**_INDEXED, **_KINDS},
    modules=replace(
        _LATENT_MODULES,
        mixer=(*_LATENT_MODULES.mixer, "self_attn.indexer.wq_b", "self_attn.indexer.wk"),
        # the weights of an indexer's heads, by the name of its class and by that in quantized checkpoints
        few=("mlp.gate", "self_attn.indexer.weights_proj", "self_attn.indexers_proj"),
    ),
)


def _shared_indexers(given: Given) -> dict[str, Any]:
    """Layers whose attention reads what an earlier layer chose have no indexer of their own."""
    if "types" not in given:
        if given.get("index_turn", 1) != 1 or given.get("index_pattern") is not None:
            raise ValueError("types: missing, but index_topk_freq or index_topk_pattern say that layers differ")
        return {}
    sizes = {"heads": given["index_heads"], "head_dim": given["index_dim"], "top_k": given["top_k"]}
    return {"own": {"shared": {"sparse": {**sizes, "shared": True}}}}


_GLM_DSA: Final = replace(
    _SPARSE_FAMILY,
    fields={
        **_INDEXED,
        "indexer_types": listed("types", {"full": "full", "shared": "shared"}),
        "index_topk_freq": count("index_turn", needed=False),
        "index_topk_pattern": Field(
            lambda value: {"index_pattern": value} if value is None or isinstance(value, (str, list)) else None,
            "null, or which layers have an indexer",
        ),
        "index_skip_topk_offset": natural("index_offset", needed=False),
        **_KINDS,
    },
    words=_LATENT_WORDS | {"index_share_for_mtp_iteration", "moe_router_dtype"},
    names={"num_experts": "n_routed_experts"},
    stack=made_by(_shared_indexers, dense_first),
)
_WINDOWS: Final = {"local": "sliding_attention", "global": "full_attention"}
_GPT_OSS: Final = Family(
    always={"bias": "all", "sinks": True, "mlp_bias": True, "router_bias": True},
    left_out={"torch_dtype": "bfloat16", "tie_word_embeddings": False},
    fields={
        **rows("head_dim", "num_local_experts", "num_experts_per_tok"),
        "sliding_window": count("window"),
        "attention_bias": one_of("true: all projections have one", {True: NOTHING}, needed=True),
        "layer_types": listed("types", {name: kind for kind, name in _WINDOWS.items()}, needed=True),
    },
    words=frozenset({"initial_context_length", "swiglu_alpha", "swiglu_limit"}),
    names={"experts_per_token": "num_experts_per_tok"},
    stack=made_by(),
    modules=Modules(experts=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"), few=("mlp.router",)),
)
_OF_EXPERTS: Final = (
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
    "num_nextn_predict_layers", "moe_layer_freq",
)  # fmt: skip
_DENSE: Final = replace(
    _LATENT_FAMILY,
    always={},
    left_out={
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "num_key_value_heads": heads_of,
    },
    fields={name: row for name, row in _LATENT.items() if name not in _OF_EXPERTS},
    words=_LATENT_WORDS | {"dim_model_base", "embedding_initializer_range", "scale_depth", "scale_emb"},
    stack=made_by(),
)


def _values_of_heads(data: Mapping[str, Any]) -> int | None:
    """What the class of MiniCPM 3 takes for the features of a value: those of the residual, divided among the heads."""
    return head_dim_of(data) if data.get("v_head_dim") is None else None


LATENT_FAMILIES: Final[Mapping[str, Family]] = {
    "deepseek_v2": replace(
        _LATENT_FAMILY,
        always={"router_bias": False},
        left_out={**_LATENT_FAMILY.left_out, "n_shared_experts": 2},
        fields={**_LATENT, "num_nextn_predict_layers": one_of("0", {0: NOTHING})},
    ),
    "deepseek_v3": _LATENT_FAMILY,
    # of the class beside the model, as of that which lay beside DeepSeek-V3
    "kimi_k2": replace(_LATENT_FAMILY, left_out={**_LATENT_FAMILY.left_out, "n_shared_experts": 0}),
    "deepseek_v32": _SPARSE_FAMILY,
    "glm_moe_dsa": _GLM_DSA,
    "glm4_moe_lite": replace(
        _LATENT_FAMILY,
        left_out={**_LATENT_FAMILY.left_out, "first_k_dense_replace": unless("mlp_layer_types", 1)},
        fields={
            **_LATENT,
            "first_k_dense_replace": natural("dense", needed=False),
            "mlp_layer_types": _KINDS["mlp_layer_types"],
        },
    ),
    "minicpm3": replace(_DENSE, left_out={**_DENSE.left_out, "v_head_dim": _values_of_heads}),
    "mistral4": replace(
        _LATENT_FAMILY,
        always={},
        left_out={**_LATENT_FAMILY.left_out, "first_k_dense_replace": 0},
        names={"num_local_experts": "n_routed_experts"},
    ),
    "youtu": _DENSE,
    "gpt_oss": _GPT_OSS,
}
