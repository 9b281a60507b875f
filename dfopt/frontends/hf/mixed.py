"""Stacks of layers with mixers of several kinds, which the fields of Hugging Face configs describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dfopt.frontends.hf.layers import Given, in_sections

__all__ = ["HEADED", "mixer_of", "put_together"]

HEADED: Final = ("heads", "kv_heads", "head_dim")
"""Sizes of attention."""
_KEPT: Final = ("hidden", "vocab", "tie_embeddings", "word_bytes", "streams")


def mixer_of(kind: str, given: Given, *names: str, **more: Any) -> dict[str, Any]:
    """A mixer of a kind, with the sizes of these names that are given."""
    return {"kind": kind, **{name: given[name] for name in names if given.get(name) is not None}, **more}


def put_together(
    given: Given, layers: Mapping[str, Any], order: Sequence[str], predicting: Sequence[str] = ()
) -> dict[str, Any]:
    """The stack of layers in this order, and of modules of ``predicting`` layers that predict further tokens.

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
