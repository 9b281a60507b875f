"""Between the two problems: what a pipeline stage runs, sends to its neighbours, and keeps in DRAM.

Kernels are in *stages of the mapping*, each a fusion problem of its own: those of a graph drawn once are its pipeline
stages. A repeated layer is stage 0, whatever pipeline stage a repeat is in, and kernels before the first or after the
last repeat are stages 1 and 2 (:data:`dfopt.documents.graph.PIECES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import PIECES, Graph
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.physics.collectives import Collective
from dfopt.physics.memory import DramUse, dram_shortage, dram_use
from dfopt.physics.network import communication_seconds
from dfopt.physics.pipeline import microbatches_in_flight, once_in_flight
from dfopt.setting.tables import Floats, ShardedGraph

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PipelineStage:
    """One pipeline stage, or several that are alike.

    Attributes
    ----------
    number : int
        Its place in the pipeline; the lowest, where it stands for several.
    name : str
        For people.
    runs : tuple of (int, int)
        Stages of the mapping that it runs, and how often for one microbatch.
    """

    number: int
    name: str
    runs: tuple[tuple[int, int], ...]


def pipeline_stages(graph: Graph, plan: Plan) -> tuple[PipelineStage, ...]:
    """The distinct pipeline stages of a plan.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> kernels = [Kernel(name="a", op="elementwise", m=1, n=1), Kernel(name="b", op="gemm", m=1, n=1, runs="last")]
    >>> graph = Graph(name="g", repeat=16, kernels=tuple(kernels))
    >>> [stage.runs for stage in pipeline_stages(graph, Plan(pp=4, layers_per_stage=5, first_layers=4, last_layers=2))]
    [((0, 4), (1, 1)), ((0, 5),), ((0, 2), (2, 1))]
    """
    if graph.repeat == 1:
        return tuple(PipelineStage(number, f"stage {number}", ((number, 1),)) for number in range(plan.stages))
    first, middle, last = plan.stage_layers
    if not graph.has_pieces:
        return (PipelineStage(0, "stage 0", ((0, middle),)),)
    if plan.stages == 1:
        return (PipelineStage(0, f"the stage of {_layers(middle)}", ((0, middle), (1, 1), (2, 1))),)
    found = [PipelineStage(0, f"the first stage ({_layers(first)})", ((0, first), (1, 1)))]
    if plan.stages > 2:
        found.append(PipelineStage(1, f"a stage in the middle ({_layers(middle)})", ((0, middle),)))
    found.append(PipelineStage(plan.stages - 1, f"the last stage ({_layers(last)})", ((0, last), (2, 1))))
    return tuple(found)


def _layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def mapped_stages(graph: Graph, plan: Plan) -> int:
    """Stages of the mapping, some of them without a kernel: distinct fusion problems.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> kernel = Kernel(name="a", op="elementwise", m=1, n=1)
    >>> [mapped_stages(Graph(name="g", repeat=n, kernels=(kernel,)), Plan(pp=2)) for n in (1, 4)]
    [2, 1]
    """
    if graph.repeat == 1:
        return plan.stages
    return len(PIECES) if graph.has_pieces else 1


def hop_seconds(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, sharded: ShardedGraph, stage_k: Ints
) -> Floats:
    """Seconds that each stage spends per microbatch on sending tensors to its neighbours.

    Parameters
    ----------
    sharded : ShardedGraph
        The whole graph, sharded.
    stage_k : int array
        Stage of each kernel; not looked at for a folded graph, whose stages all hand its carried tensors on.

    Returns
    -------
    float array
        One entry per distinct stage, as in :func:`pipeline_stages`.
    """

    def hop(volume: float) -> float:
        return communication_seconds(Collective.POINT_TO_POINT, volume, plan.stage_dims, system, assumptions)

    return over_hops(graph, plan, assumptions, sharded, stage_k, hop)


def over_hops(
    graph: Graph,
    plan: Plan,
    assumptions: Assumptions,
    sharded: ShardedGraph,
    stage_k: Ints,
    hop: Callable[[float], float],
) -> Floats:
    """What the tensors that each stage sends per microbatch cost in sum; ``hop`` is the cost of one, from its bytes."""
    if plan.stages == 1:
        return np.zeros(1)
    if graph.repeat > 1:
        alike = len(pipeline_stages(graph, plan))
        if assumptions.point_to_point == "per_step":
            return np.zeros(alike)
        index = graph.index()
        once = sum(hop(graph.bytes_of(t) * sharded.output_k[index[t.src]]) for t in graph.carried)
        return np.full(alike, plan.interleave * once)
    spent = np.zeros(plan.stages)
    paid: set[tuple[int, int, bool]] = set()
    forward = sharded.forward_k
    for t in range(len(sharded.src_t)):
        a, b = int(sharded.src_t[t]), int(sharded.dst_t[t])
        back = bool(not forward[a] and not forward[b])
        for boundary in range(min(stage_k[a], stage_k[b]), max(stage_k[a], stage_k[b])):
            key = (int(sharded.group_t[t]), int(boundary), back)
            if key not in paid:
                paid.add(key)
                spent[boundary + 1 if back else boundary] += hop(float(sharded.b_t[t]))
    return spent


def per_step_hops(graph: Graph, system: System, plan: Plan, assumptions: Assumptions) -> float:
    """Point-to-point seconds charged once per step, as DFModel has it: one hop per layer, training only."""
    if assumptions.point_to_point != "per_step" or plan.stages == 1 or graph.repeat == 1 or not graph.trains:
        return 0.0
    volume = graph.repeat * sum(graph.bytes_of(t) for t in graph.carried)
    return communication_seconds(Collective.POINT_TO_POINT, volume, plan.stage_dims, system, assumptions)


def gradient_seconds(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, sharded: ShardedGraph, stage_k: Ints
) -> float:
    """Seconds of the data-parallel gradient all-reduce at the end of a step, of the slowest stage."""
    if assumptions.gradients == "dfmodel" or plan.copies == 1:
        return 0.0
    once = []
    for stage in range(int(stage_k.max()) + 1):
        volume = float(sharded.gradient_k[stage_k == stage].sum())
        once.append(communication_seconds(Collective.ALL_REDUCE, volume, plan.copy_dims, system, assumptions))
    stages = pipeline_stages(graph, plan)
    return max(sum(times * once[n] for n, times in stage.runs if n < len(once)) for stage in stages)


def dram_left(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, parts: Mapping[int, ShardedGraph]
) -> dict[int, float]:
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
    capacity = system.chip.dram.capacity
    left = dict.fromkeys(parts, float("inf"))
    if capacity is None:
        return left
    held = {number: _held(graph, part) for number, part in parts.items()}
    for stage in pipeline_stages(graph, plan):
        use = DramUse(0.0, 0.0, 0.0, 0.0, 0.0)
        for number, times in stage.runs:
            if number in held:
                in_flight = waiting(graph, plan, assumptions, stage, number)
                weights, saved, resident = held[number]
                use += dram_use(graph, plan, assumptions, weights, saved, times, resident, in_flight)
        if use.fixed > capacity:
            raise Infeasible(dram_shortage(use, capacity, stage.name))
        for number, _ in stage.runs:
            if number in left:
                left[number] = min(left[number], capacity - use.fixed)
    return left


def waiting(graph: Graph, plan: Plan, assumptions: Assumptions, stage: PipelineStage, number: int) -> float:
    """Microbatches whose saved activations a pipeline stage holds of a stage of the mapping.

    Where all pipeline stages stand for one, or kernels are drawn once, as many as the first one holds.
    """
    if graph.has_pieces and number > 0:
        return once_in_flight(plan, graph.trains, assumptions.schedule, last=PIECES[number] == "last")
    place = stage.number if graph.has_pieces else 0
    return microbatches_in_flight(plan, graph.trains, assumptions.schedule, place)


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
