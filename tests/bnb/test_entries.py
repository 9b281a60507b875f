"""Each kind of entry on a problem that needs it, against looking at everything: knapsacks, assignments, tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replayed import replay
from tables import GRIDS, Box, Grid, Least, check_leaves, covers, problem, window

from dfopt.bnb import (
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Closed,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Problem,
    ProofLog,
    Reduced,
    Reduction,
    Relaxation,
    SearchParameters,
    View,
    branch_and_bound,
)

# -- knapsack: a witness for heuristic and rule ---------------------------------------------------------------------

Taken = tuple[bool | None, ...]  # of every item, whether it is taken; none: still open


Filled = tuple[float, tuple[float, ...] | None]  # less the value, and the part of every item


class Fractional(Relaxation[Taken, Filled]):
    """Open items in the order of their value per weight, the last one in part (Dantzig 1957)."""

    name = "fractional"

    def __init__(self, values: Sequence[float], weights: Sequence[float], most: float) -> None:
        self.values, self.weights, self.most = values, weights, most

    def answers(
        self, regions: Sequence[Taken], cutoff: float, clock: Clock
    ) -> list[tuple[float, tuple[float, ...] | None]]:
        return [self._filled(region) for region in regions]

    def _filled(self, region: Taken) -> Filled:
        part = [float(taken or 0) for taken in region]
        left = self.most - sum(weight for weight, taken in zip(self.weights, region, strict=True) if taken)
        if left < 0:
            return math.inf, None
        order = sorted(range(len(region)), key=lambda item: -self.values[item] / self.weights[item])
        for item in (one for one in order if region[one] is None):
            part[item] = min(1.0, left / self.weights[item])
            left -= part[item] * self.weights[item]
        return -sum(value * share for value, share in zip(self.values, part, strict=True)), tuple(part)

    def bound(self, region: Taken, answer: Filled) -> Bound:
        return Bound(*answer)


class RoundedDown(Heuristic[Taken, tuple[int, ...]]):
    """The items that the relaxation takes whole."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def due(self, node: Node[Taken], after: str) -> bool:
        return after == "fractional" and node.bound.witness is not None

    def propose(self, node: Node[Taken], view: View) -> list[Candidate]:
        items = tuple(item for item, share in enumerate(node.bound.witness) if share == 1)
        return [Candidate(-sum(self.values[item] for item in items), items)]


class OnThePart(BranchingRule[Taken]):
    """The item that is taken in part; where none is, the first open one, and nothing where none is open."""

    def children(self, region: Taken, bound: Bound, view: View) -> list[tuple[Taken, float]]:
        open_ = [item for item, taken in enumerate(region) if taken is None]
        parts = [item for item in open_ if 0 < bound.witness[item] < 1] or open_
        if not parts:
            return []
        item = parts[0]
        return [((*region[:item], taken, *region[item + 1 :]), bound.value) for taken in (True, False)]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=9), st.integers(0, 30))
def test_a_knapsack(items: list[tuple[int, int]], most: int) -> None:
    values, weights = zip(*items, strict=True)
    root: Taken = (None,) * len(items)
    of = Problem([root], [Fractional(values, weights, most)], [OnThePart()], [RoundedDown(values)])
    found = branch_and_bound(of)
    best = max(
        sum(value for value, taken in zip(values, some, strict=True) if taken)
        for some in itertools.product((False, True), repeat=len(items))
        if sum(weight for weight, taken in zip(weights, some, strict=True) if taken) <= most
    )
    assert -found.best == pytest.approx(best, abs=1e-9) and found.ending == "optimal"
    assert found.solution is not None and sum(weights[item] for item in found.solution) <= most

    def complements(region: Taken, parts: Sequence[Taken]) -> bool:
        [item] = [at for at, taken in enumerate(parts[0]) if taken != region[at]]
        return {part[item] for part in parts} == {True, False} and region[item] is None

    assert replay(found.log, [root], complements) <= -best + 1e-9


# -- assignment: shared answers and a leaf solver -------------------------------------------------------------------

Rows = tuple[int, ...]  # the column of each of the first rows


class Cheapest(Relaxation[Rows, float]):
    """Every open row at its cheapest open column: an answer about the set of columns, which regions share."""

    name, batch = "cheapest", 4

    def __init__(self, cost: Grid) -> None:
        self.cost, self.asked = cost, list[tuple[int, frozenset[int]]]()

    def key(self, region: Rows) -> tuple[int, frozenset[int]]:
        return len(region), frozenset(region)

    def answers(self, regions: Sequence[Rows], cutoff: float, clock: Clock) -> list[float]:
        self.asked += map(self.key, regions)
        n = len(self.cost)
        rest = [[column for column in range(n) if column not in region] for region in regions]
        return [
            float(self.cost[len(region) :, columns].min(axis=1).sum()) if columns else 0.0
            for region, columns in zip(regions, rest, strict=True)
        ]

    def bound(self, region: Rows, answer: float) -> Bound:
        return Bound(answer + float(self.cost[range(len(region)), region].sum()) if region else answer)


class NextRow(BranchingRule[Rows]):
    """A column for the next row; the child is known to cost at least what its rows do."""

    def __init__(self, cost: Grid) -> None:
        self.cost = cost

    def children(self, region: Rows, bound: Bound, view: View) -> list[tuple[Rows, float]] | None:
        columns = [column for column in range(len(self.cost)) if column not in region]
        return [
            ((*region, column), float(self.cost[range(len(region) + 1), (*region, column)].sum())) for column in columns
        ]


class AllOrders(LeafSolver[Rows, Rows]):
    """The best of all that is left, of few rows; the second best is what no other is below."""

    def __init__(self, cost: Grid, most: int) -> None:
        self.cost, self.most = cost, most

    def accepts(self, region: Rows, bound: Bound) -> bool:
        return len(self.cost) - len(region) <= self.most

    def solve(self, region: Rows, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        rest = [column for column in range(len(self.cost)) if column not in region]
        every = sorted(
            (float(self.cost[range(len(self.cost)), (*region, *order)].sum()), (*region, *order))
            for order in itertools.permutations(rest)
        )
        clock.charge(len(every))
        return LeafAnswer([Candidate(*every[0])], every[1][0] if len(every) > 1 else math.inf)


COSTS = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.integers(0, 20), min_size=n * n, max_size=n * n).map(
        lambda costs: np.array(costs, dtype=float).reshape(n, n)
    )
)


@given(COSTS, st.integers(0, 3))
def test_an_assignment(cost: Grid, most: int) -> None:
    relaxation, n = Cheapest(cost), len(cost)
    found = branch_and_bound(Problem[Rows, Rows]([()], [relaxation], [NextRow(cost)], leaves=[AllOrders(cost, most)]))
    best = min(float(cost[range(n), order].sum()) for order in itertools.permutations(range(n)))
    assert found.best == pytest.approx(best) and found.ending == "optimal"
    assert len({*relaxation.asked}) == len(relaxation.asked)  # no answer twice, however many regions share it


@given(COSTS, st.integers(1, 6), st.integers(1, 2))
def test_a_leaf_solver_that_leaves_others_claims_no_more_than_it_shows(cost: Grid, top: int, most: int) -> None:
    """Of several that are asked for, those that a leaf did not give may be missing: the word says so."""
    n = len(cost)
    of = Problem[Rows, Rows]([()], [Cheapest(cost)], [NextRow(cost)], leaves=[AllOrders(cost, most)])
    found = branch_and_bound(of, SearchParameters(top=top))
    every = sorted(float(cost[range(n), order].sum()) for order in itertools.permutations(range(n)))
    kept = [one.value for one in found.kept]
    if found.ending == "optimal" and len(kept) == top:
        assert kept == pytest.approx(every[:top])
    assert found.bound <= every[0] <= found.best


# -- tables: deferral and reductions --------------------------------------------------------------------------------


class Slow(Least):
    """An exact bound, of which only a part is shown for each unit of work; regions of one size share the work."""

    name = "slow"

    def __init__(self, values: Grid) -> None:
        super().__init__(values, 0.0)
        self.name = "slow"
        self.works: list[float] = []

    def answers(self, regions: Sequence[Box], cutoff: float, clock: Clock) -> list[float]:
        return [self._shown(box, 0.0, clock) for box in regions]

    def _shown(self, box: Box, before: float, clock: Clock) -> float:
        least = float(window(self.values, box).min())
        shown = before
        while shown < least and not clock.over:
            clock.charge(1.0)
            shown = min(shown + 10.0, least)
        self.works.append(clock.spent)
        return shown

    def bound(self, region: Box, answer: float) -> Bound:
        return Bound(answer, more=answer < window(self.values, region).min())

    def refine(self, region: Box, answer: float, cutoff: float, clock: Clock) -> float:
        return self._shown(region, answer, clock)


@given(GRIDS, st.sampled_from([1.0, 2.0, 5.0]))
def test_what_takes_long_waits_and_is_shown_in_the_end(values: Grid, allowance: float) -> None:
    if not np.isfinite(values).all():
        return
    slow = Slow(values)
    of = replace(problem(values, ()), relaxations=[Least(values, 30.0), slow])
    found = branch_and_bound(of, SearchParameters(allowance=allowance, growth=2.0))
    assert found.best == found.bound == values.min() and found.ending == "optimal"
    assert max(slow.works) <= 20 and slow.works[0] <= allowance
    check_leaves(found, values)


class Tight(Reduction[Box]):
    """The smallest box around the cells that are below the cutoff."""

    name = "tight"

    def __init__(self, values: Grid) -> None:
        self.values = values

    def reduce(self, region: Box, bound: Bound, view: View) -> Box | None:
        inside = np.argwhere(window(self.values, region) < view.cutoff)
        if not len(inside):
            return None
        low, high = inside.min(axis=0), inside.max(axis=0)
        made = tuple((at + int(a), at + int(b)) for (at, _), a, b in zip(region, low, high, strict=True))
        return made if made != region else None


class OneIsEnough(Reduction[Box]):
    """The first of the best cells, as the others are no better."""

    name, dominance = "one is enough", True

    def __init__(self, values: Grid) -> None:
        self.values = values

    def reduce(self, region: Box, bound: Bound, view: View) -> Box | None:
        inside = window(self.values, region)
        cell = np.unravel_index(int(inside.argmin()), inside.shape)
        made = tuple((low + int(at), low + int(at)) for (low, _), at in zip(region, cell, strict=True))
        return made if made != region else None


@given(GRIDS, st.integers(1, 5), st.booleans())
def test_reductions_leave_out_nothing_that_matters(values: Grid, top: int, dominance: bool) -> None:
    of = replace(problem(values, (3.0,)), reductions=[OneIsEnough(values) if dominance else Tight(values)])
    found = branch_and_bound(of, SearchParameters(top=top))
    had = np.sort(values[np.isfinite(values)])[:top]
    assert [one.value for one in found.kept] == had.tolist()
    reduced = [one for one in found.log.events if isinstance(one, Reduced)]
    assert not (dominance and top > 1 and reduced)  # where several are asked for, no worse is not enough
    assert min(replay(found.log, [found.log.regions[0]], covers), found.best) == found.bound


# -- logs that do not hold ------------------------------------------------------------------------------------------


def test_a_forged_log_is_refused() -> None:
    values = np.random.default_rng(5).uniform(1, 2, (4, 4))
    found = branch_and_bound(problem(values))
    root = found.log.regions[0]
    events = found.log.events
    last = max(at for at, event in enumerate(events) if isinstance(event, Closed) and event.value is None)
    closed = events[last]
    assert isinstance(closed, Closed)

    def forged(at: int, *instead: object) -> ProofLog[Box]:
        return ProofLog(found.log.regions, [*events[:at], *instead, *events[at + 1 :]])  # type: ignore[list-item]

    with pytest.raises(ValueError, match="is closed at"):
        replay(forged(last, closed._replace(bound=closed.bound + 0.1)), [root], covers)
    with pytest.raises(ValueError, match="1 regions are still open"):
        replay(forged(last), [root], covers)
    with pytest.raises(ValueError, match="is not open"):
        replay(forged(last, closed, closed), [root], covers)
    with pytest.raises(ValueError, match="does not cover it"):
        replay(found.log, [root], lambda region, parts: False)
    with pytest.raises(ValueError, match="does not show"):
        replay(found.log, [root], covers, lambda region, relaxation, value: False)
    with pytest.raises(ValueError, match="not the roots"):
        replay(found.log, [((0, 1), (0, 1))], covers)
