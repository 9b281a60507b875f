"""What of a model its kernels do not show, told from its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dfopt.documents.architecture import Architecture
from dfopt.workloads.blocks.attention import Attention
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.ends import EndsParameters

_BIASES: Final[Mapping[Any, str]] = {("none", False): "none", ("qkv", False): "qkv", ("all", True): "all"}
"""By biases of attention and of the feed-forward behind it."""


def architecture_of(p: EndsParameters, layers: Iterable[Mapping[int, Block]]) -> Architecture:
    """Architecture of a model; properties in which its attention layers differ are left out."""
    biases, norms = set[str | None](), set[str]()
    for parts in layers:
        if isinstance(mixer := parts.get(1), Attention):
            norms.add(mixer.qk_norm)
            biases.add(_BIASES.get((mixer.bias, getattr(parts.get(2), "bias", mixer.bias == "all"))))
    return Architecture(
        norm=p.norm,
        bias=biases.pop() if len(biases) == 1 else None,
        tied_embeddings=p.tie_embeddings,
        qk_norm=norms.pop() if len(norms) == 1 else None,
        rotary_base=p.rotary_base,
        rotary_scaling=p.rotary_scaling,
    )
