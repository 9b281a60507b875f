"""Branch and bound against looking at everything: the best, what covers the rest, limits and interrupts; and clocks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replayed import replay
from tables import GRIDS, SLACKS, Box, Cell, Grid, Halves, Least, Middle, check_leaves, covers, problem, window

from dfopt.bnb import (
    ENDED,
    UNITS_PER_S,
    UNLIMITED,
    Candidate,
    Clock,
    Heuristic,
    Node,
    OutOfTime,
    SearchParameters,
    Snapshot,
    View,
    branch_and_bound,
)


class Together(Least):
    """Answers are worked out ahead, of several boxes at a time: each is known when its turn comes."""

    ahead = 3

    def __init__(self, values: Grid, slack: float) -> None:
        super().__init__(values, slack)
        self.known: dict[Box, float] = {}

    def prepare(self, regions: Sequence[Box], cutoff: float) -> None:
        assert regions and len({*regions}) == len(regions) <= 3 and not self.known.keys() & {*regions}
        self.known |= {box: float(window(self.values, box).min()) - self.slack for box in regions}

    def answers(self, regions: Sequence[Box], cutoff: float, clock: Clock) -> list[float]:
        return [self.known[box] for box in regions]


@given(GRIDS, SLACKS, st.integers(1, 3), st.booleans())
def test_bounds_that_are_worked_out_together_prove_the_same(
    values: Grid, slack: Sequence[float], top: int, ahead: bool
) -> None:
    values = np.round(values, -1)  # so that many bounds are equal
    one = problem(values, slack)
    last = Together(values, slack[-1]) if ahead else Least(values, slack[-1])
    last.batch = 1 if ahead else 5
    several = replace(one, relaxations=[*one.relaxations[:-1], last])
    alone, together = (branch_and_bound(of, SearchParameters(top=top)) for of in (one, several))
    assert [each.value for each in together.kept] == [each.value for each in alone.kept]
    check_leaves(together, values)


@given(GRIDS, st.sampled_from([0.0, 0.05, 0.5]), SLACKS)
def test_the_best_and_its_bound_are_those_of_everything(values: Grid, gap: float, slack: Sequence[float]) -> None:
    found = branch_and_bound(problem(values, slack), SearchParameters(gap=gap))
    least = float(values.min())
    if not np.isfinite(least):
        assert found.ending == "empty" and found.solution is None
        return
    assert found.solution is not None and values[found.solution] == found.best
    assert found.bound <= least <= found.best
    if slack[-1] == 0 or found.ending == "optimal":
        assert found.gap <= gap + 1e-12
    if gap == 0 and slack[-1] == 0:
        assert found.best == found.bound == least and found.ending == "optimal"


@given(GRIDS, st.integers(1, 3), st.floats(0.5, 110), SLACKS)
def test_nothing_from_the_objective_limit_on_is_a_solution(
    values: Grid, top: int, limit: float, slack: Sequence[float]
) -> None:
    found = branch_and_bound(problem(values, slack), SearchParameters(top=top, limit=limit))
    below = np.sort(values[values < limit])
    assert [one.value for one in found.kept] == below[:top].tolist()
    assert (found.ending == "empty") == (not len(below))
    assert found.bound <= values.min()
    check_leaves(found, values)


@given(GRIDS, st.integers(1, 30), st.sampled_from([0.0, 0.1]), st.sampled_from([(0.0,), (2.0, 0.0)]))
def test_several_are_kept_and_nothing_else_is_better(
    values: Grid, top: int, gap: float, slack: Sequence[float]
) -> None:
    found = branch_and_bound(problem(values, slack), SearchParameters(top=top, gap=gap))
    cells = [one.solution for one in found.kept]
    had = np.sort(values[np.isfinite(values)])[:top]
    assert len(set(cells)) == len(cells) == len(had)
    kept = [one.value for one in found.kept]
    assert kept == sorted(kept) == [values[cell] for cell in cells]
    if not len(had):
        assert found.ending == "empty"
        return
    others = [values[cell] for cell in np.ndindex(values.shape) if cell not in cells]
    assert min(others, default=np.inf) >= kept[-1] * (1 - gap - 1e-12)
    if gap == 0:
        assert kept == had.tolist() and found.ending == "optimal"


@given(GRIDS, st.sampled_from([0.0, 0.3]), SLACKS)
def test_leaves_and_the_log_show_the_bound_without_the_search(values: Grid, gap: float, slack: Sequence[float]) -> None:
    found = branch_and_bound(problem(values, slack), SearchParameters(gap=gap))
    check_leaves(found, values)
    assert found.bound == min([found.best, *(leaf.bound for leaf in found.leaves)])
    slack_of = {f"less {one:g}": one for one in slack}

    def shows(box: Box, relaxation: str, value: float) -> bool:
        return value <= window(values, box).min() - slack_of[relaxation]

    least = replay(found.log, [found.log.regions[0]], covers, shows)
    assert min(least, found.best) == found.bound


def test_most_boxes_are_not_looked_into() -> None:
    a, b = np.meshgrid(np.arange(64), np.arange(64))
    values = ((a - 20.0) ** 2 + (b - 50.0) ** 2 + 10).astype(float)
    middle, of = Middle(values), problem(values)
    found = branch_and_bound(replace(of, heuristics=[middle]))
    assert found.best == 10 and found.solution == (50, 20)
    assert len(middle.seen) < 100
    assert found.bounded["less 0"] <= found.bounded["less 2"] <= found.regions


@pytest.mark.parametrize(("limit", "spent"), [({"deadline": 0.0}, 0.0), ({"work": 0.0}, 0.0), ({"work": 10.0}, 10.0)])
def test_a_limit_leaves_an_honest_gap(limit: dict[str, float], spent: float) -> None:
    values, clock = np.random.default_rng(1).uniform(1, 2, (16, 16)), Clock(**limit)
    found = branch_and_bound(problem(values), clock=clock)
    assert found.ending == "time_limit" and found.bound <= values.min()
    assert clock.spent == spent
    check_leaves(found, values)


@pytest.mark.parametrize("when", [1, 2, 7, 20, 41])
def test_an_interrupt_loses_no_box(when: int) -> None:
    values = np.random.default_rng(2).uniform(1, 2, (8, 8))
    calls = itertools.count(1)

    def interrupts(progress: Snapshot[Cell]) -> None:
        if next(calls) == when:
            raise KeyboardInterrupt

    found = branch_and_bound(problem(values, (2.0,)), progress=interrupts)
    assert found.ending == "interrupted" and found.bound <= values.min()
    check_leaves(found, values)
    if found.solution is not None:
        assert values[found.solution] == found.best


@pytest.mark.parametrize(("entry", "method"), [(Least, "answers"), (Middle, "propose"), (Halves, "children")])
def test_an_interrupt_in_an_entry_loses_no_box(entry: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, calls, real = np.random.default_rng(4).uniform(1, 2, (8, 8)), itertools.count(1), getattr(entry, method)

    def interrupted(*given: object) -> object:
        if next(calls) == 12:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(entry, method, interrupted)
    found = branch_and_bound(problem(values, (1.0,)))
    assert found.ending == "interrupted" and found.bound <= values.min()
    check_leaves(found, values)


def test_progress_never_claims_more_than_it_knows() -> None:
    values = np.random.default_rng(3).uniform(1, 2, (8, 8))
    told: list[Snapshot[Cell]] = []
    found = branch_and_bound(problem(values), progress=told.append)
    assert all(one.bound <= values.min() <= one.best for one in told)
    assert [one.best for one in told] == sorted((one.best for one in told), reverse=True)
    assert [one.bound for one in told] == sorted(one.bound for one in told)
    assert told[-1].best == found.best


def test_a_solution_that_is_kept_gets_a_better_value_and_a_relaxation_may_lead_to_some() -> None:
    """The values of cells are known a little too high after a bound, and as they are before a box is divided."""

    class Early(Heuristic[Box, Cell]):
        def due(self, node: Node[Box], after: str) -> bool:
            return after == "less 0"

        def propose(self, node: Node[Box], view: View) -> list[Candidate]:
            last = tuple(high for _, high in node.region)
            return [Candidate(float(values[last]) + 1, last)]

    values = 4.0 * np.arange(1, 9)
    of = problem(values, (0.0,))
    found = branch_and_bound(replace(of, heuristics=[Early(), *of.heuristics]), SearchParameters(top=2))
    assert [(one.value, one.solution) for one in found.kept] == [(4.0, (0,)), (8.0, (1,))]
    assert found.ending == "optimal"


def test_entries_that_do_not_fit_together_are_refused() -> None:
    values = np.ones((2, 2))
    with pytest.raises(ValueError, match="two relaxations have the same name: less 1, less 1"):
        branch_and_bound(problem(values, (1.0, 1.0)))
    with pytest.raises(ValueError, match=r"no branching rule divides \(\(0, 1\), \(0, 1\)\)"):
        branch_and_bound(replace(problem(values), branching=[]))


# -- a clock counts work; only the deadline looks at the time ----------------------------------


WORK = st.floats(0.0, 1e6)


@given(st.lists(WORK, max_size=6), WORK, WORK)
def test_work_is_counted_in_every_clock_around(charges: list[float], own: float, allowed: float) -> None:
    clock = Clock(work=own)
    part = clock.allowance(allowed)
    inner = part.allowance(allowed / 2)
    for units in charges:
        inner.charge(units)
        assert inner.spent == part.spent == clock.spent
        assert clock.over == (clock.spent >= own)
        assert part.over == (clock.over or part.spent >= allowed)
        assert inner.over == (part.over or inner.spent >= allowed / 2)
    assert inner.units_left == max(min(own, allowed, allowed / 2) - inner.spent, 0.0)


def test_a_check_charges_unless_the_clock_is_over() -> None:
    clock = Clock(work=2.5)
    for _ in range(3):
        clock.check()
    with pytest.raises(OutOfTime):
        clock.check()
    assert clock.spent == 3.0


@given(WORK, WORK, st.floats(0.0, 1.0))
def test_a_share_is_one_of_the_planned_work_that_is_left(planned: float, spent: float, share: float) -> None:
    clock = Clock(planned=planned)
    clock.charge(spent)
    left = max(planned - spent, 0.1 * planned)
    assert clock.work_left == left and not clock.over
    assert clock.share(share).work == share * left
    assert clock.share(share, 10.0).work == min(share * left, 10.0)


def test_a_plan_ends_nothing_and_a_deadline_ends_all() -> None:
    with patch.object(time, "perf_counter", lambda: 100.0):
        clock = Clock.of_limit(5.0)
        assert clock.planned == 5.0 * UNITS_PER_S and clock.last == 105.0 and clock.seconds_left == 5.0
        clock.charge(10 * clock.planned)
        part = clock.share(0.5)
        assert not clock.over and not part.over and part.last == 105.0
    with patch.object(time, "perf_counter", lambda: 105.5):
        assert clock.over and part.over and not clock.over_since(1.0)
        assert clock.seconds_left > 0
        clock.end_earlier(1.0)
        assert clock.last == 104.0 and part.over_since(1.0)
    assert ENDED.over and ENDED.over_since(1e9) and not UNLIMITED.over


def test_a_clock_is_watched_through_its_parts() -> None:
    clock, heard = Clock(work=10.0), list[float]()
    clock.watch = lambda: heard.append(clock.spent)
    part = clock.share(0.5).allowance(3.0)
    part.charge(1.0)
    assert not part.over and not clock.over
    part.check(9.0)
    assert clock.over and heard == [1.0, 1.0, 1.0, 10.0]
