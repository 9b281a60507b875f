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
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["Window", "running"]


@dataclass(frozen=True)
class Window:
    """What a chip has to do in a backward pass, in seconds of one layer and one microbatch.

    ``exchange_s``: of a layer's gradients and weights; ``backward_s``: its whole backward pass; ``memory_s`` and
    ``compute_s`` what of that is memory and compute; ``hop_s``: of a message to another stage, ``in_the_way``: whether
    on the network of the exchange; ``usage``: share of the processor that this takes.
    """

    exchange_s: float
    backward_s: float
    memory_s: float
    compute_s: float
    hop_s: float
    in_the_way: bool
    usage: float

    def exposed_s(self, stages: int, chunks: int, layers: int, microbatches: int) -> float:
        """Seconds of a step that show: of a stage's ``layers`` in so many ``chunks``.

        Examples
        --------
        Of 4 layers of 1 s each the last one shows; 0.9 s of a layer can be hidden behind each of the others but one.

        >>> narrow = Window(1.0, 1.0, 0.1, 0.9, 0.0, False, 0.0)
        >>> round(narrow.exposed_s(stages=1, chunks=1, layers=4, microbatches=8), 12)
        1.4
        """
        each = layers / chunks
        free_s = each * (self.backward_s - self.memory_s) + self.hop_s
        chunk_s, compute_s = each * self.exchange_s, each * self.compute_s
        found = self.exchange_s  # of the last layer
        if chunks > 1:
            waits = 0.0
            if self.in_the_way:
                waits = min(chunk_s // (each * self.backward_s + self.hop_s), microbatches % stages or stages)
            open_s = stages * free_s - waits * self.hop_s
            found += (chunks - 1) * self._shows_s(chunk_s, stages * compute_s, open_s)
        last_s = free_s - self.hop_s - (self.backward_s + self.hop_s / 2) if each > 1 else 0.0
        return found + self._shows_s((each - 1) * self.exchange_s, self.compute_s, last_s)

    def _shows_s(self, exchange_s: float, compute_s: float, open_s: float) -> float:
        over = exchange_s + compute_s * self.usage - open_s
        return over if over > 0 else exchange_s * self.usage


def running(parts: Iterable[tuple[float, int]]) -> float:
    """Sum of running totals: of seconds in order, each counted with all before it as often as is said.

    Examples
    --------
    >>> running([(1.0, 1), (2.0, 0), (3.0, 1)])  # 1, and 1 + 2 + 3
    7.0
    """
    seconds, times = zip(*parts, strict=True)
    return float(sum(total * often for total, often in zip(accumulate(seconds), times, strict=True)))
