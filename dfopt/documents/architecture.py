"""What a model is beside the shapes of its kernels: nothing that it costs depends on it, files of other tools do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part

__all__ = ["Architecture"]


class Architecture(Part):
    """Which norms, biases and positions a model has, of all its layers alike; none = that is not known.

    Examples
    --------
    >>> Architecture(norm="rmsnorm", tied_embeddings=False).unknown
    ['biases', 'norms of queries and keys', 'rotary base']
    """

    norm: Literal["rmsnorm", "layernorm"] | None = Field(default=None, description="in front of or behind layers")
    bias: Literal["none", "qkv", "all"] | None = Field(default=None, description="projections that have one")
    tied_embeddings: bool | None = Field(default=None, description="logits with the embedding's matrix")
    qk_norm: Literal["none", "head", "all"] | None = Field(
        default=None, description="a norm of queries and keys, over each head or over all of them"
    )
    rotary_base: float | None = Field(default=None, gt=0, description="of rotary position embedding")
    rotary_scaling: float | None = Field(default=None, gt=0, description="factor of its scaling as in Llama 3.1")

    @property
    def unknown(self) -> list[str]:
        """What is not known, in words; a scaling that nothing says of is none."""
        words = {
            "norm": "norms",
            "bias": "biases",
            "tied_embeddings": "tied embeddings",
            "qk_norm": "norms of queries and keys",
            "rotary_base": "rotary base",
        }
        return [text for name, text in words.items() if getattr(self, name) is None]
