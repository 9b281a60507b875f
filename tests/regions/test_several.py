"""Several best mappings that differ in plan, or in plan and schemes, against brute force over all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from brute import sharding_optima
from covered import asked_of, best_mapping, covered, jointly, setting_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from members import Members, drawn_root
from strategies import World, share

import dfopt.search as optimizer
from dfopt.bnb import Bound, Candidate, Clock, Incumbents
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.regions.facts import FactCache
from dfopt.regions.leaves import Enumeration
from dfopt.regions.reductions import AboveCutoff, Dominated
from dfopt.regions.region import Region
from dfopt.search.verify import verify
from dfopt.setting.plans import asked_plans
from dfopt.solving.options import Options

Distinct = Literal["plan", "sharding"]
NOTHING = Bound(-np.inf)


def values_of(world: World, asked: dict[str, Any], distinct: Distinct) -> list[float]:
    """The best value of everything that is different under the plans that are listed, the best first."""
    request, setting = Request(**asked), setting_of(world)
    plans, _ = asked_plans(setting.graph, setting.system, request, setting.assumptions)
    assume(plans)
    every = sharding_optima(world.graph, world.system, jointly(world), request, plans)
    if distinct == "sharding":
        return sorted(every.values())
    return sorted({plan: min(value for (of, _), value in every.items() if of == plan) for plan, _ in every}.values())


@share(1)
@given(covered(most=4), st.data(), st.integers(2, 8), st.sampled_from(["plan", "sharding"]))
def test_nothing_else_is_better_than_the_last(world: World, data: st.DataObject, top: int, distinct: Distinct) -> None:
    asked = asked_of(world, data.draw)
    expected = values_of(world, asked, distinct)[:top]
    found = best_mapping(setting_of(world), Request(**asked, top=top, distinct=distinct))
    note(f"{found.kept} {found.ending} {found.bound} against {expected}")
    assert [one.value for one in found.kept] == pytest.approx(expected, rel=1e-9)
    assert len({one.solution.different for one in found.kept}) == len(found.kept)
    assert found.ending == ("optimal" if expected else "empty")


@share(0.5)
@given(covered(most=4, zero=False), st.data(), st.integers(2, 8), st.sampled_from(["plan", "sharding"]))
def test_answers_with_several_mappings_are_verified(
    world: World, data: st.DataObject, top: int, distinct: Distinct
) -> None:
    """What is on record of every plan says that no other mapping is better than the last."""
    asked = asked_of(world, data.draw, ways=1)  # with open stages several mappings of a plan are refused
    expected = values_of(world, asked, distinct)[:top]
    try:
        found = optimizer.solve(
            world.graph, world.system, assumptions=jointly(world), **asked, top=top, distinct=distinct
        )
    except Infeasible:
        assert not expected
        return
    values = [found.value, *(one.value for one in found.alternatives or ())]
    assert values == pytest.approx(expected, rel=1e-9)
    assert found.status == "optimal"
    shown = verify(found)
    assert shown.ok, shown.problems


@share(1)
@given(covered(most=4), st.data())
def test_plans_keep_what_is_better_than_their_own_mappings(world: World, data: st.DataObject) -> None:
    """Of a plan that is kept the mappings below its value, of others those below the last; and leaves have them."""
    members, root = drawn_root(world, data)
    domain = tuple(
        tuple(sorted(data.draw(st.sets(st.sampled_from(left), min_size=1, max_size=2)))) for left in root.domain
    )
    region = Region(root.of, domain, root.plans[:3], root.arcs_k)
    best_of = best_by_plan(members, region)
    assume(best_of)
    assert best_by_plan(members, Dominated().reduce(region, NOTHING, Incumbents(2, 0.0)) or region) == pytest.approx(
        best_of, rel=1e-9
    )
    top, variant = data.draw(st.integers(2, 3)), root.of.setting.model.variant
    kept, near = Incumbents(top, 0.0), st.sampled_from([1 - 1e-6, 1 + 1e-6, 1.1])
    for plan in data.draw(st.sets(st.sampled_from(sorted(best_of, key=str)), max_size=top)):
        kept.offer(Candidate(best_of[plan] * data.draw(near), SimpleNamespace(different=(plan, variant))))
    while len(kept.kept) < top and data.draw(st.booleans()):
        value = max(best_of.values()) * data.draw(near)
        kept.offer(Candidate(value, SimpleNamespace(different=len(kept.kept))))
    own = {one.solution.different: one.value for one in kept.kept}
    better = {
        plan: value for plan, value in best_of.items() if value < min(kept.cutoff, own.get((plan, variant), np.inf))
    }
    note(f"{best_of} {better} {own} {kept.cutoff}")
    memory = FactCache()
    if memory.of(region).arcs_k is None:
        return
    left = best_by_plan(members, AboveCutoff(memory).reduce(region, NOTHING, kept) or region)
    assert {plan: left.get(plan, np.inf) for plan in better} == pytest.approx(better, rel=1e-9)
    leaf = Enumeration(memory, Options(Request(top=top)))
    answer = leaf.solve(region, NOTHING, kept, Clock())
    found = [one.value for one in answer.candidates]
    assert found == pytest.approx(sorted(better.values())[:top], rel=1e-9)
    assert answer.others == (pytest.approx(found[-1]) if len(found) == top else kept.cutoff)


def best_by_plan(members: Members, region: Region) -> dict[Plan, float]:
    """Seconds of the best mapping under each plan of a region."""
    found = dict[Plan, float]()
    for plan, _, value in members.of(region):
        if np.isfinite(value):
            found[plan] = min(value, found.get(plan, np.inf))
    return found
