"""Conditioning of layers: norms and residuals are scaled by what a time step and a class say (adaLN-Zero).

The encoding of a time step and the row of a class become one vector for each sample. Every layer makes of it a scale
and a shift for each of its norms, which have no gains of their own, and a gate for what is added to the residual; the
final norm has a scale and a shift too. All of them are products for one token of each sample.

Source: Peebles and Xie, Scalable Diffusion Models with Transformers (arXiv:2212.09748), section 3.2.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.documents.graph import Kernel
from dfopt.workloads.drawing import Drawing
from dfopt.workloads.sketch import Read

_Reads = dict[int, tuple[Read, ...]]  # by part of a layer

PARTS, FINAL = 3, 2
"""Vectors for a mixer or a feed-forward: scale, shift and gate; and for the final norm, which adds nothing."""


class Conditioning(Part):
    """Conditioning of all layers of a diffusion transformer on time step and class.

    Attributes
    ----------
    inputs : features, e.g. 256
        Features of the encoding of a time step.
    classes : classes, e.g. 1001
        Rows of a learned table of classes, one of which is added. 0 means there is no table.

    Examples
    --------
    Of DiT-XL/2, without the table of classes:

    >>> Conditioning(inputs=256, classes=1001).parameters(1152)
    4280832
    """

    inputs: int = Field(ge=1, le=10**6)
    classes: int = Field(default=0, ge=0, le=10**9)

    def parameters(self, hidden: int) -> int:
        """Number of parameters: time-step MLP, and modulation of the final norm."""
        return hidden * (self.inputs + 1) + hidden * (hidden + 1) + modulation_parameters(hidden, FINAL)

    def draw(self, drawing: Drawing, hidden: int) -> None:
        """Draw the conditioning vector of every sample, and the modulation of the final norm; both stay in DRAM."""
        vector = drawing.draw(_product(drawing, "Condition_1", hidden, self.inputs))
        left = {"dram_bytes": drawing.bytes(hidden * drawing.sequences)}  # for all layers
        vector = drawing.draw(_product(drawing, "Condition_2", hidden, hidden, **left), vector)
        drawing.draw(_product(drawing, "Modulation_Final", FINAL * hidden, hidden), vector)


def modulation(drawing: Drawing, hidden: int, parts: int) -> tuple[_Reads, _Reads]:
    """Draw the adaptive scales, shifts and gates of a layer.

    Parameters
    ----------
    drawing
        The layer so far.
    hidden
        Features of a token.
    parts
        Mixers and feed-forwards of the layer, numbered from 1.

    Returns
    -------
    (scaled, gated)
        For each part, the reads of its norm (scale and shift) and of its sum with the residual (gate).
    """
    samples = drawing.sequences
    vector = drawing.draw(Kernel(name="Condition", op="elementwise", m=hidden, n=samples, stream="none"))
    name = drawing.draw(_product(drawing, "Modulation", PARTS * parts * hidden, hidden), vector)
    vector_bytes = drawing.bytes(hidden * samples)
    scaled, gated = _Reads(), _Reads()
    for number in range(1, parts + 1):
        scaled[number] = (Read(name, None, 2 * vector_bytes, f"scale and shift {number}"),)
        gated[number] = (Read(name, None, vector_bytes, f"gate {number}"),)
    return scaled, gated


def modulation_parameters(hidden: int, vectors: int) -> int:
    """Number of parameters of the product that computes ``vectors`` modulation vectors.

    Examples
    --------
    >>> modulation_parameters(8, 2)
    144
    """
    return vectors * hidden * (hidden + 1)


def _product(drawing: Drawing, name: str, m: int, k: int, **fields: Any) -> Kernel:
    return Kernel(name=name, op="gemm", m=m, k=k, n=drawing.sequences, stream="none", **fields)
