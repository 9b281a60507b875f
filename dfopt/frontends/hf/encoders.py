"""Encoders, whose tokens all see each other, and Whisper's decoder.

Of an encoder its layers and ends are drawn, and the pooler where its class always has one; the head of a task, which
its ``architectures`` name, is left out, and said to be. Whisper's decoder attends to the tokens of its encoder, which
is a model of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dfopt.frontends.hf.fields import is_whole, number_of_layers
from dfopt.frontends.hf.layers import FamilyParameters, head_dim_of, in_sections

__all__ = ["bert", "every_so_many_global", "image", "modern", "whisper"]


def _layer(given: FamilyParameters, **more: Any) -> dict[str, Any]:
    """A layer in which all tokens see each other."""
    mixer = {
        "kind": "attention", "heads": given["heads"], "head_dim": head_dim_of(given), "rotary_dim": 0,
        "sees": "full", **({"bias": "all"} if given.get("biased", True) else {}),
    }  # fmt: skip
    return {"mixer": mixer, "feed_forward": {"kind": "mlp", "ffn": given["ffn"], "gated": False, "bias": True}, **more}


def _stacked(given: FamilyParameters, layer: Mapping[str, Any], **ends: Any) -> dict[str, Any]:
    sections = [{"layers": ["layer"], "repeat": given["layers"]}]
    return {
        "hidden": given["hidden"], "word_bytes": given["word_bytes"], "norm": "layernorm", **ends,
        "layers": {"layer": layer}, "sections": sections, "ends": True,
    }  # fmt: skip


def bert(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of BERT: post-norms, word, position and type embeddings, and a pooler."""
    padded = given.get("padded", 0)
    if given["positions"] <= padded:
        raise ValueError(f"positions: found {given['positions']}, expected more than the {padded} that are not used")
    ends = {"vocab": given["vocab"], "learned_positions": given["positions"], "token_types": given["token_types"]}
    head = {"kind": "none", **({"pooler": True} if given.get("pools", True) else {})}
    ends |= {"embedding_norm": True, "final_norm": False, "head": head, "positions": given["positions"] - padded}
    return _stacked(given, _layer(given, norms="after"), **ends)


def image(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of vision transformers: patches, perhaps a class token, and pre-norms."""
    if given["patch"] > given["side"]:
        raise ValueError(f"patch: found {given['patch']}, expected {given['side']} at most, as of the whole image")
    tokens = (given["side"] // given["patch"]) ** 2 + given.get("class_token", 1)
    first = {"inputs": given["channels"] * given["patch"] ** 2, "outputs": given["hidden"]}
    if not given.get("patch_bias", True):
        first["bias"] = False
    ends = {"input": [first], "learned_positions": tokens, "positions": tokens, "head": {"kind": "none"}}
    return _stacked(given, _layer(given), **ends, **({"embedding_norm": True} if given.get("normed") else {}))


def whisper(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Whisper's decoder: pairs of self-attention and cross-attention."""
    sizes = {"heads": given["heads"], "head_dim": head_dim_of(given), "bias": "no_key"}
    inside = {"kind": "mlp", "ffn": given["ffn"], "gated": False, "bias": True}
    cross = {"kind": "cross_attention", **sizes, "tokens": given["encoded"]}
    layers = {
        "self": {"mixer": {"kind": "attention", **sizes, "rotary_dim": 0}},
        "cross": {"mixer": cross, "feed_forward": inside},
    }
    kept = {name: given[name] for name in ("hidden", "vocab", "tie_embeddings", "word_bytes")}
    sections = [{"layers": ["self", "cross"], "repeat": given["layers"]}]
    ends = {"learned_positions": given["positions"], "norm": "layernorm", "causal": True}
    return {**kept, **ends, "layers": layers, "sections": sections}


def every_so_many_global(data: Mapping[str, Any]) -> list[str] | None:
    """Default layer types of ModernBERT: global attention in the first of every few layers."""
    number, turn = number_of_layers(data), data.get("global_attn_every_n_layers", 3)
    if number is None or not is_whole(turn):
        return None
    return ["sliding_attention" if place % turn else "full_attention" for place in range(number)]


def modern(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of ModernBERT: gated MLPs, rotary positions, and two-sided windows in most layers.

    Norms have no biases, and the first one is the embedding's; both are counted, a ten-thousandth of all.
    """
    sizes = {"kind": "attention", "heads": given["heads"], "head_dim": head_dim_of(given), "sees": "full"}
    if len(given["types"]) != given["layers"]:
        raise ValueError(f"types: found {len(given['types'])} of {given['layers']} layers")
    inside = {"kind": "mlp", "ffn": given["ffn"]}
    # half of it on either side, and the token's own
    mixers = {"global": sizes, "local": sizes | {"window": given["window"] // 2 * 2 + 1}}
    layers = {kind: {"mixer": mixers[kind], "feed_forward": inside} for kind in dict.fromkeys(given["types"])}
    ends = {"embedding_norm": True, "head": {"kind": "none"}, "norm": "layernorm", "ends": True}
    kept = {name: given[name] for name in ("hidden", "vocab", "word_bytes")}
    return {**kept, **ends, "layers": layers, "sections": in_sections(given["types"])}
