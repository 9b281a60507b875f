"""Layers that attend to different tokens: windows, chunks, blocks, no positions, indexers; their experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters, every_so_many, experts_behind

__all__ = [
    "all_one",
    "gemma_4",
    "hybrid",
    "llama_4",
    "minimax_3",
    "no_positions",
    "predicted",
    "shared_indexers",
    "sparse_attention",
    "turns",
]


def llama_4(given: FamilyParameters) -> dict[str, Any]:
    """Stack with global layers without positions and expert layers at intervals (Llama 4)."""
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


def all_one(value: Any) -> dict[str, Any] | None:
    """Value of a list with a 1 for every layer; None if it cannot be read."""
    return {} if isinstance(value, list) and all(type(number) is int and number == 1 for number in value) else None


def predicted(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of multi-token prediction modules, if the model has them."""
    return {"predicts": given.get("modules", 0) if given.get("has_modules") else 0}


def minimax_3(given: FamilyParameters) -> dict[str, Any]:
    """Stack of block-sparse attention and expert layers as listed (MiniMax).

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


def sparse_attention(value: Any) -> dict[str, Any] | None:
    """Value of the block-sparse attention block and its layers; None if it cannot be read."""
    if not isinstance(value, Mapping) or value.get("use_sparse_attention") is not True:
        return None
    turns = value.get("sparse_attention_freq")
    sizes = {name: value.get(field) for field, name in _SPARSE_SIZES.items()}
    # layers without an indexer's value path: all that have an indexer
    bare = value.get("sparse_disable_index_value", turns)
    names = {*_SPARSE_SIZES, *_SPARSE_WORDS, "use_sparse_attention", "sparse_attention_freq"}
    names |= {"sparse_disable_index_value"}
    good = isinstance(turns, list) and turns and all(type(turn) is int and turn in (0, 1) for turn in turns)
    if not good or bare != turns or set(value) - names or not all(is_whole(size) for size in sizes.values()):
        return None
    types = ["sparse" if turn else "global" for turn in turns or ()]
    return {"types": types, "indexer": {**sizes, "reads": "hidden"}}


def no_positions(given: FamilyParameters) -> dict[str, Any]:
    """Stack with layers without positions at regular intervals."""
    placed = given.get("placed") or every_so_many(given["layers"], given["unplaced_turn"], "chunked", "global")
    kinds = {"chunked": "rotary", "global": "plain"}
    return {"types": [kinds[place] for place in placed], "own": {"plain": {"rotary_dim": 0}}}


def hybrid(given: FamilyParameters) -> dict[str, Any]:
    """Stack of windowed layers, and global layers without positions."""
    types, turns = given.get("types") or [], given.get("turns")
    if turns is not None and given.get("window") is not None and not types:
        letters = {"L": "local", "G": "global"}
        if isinstance(turns, int):
            types = every_so_many(given["layers"], turns, "local", "global")
        else:
            types = [letters[turns[place % len(turns)]] for place in range(given["layers"] - 1)] + ["global"]
    return {"types": types, "own": {"global": {"rotary_dim": 0}} if "local" in types else {}}


def turns(value: Any) -> dict[str, Any] | None:
    """Value of the period of global layers, as a number or letters; None if it cannot be read."""
    if value is None or is_whole(value):
        return {"turns": value}
    return {"turns": value} if isinstance(value, str) and value and set(value) <= {"L", "G"} else None


def shared_indexers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of sparse-attention layers, some of which reuse an earlier layer's selection."""
    if "types" not in given:
        if given.get("index_turn", 1) != 1 or given.get("index_pattern") is not None:
            raise ValueError("types: missing, but index_topk_freq or index_topk_pattern say that layers differ")
        return {}
    sizes = {"heads": given["index_heads"], "head_dim": given["index_dim"], "top_k": given["top_k"]}
    return {"own": {"shared": {"sparse": {**sizes, "shared": True}}}}


def gemma_4(given: FamilyParameters) -> dict[str, Any]:
    """Stack of windowed and global layers with different heads, and experts next to an MLP (Gemma 4)."""
    missing = [name for name in ("experts", "chosen", "expert_ffn") if given.get(name) is None]
    if given["experts_beside"] and missing:
        raise ValueError(f"{missing[0]}: found none, but enable_moe_block is true")
    heads = {"head_dim": given["global_dim"], "rotary_dim": given["global_dim"] // 4}
    if given["values_are_keys"]:
        heads |= {"values": "keys"}
        if given.get("global_kv_heads") is not None:
            heads |= {"kv_heads": given["global_kv_heads"]}
    shared = {"shared": given["ffn"], "shared_norms": True} if given["experts_beside"] else {}
    return {**shared, "own": {"global": heads}, "sparse": [given["experts_beside"]] * given["layers"]}
