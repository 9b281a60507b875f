"""Gradients and weights exchanged while a pipeline is in its backward pass, as Calculon counts what shows of them.

Source: Isaev et al., SC23, and github.com/calculon-ai/calculon, `calculon/llm/llm.py` at commit caa4b11. What is its
own, unlike :mod:`dfopt.physics.overlap`:

* Weights are brought together behind the backward pass too, as if they were gradients.
* All chunks of layers but the last hide behind the backward pass of as many microbatches as the pipeline has stages;
  of the last chunk all layers but one.
* Nothing is exchanged while a chip waits for its memory; messages to other stages on the same network are in the way.
* A share of the processor sees to the exchange, which slows down what it hides behind.
* Memory time and compute time of what is computed again are sums of running totals: of every kernel that is, the time
  of all forward kernels up to it. So little is left to hide behind where all of a layer is computed again.

**At least.** With ``t`` seconds of a layer, ``f`` of them of its forward pass, and ``m`` that a window loses to memory,
a layer has ``t - f - m`` to hide behind. With the least of ``f``, ``m``, the exchange, compute and the message, nothing
in the way, and what is hidden not slowed down, what shows is at least the largest of four lines of ``t``: the last
layer, and beside it what exceeds the windows of all chunks but the last, of the last, of both, or of none. They fall as
``t`` grows, but a step has ``t`` in every microbatch, and grows as fast at least where there are as many of these as
stages, as in all that are interleaved. So the same function of lower bounds is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph


def by_window(assumptions: Assumptions, graph: Graph) -> bool:
    """Whether exchanges are hidden by Calculon's window rule, which holds for repeated layers."""
    way = assumptions.gradient_overlap
    return way in ("calculon", "calculon_or_none") and graph.folded and graph.trains


@dataclass(frozen=True)
class Window:
    """Work of a chip in the backward pass of one layer and microbatch, s, as Calculon counts it.

    ``exchange_s``: the exchange of a layer's gradients and weights; ``backward_s``: the whole backward pass;
    ``memory_s``, ``compute_s``: its memory and compute time; ``hop_s``: a message to another stage; ``in_the_way``:
    whether that message uses the network of the exchange; ``usage``: share of the processor that the exchange takes.
    """

    exchange_s: float
    backward_s: float
    memory_s: float
    compute_s: float
    hop_s: float
    in_the_way: bool
    usage: float

    def exposed_s(self, stages: int, chunks: int, layers: int, microbatches: int) -> float:
        """Exposed seconds of a step: exchange that a stage of ``layers`` layers in ``chunks`` chunks cannot hide.

        Parameters
        ----------
        stages, chunks : int
            Pipeline stages, and chunks of layers of each.
        layers, microbatches : int
            Layers of a stage, and microbatches of the step.

        Examples
        --------
        Of 4 layers of 1 s each the last one shows; 0.9 s of a layer can be hidden behind each of the others but one.

        >>> narrow = Window(1.0, 1.0, 0.1, 0.9, 0.0, False, 0.0)
        >>> round(narrow.exposed_s(stages=1, chunks=1, layers=4, microbatches=8), 12)
        1.4
        """
        seconds = self.exchange_s, self.backward_s, self.memory_s, self.compute_s, self.hop_s
        figures = *seconds, self.in_the_way, self.usage
        return float(exposed_in_windows(figures, stages, chunks, layers, microbatches))


def exposed_in_windows(
    figures: Sequence[ArrayLike], stages: ArrayLike, chunks: ArrayLike, layers: ArrayLike, microbatches: ArrayLike
) -> Floats:
    """Exposed seconds of a step for many stages at once, all arrays broadcast together.

    Parameters
    ----------
    figures
        Arrays for the fields of :class:`Window`, in their order.
    stages, chunks, layers, microbatches
        As for :meth:`Window.exposed_s`.
    """
    exchange, backward, memory, compute, hop, across, share, degree, parts, held, many = (
        np.asarray(each, dtype=np.float64) for each in (*figures, stages, chunks, layers, microbatches)
    )
    each = np.maximum(held / parts, 1.0)  # chunks of several stages may differ
    free, chunk = each * (backward - memory) + hop, each * exchange
    with np.errstate(divide="ignore", invalid="ignore"):
        often = np.minimum(chunk // (each * backward + hop), np.where(many % degree > 0, many % degree, degree))
    waits = np.where((across > 0) & (parts > 1), often, 0.0)
    others = _shows(chunk, degree * each * compute, degree * free - waits * hop, share)
    last = np.where(each > 1, free - hop - (backward + hop / 2), 0.0)
    exposed = exchange + np.where(parts > 1, (parts - 1) * others, 0.0)  # of the last layer, and of chunks but the last
    return np.asarray(exposed + _shows((each - 1) * exchange, compute, last, share))


def _shows(exchange: Floats, compute: Floats, free: Floats, usage: Floats) -> Floats:
    """What shows of exchanges beside a window that is open for so long."""
    over = exchange + compute * usage - free
    return np.where(over > 0, over, exchange * usage)


def running(parts: Iterable[tuple[float, int]]) -> float:
    """Weighted sum of running totals: each of the (seconds, count) pairs counts with all before it.

    Examples
    --------
    >>> running([(1.0, 1), (2.0, 0), (3.0, 1)])  # 1, and 1 + 2 + 3
    7.0
    """
    seconds, times = zip(*parts, strict=True)
    return float(sum(total * often for total, often in zip(accumulate(seconds), times, strict=True)))
