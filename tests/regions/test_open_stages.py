"""Plans whose pipeline stages are open, and no arcs: the best of what levels come to, or of all, which is verified."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import pytest
from brute import joint_optimum
from covered import asked_of, covered, jointly, stages_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import World, share

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.physics.ops import streamed_rows
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.sharding.tables import build
from dfopt.solving.levels import best_sharding, by_levels
from dfopt.solving.options import Options

CUT: dict[str, Any] = {"repeats": (1,), "most": 4, "token_blocks": ["none", "allow"], "gradient_overlap": None}
"""Kernels drawn once, so that several pipeline stages leave their places open."""


def drawn(world: World, data: st.DataObject) -> dict[str, Any]:
    """What is asked of plans with several pipeline stages."""
    several = [one for one in stages_of(world) if one > 1]
    assume(several)
    return asked_of(world, data.draw, ways=1) | {"pp": data.draw(st.sampled_from(several))}


def best_of_levels(setting: Setting, plan: Plan, asked: Request) -> float:
    """The best fusion with the sharding and the stages that are best by themselves, in any number of tiles."""
    instance, options = setting.under(plan), Options(asked)
    try:
        chosen = best_sharding(instance, build(instance.shared, asked.pin_sharding), options)
    except Infeasible:
        return math.inf
    found = [
        by_levels(instance, lambda: chosen, options, tiles) for tiles in range(1, 1 + streamed_rows(setting.graph))
    ]
    return min((one.value for one in found if one is not None), default=math.inf)


@share(1)
@given(covered(**CUT), st.sampled_from(["seconds", "bytes"]), st.data())
def test_stages_that_come_first_are_the_best_of_their_level(world: World, objective: str, data: st.DataObject) -> None:
    asked, chosen = drawn(world, data), world.assumptions.with_(sharding_objective=objective)
    setting = Setting.resolved(world.graph, world.system, chosen)
    try:
        legal, _ = asked_plans(setting.graph, setting.system, Request(**asked), setting.assumptions)
        best = min(best_of_levels(setting, plan, Request(**asked)) for plan in legal)
    except PlanError:
        assume(False)
    if math.isinf(best):
        with pytest.raises(Infeasible):
            solve(world.graph, world.system, assumptions=chosen, **asked)
        return
    found = solve(world.graph, world.system, assumptions=chosen, **asked)
    note(f"{found.value} {found.status} {found.plan.label} against {best}")
    assert found.value == pytest.approx(best, rel=1e-9)
    assert found.level_bound == pytest.approx(best, rel=1e-9)
    every = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
    assert every is not None
    assert found.bound <= every.value * (1 + 1e-9)
    shown = verify(found)
    assert not shown.problems, shown.problems


@share(0.5)
@given(covered(**CUT), st.sampled_from(["assignment", "auto"]), st.data())
def test_a_program_finds_the_best_stages(world: World, formulation: str, data: st.DataObject) -> None:
    """Where it was asked for, or there are more cuts than are listed."""
    asked = drawn(world, data)
    given = {"assumptions": jointly(world), **asked, "formulation": formulation}
    try:
        best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
    except PlanError:
        with pytest.raises(PlanError):
            solve(world.graph, world.system, **given)
        return
    with patch("dfopt.regions.cuts._MOST_CUTS", 1):
        if best is None:
            with pytest.raises(Infeasible):
                solve(world.graph, world.system, **given)
            return
        found = solve(world.graph, world.system, **given)
        note(f"{found.value} {found.status} {found.plan.label} against {best}")
        assert found.bound <= best.value * (1 + 1e-9)
        assert found.value >= best.value * (1 - 1e-9)
        if found.status == "optimal":
            assert found.value <= best.value * (1 + 1e-6)
        shown = verify(found)
        assert not shown.problems, shown.problems
