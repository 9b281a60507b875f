"""Mixers side by side, as in Falcon-H1: all read the same residual, and what they give is added up.

Kernels and states of all but the first are called after their kind.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import problem
from dfopt.documents.phase import Segment
from dfopt.workloads.blocks.attention import Attention
from dfopt.workloads.blocks.block import Block
from dfopt.workloads.blocks.gated_convolution import GatedConvolution
from dfopt.workloads.blocks.mamba import Mamba, Mamba2
from dfopt.workloads.blocks.recurrent import GatedDeltaNet, KimiDeltaAttention
from dfopt.workloads.drawing import Drawing

_One = Annotated[
    Attention | GatedConvolution | GatedDeltaNet | KimiDeltaAttention | Mamba | Mamba2, Field(discriminator="kind")
]


class Beside(Block):
    """Several mixers in parallel with the same input.

    Attributes
    ----------
    kind : e.g. beside
        Kind of the block: beside (parallel), several mixers that read the same input and add their outputs.
    mixers : e.g. [{kind: attention, heads: 4, head_dim: 2}, {kind: mamba2, heads: 4, head_dim: 2, state: 4}]
        Mixers of the block, each of another kind.

    Examples
    --------
    >>> attention = {"kind": "attention", "heads": 4, "head_dim": 2}
    >>> scan = {"kind": "mamba2", "heads": 4, "head_dim": 2, "state": 4}
    >>> both = Beside(kind="beside", mixers=[attention, scan])
    >>> both.parameters(hidden=8), both.token_elements
    (644, 16)
    """

    kind: Literal["beside"]
    mixers: tuple[_One, ...] = Field(min_length=2, max_length=10)

    @model_validator(mode="after")
    def _differ(self) -> Self:
        kinds = [mixer.kind for mixer in self.mixers]
        if len({*kinds}) < len(kinds):
            raise problem(f"found {', '.join(kinds)}", "one of a kind: their kernels are called after it", "$.mixers")
        return self

    @property
    def token_elements(self) -> float:
        """Cached elements per token over all mixers."""
        return sum(mixer.token_elements for mixer in self.mixers)

    def parameters(self, hidden: int) -> int:
        """Number of parameters of all mixers."""
        return sum(mixer.parameters(hidden) for mixer in self.mixers)

    def misfit(self, segment: Segment, *, trains: bool) -> tuple[str, str] | None:
        """Reason and remedy if a mixer cannot process a segment or train (parallel mixers never train), or None."""
        if trains:
            return "found mixers side by side in a training step, whose gradients are not drawn", "write mode: forward"
        return next((misfit for mixer in self.mixers if (misfit := mixer.misfit(segment, trains=trains))), None)

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw all mixers and the sum of their outputs; return the name of the last kernel."""
        views = (drawing.prefixed(f"{mixer.kind}_" if place else "") for place, mixer in enumerate(self.mixers))
        outputs = [mixer.draw(view, hidden, source) for view, mixer in zip(views, self.mixers, strict=True)]
        return drawing.pointwise("Mixers_Add", hidden, *outputs)
