"""What the stages of a plan keep in DRAM, and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dfopt.documents.graph import PIECES, Graph
from dfopt.errors import Infeasible
from dfopt.physics.memory import DramUse, dram_shortage, dram_use
from dfopt.physics.pipeline import microbatches_in_flight, once_in_flight
from dfopt.setting.instance import Instance
from dfopt.setting.stages import PipelineStage
from dfopt.setting.tables import ShardedGraph


def dram_left(instance: Instance, parts: Mapping[int, ShardedGraph]) -> dict[int, float]:
    """DRAM left for what waits between the partitions of each stage of the mapping.

    Kernels that run in several pipeline stages have what the fullest of those leaves. Only there a tensor is counted
    at a time: the partitions of one stage of the mapping run before those of the next.

    Parameters
    ----------
    parts : dict
        The kernels of each stage of the mapping that has any, sharded.

    Returns
    -------
    dict
        Bytes per chip, by stage of the mapping; infinite where the DRAM has no limit.

    Raises
    ------
    Infeasible
        If weights, gradients, optimizer state and saved activations alone exceed the capacity of a pipeline stage.
    """
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    capacity = instance.system.chip.dram.capacity
    left = dict.fromkeys(parts, float("inf"))
    if capacity is None:
        return left
    held = {number: _held(graph, part) for number, part in parts.items()}
    for stage in instance.pipeline:
        use = DramUse(0.0, 0.0, 0.0, 0.0, 0.0)
        for number, times in stage.runs:
            if number in held:
                in_flight = waiting(instance, stage, number)
                weights, saved, resident = held[number]
                use += dram_use(graph, plan, assumptions, weights, saved, times, resident, in_flight)
        if use.fixed > capacity:
            raise Infeasible(dram_shortage(use, capacity, stage.name))
        for number, _ in stage.runs:
            if number in left:
                left[number] = min(left[number], capacity - use.fixed)
    return left


def waiting(instance: Instance, stage: PipelineStage, number: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds of a stage of the mapping.

    Where all pipeline stages stand for one, or kernels are drawn once, as many as the first one holds.
    """
    graph, plan, schedule = instance.graph, instance.plan, instance.assumptions.schedule
    if graph.has_pieces and number > 0:
        return once_in_flight(plan, graph.trains, schedule, last=PIECES[number] == "last")
    place = stage.number if graph.has_pieces else 0
    return microbatches_in_flight(plan, graph.trains, schedule, place)


def _held(graph: Graph, stage: ShardedGraph) -> tuple[float, float, float]:
    """Bytes of weights, saved activations and tables of one evaluation of some kernels."""
    # the GEMMs of the backward pass read the forward weights again: the same parameters
    only_forward = graph.trains and any(k.op == "gemm" and k.phase == "forward" for k in graph.kernels)
    weights = float(stage.weight_k[stage.forward_k].sum() if only_forward else stage.weight_k.sum())
    n = len(stage.names)
    padded = np.concatenate([stage.forward_k, [False]])
    own = (stage.src_t < n) & stage.saved_t & padded[stage.src_t]
    _, first = np.unique(stage.group_t[own], return_index=True)
    saved = float(stage.b_t[own][first].sum())
    index = graph.index()
    resident = sum(graph.kernels[index[name]].resident_bytes for name in stage.names)
    return weights, saved, resident
