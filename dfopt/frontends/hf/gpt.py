"""Hugging Face configs of the first decoders: LayerNorm, an MLP without a gate, positions that are learned or added.

Their fields have many names. Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import (
    Family,
    Field,
    Modules,
    count,
    flag,
    head_dim_of,
    heads_of,
    is_whole,
    listed,
    one_of,
    optional,
    unless,
)
from dfopt.frontends.hf.layers import Given, made_by
from dfopt.frontends.hf.rows import NOTHING, rows

__all__ = ["GPT_FAMILIES"]


def _so_often(name: str, times: int) -> Callable[[Mapping[str, Any]], int | None]:
    """What a class takes for a size: so many times another one."""

    def size(data: Mapping[str, Any]) -> int | None:
        found = data.get(name)
        return times * found if is_whole(found) else None

    return size


_GPT: Final = Family(
    always={"norm": "layernorm", "gated": False},
    left_out={
        "num_key_value_heads": heads_of,
        "head_dim": head_dim_of,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    },
    names={
        "activation": "hidden_act",
        "activation_function": "hidden_act",
        "ffn_dim": "intermediate_size",
        "ffn_hidden_size": "intermediate_size",
        "n_embd": "hidden_size",
        "n_embed": "hidden_size",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
        "num_kv_heads": "num_key_value_heads",
    },
    words=frozenset({
        "attention_softmax_in_fp32", "attn_pdrop", "classifier_dropout", "dropout", "gradient_checkpointing",
        "init_std", "layerdrop", "masked_softmax_fusion", "n_ctx", "reorder_and_upcast_attn", "rotary",
        "rotary_emb_base",
        "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "scale_attention_softmax_in_fp32", "skip_bias_add",
        "skip_bias_add_qkv", "slow_but_exact", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
        "summary_type", "summary_use_proj", "training_parameters", "unk_token_id", "word_embed_proj_layer_norm",
    }),
    stack=made_by(),
)  # fmt: skip


def _learned_positions(given: Given) -> dict[str, Any]:
    """A table of positions, and nothing that turns queries and keys."""
    return {"learned_positions": given["positions"] + given.get("more_positions", 0), "rotary_dim": 0}


def _falcon(given: Given) -> dict[str, Any]:
    """One head of keys and values, or as many as are said; attention and MLP side by side, reading one norm or two."""
    found: dict[str, Any] = {"rotary_dim": 0} if given["alibi"] else {}
    if given["new_architecture"]:
        found |= {"parallel": "shared" if given.get("norms_beside") == 1 else "own"}
    else:
        one_head = {"kv_heads": 1} if given["multi_query"] else {"kv_heads": given["heads"]}
        found |= one_head | ({"parallel": "shared"} if given["beside"] else {})
    return found


def _as_wide(given: Given) -> dict[str, Any]:
    """An embedding as wide as the residual: projections between the two are not drawn."""
    if given.get("embedded") not in (None, given["hidden"]):
        raise ValueError(f"embedded: found {given['embedded']}, expected {given['hidden']}, as hidden_size")
    return {}


def _neo_turns(value: Any) -> dict[str, Any] | None:
    """Kinds of attention, each list of them so many times."""
    known = isinstance(value, list) and all(
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], list)
        and all(kind in ("global", "local") for kind in one[0])
        and is_whole(one[1])
        and len(one[0]) * one[1] <= 10**4
        for one in value
    )
    return {"turns": [kind for kinds, times in value for kind in kinds * times]} if known else None


def _neo_layers(given: Given) -> dict[str, Any]:
    """Layers that attend to all tokens, and layers that attend to a window."""
    types, turns = given.get("types"), given.get("turns")
    if None not in (types, turns) and types != turns:
        raise ValueError("turns: found other layers than attention_layers says")
    return {"types": types or turns}


_OF_MPT: Final = frozenset({
    "alibi_bias_max", "attn_impl", "attn_pdrop", "attn_uses_sequence_id", "clip_qkv", "kv_n_heads", "softmax_scale",
})  # fmt: skip


def _mpt_attention(value: Any) -> dict[str, Any] | None:
    """Heads of keys and values; positions are added to scores."""
    if not isinstance(value, Mapping) or set(value) - {*_OF_MPT, "alibi", "attn_type", "prefix_lm", "qk_ln"}:
        return None
    heads: dict[str, dict[str, int]] = {"multihead_attention": {}, "multiquery_attention": {"kv_heads": 1}}
    if is_whole(value.get("kv_n_heads")):
        heads["grouped_query_attention"] = {"kv_heads": value["kv_n_heads"]}
    kind = value.get("attn_type")
    others = value.get("prefix_lm") is not True and value.get("qk_ln") is not True
    if not isinstance(kind, str) or kind not in heads or value.get("alibi") is not True or not others:
        return None
    return {"of_attention": heads[kind]}


def _mpt_layers(given: Given) -> dict[str, Any]:
    return {"rotary_dim": 0, **given["of_attention"]}


def _mpt_ffn(data: Mapping[str, Any]) -> int | None:
    """What the class of MPT takes for an MLP: four times the residual, or as often as it is told."""
    hidden, times = data.get("hidden_size"), data.get("expansion_ratio", 4)
    return times * hidden if is_whole(hidden) and is_whole(times) else None


def _bigcode_heads(data: Mapping[str, Any]) -> int | None:
    """One head of keys and values, unless the class is told that each head has its own."""
    return heads_of(data) if data.get("multi_query") is False else 1


_CODE: Final = {
    **_GPT.left_out,
    "intermediate_size": _so_often("hidden_size", 4),
    "tie_word_embeddings": False,
    "rotary_dim": 64,
}
_GPTJ: Final = replace(
    _GPT,
    always={**_GPT.always, "mlp_bias": True, "parallel": "shared", "head": {"kind": "logits", "bias": True}},
    left_out=_CODE,
    fields=rows("head_dim", "rotary_dim"),
)
GPT_FAMILIES: Final[Mapping[str, Family]] = {
    "gpt2": replace(
        _GPT,
        always={**_GPT.always, "bias": "all", "mlp_bias": True},
        left_out={**_GPT.left_out, "intermediate_size": _so_often("hidden_size", 4)},
        fields=rows("head_dim", add_cross_attention=one_of("false", {False: NOTHING})),
        stack=made_by(_learned_positions),
        modules=Modules(fronts=("transformer.", "")),
    ),
    "gptj": _GPTJ,
    "codegen": _GPTJ,
    # of attention the output alone has a bias, which is not counted: one in 25 thousand parameters
    "gpt_neo": replace(
        _GPT,
        always={**_GPT.always, "mlp_bias": True},
        left_out={
            **_GPT.left_out,
            "intermediate_size": _so_often("hidden_size", 4),
            "window_size": 256,
            "attention_types": unless("attention_layers", [[["global", "local"], 12]]),
        },
        fields=rows(
            "head_dim",
            window_size=count("window"),
            attention_layers=listed("types", {"global": "global", "local": "local"}),
            attention_types=Field(_neo_turns, "lists of global and local, each with how often it repeats"),
        ),
        names={**_GPT.names, "num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"},
        words=_GPT.words | {"embed_dropout", "resid_dropout"},
        stack=made_by(_neo_layers, _learned_positions),
    ),
    "gpt_bigcode": replace(
        _GPT,
        always={**_GPT.always, "bias": "all", "mlp_bias": True},
        left_out={
            **_GPT.left_out,
            "num_key_value_heads": _bigcode_heads,
            "intermediate_size": _so_often("hidden_size", 4),
            "multi_query": True,
        },
        fields=rows("head_dim", multi_query=flag(NOTHING, NOTHING, needed=True)),
        # what a server for inference is told
        words=_GPT.words
        | {"inference_runner", "max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache"}
        | {"validate_runner_input"},
        stack=made_by(_learned_positions),
        modules=Modules(fronts=("transformer.", "")),
    ),
    # without biases its norms have none either, which are counted: a hundred-thousandth of all
    "mpt": replace(
        _GPT,
        left_out={
            **_GPT.left_out,
            "hidden_act": "gelu",
            "expansion_ratio": 4,
            "intermediate_size": _mpt_ffn,
            "no_bias": True,
            "norm_type": "low_precision_layernorm",
        },
        fields=rows(
            "head_dim",
            attn_config=Field(
                _mpt_attention, "attn_type, alibi: true, and neither prefix_lm nor qk_ln: others are not drawn", True
            ),
            expansion_ratio=Field(lambda value: NOTHING if is_whole(value) else None, "a whole number from 1 on", True),
            no_bias=one_of("true", {True: NOTHING}, needed=True),
            norm_type=one_of(
                "layernorm, or low_precision_layernorm",
                {"layernorm": NOTHING, "low_precision_layernorm": NOTHING},
                needed=True,
            ),
        ),
        names={
            **_GPT.names,
            "d_model": "hidden_size",
            "max_seq_len": "max_position_embeddings",
            "n_heads": "num_attention_heads",
            "n_layers": "num_hidden_layers",
        },
        # beside positions that are added to scores there are no learned ones
        words=_GPT.words
        | {"emb_pdrop", "embedding_fraction", "fc_type", "init_config", "init_device", "learned_pos_emb", "logit_scale"}
        | {"tokenizer_name", "verbose", "use_pad_tok_in_ffn"},
        stack=made_by(_mpt_layers),
    ),
    "phi": replace(
        _GPT,
        always={
            **_GPT.always,
            "bias": "all",
            "mlp_bias": True,
            "parallel": "shared",
            "head": {"kind": "logits", "bias": True},
        },
        left_out={
            **_GPT.left_out,
            "tie_word_embeddings": False,
            "hidden_act": "gelu_new",
            "partial_rotary_factor": 0.5,
            "qk_layernorm": False,
        },
        fields=rows("head_dim", "partial_rotary_factor", qk_layernorm=flag({"qk_norm": "head"}, NOTHING, needed=True)),
        modules=Modules(
            mixer=(*(f"self_attn.{name}_proj" for name in "qkv"), "self_attn.dense"), dense=("mlp.fc1", "mlp.fc2")
        ),
    ),
    "gpt_neox": replace(
        _GPT,
        left_out={
            **_GPT.left_out,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "use_parallel_residual": True,
            "partial_rotary_factor": 0.25,
        },
        always={**_GPT.always, "mlp_bias": True},
        fields=rows(
            "head_dim",
            "attention_bias",
            "partial_rotary_factor",
            use_parallel_residual=flag({"parallel": "own"}, NOTHING, needed=True),
        ),
        names={**_GPT.names, "rotary_pct": "partial_rotary_factor"},
    ),
    "opt": replace(
        _GPT,
        always={**_GPT.always, "more_positions": 2},  # a row for what is padded in front of them
        left_out={
            **_GPT.left_out,
            "enable_bias": True,
            "do_layer_norm_before": True,
            "hidden_act": "relu",
            "layer_norm_elementwise_affine": True,
            "_remove_final_layer_norm": False,
            "word_embed_proj_dim": None,
        },
        fields=rows(
            "head_dim",
            enable_bias=one_of("true", {True: {"bias": "all", "mlp_bias": True}}, needed=True),
            do_layer_norm_before=one_of("true: norms behind are not drawn", {True: NOTHING}, needed=True),
            layer_norm_elementwise_affine=one_of("true", {True: NOTHING}, needed=True),
            _remove_final_layer_norm=one_of("false", {False: NOTHING}, needed=True),
            word_embed_proj_dim=optional("embedded"),
        ),
        stack=made_by(_as_wide, _learned_positions),
    ),
    "bloom": replace(
        _GPT,
        always={**_GPT.always, "bias": "all", "mlp_bias": True, "rotary_dim": 0, "embedding_norm": True},
        left_out={
            **_GPT.left_out,
            "intermediate_size": _so_often("hidden_size", 4),
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
            "apply_residual_connection_post_layernorm": False,
        },
        fields=rows(
            "head_dim",
            apply_residual_connection_post_layernorm=one_of("false", {False: NOTHING}, needed=True),
            bias_dropout_fusion=Field(lambda value: NOTHING, "anything"),
        ),
        names={**_GPT.names, "seq_length": "max_position_embeddings", "num_layers": "num_hidden_layers"},
        words=_GPT.words | {"offset_alibi", "attention_softmax_in_fp32"},
    ),
    "falcon": replace(
        _GPT,
        left_out={
            **_GPT.left_out,
            "num_key_value_heads": heads_of,
            "intermediate_size": _so_often("hidden_size", 4),
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
            "alibi": False,
            "bias": False,
            "multi_query": True,
            "new_decoder_architecture": False,
            "parallel_attn": True,
            "num_ln_in_parallel_attn": None,
        },
        fields=rows(
            "head_dim",
            alibi=flag({"alibi": True}, {"alibi": False}, needed=True),
            bias=flag({"bias": "all", "mlp_bias": True}, NOTHING, needed=True),
            multi_query=flag({"multi_query": True}, {"multi_query": False}, needed=True),
            new_decoder_architecture=flag({"new_architecture": True}, {"new_architecture": False}, needed=True),
            parallel_attn=flag({"beside": True}, {"beside": False}, needed=True),
            apply_residual_connection_post_layernorm=one_of("false", {False: NOTHING}),
            num_ln_in_parallel_attn=one_of("1, 2 or null", {n: {"norms_beside": n} for n in (1, 2, None)}),
        ),
        words=_GPT.words | {"ff_factor"},  # which the size of the MLP already has
        stack=made_by(_falcon),
    ),
}
