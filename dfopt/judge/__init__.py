"""The independent judge: every figure of a mapping, from the graph, the system and the mapping alone.

It shares formulas of single operations (`dfopt.physics`) with the optimiser, but none of its tables,
models or results: when the two disagree, one of them has a bug.
"""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping
from dfopt.documents.score import Score
from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.judge import case, fit, network, timing, traffic

__all__ = ["evaluate"]


def evaluate(
    mapping: Mapping,
    graph: Graph,
    system: System,
    assumptions: Assumptions | None = None,
    stack: Stack | None = None,
    *,
    physical: bool = True,
    throttle: bool = True,
) -> Score:
    """Evaluate a mapping like `dfopt.evaluate`, but for documents only.

    Parameters
    ----------
    mapping, graph, system, assumptions, stack, physical, throttle
        As for `dfopt.evaluate`, without names and paths.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> from dfopt.documents.mapping import KernelMapping
    >>> from dfopt.documents.plan import Plan
    >>> from dfopt.documents.system import Chip, Dram, Sram
    >>> graph = Graph(name="one", kernels=(Kernel(name="a", op="gemm", m=100, k=100, n=100),))
    >>> chip = Chip(name="c", tiles=1, peak=1e6, compute_utilization=0.5, sram=Sram(capacity=1e6),
    ...             dram=Dram(bandwidth=1e6))
    >>> places = (KernelMapping(name="a", partition=0),)
    >>> mapping = Mapping(graph="one", system="s", plan=Plan(), kernels=places)
    >>> score = evaluate(mapping, graph, System(name="s", chip=chip))
    >>> score.step_time_s, score.bound_by, score.utilization
    (4.0, 'compute', 0.5)

    On a stack of dies, with 16 TB/s where the chip above has 1 MB/s:

    >>> from dfopt.documents.zoo import find
    >>> on = Stack.load(find("stacks", "hybrid-vault"))
    >>> physical = evaluate(mapping, graph, System(name="s", chip=chip), stack=on).physical
    >>> physical.step_time_s, physical.throttled, physical.partitions[0].dram_binding
    (4.0, False, 'port')
    """
    system.check_extremes()
    conventions = (assumptions if assumptions is not None else Assumptions()).hiding(mapping.plan.tensor_overlap)
    chosen = stack if stack is not None else system.stack
    fit.check(mapping, graph, system, conventions, chosen)
    looked_up = case.build(mapping, graph, system, conventions)
    tiling, paid = traffic.weight_parts(looked_up), network.tensor_parallel(looked_up)
    score = timing.score(looked_up, tiling, paid)
    if chosen is None or not physical:
        return score
    from dfopt.judge.physical import physical_score  # numpy: not for those who never ask

    return score.model_copy(update={"physical": physical_score(looked_up, score, tiling, paid, chosen, throttle)})
