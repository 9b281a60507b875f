"""Configs as transformers 5 saves them, in the fields that published files have.

That version replaces fields by others when it loads a file, and saves those. What they say is put back here: sizes of
single layers (``per_layer_config``), the share of features that carry a position (in ``rope_parameters``), kinds of
layers instead of lists and counts. A field that contradicts the one that it stands for stays, and is then refused.

Sources: ``configuration_*.py``, ``configuration_utils.py`` and ``integrations/heterogeneity`` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dfopt.frontends.hf.rows import COSMETIC, EVERYWHERE
from dfopt.frontends.hf.wrapped import TextConfig

__all__ = ["as_published"]

_Rule = Callable[[Mapping[str, Any]], dict[str, Any]]
"""What the saved fields of a config say in published ones; an error of Python if they are not understood."""


def _of_layers(data: Mapping[str, Any], name: str, values: Mapping[Any, Any]) -> list[Any]:
    return [values[kind] for kind in data[name]]


def _sizes_of(kind: str, **names: str) -> _Rule:
    """Sizes that all layers of a kind have, and no others, by the fields that say them of the kind."""

    def published(data: Mapping[str, Any]) -> dict[str, Any]:
        layers = {int(place): sizes for place, sizes in data["per_layer_config"].items()}
        places = [place for place, name in enumerate(data["layer_types"]) if name == kind]
        sizes = layers.get(places[0], {})
        if (layers and layers != dict.fromkeys(places, sizes)) or set(sizes) - set(names):
            raise ValueError(kind)
        return {name: sizes.get(saved, data.get(saved)) for saved, name in names.items()}

    return published


def _kimi(data: Mapping[str, Any]) -> dict[str, Any]:
    linear = _of_layers(data, "layer_types", {"linear_attention": True, "full_attention": False})
    lists = {"kda_layers": True, "full_attn_layers": False}
    places = {name: [place for place, is_kda in enumerate(linear, 1) if is_kda == kda] for name, kda in lists.items()}
    return {"linear_attn_config": places | {name: data[saved] for name, saved in _OF_KDA.items()}}


def _dense(data: Mapping[str, Any]) -> dict[str, Any]:
    sparse = _of_layers(data, "mlp_layer_types", {"dense": 0, "sparse": 1})
    if sparse != sorted(sparse) or len(sparse) != data["num_hidden_layers"]:
        raise ValueError(sparse)
    return {"first_k_dense_replace": sparse.count(0)}


def _minimax(data: Mapping[str, Any]) -> dict[str, Any]:
    turns = _of_layers(data, "layer_types", {"full_attention": 0, "minimax_m3_sparse": 1})
    sizes = {name: data[saved] for name, saved in _OF_INDEXER.items()}
    return {"sparse_attention_config": {"use_sparse_attention": True, "sparse_attention_freq": turns, **sizes}}


def _nested(data: Mapping[str, Any]) -> dict[str, Any]:
    """Configs inside another one, without the fields that every config class writes."""
    fields, common = dict[str, Any](), COSMETIC | {"dtype"}
    for name in ("attn_config", "ffn_config"):
        inner = data.get(name, {})
        common |= {field for field, row in EVERYWHERE.items() if field in inner and row.gives(inner[field]) is not None}
        fields |= {name: {field: value for field, value in inner.items() if field not in common}} if inner else {}
    if data.get("num_key_value_heads") not in (None, fields["attn_config"].get("kv_n_heads")):
        raise ValueError("num_key_value_heads")
    return fields


def _experts(data: Mapping[str, Any]) -> dict[str, Any]:
    types = dict(data["quantization_config"])
    return {"expert_dtype": types.pop("expert_dtype"), "quantization_config": types}


_NO_GROUPS: Final = {"sliding_attention": 0}
_OF_KDA: Final = {
    "head_dim": "linear_head_dim", "num_heads": "linear_num_heads", "short_conv_kernel_size": "linear_conv_kernel_dim",
}  # fmt: skip
_OF_INDEXER: Final = {
    "sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
    "sparse_topk_blocks": "index_topk_blocks", "sparse_block_size": "index_block_size",
    "sparse_local_block": "index_local_blocks",
}  # fmt: skip
_RULES: Final[tuple[tuple[str, tuple[str, ...], _Rule], ...]] = (
    ("dbrx", ("attn_config", "ffn_config", "num_key_value_heads"), _nested),
    ("deepseek_v4", ("compress_rates", "layer_types"),
     lambda data: {"compress_ratios": _of_layers(data, "layer_types", {**_NO_GROUPS, **data["compress_rates"]})}),
    ("deepseek_v4", ("mlp_layer_types",),
     lambda data: {"num_hash_layers": sum(_of_layers(data, "mlp_layer_types", {"hash_moe": 1, "moe": 0}))}),
    ("deepseek_v4", ("quantization_config",), _experts),
    ("dots1", ("sliding_window",),
     lambda data: {"sliding_window": _of_layers(data, "layer_types", {"full_attention": None})[0]}),
    ("gemma4_text", ("per_layer_config",),
     _sizes_of("full_attention", head_dim="global_head_dim", num_key_value_heads="num_global_key_value_heads")),
    ("kimi_linear", ("layer_types", *_OF_KDA.values()), _kimi),
    ("kimi_linear", ("mlp_layer_types",), _dense),
    ("minimax_m3_vl_text", ("layer_types", *_OF_INDEXER.values()), _minimax),
    ("minimax_m3_vl_text", ("mlp_layer_types",),
     lambda data: {"moe_layer_freq": _of_layers(data, "mlp_layer_types", {"dense": 0, "sparse": 1})}),
    ("mpt", ("attn_config",), _nested),
    ("step3p5", ("per_layer_config",),
     _sizes_of("sliding_attention", num_attention_heads="num_sliding_attention_heads")),
)  # fmt: skip
"""Types, their saved fields, of which the first is always there, and the rule that gives published fields of them."""


def as_published(text: TextConfig) -> TextConfig:
    """A text model's config in the form of published files.

    Examples
    --------
    >>> saved = {"model_type": "phi", "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.4}}
    >>> as_published(TextConfig(saved, {})).data["partial_rotary_factor"]
    0.4
    """
    data, paths, rope = {**text.data}, {**text.paths}, text.data.get("rope_parameters")
    if isinstance(rope, Mapping) and "partial_rotary_factor" in rope:
        data.setdefault("partial_rotary_factor", rope["partial_rotary_factor"])
        paths.setdefault("partial_rotary_factor", text.path("rope_parameters") + ".partial_rotary_factor")
    for kind, saved, rule in _RULES:
        if kind != data["model_type"] or saved[0] not in data:
            continue
        try:
            fields = rule(data)
        except (AttributeError, LookupError, TypeError, ValueError):
            continue  # stays, and is refused by its name
        if all(name in saved or data.get(name, value) == value for name, value in fields.items()):
            paths |= {name: text.path(saved[0]) for name in fields if name not in data}
            data = {name: value for name, value in data.items() if name not in saved} | fields
    return text._replace(data=data, paths=paths)
