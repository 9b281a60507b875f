"""How long a pipeline stage works on two microbatches that take turns: its schedule, slot by slot.

In every slot the chip computes for one of the two and the network sends for the other; the slot ends when both are
done (DeepSeek-V3 Technical Report, arXiv:2412.19437, section 3.4). What a partition sends by the lists of its own
kernels follows all that it does besides, and whoever sends leaves the chip to the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from dfopt.judge.case import Case, Place, Rank


def stage_s(case: Case, rank: Rank, computes: dict[Place, float], sends: dict[Place, float]) -> float:
    """Seconds of two microbatches in two-batch overlap, for a pipeline stage.

    Parameters
    ----------
    case, rank : Case, Rank
        The mapping, and the pipeline stage.
    computes, sends : dict, s
        Seconds by place (stage and partition) for one microbatch, on the chip and on the network.
    """
    chip, network, waiting = list[float](), list[float](), list[float]()
    for place in _walk(case, rank):
        waiting.append(computes[place])
        if sends.get(place, 0.0) > 0:
            chip += [math.fsum(waiting)] * 2
            network += [sends[place]] * 2
            waiting = []
    chip += [math.fsum(waiting)] * 2
    network += [0.0] * 2
    # the network is a slot behind the chip, which has nothing more to do in the last one
    return math.fsum(map(max, [*chip, 0.0], [0.0, *network]))


def least_s(rank: Rank, takes: Mapping[int, float], sends: Mapping[int, float]) -> float:
    """Lower bound on the seconds of two microbatches in two-batch overlap, for any partitions.

    The largest of the seconds alone, twice the seconds without sending, and twice the seconds of sending.

    Parameters
    ----------
    rank : Rank
        The pipeline stage.
    takes, sends : dict, s
        By stage of the mapping for one microbatch: its seconds alone, and the part of them in which it sends while the
        other microbatch computes.
    """
    alone, sent = (
        math.fsum(times * each.get(stage, 0.0) for stage, times in rank.runs.items()) for each in (takes, sends)
    )
    return max(alone, 2 * (alone - sent), 2 * sent)


def _walk(case: Case, rank: Rank) -> Iterator[Place]:
    """The partitions that a pipeline stage runs, in their order."""
    inside: dict[int, list[Place]] = {}
    for place in case.members:
        inside.setdefault(place[0], []).append(place)
    for stage in in_order(case, rank):
        yield from inside.get(stage, [])


def in_order(case: Case, rank: Rank) -> Iterator[int]:
    """Numbers of the mapping's stages in the order in which a pipeline stage runs its layers."""
    if not case.graph.folded:
        yield rank.number
        return
    layers = case.layers
    alone = sorted((place, kind) for kind, at in enumerate(layers.at, layers.counted) for place in at)

    def between(before: int) -> list[int]:
        return [kind for place, kind in alone if place == before]

    if rank.number == 0:
        yield from between(0)
    for place in rank.here:
        if 0 < place < layers.count:
            yield from between(place)
        yield 0 if layers.counted == 1 else int(layers.order[place])
    if rank.number == case.plan.stages - 1:
        yield from between(layers.count)
