"""What answers of random worlds claim of plans: what is true is verified, and what is not is refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
from covered import asked_of, covered
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import World, share

from dfopt.documents.result import Result
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.regions import lattices
from dfopt.search import solve
from dfopt.search.verify import verify

OBJECTIVES = "joint", "joint", "seconds", "bytes"
FEW = dict.fromkeys(("MOST_SETS", "MOST_OF_LIBRARY", "_SOME"), 1)
"""Down-sets of a layer that are listed at most: then blocks are generated on demand."""
MANY = 50
"""Mappings that are asked for, more than there are plans: then every plan under which something fits has a value."""


def answered(world: World, objective: str, asked: dict[str, Any]) -> Result:
    """The answer, if there is one."""
    try:
        return solve(
            world.graph, world.system, assumptions=world.assumptions.with_(sharding_objective=objective), **asked
        )
    except (Infeasible, NoSolution, PlanError):
        assume(False)
        raise


def forged(result: Result, **changes: Any) -> Result:
    """An answer with changes, sealed again; the question is not in it."""
    return result.model_copy(update={"question": None, **changes}).sealed()


@share(2)
@given(
    covered(most=4), st.data(), st.sampled_from(OBJECTIVES), st.integers(1, 4), st.sampled_from(["plan", "sharding"])
)
def test_what_answers_claim_is_verified(
    world: World, data: st.DataObject, objective: str, top: int, distinct: str
) -> None:
    asked = asked_of(world, data.draw, ways=1)
    several = {"top": top, "distinct": distinct if objective == "joint" and top > 1 else "plan"}
    result = answered(world, objective, {**asked, **several})
    note(f"{result.proof} {[(r.plan.label, r.status, r.bound, r.level_bound) for r in result.plans]}")
    found = verify(result)
    assert found.ok, found.problems
    assert (found.gap, found.level_gap) == (
        pytest.approx(result.gap, abs=2e-6),
        pytest.approx(result.level_gap, abs=2e-6),
    )


@share(1)
@given(covered(most=4), st.data(), st.sampled_from(OBJECTIVES), st.sampled_from(["plan", "sharding"]), st.booleans())
def test_a_plan_under_which_something_fits_is_not_said_to_be_infeasible(
    world: World, data: st.DataObject, objective: str, distinct: str, shown: bool
) -> None:
    """Whether its mappings are in the file or not."""
    several = {"top": MANY, "distinct": distinct if objective == "joint" else "plan"}
    result = answered(world, objective, {**asked_of(world, data.draw, ways=1), **several})
    number = data.draw(st.sampled_from([n for n, record in enumerate(result.plans) if record.value is not None]))
    record, plans = result.plans[number], [*result.plans]
    empty = {"status": "infeasible", "bound": None, "level_bound": None, "value": None, "gap": None, "solves": ()}
    if objective != "joint" and data.draw(st.booleans()):
        empty |= {"status": "infeasible_per_level", "bound": record.bound}
    plans[number] = record.model_copy(update=empty)
    others = [one for one in result.alternatives or () if shown or one.mapping.plan != record.plan]
    plans.sort(key=lambda each: each.order)
    found = verify(forged(result, plans=tuple(plans), alternatives=tuple(others) or None))
    note(f"{record} {found}")
    assert any(".status: " in problem for problem in found.problems)


@share(1)
@given(covered(most=4), st.data(), st.sampled_from(OBJECTIVES))
def test_a_worse_answer_is_not_the_best(world: World, data: st.DataObject, objective: str) -> None:
    """The best with one partition, which claims that it is the best with any number."""
    asked = {"two_batch_overlap": False} if world.graph.folded else {"two_batch_overlap": False, "pp": 1}
    assume(world.assumptions.empty_partitions == "allow" and world.assumptions.execution != "kernel_by_kernel")
    worse, best = (answered(world, objective, {**asked, "p_max": most}) for most in (1, None))
    with patch.multiple(lattices, **FEW) if data.draw(st.booleans()) else nullcontext():
        found = verify(forged(worse, request=best.request, fixed=best.fixed, space=best.space, p_max=best.p_max))
    note(f"{worse.value} {best.value} {found}")
    if worse.value > best.value * (1 + 1e-5):
        assert found.level_gap is not None and found.level_gap >= 1 - best.level_bound / worse.value - 1e-5
        assert any("bound" in one or "gap" in one or "status" in one for one in found.problems)
