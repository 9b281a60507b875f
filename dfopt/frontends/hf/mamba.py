"""Layers of Mamba, alone and mixed with attention: Mamba 1 and 2, Nemotron-H, Jamba."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.layers import HEADED, FamilyParameters, mixer_of, put_together

__all__ = ["jamba_layers", "layers_of_predictors", "one_of_each", "one_scan2_each", "one_scan_each", "signs"]


def one_scan_each(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Mamba layers only."""
    inner = given.get("inner") or given["expand"] * given["hidden"]
    if inner != given["expand"] * given["hidden"]:
        raise ValueError(f"inner: found {inner}, expected expand x hidden_size, {given['expand'] * given['hidden']}")
    mixer = mixer_of("mamba", given, "state", "convolution", "conv_bias", inner=inner, time_rank=_rank_of_steps(given))
    return put_together(given, {"layer": {"mixer": mixer}}, ["layer"] * given["layers"])


def _rank_of_steps(given: FamilyParameters) -> int:
    """The rank of time steps, of which auto is a sixteenth of the features, rounded up."""
    return -(-given["hidden"] // 16) if given["time_rank"] == "auto" else int(given["time_rank"])


_OF_MAMBA2: Final = ("state", "convolution", "chunk", "conv_bias", "state_bytes")


def mamba2_of(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of a Mamba 2 mixer."""
    return mixer_of(
        "mamba2", given, *_OF_MAMBA2, heads=given["m_heads"], head_dim=given["m_dim"], groups=given["m_groups"]
    )


def one_scan2_each(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Mamba 2 layers only."""
    inner = given["expand"] * given["hidden"]
    if given["m_heads"] * given["m_dim"] != inner:
        raise ValueError(f"m_heads: found {given['m_heads']} of {given['m_dim']} features, expected {inner} together")
    return put_together(given, {"layer": {"mixer": mamba2_of(given)}}, ["layer"] * given["layers"])


_SIGNS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}


def one_of_each(given: FamilyParameters) -> dict[str, Any]:
    """Stack of layers with one block each: Mamba 2, attention, MLP or experts."""
    order, listed_too = given.get("types"), given.get("listed")
    if order is None and listed_too is None:
        raise ValueError("types: missing, expected a sign for every layer, or layers_block_type")
    if None not in (order, listed_too) and order != listed_too:
        raise ValueError("listed: found other layers than hybrid_override_pattern says")
    order = order or listed_too or []
    predicting = given.get("predicting") or given.get("predicting_listed") or []
    layers: dict[str, Any] = {
        "mamba": {"mixer": mamba2_of(given)},
        "attention": {"mixer": mixer_of("attention", given, *HEADED, rotary_dim=0)},
        "mlp": {"feed_forward": {"kind": "mlp", "ffn": given["ffn"], "gated": False}},
    }
    if "experts" in [*order, *(predicting if given.get("predicts") else [])]:
        for name in ("experts", "chosen", "expert_ffn", "shared", "shared_number"):
            if name not in given:
                raise ValueError(f"{name}: missing, but there are layers of experts")
        names = ("experts", "chosen", "latent", "shared")
        given = {**given, "latent": given.get("latent") or None}
        inside = mixer_of("moe", given, *names, ffn=given["expert_ffn"], gated=False, router_bias=True)
        layers["experts"] = {"feed_forward": inside}
    return put_together(given, layers, order, predicting)


def layers_of_predictors(data: Mapping[str, Any]) -> list[str] | None:
    """Default layer types of prediction modules, or None without modules."""
    asked, pattern = data.get("num_nextn_predict_layers"), data.get("mtp_hybrid_override_pattern")
    return ["attention", "moe"] if asked and not pattern else None


def jamba_layers(given: FamilyParameters) -> dict[str, Any]:
    """Stack of Mamba and attention layers, every other one with experts (Jamba)."""
    places = range(given["layers"])
    inner = given["expand"] * given["hidden"]
    sizes = {"inner": inner, "time_rank": _rank_of_steps(given), "inner_norms": True}
    mixers = {
        "mamba": mixer_of("mamba", given, "state", "convolution", "conv_bias", **sizes),
        "attention": mixer_of("attention", given, *HEADED, rotary_dim=0),
    }
    alone = {"kind": "mlp", "ffn": given["ffn"]}
    several = mixer_of("moe", given, "experts", "chosen", "ffn") if given["experts"] > 1 else alone
    inside = {"dense": alone, "experts": several}

    def in_turn(of: str) -> list[bool]:
        return [place % given[f"{of}_period"] == given[f"{of}_offset"] for place in places]

    order = [
        f"{'attention' if full else 'mamba'}_{'experts' if routed and given['experts'] > 1 else 'dense'}"
        for full, routed in zip(in_turn("attn"), in_turn("expert"), strict=True)
    ]
    layers = {f"{a}_{b}": {"mixer": mixers[a], "feed_forward": inside[b]} for a in mixers for b in inside}
    return put_together(given, layers, order)


def signs(value: Any, to: str) -> dict[str, Any] | None:
    """Value of a string with one sign per layer; None if it cannot be read."""
    valid = isinstance(value, str) and value and all(sign in _SIGNS for sign in value)
    return {to: [_SIGNS[sign] for sign in value]} if valid else None
