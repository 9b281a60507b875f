"""Configs of models that also see or hear: the config of the text model lies inside, and is what is read.

A wrapper's entry says which types of text models it holds, and which parts beside them are left out: towers for images
and sound, which run once for an image and are no layers of the text model. What is left out is said in the description
of the graph, whose parameters then are those of the text model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.hf.fields import heads_of
from dfopt.frontends.hf.rows import COSMETIC, EVERYWHERE

__all__ = ["FRONTS", "WRAPPERS", "Text", "Wrapper", "text_of"]

_INHERITED: Final = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
"""Fields that stand beside the text model's config or in it."""
FRONTS: Final = ("model.language_model.", "language_model.model.", "language_model.")
"""What the names of the text model's weights begin with, instead of ``model.``."""
_WORDS: Final = frozenset({
    "audio_token_id", "audio_token_index", "boa_token_id", "boi_token_id", "boi_token_index", "eoa_token_id",
    "eoa_token_index", "eoi_token_id", "eoi_token_index", "ignore_index", "image_end_token_id", "image_seq_length",
    "image_start_token_id", "image_token_id", "image_token_index", "media_placeholder_token_id", "mm_tokens_per_image",
    "processor_class", "spatial_merge_size", "use_unified_vision_chunk", "video_end_token_id", "video_placeholder",
    "video_start_token_id", "video_token_id", "video_token_index", "vision_end_token_id", "vision_feature_layer",
    "vision_feature_select_strategy", "vision_soft_tokens_per_image", "vision_start_token_id", "vision_token_id",
    # how an image is cut into patches, and projections of their features
    "adapter_layer_norm_eps", "alignment_intermediate_size", "downsample_factor", "downsample_ratio",
    "image_grid_pinpoints", "image_newline_dim", "merged_hidden_size", "multimodal_projector_bias", "projection_dim",
    "projection_hidden_size", "projection_layer_norm_eps", "projector_bias",
    "projector_hidden_act", "projector_hidden_size", "projector_use_layernorm", "scale_factor",
    "use_image_newline_parameter", "vision_aspect_ratio",
})  # fmt: skip
"""Fields of the place of images and sound among tokens, and of projections of what is left out."""


@dataclass(frozen=True)
class Wrapper:
    """A ``model_type`` whose text model has a config of its own.

    Examples
    --------
    >>> WRAPPERS["llama4"].texts
    ('llama4_text',)
    """

    texts: tuple[str, ...]
    parts: tuple[str, ...] = ("vision_config",)
    words: frozenset[str] = frozenset()
    what: str = "text model"  # what it holds
    inside: str = "text_config"  # the field that holds it
    drops: frozenset[str] = frozenset()  # fields in it that say something of the parts beside
    off: frozenset[str] = frozenset()  # fields in it that say something only where they are true
    classes: tuple[str, ...] = ()  # what models of this type are called that have another name than others
    thinker: str = ""  # the type of a wrapper that it holds itself, in `inside`
    flat: str = ""  # the type of the text model of a file that has its fields beside the parts, as older ones do


_QWEN: Final = ("qwen2", "qwen3", "qwen3_moe")
_OF_LLAVA: Final = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3")
_SMOL: Final = Wrapper(
    ("llama",),
    words=frozenset({"_pad_token_id", "use_reentrant_checkpointing", "vocab_size"}),
    drops=frozenset({
        "_flash_attn_2_enabled", "is_llama_config", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor",
        "transformers.js_config", "use_resampler", "rope_interleaved",
    }),
    off=frozenset({"qk_layer_norms"}),
)  # fmt: skip
_TOWERS: Final = Wrapper(
    (), parts=("text_config",), inside="vision_config", what="image tower",
    words=frozenset({"initializer_factor", "logit_scale_init_value", "text_config_dict", "vision_config_dict"}),
)  # fmt: skip
_SOUND_AND_SIGHT: Final = ("vision_config", "audio_config")
_OF_INTERNVL: Final = frozenset({
    "dynamic_image_size", "force_image_size", "hidden_size", "image_fold", "max_dynamic_patch", "min_dynamic_patch",
    "output_attentions", "pad2square", "ps_version", "select_layer", "system_message", "template", "use_backbone_lora",
    "use_llm_lora", "use_thumbnail",
})  # fmt: skip
_OF_THINKERS: Final = frozenset({
    "audio_end_token_id", "audio_start_token_id", "audio_token_index", "position_id_per_seconds", "seconds_per_chunk",
    "user_token_id", "init_std",
})  # fmt: skip
_OF_OMNI: Final = frozenset({
    "assistant_token_id", "enable_audio_output", "enable_talker", "im_end_token_id", "im_start_token_id",
    "system_token_id", "tts_bos_token_id", "tts_eos_token_id", "tts_pad_token_id", "user_token_id",
})  # fmt: skip
WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "aya_vision": Wrapper(("cohere2",)),
    "clip": replace(_TOWERS, texts=("clip_vision_model",), classes=("CLIPModel",)),
    "cohere2_vision": Wrapper(("cohere2",)),
    "deepseek_vl_v2": Wrapper(
        ("deepseek_v2",),
        parts=("vision_config", "projector_config"),
        inside="language_config",
        words=frozenset({"candidate_resolutions", "global_view_pos", "tile_tag"}),
    ),
    "gemma3": Wrapper(("gemma3_text",)),
    "gemma4": Wrapper(("gemma4_text",), parts=_SOUND_AND_SIGHT),
    "glm46v": Wrapper(("glm4v_text", "glm4v_moe_text")),
    "glm4v": Wrapper(("glm4v_text",), flat="glm4v_text"),
    "glm4v_moe": Wrapper(("glm4v_moe_text",)),
    "granite_speech": Wrapper(
        ("granite",),
        parts=("encoder_config", "projector_config"),
        words=frozenset({"downsample_rate", "has_lora_adapter", "window_size"}),
    ),
    "idefics3": _SMOL,
    "internvl": Wrapper((*_QWEN, "llama", "gpt_oss")),
    "internvl_chat": Wrapper(
        (*_QWEN, "llama", "internlm2", "phi3", "gpt_oss"), inside="llm_config", words=_OF_INTERNVL,
        classes=("InternVLChatModel",),
    ),
    "kimi_k25": Wrapper(("kimi_k2", "deepseek_v3")),
    "kimi_vl": Wrapper(("deepseek_v3",)),
    "lfm2_vl": Wrapper(
        ("lfm2", "lfm2_moe"),
        words=frozenset({
            "do_image_splitting", "encoder_patch_size", "max_image_tokens", "max_num_patches", "max_pixels_tolerance",
            "max_tiles", "min_image_tokens", "min_tiles", "tile_size", "use_image_special_tokens", "use_thumbnail",
        }),
    ),
    "llama4": Wrapper(("llama4_text",)),
    "llava": Wrapper(_OF_LLAVA),
    "llava_next": Wrapper(_OF_LLAVA),
    "llava_next_video": Wrapper(
        _OF_LLAVA, words=frozenset({"spatial_pool_mode", "spatial_pool_stride", "video_seq_length"})
    ),
    "llava_onevision": Wrapper(_OF_LLAVA),
    "minimax_m3_vl": Wrapper(("minimax_m3", "minimax_m3_vl_text")),
    "mistral3": Wrapper(("mistral", "ministral3", "mistral4")),
    "paligemma": Wrapper(
        ("gemma", "gemma2"), words=frozenset({"hidden_size", "num_hidden_layers", "vocab_size"}),
        drops=frozenset({"num_image_tokens", "use_bidirectional_attention"})
    ),
    "phi3_v": Wrapper(("phi3",), parts=("embd_layer", "img_processor"), flat="phi3", words=frozenset({"num_crops"})),
    "phi4mm": Wrapper(
        ("phi3",), parts=("audio_processor", "embd_layer", "img_processor", "speech_lora", "vision_lora"), flat="phi3"
    ),
    "qwen2_audio": Wrapper(("qwen2",), parts=("audio_config",)),
    "qwen2_vl": Wrapper(("qwen2_vl_text",), flat="qwen2_vl_text"),
    "qwen2_5_omni": Wrapper(
        (), parts=("talker_config", "token2wav_config"), inside="thinker_config", thinker="qwen2_5_omni_thinker",
        words=_OF_OMNI, classes=("Qwen2_5OmniModel",),
    ),
    "qwen2_5_omni_thinker": Wrapper(
        ("qwen2_5_omni_text",), parts=_SOUND_AND_SIGHT, words=_OF_THINKERS, drops=_OF_THINKERS
    ),
    "qwen2_5_vl": Wrapper(("qwen2_5_vl_text",), flat="qwen2_5_vl_text"),
    "qwen3_5": Wrapper(("qwen3_5_text",), words=frozenset({"language_model_only"})),
    "qwen3_5_moe": Wrapper(("qwen3_5_moe_text",), words=frozenset({"language_model_only"})),
    "qwen3_omni_moe": Wrapper(
        (), parts=("talker_config", "code2wav_config"), inside="thinker_config", thinker="qwen3_omni_moe_thinker",
        words=_OF_OMNI,
    ),
    "qwen3_omni_moe_thinker": Wrapper(("qwen3_omni_moe_text",), parts=_SOUND_AND_SIGHT, words=_OF_THINKERS),
    "qwen3_vl": Wrapper(("qwen3_vl_text",)),
    "qwen3_vl_moe": Wrapper(("qwen3_vl_moe_text",)),
    "siglip": replace(_TOWERS, texts=("siglip_vision_model",), classes=("SiglipModel",)),
    "smolvlm": _SMOL,
    "step3p7": Wrapper(("step3p5",), flat="step3p5", words=frozenset({"understand_projector_stride"})),
    "video_llama_3": Wrapper(("qwen2",)),
    "vipllava": Wrapper(("llama",), words=frozenset({"projector_layernorm_eps", "vision_feature_layers"})),
    "voxtral": Wrapper(("llama",), parts=("audio_config",), words=frozenset({"hidden_size"})),
}  # fmt: skip
_SIZES: Final = {"hidden_act": "silu", "num_hidden_layers": 32, "num_attention_heads": 32}
_OF_CLASSES: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": _SIZES | {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 2048,
        "num_key_value_heads": heads_of,
    },
    "mistral": _SIZES | {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
        "num_key_value_heads": 8,
    },
    "gemma": {
        "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192,
    },
    "gemma2": {
        "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 8192,
    },
    "qwen2": _SIZES | {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "max_position_embeddings": 32768,
        "num_key_value_heads": 32,
    },
}  # fmt: skip
"""What the classes of text models take for sizes: configs inside others are written without those that are alike."""


class Text(NamedTuple):
    """The config of a text model, where its fields stand, and what beside it is left out."""

    data: Mapping[str, Any]
    paths: Mapping[str, str]
    left: tuple[str, ...] = ()
    inside: str = "$"
    wrapped: bool = False
    what: str = "text model"
    left_out: Mapping[str, Any] = {}  # what its class takes for sizes that a config inside another one leaves out
    notes: tuple[str, ...] = ()  # what is taken of two that differ

    def path(self, name: str) -> str:
        """Where a field stands, or would."""
        return self.paths.get(name, f"{self.inside}.{name}")


def text_of(data: Mapping[str, Any], file: str) -> Text:
    """The config of the text model: the file itself, or what lies inside.

    Raises
    ------
    DocumentError
        With every field of a wrapper that is not understood, or does not fit to the config inside.

    Examples
    --------
    >>> found = text_of({"model_type": "llama4", "text_config": {"model_type": "llama4_text"}, "dtype": "x"}, "c.json")
    >>> found.data, found.path("dtype"), found.path("vocab_size")
    ({'model_type': 'llama4_text', 'dtype': 'x'}, '$.dtype', '$.text_config.vocab_size')
    """
    wrapper = WRAPPERS.get(data["model_type"]) if isinstance(data.get("model_type"), str) else None
    if wrapper is None:
        return Text(data, {name: f"$.{name}" for name in data})
    left = tuple(part for part in wrapper.parts if data.get(part) is not None)
    if odd := [part for part in left if not isinstance(data[part], Mapping)]:
        issues = [Issue(f"$.{part}", f"found {shown(data[part])}, expected null, or a mapping") for part in odd]
        raise DocumentError(file, issues)
    if wrapper.flat and wrapper.inside not in data:
        beside = {*_WORDS, *wrapper.words, *wrapper.parts}
        own = {name: value for name, value in data.items() if name not in beside} | {"model_type": wrapper.flat}
        return Text(own, {name: f"$.{name}" for name in own}, left, wrapped=True)
    inner = data.get(wrapper.inside)
    if wrapper.thinker and isinstance(inner, Mapping):
        return _thinking(data, wrapper, inner, left, file)
    if issues := list(_issues(data, wrapper, inner)):
        raise DocumentError(file, issues)
    assert isinstance(inner, Mapping)
    where = f"$.{wrapper.inside}"
    inner = {name: value for name, value in inner.items() if not _said_beside(wrapper, name, value)}
    paths = {name: f"{where}.{name}" for name in inner}
    above = [name for name in _INHERITED if name in data and inner.get(name) is None]
    merged = {**inner, **{name: data[name] for name in above}}
    of_class, notes = _OF_CLASSES.get(inner["model_type"], {}), tuple[str, ...]()
    if _ties_differ(data, inner):
        merged["tie_word_embeddings"] = False
        notes = ("tie_word_embeddings false: of two that differ, true is the default of a class",)
    paths |= {name: f"$.{name}" for name in above}
    return Text(merged, paths, left, where, True, wrapper.what, of_class, notes)


def _ties_differ(data: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    """Whether only one of two configs ties embeddings in a file of transformers 5, which writes defaults into both."""
    major = str(data.get("transformers_version")).partition(".")[0]
    ties = [part.get("tie_word_embeddings") for part in (data, inner)]
    return major.isdecimal() and int(major) >= 5 and True in ties and False in ties


def _alike(one: Any, other: Any) -> bool:
    """Whether two fields say the same; of types of two bytes, which are as wide as each other, that inside counts."""
    halves = ("bfloat16", "float16")
    return bool(one == other) or (one in halves and other in halves)


def _said_beside(wrapper: Wrapper, name: str, value: Any) -> bool:
    """Whether a field of the config inside says nothing of the text model."""
    return name in wrapper.drops or (name in wrapper.off and value is False)


def _thinking(
    data: Mapping[str, Any], wrapper: Wrapper, inner: Mapping[str, Any], left: tuple[str, ...], file: str
) -> Text:
    """The text model of a wrapper that lies in another one, beside what speaks."""
    front = f"$.{wrapper.inside}"
    issues = [one for one in _issues(data, wrapper, inner) if not one.where.startswith(front)]
    if inner.get("model_type", wrapper.thinker) != wrapper.thinker:
        message = f"found {shown(inner['model_type'])}, expected {wrapper.thinker}"
        issues.append(Issue(f"{front}.model_type", message))
    if issues:
        raise DocumentError(file, issues)
    above = {name: data[name] for name in (*_INHERITED, "transformers_version") if name in data and name not in inner}
    try:
        found = text_of({**above, **inner, "model_type": wrapper.thinker}, file)
    except DocumentError as error:
        raise DocumentError(file, [replace(one, where=front + one.where[1:]) for one in error.issues]) from None
    paths = {name: path if name in above else front + path[1:] for name, path in found.paths.items()}
    return found._replace(paths=paths, left=(*left, *found.left), inside=front + found.inside[1:])


def _issues(data: Mapping[str, Any], wrapper: Wrapper, inner: Any) -> Iterator[Issue]:
    known, where = {*_INHERITED, *wrapper.parts, wrapper.inside}, f"$.{wrapper.inside}"
    for name, value in data.items():
        if name in COSMETIC or name in _WORDS or name in wrapper.words or name in known:
            continue
        if name in EVERYWHERE:
            if EVERYWHERE[name].gives(value) is None:
                yield Issue(f"$.{name}", f"found {shown(value)}, expected {EVERYWHERE[name].expected}")
            continue
        message = "not understood, and could change a shape, a cost or a size"
        yield Issue(f"$.{name}", message, did_you_mean(name, sorted(known)))
    expected = f"expected the config of {' or '.join(wrapper.texts)}"
    if not isinstance(inner, Mapping):
        yield Issue(where, f"{'missing' if inner is None else f'found {shown(inner)}'}, {expected}")
        return
    kind = inner.get("model_type")
    if kind not in wrapper.texts:
        yield Issue(f"{where}.model_type", f"{'missing' if kind is None else f'found {shown(kind)}'}, {expected}")
    for name in _INHERITED:
        if name == "tie_word_embeddings" and _ties_differ(data, inner):
            continue
        if name in data and inner.get(name) is not None and not _alike(data[name], inner[name]):
            message = f"found {shown(inner[name])}, but {shown(data[name])} beside it ($.{name})"
            yield Issue(f"{where}.{name}", message)
