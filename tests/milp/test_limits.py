"""Time limit, Ctrl-C and progress on models that no solver finishes; and what neither limit nor model allows."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from busy import BUSY
from random_models import market_split
from solver_doors import by_both_doors, check_trace, press_ctrl_c

from dfopt.milp import Model, Termination, TracePoint, engine, solve, worker


def test_limit_with_solution() -> None:
    m = market_split()
    began = time.perf_counter()
    s = solve(m, time_limit=1.0)
    took = time.perf_counter() - began
    assert 0.9 <= took <= 1.0 + BUSY
    assert s.termination is Termination.LIMIT_WITH_SOLUTION and not s.proven
    assert s.x is not None and m.arrays().violation(s.x) <= 1e-6
    assert s.bound < s.objective and s.gap > 0.0
    check_trace(s.trace)


@by_both_doors
def test_limit_without_solution(solver: str) -> None:
    began = time.perf_counter()
    s = solve(market_split(6, 50, slack=False), solver=solver, time_limit=0.7)
    assert time.perf_counter() - began <= 0.7 + BUSY
    assert s.termination is Termination.LIMIT_NO_SOLUTION
    assert s.x is None and s.objective == float("inf") and s.gap == float("inf")


def test_limit_keeps_the_start() -> None:
    m = market_split()
    start = m.start({"x": np.zeros(40)})
    s = solve(m, time_limit=0.3, start=start)
    half = m.arrays().row_lower.sum()
    assert s.trace[0].objective == pytest.approx(half)
    assert s.termination is Termination.LIMIT_WITH_SOLUTION


def test_partial_start_does_not_eat_the_limit_nor_fake_a_bound() -> None:
    # HiGHS's own completion of this start runs outside its limit and reports sub-MIP bounds.
    m = market_split()
    began = time.perf_counter()
    s = solve(m, time_limit=1.0, start=m.start({"x": np.r_[np.ones(3), np.full(37, np.nan)]}))
    assert time.perf_counter() - began <= 1.0 + BUSY
    assert s.termination is Termination.LIMIT_WITH_SOLUTION and s.bound <= 1.0
    assert max(p.bound for p in s.trace) <= 1.0
    check_trace(s.trace)


def test_ctrl_c_returns_the_incumbent() -> None:
    timer = press_ctrl_c(0.5)
    left_behind = len(worker._abandoned)
    began = time.perf_counter()
    s = solve(market_split(), time_limit=20.0)
    timer.join()
    assert time.perf_counter() - began <= 0.5 + BUSY
    # HiGHS heard the request itself; it was not merely left running
    assert len(worker._abandoned) == left_behind
    assert s.termination is Termination.INTERRUPTED_WITH_SOLUTION and s.x is not None
    check_trace(s.trace)


@by_both_doors
def test_ctrl_c_without_solution(solver: str) -> None:
    timer = press_ctrl_c(0.5)
    s = solve(market_split(6, 50, slack=False), solver=solver, time_limit=20.0)
    timer.join()
    assert s.termination is Termination.INTERRUPTED_NO_SOLUTION and s.x is None


def make_deaf(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let HiGHS hear neither limit nor interrupt for ``seconds``."""
    options = engine.HighsRun._options
    monkeypatch.setattr(engine.HighsRun, "_options", lambda self: {**options(self), "time_limit": seconds})
    monkeypatch.setattr(engine.HighsRun, "_on_interrupt", lambda self, event: None)


def test_deaf_solver_is_abandoned_with_its_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    make_deaf(monkeypatch, 5.0)
    m = market_split()
    s = solve(m, time_limit=0.5)
    assert any(thread.is_alive() for thread in worker._abandoned)  # nobody waited for it
    assert s.termination is Termination.LIMIT_WITH_SOLUTION
    assert s.x is not None and m.arrays().violation(s.x) <= 1e-6
    for thread in worker._abandoned:
        thread.join()


def test_second_ctrl_c_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    make_deaf(monkeypatch, 2.0)
    timers = [press_ctrl_c(0.3), press_ctrl_c(0.8)]
    with pytest.raises(KeyboardInterrupt):
        solve(market_split())
    for timer in timers:
        timer.join()


def test_progress_comes_from_the_calling_thread() -> None:
    seen: list[tuple[int, TracePoint]] = []
    s = solve(market_split(), time_limit=1.8, progress=lambda p: seen.append((threading.get_ident(), p)))
    assert {ident for ident, _ in seen} == {threading.get_ident()}
    objectives = [p.objective for _, p in seen]
    assert objectives == sorted(objectives, reverse=True)
    assert min(objectives) == pytest.approx(s.objective, abs=1e-6)
    # quiet half seconds are reported, busy ones not ten times each
    assert len(seen) >= 2 and len(seen) <= len(s.trace) + 6


@by_both_doors
def test_failing_progress_stops_the_solve(solver: str) -> None:
    def fail(point: TracePoint) -> None:
        raise LookupError("display gone")

    began = time.perf_counter()
    with pytest.raises(LookupError, match="display gone"):
        solve(market_split(), solver=solver, time_limit=20.0, progress=fail)
    assert time.perf_counter() - began <= BUSY


def test_large_lp_hears_the_limit() -> None:
    rng = np.random.default_rng(0)
    m = Model("lp")
    x = m.continuous("x", 3000, 0.0, 10.0)
    cols = np.array([rng.choice(3000, 300, replace=False) for _ in range(2500)])
    m.rows("r", [(x[cols], rng.random(cols.shape))], lower=rng.random(2500) * 50)
    m.minimize([(x, rng.random(3000))])
    began = time.perf_counter()
    s = solve(m, time_limit=0.4)
    assert time.perf_counter() - began <= 0.4 + BUSY
    # a fast machine may be done; whoever is not says that the limit came first
    limited = (Termination.LIMIT_NO_SOLUTION, Termination.LIMIT_WITH_SOLUTION)
    assert s.termination in limited or (s.termination is Termination.OPTIMAL and s.seconds < 0.4 + BUSY)


@by_both_doors
@pytest.mark.parametrize("integral", [True, False])
def test_infeasible_and_unbounded_are_told_apart(integral: bool, solver: str) -> None:
    m = Model("u")
    x = (m.integer if integral else m.continuous)("x", 2)
    m.rows("r", [(x[None, :], [1.0, -1.0])], lower=0.0)
    m.minimize([(x, [-1.0, 0.0])])
    s = solve(m, solver=solver)
    assert s.termination is Termination.UNBOUNDED and s.objective == -np.inf and s.x is None
    m.rows("no", [(x[None, :], 1.0)], upper=-1.0)
    s = solve(m, solver=solver)
    assert s.termination is Termination.INFEASIBLE and s.objective == np.inf and not s.proven
