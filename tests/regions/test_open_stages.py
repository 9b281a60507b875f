"""Plans whose pipeline stages are open, and no arcs: both engines have one answer, which is verified."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
from brute import joint_optimum
from covered import asked_of, covered, jointly, stages_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from regional import of_regions
from strategies import World, share

import dfopt.search as optimizer
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.search.options import SWITCH
from dfopt.search.verify import verify

CUT: dict[str, Any] = {"repeats": (1,), "most": 4, "token_blocks": None, "gradient_overlap": None}
"""Kernels drawn once, so that several pipeline stages leave their places open."""


def drawn(world: World, data: st.DataObject) -> dict[str, Any]:
    """What is asked of plans with several pipeline stages."""
    several = [one for one in stages_of(world) if one > 1]
    assume(several)
    return asked_of(world, data.draw, ways=1) | {"pp": data.draw(st.sampled_from(several))}


@share(1)
@given(covered(**CUT), st.sampled_from(["seconds", "bytes"]), st.data())
def test_stages_that_come_first_are_those_of_the_other_search(
    world: World, objective: str, data: st.DataObject
) -> None:
    given = {"assumptions": world.assumptions.with_(sharding_objective=objective), **drawn(world, data)}
    try:
        with patch.dict(os.environ, {SWITCH: "0"}):
            expected = optimizer.solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with pytest.raises(type(error)):
            of_regions(world.graph, world.system, **given)
        return
    found = of_regions(world.graph, world.system, **given)
    note(f"{found.value} {found.status} {found.plan.label} against {expected.value} {expected.status}")
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.status == expected.status
    assert found.level_bound == pytest.approx(expected.level_bound, rel=1e-9)
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
            of_regions(world.graph, world.system, **given)
        return
    with patch("dfopt.regions.cuts._MOST_CUTS", 1):
        if best is None:
            with pytest.raises(Infeasible):
                of_regions(world.graph, world.system, **given)
            return
        found = of_regions(world.graph, world.system, **given)
        note(f"{found.value} {found.status} {found.plan.label} against {best}")
        assert found.bound <= best.value * (1 + 1e-9)
        assert found.value >= best.value * (1 - 1e-9)
        if found.status == "optimal":
            assert found.value <= best.value * (1 + 1e-6)
        shown = verify(found)
        assert not shown.problems, shown.problems
