"""The growing LP against fresh solves, its duals, its clock."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from solver_doors import press_ctrl_c

from dfopt.bnb import Clock
from dfopt.milp import Model, Termination, solve
from dfopt.milp.linear import GrowingLp, LpPoint

INF = np.inf


def fresh(rows: tuple[np.ndarray, np.ndarray], cost: np.ndarray, a: np.ndarray, low: np.ndarray) -> Model:
    model = Model("fresh")
    x = model.continuous("x", cost.size, low)
    model.rows("r", [(np.broadcast_to(x, a.shape), a)], lower=rows[0], upper=rows[1])
    model.minimize([(x, cost)])
    return model


def assert_optimal(point: LpPoint, rows: tuple[np.ndarray, np.ndarray], model: Model) -> None:
    """Check x and the signs of duals and reduced costs with nothing but the definitions."""
    p = model.arrays()
    a, near = p.A.toarray(), 1e-6
    assert point.optimal and model.arrays().violation(point.x) <= near
    reduced, activity = p.cost - point.duals @ a, a @ point.x
    assert (reduced >= -near).all()
    assert (reduced[point.x > p.col_lower + near] <= near).all()
    assert (point.duals[activity > rows[0] + near] <= near).all()
    assert (point.duals[activity < rows[1] - near] >= -near).all()


@pytest.mark.parametrize("seed", range(60))
def test_equals_fresh_solves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 6))
    low = np.where(rng.random(m) < 0.5, rng.integers(-5, 5, m), -INF)
    up = np.where(rng.random(m) < 0.6, np.where(np.isfinite(low), low, -3) + rng.integers(0, 4, m), INF)
    lp = GrowingLp(low, up)
    cost, a, least = np.empty(0), np.empty((m, 0)), np.empty(0)
    for _ in range(8):
        n = int(rng.integers(1, 5))
        new = rng.integers(-3, 4, (m, n)).astype(float), rng.integers(-1, 6, n).astype(float)
        lower = float(rng.integers(-1, 1))
        lp.add_columns(new[1], sp.csc_array(new[0]), lower)
        cost, a, least = np.r_[cost, new[1]], np.hstack([a, new[0]]), np.r_[least, np.full(n, lower)]
        assert lp.columns == cost.size
        point, model = lp.solve(), fresh((low, up), cost, a, least)
        expected = solve(model)
        assert point.status is (Termination.OPTIMAL if expected.x is not None else Termination.FAILED)
        if point.optimal:
            assert point.objective == pytest.approx(expected.objective, abs=1e-6)
            assert_optimal(point, (low, up), model)
        else:
            assert np.isnan(point.objective) and np.isnan(point.x).all() and np.isnan(point.duals).all()
            assert point.x.shape == cost.shape and point.duals.shape == (m,)


def test_column_generation_for_cutting_stock() -> None:
    width, need = np.array([45.0, 36.0, 31.0, 14.0]), np.array([97.0, 610.0, 395.0, 211.0])
    lp = GrowingLp(need, np.full(4, INF))
    lp.add_columns(np.ones(4), sp.diags_array(np.floor(100.0 / width)).tocsc())
    bound = -INF
    for _ in range(50):
        point = lp.solve()
        assert point.optimal
        pattern = Model("pattern")
        x = pattern.integer("x", 4)
        pattern.rows("roll", [(x[None, :], width)], upper=100.0)
        pattern.minimize([(x, -point.duals)], offset=1.0)
        price = solve(pattern)
        assert price.x is not None
        bound = max(bound, point.objective / (1.0 - price.objective))
        if price.objective >= -1e-9:
            break
        lp.add_columns([1.0], sp.csc_array(price.x[:, None]))
    # the textbook instance of Gilmore and Gomory
    assert point.objective == pytest.approx(452.25) and bound == pytest.approx(452.25)


def random_lp(rows: int, columns: int, seed: int = 0) -> tuple[GrowingLp, np.random.Generator]:
    rng = np.random.default_rng(seed)
    lp = GrowingLp(rng.random(rows) * 50.0, np.full(rows, INF))
    lp.add_columns(rng.random(columns), sp.random_array((rows, columns), density=0.1, rng=rng, format="csc"))
    return lp, rng


def iterations(lp: GrowingLp) -> int:
    return int(lp._highs.getInfo().simplex_iteration_count)


def test_hot_start_survives_adding() -> None:
    lp, rng = random_lp(100, 400)
    point = lp.solve()
    cold = iterations(lp)
    # columns too dear to enter change nothing, and HiGHS sees that at once
    lp.add_columns(np.full(50, 1e3), sp.random_array((100, 50), density=0.1, rng=rng, format="csc"))
    again = lp.solve()
    assert cold > 20 and iterations(lp) == 0 and again.objective == pytest.approx(point.objective)


def test_time_limit_and_going_on_after_it() -> None:
    lp, _ = random_lp(1500, 2000)
    point = lp.solve(Clock.of_limit(0.05))
    assert point.status is Termination.LIMIT_NO_SOLUTION and not point.optimal and np.isnan(point.objective)
    assert lp.solve(Clock.of_limit(0.0)).status is Termination.LIMIT_NO_SOLUTION
    # the limit of one solve is not spent by the ones before it
    assert lp.solve(Clock.of_limit(60.0)).optimal
    assert lp.solve(Clock.of_limit(5.0)).optimal


def test_ctrl_c() -> None:
    lp, _ = random_lp(2500, 3000)
    timer = press_ctrl_c(0.1)
    point = lp.solve()
    timer.join()
    assert point.status is Termination.INTERRUPTED_NO_SOLUTION
    assert lp._worker is not None
    lp._worker.join()  # on a busy machine HiGHS hears of it after solve gave up waiting
    assert lp.solve().optimal


def test_a_deaf_solver_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lp = GrowingLp([1.0], [INF])
    lp.add_columns([1.0], sp.csc_array([[1.0]]))
    run = GrowingLp._work
    monkeypatch.setattr(GrowingLp, "_work", lambda self: (time.sleep(2.5), run(self))[1])
    assert lp.solve(Clock.of_limit(0.1)).status is Termination.LIMIT_NO_SOLUTION
    for use in (lp.solve, lambda: lp.add_columns([1.0], sp.csc_array([[1.0]]))):
        with pytest.raises(RuntimeError, match="has not come back"):
            use()
    assert lp._worker is not None
    lp._worker.join()
    assert lp.solve().objective == 1.0


def test_a_wrong_answer_is_not_called_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    lp, _ = random_lp(100, 400)
    monkeypatch.setattr(lp, "_proves", lambda x, duals: False)
    assert lp.solve().status is Termination.FAILED
    monkeypatch.undo()
    point = lp.solve()
    assert point.optimal
    assert not lp._proves(point.x, point.duals + 0.1) and not lp._proves(point.x * 0.9, point.duals)
    assert not lp._proves(np.full(400, 10.0), point.duals)


def test_answers_are_read_only_and_inputs_checked() -> None:
    lp = GrowingLp([1.0, 0.0], [INF, 5.0])
    lp.add_columns([1.0], sp.csc_array([[1.0], [1.0]]))
    with pytest.raises(ValueError, match="read-only"):
        lp.solve().x[0] = 2.0
    with pytest.raises(ValueError, match="expected \\(2, n\\) and \\(n,\\)"):
        lp.add_columns([1.0], sp.csc_array([[1.0]]))
    with pytest.raises(ValueError, match="NaN or infinite"):
        lp.add_columns([np.nan], sp.csc_array([[1.0], [1.0]]))
    with pytest.raises(ValueError, match="rows: NaN"):
        GrowingLp([np.nan], [1.0])
    with pytest.raises(ValueError, match="could not be broadcast"):
        GrowingLp([1.0, 1.0, 1.0], [1.0, 2.0])
    assert lp.columns == 1 and lp.solve().objective == pytest.approx(1.0)
