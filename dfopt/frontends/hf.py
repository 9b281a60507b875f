"""The ``config.json`` of a Hugging Face model as a graph file: decoders, dense or of experts, and stacks of layers.

Two tables say everything. `FIELDS` has a row for each field that is understood: what it gives the decoder, or the
values under which it changes nothing. `FAMILIES` has an entry for each ``model_type``: what its architecture always
has, and what its config class takes for a field that a file leaves out. Whatever is in neither is refused by its name:
a field that is not understood could change a shape, a cost or a size. `COSMETIC` lists those that change none of them.

Sources of the tables: the config classes of transformers 4.46.3 (Qwen3: 4.51), and the files of the models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dfopt.documents.kinds import is_model_config
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.hf_fields import HEADS, SIZES, Family, Field, count, is_whole, one_of
from dfopt.frontends.hf_stacks import DEEPSEEK_FIELDS, DEEPSEEK_WORDS, GPT_OSS_FIELDS, INDEXER_FIELDS, deepseek, gpt_oss
from dfopt.frontends.quantization import quantized_types
from dfopt.workloads.decoder import DecoderParameters, parameter_count
from dfopt.workloads.stack import StackParameters, counts

__all__ = ["COSMETIC", "FAMILIES", "FIELDS", "read", "recipe"]

_SEQ, _BATCH = 8192, 32  # a choice, as in the zoo: at most as long as the positions of the model


def _window(value: Any) -> dict[str, Any] | None:
    if value is None:
        return {}
    return {"window": value, "global_every": 0} if is_whole(value) else None


def _layer_types(value: Any) -> dict[str, Any] | None:
    alike = isinstance(value, list) and set(value) == {"full_attention"}
    return {} if alike else None


_ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu")
_NOTHING: Final[dict[str, Any]] = {}
_SIZES: Final = {
    **SIZES,
    **HEADS,
    "num_experts": "experts",
    "num_local_experts": "experts",
    "num_experts_per_tok": "chosen",
    "moe_intermediate_size": "ffn",
}
FIELDS: Final[Mapping[str, Field]] = {
    **{name: count(parameter) for name, parameter in _SIZES.items()},
    "hidden_act": one_of(" or ".join(_ACTIVATIONS), dict.fromkeys(_ACTIVATIONS, _NOTHING), needed=True),
    "hidden_activation": one_of(" or ".join(_ACTIVATIONS), dict.fromkeys((*_ACTIVATIONS, None), _NOTHING)),
    "tie_word_embeddings": one_of(
        "true or false", {True: {"tie_embeddings": True}, False: {"tie_embeddings": False}}, needed=True
    ),
    "torch_dtype": one_of(
        "bfloat16, float16 or float32",
        {"bfloat16": {"word_bytes": 2}, "float16": {"word_bytes": 2}, "float32": {"word_bytes": 4}},
        needed=True,
    ),
    "attention_bias": one_of("false: biases of the type are not counted", {False: _NOTHING}),
    "mlp_bias": one_of("false: biases of the type are not counted", {False: _NOTHING}),
    "use_sliding_window": one_of("false: layers would differ", {False: _NOTHING}),
    "sliding_window": Field(_window, "null, or the tokens that every layer attends to"),
    "layer_types": Field(_layer_types, "full_attention for every layer: others are not drawn yet"),
    "decoder_sparse_step": one_of("1: every layer has experts", {1: _NOTHING}, needed=True),
    "mlp_only_layers": Field(lambda value: _NOTHING if value == [] else None, "[]: every layer has experts", True),
    "partial_rotary_factor": one_of("1.0: a part of the features is not drawn", {1.0: _NOTHING}),
    "num_nextn_predict_layers": one_of("0: layers that predict further tokens are not drawn", {0: _NOTHING}),
    "quantization_config": one_of("null, or a mapping", {None: _NOTHING}),
}
_OTHER_NAMES: Final = {"dtype": "torch_dtype"}
_EXPERTS: Final = ("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size")
_BY_FAMILY: Final = frozenset({
    *_EXPERTS, "decoder_sparse_step", "hidden_activation", "layer_types", "mlp_bias", "mlp_only_layers",
    "sliding_window", "use_sliding_window",
})  # fmt: skip
COSMETIC: Final = frozenset({
    "_name_or_path", "_attn_implementation", "architectures", "attention_dropout", "attn_implementation", "auto_map",
    "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "max_window_layers", "model_type",
    "pretraining_tp", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "transformers_version",
    "unsloth_fixed", "use_cache", "norm_topk_prob", "output_router_logits", "router_aux_loss_coef",
})  # fmt: skip
"""Fields that change no shape, cost or size of a graph: names, constants of formulas, defaults of generation."""


def _natural(parameter: str) -> Field:
    """A whole number, which may be 0; the same for none."""

    def gives(value: Any) -> dict[str, Any] | None:
        return {parameter: value or 0} if value is None or is_whole(value, 0) else None

    return Field(gives, "a whole number from 0 on", needed=True)


def _rank(value: Any) -> dict[str, Any] | None:
    return {"query_rank": value} if value is None or is_whole(value) else None


_ALSO_OF_STACKS: Final = ("hidden_act", "tie_word_embeddings", "torch_dtype", "attention_bias", "quantization_config")
_LATENT: Final[Mapping[str, Field]] = {
    **{name: count(parameter) for name, parameter in DEEPSEEK_FIELDS.items()},
    **{name: FIELDS[name] for name in _ALSO_OF_STACKS},
    # latent attention computes keys and values of every head, whatever the config says of K/V heads
    "num_key_value_heads": Field(lambda value: _NOTHING if isinstance(value, int) else None, "a whole number"),
    "q_lora_rank": Field(_rank, "null, or a whole number from 1 on", needed=True),
    "n_shared_experts": _natural("shared"),
    "first_k_dense_replace": _natural("dense"),
    "moe_layer_freq": one_of("1: every layer behind the dense ones has experts", {1: _NOTHING}, needed=True),
    # Layers that predict further tokens draft; what is served is the model without them.
    "num_nextn_predict_layers": Field(lambda value: _NOTHING if value in (0, 1) else None, "0 or 1"),
}
_LATENT_FAMILY: Final = Family(
    left_out={"attention_bias": False, "tie_word_embeddings": False, "moe_layer_freq": 1, "n_shared_experts": 0},
    fields=_LATENT,
    words=DEEPSEEK_WORDS,
    stack=deepseek,
)
_SPARSE_FAMILY: Final = replace(
    _LATENT_FAMILY, fields={**_LATENT, **{name: count(parameter) for name, parameter in INDEXER_FIELDS.items()}}
)
_ATTENTIONS: Final = {"sliding_attention": "local", "full_attention": "global"}


def _types_of_layers(value: Any) -> dict[str, Any] | None:
    known = isinstance(value, list) and value and all(one in _ATTENTIONS for one in value)
    return {"types": [_ATTENTIONS[one] for one in value]} if known else None


_GPT_OSS_FAMILY: Final = Family(
    left_out={"torch_dtype": "bfloat16", "tie_word_embeddings": False},
    fields={
        **{name: count(parameter) for name, parameter in GPT_OSS_FIELDS.items()},
        **{name: FIELDS[name] for name in ("hidden_act", "tie_word_embeddings", "torch_dtype", "quantization_config")},
        "attention_bias": one_of("true: all projections have one", {True: _NOTHING}, needed=True),
        "experts_per_token": replace(count("chosen_too"), needed=False),  # the same by another name
        "layer_types": Field(_types_of_layers, "a list of sliding_attention and full_attention", needed=True),
    },
    words=frozenset({"initial_context_length", "swiglu_limit"}),
    stack=gpt_oss,
)
_WINDOWS: Final = ("use_sliding_window", "sliding_window", "layer_types")
FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(
        left_out={"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
        also=("mlp_bias",),
        heads_share_hidden=True,
    ),
    "mistral": Family(
        left_out={"tie_word_embeddings": False}, also=("sliding_window", "layer_types"), heads_share_hidden=True
    ),
    "qwen2": Family(
        always={"bias": "qkv"},
        left_out={"tie_word_embeddings": False, "use_sliding_window": False},
        also=_WINDOWS,
        heads_share_hidden=True,
    ),
    "qwen3": Family(left_out={"attention_bias": False, "use_sliding_window": False}, also=_WINDOWS),
    "mixtral": Family(
        left_out={"tie_word_embeddings": False},
        also=("sliding_window", "num_local_experts", "num_experts_per_tok"),
        heads_share_hidden=True,
    ),
    "qwen3_moe": Family(
        left_out={"attention_bias": False, "use_sliding_window": False},
        also=(
            *_WINDOWS,
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "decoder_sparse_step",
            "mlp_only_layers",
        ),
        unused=("intermediate_size",),
    ),
    "deepseek_v3": _LATENT_FAMILY,
    "kimi_k2": _LATENT_FAMILY,
    "deepseek_v32": _SPARSE_FAMILY,
    # of latent attention the parts of a head count, and not their sums, which its class works out
    "glm_moe_dsa": replace(_SPARSE_FAMILY, unused=("head_dim", "qk_head_dim")),
    "gpt_oss": _GPT_OSS_FAMILY,
    "gemma": Family(
        left_out={"tie_word_embeddings": True, "attention_bias": False, "hidden_act": "gelu_pytorch_tanh"},
        also=("hidden_activation",),
    ),
}


def rows_of(family: Family) -> dict[str, Field]:
    """The fields that configs of a type may have, in the order of the tables."""
    if family.fields is not None:
        return {**family.fields}
    return {name: row for name, row in FIELDS.items() if name not in _BY_FAMILY or name in family.also}


def recipe(data: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """The graph file of a config: the workload ``decoder`` with its sizes, or a ``stack`` where layers differ.

    Parameters
    ----------
    data : mapping
        The parsed config.
    path : path
        Of the file, for errors and for the name: that of its folder if it is called ``config.json``.

    Raises
    ------
    DocumentError
        With every field that is missing, unknown or has a value that is not understood.

    Examples
    --------
    >>> sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    >>> sizes |= {"intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 32, "torch_dtype": "bfloat16"}
    >>> sizes |= {"hidden_act": "silu"}
    >>> found = recipe({"model_type": "llama", **sizes}, "tiny/config.json")
    >>> found["name"], found["parameters"]["kv_heads"], found["parameters"]["head_dim"]
    ('tiny', 2, 16)
    >>> recipe({"model_type": "llama", "experts": 8, **sizes}, "tiny/config.json")
    Traceback (most recent call last):
    dfopt.errors.DocumentError: tiny/config.json: 1 problem
      $.experts: not understood, and could change a shape, a cost or a size (a decoder of type llama has none)
    """
    file = os.fspath(path)
    family = _family(data, file)
    kind, issues = data["model_type"], list[Issue]()
    given: dict[str, Any] = {**family.always}
    seen = {_OTHER_NAMES.get(name, name): name for name in data}
    wide = data.get(seen.get("torch_dtype", ""), family.left_out.get("torch_dtype"))
    mine = rows_of(family)
    for name, written in seen.items():
        if name in COSMETIC or name in family.unused or name in family.words:
            continue
        if name not in mine:
            message = "not understood, and could change a shape, a cost or a size"
            close = did_you_mean(name, [one for one in mine if one not in seen])
            issues.append(Issue(f"$.{written}", message, close or f"a decoder of type {kind} has none"))
            continue
        value, row = data[written], mine[name]
        uses = data.get("use_sliding_window", family.left_out.get("use_sliding_window"))
        if name == "sliding_window" and uses is False:
            continue
        if name == "quantization_config" and isinstance(value, Mapping):
            types, wrong = quantized_types(value, wide, f"$.{written}")
            given, issues = given | {"dtypes": types}, issues + wrong
            continue
        found = row.gives(value)
        if found is None:
            issues.append(Issue(f"$.{written}", f"found {shown(value)}, expected {row.expected}"))
        else:
            given |= found
    told = dict(_left_out(family, seen, data))
    for name in mine:
        if mine[name].needed and name not in family.unused and name not in seen and name not in told:
            issues.append(Issue(f"$.{name}", f"missing, expected {mine[name].expected}", "it has no default"))
    if issues:
        raise DocumentError(file, issues)
    for name, value in told.items():
        given |= mine[name].gives(value) or {}
    if "dtypes" in given:  # which say how large words are
        del given["word_bytes"]
    return _document(given, told, kind, file, family)


def _family(data: Mapping[str, Any], file: str) -> Family:
    kind = data.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        message = "missing" if kind is None else f"found {shown(kind)}, which dfopt does not read yet"
        close = did_you_mean(kind, FAMILIES) if isinstance(kind, str) else ""
        known = f"decoders of type {', '.join(FAMILIES)} are read"
        raise DocumentError(file, [Issue("$.model_type", message, f"{close} {known}".strip())])
    kinds = data.get("architectures")
    if kinds is not None and not (isinstance(kinds, list) and all(str(one).endswith("ForCausalLM") for one in kinds)):
        message = f"found {shown(kinds)}, expected a causal language model, such as [LlamaForCausalLM]"
        raise DocumentError(file, [Issue("$.architectures", message)])
    return FAMILIES[kind]


def _left_out(family: Family, seen: Mapping[str, str], data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a config class takes for fields that a file leaves out."""
    for name, value in family.left_out.items():
        if name not in seen and not (name == "hidden_act" and "hidden_activation" in seen):
            yield name, value
    hidden, heads = data.get("hidden_size"), data.get("num_attention_heads")
    if not family.heads_share_hidden or "head_dim" in seen:
        return
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 and hidden > 0 and hidden % heads == 0:
        yield "head_dim", hidden // heads


def _document(given: dict[str, Any], told: Mapping[str, Any], kind: str, file: str, family: Family) -> dict[str, Any]:
    path, positions = Path(file), given.pop("positions")
    window = given.get("window")
    seq = min(_SEQ, positions, window if window is not None else _SEQ)
    workload, chosen = "decoder", {"seq": seq, "microbatch": 1, "batch": _BATCH}
    parameters = {**given, "gated_mlp": True, "norm": "rmsnorm", **chosen}
    if family.stack is not None:
        try:
            workload, parameters = "stack", {**family.stack(given), **chosen}
        except ValueError as error:  # sizes that do not fit together
            name, _, what = str(error).partition(": ")
            raise DocumentError(file, [Issue(f"$.{name}", what)]) from None
    try:
        if family.stack is not None:
            known, active = counts(StackParameters(**parameters))[:2]
        else:
            sizes = DecoderParameters(**parameters)
            known, active = (parameter_count(sizes, active=one) for one in (False, True))
    except ValidationError as error:  # sizes that are whole numbers, but do not fit together
        names = {parameter: name for name, parameter in _SIZES.items()}
        where = (str(one.get("ctx", {}).get("where", one["loc"])).strip("$.(),'") for one in error.errors())
        messages = [one["msg"] for one in error.errors()]
        issues = [Issue(f"$.{names.get(name, name)}", what) for name, what in zip(where, messages, strict=True)]
        raise DocumentError(file, issues) from None
    stem = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    assumed = ", ".join(f"{name} {str(value).lower()}" for name, value in told.items())
    used = f", of which a token uses {active / 1e9:.4g} billion" if given.get("experts") else ""
    said = f"{kind} with {known / 1e9:.4g} billion parameters{used}{_types(given.get('dtypes'))}" + (
        f"; the config leaves out {assumed}" if assumed else ""
    )
    return {
        "schema": "dfopt/graph/2",
        "name": stem,
        "description": said,
        "source": f"{path.name} of a Hugging Face model",
        "workload": workload,
        "parameters": parameters,
    }


def _types(dtypes: Mapping[str, str] | None) -> str:
    """What the description says of types."""
    if not dtypes:
        return ""
    if "experts" in dtypes:
        return f", experts in {dtypes['experts']}, all else in {dtypes['weights']}"
    return f", weights in {dtypes['weights']}, with the routers but without head and embedding ({dtypes['ends']})"


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The graph file of a config, given by its file or by the folder of a model.

    Raises
    ------
    DocumentError
        If there is no config, or it is not understood.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    data = load_strict(file)
    if (quantized := file.with_name("hf_quant_config.json")).exists():
        raise DocumentError(str(quantized), [Issue("$", "found data types of a quantized model", "not read yet")])
    if not is_model_config(data):
        raise DocumentError(str(file), [Issue("$.model_type", "missing", "expected the config.json of a model")])
    return recipe(data, file)
