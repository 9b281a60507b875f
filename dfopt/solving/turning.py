"""The partitions of a plan whose microbatches take turns in twos, under one sharding: the best ones, and a proof.

What is found for one microbatch, without what kernels send by themselves, is a start and a bound: nothing that is sent
costs less than if it is hidden. Of every kind of layer that sends, all ways are then looked at that no other one beats
in every piece (:mod:`dfopt.fusion.turns`); the value grows with each piece, so one of them is the best. Those that are
too slow for a value that some ways reach, beside the least of all other kinds, are left out before they are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from dfopt.bnb import Clock, OutOfTime
from dfopt.fusion.blocks import price_each
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import blocks_of
from dfopt.fusion.turns import Pieces, at_least, pieces, together, ways
from dfopt.physics.pipeline import with_point_to_point
from dfopt.setting.stages import in_order
from dfopt.solving.candidate import Prepared
from dfopt.terms.sharded_graph import Floats, Ints

_Menu = list[tuple[Pieces, Ints | None]]

_SAME = 1e-9
_COMBINED = 20_000  # choices of a way for every kind of layer


@dataclass(frozen=True)
class Turned:
    """Partitions, their value, and what no others beat under the same sharding."""

    partition_k: Ints
    value: float
    bound: float


def turned(ready: Prepared, partition_k: Ints, lows: Sequence[float], incumbent: float, clock: Clock) -> Turned:
    """The best partitions, from those that are best for one microbatch by itself.

    Parameters
    ----------
    ready : Prepared
        The plan, with every kernel's own communications at no cost.
    partition_k : int array
        A start.
    lows : list of float
        Seconds that each stage takes at least so, by itself.
    incumbent : float
        Value above which nothing matters.
    clock : Clock
        When it is over, what is known so far is returned.
    """
    own = [_pieces_of(ready, number, partition_k) for number in range(len(ready.stages))]
    least = [Pieces((low,), ()) if not one.sent else one for low, one in zip(lows, own, strict=True)]
    best, floor = _value(ready, own), ready.value_of(lows)
    upper = min(best, incumbent)
    kinds = [number for number, one in enumerate(own) if one.sent]
    menus: list[_Menu] = []
    for number in kinds:
        found = _menu(ready, number, own[number], upper, lows, clock)
        if found is None:  # too many, or too late: what hides all that is sent is all that is known
            return Turned(partition_k, best, min(floor, best))
        menus.append(found)
    upper = min(upper, _descended(ready, own, kinds, menus))
    menus = _near(ready, least, kinds, menus, upper * (1 + _SAME))
    if prod(map(len, menus)) > _COMBINED:
        return Turned(partition_k, best, min(floor, best))
    bound, chosen = upper, dict[int, Ints]()
    for some in product(*menus):
        now, under = list(own), list(least)
        for number, (one, _) in zip(kinds, some, strict=True):
            now[number] = under[number] = one
        bound = min(bound, _value(ready, under))
        if (value := _value(ready, now)) < best:
            best = value
            chosen = {number: parts for number, (_, parts) in zip(kinds, some, strict=True) if parts is not None}
    partition_k = partition_k.copy()
    for number, parts in chosen.items():
        partition_k[ready.stages[number].members] = parts
    return Turned(partition_k, best, max(floor, min(bound, best)))


def _descended(ready: Prepared, own: Sequence[Pieces], kinds: Sequence[int], menus: Sequence[_Menu]) -> float:
    """A value that some ways reach: one kind of layer after the other takes its best, beside what the others have."""
    now, value, before = list(own), _value(ready, own), np.inf
    while value < before:
        before = value
        for number, menu in zip(kinds, menus, strict=True):
            for one, _ in menu:
                if (other := _value(ready, [*now[:number], one, *now[number + 1 :]])) < value:
                    now[number], value = one, other
    return value


def _near(
    ready: Prepared, least: Sequence[Pieces], kinds: Sequence[int], menus: list[_Menu], upper: float
) -> list[_Menu]:
    """Ways that may stay below a value beside some way of every other kind of layer."""
    rows = [in_order(ready.graph, ready.plan, stage.number) for stage in ready.pipeline]
    often = {(kind, times) for of_stage in rows for kind, times in of_stage}

    def lows_of(kind: int, one: Pieces) -> dict[tuple[int, int], float]:
        return {(kind, times): at_least(one, times) for other, times in often if other == kind}

    every = [[lows_of(number, one) for one, _ in menu] for number, menu in zip(kinds, menus, strict=True)]
    low = {key: seconds for kind, one in enumerate(least) for key, seconds in lows_of(kind, one).items()}
    before = -1
    while all(menus) and before != (before := sum(map(len, menus))):
        for some in every:
            low |= {key: min(way[key] for way in some) for key in some[0]}
        for place, some in enumerate(every):
            kept = [
                number
                for number, way in enumerate(some)
                if _metric(ready, [sum((low | way)[row] for row in of_stage) for of_stage in rows]) <= upper
            ]
            menus = [[menu[one] for one in kept] if at == place else menu for at, menu in enumerate(menus)]
            every[place] = [some[one] for one in kept]
            if not kept:
                return menus
    return menus


def _value(ready: Prepared, of_kind: Sequence[Pieces]) -> float:
    """The metric, from the pieces of every kind of layer."""
    rows = (in_order(ready.graph, ready.plan, stage.number) for stage in ready.pipeline)
    return _metric(ready, [together((of_kind[kind], times) for kind, times in of_stage) for of_stage in rows])


def _metric(ready: Prepared, seconds: Sequence[float]) -> float:
    """The metric, from what two microbatches take in every pipeline stage beside the hops, or before these."""
    sent = [with_point_to_point(one, 2.0 * hop, ready.hides_hops) for one, hop in zip(seconds, ready.hops, strict=True)]
    return ready.metric.value(sent, ready.constants)


def _hidden(ready: Prepared, number: int) -> Floats:
    return ready.instance.hidden_s[ready.stages[number].members]


def _pieces_of(ready: Prepared, number: int, partition_k: Ints) -> Pieces:
    """The pieces that partitions make of a stage of the mapping."""
    stage = ready.stages[number]
    if stage.tables is None:
        return Pieces((0.0,), ())
    blocks, sent_k = blocks_of(partition_k[stage.members]), _hidden(ready, number)
    return pieces(price_each(stage.tables, blocks).time.tolist(), [float(sent_k[block].sum()) for block in blocks])


def _menu(ready: Prepared, number: int, own: Pieces, upper: float, lows: Sequence[float], clock: Clock) -> _Menu | None:
    """The ways of a stage that may be of interest, with their partitions."""
    stage = ready.stages[number]
    assert stage.tables is not None and stage.limits is not None
    if not stage.tables.chip.fused:  # one partition for every kernel is all there is
        return [(own, None)]
    room = ready.cutoff(number, upper, lows)
    if stage.lattice is None or room is None:
        return None
    room *= 1 + 1e-9
    search = ShortestPath(stage.tables, stage.limits, stage.lattice, room)
    if search.counted:
        return None
    try:
        if not search.run(clock).complete:
            return None
        before, after, seconds = search.blocks()
        member = stage.lattice.member[after] & ~stage.lattice.member[before]
        sent = member @ _hidden(ready, number)
        found = ways(before, after, seconds, sent, len(stage.lattice.size), room, clock)
    except OutOfTime:
        return None
    if found is None:
        return None
    menu: _Menu = []
    for way in found:
        parts = np.empty(stage.tables.kernels, dtype=np.int64)
        for place, block in enumerate(way.blocks):
            parts[member[block]] = place
        menu.append((way.pieces, parts))
    return menu
