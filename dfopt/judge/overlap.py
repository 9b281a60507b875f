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
    back: dict[int, list[float]] = {}
    for one in partitions:
        if not any(case.kernels[number].forward for number in case.members[one.stage, one.partition]):
            back.setdefault(one.stage, []).append(one.time_s)
    exposed = 0.0
    for rank, stage in zip(case.ranks, stages, strict=True):
        order = list(_in_order(case, rank))
        added, brought = {}, {}
        for kind in set(order):
            each = list(exchanged_bytes(case, kind))
            brought[kind] = math.fsum(copies.exchanged(case.plan, dims, 0.0, wide, price) for dims, _, wide in each)
            brought[kind] += optimizer_s(case, kind)
            added[kind] = math.fsum(copies.exchanged(case.plan, dims, size, 0.0, price) for dims, size, _ in each)
            added[kind] /= often
        passed = finished = 0.0
        for kind in reversed(order):
            passed += math.fsum(back.get(kind, ()))
            finished = max(finished, passed) + added[kind]
        work = stage.layers * stage.layer_time_s + stage.once_time_s + stage.offload_s
        sent = 0.0 if case.assume.hides_hops else stage.time_s - work
        ends = max(work + sent - passed + finished, stage.time_s + (added[order[0]] if order else 0.0))
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
