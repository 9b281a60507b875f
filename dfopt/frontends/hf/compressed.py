"""Layers of compressed attention: DeepSeek-V4.

Groups of four tokens overlap and are chosen by an indexer, all others are attended to; a ratio of 0 is a window and no
groups.
"""

from __future__ import annotations

from typing import Any, Final

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters, mixer_of, put_together, routed

__all__ = ["compressed_layers", "ratios"]


_CHOSEN: Final = 4  # tokens of the groups that overlap, and that an indexer chooses from


def ratios(value: Any) -> dict[str, Any] | None:
    """Value of a list of group sizes by layer, 0 for none; None if it cannot be read."""
    valid = isinstance(value, list) and value and all(is_whole(ratio, 0) for ratio in value)
    return {"ratios": value} if valid else None


def compressed_layers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of expert layers with attention to a window and to compressed groups of tokens."""
    ratios, number = given["ratios"], given["layers"]
    if len(ratios) not in (number, number + given["predicts"]):
        few = f"expected one for each of {number} layers, and of {given['predicts']} that predict further tokens"
        raise ValueError(f"ratios: found {len(ratios)}, {few}")
    sizes = ("heads", "head_dim", "query_rank", "window", "output_groups", "output_rank")
    local = mixer_of("compressed_attention", given, *sizes)
    choice = {"heads": given["index_heads"], "head_dim": given["index_dim"], "top_k": given["top_k"]}
    layers = {}
    for ratio in dict.fromkeys(ratios[:number]):
        groups = {"group": ratio} if ratio else {}
        chosen = {"overlaps": True, "sparse": choice} if ratio == _CHOSEN else {}
        layers[_called(ratio)] = {"mixer": {**local, **groups, **chosen}, "feed_forward": routed(given)}
    streams = {"count": given["stream_count"], "iterations": given["iterations"]}
    # modules that predict further tokens are not drawn with several streams
    return put_together({**given, "streams": streams, "predicts": 0}, layers, [*map(_called, ratios[:number])])


def _called(ratio: int) -> str:
    return f"groups_of_{ratio}" if ratio else "local"
