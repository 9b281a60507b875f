"""Brute-force oracle: collective algorithms executed chunk by chunk over explicit directed links.

Nothing here uses a formula of `dfopt.physics.collectives`. A schedule is a list of steps, a step a list
of transfers that happen at the same time. A step lasts (bytes on the busiest link) / bandwidth, plus the
latency of the longest path used in it. The simulator also moves the data: a chip can only send what it
held when the step began, and every run ends with a check that each chip holds exactly what the
collective promises (for reductions: every contribution once and only once).
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import networkx as nx

from dfopt.physics.collectives import Collective, Dim, Topology

Chip = tuple[int, ...]  # one coordinate per dimension
Item = Hashable

# --------------------------------------------------------------------------------------- network


def network(dims: Sequence[Dim]) -> nx.DiGraph:
    """Cartesian product of the dimensions; parallel edges of a ring of two collapse into one link."""
    graph = nx.DiGraph()
    chips = list(itertools.product(*(range(dim.size) for dim in dims)))
    graph.add_nodes_from(chips)
    for axis, dim in enumerate(dims):
        attrs = {"bandwidth": dim.bandwidth, "latency": dim.latency}
        for chip in chips:
            if dim.topology is Topology.RING and dim.size > 1:
                for step in (1, -1):
                    graph.add_edge(chip, at(chip, axis, (chip[axis] + step) % dim.size), **attrs)
            elif dim.topology is Topology.FULLY_CONNECTED:
                for j in range(dim.size):
                    if j != chip[axis]:
                        graph.add_edge(chip, at(chip, axis, j), **attrs)
            elif dim.topology is Topology.SWITCH:
                switch = ("switch", axis, at(chip, axis, -1))
                graph.add_edge(chip, switch, **attrs)
                graph.add_edge(switch, chip, bandwidth=dim.bandwidth, latency=0.0)  # one latency in all
    return graph


def at(chip: Chip, axis: int, value: int) -> Chip:
    """`chip` with one coordinate replaced."""
    return (*chip[:axis], value, *chip[axis + 1 :])


def route(graph: nx.DiGraph, src: Chip, dst: Chip) -> list[tuple[Item, Item]]:
    """The link, or the two links through the one switch, between chips adjacent in a dimension."""
    if graph.has_edge(src, dst):
        return [(src, dst)]
    axis = next(k for k in range(len(src)) if src[k] != dst[k])
    switch = ("switch", axis, at(src, axis, -1))
    assert graph.has_edge(src, switch), f"no link from {src} to {dst}"
    assert graph.has_edge(switch, dst), f"no link from {src} to {dst}"
    return [(src, switch), (switch, dst)]


# ------------------------------------------------------------------------------------- execution


@dataclass
class Run:
    """State of the chips and time spent. `held[chip][item]` is the tuple of contributions in it."""

    graph: nx.DiGraph
    item_bytes: float
    held: dict[Chip, dict[Item, tuple[Chip, ...]]] = field(default_factory=lambda: defaultdict(dict))
    transfer_seconds: float = 0.0
    latency_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.transfer_seconds + self.latency_seconds

    def step(self, transfers: Iterable[tuple[Chip, Chip, Item]], mode: str) -> None:
        """All `transfers` at once; `mode` is copy (source keeps), move or reduce (add up, then move)."""
        load: dict[tuple[Item, Item], float] = defaultdict(float)
        peers: dict[Item, set[Chip]] = defaultdict(set)
        arrivals, departures, latency = [], [], 0.0
        for src, dst, item in transfers:
            assert item in self.held[src], f"{src} sends {item} before it has it"
            arrivals.append((dst, item, self.held[src][item]))
            departures.append((src, item))
            path = route(self.graph, src, dst)
            for link in path:
                load[link] += self.item_bytes
            if len(path) > 1:  # a port serves one message per step: this is what counts the rounds
                peers[path[0]].add(dst)
                peers[path[1]].add(src)
            latency = max(latency, sum(self.graph.edges[link]["latency"] for link in path))
        assert all(len(who) == 1 for who in peers.values()), "a switch port with two messages in a step"
        if mode != "copy":
            for src, item in departures:
                del self.held[src][item]
        for dst, item, parts in arrivals:
            if mode == "reduce":
                parts = self.held[dst].get(item, ()) + parts
            else:
                assert item not in self.held[dst], f"{dst} gets {item} twice"
            self.held[dst][item] = parts
        self.transfer_seconds += max(
            (size / self.graph.edges[link]["bandwidth"] for link, size in load.items()), default=0.0
        )
        self.latency_seconds += latency


# ------------------------------------------------------- one-dimensional schedules (chips 0 .. n-1)

# (source, destination, piece, halves): piece j of n, cut in halves 0 and 1.
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
    """Chip 0 hands piece j to chip j: directly, or along a binomial tree through a switch."""
    n = dim.size
    if dim.topology is Topology.FULLY_CONNECTED:
        return [[(0, j, j, BOTH) for j in range(1, n)]]
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


def all_to_all_1d(dim: Dim) -> list[list[tuple[int, int, int, int, tuple[int, ...]]]]:
    """Steps of (from, to, origin, target, halves)."""
    n = dim.size
    if dim.topology is Topology.FULLY_CONNECTED:
        return [[(i, j, i, j, BOTH) for i in range(n) for j in range(n) if j != i]]
    if dim.topology is Topology.SWITCH:
        return [[(i, (i + k) % n, i, (i + k) % n, BOTH) for i in range(n)] for k in range(1, n)]
    steps = []
    for s in range(n // 2):  # whatever still has a hop to go moves one hop
        step = []
        for i in range(n):
            for way, half in ((1, 0), (-1, 1)):
                for distance in range(s + 1, n // 2 + 1):
                    halves: tuple[int, ...] = (
                        (half,) if 2 * distance == n else BOTH
                    )  # the antipode is reached both ways
                    here = (i + way * s) % n
                    step.append((here, (here + way) % n, i, (i + way * distance) % n, halves))
        steps.append(step)
    return steps


# -------------------------------------------------------------------------- whole collectives


def simulate(kind: Collective, volume: float, dims: Sequence[Dim]) -> Run:
    """Run the collective, check that the data arrived, return the run with its time."""
    runners: dict[Collective, Callable[[float, Sequence[Dim]], Run]] = {
        Collective.ALL_GATHER: _all_gather,
        Collective.REDUCE_SCATTER: _reduce_scatter,
        Collective.ALL_REDUCE: _all_reduce,
        Collective.ALL_TO_ALL: _all_to_all,
        Collective.BROADCAST: _broadcast,
    }
    return runners[kind](volume, dims)


def _chips(dims: Sequence[Dim]) -> list[Chip]:
    return list(itertools.product(*(range(dim.size) for dim in dims)))


def _start(volume: float, dims: Sequence[Dim]) -> tuple[Run, list[Chip], list[Item]]:
    """Items are half chunks (owner, half), one chunk per chip."""
    chips = _chips(dims)
    items: list[Item] = [(chip, half) for chip in chips for half in BOTH]
    return Run(network(dims), volume / len(items)), chips, items


def _play(run: Run, dims: Sequence[Dim], axis: int, steps: list[list[Send]], mode: str) -> None:
    """A 1-D schedule in every group along `axis`; earlier axes of the chunks are already scattered."""
    chips = _chips(dims)
    for step in steps:
        run.step(
            [
                (at(group, axis, src), at(group, axis, dst), (owner, half))
                for group in chips
                if group[axis] == 0
                for src, dst, piece, halves in step
                for owner in chips
                if owner[axis] == piece and owner[:axis] == group[:axis]
                for half in halves
            ],
            mode,
        )


def _gather_phase(run: Run, dims: Sequence[Dim]) -> None:
    for axis in reversed(range(len(dims))):
        _play(run, dims, axis, all_gather_1d(dims[axis]), "copy")


def _reduce_phase(run: Run, dims: Sequence[Dim]) -> None:
    for axis in range(len(dims)):
        _play(run, dims, axis, reduce_scatter_1d(dims[axis]), "reduce")


def _all_gather(volume: float, dims: Sequence[Dim]) -> Run:
    run, chips, items = _start(volume, dims)
    for chip in chips:
        run.held[chip] = {(chip, half): (chip,) for half in BOTH}
    _gather_phase(run, dims)
    assert all(set(run.held[chip]) == set(items) for chip in chips)
    return run


def _contribute(run: Run, chips: list[Chip], items: list[Item]) -> None:
    for chip in chips:
        run.held[chip] = dict.fromkeys(items, (chip,))


def _check_reduced(run: Run, chips: list[Chip]) -> None:
    for chip in chips:
        assert set(run.held[chip]) == {(chip, half) for half in BOTH}
        assert all(sorted(parts) == sorted(chips) for parts in run.held[chip].values())


def _reduce_scatter(volume: float, dims: Sequence[Dim]) -> Run:
    run, chips, items = _start(volume, dims)
    _contribute(run, chips, items)
    _reduce_phase(run, dims)
    _check_reduced(run, chips)
    return run


def _all_reduce(volume: float, dims: Sequence[Dim]) -> Run:
    run, chips, items = _start(volume, dims)
    _contribute(run, chips, items)
    _reduce_phase(run, dims)
    _check_reduced(run, chips)
    _gather_phase(run, dims)
    for chip in chips:
        assert set(run.held[chip]) == set(items)
        assert all(sorted(parts) == sorted(chips) for parts in run.held[chip].values())
    return run


def _all_to_all(volume: float, dims: Sequence[Dim]) -> Run:
    chips = _chips(dims)
    run = Run(network(dims), volume / len(chips) ** 2 / 2)
    for chip in chips:
        run.held[chip] = {(chip, target, half): (chip,) for target in chips for half in BOTH}
    for axis, dim in enumerate(dims):
        for step in all_to_all_1d(dim):
            transfers: list[tuple[Chip, Chip, Item]] = []
            for group in chips:
                if group[axis] != 0:
                    continue
                # Data standing in this group: earlier axes already at the target, later ones at the origin.
                for src, dst, start, goal, halves in step:
                    for origin in chips:
                        if origin[axis] != start or origin[axis + 1 :] != group[axis + 1 :]:
                            continue
                        for target in chips:
                            if target[axis] == goal and target[:axis] == group[:axis]:
                                transfers += [
                                    (at(group, axis, src), at(group, axis, dst), (origin, target, half))
                                    for half in halves
                                ]
            run.step(transfers, "move")
    for chip in chips:
        assert set(run.held[chip]) == {(origin, chip, half) for origin in chips for half in BOTH}
    return run


def _broadcast(volume: float, dims: Sequence[Dim]) -> Run:
    """Scatter and all-gather along each dimension in turn (switch, fully connected; n = 2: one send)."""
    run, chips, items = _start(volume, dims)
    root = chips[0]
    run.held[root] = dict.fromkeys(items, (root,))
    for axis, dim in enumerate(dims):
        sources = [chip for chip in chips if not any(chip[axis:])]  # everybody reached so far
        if dim.size == 1:
            continue
        if dim.size == 2:
            run.step([(chip, at(chip, axis, 1), item) for chip in sources for item in items], "copy")
            continue
        assert dim.topology is not Topology.RING, "rings of more than two chips: see pipelined_broadcast"
        for mode, steps in (("move", scatter_1d(dim)), ("copy", all_gather_1d(dim))):
            for step in steps:
                run.step(
                    [
                        (at(chip, axis, src), at(chip, axis, dst), item)
                        for chip in sources
                        for src, dst, piece, _ in step
                        for item in items
                        if item[0][axis] == piece  # type: ignore[index]
                    ],
                    mode,
                )
    assert all(set(run.held[chip]) == set(items) for chip in chips)
    return run


# ---------------------------------------------------------------------- independent second oracles


def pipelined_broadcast(volume: float, dim: Dim, packets: int) -> float:
    """Event-driven ring broadcast in `packets` store-and-forward packets; time of the last chip.

    The root sends packet 0, 1, ... one way and the last, last but one, ... the other way; chips forward
    what they get. A link is busy for packet/bandwidth; a packet arrives one latency after it left.
    """
    n, size = dim.size, volume / packets
    graph = network([dim])
    free: dict[tuple[Item, Item], float] = defaultdict(float)
    arrival: dict[tuple[int, int], float] = {}
    events: list[tuple[float, int, int, int, int]] = []  # (time ready, order, chip, packet, way)
    for order in range(packets):
        heapq.heappush(events, (0.0, order, 0, order, 1))
        heapq.heappush(events, (0.0, order, 0, packets - 1 - order, -1))
    while events:
        ready, order, chip, packet, way = heapq.heappop(events)
        if chip != 0 or ready > 0:
            if chip == 0:
                continue  # all the way round
            arrival[chip, packet] = min(ready, arrival.get((chip, packet), ready))
        link = ((chip,), ((chip + way) % n,))
        attrs = graph.edges[link]
        sent = max(ready, free[link]) + size / attrs["bandwidth"]
        free[link] = sent
        heapq.heappush(events, (sent + attrs["latency"], order, link[1][0], packet, way))
    return max(arrival[chip, packet] for chip in range(1, n) for packet in range(packets))


def shortest_path_all_to_all(volume: float, dim: Dim) -> float:
    """Fluid transfer time of an all-to-all: every pair split evenly over all its shortest paths."""
    graph = network([dim])
    chips = _chips([dim])
    load: dict[tuple[Item, Item], float] = defaultdict(float)
    for src, dst in itertools.permutations(chips, 2):
        paths = list(nx.all_shortest_paths(graph, src, dst))
        for path in paths:
            for link in itertools.pairwise(path):
                load[link] += volume / dim.size**2 / len(paths)
    return max(size / float(graph.edges[link]["bandwidth"]) for link, size in load.items())
