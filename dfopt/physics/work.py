"""The work of a step, however it is mapped."""

from __future__ import annotations

import math

from dfopt.documents.graph import Graph
from dfopt.documents.sections import Layers
from dfopt.physics.ops import flop


def flop_of_step(graph: Graph, layers: Layers | None = None) -> float:
    """FLOP of one step: all kernels, as often as the model evaluates them, over all microbatches.

    ``layers``: those of a plan that recomputes some, instead of the graph's.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> one = Kernel(name="a", op="gemm", m=10, k=10, n=10)
    >>> flop_of_step(Graph(name="g", kernels=(one,), batch=8, microbatch=2))
    8000.0
    """
    layers = layers or graph.layers
    often = (layers.times(graph.kind_of(kernel)) if graph.folded else 1 for kernel in graph.kernels)
    once = math.fsum(times * flop(kernel) for times, kernel in zip(often, graph.kernels, strict=True))
    return once * (graph.batch / graph.microbatch)
