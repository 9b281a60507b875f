"""The ``columns`` form without enumerating: blocks generated on demand, for lattices too large to list.

Choosing blocks that hold every kernel once is a set-partitioning problem. Its linear relaxation over *all*
convex blocks is a lower bound, far tighter than one that adds up work and unavoidable traffic, and is
found with few of them: prices of kernels come from the LP over the blocks known so far, and a block whose
kernels are worth more than its time is added. Such blocks are looked for in intervals of topological orders,
then near the blocks in use, then with a MILP (:mod:`dfopt.fusion.one_block`) which also proves that there
is none. Interchangeable kernels share a row, so 64 experts cost no more than one.

The prices that are tried lie between the last proven ones and the LP's (in-out separation: Ben-Ameur and
Neto, Acceleration of cutting-plane and column generation algorithms, Networks 49, 2007), which halves the gap
whenever the MILP finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import scipy

from dfopt.arrays import LEAST_UNIT, Floats, Ints
from dfopt.bnb import Clock, OutOfTime
from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables, price_each, singles
from dfopt.fusion.classes import distinct, interchangeable
from dfopt.fusion.intervals import Band, price_intervals
from dfopt.fusion.moves import Moves
from dfopt.fusion.one_block import TOLERANCE, CountedBlock, Listed, OneBlock, pricing, slack
from dfopt.fusion.partitioning import (
    SAME,
    TIES,
    IntraChipLimits,
    blocks_of,
    keeps,
    least_terms,
    lower_bound,
    objective,
    sides,
)
from dfopt.fusion.rounding import lined_up, whole_blocks
from dfopt.fusion.segments import best_segmentation, order_by_rank, precedence, topological_orders
from dfopt.milp import Solution, Termination, TracePoint, closed_form
from dfopt.milp.linear import GrowingLp, LpPoint

_LONGEST = 400  # kernels in an interval that is offered to the LP; larger blocks come from the MILP
_ORDERS = 12  # topological orders whose intervals are kept
_BATCH = 100  # blocks added to the LP at once
_CLOSED = 5e-7  # relative distance of LP and bound at which nothing is left to prove
_ROUNDING = 0.15  # of the work that is left, for choosing whole blocks once
_FIRM = 0.5  # weight of the proven prices, less with every proof
_LOOSE: Final = 1e-4  # weight of the proven prices at which what was proven counts as unweighted
_DEAR: Final = 10.0  # times all kernels alone: what an LP is left with that cannot keep p_max so far
_DIGITS: Final = 10  # of a column's seconds in units: columns that differ by less are one
_USED: Final = 1e-6  # of a column in the LP's point: less is tolerance of the solver


@dataclass(frozen=True)
class Generated:
    """Result of column generation: the best partitioning, if any, and its proof.

    Attributes
    ----------
    partition_k : int array, shape (kernels,), optional
        The best partitioning.
    solution : Solution
        Value and bound; rows are classes of kernels, columns the generated blocks.
    closed : bool
        Whether the bound equals the LP relaxation, so that more pricing cannot raise it.
    """

    partition_k: Ints | None
    solution: Solution
    closed: bool


class Column(NamedTuple):
    """A column of the LP: a block as counts of kernels by class, its seconds, and its kernels if they are known."""

    counts: Floats
    seconds: float
    kernels: Ints | None


class Generation:
    """Column generation for the partitions of one stage."""

    def __init__(
        self,
        tables: StageTables,
        limits: IntraChipLimits,
        start: Ints | None = None,
        cutoff: float | None = None,
        seed: int = 0,
        floor: float = 0.0,
    ) -> None:
        self.tables, self.limits, self.seed = tables, limits, seed
        self.cutoff = np.inf if cutoff is None else cutoff
        least_s = lower_bound(tables, limits)
        self.unit, self.bound = max(least_s, LEAST_UNIT), max(least_s, floor)
        self.classes = distinct(tables)
        self.best_s = np.inf
        self.best: Ints | None = None
        self.trace: list[TracePoint] = []
        self.began = time.perf_counter()
        self.pool: list[tuple[Ints, list[Band]]] = []
        self.columns: list[Column] = []
        self.keys: set[tuple[bytes, float]] = set()
        self.pricings = self.nodes = 0
        self.counted = limits.exactly or limits.p_max < tables.kernels
        self._first_prices()
        if start is not None:
            self._candidate(start)

    # ----------------------------------------------------------------- start

    def _prepare(self) -> None:
        """Classes, orders, and the LP with its first columns."""
        limits = self.limits
        self.classes = interchangeable(self.tables, self.clock)
        self._first_prices()
        self.before, _ = precedence(self.tables)
        self.orders = topological_orders(self.tables)
        most = self.classes.size_c.astype(np.float64)
        least = most
        if self.counted:
            most = np.append(most, limits.p_max)
            least = most if limits.exactly else np.append(least, -np.inf)
        self.lp = GrowingLp(least, most)
        # always feasible, never cheap: what the LP is left with where p_max cannot be kept so far
        alone = price_each(self.tables, singles(self.tables)).time
        self.lp.add_columns([_DEAR * float(alone.sum()) / self.unit], scipy.sparse.csc_array(most[:, None]))
        self.columns.append(Column(self.classes.size_c.astype(np.float64), np.inf, None))
        self._add([np.array([k]) for k in self.classes.first_c])
        if self.tables.chip.library:
            self._add(library.several(self.tables.sharded, self.clock))
        for order in self.orders:
            self._take_up(order)
        if self.best is not None:
            self._add(blocks_of(self.best))

    def _first_prices(self) -> None:
        """Prices that no block beats, whose sum is the additive bound."""
        terms, side_k = least_terms(self.tables, self.limits), sides(self.tables, self.limits.forward_backward)
        totals = np.array([np.bincount(side_k, term) for term in terms])
        (hidden, added), price_k = self.tables.chip.rule, np.zeros(len(side_k))
        if hidden:
            slowest = np.array(hidden)[np.argmax(totals[[*hidden]], axis=0)]
            price_k = np.array(terms)[slowest[side_k], np.arange(len(side_k))]
        for term in added:
            price_k = price_k + terms[term]
        size = self.classes.size_c
        self.center = np.bincount(self.classes.class_k, weights=price_k, minlength=len(size)) / size
        self.center_row = 0.0

    def _take_up(self, order: Ints) -> None:
        """Cut an order for a start, and offer its intervals to the LP."""
        limits = self.limits
        rule, clock = limits.forward_backward, self.clock
        cut = best_segmentation(self.tables, order, limits.p_max, limits.exactly, rule, clock)
        if cut is not None:
            self._candidate(cut[1])
        bands = list(price_intervals(self.tables, order, rule, _LONGEST, clock))
        if len(self.pool) >= _ORDERS:
            self.pool.pop(len(self.orders))  # the oldest that is not one of the first
        self.pool.append((order, bands))

    def _candidate(self, partition_k: Ints) -> None:
        value = objective(self.tables, partition_k)
        if value < self.best_s and keeps(self.tables, self.limits, partition_k):
            self.best_s, self.best = value, partition_k
            self.trace.append(self._state())

    def _state(self) -> TracePoint:
        return TracePoint(time.perf_counter() - self.began, self.best_s, min(self.bound, self.best_s))

    # --------------------------------------------------------------- columns

    def _add(self, blocks: list[Ints]) -> int:
        """Offer blocks of real kernels to the LP; returns how many were new and legal."""
        if not blocks:
            return 0
        prices = price_each(self.tables, blocks)
        legal = np.flatnonzero(prices.legal)
        return self._offer([Column(self.classes.counts(blocks[i]), float(prices.time[i]), blocks[i]) for i in legal])

    def _offer(self, columns: list[Column]) -> int:
        new = []
        for column in columns:
            key = (column.counts.tobytes(), round(column.seconds / self.unit, _DIGITS))
            if key not in self.keys:
                self.keys.add(key)
                new.append(column)
        if new:
            matrix = np.array([column.counts for column in new]).T
            if self.counted:
                matrix = np.vstack([matrix, np.ones(len(new))])
            seconds = np.array([column.seconds for column in new])
            self.lp.add_columns(seconds / self.unit, scipy.sparse.csc_array(matrix))
            self.columns += new
        return len(new)

    def _from_pool(self, price_k: Floats, row: float) -> int:
        """Best interval of every start, in every order of the pool."""
        candidates: list[tuple[float, Ints, float]] = []
        for order, bands in self.pool:
            worth = np.concatenate([[0.0], np.cumsum(price_k[order])])
            for band in bands:
                rows, columns = band.time.shape
                i, first = np.arange(rows), band.first
                reduced = band.time - worth[None, first + 1 : first + 1 + columns] + worth[first : first + rows, None]
                end = np.argmin(reduced, axis=1)
                value = reduced[i, end] - row
                for r in np.flatnonzero(value < -TOLERANCE * self.unit):
                    kernels = order[first + r : first + 1 + end[r]]
                    candidates.append((float(value[r]), kernels, float(band.time[r, end[r]])))
        candidates.sort(key=lambda entry: entry[0])
        return self._offer([Column(self.classes.counts(k), seconds, k) for _, k, seconds in candidates[:_BATCH]])

    def _prices(self, point: LpPoint) -> tuple[Floats, float]:
        duals = point.duals * self.unit
        return (duals[:-1], float(duals[-1])) if self.counted else (duals, 0.0)

    def _value(self, price_c: Floats, row: float) -> float:
        return float(price_c @ self.classes.size_c) + row * (self.limits.p_max if self.counted else 0)

    # ------------------------------------------------------------------ loop

    def run(self, gap: float, clock: Clock, progress: Callable[[TracePoint], None] = lambda point: None) -> Generated:
        """Generate columns until the gap is closed, the LP relaxation is solved, or the clock is over.

        Parameters
        ----------
        gap : float
            Relative gap to stop at.
        clock : Clock
            Limit on the run.
        progress : callable
            Receives a :class:`TracePoint` whenever value or bound changes.
        """
        closed = interrupted = False
        self.clock = clock
        try:
            self._prepare()
            closed = self._loop(gap, progress)
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            interrupted = True
        self.trace.append(self._state())
        bound = min(self.bound, self.best_s)
        gap_left = (self.best_s - bound) / self.best_s if self.best is not None else np.inf
        ended = Termination.LIMIT_WITH_SOLUTION if self.best is not None else Termination.LIMIT_NO_SOLUTION
        if gap_left <= SAME:
            ended, gap_left = Termination.OPTIMAL, 0.0
        elif gap_left <= gap:
            ended = Termination.GAP_REACHED
        elif interrupted:
            given = self.best is not None
            ended = Termination.INTERRUPTED_WITH_SOLUTION if given else Termination.INTERRUPTED_NO_SOLUTION
        classes, blocks = len(self.classes.size_c), len(self.columns) - 1
        note = f"{classes} classes of kernels, {blocks} blocks generated, {self.pricings} searches"
        if closed:
            note += ", no block is left that could raise the bound"
        solution = replace(
            closed_form(self.best_s, time.perf_counter() - self.began, note),
            termination=ended,
            bound=bound,
            gap=gap_left,
            nodes=self.nodes,
            rows=classes,
            columns=blocks,
            # a better mapping may undercut, by its last digits, a bound that was shown before it
            trace=tuple(replace(point, bound=min(point.bound, bound)) for point in self.trace),
        )
        return Generated(self.best, solution, closed)

    def _loop(self, gap: float, progress: Callable[[TracePoint], None]) -> bool:
        self.one_block: OneBlock | Listed | None = None
        self.moves = Moves(self.tables, self.limits, self.classes, self.orders[0])
        firm, rounded, proven_at = _FIRM, 0, 1.0

        while True:
            if self._done(gap) or self.clock.over:
                return False
            point = self._relaxation()
            if point is None:
                return False
            price_c, row = self._prices(point)
            relaxed = self._value(price_c, row)
            closed = self.bound >= relaxed * (1 - _CLOSED) or proven_at < _LOOSE
            # the relaxation is near its end, or whole blocks are the weaker side: look for better whole ones
            if len(self.columns) > rounded and (closed or self.best_s - relaxed > relaxed - self.bound):
                rounded = len(self.columns)
                self._round(point, self.clock.share(_ROUNDING))
                progress(self._state())
                continue
            if closed:
                return True
            if self.one_block is None:
                self.one_block = pricing(self.tables, self.limits, self.classes, self.clock)
            inner_c = firm * self.center + (1 - firm) * price_c
            inner_row = firm * self.center_row + (1 - firm) * row
            solution, block = self.one_block.search(inner_c, -inner_row, self.clock, self.seed)
            self.pricings += 1
            self.nodes += solution.nodes
            if solution.interrupted:
                raise KeyboardInterrupt
            if solution.termination is Termination.INFEASIBLE:
                proven = self._value(inner_c, inner_row) - slack(self.one_block)
                self.center, self.center_row = inner_c, inner_row
                if proven > self.bound:
                    self.bound = proven
                    self.trace.append(self._state())
                proven_at, firm = firm, firm**2
            elif block is None:
                return False  # out of time
            else:
                firm, proven_at = _FIRM, 1.0
                if not self._adopt(block, price_c, row):
                    return True  # known, and worth no more than its time but for rounding
            progress(self._state())

    def _done(self, gap: float) -> bool:
        upper = min(self.best_s, self.cutoff)
        return bool(upper - self.bound <= max(gap, SAME) * upper)

    def _relaxation(self) -> LpPoint | None:
        """Solve the LP over what is known, intervals and near blocks until they offer nothing; None when time is up."""
        while True:
            point = self.lp.solve(self.clock)
            if point.status is Termination.INTERRUPTED_NO_SOLUTION:
                raise KeyboardInterrupt
            if not point.optimal:
                return None
            price_c, row = self._prices(point)
            price_k = price_c[self.classes.class_k]
            if self._from_pool(price_k, row):
                continue
            used = [self.columns[i].kernels for i in np.argsort(-point.x) if point.x[i] > _USED]
            real = [kernels for kernels in used if kernels is not None]
            if not self._add(self.moves.improve(real, price_k, -row, self.clock)):
                return point

    def _adopt(self, block: CountedBlock, price_c: Floats, row: float) -> bool:
        """Add a block of the MILP, as counts and as real kernels, and an order that has it in one piece."""
        class_k, n = self.classes.class_k, self.tables.kernels
        new = 0
        if (self.classes.size_c > 1).any() and block.seconds - price_c @ block.inside_c - row < 0:
            new += self._offer([Column(block.inside_c.astype(np.float64), block.seconds, None)])
        rank = np.full(n, 2)
        patterns = [p for p in (block.before_c, block.inside_c) if p.any()]
        blocks = lined_up(patterns, self.classes, self.before, self.orders[-1], self.clock)
        for number, kernels in enumerate(blocks[: 1 + int(block.before_c.any())]):
            rank[kernels] = number
        inside = np.flatnonzero(rank == int(block.before_c.any()))
        if np.array_equal(np.bincount(class_k[inside], minlength=len(block.inside_c)), block.inside_c):
            new += self._add([inside])
        self._take_up(self._around(rank))
        return new > 0

    def _around(self, rank: Ints) -> Ints:
        """The topological order nearest to the last one in which lower ranks come first, pass by pass."""
        forward, place = self.tables.sharded.forward_k, np.argsort(self.orders[-1])
        keys = [(not forward[k], int(rank[k]), int(place[k])) for k in range(self.tables.kernels)]
        return order_by_rank(self.before, keys)

    def _round(self, point: LpPoint, clock: Clock) -> None:
        """Choose whole blocks among the real ones, line them up, and cut the order that results."""
        price_c, row = self._prices(point)
        half = self.clock.spent + clock.work_left / 2
        for i in np.argsort(-point.x).tolist():
            kernels = self.columns[i].kernels
            if point.x[i] < _USED or self.clock.spent >= half:
                break
            if kernels is not None and self.moves.usable:
                rank = np.where(self.moves.reach[:, kernels].any(axis=1), 0, 2)
                rank[kernels] = 1
                self._take_up(self._around(rank))
        real = [column for column in self.columns if column.kernels is not None]
        if not real:
            return
        counts, seconds = np.array([column.counts for column in real]), np.array([column.seconds for column in real])
        # a block dearer than this cannot be part of anything better
        useful = seconds - counts @ price_c - row <= max(self.best_s - self.bound, 0.0) + TIES * self.unit
        limits, counts, size_c = self.limits, counts[useful], self.classes.size_c
        taken = whole_blocks(counts, seconds[useful], size_c, limits.p_max, limits.exactly, clock, self.seed)
        if not taken:
            return
        patterns = [counts[i].astype(np.int64) for i in taken]
        forward = self.tables.sharded.forward_k[self.classes.first_c]
        patterns.sort(key=lambda p: (not forward[np.flatnonzero(p)].any(), int(np.flatnonzero(p).min())))
        order = np.concatenate(lined_up(patterns, self.classes, self.before, self.orders[-1], self.clock))
        if limits.forward_backward == "separate":  # a block of another pass may have been the first to find its place
            order = order[np.argsort(~self.tables.sharded.forward_k[order], kind="stable")]
        self._take_up(order)
