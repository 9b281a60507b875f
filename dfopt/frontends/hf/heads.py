"""Hugging Face configs of decoders whose layers differ in their number of heads: Laguna, Step 3.5 and MiMo-V2-Flash.

Sources: ``configuration_laguna.py``, ``configuration_step3p7.py``, ``configuration_mimo_v2_flash.py`` and the
``modeling_*.py`` beside them of transformers 5.23, and the configs of poolside/Laguna-XS.2,
stepfun-ai/Step-3.5-Flash and XiaomiMiMo/MiMo-V2-Flash on the hub.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.decoders import PLAIN, ROUTER_WORDS
from dfopt.frontends.hf.fields import (
    Family,
    Field,
    Modules,
    count,
    flag,
    is_whole,
    listed,
    natural,
    one_of,
    optional,
    unless,
)
from dfopt.frontends.hf.layers import Given, experts_behind, made_by
from dfopt.frontends.hf.rows import ATTENTIONS, NOTHING, rows

__all__ = ["HEADS_FAMILIES"]

_MODULES: Final = Modules(
    mixer=tuple(f"self_attn.{name}_proj" for name in "qkvo"), few=("mlp.gate", "self_attn.g_proj"),
)  # fmt: skip
_GATING: Final = one_of(
    "true, per-head or per-element",
    {True: {"gate": "head"}, "per-head": {"gate": "head"}, "per-element": {"gate": "element"}},
    needed=True,
)


def _number(data: Mapping[str, Any]) -> int | None:
    number = data.get("num_hidden_layers")
    return number if is_whole(number) and number <= 10**3 else None


def _all_global(data: Mapping[str, Any]) -> list[str] | None:
    number = _number(data)
    return None if number is None else ["full_attention"] * number


def _one_dense(data: Mapping[str, Any]) -> list[str] | None:
    number = _number(data)
    return None if number is None else ["dense"] + ["sparse"] * (number - 1)


def _whole_numbers(parameter: str) -> Field:
    def gives(value: Any) -> dict[str, Any] | None:
        known = isinstance(value, list) and value and all(map(is_whole, value))
        return {parameter: value} if known or value is None else None

    return Field(gives, "null, or a whole number from 1 on for every layer")


def _heads_of_kinds(given: Given) -> dict[str, Any]:
    """Layers of a kind have as many heads as each other."""
    heads = given.get("heads_of_layers")
    if heads is None:
        return {}
    types: Sequence[str] = given["types"]
    if len(heads) != len(types):
        raise ValueError(f"heads_of_layers: found {len(heads)} of {len(types)} layers")
    found = {kind: {number for one, number in zip(types, heads, strict=True) if one == kind} for kind in types}
    if odd := next((kind for kind in found if len(found[kind]) > 1), None):
        numbers = " and ".join(map(str, sorted(found[odd])))
        raise ValueError(f"heads_of_layers: found {numbers} heads of {odd} layers, expected one number for all of them")
    return {"own": {kind: {"heads": min(numbers)} for kind, numbers in found.items()}}


def _gated_alike(value: Any) -> dict[str, Any] | None:
    gates = {"per_head": "head", "per_element": "element"}
    alike = isinstance(value, list) and value and all(one == value[0] for one in value)
    return {"gates": gates[value[0]]} if alike and isinstance(value[0], str) and value[0] in gates else None


def _dense_places(value: Any) -> dict[str, Any] | None:
    known = isinstance(value, list) and all(is_whole(one, 0) for one in value)
    return {"only_dense": value} if known else None


def _laguna(given: Given) -> dict[str, Any]:
    """What is said of gates, and of layers without experts, in two ways."""
    if given.get("gates", given["gate"]) != given["gate"]:
        raise ValueError(f"gates: found gates of every {given['gates']}, but gating says of every {given['gate']}")
    dense = [place for place, routed in enumerate(given["sparse"]) if not routed]
    if sorted(given.get("only_dense", dense)) != dense:
        raise ValueError("only_dense: found other layers than mlp_layer_types says")
    return {}


# whichever features of a head carry its position, a kernel reads and writes all of them
_LAGUNA: Final = Family(
    always={"qk_norm": "head", "router_bias": True},
    left_out={
        **PLAIN,
        "gating": True,
        "layer_types": _all_global,
        "mlp_layer_types": _one_dense,
        "num_attention_heads_per_layer": None,
    },
    fields=rows(
        "head_dim",
        "attention_bias",
        "sliding_window",
        "layer_types",
        "mlp_layer_types",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        gating=_GATING,
        gating_types=Field(_gated_alike, "per_head for every layer, or per_element for every layer"),
        decoder_sparse_step=one_of("1: mlp_layer_types say which layers have experts", {1: NOTHING}),
        mlp_only_layers=Field(_dense_places, "numbers of layers"),
        num_attention_heads_per_layer=_whole_numbers("heads_of_layers"),
        moe_apply_router_weight_on_input=one_of("false", {False: NOTHING}),
        use_bidirectional_attention=one_of("false", {False: NOTHING}),
    ),
    words=ROUTER_WORDS | {"moe_routed_scaling_factor", "moe_router_logit_softcapping", "partial_rotary_factor"},
    stack=made_by(_laguna, _heads_of_kinds),
    modules=replace(_MODULES, shared=tuple(f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down"))),
)


def _places(value: Any) -> dict[str, Any] | None:
    """Numbers of layers, as a list or in one string."""
    if isinstance(value, str):
        parts = [one.strip() for one in value.split(",")]
        value = [int(one) for one in parts if one] if all(one.isdecimal() for one in parts if one) else None
    return {"routed": value} if isinstance(value, list) and all(is_whole(one, 0) for one in value) else None


def _other_heads(value: Any) -> dict[str, Any] | None:
    """What layers of a window have instead of the others' heads."""
    if value is None:
        return {}
    names = {"num_attention_heads": "heads", "num_attention_groups": "kv_heads", "head_dim": "head_dim"}
    if not isinstance(value, Mapping) or set(value) - {*names, "attention_type", "true_head_dim"}:
        return None
    sizes = {name: value[field] for field, name in names.items() if field in value}
    known = value.get("attention_type", "sliding_attention") == "sliding_attention" and all(
        map(is_whole, sizes.values())
    )
    same = value.get("true_head_dim", value.get("head_dim")) == value.get("head_dim")
    return {"own_of_windows": sizes} if known and same else None


def _step(given: Given) -> dict[str, Any]:
    """Layers of all tokens and of a window, and behind them in the same lists those that predict further tokens."""
    number, more = given["layers"], given["predicts"]
    found: dict[str, Any] = {}
    for name in ("types", "sparse"):
        if given.get(name) is not None:
            if len(given[name]) not in (number, number + more):
                raise ValueError(
                    f"{name}: found {len(given[name])} of {number} layers, and of {more} that predict more"
                )
            found[name] = given[name][:number]
    if (routed := given.get("routed")) is not None:
        if max(routed, default=0) >= number + more:
            raise ValueError(f"routed: found layer {max(routed)} of {number}")
        sparse = [place in routed for place in range(number)]
        if found.get("sparse", sparse) != sparse:
            raise ValueError("routed: found other layers than mlp_layer_types says")
        found["sparse"] = sparse
    found |= experts_behind({**given, **found})
    windows = given.get("own_of_windows") or {}
    if (heads := given.get("heads_of_windows")) is not None:
        if windows.get("heads", heads) != heads:
            raise ValueError(f"heads_of_windows: found {heads}, but attention_other_setting says {windows['heads']}")
        windows = windows | {"heads": heads}
    return {**found, "own": {"local": windows}}


_STEP: Final = Family(
    always={"qk_norm": "head", "router_bias": True},
    left_out={
        **PLAIN,
        "gating": True,
        "layer_types": None,
        "attention_other_setting": None,
        "num_sliding_attention_heads": None,
        "num_nextn_predict_layers": 0,
        # where neither a list nor a string says which layers have experts
        "first_k_dense_replace": lambda data: unless("moe_layers_enum", unless("mlp_layer_types", 3)(data))(data),
    },
    fields=rows(
        "head_dim",
        "attention_bias",
        "sliding_window",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "num_nextn_predict_layers",
        gating=_GATING,
        layer_types=Field(
            lambda value: NOTHING if value is None else listed("types", ATTENTIONS).gives(value),
            "null, or a list of sliding_attention and full_attention",
        ),
        mlp_layer_types=listed("sparse", {"dense": False, "sparse": True}),
        first_k_dense_replace=natural("dense", needed=False),
        moe_layers_enum=Field(_places, "numbers of layers, as a list or in one string"),
        share_expert_dim=count("shared"),
        n_shared_experts=one_of("1: its size is that of all together", {1: NOTHING}),
        num_sliding_attention_heads=optional("heads_of_windows"),
        attention_other_setting=Field(_other_heads, "null, or the heads of layers of sliding_attention"),
        att_impl_type=one_of("GQA", {"GQA": NOTHING}),
        mlp_bias=one_of("false", {False: NOTHING}),
        moe_every_n_layer=one_of("1", {1: NOTHING}),
        moe_layer_offset=one_of("0", {0: NOTHING}),
        use_bidirectional_attention=one_of("false", {False: NOTHING}),
        use_head_wise_attn_gate=one_of("true", {True: NOTHING}),
        use_moe=one_of("true", {True: NOTHING}),
        use_moe_router_bias=one_of("true", {True: NOTHING}),
        use_qk_norm=one_of("true", {True: NOTHING}),
    ),
    names={
        "num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts",
        "num_experts": "n_routed_experts", "moe_top_k": "num_experts_per_tok", "share_expert_dims": "share_expert_dim",
        "num_mtp_layers": "num_nextn_predict_layers", "max_seq_len": "max_position_embeddings",
    },
    words=ROUTER_WORDS | {
        "moe_router_activation", "moe_router_scaling_factor", "mtp_layer_types", "mtp_mlp_layer_types",
        "need_fp32_gate", "norm_expert_weight", "partial_rotary_factors", "partial_rotary_factor",
        "query_pre_attn_scalar", "swiglu_limits", "swiglu_limits_shared", "use_rope_layers", "yarn_only_types",
        "zero_centered",
    },
    stack=made_by(_step),
    modules=replace(_MODULES, shared=tuple(f"share_expert.{name}_proj" for name in ("gate", "up", "down"))),
)  # fmt: skip


def _mimo_types(data: Mapping[str, Any]) -> list[str] | None:
    """What the class takes: all tokens for the first layer and for the last in every six."""
    number = _number(data)
    if number is None or data.get("hybrid_layer_pattern") is not None:
        return None
    whole = [place == 0 or (place + 1) % 6 == 0 for place in range(number)]
    return ["full_attention" if one else "sliding_attention" for one in whole]


def _mimo_sparse(data: Mapping[str, Any]) -> list[str] | None:
    return None if data.get("moe_layer_freq") is not None else _one_dense(data)


def _mimo(given: Given) -> dict[str, Any]:
    """Layers of a window have heads of keys and values of their own, and sinks; values are narrower than keys."""
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


_MIMO: Final = Family(
    always={"router_bias": True},
    left_out={
        **PLAIN,
        "hybrid_layer_pattern": None,
        "layer_types": _mimo_types,
        "mlp_layer_types": _mimo_sparse,
        "moe_layer_freq": None,
        "swa_num_key_value_heads": None,
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "sliding_window_size": None,
        "partial_rotary_factor": 0.334,
        "num_nextn_predict_layers": 0,
    },
    fields=rows(
        "head_dim",
        "attention_bias",
        "layer_types",
        "mlp_layer_types",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        hybrid_layer_pattern=Field(
            lambda value: NOTHING if value is None else listed("types_too", {0: "global", 1: "local"}).gives(value),
            "null, or 0 or 1 for every layer",
        ),
        moe_layer_freq=Field(
            lambda value: NOTHING if value is None else listed("sparse_too", {0: False, 1: True}).gives(value),
            "null, or 0 or 1 for every layer",
        ),
        n_shared_experts=one_of("null, or 0: it has no shared expert", {None: NOTHING, 0: NOTHING}),
        sliding_window=count("window"),
        sliding_window_size=optional("before"),
        v_head_dim=count("value_dim"),
        swa_num_attention_heads=count("swa_heads", needed=False),
        swa_num_key_value_heads=optional("swa_kv_heads"),
        swa_head_dim=count("swa_dim", needed=False),
        swa_v_head_dim=count("swa_value_dim", needed=False),
        add_swa_attention_sink_bias=flag({"swa_sinks": True}, {"swa_sinks": False}, needed=True),
        add_full_attention_sink_bias=flag({"full_sinks": True}, {"full_sinks": False}, needed=True),
    ),
    names={"num_local_experts": "n_routed_experts"},
    words=ROUTER_WORDS | {
        "attention_chunk_size", "attention_projection_layout", "attention_value_scale", "layernorm_epsilon",
        "swa_rope_theta",
    },
    stack=made_by(_mimo),
)  # fmt: skip
HEADS_FAMILIES: Final[Mapping[str, Family]] = {"laguna": _LAGUNA, "mimo_v2_flash": _MIMO, "step3p5": _STEP}
