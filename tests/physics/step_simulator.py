"""Brute-force oracle, part 3: whole collectives over one or several dimensions, executed and checked.

`simulate` runs one algorithm; `fastest` all the ways in which an all-reduce or broadcast may treat each of its
dimensions (scatter the tensor for the dimensions after it, or work on it whole), and takes the fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import networkx as nx
from step_network import Chip, Item, Router, Run, at, chips_of, neighbours, network
from step_schedules import (
    BOTH,
    Place,
    Send,
    all_gather_1d,
    all_to_all_1d,
    limit,
    pipelined_all_reduce,
    pipelined_broadcast,
    reduce_scatter_1d,
    scatter_1d,
    subsets,
)

from dfopt.physics.collectives import Collective, Dim, Topology


@dataclass(frozen=True)
class Wires:
    """Links to run on, if they are not the product network of the dims."""

    graph: nx.DiGraph
    route: Router
    places: Sequence[Place] = (lambda chip: chip,)


def simulate(
    kind: Collective,
    volume: float,
    dims: Sequence[Dim],
    whole: Collection[int] = (),
    wires: Wires | None = None,
    orders: Sequence[Sequence[int]] | None = None,
) -> Run:
    """Run the collective, check that the data arrived, return the run with its time.

    ``whole``: axes that an all-reduce or broadcast works on without scattering first. ``orders``: axis orders of an
    all-to-all; several of them are as many equal shares of the tensor, under way at the same time.
    """
    if wires is None:
        graph = network(dims)
        wires = Wires(graph, neighbours(graph))
    task = _Task(volume, dims, frozenset(whole), wires)
    if kind is Collective.ALL_TO_ALL:
        return task.all_to_all(orders or [range(len(dims))])
    run: Run = getattr(task, kind.value)()
    return run


def fastest(kind: Collective, volume: float, dims: Sequence[Dim], wires: Wires | None = None) -> Run:
    """The run with the least bandwidth time, then the least latency, of all choices of whole dimensions."""
    runs = [simulate(kind, volume, dims, whole, wires) for whole in subsets(_may_be_whole(kind, dims))]
    least = min(run.transfer_seconds for run in runs)
    return min(
        (run for run in runs if run.transfer_seconds <= least * (1 + 1e-12)), key=lambda run: run.latency_seconds
    )


def _may_be_whole(kind: Collective, dims: Sequence[Dim]) -> list[int]:
    if kind not in (Collective.ALL_REDUCE, Collective.BROADCAST):
        return []
    piped = {Topology.LINE} | ({Topology.RING} if kind is Collective.BROADCAST else set())
    return [
        axis
        for axis, dim in enumerate(dims)
        if dim.size == 2 or (dim.size > 1 and (dim.topology in piped or dim.in_network_reduction))
    ]


class _Task:
    """One collective on its way. Items are half chunks (owner, half), one chunk for each chip of the axes that are
    not whole; an owner's other coordinates are 0."""

    def __init__(self, volume: float, dims: Sequence[Dim], whole: frozenset[int], wires: Wires) -> None:
        self.volume, self.dims, self.whole, self.wires = volume, dims, whole, wires
        self.chips = chips_of(dims)
        self.owners = self.free({})
        self.items: list[Item] = [(owner, half) for owner in self.owners for half in BOTH]
        self.run = Run(wires.graph, volume / len(self.items), wires.route, wires.places)

    def free(self, given: dict[int, int]) -> list[Chip]:
        """Owners with some coordinates given."""
        return list(
            itertools.product(
                *(
                    (0,) if k in self.whole else (given[k],) if k in given else range(dim.size)
                    for k, dim in enumerate(self.dims)
                )
            )
        )

    def play(self, axis: int, steps: list[list[Send]], mode: str, groups: list[Chip] | None = None) -> None:
        """A 1-D schedule in every group along `axis`; earlier axes of the chunks are already scattered."""
        if groups is None:
            groups = [chip for chip in self.chips if chip[axis] == 0]
        pieces = {
            (group, piece): self.free({**dict(enumerate(group[:axis])), axis: piece})
            for group in groups
            for piece in range(self.dims[axis].size)
        }
        for step in steps:
            self.run.step(
                [
                    (at(group, axis, src), at(group, axis, dst), (owner, half))
                    for group in groups
                    for src, dst, piece, halves in step
                    for owner in pieces[group, piece]
                    for half in halves
                ],
                mode,
            )

    def play_switch(self, axis: int, mode: str, flows: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> None:
        """Flows (sources, targets, piece) through every switch along `axis` that adds and multicasts, in one step."""
        self.run.switch_step(
            [
                ([at(group, axis, i) for i in sources], [at(group, axis, i) for i in targets], (owner, half))
                for group in self.chips
                if group[axis] == 0
                for sources, targets, piece in flows
                for owner in self.free({**dict(enumerate(group[:axis])), axis: piece})
                for half in BOTH
            ],
            mode,
        )

    def gather_phase(self) -> None:
        for axis, dim in reversed(list(enumerate(self.dims))):
            if axis in self.whole:
                continue
            if dim.in_network_reduction:
                flows = [([i], [j for j in range(dim.size) if j != i], i) for i in range(dim.size)]
                self.play_switch(axis, "copy", flows)
            else:
                self.play(axis, all_gather_1d(dim), "copy")

    def reduce_phase(self) -> None:
        for axis, dim in enumerate(self.dims):
            if axis in self.whole:
                self.reduce_whole(axis)
            elif dim.in_network_reduction:
                flows = [([j for j in range(dim.size) if j != i], [i], i) for i in range(dim.size)]
                self.play_switch(axis, "reduce", flows)
            else:
                self.play(axis, reduce_scatter_1d(dim), "reduce")

    def reduce_whole(self, axis: int) -> None:
        """An all-reduce along an axis of everything that the chips hold."""
        dim = self.dims[axis]
        if dim.in_network_reduction:
            self.play_switch(axis, "total", [(range(dim.size), range(dim.size), 0)])
        elif dim.size == 2:
            self.play(axis, [[(0, 1, 0, BOTH), (1, 0, 0, BOTH)]], "add")
        else:
            self.piped(axis, pipelined_all_reduce)
            for group in (chip for chip in self.chips if chip[axis] == 0):
                members = [at(group, axis, i) for i in range(dim.size)]
                for item in list(self.run.held[group]):
                    total = tuple(itertools.chain.from_iterable(self.run.held[chip][item] for chip in members))
                    for chip in members:
                        self.run.held[chip][item] = total

    def piped(self, axis: int, algorithm: Callable[..., float]) -> None:
        """A pipelined collective in one group of an axis (the others have links of their own) or in all places."""
        assert len(self.dims) == 1 or len(self.wires.places) == 1
        here, route = self.chips[0], self.wires.route
        size = len(self.run.held[here]) * self.run.item_bytes  # every chip holds as much
        places = self.wires.places if len(self.dims) == 1 else [lambda chip: at(here, axis, chip[0])]
        slow, fast = self.wires.graph.copy(), self.wires.graph.copy()
        for edge in slow.edges:
            slow.edges[edge]["latency"] = 0.0
        for edge in fast.edges:
            fast.edges[edge]["bandwidth"] = float("inf")
        dim = self.dims[axis]
        self.run.transfer_seconds += limit(lambda packets: algorithm(slow, route, dim, size, packets, places))
        self.run.latency_seconds += algorithm(fast, route, dim, size, 2, places)

    def all_gather(self) -> Run:
        for chip in self.chips:
            self.run.held[chip] = {(chip, half): (chip,) for half in BOTH}
        self.gather_phase()
        assert all(set(self.run.held[chip]) == set(self.items) for chip in self.chips)
        return self.run

    def _reduce(self) -> None:
        for chip in self.chips:
            self.run.held[chip] = dict.fromkeys(self.items, (chip,))
        self.reduce_phase()
        for chip in self.chips:
            owner = tuple(0 if k in self.whole else x for k, x in enumerate(chip))
            assert set(self.run.held[chip]) == {(owner, half) for half in BOTH}
            assert all(sorted(parts) == self.chips for parts in self.run.held[chip].values())

    def reduce_scatter(self) -> Run:
        self._reduce()
        return self.run

    def all_reduce(self) -> Run:
        self._reduce()
        self.gather_phase()
        for chip in self.chips:
            assert set(self.run.held[chip]) == set(self.items)
            assert all(sorted(parts) == self.chips for parts in self.run.held[chip].values())
        return self.run

    def broadcast(self) -> Run:
        root = self.chips[0]
        self.run.held[root] = dict.fromkeys(self.items, (root,))
        for axis, dim in enumerate(self.dims):
            groups = [chip for chip in self.chips if not any(chip[axis:])]  # everybody reached so far
            if axis not in self.whole:
                self.play(axis, scatter_1d(dim) if dim.size > 1 else [], "move", groups)
            elif dim.size > 2 and not dim.in_network_reduction:
                self.piped(axis, pipelined_broadcast)
                for group in groups:
                    for i in range(1, dim.size):
                        self.run.held[at(group, axis, i)] = dict(self.run.held[group])
            elif dim.in_network_reduction:
                targets = {g: [at(g, axis, i) for i in range(1, dim.size)] for g in groups}
                self.run.switch_step([([g], targets[g], item) for g in groups for item in self.run.held[g]], "copy")
            else:
                self.play(axis, [[(0, 1, 0, BOTH)]], "copy", groups)
        self.gather_phase()
        assert all(set(self.run.held[chip]) == set(self.items) for chip in self.chips)
        return self.run

    def all_to_all(self, orders: Sequence[Sequence[int]]) -> Run:
        count = len(self.chips)
        run = Run(self.wires.graph, self.volume / count**2 / 2 / len(orders), self.wires.route, self.wires.places)
        every = [(target, lane, half) for target in self.chips for lane in range(len(orders)) for half in BOTH]
        for chip in self.chips:
            run.held[chip] = {(chip, *rest): (chip,) for rest in every}
        lanes = [list(self._exchange(lane, order)) for lane, order in enumerate(orders)]
        for together in itertools.zip_longest(*lanes, fillvalue=[]):
            run.step(itertools.chain.from_iterable(together), "move")
        for chip in self.chips:
            expected = {
                (origin, chip, lane, half) for origin in self.chips for lane in range(len(orders)) for half in BOTH
            }
            assert set(run.held[chip]) == expected
        return run

    def _exchange(self, lane: int, order: Sequence[int]) -> list[list[tuple[Chip, Chip, Item]]]:
        """Steps of an exchange along one axis after the other. In the groups along an axis stands data whose axes
        before it in the order are already at the target, and whose later ones are still at the origin."""
        steps: list[list[tuple[Chip, Chip, Item]]] = []
        sizes = [range(dim.size) for dim in self.dims]
        for place, axis in enumerate(order):
            earlier, later = set(order[:place]), set(order[place + 1 :])
            for step in all_to_all_1d(self.dims[axis]):
                transfers: list[tuple[Chip, Chip, Item]] = []
                for group in (chip for chip in self.chips if chip[axis] == 0):
                    for src, dst, start, goal, halves in step:
                        here, there = at(group, axis, src), at(group, axis, dst)
                        origins = [
                            (start,) if k == axis else (group[k],) if k in later else r for k, r in enumerate(sizes)
                        ]
                        targets = [
                            (goal,) if k == axis else (group[k],) if k in earlier else r for k, r in enumerate(sizes)
                        ]
                        transfers += [
                            (here, there, (origin, target, lane, half))
                            for origin in itertools.product(*origins)
                            for target in itertools.product(*targets)
                            for half in halves
                        ]
                steps.append(transfers)
        return steps
