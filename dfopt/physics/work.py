"""The work of a step, however it is mapped."""

from __future__ import annotations

import math

from dfopt.documents.graph import Graph
from dfopt.physics.ops import flop

__all__ = ["flop_of_step"]


def flop_of_step(graph: Graph) -> float:
    """FLOP of one step: every kernel as often as the model evaluates it, for every microbatch of the batch.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> one = Kernel(name="a", op="gemm", m=10, k=10, n=10)
    >>> flop_of_step(Graph(name="g", kernels=(one,), batch=8, microbatch=2))
    8000.0
    """
    once = math.fsum(graph.times_of(kernel) * flop(kernel) for kernel in graph.kernels)
    return once * (graph.batch / graph.microbatch)
