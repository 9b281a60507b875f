"""Configs of models that also see or hear: the config of the text model lies inside, and is what is read.

A wrapper's entry says which types of text models it holds, and which parts beside them are left out: towers for images
and sound, which run once for an image and are no layers of the text model. What is left out is said in the description
of the graph, whose parameters then are those of the text model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dfopt.errors import DocumentError, Issue, did_you_mean, shown
from dfopt.frontends.hf_rows import COSMETIC, EVERYWHERE

__all__ = ["FRONTS", "WRAPPERS", "Text", "Wrapper", "text_of"]

_INHERITED: Final = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config")
"""Fields that stand beside the text model's config or in it."""
FRONTS: Final = ("model.language_model.", "language_model.model.", "language_model.")
"""What the names of the text model's weights begin with, instead of ``model.``."""
_WORDS: Final = frozenset({
    "audio_token_id", "boa_token_id", "boi_token_id", "boi_token_index", "eoa_token_id", "eoa_token_index",
    "eoi_token_id", "eoi_token_index", "ignore_index", "image_end_token_id", "image_seq_length", "image_start_token_id",
    "image_token_id", "image_token_index", "media_placeholder_token_id", "mm_tokens_per_image", "processor_class",
    "spatial_merge_size", "use_unified_vision_chunk", "video_end_token_id", "video_placeholder",
    "video_start_token_id", "video_token_id", "video_token_index", "vision_end_token_id", "vision_feature_layer",
    "vision_feature_select_strategy", "vision_soft_tokens_per_image", "vision_start_token_id", "vision_token_id",
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
    flat: str = ""  # the type of the text model of a file that has its fields beside the parts, as older ones do


WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "gemma3": Wrapper(("gemma3_text",)),
    "gemma4": Wrapper(("gemma4_text",), parts=("vision_config", "audio_config")),
    "glm4v": Wrapper(("glm4v_text",)),
    "glm4v_moe": Wrapper(("glm4v_moe_text",)),
    "kimi_k25": Wrapper(("kimi_k2", "deepseek_v3")),
    "llama4": Wrapper(("llama4_text",)),
    "minimax_m3_vl": Wrapper(
        ("minimax_m3", "minimax_m3_vl_text"), words=frozenset({"projector_hidden_act", "projector_hidden_size"})
    ),
    "mistral3": Wrapper(
        ("mistral", "ministral3", "mistral4"), words=frozenset({"multimodal_projector_bias", "projector_hidden_act"})
    ),
    "qwen2_vl": Wrapper(("qwen2_vl_text",), flat="qwen2_vl_text"),
    "qwen2_5_vl": Wrapper(("qwen2_5_vl_text",), flat="qwen2_5_vl_text"),
    "qwen3_5": Wrapper(("qwen3_5_text",), words=frozenset({"language_model_only"})),
    "qwen3_5_moe": Wrapper(("qwen3_5_moe_text",), words=frozenset({"language_model_only"})),
    "qwen3_vl": Wrapper(("qwen3_vl_text",)),
    "qwen3_vl_moe": Wrapper(("qwen3_vl_moe_text",)),
}


class Text(NamedTuple):
    """The config of a text model, where its fields stand, and what beside it is left out."""

    data: Mapping[str, Any]
    paths: Mapping[str, str]
    left: tuple[str, ...] = ()
    inside: str = "$"
    wrapped: bool = False

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
    if wrapper.flat and "text_config" not in data:
        beside = {*_WORDS, *wrapper.words, *wrapper.parts}
        own = {name: value for name, value in data.items() if name not in beside} | {"model_type": wrapper.flat}
        return Text(own, {name: f"$.{name}" for name in own}, left, wrapped=True)
    inner = data.get("text_config")
    if issues := list(_issues(data, wrapper, inner)):
        raise DocumentError(file, issues)
    assert isinstance(inner, Mapping)
    paths = {name: f"$.text_config.{name}" for name in inner}
    above = [name for name in _INHERITED if name in data and name not in inner]
    merged = {**inner, **{name: data[name] for name in above}}
    return Text(merged, paths | {name: f"$.{name}" for name in above}, left, "$.text_config", wrapped=True)


def _issues(data: Mapping[str, Any], wrapper: Wrapper, inner: Any) -> Iterator[Issue]:
    known = {*_INHERITED, *wrapper.parts, "text_config"}
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
        yield Issue("$.text_config", f"{'missing' if inner is None else f'found {shown(inner)}'}, {expected}")
        return
    kind = inner.get("model_type")
    if kind not in wrapper.texts:
        yield Issue("$.text_config.model_type", f"{'missing' if kind is None else f'found {shown(kind)}'}, {expected}")
    for name in _INHERITED:
        if name in data and name in inner and data[name] != inner[name]:
            message = f"found {shown(inner[name])}, but {shown(data[name])} beside it ($.{name})"
            yield Issue(f"$.text_config.{name}", message)
