"""Brute-force oracle, part 2: schedules of collectives on one dimension of chips 0 .. n-1.

A schedule is a list of steps, a step a list of (source, destination, piece, halves): piece j of n, which is cut in
halves 0 and 1. Pipelined collectives are no schedules of steps; they run packet by packet in time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import networkx as nx
from step_network import Chip, Links, Node, Router

from dfopt.physics.collectives import Dim, Topology

Send = tuple[int, int, int, tuple[int, ...]]
BOTH: tuple[int, ...] = (0, 1)


def all_gather_1d(dim: Dim) -> list[list[Send]]:
    """Piece j starts on chip j and must reach all; halves travel opposite ways on a ring."""
    n = dim.size
    if n == 1:
        return []
    if dim.topology is Topology.RING:
        return [
            [(i, (i + way) % n, (i - way * s) % n, (half,)) for i in range(n) for half, way in ((0, 1), (1, -1))]
            for s in range(n - 1)
        ]
    if dim.topology is Topology.LINE:  # chip i passes on what it got from behind, s chips away
        return [
            [
                (i, i + way, i - way * s, BOTH)
                for i in range(n)
                for way in (1, -1)
                if 0 <= i + way < n > i - way * s >= 0
            ]
            for s in range(n - 1)
        ]
    if dim.topology is Topology.FULLY_CONNECTED:
        return [[(i, j, i, BOTH) for i in range(n) for j in range(n) if j != i]]
    steps, have = [], 1
    while have < n:  # Bruck: chip i holds pieces i .. i+have-1 and sends the first ones `have` chips down
        count = min(have, n - have)
        steps.append([(i, (i - have) % n, (i + k) % n, BOTH) for i in range(n) for k in range(count)])
        have += count
    return steps


def reduce_scatter_1d(dim: Dim) -> list[list[Send]]:
    """The all-gather run backwards: every copy becomes an addition."""
    return [[(dst, src, j, halves) for src, dst, j, halves in step] for step in reversed(all_gather_1d(dim))]


def scatter_1d(dim: Dim) -> list[list[Send]]:
    """Chip 0 hands piece j to chip j: directly, along a binomial tree through a switch, or the farthest first."""
    n = dim.size
    if dim.topology is Topology.FULLY_CONNECTED:
        return [[(0, j, j, BOTH) for j in range(1, n)]]
    if dim.topology in (Topology.RING, Topology.LINE):
        return _scatter_along(dim)
    mask = 1
    while mask < n:
        mask *= 2
    steps = []
    while mask > 1:
        half = mask // 2
        steps.append(
            [
                (i, i + half, j, BOTH)
                for i in range(0, n, mask)
                if i + half < n
                for j in range(i + half, min(i + mask, n))
            ]
        )
        mask = half
    return steps


def _scatter_along(dim: Dim) -> list[list[Send]]:
    n, ring = dim.size, dim.topology is Topology.RING and dim.size > 2
    reach = n // 2 if ring else n - 1
    steps: list[list[Send]] = [[] for _ in range(reach)]
    for way, half in ((1, 0), (-1, 1)) if ring else ((1, 0),):
        for distance in range(1, reach + 1):
            halves = (half,) if ring and 2 * distance == n else BOTH  # the antipode is reached both ways
            for hop in range(distance):
                here = way * hop % n
                steps[reach - distance + hop].append((here, (here + way) % n, way * distance % n, halves))
    return steps


def all_to_all_1d(dim: Dim) -> list[list[tuple[int, int, int, int, tuple[int, ...]]]]:
    """Steps of (from, to, origin, target, halves)."""
    n = dim.size
    if dim.topology is Topology.FULLY_CONNECTED:
        return [[(i, j, i, j, BOTH) for i in range(n) for j in range(n) if j != i]]
    if dim.topology is Topology.SWITCH:
        return [[(i, (i + k) % n, i, (i + k) % n, BOTH) for i in range(n)] for k in range(1, n)]
    if dim.topology is Topology.LINE:
        line: list[list[tuple[int, int, int, int, tuple[int, ...]]]] = [[] for _ in range(n - 1)]
        for i, j in itertools.permutations(range(n), 2):
            way, start = (1, n - 1 - j) if j > i else (-1, j)
            for hop in range(abs(j - i)):
                line[start + hop].append((i + way * hop, i + way * (hop + 1), i, j, BOTH))
        return line
    steps = []
    for s in range(n // 2):  # whatever still has a hop to go moves one hop
        step = []
        for i in range(n):
            for way, half in ((1, 0), (-1, 1)):
                for distance in range(s + 1, n // 2 + 1):
                    halves: tuple[int, ...] = (half,) if 2 * distance == n else BOTH
                    here = (i + way * s) % n
                    step.append((here, (here + way) % n, i, (i + way * distance) % n, halves))
        steps.append(step)
    return steps


# ------------------------------------------------------------------------------ packet by packet


class Pipes:
    """Links that serve one packet after the other: of those that wait, the one with the lowest number."""

    def __init__(self, graph: nx.DiGraph) -> None:
        self.graph = graph
        self.waiting: dict[tuple[Node, Node], list[tuple[int, int, Packet]]] = defaultdict(list)
        self.busy: set[tuple[Node, Node]] = set()
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = itertools.count()

    def send(self, ready: float, number: int, path: Links, size: float, then: Callable[[float], None]) -> None:
        """A packet, stored and forwarded along a path; `then` gets its time of arrival."""
        self._at(ready, lambda now: self._queue(now, (number, path, size, then)))

    def run(self) -> None:
        while self.events:
            now, _, what = heapq.heappop(self.events)
            what(now)

    def _at(self, time: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (time, next(self.order), what))

    def _queue(self, now: float, packet: Packet) -> None:
        link = packet[1][0]
        heapq.heappush(self.waiting[link], (packet[0], next(self.order), packet))
        self._at(now, lambda time: self._serve(time, link))  # after all that becomes ready at the same time

    def _serve(self, now: float, link: tuple[Node, Node]) -> None:
        if link in self.busy or not self.waiting[link]:
            return
        _, _, (number, path, size, then) = heapq.heappop(self.waiting[link])
        self.busy.add(link)
        wire = self.graph.edges[link]

        def served(time: float) -> None:
            self.busy.remove(link)
            self._serve(time, link)

        def arrived(time: float) -> None:
            if len(path) > 1:
                self._queue(time, (number, path[1:], size, then))
            else:
                then(time)

        done = now + size / wire["bandwidth"]
        self._at(done + wire["latency"], arrived)
        self._at(done, served)


Packet = tuple[int, Links, float, Callable[[float], None]]
Place = Callable[[Chip], Chip]


def pipelined_broadcast(
    graph: nx.DiGraph, route: Router, dim: Dim, volume: float, packets: int, places: Sequence[Place]
) -> float:
    """Chip 0 sends packets front to back one way, on a ring back to front the other way too; all pass them on."""
    pipes, size, n = Pipes(graph), volume / packets, dim.size
    first: dict[tuple[int, int, int], float] = {}

    def hop(group: int, packet: int, way: int, k: int, ready: float) -> None:
        if k == n - 1:
            return
        src, dst = places[group]((way * k % n,)), places[group]((way * (k + 1) % n,))

        def arrived(time: float) -> None:
            key = (group, way * (k + 1) % n, packet)
            first[key] = min(time, first.get(key, time))
            hop(group, packet, way, k + 1, time)

        pipes.send(ready, packet if way == 1 else packets - packet, route(src, dst, (0, (1 - way) // 2)), size, arrived)

    for turn in range(packets):
        for group in range(len(places)):
            hop(group, turn, 1, 0, 0.0)
            if dim.topology is Topology.RING:
                hop(group, packets - 1 - turn, -1, 0, 0.0)
    pipes.run()
    assert len(first) == len(places) * (n - 1) * packets
    return max(first.values())


def pipelined_all_reduce(
    graph: nx.DiGraph, route: Router, dim: Dim, volume: float, packets: int, places: Sequence[Place]
) -> float:
    """On a line: partial sums flow to the middle, the two middle chips exchange them, totals flow back."""
    pipes, size, n = Pipes(graph), volume / packets, dim.size
    left, right = (n - 1) // 2, n // 2  # the same chip if n is odd
    totals: dict[tuple[int, int, int], tuple[float, frozenset[int]]] = {}
    waiting: dict[tuple[int, int, int], list[tuple[float, frozenset[int]]]] = defaultdict(list)

    def send(group: int, packet: int, src: int, dst: int, ready: float, then: Callable[[float], None]) -> None:
        path = route(places[group]((src,)), places[group]((dst,)), (packet, 0))
        pipes.send(ready, packet, path, size, then)

    def inward(group: int, packet: int, chip: int, way: int, ready: float, sums: frozenset[int]) -> None:
        """A partial sum stands at a chip; it holds the chips up to this one, with the chip's own."""
        middle = left if way == 1 else right
        if chip == middle:
            if left != right:
                other = right if way == 1 else left
                send(group, packet, chip, other, ready, lambda time: meet(group, packet, other, time, sums))
            meet(group, packet, chip, ready, sums)
            return
        follow = chip + way
        both = sums | {follow}
        send(group, packet, chip, follow, ready, lambda t: inward(group, packet, follow, way, t, both))

    def meet(group: int, packet: int, chip: int, time: float, sums: frozenset[int]) -> None:
        waiting[group, packet, chip].append((time, sums))
        if len(waiting[group, packet, chip]) == 2:
            (t1, one), (t2, two) = waiting[group, packet, chip]
            assert one & two <= {left} & {right}, "a contribution counted twice"
            for way in {-1 if chip == left else 1, 1 if chip == right else -1}:
                outward(group, packet, chip, way, max(t1, t2), one | two)

    def outward(group: int, packet: int, chip: int, way: int, time: float, sums: frozenset[int]) -> None:
        totals[group, packet, chip] = (time, sums)
        if 0 <= chip + way < n:
            send(group, packet, chip, chip + way, time, lambda t: outward(group, packet, chip + way, way, t, sums))

    for packet in range(packets):
        for group in range(len(places)):
            inward(group, packet, 0, 1, 0.0, frozenset({0}))
            inward(group, packet, n - 1, -1, 0.0, frozenset({n - 1}))
    pipes.run()
    assert len(totals) == len(places) * n * packets
    assert all(len(sums) == n for _, sums in totals.values())
    return max(time for time, _ in totals.values())


def limit(time_of: Callable[[int], float], packets: int = 24) -> float:
    """The time for infinitely small packets: it is affine in 1/packets once the pipeline is full."""
    return 2 * time_of(2 * packets) - time_of(packets)


def subsets(axes: Sequence[int]) -> Iterator[frozenset[int]]:
    for count in range(len(axes) + 1):
        yield from map(frozenset, itertools.combinations(axes, count))
