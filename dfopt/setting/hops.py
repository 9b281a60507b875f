"""What pipeline stages send: tensors to their neighbours, gradients to the other copies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.documents.graph import Tensor
from dfopt.physics.collectives import Collective
from dfopt.setting.instance import Instance
from dfopt.setting.tables import Floats, Ints, ShardedGraph


def hop_seconds(instance: Instance, sharded: ShardedGraph, stage_k: Ints) -> Floats:
    """Seconds that each distinct stage, as in :attr:`Instance.pipeline`, sends to its neighbours per microbatch.

    The stage of each kernel is not looked at for a folded graph, whose stages all hand its carried tensors on.
    """

    return over_hops(instance, sharded, stage_k, instance.handed_on_s)


def over_hops(instance: Instance, sharded: ShardedGraph, stage_k: Ints, hop: Callable[[float, float], float]) -> Floats:
    """What the tensors that each stage sends per microbatch cost in sum.

    ``hop`` is the cost of one, from the bytes that a chip holds of it and from all of its bytes.
    """
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    if plan.stages == 1:
        return np.zeros(1)
    if graph.folded:
        alike = len(instance.pipeline)
        if assumptions.point_to_point == "per_step":
            return np.zeros(alike)
        index = graph.index()

        def sent(tensor: Tensor) -> float:
            whole = graph.bytes_of(tensor)
            return hop(whole * sharded.output_k[index[tensor.src]], whole)

        once = max(sum(map(sent, of)) for of in graph.handed_on)  # the last layer of a stage may be of any kind
        return np.full(alike, plan.interleave * once)
    spent = np.zeros(plan.stages)
    paid: set[tuple[int, int, bool]] = set()
    forward, whole_t = sharded.forward_k, [graph.bytes_of(tensor) for tensor in graph.tensors]
    for t in range(len(sharded.src_t)):
        a, b = int(sharded.src_t[t]), int(sharded.dst_t[t])
        back = bool(not forward[a] and not forward[b])
        for boundary in range(min(stage_k[a], stage_k[b]), max(stage_k[a], stage_k[b])):
            key = (int(sharded.group_t[t]), int(boundary), back)
            if key not in paid:
                paid.add(key)
                spent[boundary + 1 if back else boundary] += hop(float(sharded.b_t[t]), whole_t[t])
    return spent


def per_step_hops(instance: Instance) -> float:
    """Point-to-point seconds charged once per step, as DFModel has it: one hop per layer, training only."""
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    if assumptions.point_to_point != "per_step" or plan.stages == 1 or not graph.folded or not graph.trains:
        return 0.0
    volume = graph.repeat * sum(graph.bytes_of(t) for t in graph.handed_on[0])
    return instance.communication_s(Collective.POINT_TO_POINT, volume, plan.stage_dims)


def gradient_seconds(instance: Instance, sharded: ShardedGraph, stage_k: Ints) -> float:
    """Seconds in which copies add up gradients in a step, and bring weights together, of the slowest stage."""
    if instance.assumptions.gradients == "dfmodel":
        return 0.0
    once = []
    for stage in range(int(stage_k.max()) + 1):
        volume_k = np.where(stage_k == stage, sharded.gradient_k, 0.0)
        once.append(sum(instance.exchanged_s(dims, share_k * volume_k) for dims, share_k in instance.adding))
    return max(sum(times * once[n] for n, times in stage.runs if n < len(once)) for stage in instance.pipeline)
