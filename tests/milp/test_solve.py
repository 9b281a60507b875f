"""Solving: answers against brute force, starts, statuses, elastic explanation."""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import cover, market_split, small_milp
from solver_doors import check_trace

from dfopt.errors import PlanError
from dfopt.milp import Model, Solution, Termination, explain_infeasible, solve, verdict
from dfopt.milp.engine import HighsRun, default_threads
from dfopt.milp.outcome import Ending, RunOutcome, Settings


def assert_trace(s: Solution) -> None:
    assert s.trace
    check_trace(s.trace)
    assert all(p.bound <= p.objective for p in s.trace)
    assert (s.trace[-1].objective, s.trace[-1].bound) == (s.objective, s.bound)


def brute_force(model: Model, n: int) -> float:
    """Enumerate the integers; the one continuous column is an interval given the rest."""
    p, best = model.arrays(), math.inf
    dense = p.A.toarray()
    for point in itertools.product(range(3), repeat=n):
        room, slope = p.row_upper - dense[:, :n] @ point, dense[:, n]
        if (room[slope == 0] < 0).any():
            continue
        low = max([0.0, *(room[slope < 0] / slope[slope < 0])])
        high = min([3.0, *(room[slope > 0] / slope[slope > 0])])
        if low <= high + 1e-12:
            y = low if p.cost[n] >= 0 else high
            best = min(best, p.objective(np.array([*point, y], dtype=float)))
    return best


@settings(max_examples=60, deadline=None)
@given(small_milp(), st.booleans())
def test_equals_brute_force(case: tuple[Model, int, int], presolve: bool) -> None:
    model, n, _ = case
    best = brute_force(model, n)
    s = solve(model, presolve=presolve)
    if math.isinf(best):
        assert s.termination is Termination.INFEASIBLE and s.x is None and s.bound == math.inf
    else:
        assert s.termination is Termination.OPTIMAL and s.gap == 0.0 and s.proven
        assert s.objective == pytest.approx(best, abs=1e-7)
        # HiGHS may use up its tolerance of 1e-9, and what is exact is measured against the size of the rows
        assert s.x is not None and model.arrays().violation(s.x) <= 1e-8
        assert np.array_equal(s.x[:n], np.round(s.x[:n]))
        assert_trace(s)


@settings(max_examples=40, deadline=None)
@given(small_milp(), st.integers(-3, 3))
def test_cutoff_equals_brute_force(case: tuple[Model, int, int], shift: int) -> None:
    # HiGHS's own objective bound says "optimal" of solutions above it; ours must not.
    model, n, _ = case
    best = brute_force(model, n)
    if math.isinf(best):
        return
    s = solve(model, cutoff=best + shift / 4)
    if shift >= 0:
        assert s.termination is Termination.OPTIMAL and s.objective == pytest.approx(best, abs=1e-7)
    else:
        assert s.termination is Termination.INFEASIBLE and s.bound == best + shift / 4


def test_a_cutoff_that_is_the_optimum_keeps_it() -> None:
    """HiGHS dropped the optimum, 0 with 1e-9 of room, as it takes its tolerance from the bound that it is given."""
    model = Model("narrow")
    x, y = model.integer("x", 3, upper=2.0), model.continuous("y", 1, upper=3.0)
    model.rows("a", [(x[2:], -1.0), (y, -1.0)], upper=-1.0)
    model.rows("b", [(x[2:], 1.0), (y, -2.0)], upper=0.0)
    model.minimize([(y, 2.0)], offset=-1.0)
    s = solve(model, cutoff=0.0)
    assert s.termination is Termination.OPTIMAL and s.objective == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("presolve", [True, False])
def test_the_second_attempt_turns_presolve_around(presolve: bool) -> None:
    """HiGHS with presolve gave a mapping without a partition for one kernel, where nothing fits."""
    asked = Settings(presolve=presolve)
    for one, expected in ((asked, presolve), (replace(asked, again=True), not presolve)):
        run = HighsRun(cover().arrays(), one, None)
        assert run._options()["presolve"] == ("on" if expected else "off")


def test_nodes_and_the_way_to_the_optimum_are_kept() -> None:
    solution = solve(market_split(3, 14))
    assert solution.proven and solution.nodes > 1
    assert len({point.objective for point in solution.trace}) > 1
    check_trace(solution.trace)


def test_lp() -> None:
    m = Model("lp")
    x = m.continuous("x", 2)
    m.rows("r", [([x, x], [[1.0, 2.0], [3.0, 1.0]])], lower=[4.0, 6.0])
    m.minimize([(x, 1.0)], offset=-1.0)
    s = solve(m)
    assert s.termination is Termination.OPTIMAL
    assert s.objective == pytest.approx(1.8, abs=1e-9) and s.x == pytest.approx([1.6, 1.2])
    assert solve(m, cutoff=1.7).termination is Termination.INFEASIBLE


def test_solution_is_frozen_and_sized() -> None:
    m = cover()
    s = solve(m)
    assert (s.rows, s.columns, s.nonzeros) == (*m.arrays().A.shape, m.arrays().A.nnz)
    assert s.x is not None
    with pytest.raises(ValueError, match="read-only"):
        s.x[0] = 1.0


def test_unbounded_relaxation_with_infeasible_integers() -> None:
    # 3a + 5b = 7 has no solution in nonnegative integers, its relaxation has
    m = Model("coins")
    x, y = m.integer("x", 2, 0, 5), m.continuous("y", 1)
    m.rows("pay", [(x[None, :], [3.0, 5.0])], lower=7.0, upper=7.0)
    m.rows("tie", [(y, 1.0), (x[:1], -1.0)], lower=0.0)
    m.minimize([(y, -1.0)])
    for presolve in (True, False):
        assert solve(m, presolve=presolve).termination is Termination.INFEASIBLE
    # had HiGHS said "unbounded" of the relaxation, the second question would have settled it
    assert verdict.settled(HighsRun, m.arrays(), Settings(), RunOutcome(Ending.UNBOUNDED)).ending is Ending.INFEASIBLE


def test_no_columns_and_no_rows() -> None:
    assert solve(Model("empty")).termination is Termination.OPTIMAL
    m = Model("free")
    x = m.binary("x", 3)
    m.minimize([(x, [1.0, -1.0, 2.0])])
    assert solve(m).objective == -1.0


def test_gap_reached_is_not_optimal() -> None:
    m = market_split(3, 15, seed=0)
    m.minimize([(m.index("s"), 1.0)], offset=100.0)
    s = solve(m, gap=0.5)
    assert s.termination is Termination.GAP_REACHED and s.proven
    assert 0.0 < s.gap <= 0.5 and s.bound < s.objective
    exact = solve(m)
    assert exact.termination is Termination.OPTIMAL and exact.gap == 0.0
    assert s.bound <= exact.objective <= s.objective


def test_complete_start_is_the_first_incumbent() -> None:
    m = cover()
    s = solve(m, start=np.ones(30))
    assert s.trace[0].objective == m.arrays().objective(np.ones(30))
    assert_trace(s)
    optimum = s.objective
    again = solve(m, start=s.x)
    assert {p.objective for p in again.trace} == {optimum}


def test_start_reaches_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not only noted by us: HiGHS itself reports the start as its first solution.
    seen: list[float] = []
    original = HighsRun._on_solution

    def spy(self: HighsRun, event: object) -> None:
        seen.append(event.data_out.objective_function_value)  # type: ignore[attr-defined]
        original(self, event)

    monkeypatch.setattr(HighsRun, "_on_solution", spy)
    m = cover()
    point = np.ones(30)
    point[0] = 0.0
    assert m.arrays().violation(point) == 0.0
    solve(m, start=point, presolve=False)
    assert seen[0] == m.arrays().objective(point)


def test_partial_start_is_completed() -> None:
    m = cover()
    y = m.continuous("y", 1)
    m.rows("count", [(m.index("x")[None, :], 1.0), (y, -1.0)], lower=0.0, upper=0.0)
    start = m.start({"x": np.where(np.arange(30) < 25, 1.0, np.nan)})
    s = solve(m, start=start)
    first = s.trace[0].objective
    ones = m.arrays().objective(np.r_[np.ones(30), 30.0])
    low = m.arrays().objective(np.r_[np.ones(25), np.zeros(5), 25.0])
    assert low <= first <= ones and s.objective < low
    assert s.objective == solve(m).objective


def test_partial_start_is_not_just_filled_with_zeros() -> None:
    m = Model("pack")
    x = m.binary("x", 20)
    m.rows("room", [(x[None, :], np.arange(1.0, 21.0))], upper=60.0)
    m.minimize([(x, -np.arange(1.0, 21.0))])
    s = solve(m, start=np.r_[1.0, np.full(19, np.nan)])
    assert s.objective == -60.0 and s.trace[0].objective <= -57.0


def test_bad_starts_do_no_harm() -> None:
    m = cover()
    best = solve(m).objective
    for start in (np.zeros(30), np.full(30, 0.5), np.full(30, 7.0), np.full(30, np.nan)):
        s = solve(m, start=start)
        assert s.termination is Termination.OPTIMAL and s.objective == best
    with pytest.raises(ValueError, match="start has shape"):
        solve(m, start=np.zeros(3))


def test_thread_counts_may_change_and_solves_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    m = cover(60, 60)
    counts = itertools.chain([1], itertools.cycle([1, 2]))
    monkeypatch.setattr("dfopt.milp.engine.default_threads", lambda: next(counts))
    best = solve(m).objective
    found: list[float] = []
    jobs = [threading.Thread(target=lambda: found.append(solve(m).objective)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert found == [best] * 3


def test_scaling_polish_makes_big_rows_exact() -> None:
    # y = 1e5 * x + 1/3: an x off by 1e-9 shows as 1e-4 in the row unless polished.
    m = Model("big")
    x, y = m.integer("x", 3, 0, 9), m.continuous("y", 3)
    m.rows("link", [(y, 1.0), (x, -1e5)], lower=1 / 3, upper=1 / 3)
    m.rows("sum", [(x[None, :], [2.0, 3.0, 5.0])], lower=17.0, upper=17.0)
    m.minimize([(y, [1e-5, 2e-5, 2e-5])])
    s = solve(m)
    assert s.termination is Termination.OPTIMAL and s.x is not None
    assert m.arrays().violation(s.x) <= 1e-9 and np.array_equal(s.x[:3], np.round(s.x[:3]))


def test_polish_repairs_a_dusty_solution() -> None:
    m = Model("dust")
    x, y = m.integer("x", 1, 0, 9), m.continuous("y", 1)
    m.rows("link", [(y, 1.0), (x, -1e3)], lower=0.5, upper=0.5)
    m.minimize([(y, 1e-3)])
    m.bound(x, lower=3.0)
    dusty = np.array([3.0 + 5e-7, 3000.5 + 5e-4])
    clean, _ = verdict.polish(m.arrays(), Settings(), dusty)
    assert clean[0] == 3.0 and clean[1] == pytest.approx(3000.5, abs=1e-9)


@pytest.mark.parametrize("lie", ["objective", "point", "bound", "gap"])
def test_a_lying_solver_is_caught(monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    m = cover()
    free = m.continuous("free", 1, 0.0, 1.0)  # costs nothing, so only the row can give the lie away
    m.rows("free", [(free, 1.0)], upper=0.5)

    honest = HighsRun.outcome

    def lying(self: HighsRun, *args: Any) -> RunOutcome:
        out = honest(self, *args)
        assert out.x is not None
        if lie == "objective":
            return replace(out, objective=out.objective - 1.0)
        if lie == "point":
            return replace(out, x=np.r_[out.x[:-1], 1.0])
        return replace(out, bound=out.objective + (1.0 if lie == "bound" else -1.0))

    monkeypatch.setattr(HighsRun, "outcome", lying)  # also where a point would be repaired
    s = solve(m)
    assert s.termination is Termination.FAILED and s.x is None and s.message


def test_refused_option_raises() -> None:
    with pytest.raises(RuntimeError, match="refused option random_seed"):
        solve(cover(), seed=-5)
    with pytest.raises(ValueError, match="gap"):
        solve(cover(), gap=float("nan"))


def test_explain_infeasible() -> None:
    m = Model("rooms")
    x = m.binary("x", (2, 3))
    m.rows("need", [(x, 2.0)], lower=[4.0, 8.0])
    m.rows("room", [(x.T, 1.0)], upper=1.0)
    m.minimize([(x, 1.0)])
    assert solve(m).termination is Termination.INFEASIBLE
    only_need = explain_infeasible(m, ["need"])
    # three columns serve 2 each: 6 of 12; the scaled shortfall is 6/2
    assert only_need["need"].sum() == pytest.approx(6.0) and set(only_need) == {"need"}
    # without relaxing "need", row 1 wants four of three columns: nothing helps
    assert explain_infeasible(m, ["room"]) == {}
    both = explain_infeasible(m, ["need", "room"])
    assert both["need"][1] >= 2.0 - 1e-9
    assert (both["need"].sum() / 2 + both["room"].sum()) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="no row blocks"):
        explain_infeasible(m, ["nope"])


def test_explain_names_both_sides_and_nothing_when_feasible() -> None:
    m = Model("sides")
    x = m.continuous("x", 2, 0.0, 1.0)
    m.rows("eq", [(x, 1.0)], lower=[3.0, 0.5], upper=[3.0, 0.5])
    m.rows("cap", [(x[None, :], 4.0)], upper=1.0)
    slack = explain_infeasible(m, ["eq"])["eq"]
    assert slack.sum() == pytest.approx(3.5 - 0.25)
    cap = explain_infeasible(cover(), ["cover"])
    assert np.array_equal(cap["cover"], np.zeros(20))


def test_threads_of_a_process_are_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DFOPT_THREADS", "1")
    assert default_threads() == 1
    for wrong in ("none", "0", "-1"):
        monkeypatch.setenv("DFOPT_THREADS", wrong)
        with pytest.raises(PlanError, match="DFOPT_THREADS: found"):
            default_threads()


@pytest.mark.parametrize("seed", range(8))
def test_a_start_hides_no_optimum_that_is_near(seed: int) -> None:
    """HiGHS 1.15 by itself says "optimal" of 0.6: its presolve leaves no objective, and then it counts in ones."""
    rng = np.random.default_rng(seed)
    weights, chosen = rng.integers(5, 40, size=(3, 12)), rng.integers(0, 2, 12)
    m = Model("near")
    t, x, z = m.continuous("t", 1, 0.0, 1.0), m.binary("x", 1), m.binary("z", 12)
    m.rows("longest", [(t[None, :], [1.0]), (x[None, :], [0.4])], lower=0.6)
    for number, row in enumerate(weights):
        m.rows(f"weight{number}", [(z[None, :], row)], lower=row @ chosen, upper=row @ chosen)
    m.minimize([(t, [1.0])])
    s = solve(m, start=m.start({"t": [0.6], "x": [0.0], "z": chosen}))
    assert (s.termination, s.objective) == (Termination.OPTIMAL, pytest.approx(0.2))
