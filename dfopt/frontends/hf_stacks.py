"""Hugging Face configs whose layers differ: what their fields give a stack of layers.

Sources: the configs and the config classes that lie beside them on the hub (``configuration_deepseek.py`` of
DeepSeek-V3 and Kimi K2); the DeepSeek-V3 report (arXiv 2412.19437) for what the fields mean. gpt-oss: its model card
(arXiv 2508.10925), which has biases everywhere, sinks, and all but the experts in bf16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from dfopt.frontends.hf_fields import HEADS, SIZES

__all__ = [
    "DEEPSEEK_FIELDS",
    "DEEPSEEK_WORDS",
    "GPT_OSS_FIELDS",
    "INDEXER_FIELDS",
    "deepseek",
    "gpt_oss",
    "in_sections",
]

DEEPSEEK_FIELDS: Final[Mapping[str, str]] = {
    **SIZES,
    "kv_lora_rank": "rank",
    "qk_nope_head_dim": "nope_dim",
    "qk_rope_head_dim": "rotary_dim",
    "v_head_dim": "value_dim",
    "moe_intermediate_size": "expert_ffn",
    "n_routed_experts": "experts",
    "num_experts_per_tok": "chosen",
}
"""Sizes of latent attention and of experts behind dense layers, by the names of the configs."""
INDEXER_FIELDS: Final[Mapping[str, str]] = {
    "index_n_heads": "index_heads",
    "index_head_dim": "index_dim",
    "index_topk": "top_k",
}
"""Sizes of an indexer, whose keys say which tokens attention reads (DeepSeek-V3.2, GLM-5)."""
DEEPSEEK_WORDS: Final = frozenset({
    "aux_loss_alpha", "ep_size", "indexer_rope_interleave", "n_group", "rope_interleave", "routed_scaling_factor",
    "scoring_func", "seq_aux", "topk_group", "topk_method",
})  # fmt: skip
"""Fields of the router's formula and of the order of features: with all experts on every chip they change no size."""


def deepseek(given: Mapping[str, Any]) -> dict[str, Any]:
    """The stack of a model with latent attention: some dense layers, and layers of experts behind them.

    Examples
    --------
    >>> sizes = {"hidden": 8, "vocab": 100, "heads": 2, "rank": 4, "nope_dim": 2, "rotary_dim": 2, "value_dim": 2}
    >>> sizes |= {"layers": 3, "dense": 1, "ffn": 16, "experts": 4, "chosen": 2, "expert_ffn": 4, "shared": 1}
    >>> deepseek(sizes)["sections"]
    [{'layers': ['dense']}, {'layers': ['experts'], 'repeat': 2}]
    """
    names = ("heads", "rank", "query_rank", "nope_dim", "rotary_dim", "value_dim")
    mixer = {"kind": "mla", **{name: given[name] for name in names if given.get(name) is not None}}
    if "top_k" in given:
        mixer["sparse"] = {"heads": given["index_heads"], "head_dim": given["index_dim"], "top_k": given["top_k"]}
    inside = {name: given[name] for name in ("experts", "chosen")}
    experts = {"kind": "moe", **inside, "ffn": given["expert_ffn"], "router_bias": True}
    if given["shared"]:
        experts["shared"] = given["shared"] * given["expert_ffn"]
    kinds = {
        "dense": {"mixer": mixer, "feed_forward": {"kind": "mlp", "ffn": given["ffn"]}},
        "experts": {"mixer": mixer, "feed_forward": experts},
    }
    dense = min(given["dense"], given["layers"])
    return _stack(given, kinds, ["dense"] * dense + ["experts"] * (given["layers"] - dense))


GPT_OSS_FIELDS: Final[Mapping[str, str]] = {
    **SIZES,
    **HEADS,
    "num_local_experts": "experts",
    "num_experts_per_tok": "chosen",
    "sliding_window": "window",
}
"""Sizes of layers of experts with local and global attention."""


def in_sections(kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The layers of a model as sections: one pattern that repeats, or else runs of equal layers.

    Examples
    --------
    >>> in_sections("abab"), in_sections("aab")
    ([{'layers': ['a', 'b'], 'repeat': 2}], [{'layers': ['a'], 'repeat': 2}, {'layers': ['b']}])
    """
    for period in range(1, len(kinds) // 2 + 1):
        times, rest = divmod(len(kinds), period)
        if not rest and list(kinds) == list(kinds[:period]) * times:
            return [{"layers": list(kinds[:period]), "repeat": times}]
    runs = ((kind, len(list(same))) for kind, same in groupby(kinds))
    return [{"layers": [kind], **({"repeat": times} if times > 1 else {})} for kind, times in runs]


def gpt_oss(given: Mapping[str, Any]) -> dict[str, Any]:
    """The stack of a model whose layers of experts attend to a window or to all tokens.

    Raises
    ------
    ValueError
        If there are not as many types of layers as layers, or experts of a token differ by name.

    Examples
    --------
    >>> sizes = {"hidden": 8, "vocab": 100, "heads": 2, "kv_heads": 1, "head_dim": 4, "window": 4, "layers": 2}
    >>> sizes |= {"ffn": 16, "experts": 4, "chosen": 2, "types": ["local", "global"]}
    >>> gpt_oss(sizes)["sections"]
    [{'layers': ['local']}, {'layers': ['global']}]
    """
    types = given["types"]
    if len(types) != given["layers"]:
        raise ValueError(f"layer_types: found {len(types)} types of {given['layers']} layers")
    if given.get("chosen_too", given["chosen"]) != given["chosen"]:
        raise ValueError(f"experts_per_token: found {given['chosen_too']}, num_experts_per_tok says {given['chosen']}")
    wide = {"kind": "attention", **{name: given[name] for name in ("heads", "kv_heads", "head_dim")}}
    wide |= {"bias": "all", "sinks": True}
    experts = {"kind": "moe", "bias": True, "router_bias": True}
    experts |= {name: given[name] for name in ("experts", "chosen", "ffn")}
    mixers = {"local": {**wide, "window": given["window"]}, "global": wide}
    return _stack(given, {name: {"mixer": mixers[name], "feed_forward": experts} for name in mixers}, types)


def _stack(given: Mapping[str, Any], kinds: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """A stack of layers in this order, with those of the kinds that it has."""
    kept = [name for name in ("hidden", "vocab", "tie_embeddings", "word_bytes", "dtypes") if name in given]
    layers = {name: kinds[name] for name in dict.fromkeys(order)}
    return {**{name: given[name] for name in kept}, "layers": layers, "sections": in_sections(order), "causal": True}
