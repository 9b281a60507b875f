"""The sharding first, then the fusion: both engines have one answer, and what is said of each plan is verified."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
from covered import asked_of, covered
from hypothesis import assume, given, note, reject
from hypothesis import strategies as st
from strategies import World, share

import dfopt.search as optimizer
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.search import solve
from dfopt.search.options import SWITCH
from dfopt.search.verify import verify


def check(world: World, asked: dict[str, Any], objective: str) -> None:
    chosen = world.assumptions.with_(sharding_objective=objective)
    given = {"assumptions": chosen, **asked}
    try:
        with patch.dict(os.environ, {SWITCH: "0"}):
            expected = optimizer.solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with pytest.raises(type(error)):
            solve(world.graph, world.system, **given)
        return
    except NoSolution:  # the other search only looks for blocks of tokens where some fit
        assume(chosen.blocks_tokens)
        reject()
    found = solve(world.graph, world.system, **given)
    note(f"{found.value} {found.status} {found.plan.label} against {expected.value} {expected.status}")
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert found.status == expected.status
    assert found.level_bound == pytest.approx(expected.level_bound, rel=1e-9)
    shown = verify(found)
    assert not shown.problems, shown.problems
    assert shown.verdict == verify(expected).verdict


@share(1)
@given(covered(gradient_overlap=None), st.sampled_from(["seconds", "bytes"]), st.data())
def test_the_best_fusion_for_the_best_sharding_is_that_of_the_other_search(
    world: World, objective: str, data: st.DataObject
) -> None:
    check(world, asked_of(world, data.draw, ways=1), objective)


@share(0.5)
@given(covered(repeats=(4,), trains=True, gradient_overlap=None), st.sampled_from(["seconds", "bytes"]), st.data())
def test_it_is_of_what_trains_in_layers(world: World, objective: str, data: st.DataObject) -> None:
    check(world, asked_of(world, data.draw, ways=1), objective)
