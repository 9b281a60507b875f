"""A short convolution between two gates, as in LFM2: what is kept of a sequence are the inputs of a few tokens.

A product gives three features for each of the residual: one is multiplied with the second, convolved over a few tokens
and multiplied with the third, and a second product leads out.

Source: ``modeling_lfm2.py`` of transformers 5.23.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.workloads.blocks.recurrent import Recurrent
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read


class GatedConvolution(Recurrent):
    """Short depthwise convolution over the last tokens, with an input gate and an output gate.

    Attributes
    ----------
    kind : e.g. gated_convolution
        Kind of the block: gated_convolution, a short convolution between two gates as in LFM2.
    inner : features, e.g. 2048
        Features that the convolution processes.
    bias : e.g. false
        Whether projections and convolution add a bias. It changes the parameter count only.

    Examples
    --------
    >>> GatedConvolution(kind="gated_convolution", inner=8, convolution=3).parameters(hidden=8)
    280
    """

    kind: Literal["gated_convolution"]
    inner: int = Field(ge=1, le=10**5)
    bias: bool = False

    @property
    def convolved(self) -> int:
        """Number of features that pass the convolution."""
        return self.inner

    def parameters(self, hidden: int) -> int:
        """Number of parameters: projections and convolution."""
        products = hidden * 3 * self.inner + self.inner * hidden
        return products + self.inner * self.convolution + self.bias * (4 * self.inner + hidden)

    def draw(self, drawing: Drawing, hidden: int, source: str) -> str:
        """Draw projections, gates and convolution; return the name of the last kernel."""
        inner, outputs = self.inner, list[str]()
        into = drawing.linear("BCX_Proj", 3, hidden, source, outer=inner)
        for part in drawing.each():
            gated = Read(into, None, part.bytes(2 * inner * part.tokens), "convolved")
            mixed = self._convolve(part, "Convolution", inner, 1, gated)
            gate = Read(into, None, part.bytes(inner * part.tokens), "gate")
            outputs.append(part.by_head("Gated", inner, 1, mixed, gate))
        return drawing.linear("O_Proj", hidden, inner, *drawing.joined(outputs))
