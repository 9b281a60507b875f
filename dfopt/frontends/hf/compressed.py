"""Hugging Face configs of compressed attention: DeepSeek-V4.

Sources: ``config.json`` and ``inference/model.py`` of deepseek-ai/DeepSeek-V4-Flash on the hub. Groups of four tokens
overlap and are chosen by an indexer, all others are attended to; a ratio of 0 is a window and no groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import Family, Field, Modules, count, is_whole, natural, one_of
from dfopt.frontends.hf.layers import Given
from dfopt.frontends.hf.mixed import NO_BIAS, SILU, mixer_of, put_together
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["COMPRESSED_FAMILIES"]

_CHOSEN: Final = 4  # tokens of the groups that overlap, and that an indexer chooses from
_AS_ALL: Final = "that of all other weights"


def _ratios(value: Any) -> dict[str, Any] | None:
    known = isinstance(value, list) and value and all(is_whole(one, 0) for one in value)
    return {"ratios": value} if known else None


def _streams(value: Any) -> dict[str, Any] | None:
    return {"stream_count": value} if is_whole(value, 2) else None


def _compressed_layers(given: Given) -> dict[str, Any]:
    """Layers of experts with attention to a window and, by their ratio, to groups of tokens."""
    ratios, number = given["ratios"], given["layers"]
    if len(ratios) not in (number, number + given["predicts"]):
        few = f"expected one for each of {number} layers, and of {given['predicts']} that predict further tokens"
        raise ValueError(f"ratios: found {len(ratios)}, {few}")
    sizes = ("heads", "head_dim", "query_rank", "window", "output_groups", "output_rank")
    local = mixer_of("compressed_attention", given, *sizes)
    choice = {"heads": given["index_heads"], "head_dim": given["index_dim"], "top_k": given["top_k"]}
    experts = mixer_of("moe", given, "experts", "chosen", ffn=given["expert_ffn"], router_bias=True)
    experts |= {"shared": given["shared"] * given["expert_ffn"]} if given["shared"] else {}
    layers = {}
    for ratio in dict.fromkeys(ratios[:number]):
        groups = {"group": ratio} if ratio else {}
        chosen = {"overlaps": True, "sparse": choice} if ratio == _CHOSEN else {}
        layers[_called(ratio)] = {"mixer": {**local, **groups, **chosen}, "feed_forward": experts}
    streams = {"count": given["stream_count"], "iterations": given["iterations"]}
    # modules that predict further tokens are not drawn with several streams
    return put_together({**given, "streams": streams, "predicts": 0}, layers, [_called(one) for one in ratios[:number]])


def _called(ratio: int) -> str:
    return f"groups_of_{ratio}" if ratio else "local"


_DEEPSEEK_V4: Final = Family(
    left_out={
        "attention_bias": False,
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 0,
        "expert_dtype": _AS_ALL,
    },
    fields={
        **rows("head_dim", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"),
        "num_nextn_predict_layers": natural("predicts", needed=False),
        "num_key_value_heads": one_of("1: a key is the same for all heads", {1: NOTHING}, needed=True),
        "attention_bias": NO_BIAS,
        "mlp_bias": NO_BIAS,
        "hidden_act": SILU,
        "q_lora_rank": count("query_rank"),
        "o_groups": count("output_groups"),
        "o_lora_rank": count("output_rank"),
        "sliding_window": count("window"),
        "compress_ratios": Field(_ratios, "a list of whole numbers from 0 on, one for each layer", needed=True),
        "index_n_heads": count("index_heads"),
        "index_head_dim": count("index_dim"),
        "index_topk": count("top_k"),
        "hc_mult": Field(_streams, "a whole number from 2 on", needed=True),
        "hc_sinkhorn_iters": natural("iterations"),
        "expert_dtype": one_of("fp4, or null", {"fp4": {"experts_in": "mxfp4"}, None: NOTHING, _AS_ALL: NOTHING}),
        "num_hash_layers": Field(lambda value: NOTHING if is_whole(value, 0) else None, "a whole number from 0 on"),
    },
    unused=("intermediate_size",),
    # positions, constants of the router's formula and of streams
    words=frozenset({
        "compress_rope_theta", "hc_eps", "partial_rotary_factor", "qk_rope_head_dim", "routed_scaling_factor",
        "scoring_func", "swiglu_limit", "topk_method",
    }),
    left={
        "num_hash_layers": "the table of experts by token of hashed layers",
        "num_nextn_predict_layers": "modules that predict further tokens",
    },
    stack=_compressed_layers,
    modules=Modules(
        fronts=("", "model."),
        mixer=tuple(f"attn.{name}" for name in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b")),
        experts=tuple(f"ffn.experts.0.{name}" for name in ("w1", "w2", "w3")),
        shared=tuple(f"ffn.shared_experts.{name}" for name in ("w1", "w2", "w3")),
        few=("ffn.gate",),
    ),
)  # fmt: skip
COMPRESSED_FAMILIES: Final[Mapping[str, Family]] = {
    "deepseek_v4": _DEEPSEEK_V4,
    # what sgl-project calls the same model with all weights in fp8
    "deepseek_ref": replace(_DEEPSEEK_V4, left_out={**_DEEPSEEK_V4.left_out, "hidden_act": "silu"}),
}
