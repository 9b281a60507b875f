"""Hugging Face configs of Mamba, alone and mixed with attention: Mamba 1 and 2, Nemotron-H, Jamba.

Sources: the configs on the hub; ``configuration_mamba.py``, ``configuration_falcon_mamba.py``,
``configuration_mamba2.py``, ``configuration_nemotron_h.py`` and ``configuration_jamba.py`` of transformers 5.23, and
the ``modeling_*.py`` beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import Family, Field, Modules, count, is_whole, listed, natural, one_of
from dfopt.frontends.hf.layers import Given
from dfopt.frontends.hf.mixed import CONV_BIAS, HEADED, NO_BIAS, SILU, STATE_TYPES, mixer_of, put_together
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["MAMBA_FAMILIES", "SCAN_WORDS", "mamba2_of"]

_ENDS: Final = (
    "hidden_size", "num_hidden_layers", "vocab_size", "tie_word_embeddings", "torch_dtype", "quantization_config",
)  # fmt: skip
SCAN_WORDS: Final = frozenset({
    "mamba_dt_init_floor", "mamba_dt_limit", "mamba_dt_max", "mamba_dt_min", "time_step_floor",
    "time_step_init_scheme", "time_step_limit", "time_step_max", "time_step_min", "time_step_scale",
    "use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep", "rescale_prenorm_residual",
    "rms_norm", "norm_before_gate",
})  # fmt: skip
"""Constants of time steps and of their first values, and what kernels are chosen."""


def _one_scan_each(given: Given) -> dict[str, Any]:
    """Layers of Mamba, and nothing else."""
    inner = given.get("inner") or given["expand"] * given["hidden"]
    if inner != given["expand"] * given["hidden"]:
        raise ValueError(f"inner: found {inner}, expected expand x hidden_size, {given['expand'] * given['hidden']}")
    rank = given["time_rank"] or -(-given["hidden"] // 16)
    mixer = mixer_of("mamba", given, "state", "convolution", "conv_bias", inner=inner, time_rank=rank)
    return put_together(given, {"layer": {"mixer": mixer}}, ["layer"] * given["layers"])


def _rank_of_steps(value: Any) -> dict[str, Any] | None:
    return {"time_rank": 0 if value == "auto" else value} if value == "auto" or is_whole(value) else None


_RESIDUAL: Final = one_of("true or false", {True: NOTHING, False: NOTHING})
_MAMBA: Final = Family(
    always={"positions": 10**9},
    left_out={"tie_word_embeddings": True, "use_conv_bias": True, "use_bias": False, "residual_in_fp32": True},
    fields={
        **{name: rows()[name] for name in _ENDS},
        "hidden_act": SILU,
        "state_size": count("state"),
        "conv_kernel": count("convolution"),
        "expand": count("expand"),
        "intermediate_size": count("inner", needed=False),
        "time_step_rank": Field(_rank_of_steps, "auto, or a whole number from 1 on", needed=True),
        "use_conv_bias": CONV_BIAS,
        "use_bias": NO_BIAS,
        "residual_in_fp32": _RESIDUAL,
    },
    # names that the sizes had in another library, and how its residual and norms are put together
    words=SCAN_WORDS
    | {"d_inner", "d_model", "fused_add_norm", "mixer_rms_eps", "n_layer", "pad_vocab_size_multiple", "ssm_cfg"},
    stack=_one_scan_each,
    left={"residual_in_fp32": "the width of a residual in fp32"},
    modules=Modules(
        fronts=("backbone.",), mixer=tuple(f"mixer.{name}" for name in ("in_proj", "x_proj", "dt_proj", "out_proj")),
        few=("mixer.conv1d",),
    ),
)  # fmt: skip
_OF_MAMBA2: Final = ("state", "convolution", "chunk", "conv_bias", "state_bytes")


def mamba2_of(given: Given) -> dict[str, Any]:
    """The mixer of Mamba 2 of some sizes."""
    return mixer_of(
        "mamba2", given, *_OF_MAMBA2, heads=given["m_heads"], head_dim=given["m_dim"], groups=given["m_groups"]
    )


def _one_scan2_each(given: Given) -> dict[str, Any]:
    """Layers of Mamba 2, and nothing else."""
    inner = given["expand"] * given["hidden"]
    if given["m_heads"] * given["m_dim"] != inner:
        raise ValueError(f"m_heads: found {given['m_heads']} of {given['m_dim']} features, expected {inner} together")
    return put_together(given, {"layer": {"mixer": mamba2_of(given)}}, ["layer"] * given["layers"])


_MAMBA2: Final = replace(
    _MAMBA,
    left_out={**_MAMBA.left_out, "tie_word_embeddings": False, "hidden_act": "silu"},
    fields={
        **{
            name: row
            for name, row in (_MAMBA.fields or {}).items()
            if name not in ("intermediate_size", "time_step_rank")
        },
        "num_heads": count("m_heads"),
        "head_dim": count("m_dim"),
        "n_groups": count("m_groups"),
        "chunk_size": count("chunk"),
    },
    words=SCAN_WORDS | {"time_step_rank"},  # steps of heads have no projections of their own
    stack=_one_scan2_each,
)

# --- mixtures of Mamba and attention ------------------------------------------------------------------------

_SIGNS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}
_BLOCKS: Final = {
    "mamba": "mamba", "attention": "attention", "mlp": "mlp", "moe": "experts", "linear_attention": "mamba",
    "full_attention": "attention",
}  # fmt: skip


def _pattern(parameter: str) -> Field:
    """A string with a sign for every layer."""

    def gives(value: Any) -> dict[str, Any] | None:
        known = isinstance(value, str) and value and all(sign in _SIGNS for sign in value)
        return {parameter: [_SIGNS[sign] for sign in value]} if known else None

    return Field(gives, "a sign for every layer: M, *, - or E")


def _one_of_each(given: Given) -> dict[str, Any]:
    """Layers that are Mamba 2, attention, an MLP or experts, each behind a norm of its own."""
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
        inside = mixer_of("moe", given, *names, ffn=given["expert_ffn"], gated=False, router_bias=True)
        layers["experts"] = {"feed_forward": inside}
    return put_together(given, layers, order, predicting)


def _of_predictors(data: Mapping[str, Any]) -> list[str] | None:
    """What the class takes for the layers of modules that predict further tokens, if there are any."""
    asked, known = data.get("num_nextn_predict_layers"), data.get("mtp_hybrid_override_pattern")
    return ["attention", "moe"] if asked and not known else None


_NEMOTRON_H: Final = Family(
    left_out={
        "tie_word_embeddings": False,
        "attention_bias": False,
        "use_conv_bias": True,
        "mamba_ssm_cache_dtype": "float32",
        "num_nextn_predict_layers": 0,
        "mtp_layers_block_type": _of_predictors,
        "moe_latent_size": lambda data: 0 if data.get("n_routed_experts") else None,
    },
    fields={
        **rows("head_dim", attention_bias=NO_BIAS, mlp_bias=NO_BIAS, use_bias=NO_BIAS, mamba_proj_bias=NO_BIAS),
        "num_nextn_predict_layers": natural("predicts", needed=False),
        "hidden_act": one_of("relu2", {"relu2": NOTHING}, needed=True),
        "mamba_hidden_act": SILU,
        "sliding_window": one_of("null: attention is to all tokens", {None: NOTHING}),
        "num_hidden_layers": count("layers", needed=False),
        "hybrid_override_pattern": _pattern("types"),
        "layers_block_type": listed("listed", _BLOCKS),
        "mtp_hybrid_override_pattern": _pattern("predicting"),
        "mtp_layers_block_type": listed("predicting_listed", _BLOCKS),
        "mamba_num_heads": count("m_heads"),
        "mamba_head_dim": count("m_dim"),
        "ssm_state_size": count("state"),
        "n_groups": count("m_groups"),
        "conv_kernel": count("convolution"),
        "chunk_size": count("chunk"),
        "use_conv_bias": CONV_BIAS,
        "mamba_ssm_cache_dtype": STATE_TYPES,
        "n_routed_experts": count("experts", needed=False),
        "num_experts_per_tok": count("chosen", needed=False),
        "moe_intermediate_size": count("expert_ffn", needed=False),
        "moe_shared_expert_intermediate_size": count("shared", needed=False),
        "n_shared_experts": one_of("1: their size is that of all together", {1: {"shared_number": 1}}),
        "moe_latent_size": Field(
            lambda value: {"latent": value or None} if value is None or is_whole(value, 0) else None,
            "null, or a whole number from 1 on",
        ),
        "residual_in_fp32": one_of("false: a residual is as wide as other activations", {False: NOTHING}),
    },
    # Heads and their features say how large a scan is, not expand; its steps have no projections; attention carries no
    # positions; with all experts on every chip, groups of the router change no size.
    words=SCAN_WORDS | {
        "expand", "time_step_rank", "partial_rotary_factor", "moe_shared_expert_overlap", "n_group", "topk_group",
        "routed_scaling_factor",
    },
    names={
        "num_query_groups": "num_key_value_heads",
        "attention_head_dim": "head_dim", "mlp_hidden_act": "hidden_act", "layer_types": "layers_block_type",
        "num_local_experts": "n_routed_experts", "mamba_n_groups": "n_groups", "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias", "mamba_chunk_size": "chunk_size", "mamba_expand": "expand",
    },
    stack=_one_of_each,
    modules=Modules(
        fronts=("backbone.", "model."),
        mixer=tuple(f"mixer.{name}_proj" for name in "qkvo"),
        mixers={"mamba2": ("mixer.in_proj", "mixer.out_proj")},
        dense=("mixer.up_proj", "mixer.down_proj"),
        experts=("mixer.experts.0.up_proj", "mixer.experts.0.down_proj"),
        shared=("mixer.shared_experts.up_proj", "mixer.shared_experts.down_proj"),
        few=("mixer.gate", "mixer.conv1d", "mixer.fc1_latent_proj", "mixer.fc2_latent_proj"),
    ),
)  # fmt: skip


def _jamba_layers(given: Given) -> dict[str, Any]:
    """Layers of Mamba and of attention, every other with experts."""
    places = range(given["layers"])
    inner, rank = given["expand"] * given["hidden"], given["time_rank"] or -(-given["hidden"] // 16)
    sizes = {"inner": inner, "time_rank": rank, "inner_norms": True}
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


_JAMBA: Final = Family(
    left_out={
        "tie_word_embeddings": False,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
        "hidden_act": "silu",
    },
    fields={
        **rows("head_dim", "num_experts", "num_experts_per_tok", mamba_proj_bias=NO_BIAS),
        "hidden_act": SILU,
        "sliding_window": one_of("null: attention is to all tokens", {None: NOTHING}),
        **{
            f"{of}_layer_{name}": (count if name == "period" else natural)(f"{of}_{name}")
            for of in ("attn", "expert")
            for name in ("period", "offset")
        },
        "mamba_d_state": count("state"),
        "mamba_d_conv": count("convolution"),
        "mamba_expand": count("expand"),
        "mamba_dt_rank": Field(_rank_of_steps, "auto, or a whole number from 1 on", needed=True),
        "mamba_conv_bias": CONV_BIAS,
    },
    words=SCAN_WORDS,
    heads_share_hidden=True,
    stack=_jamba_layers,
    modules=Modules(
        mixers={"mamba": tuple(f"mamba.{name}" for name in ("in_proj", "x_proj", "dt_proj", "out_proj"))},
        dense=tuple(f"feed_forward.{name}_proj" for name in ("gate", "up", "down")),
        experts=tuple(f"feed_forward.experts.0.{name}_proj" for name in ("gate", "up", "down")),
        few=("feed_forward.router", "mamba.conv1d"),
    ),
)  # fmt: skip
MAMBA_FAMILIES: Final[Mapping[str, Family]] = {
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba2": _MAMBA2,
    "nemotron_h": _NEMOTRON_H,
    "jamba": _JAMBA,
}
