"""What workloads made of equal transformer layers share: the sizes of one, and how many there are."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.workloads.step import StepParameters


class LayerParameters(StepParameters):
    """Sizes of a transformer layer, and the number of layers.

    Attributes
    ----------
    hidden : features, e.g. 4096
        Features of the residual stream of one token (hidden size).
    heads : heads, e.g. 32
        Number of attention heads of each layer.
    head_dim : features, e.g. 128
        Features of one attention head.
    layers : layers, e.g. 32
        Number of identical layers of the model.
    drawn : layers, e.g. 1
        Number of layers that the graph contains one after another, a divisor of ``layers``. The others repeat them.
    checkpoint_every : layers, e.g. 2
        Layers between two checkpoints of full activation recomputation, as in Megatron-LM's uniform method. A chip
        stores all activations of these layers at a time. None: 1.

    Examples
    --------
    >>> LayerParameters(hidden=8, heads=2, head_dim=5, seq=16).width
    10
    """

    hidden: int = Field(ge=1, le=10**7)
    heads: int = Field(ge=1, le=10**5)
    head_dim: int = Field(ge=1, le=10**6)
    layers: int = Field(default=1, ge=1, le=10**6)
    drawn: int = Field(default=1, ge=1, le=10**4)
    checkpoint_every: int | None = Field(default=None, ge=1, le=10**4)

    @property
    def width(self) -> int:
        """Features of Q, K or V over all heads; may differ from ``hidden``."""
        return self.heads * self.head_dim

    @property
    def at_once(self) -> int:
        """Number of layers drawn in a row."""
        return self.checkpoint_every or self.drawn

    @model_validator(mode="after")
    def _checkpoints(self) -> Self:
        if (every := self.checkpoint_every) is None:
            return self
        where = "$.checkpoint_every"
        if self.mode == "forward" or "full" not in self.recompute.split("+"):
            message = f"found {every} layers behind a checkpoint, but recompute: {self.recompute}"
            raise problem(message, "write mode: training and recompute: full, of all layers alike", where)
        if self.layers % every or self.drawn not in (1, every):
            drawn = f", of which {self.drawn} are drawn" if self.drawn > 1 else ""
            message = f"found {every} layers behind a checkpoint, of {self.layers}{drawn}"
            raise problem(message, "choose a divisor, and leave drawn out", where)
        return self

    @model_validator(mode="after")
    def _whole_copies(self) -> Self:
        if self.layers % self.drawn:
            raise problem(
                f"found {self.drawn} drawn layers, expected a divisor of the {self.layers} layers",
                "choose a divisor, or all of them",
                "$.drawn",
            )
        return self


class PlainLayerParameters(LayerParameters):
    """Sizes of a GPT-style layer, with an MLP of 4 x ``hidden`` features by default.

    Attributes
    ----------
    ffn : features, e.g. 16384
        Features inside the MLP of each layer. None: 4 x hidden.

    Examples
    --------
    >>> PlainLayerParameters(hidden=8, heads=2, head_dim=4, seq=16).ffn_features
    32
    """

    ffn: int | None = Field(default=None, ge=1, le=10**8)

    @property
    def ffn_features(self) -> int:
        """Hidden features of the MLP."""
        return 4 * self.hidden if self.ffn is None else self.ffn
