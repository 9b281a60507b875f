"""Hugging Face configs of decoders whose layers attend to different tokens: windows, chunks, blocks, no positions.

Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23 for Llama 4, MiniMax M2 and M3,
Phi-3, Cohere 2, OLMo 3, EXAONE 4, SmolLM3; ``configuration_mimo.py`` beside MiMo-7B on the hub.
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
    few,
    flag,
    head_dim_of,
    heads_of,
    is_whole,
    listed,
    natural,
    one_of,
    optional,
    unless,
)
from dfopt.frontends.hf.layers import Given, every_so_many, experts_behind, local_everywhere, local_in_turn, made_by
from dfopt.frontends.hf.rows import ATTENTIONS, FIELDS, NOTHING, rows

__all__ = ["WINDOW_FAMILIES"]

_ALIKE: Final = {"attention_bias": False, "tie_word_embeddings": False}


def _llama_4(given: Given) -> dict[str, Any]:
    """Layers in turn that carry no position and attend to all tokens; experts in every so many, beside a shared one."""
    number = given["layers"]
    placed = given.get("placed") or every_so_many(number, given["unplaced_turn"], "chunked", "global")
    if given.get("types", placed) != placed:
        raise ValueError("types: found others than no_rope_layers or no_rope_layer_interval say")
    if (listed_ := given.get("routed")) is not None:
        if any(place >= number for place in listed_):
            raise ValueError(f"routed: found layer {max(listed_)} of {number}")
        sparse = [place in listed_ for place in range(number)]
    else:
        sparse = [kind == "yes" for kind in every_so_many(number, given["experts_turn"], "no", "yes")]
    qk_norm = {} if given["normed"] else {"qk_norm": "none"}
    # the norm of queries and keys is that of layers with positions; it has no gains, of which 256 a layer are counted
    own = {"global": {"rotary_dim": 0, "qk_norm": "none"}, "chunked": qk_norm}
    if given.get("chunk") is None:
        placed = ["whole" if kind == "chunked" else kind for kind in placed]
        own["whole"] = qk_norm
    return {"types": placed, "sparse": sparse, "own": own, "shared": given["expert_ffn"], "ffn": given["expert_ffn"]}


def _places(value: Any) -> dict[str, Any] | None:
    whole = isinstance(value, list) and all(is_whole(one, 0) for one in value)
    return {"routed": value} if whole or value is None else None


def _positions(value: Any) -> dict[str, Any] | None:
    """Which layers carry positions, of which an empty list says as little as none."""
    if value in (None, []):
        return {"placed": None}
    return listed("placed", {1: "chunked", 0: "global"}).gives(value)


_LLAMA_4: Final = Family(
    always={"qk_norm": "head"},
    left_out={
        **_ALIKE,
        "use_qk_norm": True,
        "attention_chunk_size": 8192,
        "no_rope_layer_interval": unless("no_rope_layers", 4),
        "interleave_moe_layer_step": unless("moe_layers", 1),
        "head_dim": head_dim_of,
        "num_key_value_heads": heads_of,
    },
    fields=rows(
        "head_dim",
        "num_local_experts",
        "num_experts_per_tok",
        "attention_bias",
        intermediate_size=count("expert_ffn"),
        intermediate_size_mlp=count("dense_ffn"),
        attention_chunk_size=optional("chunk"),
        use_qk_norm=flag({"normed": True}, {"normed": False}, needed=True),
        no_rope_layers=Field(_positions, "null, or 1 or 0 for every layer"),
        no_rope_layer_interval=count("unplaced_turn", needed=False),
        moe_layers=Field(_places, "null, or numbers of layers"),
        interleave_moe_layer_step=count("experts_turn", needed=False),
        layer_types=listed("types", {"chunked_attention": "chunked", "full_attention": "global"}),
    ),
    words=frozenset({"attn_scale", "attn_temperature_tuning", "floor_scale", "for_llm_compressor"}),
    stack=made_by(_llama_4),
    modules=Modules(
        dense=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
        experts=("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),
        shared=tuple(f"feed_forward.shared_expert.{name}_proj" for name in ("gate", "up", "down")),
        few=("feed_forward.router",),
    ),
)
_MINIMAX_WORDS: Final = frozenset({
    "layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta", "routed_scaling_factor",
    "scoring_func", "shared_moe_mode", "swiglu_alpha", "swiglu_limit", "use_gemma_norm",
})  # fmt: skip
_MINIMAX_NAMES: Final = ("head_dim", "num_local_experts", "num_experts_per_tok", "partial_rotary_factor", "rotary_dim")
_MINIMAX_ROWS: Final = {
    "use_qk_norm": one_of("true", {True: NOTHING}),
    "use_routing_bias": flag({"router_bias": True}, {"router_bias": False}),
    "num_mtp_modules": natural("modules", needed=False),
}


def _all_one(value: Any) -> dict[str, Any] | None:
    return NOTHING if isinstance(value, list) and all(type(one) is int and one == 1 for one in value) else None


def _predicted(given: Given) -> dict[str, Any]:
    """Modules that predict further tokens, where the model has them at all."""
    return {"predicts": given.get("modules", 0) if given.get("has_modules") else 0}


_MINIMAX_2: Final = Family(
    always={"router_bias": True},
    unused=("mlp_intermediate_size",),  # of dense layers
    left_out={
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "use_mtp": False,
        "num_mtp_modules": 0,
        "mtp_transformer_layers": 1,
        "partial_rotary_factor": unless("rotary_dim", 1.0),
    },
    fields=rows(
        *_MINIMAX_NAMES,
        **_MINIMAX_ROWS,
        attn_type_list=Field(_all_one, "1 for every layer: attention to all tokens"),
        qk_norm_type=one_of("per_layer: one norm for all heads", {"per_layer": {"qk_norm": "all"}}, needed=True),
        shared_intermediate_size=one_of("0: it has no shared expert", {0: NOTHING}),
        sliding_window=one_of("null", {None: NOTHING}),
        use_mtp=flag({"has_modules": True}, {"has_modules": False}, needed=True),
        mtp_transformer_layers=few("predicting"),
    ),
    words=_MINIMAX_WORDS,
    stack=made_by(_predicted),
    modules=BLOCKS,
)


def _minimax_3(given: Given) -> dict[str, Any]:
    """Layers whose attention reads blocks that an indexer chooses, and layers of experts, as lists of layers say.

    Each group of heads chooses blocks of its own, as many as all heads here. Weights of the indexer's heads, which this
    one does not have, are counted: 25 thousand a layer.
    """
    experts_behind(given)
    own = {"sparse": {"sparse": given["indexer"]}}
    return {"own": own, "shared": given["shared"] * given["shared_ffn"], "ffn": given["dense_ffn"]}


_SPARSE_SIZES: Final = {
    "sparse_num_index_heads": "heads",
    "sparse_index_dim": "head_dim",
    "sparse_topk_blocks": "top_k",
    "sparse_block_size": "block",
}
_SPARSE_WORDS: Final = frozenset({
    # which blocks are always among the chosen ones, and how the scores of a block's tokens are put together
    "sparse_init_block", "sparse_local_block", "sparse_score_type",
})  # fmt: skip


def _sparse_attention(value: Any) -> dict[str, Any] | None:
    """Block-sparse attention: an indexer of its own chooses blocks of tokens, in layers that a list names."""
    if not isinstance(value, Mapping) or value.get("use_sparse_attention") is not True:
        return None
    turns = value.get("sparse_attention_freq")
    sizes = {name: value.get(field) for field, name in _SPARSE_SIZES.items()}
    # layers without an indexer's value path: all that have an indexer
    bare = value.get("sparse_disable_index_value", turns)
    known = {*_SPARSE_SIZES, *_SPARSE_WORDS, "use_sparse_attention", "sparse_attention_freq"}
    known |= {"sparse_disable_index_value"}
    good = isinstance(turns, list) and turns and all(type(one) is int and one in (0, 1) for one in turns)
    if not good or bare != turns or set(value) - known or not all(is_whole(one) for one in sizes.values()):
        return None
    types = ["sparse" if one else "global" for one in turns or ()]
    return {"types": types, "indexer": {**sizes, "reads": "hidden"}}


_MINIMAX_3: Final = Family(
    always={"router_bias": True, "qk_norm": "head"},
    left_out={
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        "attention_output_gate": False,
        "rotary_dim": unless("partial_rotary_factor", 64),
    },
    fields=rows(
        *_MINIMAX_NAMES,
        **_MINIMAX_ROWS,
        hidden_act=one_of("swigluoai: gated", {"swigluoai": NOTHING, "silu": NOTHING}, needed=True),
        intermediate_size=count("expert_ffn"),
        dense_intermediate_size=count("dense_ffn"),
        shared_intermediate_size=count("shared_ffn"),
        n_shared_experts=natural("shared"),
        moe_layer_freq=listed("sparse", {0: False, 1: True}, needed=True),
        first_k_dense_replace=natural("dense", needed=False),
        sparse_attention_config=Field(_sparse_attention, "block-sparse attention as MiniMax M3 has it", needed=True),
        qk_norm_type=one_of("per_head", {"per_head": NOTHING}),
        attention_output_gate=one_of("false", {False: NOTHING}),
        num_nextn_predict_layers=natural("next", needed=False),
    ),
    words=_MINIMAX_WORDS,
    names={"moe_intermediate_size": "intermediate_size"},
    # 7 modules and 1 layer, of which the config does not say how they go together
    left={"num_mtp_modules": "modules that predict further tokens"},
    stack=made_by(_minimax_3),
    modules=BLOCKS,
)
_WINDOWED: Final = ("head_dim", "attention_bias", "sliding_window", "layer_types")


def _no_positions(given: Given) -> dict[str, Any]:
    """Layers in turn that carry no position."""
    placed = given.get("placed") or every_so_many(given["layers"], given["unplaced_turn"], "chunked", "global")
    kinds = {"chunked": "rotary", "global": "plain"}
    return {"types": [kinds[one] for one in placed], "own": {"plain": {"rotary_dim": 0}}}


def _hybrid(given: Given) -> dict[str, Any]:
    """Where some layers attend to a window, the others carry no position."""
    types, turns = given.get("types") or [], given.get("turns")
    if turns is not None and given.get("window") is not None and not types:
        letters = {"L": "local", "G": "global"}
        if isinstance(turns, int):
            types = every_so_many(given["layers"], turns, "local", "global")
        else:
            types = [letters[turns[place % len(turns)]] for place in range(given["layers"] - 1)] + ["global"]
    return {"types": types, "own": {"global": {"rotary_dim": 0}} if "local" in types else {}}


def _turns(value: Any) -> dict[str, Any] | None:
    if value is None or is_whole(value):
        return {"turns": value}
    return {"turns": value} if isinstance(value, str) and value and set(value) <= {"L", "G"} else None


WINDOW_FAMILIES: Final[Mapping[str, Family]] = {
    "llama4_text": _LLAMA_4,
    "minimax_m2": _MINIMAX_2,
    "minimax_m3": _MINIMAX_3,
    "minimax_m3_vl_text": replace(_MINIMAX_3, left_out={**_MINIMAX_3.left_out, "n_shared_experts": 1}),
    "mimo": Family(
        always={"bias": "qkv"},
        left_out={
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "head_dim": head_dim_of,
            "num_nextn_predict_layers": 0,
        },
        fields=rows(
            "head_dim",
            "use_sliding_window",
            "num_nextn_predict_layers",
            attention_bias=one_of("true: queries, keys and values have one", {True: NOTHING}),
            sliding_window=Field(lambda value: NOTHING, "of layers that it does not have"),
        ),
        words=frozenset({"use_mrope"}),
        stack=made_by(),
    ),
    "phi3": Family(
        left_out={
            "tie_word_embeddings": False,
            "num_key_value_heads": heads_of,
            "head_dim": head_dim_of,
            "sliding_window": None,
            "partial_rotary_factor": 1.0,
        },
        fields=rows(
            "head_dim",
            "sliding_window",
            "partial_rotary_factor",
            attention_bias=one_of("false", {False: NOTHING}),
            mlp_bias=one_of("false", {False: NOTHING}),
            lm_head_bias=one_of("false", {False: NOTHING}),
            full_attn_mod=one_of("1: every layer", {1: NOTHING}),
        ),
        words=frozenset({"interpolate_factor", "original_max_position_embeddings"}),
        stack=made_by(local_everywhere),
        modules=Modules(mixer=("self_attn.qkv_proj", "self_attn.o_proj"), dense=("mlp.gate_up_proj", "mlp.down_proj")),
    ),
    "cohere2": Family(
        always={"norm": "layernorm", "parallel": "shared"},
        left_out={
            "attention_bias": False,
            "tie_word_embeddings": True,
            "num_key_value_heads": heads_of,
            "head_dim": head_dim_of,
            "sliding_window": 4096,
            "sliding_window_pattern": unless("layer_types", 4),
        },
        fields=rows(
            *_WINDOWED,
            "sliding_window_pattern",
            use_embedding_sharing=one_of("true", {True: NOTHING}),
            use_gated_activation=one_of("true", {True: NOTHING}),
            use_parallel_block=one_of("true", {True: NOTHING}),
            use_parallel_embedding=one_of("false", {False: NOTHING}),
            use_qk_norm=one_of("false", {False: NOTHING}),
        ),
        words=frozenset({"cache_implementation", "layer_switch", "logit_scale", "order_of_interleaved_layers"})
        | {"position_embedding_type", "rotary_pct"},
        stack=made_by(local_in_turn, _hybrid),
    ),
    "olmo3": Family(
        always={"norms": "post", "qk_norm": "all"},
        left_out={
            **_ALIKE,
            "num_key_value_heads": heads_of,
            "head_dim": head_dim_of,
            "sliding_window": 4096,
            "layer_types": lambda data: (
                [list(ATTENTIONS)[(place + 1) % 4 == 0] for place in range(data["num_hidden_layers"])]
                if is_whole(data.get("num_hidden_layers")) and data["num_hidden_layers"] <= 10**4
                else None
            ),
        },
        fields=rows(*_WINDOWED),
        stack=made_by(),
    ),
    "exaone4": Family(
        always={"norms": "post", "qk_norm": "head"},
        left_out={
            "tie_word_embeddings": False,
            "num_key_value_heads": 32,
            "head_dim": head_dim_of,
            "sliding_window": 4096,
            "sliding_window_pattern": unless("layer_types", 4),
        },
        fields=rows(
            "head_dim",
            "sliding_window",
            "layer_types",
            sliding_window_pattern=Field(_turns, "null, a whole number, or letters L and G"),
        ),
        stack=made_by(_hybrid),
    ),
    "smollm3": Family(
        left_out={
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "num_key_value_heads": 4,
            "head_dim": head_dim_of,
            "no_rope_layer_interval": unless("no_rope_layers", 4),
        },
        fields=rows(
            "head_dim",
            "attention_bias",
            "mlp_bias",
            "use_sliding_window",
            sliding_window=Field(lambda value: NOTHING, "of layers that it does not have"),
            layer_types=FIELDS["layer_types"],
            no_rope_layers=Field(_positions, "null, or 1 or 0 for every layer"),
            no_rope_layer_interval=count("unplaced_turn", needed=False),
        ),
        stack=made_by(_no_positions),
    ),
}
