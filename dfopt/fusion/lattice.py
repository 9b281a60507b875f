"""The ``columns`` form: an order of partitions is a path in the lattice of down-sets of the graph.

A down-set holds every predecessor of its kernels. Executing partitions in order visits down-sets
``{} = I_0 < I_1 < ... < I_P = all``, and the block between two of them costs what it costs whatever the
rest looks like. So the least sum is a shortest path, exact for any block price (formulation note,
section 2b). Layer graphs are nearly chains and their lattices small: 26 down-sets for a GPT layer forward.

Pairs of down-sets are priced level by level, only where distance so far + a bound on the block + a
bound on the rest can still beat the best known partitioning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.fusion import library
from dfopt.fusion.adding import added
from dfopt.fusion.blocks import StageTables, part_of, price_blocks, price_each
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.partitioning import TIES, IntraChipLimits, alive_bytes, least_terms, rest_bound
from dfopt.milp import TracePoint
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.chip import combine
from dfopt.terms.sram import FITS, keeps_chip

_PAIRS: Final = 20  # pairs of down-sets that a unit of work lists,
_LOT, _BLOCKS = 20.0, 2  # units of work of a lot of blocks, and blocks priced in a further one
_POINTS: Final = 100  # of a trace, about: a result keeps them all


@dataclass(frozen=True)
class PathResult:
    """Outcome of a shortest-path search over the lattice of a stage.

    Attributes
    ----------
    complete : bool
        True: it found the best partitioning, or that none beats the incumbent. False: time was over.
    partition_k : int array, shape (kernels,), optional
        The best partitioning found.
    objective, bound : float, s
        Its time, and the proven lower bound on all others.
    note : str
        Remark for the solve record.
    trace : tuple of TracePoint
        Improvements of both.
    """

    complete: bool
    partition_k: Ints | None
    objective: float
    bound: float
    note: str
    trace: tuple[TracePoint, ...]


class ShortestPath:
    """Exact shortest-path search through the lattice of a stage, under limits on its partitions."""

    chunk = 200_000  # pairs looked at together
    lot = 5_000  # blocks priced together: arrays that stay in the cache take half the time

    def __init__(self, tables: StageTables, limits: IntraChipLimits, lattice: Lattice, best_known: float) -> None:
        self.tables, self.limits, self.lattice = tables, limits, lattice
        self.upper = best_known * (1 + TIES)
        sharded = tables.sharded
        weight = lattice.member.astype(float)
        self.terms = [added(weight, term) for term in least_terms(tables, limits)]
        stays_k = np.where(tables.parts_k > 1, 0.0, sharded.stationary_k)
        # weights need not stay where tokens come in blocks
        self.stationary = added(weight, stays_k if sharded.token_charges is None else np.zeros(tables.kernels))
        self.tiled = (weight @ tables.single_k).astype(np.int64)
        self.ahead = (weight @ sharded.forward_k).astype(np.int64)
        self.longest = min(tables.chip.tiles, library.largest(sharded) if tables.chip.library else tables.kernels)
        self.rest = rest_bound(tables, limits, lattice.member)
        self.counted = limits.are_counted(tables.kernels, sharded.forward_k)
        # a partition's number has a meaning of its own: fewer partitions before it are not as good
        self.numbered = bool(limits.pins) or (limits.forward_backward == "halves" and self.counted)
        self.layers = limits.p_max if self.counted else 0
        self.may_skip = self.counted and limits.may_skip
        self.dist = np.full((self.layers + 1, len(lattice.size)), np.inf)
        self.dist[0, 0] = 0.0
        self.kept: list[tuple[Ints, Ints, Floats]] = []
        # of any set as large or larger: what none of them does without
        self.least = np.minimum.accumulate(self.stationary[::-1])[::-1]
        self.pairs = 0

    def run(self, clock: Clock = UNLIMITED, progress: Callable[[TracePoint], None] | None = None) -> PathResult:
        """Search until complete or the clock is over; ``progress`` receives (seconds, incumbent, bound)."""
        began = time.perf_counter()
        lattice = self.lattice
        self.clock = clock
        bound, complete = 0.0, True
        trace: list[TracePoint] = []
        for size in range(self.tables.kernels):
            first, last = np.searchsorted(lattice.size, [size, size + 1])
            level = np.arange(first, last)
            if self.may_skip:
                for layer in range(self.layers):
                    self.dist[layer + 1, level] = np.minimum(self.dist[layer + 1, level], self.dist[layer, level])
            nearest = self.dist[:, level].min(axis=0)
            level = level[nearest + self.rest[level] <= self.upper]
            end = self._reach(level, size)
            step = max(self.chunk // max(end - last, 1), 1)
            try:
                for start in range(0, len(level), step):
                    self.clock.check()
                    self._extend(level[start : start + step], last, end)
            except OutOfTime:
                complete = False
                break
            # every path still has to leave a set reached beyond this level
            bound = float(np.min(self.dist[:, last:].min(axis=0) + self.rest[last:]))
            point = TracePoint(time.perf_counter() - began, self.upper, min(bound, self.upper))
            if not trace or point.bound > trace[-1].bound:
                trace.append(point)
            if progress is not None:
                progress(point)
        partition_k, value = self._path() if complete else (None, np.inf)
        bound = value if partition_k is not None else min(bound, self.upper)
        if partition_k is not None:
            trace.append(TracePoint(time.perf_counter() - began, value, value))
        blocks = sum(len(i) for i, _, _ in self.kept)
        note = f"{len(lattice.size)} down-sets, {self.pairs} pairs, {blocks} blocks could improve"
        # the last point is always among them
        sparse = trace[:: -max(-(-len(trace) // _POINTS), 1)][::-1]
        return PathResult(complete, partition_k, value, bound, note, tuple(sparse))

    def _reach(self, level: Ints, size: int) -> int:
        """First of the down-sets that are all too large to be reached from a level with one block."""
        if not len(level):
            return 0
        room = self.stationary[level].max() + self.tables.chip.sram * (1 + FITS)
        heavy = int(np.searchsorted(self.least, room, side="right"))
        large = int(np.searchsorted(self.lattice.size, size + self.longest, side="right"))
        return min(heavy, large)

    def _extend(self, level: Ints, last: int, end: int) -> None:
        """Price the blocks that leave these down-sets, and shorten the distances behind them."""
        lattice, limits, chip = self.lattice, self.limits, self.tables.chip
        i, j = self._between(level, last, end)
        self.pairs += len(i)
        self.clock.charge(len(i) / _PAIRS)
        nearest = self.dist[:, i].min(axis=0)
        block = self._least(i, j)
        count = lattice.size[j] - lattice.size[i]
        ahead = self.ahead[j] - self.ahead[i] if limits.forward_backward == "separate" else None
        keep = keeps_chip(chip, count, self.tiled[j] - self.tiled[i], self.stationary[j] - self.stationary[i], ahead)
        keep &= nearest + block + self.rest[j] <= self.upper
        i, j, nearest = i[keep], j[keep], nearest[keep]
        for start in range(0, len(i), self.lot):
            part = slice(start, start + self.lot)
            self.clock.check(_LOT + len(i[part]) / _BLOCKS)
            self._price(i[part], j[part], nearest[part])

    def _between(self, level: Ints, last: int, end: int) -> tuple[Ints, Ints]:
        """Pairs of these down-sets with those up to ``end`` that hold them; a library adds one of its blocks."""
        if self.tables.chip.library:
            steps = self.lattice.steps(self.tables, self.clock)
            first, behind = np.searchsorted(steps.before, [level[0], level[-1] + 1])
            before, after = steps.before[first:behind], steps.after[first:behind]
            here = np.isin(before, level) & (after < end)
            return before[here], after[here]
        return self.lattice.larger(level, last, max(end, last))

    def _least(self, i: Ints, j: Ints) -> Floats:
        """What the blocks between these down-sets cost at least."""
        return combine([term[j] - term[i] for term in self.terms], self.tables.chip)

    def _price(self, i: Ints, j: Ints, nearest: Floats) -> None:
        """Take those of the blocks between some down-sets that may be on a path that is good enough."""
        member, seconds, legal = self._prices(i, j)
        keep = legal & (nearest + seconds + self.rest[j] <= self.upper)
        if self.tables.bytes_g.sum() > self.limits.dram_left:  # else they fit even if all are alive at once
            past = self.lattice.member[i]
            keep &= alive_bytes(self.tables, self.limits, past, member) <= self.limits.dram_left
        if keep.any():
            self._take(i[keep], j[keep], seconds[keep], member[keep])

    def _prices(self, i: Ints, j: Ints) -> tuple[Bools, Floats, Bools]:
        """The kernels of the blocks between some down-sets, their seconds, and whether they are legal."""
        if self.tables.chip.library:  # the same few blocks over and over
            block, prices = self.lattice.steps(self.tables, self.clock).of(i, j), self._of_library
            return self.lattice.steps(self.tables).member[block], prices.time[block], prices.legal[block]
        member = self.lattice.member[j] & ~self.lattice.member[i]
        # blocks of one level lie close together in a long graph: the rest of it need not be looked at
        here = np.flatnonzero(member.any(axis=0)).astype(np.int64)
        prices = price_blocks(part_of(self.tables, here), member[:, here])
        return member, prices.time, prices.legal

    @cached_property
    def _of_library(self) -> BlockPrices:
        """Prices of all blocks of a library."""
        member = self.lattice.steps(self.tables, self.clock).member
        return price_each(self.tables, [np.flatnonzero(row).astype(np.int64) for row in member])

    def _take(self, i: Ints, j: Ints, cost: Floats, member: Bools) -> None:
        """Keep blocks, and shorten the distances behind them."""
        self.kept.append((i, j, cost))
        if not self.counted:
            np.minimum.at(self.dist[0], j, self.dist[0, i] + cost)
            return
        for layer in range(self.layers):
            allowed = self.allowed(member, layer)
            joined = self.dist[layer, i] + cost
            np.minimum.at(self.dist[layer + 1], j, np.where(allowed, joined, np.inf))

    def allowed(self, member: Bools, layer: int) -> Bools:
        """Mask of the blocks that may be partition number ``layer``, by pins and the rule of halves."""
        first, last = self.limits.numbers(member, self.tables.sharded.forward_k)
        return np.asarray((first <= layer) & (layer <= last))

    def blocks(self) -> tuple[Ints, Ints, Floats]:
        """Down-set before, down-set after and seconds of every block that was not excluded."""
        if not self.kept:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        i, j, seconds = (np.concatenate(parts) for parts in zip(*self.kept, strict=True))
        return i, j, seconds

    def _path(self) -> tuple[Ints | None, float]:
        """Walk back from the full set along kept blocks that explain the distances."""
        full = len(self.lattice.size) - 1
        ends = self.dist[:, full]
        layer = self.layers if self.limits.exactly else int(np.argmin(ends))
        value = float(ends[layer])
        # where partitions are counted, blocks that lie near a short path with another count may form a longer one
        if not np.isfinite(value) or value > self.upper:
            return None, value
        i, j, seconds = self.blocks()
        order = np.argsort(j, kind="stable")
        i, j, seconds = i[order], j[order], seconds[order]
        self.path: list[tuple[int, int, int]] = []  # down-set before, down-set after, number of the partition
        at = full
        while at != 0:
            if self.may_skip and at != full and layer > 0 and self.dist[layer - 1, at] <= self.dist[layer, at]:
                layer -= 1
                continue
            low, high = np.searchsorted(j, [at, at + 1])
            before = self.dist[layer - 1 if self.counted else 0, i[low:high]] + seconds[low:high]
            if self.counted:
                member = self.lattice.member[at] & ~self.lattice.member[i[low:high]]
                before = np.where(self.allowed(member, layer - 1), before, np.inf)
            pick = low + int(np.argmin(before))
            self.path.append((int(i[pick]), at, layer - 1))
            at, layer = int(i[pick]), layer - 1
        self.path.reverse()
        return self.partition_of(self.path), value

    def partition_of(self, path: list[tuple[int, int, int]]) -> Ints:
        """Partition of every kernel along a path of (down-set before, down-set after, number)."""
        partition_k = np.empty(self.tables.kernels, dtype=np.int64)
        for place, (before, after, number) in enumerate(path):
            block = self.lattice.member[after] & ~self.lattice.member[before]
            partition_k[block] = number if self.counted else place
        return partition_k
