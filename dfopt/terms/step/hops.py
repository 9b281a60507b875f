"""What pipeline stages send: tensors to their neighbours, gradients to the other copies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.documents.graph import Tensor
from dfopt.physics.collectives import Collective
from dfopt.physics.network import adds_up_at_once
from dfopt.physics.pipeline import messages
from dfopt.setting.instance import Instance
from dfopt.terms.sharded_graph import Floats, Ints, ShardedGraph
from dfopt.terms.step.optimizer import optimizer_seconds


def hides_hops(instance: Instance) -> bool:
    """Whether stages work while they send to their neighbours."""
    return instance.assumptions.hides_hops_in(instance.plan.interleave)


def sent_once(instance: Instance) -> bool:
    """Whether a step is charged for one message of each layer, whatever its microbatches, as DFModel does."""
    return instance.assumptions.point_to_point == "per_step"


def both_ways_at_once(instance: Instance) -> bool:
    """Whether a stage is charged for all that it hands on and back in each microbatch, whichever neighbours it has."""
    return instance.assumptions.point_to_point == "per_microbatch"


def hop_seconds(instance: Instance, sharded: ShardedGraph, stage_k: Ints, *, least: bool = True) -> Floats:
    """Seconds that each distinct stage, as in :attr:`Instance.pipeline`, sends to its neighbours per microbatch.

    The stage of each kernel is not looked at for a folded graph, whose stages all hand its carried tensors on.
    ``least``: shares may be the least under several schemes, and so is what comes back; without it they are exact.
    """

    def hop(held: float, share: float) -> float:
        return sent_s(instance, held / share, share, least=least)

    return over_hops(instance, sharded, stage_k, hop)


def sent_s(instance: Instance, whole: float, share: float, *, least: bool = False) -> float:
    """Seconds in which a chip sends its share of a tensor to the next stage.

    What all chips that share kernels hold whole may be sent in parts and gathered (Narayanan et al., SC'21, section
    4.1, scatter/gather optimization), if that is assumed. ``least``: the share is the least of several schemes, some of
    which may hold it whole.
    """
    plan, assumptions = instance.plan, instance.assumptions
    as_it_lies = instance.communication_s(Collective.POINT_TO_POINT, whole * share, plan.stage_dims)
    if assumptions.point_to_point_parts is None or plan.shards == 1 or (share < 1 and not least):
        return as_it_lies
    part = instance.communication_s(Collective.POINT_TO_POINT, whole / plan.shards, plan.stage_dims)
    if assumptions.point_to_point_parts == "calculon":
        split = (Collective.REDUCE_SCATTER, Collective.ALL_GATHER, Collective.ALL_REDUCE)
        scatter, gather, reduce = (instance.communication_s(kind, whole, plan.shard_dims) for kind in split)
        again = any(kernel.pass_ == "recompute" for kernel in instance.graph.kernels)
        # twice for a tensor of either pass; of what is computed again one all-gather for both of them
        edge = max(part + 2 * (scatter + gather - reduce) + gather / 2 * again, 0.0)  # no message takes back time
        return min(as_it_lies, edge) if least else edge
    return min(as_it_lies, part + instance.communication_s(Collective.ALL_GATHER, whole, plan.shard_dims))


def over_hops(instance: Instance, sharded: ShardedGraph, stage_k: Ints, hop: Callable[[float, float], float]) -> Floats:
    """What the tensors that each stage sends per microbatch cost in sum.

    ``hop`` is the cost of one, from the bytes of it that a chip holds and their share of the whole.
    """
    graph, plan, assumptions = instance.graph, instance.plan, instance.assumptions
    if plan.stages == 1:
        return np.zeros(1)
    if graph.folded:
        alike = len(instance.pipeline)
        if sent_once(instance):
            return np.zeros(alike)
        index = graph.index()
        share_k = sharded.output_k.tolist()

        def handed(tensor: Tensor) -> float:
            share = share_k[index[tensor.src]]
            return hop(graph.bytes_of(tensor) * share, share)

        if not both_ways_at_once(instance):
            on, back = both_ways(instance, sharded, hop)
            often = (messages(plan, assumptions, stage.number, all_alike=alike == 1) for stage in instance.pipeline)
            return np.array([ahead * on + behind * back for ahead, behind in often])
        kinds = (sum(map(handed, of)) for of in graph.handed_on)
        once = max(kinds)  # the last layer of a stage may be of any kind
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
                share = float(sharded.output_k[a])
                spent[boundary + 1 if back else boundary] += hop(float(sharded.b_t[t]), share)
    return spent


def both_ways(instance: Instance, sharded: ShardedGraph, hop: Callable[[float, float], float]) -> tuple[float, float]:
    """What a layer of any kind hands on costs at most, and what it hands back, where layers repeat."""
    graph, index = instance.graph, instance.graph.index()
    found = {way: [0.0] for way in (True, False)}
    for of in graph.handed_on:
        kind = {True: 0.0, False: 0.0}
        for tensor in of:
            k = index[tensor.src]
            share = float(sharded.output_k[k])
            kind[bool(sharded.forward_k[k])] += hop(graph.bytes_of(tensor) * share, share)
        for way, cost in kind.items():
            found[way].append(cost)
    return max(found[True]), max(found[False])


def chunk_hops(instance: Instance, sharded: ShardedGraph, stage_k: Ints) -> tuple[float, float]:
    """Seconds at least in which a chunk of layers hands on and back, and in which one at the ends does what is left."""
    if sent_once(instance) or both_ways_at_once(instance) or instance.plan.stages == 1:
        chunks = instance.plan.interleave if instance.graph.folded else 1
        once = float(hop_seconds(instance, sharded, stage_k).max()) / chunks
        return once, once
    on, back = both_ways(instance, sharded, lambda held, share: sent_s(instance, held / share, share, least=True))
    return on + back, min(on, back)


def per_step_hops(instance: Instance) -> float:
    """Point-to-point seconds charged once per step, as DFModel has it: one hop per layer, training only."""
    graph, plan = instance.graph, instance.plan
    if not sent_once(instance) or plan.stages == 1 or not graph.folded or not graph.trains:
        return 0.0
    volume = graph.repeat * sum(graph.bytes_of(t) for t in graph.handed_on[0])
    return instance.communication_s(Collective.POINT_TO_POINT, volume, plan.stage_dims)


def gradient_seconds(instance: Instance, sharded: ShardedGraph, stage_k: Ints) -> float:
    """Seconds of the slowest stage behind all microbatches of a step.

    Copies add up gradients, the optimizer takes its step, and copies bring weights together.
    """
    if adds_up_at_once(instance.assumptions):
        return 0.0
    once, step_k = [], optimizer_seconds(instance, np.arange(len(stage_k)), sharded.weight_k)
    for stage in range(int(stage_k.max()) + 1):
        volume_k = np.where(stage_k == stage, sharded.gradient_k, 0.0)
        exchanged_s = sum(instance.exchanged_s(dims, share_k * volume_k) for dims, share_k in instance.adding)
        once.append(exchanged_s + float(step_k[stage_k == stage].sum()))
    return max(sum(times * once[n] for n, times in stage.runs if n < len(once)) for stage in instance.pipeline)
