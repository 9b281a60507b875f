"""The sharding first, then the fusion: the best of all fusions of every plan's sharding, and each plan is verified."""

from __future__ import annotations

from typing import Any

import pytest
from brute import joint_optimum
from covered import asked_of, covered, jointly
from hypothesis import given, note
from hypothesis import strategies as st
from strategies import World, share

from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.sharding import interchip


def least_of_levels(world: World, asked: dict[str, Any], objective: str) -> float | None:
    """Seconds of the best fusion for the sharding that is best by itself, over all plans; none if nothing fits."""
    request, found = Request(**asked), list[float]()
    setting = Setting.resolved(world.graph, world.system, world.assumptions.with_(sharding_objective=objective))
    plans, _ = asked_plans(setting.graph, setting.system, request, setting.assumptions)
    for plan in plans:
        try:
            tables = interchip.build(setting.under(plan).shared, request.pin_sharding)
            sharding = interchip.optimize_interchip(setting, tables, gap=0.0).sharding
        except Infeasible:  # the schemes of some kernels contradict each other
            continue
        pinned = Request(**asked | {"pin_sharding": sharding})
        best = joint_optimum(world.graph, world.system, jointly(world), pinned, [plan])
        found += [] if best is None else [best.value]
    return min(found, default=None)


def check(world: World, asked: dict[str, Any], objective: str) -> None:
    given = {"assumptions": world.assumptions.with_(sharding_objective=objective), **asked}
    try:
        expected = least_of_levels(world, asked, objective)
    except PlanError:
        with pytest.raises(PlanError):
            solve(world.graph, world.system, **given)
        return
    if expected is None:
        with pytest.raises((Infeasible, PlanError)):
            solve(world.graph, world.system, **given)
        return
    found = solve(world.graph, world.system, **given)
    note(f"{found.value} {found.status} {found.plan.label} against {expected}")
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.status in ("optimal", "optimal_per_level")
    assert found.level_bound == pytest.approx(expected, rel=1e-9)
    shown = verify(found)
    assert not shown.problems, shown.problems
    assert shown.ok


@share(1)
@given(covered(most=4), st.sampled_from(["seconds", "bytes"]), st.data())
def test_nothing_is_better_with_the_best_sharding_of_a_plan(world: World, objective: str, data: st.DataObject) -> None:
    check(world, asked_of(world, data.draw, ways=1), objective)


@share(0.5)
@given(covered(most=4, repeats=(4,), trains=True), st.sampled_from(["seconds", "bytes"]), st.data())
def test_nothing_is_better_of_what_trains_in_layers(world: World, objective: str, data: st.DataObject) -> None:
    check(world, asked_of(world, data.draw, ways=1), objective)
