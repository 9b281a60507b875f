"""What shows of exchanges that Calculon hides behind the backward pass, see :mod:`dfopt.physics.window`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.score import PartitionScore
from dfopt.errors import PlanError
from dfopt.judge import grid, network, offload
from dfopt.judge.case import Case
from dfopt.physics import copies, tiled, window
from dfopt.physics.communications import Price


def exposed_s(case: Case, partitions: Sequence[PartitionScore], hops: dict[int, float], price: Price) -> float | None:
    """Seconds of a step in which chips wait for exchanges of gradients and weights; None if nothing is hidden.

    Parameters
    ----------
    case, partitions : Case, sequence of PartitionScore
        The mapping, and its partitions.
    hops : dict, s
        Messages of each pipeline stage, by number of its rank.
    price : callable
        Seconds of a collective, see :func:`dfopt.judge.network.price_list`.

    Raises
    ------
    PlanError
        For layers of several kinds, which that program does not have.
    """
    way = case.assume.gradient_overlap
    if way not in ("calculon", "calculon_or_none") or not case.trains or case.plan.copies == 1:
        return None
    if not case.graph.folded or len(case.graph.layers.kinds) > 1:
        raise PlanError(
            f"gradient_overlap: found {way}, which is about layers that are all of one kind; expected backward"
        )
    plan, layer = case.plan, _of_layer(case, partitions, price)
    shown, after = [], []
    for rank in case.ranks:
        layers = rank.runs.get(0, 0)
        chunk = replace(layer, hop_s=hops[rank.number] / 2 / plan.interleave)  # of the gradients alone, a chunk
        if layers:  # and while it waits for slower memories
            _, waits_s = offload.shown_s(case, rank, partitions, hops[rank.number])
            chunk = replace(chunk, backward_s=chunk.backward_s + waits_s / layers)
        shown.append(chunk.exposed_s(plan.stages, plan.interleave, layers, plan.microbatches) if layers else 0.0)
        after.append(layers * layer.exchange_s)
    return max(shown) if way == "calculon" else min(max(shown), max(after))


def _of_layer(case: Case, partitions: Sequence[PartitionScore], price: Price) -> window.Window:
    dims, (system, called) = case.plan.copy_dims, grid.walked(case.system, case.plan)
    passes = {name: case.kernels[number].kernel.pass_ for name, number in case.graph.index().items()}
    late = [partition for partition in partitions if passes[partition.kernels[0]] != "forward"]
    back = [partition for partition in late if passes[partition.kernels[0]] != "recompute"]
    again_memory_s, again_compute_s = _running(case, partitions, passes)
    shared = _networks(dims) & _networks(case.plan.stage_dims)
    return window.Window(
        exchange_s=_exchange_s(case, price),
        backward_s=math.fsum(partition.time_s for partition in late),
        memory_s=math.fsum(partition.memory_s for partition in back) + again_memory_s,
        compute_s=math.fsum(partition.compute_s for partition in back) + again_compute_s,
        hop_s=0.0,
        in_the_way=bool(shared),
        usage=tiled.usage_of(system, [called.get(dim, dim) for dim in dims]),
    )


def _exchange_s(case: Case, price: Price) -> float:
    return math.fsum(
        copies.exchanged(case.plan, dims, gradients, weights, price)
        for dims, gradients, weights in network.exchanged_bytes(case, 0)
    )


def _running(case: Case, partitions: Sequence[PartitionScore], passes: Mapping[str, str]) -> tuple[float, float]:
    """Memory and compute seconds of what is computed again, as running totals of the forward pass."""
    again = {case.kernels[n].kernel.stage_with for name, n in case.graph.index().items() if passes[name] == "recompute"}
    ahead = [partition for partition in partitions if passes[partition.kernels[0]] == "forward"]
    if not again:
        return 0.0, 0.0
    often = [sum(name in again for name in partition.kernels) for partition in ahead]
    memory = window.running([(partition.memory_s, times) for partition, times in zip(ahead, often, strict=True)])
    return memory, window.running([(partition.compute_s, times) for partition, times in zip(ahead, often, strict=True)])


def _networks(dims: tuple[str, ...]) -> set[str]:
    return {split_part_name(name)[0] for name in parts_of(dims)}
