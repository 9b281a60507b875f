"""The ``columns`` MILP: choose blocks that form a path through the lattice, under rows of any kind beside it.

One binary per block that the shortest path did not exclude, flow rows per down-set. A shortest path alone answers
the plain problem; the MILP is for rows that a path cannot keep (budgets of energy or power over the whole
path), for other solvers, and to be written to a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.arrays import LEAST_UNIT, Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.lattice import ShortestPath
from dfopt.milp import Model


class Columns:
    """MILP over listed blocks: binary variables choose a path of blocks (set partitioning).

    Blocks through which no path is as fast as the incumbent are left out. When the clock is over, building the model
    raises :class:`OutOfTime`.

    Parameters
    ----------
    search : ShortestPath
        Its lattice and limits count, and its blocks.
    clock : Clock
        Limit on building the model.
    blocks : (int array, int array, float array), optional
        Other blocks: the down-sets before and after each, and its seconds. Those that may run in several ways are there
        several times. Left out, those of the search, as :func:`near_blocks` lists them.
    """

    def __init__(
        self, search: ShortestPath, clock: Clock = UNLIMITED, blocks: tuple[Ints, Ints, Floats] | None = None
    ) -> None:
        self.search, self.clock = search, clock
        limits, lattice = search.limits, search.lattice
        self.before, self.after, self.seconds = near_blocks(search) if blocks is None else blocks
        self.unit_s = max(float(self.seconds.max(initial=0.0)), LEAST_UNIT)
        self.model = Model("columns")
        last = len(lattice.size) - 1
        if search.numbered:  # then a node is a down-set and a count
            self._layers(last)
        else:
            self.block, self.number = np.arange(len(self.seconds)), np.zeros(len(self.seconds), dtype=np.int64)
            self._flow(self.before, self.after, self.seconds, 0, last)
            if search.counted:
                least = float(limits.p_max) if limits.exactly else 1.0
                self.model.rows("partitions", [(self.x[None, :], 1.0)], least, float(limits.p_max))

    @property
    def member(self) -> Bools:
        """Kernels of every block, shape (blocks, kernels)."""
        return np.asarray(self.search.lattice.member[self.after] & ~self.search.lattice.member[self.before])

    def _layers(self, last: int) -> None:
        """One copy of the lattice per partition number; a step without a block leaves that partition empty."""
        arcs = layered_arcs(self.search, self.before, self.after, self.clock)
        real = arcs.block >= 0
        self.block, self.number = arcs.block[real], arcs.number[real]
        cost = np.concatenate([self.seconds[self.block], np.zeros(len(real) - len(self.block))])
        self._flow(arcs.tail, arcs.head, cost, 0, last + self.search.layers * (last + 1))

    def _flow(self, tail: Ints, head: Ints, cost: Floats, source: int, sink: int) -> None:
        """A path from source to sink over the given arcs."""
        self.x = self.model.binary("x", (len(tail),))
        flow_rows(self.model, self.x, tail, head, source, sink, clock=self.clock)
        self.model.minimize([(self.x, cost / self.unit_s)])

    def add(self, name: str, value: Floats, lower: float = -np.inf, upper: float = np.inf) -> None:
        """Add the row ``lower <= sum of value * chosen <= upper``, scaled to coefficients near 1.

        Parameters
        ----------
        name : str
            Name of the row.
        value : float array, shape (blocks,)
            Coefficient of every block, in the order of :attr:`member`.
        lower, upper : float
            Limits of the sum, in its unit.
        """
        if value.shape != self.seconds.shape:
            raise ValueError(f"side row {name!r}: shape {value.shape}, there are {len(self.seconds)} blocks")
        unit = max(float(np.abs(value).max(initial=0.0)), LEAST_UNIT)
        columns = self.x[: len(self.block)]
        self.model.rows(name, [(columns[None, :], value[self.block][None, :] / unit)], lower / unit, upper / unit)

    def start(self, path: list[tuple[int, int, int]]) -> Floats:
        """MIP start from a path, a list of (down-set before, down-set after, number); other columns stay open."""
        place = {
            (int(self.before[b]), int(self.after[b]), int(number)): at
            for at, (b, number) in enumerate(zip(self.block.tolist(), self.number.tolist(), strict=True))
        }
        chosen = np.zeros(len(self.x))
        if len(self.x) > len(self.block):
            chosen[len(self.block) :] = np.nan
        for before, after, number in path:
            at = place.get((before, after, number if self.search.numbered else 0))
            if at is None:
                raise ValueError("the path uses a block that the model does not have")
            chosen[at] = 1.0
        return self.model.start({"x": chosen})

    def taken(self, x: Floats) -> Ints:
        """Blocks that a solution chooses, in the order in which they run."""
        columns = np.flatnonzero(self.model.value("x", x)[: len(self.block)] > 0.5)
        return columns[np.argsort(self.before[self.block[columns]], kind="stable")]

    def decode(self, x: Floats) -> Ints:
        """Partition of every kernel in a solution: int array, shape (kernels,)."""
        path = [
            (int(self.before[self.block[at]]), int(self.after[self.block[at]]), int(self.number[at]))
            for at in self.taken(x)
        ]
        if self.search.counted and not self.search.numbered:
            path = [(a, b, number) for number, (a, b, _) in enumerate(path)]
        return self.search.partition_of(path)


@dataclass(frozen=True)
class LayeredArcs:
    """Arcs of a layered lattice, which has one copy for each partition number; arcs of empty partitions come last.

    Attributes
    ----------
    tail, head : int arrays, shape (arcs,)
        Nodes that an arc joins: down-sets, counted on from copy to copy.
    block : int array, shape (arcs,)
        Block of an arc; -1 for an empty partition.
    number : int array, shape (arcs,)
        Partition number.
    """

    tail: Ints
    head: Ints
    block: Ints
    number: Ints


def layered_arcs(search: ShortestPath, before: Ints, after: Ints, clock: Clock = UNLIMITED) -> LayeredArcs:
    """Arcs of the layered lattice: from a down-set in the copy of one partition number to one in the next copy.

    Parameters
    ----------
    search : ShortestPath
        A search that counts partitions.
    before, after : int array, shape (blocks,)
        Down-sets before and after each block.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.
    """
    layers, sets = search.layers, len(search.lattice.size)
    member = search.lattice.member[after] & ~search.lattice.member[before]
    block, number = [], []
    for layer in range(layers):
        clock.check()
        fits = np.flatnonzero(search.allowed(member, layer)) if len(before) else np.zeros(0, int)
        block.append(fits)
        number.append(np.full(len(fits), layer))
    chosen, at = np.concatenate(block), np.concatenate(number)
    tail = before[chosen] + at * sets
    head = after[chosen] + (at + 1) * sets
    if search.limits.exactly:
        return LayeredArcs(tail, head, chosen, at)
    # partitions behind the last used one are empty; under halves others may be as well
    where = np.arange(sets) if search.may_skip else np.array([sets - 1])
    skip = np.concatenate([where + layer * sets for layer in range(layers)])
    return LayeredArcs(
        np.concatenate([tail, skip]),
        np.concatenate([head, skip + sets]),
        np.concatenate([chosen, np.full(len(skip), -1)]),
        np.concatenate([at, np.repeat(np.arange(layers), len(where))]),
    )


def flow_rows(
    model: Model, x: Ints, tail: Ints, head: Ints, source: int, sink: int, name: str = "flow", clock: Clock = UNLIMITED
) -> None:
    """Add flow-conservation rows, so that the chosen arcs form a path from source to sink.

    Parameters
    ----------
    model : Model
        Gets the rows.
    x : int array, shape (arcs,)
        Columns that are 1 where an arc is chosen.
    tail, head : int array, shape (arcs,)
        Nodes that each arc leaves and enters.
    source, sink : int
        Nodes at the ends of the path.
    name : str
        Start of the names of the rows.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.
    """
    nodes, place = np.unique(np.concatenate([[source, sink], tail, head]), return_inverse=True)
    ends = place[2:]
    order = np.argsort(ends, kind="stable")
    arc = np.tile(x, 2)[order]
    sign = np.repeat([1.0, -1.0], len(tail))[order]
    first = np.searchsorted(ends[order], np.arange(len(nodes)))
    degree = np.bincount(ends, minlength=len(nodes))
    balance = np.zeros(len(nodes))
    balance[place[0]], balance[place[1]] = 1.0, -1.0
    # rows of like length together: a few nodes have thousands of arcs, most have ten
    size = np.ceil(np.log2(np.maximum(degree, 1))).astype(np.int64)
    for bits in np.unique(size).tolist():
        clock.check()
        rows = np.flatnonzero(size == bits)
        at = first[rows, None] + np.arange(int(degree[rows].max()))
        used = at < (first + degree)[rows, None]
        at = np.where(used, at, 0)
        terms = (np.where(used, arc[at], -1), np.where(used, sign[at], 0.0))
        model.rows(f"{name}_{bits}", [terms], balance[rows], balance[rows])


def near_blocks(search: ShortestPath, most: int | None = None) -> tuple[Ints, Ints, Floats]:
    """Blocks on some path no slower than the incumbent: down-sets before and after each, and its seconds.

    ``most``: the largest number of blocks, those on the fastest paths.
    """
    i, j, seconds = search.blocks()
    through = beside_blocks(search, i, j) + seconds
    keep = np.flatnonzero(through <= search.upper)
    if most is not None and len(keep) > most:
        keep = np.sort(keep[np.argsort(through[keep], kind="stable")[:most]])
    return i[keep], j[keep], seconds[keep]


def beside_blocks(search: ShortestPath, i: Ints, j: Ints) -> Floats:
    """Least seconds of the rest of a path through each block from down-set ``i`` to ``j``, without the block itself.

    Parameters
    ----------
    search : ShortestPath
        Shortest paths of the stage, with the kept blocks.
    i, j : int arrays, shape (blocks,)
        Down-sets before and after each block.
    """
    to_go = np.full(len(search.lattice.size), np.inf)
    to_go[-1] = 0.0
    for start, end, time in reversed(search.kept):  # kept level by level, smaller sets first
        np.minimum.at(to_go, start, time + to_go[end])
    return np.asarray(search.dist.min(axis=0)[i] + to_go[j])
