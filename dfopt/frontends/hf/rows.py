"""The fields of Hugging Face configs that mean the same in all types of models, a row each, and those that say nothing.

Sources: the config classes of transformers 4.46.3 and 5.23 (``configuration_*.py``), and the files of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.frontends.hf.fields import HEADS, SIZES, Field, count, few, flag, is_whole, listed, natural, one_of, optional

__all__ = ["ATTENTIONS", "BY_FAMILY", "COSMETIC", "EVERYWHERE", "FIELDS", "FIELD_OF", "NOTHING", "rows"]

NOTHING: Final[dict[str, Any]] = {}


def _window(value: Any) -> dict[str, Any] | None:
    if value is None:
        return {}
    return {"window": value, "global_every": 0} if is_whole(value) else None


def _layer_types(value: Any) -> dict[str, Any] | None:
    alike = isinstance(value, list) and set(map(str, value)) == {"full_attention"}
    return {} if alike else None


_ACTIVATIONS = (
    "silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "relu2", "xielu",
)  # fmt: skip
FIELD_OF: Final[Mapping[str, str]] = {
    **SIZES,
    **HEADS,
    "num_experts": "experts",
    "num_local_experts": "experts",
    "num_experts_per_tok": "chosen",
    "moe_intermediate_size": "ffn",
}
"""Sizes of decoders whose layers are all alike."""
FIELDS: Final[Mapping[str, Field]] = {
    **{name: count(parameter) for name, parameter in FIELD_OF.items()},
    "num_hidden_layers": few("layers"),
    "hidden_act": one_of(" or ".join(_ACTIVATIONS), dict.fromkeys(_ACTIVATIONS, NOTHING), needed=True),
    "hidden_activation": one_of(" or ".join(_ACTIVATIONS), dict.fromkeys((*_ACTIVATIONS, None), NOTHING)),
    "tie_word_embeddings": flag({"tie_embeddings": True}, {"tie_embeddings": False}, needed=True),
    "torch_dtype": one_of(
        "bfloat16, float16 or float32",
        {"bfloat16": {"word_bytes": 2}, "float16": {"word_bytes": 2}, "float32": {"word_bytes": 4}},
        needed=True,
    ),
    "attention_bias": one_of("false: biases of the type are not counted", {False: NOTHING}),
    "mlp_bias": one_of("false: biases of the type are not counted", {False: NOTHING}),
    "use_sliding_window": one_of("false: layers would differ", {False: NOTHING}),
    "sliding_window": Field(_window, "null, or the tokens that every layer attends to"),
    "layer_types": Field(_layer_types, "full_attention for every layer: others are not drawn yet"),
    "decoder_sparse_step": one_of("1: every layer has experts", {1: NOTHING}, needed=True),
    "mlp_only_layers": Field(lambda value: NOTHING if value == [] else None, "[]: every layer has experts", True),
    "partial_rotary_factor": one_of("1.0: a part of the features is not drawn", {1.0: NOTHING}),
    "num_nextn_predict_layers": one_of("0: layers that predict further tokens are not drawn", {0: NOTHING}),
    "qkv_bias": one_of("false: biases of the type are not counted", {False: NOTHING}),
    "quantization_config": one_of("null, or a mapping", {None: NOTHING}),
    "shared_expert_intermediate_size": one_of("0: it has no shared expert", {0: NOTHING}),
    "use_bidirectional_attention": one_of("null or false: text is causal", {None: NOTHING, False: NOTHING}),
    "use_qk_norm": one_of("true: the type has them", {True: NOTHING}),
}
"""Of decoders whose layers are all alike, as far as a type has them."""
BY_FAMILY: Final = frozenset({
    "decoder_sparse_step", "hidden_activation", "layer_types", "mlp_bias", "mlp_only_layers", "moe_intermediate_size",
    "num_experts", "num_experts_per_tok", "num_local_experts", "qkv_bias", "shared_expert_intermediate_size",
    "sliding_window", "use_bidirectional_attention", "use_qk_norm", "use_sliding_window",
})  # fmt: skip
"""Those of them that only some types have."""
ATTENTIONS: Final = {"sliding_attention": "local", "full_attention": "global"}


def _share(value: Any) -> dict[str, Any] | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1
    return {"rotary_share": value} if known else None


_STACKS: Final[Mapping[str, Field]] = {
    **FIELDS,
    "num_key_value_heads": count("kv_heads"),
    "attention_bias": flag({"bias": "all"}, NOTHING),
    "mlp_bias": flag({"mlp_bias": True}, NOTHING),
    "use_bias": flag({"bias": "all", "mlp_bias": True}, NOTHING),
    "sliding_window": optional("window"),
    "sliding_window_pattern": optional("pattern"),
    "layer_types": listed("types", ATTENTIONS),
    "partial_rotary_factor": Field(_share, "a number above 0, 1 at most"),
    "rotary_dim": count("rotary_dim", needed=False),
    "n_routed_experts": count("experts"),
    "moe_intermediate_size": count("expert_ffn"),
    "n_shared_experts": natural("shared"),
    "shared_expert_intermediate_size": natural("shared"),
    "first_k_dense_replace": natural("dense"),
    "mlp_layer_types": listed("sparse", {"dense": False, "sparse": True}),
    "decoder_sparse_step": count("sparse_step"),
    "num_nextn_predict_layers": natural("predicts", needed=False),
}
"""The same of stacks, whose layers may differ, and more of them."""


def rows(*names: str, **own: Field) -> dict[str, Field]:
    """The rows of a type of models: sizes and ends, these fields, and some whose meaning is its own."""
    base = (*SIZES, "num_key_value_heads", "hidden_act", "tie_word_embeddings", "torch_dtype", "quantization_config")
    return {name: _STACKS[name] for name in (*base, *names)} | own


EVERYWHERE: Final[Mapping[str, Field]] = {
    "add_cross_attention": one_of("false", {False: NOTHING}),
    "chunk_size_feed_forward": one_of("0", {0: NOTHING}),
    "cross_attention_hidden_size": one_of("null", {None: NOTHING}),
    "is_encoder_decoder": one_of("false", {False: NOTHING}),
    "partial_rotary_factor": one_of("1.0: a part of the features is not drawn", {1.0: NOTHING}),
    "pruned_heads": Field(lambda value: NOTHING if value in ({}, None) else None, "none"),
    "tie_encoder_decoder": one_of("false", {False: NOTHING}),
    "top_k": one_of("50, as of sampling", {50: NOTHING}),
}
"""Of what every config class has, the fields that change a shape unless they say that nothing is different."""
COSMETIC: Final = frozenset({
    "_name_or_path", "_attn_implementation", "architectures", "attention_dropout", "attn_implementation", "auto_map",
    "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "max_window_layers", "model_type",
    "pretraining_tp", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_cache", "norm_topk_prob", "output_router_logits", "router_aux_loss_coef",
    # what libraries leave behind in files that they write, and noise of training
    "_attn_implementation_autoset", "_commit_hash", "_flash_attn_2_enabled", "activation_dropout",
    "attention_probs_dropout_prob", "hidden_dropout_prob", "is_composition", "is_llama_config", "neftune_noise_alpha",
    "rope_interleaved", "router_jitter_noise", "transformers.js_config", "use_mrope",
    "embd_pdrop", "resid_pdrop", "hidden_dropout", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon",
    # what every config class has for generation, training and other tasks
    "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_decoder_ids",
    "forced_bos_token_id", "forced_eos_token_id", "id2label", "is_decoder", "label2id", "length_penalty", "max_length",
    "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_scores", "prefix", "problem_type", "remove_invalid_values", "repetition_penalty",
    "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
    "tf_legacy_loss", "tokenizer_class", "top_p", "torchscript", "typical_p", "use_bfloat16",
})  # fmt: skip
"""Fields that change no shape, cost or size of a graph: names, constants of formulas, defaults of generation."""
