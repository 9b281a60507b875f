"""Layers that differ in their number of heads: Laguna, Step 3.5 and MiMo-V2-Flash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dfopt.frontends.hf.fields import is_whole
from dfopt.frontends.hf.layers import FamilyParameters, experts_behind

__all__ = ["gated_alike", "heads_of_kinds", "laguna", "mimo", "other_heads", "places_in_words", "step"]


def heads_of_kinds(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of layers whose number of heads depends on their type."""
    heads = given.get("heads_of_layers")
    if heads is None:
        return {}
    types: list[str] = given["types"]
    if len(heads) != len(types):
        raise ValueError(f"heads_of_layers: found {len(heads)} of {len(types)} layers")
    counts = {kind: {number for own, number in zip(types, heads, strict=True) if own == kind} for kind in types}
    if odd := next((kind for kind in counts if len(counts[kind]) > 1), None):
        numbers = " and ".join(map(str, sorted(counts[odd])))
        raise ValueError(f"heads_of_layers: found {numbers} heads of {odd} layers, expected one number for all of them")
    return {"own": {kind: {"heads": min(numbers)} for kind, numbers in counts.items()}}


def gated_alike(value: Any) -> dict[str, Any] | None:
    """Value of a list of gates that are the same in all layers; None if it cannot be read."""
    gates = {"per_head": "head", "per_element": "element"}
    alike = isinstance(value, list) and value and all(gate == value[0] for gate in value)
    return {"gates": gates[value[0]]} if alike and isinstance(value[0], str) and value[0] in gates else None


def laguna(given: FamilyParameters) -> dict[str, Any]:
    """Parameters of Laguna, whose config states gates and dense layers in two ways."""
    if given.get("gates", given["gate"]) != given["gate"]:
        raise ValueError(f"gates: found gates of every {given['gates']}, but gating says of every {given['gate']}")
    dense = [place for place, routed in enumerate(given["sparse"]) if not routed]
    if sorted(given.get("only_dense", dense)) != dense:
        raise ValueError("only_dense: found other layers than mlp_layer_types says")
    return {}


def places_in_words(value: Any, to: str) -> dict[str, Any] | None:
    """Value of layer numbers as a list or a string; None if it cannot be read."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        value = [int(part) for part in parts if part] if all(part.isdecimal() for part in parts if part) else None
    return {to: value} if isinstance(value, list) and all(is_whole(place, 0) for place in value) else None


def other_heads(value: Any) -> dict[str, Any] | None:
    """Value of the head sizes of windowed layers; None if it cannot be read."""
    if value is None:
        return {}
    names = {"num_attention_heads": "heads", "num_attention_groups": "kv_heads", "head_dim": "head_dim"}
    if not isinstance(value, Mapping) or set(value) - {*names, "attention_type", "true_head_dim"}:
        return None
    sizes = {name: value[field] for field, name in names.items() if field in value}
    local = value.get("attention_type", "sliding_attention") == "sliding_attention"
    same = value.get("true_head_dim", value.get("head_dim")) == value.get("head_dim")
    return {"own_of_windows": sizes} if local and same and all(map(is_whole, sizes.values())) else None


def step(given: FamilyParameters) -> dict[str, Any]:
    """Stack of global and windowed layers, whose lists also have the prediction modules (Step)."""
    number, more = given["layers"], given["predicts"]
    parameters: dict[str, Any] = {}
    for name in ("types", "sparse"):
        if given.get(name) is not None:
            if (count := len(given[name])) not in (number, number + more):
                raise ValueError(f"{name}: found {count} of {number} layers, and of {more} that predict more")
            parameters[name] = given[name][:number]
    if (routed := given.get("routed")) is not None:
        if max(routed, default=0) >= number + more:
            raise ValueError(f"routed: found layer {max(routed)} of {number}")
        sparse = [place in routed for place in range(number)]
        if parameters.get("sparse", sparse) != sparse:
            raise ValueError("routed: found other layers than mlp_layer_types says")
        parameters["sparse"] = sparse
    parameters |= experts_behind({**given, **parameters})
    windows = given.get("own_of_windows") or {}
    if (heads := given.get("heads_of_windows")) is not None:
        if windows.get("heads", heads) != heads:
            raise ValueError(f"heads_of_windows: found {heads}, but attention_other_setting says {windows['heads']}")
        windows = windows | {"heads": heads}
    return {**parameters, "own": {"local": windows}}


def mimo(given: FamilyParameters) -> dict[str, Any]:
    """Stack of global and windowed layers with different heads, sinks and narrow values (MiMo)."""
    sizes = {"swa_heads": "heads", "swa_dim": "head_dim", "swa_value_dim": "value_dim"}
    for name, other in sizes.items():
        if given.get(name, given[other]) != given[other]:
            raise ValueError(f"{name}: found {given[name]}, expected {given[other]}, as of layers that see all tokens")
    for name in ("types", "sparse"):
        if given.get(f"{name}_too", given.get(name)) != given.get(name) and given.get(name) is not None:
            raise ValueError(f"{name}_too: found other layers than the kinds of layers say")
    types, sparse = (given.get(name) or given.get(f"{name}_too") for name in ("types", "sparse"))
    window = given["window"] if given.get("before") is None else given["before"] + 1
    local = {"kv_heads": given["swa_kv_heads"] or 2 * given["kv_heads"], "sinks": given["swa_sinks"]}
    own = {"local": local, "global": {"sinks": given["full_sinks"]}}
    return {"types": types, "sparse": sparse, "window": window, "own": own}
