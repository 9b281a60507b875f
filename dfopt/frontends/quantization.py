"""The ``quantization_config`` of a Hugging Face model as types of a graph: fp8 weights, or experts in mxfp4.

What the checkpoint leaves as it is (``modules_to_not_convert``) is told by the names of its modules, which a table
lists: the head, embeddings, norms and routers. The head and the embedding are class ``ends`` of the graph; norms have
no weights there, and routers count with the other weights. A name that is not in the table is refused.

Source: ``FineGrainedFP8Config`` of transformers 4.49, and the files of the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dfopt.errors import Issue, did_you_mean, shown

__all__ = ["quantized_types"]

_WIDE: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "quant_method": ("fp8", "mxfp4"),
    "fmt": ("e4m3", "float8_e4m3fn"),
    "activation_scheme": ("dynamic", "static"),
    "weight_block_size": ([128, 128], None),
    "scale_fmt": ("ue8m0", None),
}
_OPTIONAL: Final = ("weight_block_size", "scale_fmt", "modules_to_not_convert")
_AS_IT_IS: Final = re.compile(
    r"lm_head|(model\.)?(embed_tokens|norm)"
    r"|(model\.)?layers\.(\d+|\*)\.(input_layernorm|post_attention_layernorm|mlp\.gate|mlp\.router)"
)


def quantized_types(config: Mapping[str, Any], wide: object, where: str) -> tuple[dict[str, str], list[Issue]]:
    """Types by class that a config says, and what is wrong with it.

    Parameters
    ----------
    config : mapping
        The value of the field.
    wide : object
        The type of what is not quantized, as ``torch_dtype`` calls it.
    where : str
        Path of the field.

    Examples
    --------
    >>> fp8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    >>> quantized_types(fp8, "bfloat16", "$.quantization_config")[0]["weights"]
    'fp8_128x128'
    """
    if config.get("quant_method") == "mxfp4":
        return _experts_only(config, wide, where)
    issues = list(_issues(config, where))
    if issues or wide not in _WIDE:  # of which the field itself says what is wrong
        return {}, issues
    blocks = config.get("weight_block_size") is not None
    scales = f"_{config['scale_fmt']}" if blocks and config.get("scale_fmt") else ""
    narrow = {"weights": f"fp8_128x128{scales}", "operands": f"fp8_1x128{scales}"} if blocks else {}
    left = _WIDE[str(wide)]
    return {"weights": "fp8", "operands": "fp8", **narrow, "activations": left, "ends": left}, []


_NOT_EXPERTS: Final = ("lm_head", "model.embed_tokens", "model.layers.*.mlp.router", "model.layers.*.self_attn")


def _experts_only(config: Mapping[str, Any], wide: object, where: str) -> tuple[dict[str, str], list[Issue]]:
    """Types of a model whose experts alone are stored in mxfp4 (gpt-oss), and multiplied as wide as activations."""
    issues = []
    for name in config:
        if name not in ("quant_method", "modules_to_not_convert"):
            issues.append(Issue(f"{where}.{name}", "not understood, and could change a size"))
    kept = config.get("modules_to_not_convert")
    if not isinstance(kept, list) or sorted(map(str, kept)) != [*_NOT_EXPERTS]:
        message = f"found {shown(kept)}, expected all modules but the experts: {', '.join(_NOT_EXPERTS)}"
        issues.append(Issue(f"{where}.modules_to_not_convert", message))
    if issues or wide not in _WIDE:
        return {}, issues
    left = _WIDE[str(wide)]
    return {"weights": left, "experts": "mxfp4", "activations": left, "ends": left}, []


def _issues(config: Mapping[str, Any], where: str) -> Iterator[Issue]:
    known = (*_VALUES, "modules_to_not_convert")
    for name, value in config.items():
        if name not in known:
            yield Issue(f"{where}.{name}", "not understood, and could change a size", did_you_mean(name, known))
        elif name in _VALUES and not any(type(value) is type(one) and value == one for one in _VALUES[name]):
            expected = " or ".join("null" if one is None else str(one) for one in _VALUES[name])
            yield Issue(f"{where}.{name}", f"found {shown(value)}, expected {expected}")
    for name in known:
        if name not in config and name not in _OPTIONAL:
            yield Issue(f"{where}.{name}", "missing", "it has no default")
    kept = config.get("modules_to_not_convert") or []
    for place, name in enumerate(kept if isinstance(kept, list) else [kept]):
        if not isinstance(name, str) or not _AS_IT_IS.fullmatch(name):
            message = f"found {shown(name)}, expected a head, an embedding, a norm or a router"
            yield Issue(f"{where}.modules_to_not_convert[{place}]", message, "other weights would differ among layers")
            return
