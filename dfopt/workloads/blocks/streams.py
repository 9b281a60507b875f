"""Several residual streams instead of one: hyper-connections, as in DeepSeek-V4.

In front of a mixer or a feed-forward, streams are added up to what it reads; behind it, what it gives is added to each,
and they are mixed among each other. The weights of all that are computed from all streams of a token; a matrix of them
is normalised again and again by rows and by columns. The embedding is put into every stream, and behind the last layer
they are added up once more, which one kernel does with the product that gives those weights. They count as traffic
in front of a part and not behind it: they are a few numbers of a token.

Sources: ``inference/model.py`` of deepseek-ai/DeepSeek-V4-Flash on the Hugging Face hub; hyper-connections
(arXiv:2409.19606), on a manifold of doubly stochastic matrices (arXiv:2512.24880).
"""

from __future__ import annotations

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.workloads.drawing import Drawing


class Streams(Part):
    """Hyper-connections: number of residual streams, and how their mixing weights are normalized.

    Attributes
    ----------
    count : streams, e.g. 4
        Number of residual streams of the model.
    iterations : iterations, e.g. 20
        Number of normalizations of the stream weights, each by rows and columns.

    Examples
    --------
    >>> Streams(count=4).parameters(hidden=4096), Streams(count=4).end_parameters(hidden=4096)
    (393243, 65541)
    """

    count: int = Field(ge=2, le=100)
    iterations: int = Field(default=20, ge=0, le=1000)

    @property
    def _weights(self) -> int:
        """Weights of a token: of what is read, of what is written, and of every stream for every other."""
        return self.count * (2 + self.count)

    def parameters(self, hidden: int) -> int:
        """Number of parameters for one mixer or feed-forward: product, bias, and a factor for each of three parts."""
        return self._weights * (self.count * hidden + 1) + 3

    def end_parameters(self, hidden: int) -> int:
        """Number of parameters of the sum of streams after the last layer."""
        return self.count * (self.count * hidden + 1) + 1

    def read(self, drawing: Drawing, number: int, hidden: int, residual: str) -> str:
        """Draw the mixing weights, and the sum of streams that a mixer or feed-forward reads.

        Parameters
        ----------
        drawing
            The layer so far.
        number
            Place of the mixer or feed-forward in its layer, from 1 on.
        hidden
            Features of a token in one stream.
        residual
            Kernel whose output is all streams.
        """
        weights, count = self._weights, self.count
        mix = drawing.linear(f"Mix_{number}", weights, count * hidden, residual, role="router")
        work = 4 * self.iterations * count**2  # of a token, for sums and quotients by rows and by columns
        each = 2 * count - (-work // hidden)
        return drawing.pointwise(f"Streams_{number}", hidden, residual, mix, flop_per_element=each)

    def write(self, drawing: Drawing, number: int, hidden: int, out: str, residual: str) -> str:
        """Draw the updated streams, from the old ones and the output of a mixer or feed-forward; return its name.

        Parameters
        ----------
        drawing, number, hidden, residual
            As of :meth:`read`.
        out
            Kernel whose output, ``hidden`` features of a token, is added.
        """
        each = {"flop_per_element": 1 + 2 * self.count}
        return drawing.pointwise(f"Add_{number}", self.count * hidden, out, residual, role="residual", **each)

    def end(self, drawing: Drawing, hidden: int) -> str:
        """Draw the weighted sum of streams after the last layer; return the name of the last kernel."""
        size = self.count**2 * hidden * drawing.words.weights
        work = 2 * self.count * (self.count + 1)
        return drawing.pointwise("Streams", hidden, flop_per_element=work, dram_bytes=size, resident_bytes=size)
