"""Both doors on the same models: HiGHS with presolve, HiGHS without, and CBC behind PuLP must agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from random_models import KINDS, random_model, small_milp

from dfopt.milp import Model, Solution, Termination, solve

CBC = "pulp:CBC"


def three_ways(model: Model) -> tuple[Solution, Solution, Solution]:
    limit = 60.0
    return (
        solve(model, time_limit=limit),
        solve(model, time_limit=limit, presolve=False),
        solve(model, time_limit=limit, solver=CBC),
    )


def assert_agreement(model: Model) -> None:
    first, *others = three_ways(model)
    assert first.termination in (Termination.OPTIMAL, Termination.INFEASIBLE)
    for other in others:
        assert other.termination is first.termination, other.message
        assert other.objective == pytest.approx(first.objective, rel=1e-6, abs=1e-6)
        assert other.bound == pytest.approx(first.bound, rel=1e-6, abs=1e-6)
        assert other.x is None or model.arrays().violation(other.x) <= 1e-6


@settings(max_examples=10, deadline=None)
@given(small_milp())
def test_small_models(case: tuple[Model, int, int]) -> None:
    assert_agreement(case[0])


@pytest.mark.parametrize("seed", range(30))
def test_some_structures(seed: int) -> None:
    assert_agreement(random_model(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(30, 430))
def test_many_structures(seed: int) -> None:
    assert_agreement(random_model(seed))


@pytest.mark.nightly
@settings(deadline=None)
@given(small_milp())
def test_many_small_models(case: tuple[Model, int, int]) -> None:
    assert_agreement(case[0])


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(10, 200))])
def test_gap_and_cutoff(seed: int) -> None:
    rng = np.random.default_rng(10_000 + seed)
    model = KINDS[seed % len(KINDS)](rng, int(rng.integers(10, 70)))
    gap = float(rng.choice([0.01, 0.1, 0.3]))
    best = solve(model)
    if best.x is None:
        return
    near = 1e-6 * max(1.0, abs(best.objective))
    rough = solve(model, solver=CBC, gap=gap)
    assert rough.termination in (Termination.GAP_REACHED, Termination.OPTIMAL) and rough.gap <= gap * (1.0 + 1e-6)
    assert rough.bound - near <= best.objective <= rough.objective + near
    if rough.termination is Termination.OPTIMAL:
        assert rough.objective == pytest.approx(best.objective, abs=near)
    start = best.x if seed % 2 else None
    step = max(1e-3, 1e-3 * abs(best.objective))
    for room in (0.0, step):
        s = solve(model, solver=CBC, cutoff=best.objective + room, start=start)
        assert s.termination is Termination.OPTIMAL and s.objective == pytest.approx(best.objective, abs=near)
    s = solve(model, solver=CBC, cutoff=best.objective - step, start=start)
    assert s.termination is Termination.INFEASIBLE and s.bound == best.objective - step


def _two_and_not_three() -> Model:
    """Four integers and a time: 2 is possible."""
    model = Model("two and not three")
    whole, rest = model.integer("x", 4, upper=2.0), model.continuous("y", 1, upper=3.0)
    x = np.concatenate([whole, rest])[None, :]
    model.rows("first", [(x, np.array([[-2.0, 0.0, 2.0, 0.0, -1.0]]))], upper=-4.0)
    model.rows("second", [(x, np.array([[-1.0, 0.0, 1.0, 0.0, 1.0]]))], upper=3.0)
    model.minimize([(whole, np.array([2.0, 0.0, -1.0, 0.0]))])
    return model


def test_cbc_is_right_where_its_preprocessing_is_wrong() -> None:
    # With preprocessing CBC 2.10.3 calls the first, trivially feasible, "integer infeasible", of the second it reports
    # an objective that its own solution does not have, and of the third it calls 3 optimal.
    rng = np.random.default_rng(10_059)
    wrong = KINDS[9](rng, int(rng.integers(10, 70)))
    for model in (wrong, random_model(445), _two_and_not_three()):
        s = solve(model, solver=CBC)
        assert s.termination is Termination.OPTIMAL and s.message == "proven optimal"
        assert s.objective == pytest.approx(solve(model).objective, rel=1e-6)


@pytest.mark.parametrize("presolve", [True, False])
def test_infeasible_where_cbc_crashes_without_its_preprocessing(presolve: bool) -> None:
    s = solve(random_model(275), solver=CBC, presolve=presolve)
    assert s.termination is Termination.INFEASIBLE
