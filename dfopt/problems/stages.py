"""Between the two problems: what a pipeline stage holds, sends to its neighbours, and keeps in DRAM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.physics.collectives import Collective
from dfopt.physics.memory import DramUse, dram_use
from dfopt.physics.network import communication_seconds
from dfopt.problems.tables import Floats, ShardedGraph

Ints = NDArray[np.int64]


def hop_seconds(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, sharded: ShardedGraph, stage_k: Ints
) -> Floats:
    """Seconds that each stage spends per microbatch on sending tensors to its neighbours.

    Parameters
    ----------
    sharded : ShardedGraph
        The whole graph, sharded.
    stage_k : int array
        Stage of each kernel; all 0 for a folded graph.

    Returns
    -------
    float array
        One entry per distinct stage: one for a folded graph, ``pp`` for a graph drawn once.
    """
    if plan.pp == 1:
        return np.zeros(1)

    def hop(volume: float) -> float:
        return communication_seconds(Collective.POINT_TO_POINT, volume, plan.pp_dims, system, assumptions)

    if graph.repeat > 1:
        if assumptions.point_to_point == "per_step":
            return np.zeros(1)
        index = graph.index()
        return np.array([sum(hop(graph.bytes_of(t) * sharded.output_k[index[t.src]]) for t in graph.carried)])
    spent = np.zeros(plan.pp)
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
    if assumptions.point_to_point != "per_step" or plan.pp == 1 or graph.repeat == 1 or not graph.trains:
        return 0.0
    volume = graph.repeat * sum(graph.bytes_of(t) for t in graph.carried)
    return communication_seconds(Collective.POINT_TO_POINT, volume, plan.pp_dims, system, assumptions)


def gradient_seconds(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, sharded: ShardedGraph, stage_k: Ints
) -> float:
    """Seconds of the data-parallel gradient all-reduce at the end of a step, of the slowest stage."""
    if assumptions.gradients == "dfmodel" or plan.dp == 1:
        return 0.0
    slowest = 0.0
    for stage in range(int(stage_k.max()) + 1):
        volume = float(sharded.gradient_k[stage_k == stage].sum())
        time = communication_seconds(Collective.ALL_REDUCE, volume, plan.dp_dims, system, assumptions)
        slowest = max(slowest, plan.layers_per_stage * time)
    return slowest


@dataclass(frozen=True)
class StageMemory:
    """DRAM of one stage: what is held whatever the partitions are, and what is left for activations."""

    use: DramUse
    left: float


def stage_memory(
    graph: Graph, system: System, plan: Plan, assumptions: Assumptions, stage: ShardedGraph, number: int
) -> StageMemory:
    """DRAM of one stage.

    Raises
    ------
    Infeasible
        If weights, gradients, optimizer state and saved activations alone exceed the capacity.
    """
    # the GEMMs of the backward pass read the forward weights again: the same parameters
    only_forward = graph.trains and any(k.op == "gemm" and k.phase == "forward" for k in graph.kernels)
    weights = float(stage.weight_k[stage.forward_k].sum() if only_forward else stage.weight_k.sum())
    n = len(stage.names)
    padded = np.concatenate([stage.forward_k, [False]])
    own = (stage.src_t < n) & stage.saved_t & padded[stage.src_t]
    _, first = np.unique(stage.group_t[own], return_index=True)
    saved = float(stage.b_t[own][first].sum())
    use = dram_use(graph, plan, assumptions, weights, saved, plan.layers_per_stage)
    capacity = system.chip.dram.capacity
    left = np.inf if capacity is None else capacity - use.fixed
    if left < 0:
        parts = {
            "weights": use.weights,
            "gradients": use.gradients,
            "optimizer state": use.optimizer,
            "saved activations": use.saved_activations,
        }
        listed = ", ".join(f"{name} {size / 1e9:.4g} GB" for name, size in parts.items() if size > 0)
        raise Infeasible(
            f"stage {number} needs {use.fixed / 1e9:.4g} GB of DRAM per chip ({listed}), the chip has"
            f" {(capacity or 0) / 1e9:.4g} GB: short by {-left / 1e9:.4g} GB; levers: more tensor or pipeline"
            " parallelism, more chips, a smaller optimizer_bytes_per_parameter, mode forward instead of training"
        )
    return StageMemory(use, float(left))
