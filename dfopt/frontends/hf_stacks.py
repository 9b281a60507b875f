"""Hugging Face configs whose layers differ: what their fields give a stack of layers.

Sources: the configs and the config classes that lie beside them on the hub (``configuration_deepseek.py`` of
DeepSeek-V3 and Kimi K2); the DeepSeek-V3 report (arXiv 2412.19437) for what the fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DEEPSEEK_FIELDS", "DEEPSEEK_WORDS", "INDEXER_FIELDS", "deepseek"]

DEEPSEEK_FIELDS: Final[Mapping[str, str]] = {
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "max_position_embeddings": "positions",
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
    dense, layers = min(given["dense"], given["layers"]), given["layers"]
    kinds = {"dense": {"mixer": mixer, "feed_forward": {"kind": "mlp", "ffn": given["ffn"]}}}
    kinds |= {"experts": {"mixer": mixer, "feed_forward": experts}}
    counts = {"dense": dense, "experts": layers - dense}
    sections = [{"layers": [name], **({"repeat": n} if n > 1 else {})} for name, n in counts.items() if n]
    kept = {
        name: given[name] for name in ("hidden", "vocab", "tie_embeddings", "word_bytes", "dtypes") if name in given
    }
    layers_used = {name: kind for name, kind in kinds.items() if counts[name]}
    return {**kept, "layers": layers_used, "sections": sections, "causal": True}
