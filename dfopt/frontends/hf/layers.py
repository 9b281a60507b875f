"""The layers of a Hugging Face config, each with its kind of attention and its feed-forward, as a stack.

What all families of decoders share is drawn here; what makes one of them different is its entry in ``model_types/``:
parameters that its type always has, and steps that work out which layers attend to a window, carry no position, or have
experts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = [
    "HEADED", "FamilyParameters", "Step", "dense_first", "every_so_many", "experts_behind", "experts_in_turn",
    "head_dim_of", "in_sections", "layers_of", "local_everywhere", "local_in_turn", "mixer_of", "put_together",
    "routed",
]  # fmt: skip

FamilyParameters = Mapping[str, Any]
Step = Callable[[FamilyParameters], dict[str, Any]]
"""What a family works out of the parameters that its fields give."""

_KEPT: Final = (
    "hidden", "vocab", "tie_embeddings", "word_bytes", "streams", "norm", "embedding_norm", "learned_positions", "head",
)  # fmt: skip
HEADED: Final = ("heads", "kv_heads", "head_dim")
"""Sizes of attention."""
_MIXERS: Final = {
    "attention": (*HEADED, "bias", "qk_norm", "rotary_dim", "gate", "sinks", "value_dim"),
    "mla": ("heads", "rank", "query_rank", "nope_dim", "rotary_dim", "value_dim"),
}
_INDEXER: Final = {"index_heads": "heads", "index_dim": "head_dim", "top_k": "top_k"}
_OF_EXPERTS: Final = (
    "experts", "chosen", "shared", "shared_gate", "shared_norms", "shared_apart", "router_bias",
)  # fmt: skip
_LOCAL: Final = {"local": "window", "chunked": "chunk"}


def layers_of(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of a decoder as a stack of layers.

    Parameters
    ----------
    given : mapping
        Sizes by the names of the blocks' fields; ``types`` and ``sparse``, the kind of attention of every layer and
        whether it has experts; ``own``, fields of single kinds of attention; ``predicts``, the number of multi-token
        prediction modules, each of ``predicting`` layers like the last one.

    Raises
    ------
    ValueError
        If these lists do not have one entry for each layer, or a size is missing.

    Examples
    --------
    >>> sizes = {"hidden": 8, "vocab": 100, "heads": 2, "head_dim": 4, "ffn": 16, "layers": 4, "window": 3}
    >>> found = layers_of(sizes | {"types": ["local", "global"] * 2})
    >>> found["sections"], found["layers"]["local"]["mixer"]["window"]
    ([{'layers': ['local', 'global'], 'repeat': 2}], 3)
    """
    number = given["layers"]
    types = _per_layer("types", given.get("types") or ["global"] * number, number)
    sparse = _per_layer("sparse", given.get("sparse") or ["experts" in given] * number, number)
    forwards = ["experts" if has_experts else "dense" for has_experts in sparse]
    names = ["_".join(parts) for parts in _labels(types, forwards)]
    layers = dict[str, Any]()
    for name, kind, has_experts in zip(names, types, sparse, strict=True):
        if name not in layers:
            parts = {name: given[name] for name in ("norms", "parallel") if name in given}
            layers[name] = {
                "mixer": _attention(given, kind),
                "feed_forward": _forward(given, sparse=has_experts),
                **parts,
            }
    return put_together(given, layers, names, names[-1:] * given.get("predicting", 1))


def mixer_of(kind: str, given: FamilyParameters, *names: str, **more: Any) -> dict[str, Any]:
    """Parameters of a mixer of some kind, from the given fields with these names."""
    return {"kind": kind, **{name: given[name] for name in names if given.get(name) is not None}, **more}


def head_dim_of(given: FamilyParameters) -> int:
    """Default head size: residual features divided by heads."""
    if given["hidden"] % given["heads"]:
        raise ValueError(f"heads: found {given['heads']}, expected a divisor of the {given['hidden']} features")
    return int(given["hidden"] // given["heads"])


def routed(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of experts with equal shared experts and a router with bias."""
    shared = {"shared": given["shared"] * given["expert_ffn"]} if given["shared"] else {}
    return mixer_of("moe", given, "experts", "chosen", ffn=given["expert_ffn"], router_bias=True) | shared


def put_together(
    given: FamilyParameters, layers: Mapping[str, Any], order: Sequence[str], predicting: Sequence[str] = ()
) -> dict[str, Any]:
    """Parameters of a stack from kinds of layers and their order.

    Parameters
    ----------
    given
        Sizes by the names of the workload's parameters; ``predicts``, how many modules predict further tokens.
    layers
        Kinds of layers by name.
    order
        Kind of each layer of the model.
    predicting
        Kinds of the layers of each module.

    Raises
    ------
    ValueError
        If there are not as many as the config says.

    Examples
    --------
    >>> layers = {"a": {"mixer": {}}, "b": {"feed_forward": {}}}
    >>> put_together({"hidden": 8, "vocab": 9, "layers": 3, "predicts": 1}, layers, "aab", "b")["sections"]
    [{'layers': ['a'], 'repeat': 2}, {'layers': ['b']}, {'layers': ['b'], 'predicts': True}]
    """
    if len(order) != given.get("layers", len(order)):
        raise ValueError(f"types: found {len(order)} of {given['layers']} layers")
    sections = in_sections(order)
    if given.get("predicts"):
        sections.append({"layers": [*predicting], "predicts": True})
        if given["predicts"] > 1:
            sections[-1]["repeat"] = given["predicts"]
    kept = {name: given[name] for name in _KEPT if name in given}
    used = {name: layers[name] for name in dict.fromkeys([*order, *(predicting if given.get("predicts") else ())])}
    return {**kept, "layers": used, "sections": sections, "causal": True}


def _per_layer(name: str, values: Sequence[Any], layers: int) -> Sequence[Any]:
    if len(values) != layers:
        raise ValueError(f"{name}: found {len(values)} of {layers} layers")
    return values


def _labels(*words: Sequence[str]) -> list[tuple[str, ...]]:
    """What tells layers apart; if nothing does, that they are layers."""
    differ = [column for column in words if len(set(column)) > 1]
    return list(zip(*differ, strict=True)) if differ else [("layer",)] * len(words[0])


def _attention(given: FamilyParameters, kind: str) -> dict[str, Any]:
    of = "mla" if "rank" in given else "attention"
    mixer = mixer_of(of, given, *_MIXERS[of])
    if kind in _LOCAL:
        size = _LOCAL[kind]
        if given.get(size) is None:
            raise ValueError(f"{size}: found no size, expected how many tokens {kind} layers attend to")
        mixer[size] = given[size]
    if "top_k" in given:
        mixer["sparse"] = {name: given[parameter] for parameter, name in _INDEXER.items()}
    mixer |= given.get("own", {}).get(kind, {})
    if (share := given.get("rotary_share", 1)) != 1:
        features = int(mixer["head_dim"] * share)
        if given.get("rotary_dim", features) != features:
            raise ValueError(f"rotary_dim: found {given['rotary_dim']}, but partial_rotary_factor says {features}")
        mixer.setdefault("rotary_dim", features)
    return mixer


def _forward(given: FamilyParameters, *, sparse: bool) -> dict[str, Any]:
    shape = ({"gated": False} if given.get("gated") is False else {}) | (
        {"bias": True} if given.get("mlp_bias") else {}
    )
    if not sparse:
        return {"kind": "mlp", "ffn": given.get("dense_ffn", given["ffn"]), **shape}
    inside = {name: given[name] for name in _OF_EXPERTS if given.get(name)}
    return {"kind": "moe", "ffn": given.get("expert_ffn", given["ffn"]), **inside, **shape}


def every_so_many(layers: int, period: int, usual: str, other: str) -> list[str]:
    """The kinds of some layers of which every so many-th is of another kind.

    Parameters
    ----------
    layers, period : int
        Number of layers, and how many of them the last is of another kind in.
    usual, other : str
        The two kinds.

    Examples
    --------
    >>> every_so_many(5, 2, "local", "global")
    ['local', 'global', 'local', 'global', 'local']
    """
    return [usual if (place + 1) % period else other for place in range(layers)]


def local_in_turn(given: FamilyParameters) -> dict[str, Any]:
    """Stack of windowed layers with global attention in the last of every ``pattern``, or as ``types`` lists."""
    if given.get("pattern") is None:
        return {}
    kinds = every_so_many(given["layers"], given["pattern"], "local", "global")
    if given.get("types", kinds) != kinds:
        raise ValueError(f"pattern: found {given['pattern']}, but layer_types say otherwise")
    return {"types": kinds}


def local_everywhere(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of a window in every layer, if there is one."""
    return {"types": ["local" if given.get("window") else "global"] * given["layers"]}


def experts_behind(given: FamilyParameters) -> dict[str, Any]:
    """Stack of dense layers followed by expert layers, or as ``sparse`` lists."""
    if "dense" not in given and "sparse" in given:
        return {}
    dense = min(given.get("dense", 0), given["layers"])
    sparse = [False] * dense + [True] * (given["layers"] - dense)
    if given.get("sparse", sparse) != sparse:
        raise ValueError(f"dense: found {given['dense']}, but the kinds of layers say otherwise")
    return {"sparse": sparse}


def dense_first(given: FamilyParameters) -> dict[str, Any]:
    """Stack of dense layers followed by expert layers with shared experts."""
    return {**experts_behind(given), "shared": given.get("shared", 0) * given["expert_ffn"]}


def experts_in_turn(given: FamilyParameters) -> dict[str, Any]:
    """Stack with expert layers at regular intervals, without listed ones."""
    turns = every_so_many(given["layers"], given["sparse_step"], "dense", "experts")
    dense = given.get("only_dense") or ()
    return {"sparse": [kind == "experts" and place not in dense for place, kind in enumerate(turns)]}


def in_sections(kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Layers of a model as sections of repeated patterns, as short as possible.

    Examples
    --------
    >>> in_sections("abab"), in_sections("aab")
    ([{'layers': ['a', 'b'], 'repeat': 2}], [{'layers': ['a'], 'repeat': 2}, {'layers': ['b']}])
    >>> in_sections("aaabbbabbbab")
    [{'layers': ['a'], 'repeat': 3}, {'layers': ['b', 'b', 'b', 'a'], 'repeat': 2}, {'layers': ['b']}]
    """
    kinds, end = list(kinds), len(kinds)
    if len(set(kinds)) == 1:
        return [{"layers": kinds[:1], **({"repeat": end} if end > 1 else {})}]
    # of what begins at a place: layers in its patterns, sections, and of the first how far it goes, and its period
    least: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * (end + 1)
    alike = [0] * (end + 1)  # from a place on, the layers that are as those one period behind them
    for place in reversed(range(end)):
        choices = []
        for period in range(1, end - place + 1):
            same = place + period < end and kinds[place] == kinds[place + period]
            alike[period] = alike[period] + 1 if same else 0
            for times in range(1, alike[period] // period + 2):
                rest = least[place + period * times]
                choices.append((period + rest[0], 1 + rest[1], -period * times, period))
        least[place] = min(choices)
    sections, place = list[dict[str, Any]](), 0
    while place < end:
        covered, period = least[place][2:]
        times = -covered // period
        sections.append({"layers": kinds[place : place + period], **({"repeat": times} if times > 1 else {})})
        place += period * times
    return sections
