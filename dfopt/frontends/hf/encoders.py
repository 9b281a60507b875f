"""Hugging Face configs of encoders, whose tokens all see each other, and of Whisper's decoder.

Of an encoder its layers and ends are drawn, and the pooler where its class always has one; the head of a task, which
its ``architectures`` name, is left out, and said to be. Whisper's decoder attends to the tokens of its encoder, which
is a model of its own. Sources: ``configuration_*.py`` and ``modeling_*.py`` of transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dfopt.frontends.hf.fields import Family, Field, Modules, count, flag, is_whole, listed, natural, one_of
from dfopt.frontends.hf.layers import Given, in_sections
from dfopt.frontends.hf.rows import ATTENTIONS, EVERYWHERE, FIELDS, NOTHING

__all__ = ["ENCODER_FAMILIES"]

_ANY: Final = ("",)  # whatever the task
_SIZES: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
_ENDS: Final = ("torch_dtype", "quantization_config")
_TASKS: Final = frozenset({
    "attention_probs_dropout_prob", "classifier_dropout", "directionality", "gradient_checkpointing",
    "hidden_dropout_prob", "initializer_factor", "output_past", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "position_ids", "qa_dropout", "seq_classif_dropout",
    "dropout", "encoder_stride", "tie_weights_", "pooler_act", "pooler_output_size", "num_labels",
})  # fmt: skip
"""Of training, of first values and of heads of tasks, which are left out."""


def _layer(given: Given, **more: Any) -> dict[str, Any]:
    """A layer in which all tokens see each other."""
    if given["hidden"] % given["heads"]:
        raise ValueError(f"heads: found {given['heads']}, expected a divisor of the {given['hidden']} features")
    mixer = {
        "kind": "attention", "heads": given["heads"], "head_dim": given["hidden"] // given["heads"], "rotary_dim": 0,
        "sees": "full", **({"bias": "all"} if given.get("biased", True) else {}),
    }  # fmt: skip
    return {"mixer": mixer, "feed_forward": {"kind": "mlp", "ffn": given["ffn"], "gated": False, "bias": True}, **more}


def _stacked(given: Given, layer: Mapping[str, Any], **ends: Any) -> dict[str, Any]:
    sections = [{"layers": ["layer"], "repeat": given["layers"]}]
    return {
        "hidden": given["hidden"], "word_bytes": given["word_bytes"], "norm": "layernorm", **ends,
        "layers": {"layer": layer}, "sections": sections, "ends": True,
    }  # fmt: skip


def _bert(given: Given) -> dict[str, Any]:
    """Norms behind the residual, embeddings of words, of positions and of types of tokens, and a pooler."""
    padded = given.get("padded", 0)
    if given["positions"] <= padded:
        raise ValueError(f"positions: found {given['positions']}, expected more than the {padded} that are not used")
    ends = {"vocab": given["vocab"], "learned_positions": given["positions"], "token_types": given["token_types"]}
    head = {"kind": "none", **({"pooler": True} if given.get("pools", True) else {})}
    ends |= {"embedding_norm": True, "final_norm": False, "head": head, "positions": given["positions"] - padded}
    return _stacked(given, _layer(given, norms="after"), **ends)


def _image(given: Given) -> dict[str, Any]:
    """Patches of an image, beside a token for all of it if there is one, and norms in front."""
    if given["patch"] > given["side"]:
        raise ValueError(f"patch: found {given['patch']}, expected {given['side']} at most, as of the whole image")
    tokens = (given["side"] // given["patch"]) ** 2 + given.get("class_token", 1)
    first = {"inputs": given["channels"] * given["patch"] ** 2, "outputs": given["hidden"]}
    if not given.get("patch_bias", True):
        first["bias"] = False
    ends = {"input": [first], "learned_positions": tokens, "positions": tokens, "head": {"kind": "none"}}
    return _stacked(given, _layer(given), **ends, **({"embedding_norm": True} if given.get("normed") else {}))


_BERT: Final = Family(
    left_out={
        "hidden_act": "gelu",
        "type_vocab_size": 2,
        "torch_dtype": "float32",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    fields={
        **{name: FIELDS[name] for name in (*_SIZES, "vocab_size", "max_position_embeddings", *_ENDS)},
        "type_vocab_size": natural("token_types"),
        "position_embedding_type": one_of("absolute: learned ones", {"absolute": NOTHING}, needed=True),
        "is_decoder": one_of("false: an encoder", {False: NOTHING}, needed=True),
        "add_cross_attention": EVERYWHERE["add_cross_attention"],
        "tie_word_embeddings": flag(NOTHING, NOTHING),  # with the matrix of a head
    },
    words=_TASKS,
    stack=_bert,
    classes=_ANY,
    left={"architectures": "what a task adds"},
    modules=Modules(
        fronts=("bert.encoder.", "encoder."), layer="layer.*.",
        mixer=(*(f"attention.self.{name}" for name in ("query", "key", "value")), "attention.output.dense"),
        dense=("intermediate.dense", "output.dense"),
    ),
)  # fmt: skip
# rows of positions begin behind that of the padding
_ROBERTA: Final = replace(_BERT, always={"padded": 2})
_DISTILBERT: Final = replace(
    _BERT,
    always={"token_types": 0, "pools": False},
    left_out={"hidden_act": "gelu", "torch_dtype": "float32", "sinusoidal_pos_embds": False},
    fields={
        **{name: FIELDS[name] for name in (*_SIZES, "vocab_size", "max_position_embeddings", *_ENDS)},
        # either way they are a table
        "sinusoidal_pos_embds": flag(NOTHING, NOTHING),
        "tie_word_embeddings": flag(NOTHING, NOTHING),
    },
    names={
        "activation": "hidden_act", "dim": "hidden_size", "hidden_dim": "intermediate_size",
        "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
    },
)  # fmt: skip
_OF_IMAGES: Final = {
    **{name: FIELDS[name] for name in (*_SIZES, *_ENDS)},
    "image_size": count("side"),
    "patch_size": count("patch"),
    "num_channels": count("channels"),
    "tie_word_embeddings": flag(NOTHING, NOTHING),  # of a model of words
}
_VIT: Final = Family(
    always={"positions": 1},
    left_out={"hidden_act": "gelu", "num_channels": 3, "qkv_bias": True, "torch_dtype": "float32"},
    # without a bias of queries, keys and values that of the output is not counted either
    fields={**_OF_IMAGES, "qkv_bias": flag({"biased": True}, {"biased": False}, needed=True)},
    words=_TASKS,
    stack=_image,
    classes=_ANY,
    left={"architectures": "what a task adds"},
)
_TOWER: Final = replace(
    _VIT,
    left_out={"num_channels": 3, "torch_dtype": "float32"},
    fields=_OF_IMAGES,
    words=_TASKS | {"projection_dim", "projection_size"},
)
_CLIP: Final = replace(
    _TOWER,
    always={"positions": 1, "normed": True, "patch_bias": False},
    left_out={**_TOWER.left_out, "hidden_act": "quick_gelu"},
)
_SIGLIP: Final = replace(
    _TOWER,
    always={"positions": 1, "class_token": 0},
    left_out={**_TOWER.left_out, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": True},
    fields={**_OF_IMAGES, "vision_use_head": flag(NOTHING, NOTHING)},
    left={**_TOWER.left, "vision_use_head": "the attention that puts all patches together"},
)


def _whisper(given: Given) -> dict[str, Any]:
    """Pairs of attention to the decoder's own tokens and to those of the encoder."""
    if given["hidden"] % given["heads"]:
        raise ValueError(f"heads: found {given['heads']}, expected a divisor of the {given['hidden']} features")
    sizes = {"heads": given["heads"], "head_dim": given["hidden"] // given["heads"], "bias": "no_key"}
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


_WHOLE: Final = Field(lambda value: NOTHING if is_whole(value) else None, "a whole number from 1 on")
_WHISPER: Final = Family(
    left_out={"tie_word_embeddings": True, "hidden_act": "gelu", "torch_dtype": "float32"},
    fields={
        **{name: FIELDS[name] for name in ("vocab_size", "hidden_act", "tie_word_embeddings", *_ENDS)},
        "d_model": count("hidden"),
        "decoder_layers": FIELDS["num_hidden_layers"],
        "decoder_attention_heads": count("heads"),
        "decoder_ffn_dim": count("ffn"),
        "max_target_positions": count("positions"),
        "max_source_positions": count("encoded"),
        # of the encoder
        "encoder_layers": _WHOLE,
        "encoder_attention_heads": _WHOLE,
        "encoder_ffn_dim": _WHOLE,
        "num_hidden_layers": _WHOLE,
        "num_mel_bins": _WHOLE,
        "is_encoder_decoder": one_of("true", {True: NOTHING}),
    },
    names={"activation_function": "hidden_act"},
    words=_TASKS | {
        "activation_dropout", "alignment_heads", "apply_spec_augment", "classifier_proj_size", "decoder_layerdrop",
        "encoder_layerdrop", "init_std", "lang_ids", "mask_feature_length", "mask_feature_min_masks",
        "mask_feature_prob", "mask_time_length", "mask_time_min_masks", "mask_time_prob", "median_filter_width",
        "scale_embedding", "use_weighted_layer_sum",
    },
    stack=_whisper,
    classes=("WhisperForConditionalGeneration",),
    left={"encoder_layers": "the encoder, a model of its own, whose tokens the decoder attends to,"},
    modules=Modules(
        fronts=("model.decoder.",), mixer=(*(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")),),
        mixers={"cross_attention": tuple(f"encoder_attn.{name}_proj" for name in ("q", "k", "v", "out"))},
        dense=("fc1", "fc2"),
    ),
)  # fmt: skip


def _every_third(data: Mapping[str, Any]) -> list[str] | None:
    """What the class of ModernBERT takes: all tokens for the first in every so many layers."""
    number, turn = data.get("num_hidden_layers"), data.get("global_attn_every_n_layers", 3)
    if not is_whole(number) or number > 10**3 or not is_whole(turn):
        return None
    return ["sliding_attention" if place % turn else "full_attention" for place in range(number)]


def _modern(given: Given) -> dict[str, Any]:
    """Gated MLPs, positions that turn, and windows that look both ways in all but some layers.

    Norms have no biases, and the first one is the embedding's; both are counted, a ten-thousandth of all.
    """
    if given["hidden"] % given["heads"]:
        raise ValueError(f"heads: found {given['heads']}, expected a divisor of the {given['hidden']} features")
    if len(given["types"]) != given["layers"]:
        raise ValueError(f"types: found {len(given['types'])} of {given['layers']} layers")
    sizes = {
        "kind": "attention",
        "heads": given["heads"],
        "head_dim": given["hidden"] // given["heads"],
        "sees": "full",
    }
    inside = {"kind": "mlp", "ffn": given["ffn"]}
    # half of it on either side, and the token's own
    mixers = {"global": sizes, "local": sizes | {"window": given["window"] // 2 * 2 + 1}}
    layers = {kind: {"mixer": mixers[kind], "feed_forward": inside} for kind in dict.fromkeys(given["types"])}
    ends = {"embedding_norm": True, "head": {"kind": "none"}, "norm": "layernorm", "ends": True}
    kept = {name: given[name] for name in ("hidden", "vocab", "word_bytes")}
    return {**kept, **ends, "layers": layers, "sections": in_sections(given["types"])}


_MODERN_BERT: Final = Family(
    left_out={
        "hidden_activation": "gelu",
        "torch_dtype": "float32",
        "layer_types": _every_third,
        "local_attention": 128,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
    },
    fields={
        **{name: FIELDS[name] for name in (*_SIZES[:-1], "vocab_size", "max_position_embeddings", *_ENDS)},
        "hidden_activation": FIELDS["hidden_activation"],
        "layer_types": listed("types", ATTENTIONS, needed=True),
        "global_attn_every_n_layers": Field(lambda value: NOTHING if is_whole(value) else None, "a whole number"),
        "local_attention": count("window"),
        "attention_bias": FIELDS["attention_bias"],
        "mlp_bias": FIELDS["mlp_bias"],
        "norm_bias": one_of("false: biases of the type are not counted", {False: NOTHING}, needed=True),
        "position_embedding_type": Field(lambda value: NOTHING if isinstance(value, str) else None, "a word"),
        "tie_word_embeddings": flag(NOTHING, NOTHING),
    },
    words=_TASKS | {
        "classifier_activation", "classifier_bias", "classifier_pooling", "cls_token_id", "decoder_bias",
        "deterministic_flash_attn", "embedding_dropout", "global_rope_theta", "initializer_cutoff_factor",
        "local_rope_theta", "mlp_dropout", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index",
        "sparse_prediction",
    },
    stack=_modern,
    classes=_ANY,
    left={"architectures": "what a task adds"},
    modules=Modules(fronts=("model.", ""), mixer=("attn.Wqkv", "attn.Wo"), dense=("mlp.Wi", "mlp.Wo"), few=()),
)  # fmt: skip
ENCODER_FAMILIES: Final[Mapping[str, Family]] = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "clip_vision_model": _CLIP,
    "deit": replace(_VIT, always={"positions": 1, "class_token": 2}),
    "distilbert": _DISTILBERT,
    "modernbert": _MODERN_BERT,
    "roberta": _ROBERTA,
    "siglip_vision_model": _SIGLIP,
    "vit": _VIT,
    "whisper": _WHISPER,
    "xlm-roberta": _ROBERTA,
}
