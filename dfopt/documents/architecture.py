"""What a model is beside the shapes of its kernels: nothing that it costs depends on it, files of other tools do."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part


class Architecture(Part):
    """Norms, biases and position encodings of a model, equal in all layers; None: not known.

    Attributes
    ----------
    norm : e.g. rmsnorm
        Normalization that the layers use. ``rmsnorm``: root mean square. ``layernorm``: mean and variance. None:
        unknown.
    bias : e.g. none
        Projections that add a bias. ``none``: no projection. ``qkv``: those of queries, keys and values. ``all``: all
        projections. None: unknown.
    tied_embeddings : e.g. false
        Whether the logits use the matrix of the embedding. None: unknown.
    qk_norm : e.g. head
        Normalization of queries and keys. ``none``: no normalization. ``head``: over each head. ``all``: over all heads
        together. None: unknown.
    rotary_base : no unit, e.g. 500000.0
        Base of the rotary position embedding (theta). None: unknown.
    rotary_scaling : no unit, e.g. 8.0
        Factor by which rotary positions are scaled for long contexts, as in Llama 3.1. None: no scaling.

    Examples
    --------
    >>> Architecture(norm="rmsnorm", tied_embeddings=False).unknown
    ['biases', 'norms of queries and keys', 'rotary base']
    """

    norm: Literal["rmsnorm", "layernorm"] | None = None
    bias: Literal["none", "qkv", "all"] | None = None
    tied_embeddings: bool | None = None
    qk_norm: Literal["none", "head", "all"] | None = None
    rotary_base: float | None = Field(default=None, gt=0)
    rotary_scaling: float | None = Field(default=None, gt=0)

    @property
    def unknown(self) -> list[str]:
        """Properties that are not known, in words; an unstated scaling counts as none."""
        words = {
            "norm": "norms",
            "bias": "biases",
            "tied_embeddings": "tied embeddings",
            "qk_norm": "norms of queries and keys",
            "rotary_base": "rotary base",
        }
        return [text for name, text in words.items() if getattr(self, name) is None]
