"""What a layer saves of a microbatch for the backward pass, relative to what a chip holds of it anyway.

A first pipeline stage that saves activations of more microbatches than the others may fit only with far fewer layers.
Plans with such a stage are many, so on large machines they are left out, which answers then say.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.physics import ops
from dfopt.physics.identity import Same

BALANCED: Final = "first_layers balanced"
"""What is fixed where a first stage has fewer layers only for its work and weights."""
_MOST_CHIPS: Final = 1024  # above, plans are so many that the others alone take tens of seconds
_CACHED: Final = 256  # graphs: their microbatches and ways to recompute


def saved_share(graph: Graph, plan: Plan, asked: Request, assumptions: Assumptions) -> float:
    """Most bytes that a layer saves of one microbatch, relative to the least bytes that a chip holds of it anyway.

    At most all outputs that another pass reads are saved, with masks, whole on every chip. At least weights are held,
    split over all chips that share a layer.

    Parameters
    ----------
    graph, plan
        The model, and the degrees of its plan.
    asked, assumptions
        The request, which may place weights in another memory, and the assumptions.

    Returns
    -------
    float
        0 where stages save activations of equally many microbatches, and on large machines. Infinite if a layer may
        hold nothing else.
    """
    chips = plan.shards * plan.members * plan.stages * plan.copies
    if not differs(graph, assumptions) or not 1 < plan.stages <= plan.microbatches or chips > _MOST_CHIPS:
        return 0.0
    saved, held = _of_layers(Same(graph))
    if not held or asked.offload or asked.place:
        return math.inf
    return saved * plan.shards * plan.members / held


def differs(graph: Graph, assumptions: Assumptions) -> bool:
    """Whether a first stage may save activations of more microbatches than the next, and may have fewer layers."""
    in_turns = graph.trains and assumptions.schedule == "one_f_one_b"
    return in_turns and graph.folded and graph.layers.counted < len(graph.layers.kinds)


def left_out(graph: Graph, chips: int, asked: Request, assumptions: Assumptions) -> bool:
    """Whether a first stage with fewer layers for the activations that it saves is not tried, as plans are too many."""
    piped = asked.on_axes.get("pp") != 1 and asked.first_layers is None
    return piped and chips > _MOST_CHIPS and differs(graph, assumptions)


@lru_cache(maxsize=_CACHED)
def _of_layers(same: Same[Graph]) -> tuple[float, float]:
    """Most bytes that any layer saves of one microbatch, and least bytes of weights."""
    graph = same.document
    pass_of = {kernel.name: kernel.pass_ for kernel in graph.kernels}
    read = {tensor.src for tensor in graph.tensors if pass_of[tensor.dst] != "forward"}
    read |= {tensor.src for tensor in graph.carried}
    layers = [graph.kernels_by_kind[kind] for kind in {*graph.layers.order.tolist()}]
    forward = [[kernel for kernel in kernels if kernel.pass_ == "forward"] for kernels in layers]
    saved = [[kernel for kernel in kernels if kernel.output_saved or kernel.name in read] for kernels in forward]
    return max(sum(_saved_bytes(graph, kernel) for kernel in kernels) for kernels in saved), min(
        sum(ops.weight_elements(kernel) * graph.words.of_weight(kernel) for kernel in kernels) for kernels in forward
    )


def _saved_bytes(graph: Graph, kernel: Kernel) -> float:
    """Bytes of a kernel's output, and of a mask of it."""
    elements = kernel.matrices * kernel.m * kernel.n
    return graph.output_bytes(kernel.name) + (kernel.mask_bytes or 0.0) * elements
