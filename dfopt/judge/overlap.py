"""Gradients that are added up behind the backward pass: layer by layer, what the step still waits for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dfopt.documents.score import PartitionScore, StageScore
from dfopt.judge.case import Case, Rank
from dfopt.judge.network import Price, exchanged_bytes, optimizer_s
from dfopt.physics import copies, overlap


def exposed_s(
    case: Case, stages: Sequence[StageScore], partitions: Sequence[PartitionScore], price: Price
) -> float | None:
    """Seconds that a step takes beyond the work of its slowest stage; none where nothing is hidden."""
    if not overlap.hides(case.assume, case.graph) or case.assume.gradients != "exact":
        return None
    slowest, often = max(one.time_s for one in stages), copies.reductions(case.plan)
    back, ahead = dict[int, list[float]](), dict[int, list[float]]()
    for one in partitions:
        late = not any(case.kernels[number].forward for number in case.members[one.stage, one.partition])
        (back if late else ahead).setdefault(one.stage, []).append(one.time_s)
    behind_forward = overlap.hides_weights(case.assume, case.graph, case.plan)
    exposed = 0.0
    for rank, stage in zip(case.ranks, stages, strict=True):
        order = list(_in_order(case, rank))
        added, brought, weights = {}, {}, {}
        for kind in set(order):
            each = list(exchanged_bytes(case, kind))
            weights[kind] = math.fsum(copies.exchanged(case.plan, dims, 0.0, wide, price) for dims, _, wide in each)
            brought[kind] = optimizer_s(case, kind) + (0.0 if behind_forward else weights[kind])
            added[kind] = math.fsum(copies.exchanged(case.plan, dims, size, 0.0, price) for dims, size, _ in each)
            added[kind] /= often
        passed = finished = 0.0
        for kind in reversed(order):
            passed += math.fsum(back.get(kind, ()))
            finished = max(finished, passed) + added[kind]
        waits = first = 0.0
        if behind_forward and order:  # layers wait for their weights, one after another
            there = computed = 0.0
            for kind in order:
                there += weights[kind]
                computed = max(computed, there) + math.fsum(ahead.get(kind, ()))
            waits = computed - math.fsum(math.fsum(ahead.get(kind, ())) for kind in order)
            first = weights[order[0]]
        work = stage.layers * stage.layer_time_s + stage.once_time_s + stage.offload_s
        sent = 0.0 if case.hides_hops else stage.time_s - work
        last = added[order[0]] + first if order else 0.0
        ends = max(waits + work + sent - passed + finished, stage.time_s + last)
        exposed = max(exposed, math.fsum(brought[kind] for kind in order) + often * (ends - slowest))
    return exposed


def _in_order(case: Case, rank: Rank) -> Iterator[int]:
    """The kind of every layer of a pipeline stage, in the order of the forward pass."""
    layers, count = case.layers, case.layers.count

    def beside(place: int) -> Iterator[int]:
        for kind, places in enumerate(layers.at, layers.counted):
            yield from [kind] * places.count(place)

    if rank.number == 0:
        yield from beside(0)
    for place in rank.here:
        if 0 < place < count:
            yield from beside(place)
        yield 0 if layers.counted == 1 else int(layers.order[place])
    if rank.number == case.plan.stages - 1:
        yield from beside(count)
