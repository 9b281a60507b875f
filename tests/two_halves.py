"""Two microbatches that take turns, worked through step by step: who is where when, and whether that can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan

Parts = Sequence[tuple[float, float]]
"""Partitions of one microbatch in their order: seconds on the chip, and what they send behind that."""


@dataclass(frozen=True)
class Step:
    """One half on the chip or on the network, with the number of the partition."""

    half: int
    where: str
    part: int
    start: float
    end: float


def steps(parts: Parts) -> list[Step]:
    """What happens: the chip goes on with one half until that sends; then, once the other has sent, they change."""
    found: list[Step] = []
    at, sending, clock, half = [0, 0], [-1, -1], 0.0, 0
    while min(at) < len(parts) or max(sending) >= 0:
        other, now, until = 1 - half, clock, clock
        if sending[other] >= 0:
            until = clock + parts[sending[other]][1]
            found.append(Step(other, "network", sending[other], clock, until))
            sending[other] = -1
        while at[half] < len(parts) and sending[half] < 0:
            busy, sent = parts[at[half]]
            found.append(Step(half, "chip", at[half], now, now + busy))
            now += busy
            sending[half] = at[half] if sent > 0 else -1
            at[half] += 1
        clock, half = max(now, until), other
    return found


def check_possible(parts: Parts, done: Sequence[Step]) -> None:
    """Every half goes through all in its order, and nothing does two things at once."""
    wanted = [("chip", k) for k in range(len(parts))] + [
        ("network", k) for k, (_, sent) in enumerate(parts) if sent > 0
    ]
    for half in (0, 1):
        mine = [step for step in done if step.half == half]
        assert Counter((step.where, step.part) for step in mine) == Counter(wanted)
        order = sorted(mine, key=lambda step: (step.part, step.where))  # "chip" before "network"
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(order))
    for where in ("chip", "network"):
        busy = sorted((step for step in done if step.where == where), key=lambda step: (step.start, step.end))
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(busy))


def length(parts: Parts) -> float:
    """Seconds of the whole."""
    return max((step.end for step in steps(parts)), default=0.0)


def rows_of(graph: Graph, plan: Plan) -> dict[int, list[int]]:
    """The stages of the mapping that every pipeline stage evaluates, one after the other."""
    if not graph.folded:
        return {number: [number] for number in range(plan.stages)}
    layers = graph.layers
    first, most, last = plan.stage_layers
    sizes = [most] if plan.stages == 1 else [first, *[most] * (plan.stages - 2), last]
    if len(layers.kinds) == 1:
        return {number: [0] * size for number, size in enumerate(sizes)}
    named = [kind for one in graph.sections or () for _ in range(one.repeat) for kind in one.layers]
    counted = [k for k, name in enumerate(named) if layers.kinds.index(name) < layers.counted]
    found, begin = dict[int, list[int]](), 0
    for number, size in enumerate(sizes):
        here = counted[begin : begin + size]
        start = 0 if number == 0 else counted[begin - 1] + 1 if begin <= len(counted) else len(named)
        end = len(named) if number == len(sizes) - 1 else here[-1] + 1 if here else start
        row = [layers.kinds.index(name) for name in named[start:end]]
        # a stage that is not full takes as long as a full one where layers are of one kind
        short = size - len(here) if layers.counted == 1 else 0
        ends = sum(kind >= layers.counted for kind in reversed(row)) if short else 0
        found[number] = row[: len(row) - ends] + [0] * short + row[len(row) - ends :]
        begin += size
    return found


def flat(row: Iterable[int], parts: dict[int, Parts]) -> list[tuple[float, float]]:
    """The partitions of some stages of the mapping, one stage after the other."""
    return [part for kind in row for part in parts.get(kind, ())]
