"""Layers with more down-sets than are listed: the same bounds and answers, from blocks that are generated on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from brute import joint_optimum
from covered import asked_of, best_mapping, covered, jointly, setting_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import World, share
from test_bounds import SAME, check_bounds, drawn, problem
from test_offload import cases as trained
from test_several import Distinct, values_of

import dfopt.search as optimizer
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.regions.facts import Facts
from dfopt.regions.passes import fields_of, least_passes
from dfopt.regions.region import Region
from dfopt.search import solve
from dfopt.search.verify import verify

CLOSED = 2e-6
"""Relative: what generation leaves open of a bound, as MILPs do."""
FUSED: dict[str, Any] = {"execution": ["dataflow", "library"], "token_blocks": ["none", "allow"]}
"""Worlds in which kernels share blocks."""


@contextmanager
def few_sets(most: int) -> Iterator[None]:
    """Lattices are too large to list from so many down-sets on."""
    names = "MOST_SETS", "MOST_OF_LIBRARY", "_SOME"
    with (
        patch.multiple("dfopt.regions.lattices", **dict.fromkeys(names, most)),
        patch("dfopt.fusion.pieces._LONG", 0.0),  # and layers of any shape are cut into pieces
    ):
        yield


@share(0.5)
@given(covered(most=4, **FUSED), st.sampled_from([1, 4, 8]), st.data())
def test_nothing_is_better(world: World, most: int, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    try:
        expected = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
    except PlanError:
        assume(False)
    with few_sets(most):
        found = best_mapping(setting_of(world), Request(**asked))
    note(f"{found.best} {found.ending} {found.bound} against {expected}")
    if expected is None:
        assert found.ending == "empty"
        return
    assert found.best == pytest.approx(expected.value, rel=CLOSED)
    assert expected.value * (1 - CLOSED) <= found.bound <= expected.value * (1 + SAME)


@share(1)
@given(covered(most=4, **FUSED), st.data())
def test_no_member_is_below_a_bound(world: World, data: st.DataObject) -> None:
    with few_sets(1):
        members, region = drawn(world, data)
        least = members.least(region)
    assert not region.complete
    check_bounds(problem(members).relaxations, region, least)


@share(0.5)
@given(covered(most=4, **FUSED), st.data(), st.integers(2, 6), st.sampled_from(["plan", "sharding"]))
def test_nothing_else_is_better_than_the_last(world: World, data: st.DataObject, top: int, distinct: Distinct) -> None:
    asked = asked_of(world, data.draw, ways=1)  # with open stages several mappings of a plan are refused
    expected = values_of(world, asked, distinct)[:top]
    with few_sets(1):
        found = best_mapping(setting_of(world), Request(**asked, top=top, distinct=distinct))
    note(f"{found.kept} {found.bound} against {expected}")
    assert [one.value for one in found.kept] == pytest.approx(expected, rel=CLOSED)


@share(0.5)
@given(covered(most=4, empty_partitions="allow", **FUSED), st.sampled_from(["joint", "seconds"]), st.data())
def test_answers_are_verified(world: World, objective: str, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw, ways=1)
    given = {"assumptions": world.assumptions.with_(sharding_objective=objective), **asked}
    try:
        expected = optimizer.solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with few_sets(1), pytest.raises(type(error)):
            solve(world.graph, world.system, **given)
        return
    with few_sets(1):
        found = solve(world.graph, world.system, **given)
    note(f"{found.value} {found.bound} {found.status} against {expected.value} {expected.status}")
    assert found.value == pytest.approx(expected.value, rel=CLOSED)
    assert found.bound >= expected.bound * (1 - CLOSED)
    with few_sets(1):
        problems = verify(found).problems
    counted_so = "$.space."  # which down-sets are listed decides how the space is counted
    problems += tuple(problem for problem in verify(found).problems if not problem.startswith(counted_so))
    assert not problems, problems


HIDING: dict[str, Any] = FUSED | {"gradient_overlap": "backward", "gradients": "exact", "repeats": (4,), "trains": True}
"""Worlds in which passes hide exchanges."""


@share(2)
@given(covered(most=4, **HIDING), st.data())
def test_passes_take_no_less_than_kernels_say_whatever_their_blocks(world: World, data: st.DataObject) -> None:
    check_passes(drawn(world, data)[1])


@share(1)
@given(trained(execution=["dataflow", "library"], gradient_overlap=None, token_blocks=["none", "allow"]), st.data())
def test_memories_take_no_less_beside_what_is_moved(case: tuple[World, dict[str, str]], data: st.DataObject) -> None:
    world, place = case
    check_passes(drawn(world, data, Request(place=place, zero=(0, 1), mp=1))[1])


def check_passes(region: Region) -> None:
    """What kernels say of the passes of a region is no more than the least over all of its paths."""
    of, facts = region.of, Facts(region)
    assume(of.by_pass is not None and region.complete and facts.arcs_k is not None)
    for kind, (arcs, priced) in enumerate(zip(facts.some, facts._priced_k, strict=True)):
        known, fields = least_passes(of.by_pass, [arcs], [priced]), fields_of(of.by_pass, arcs, priced)
        for low, exact, of_blocks in zip(of._unlisted_passes(kind, region.domain), known, fields, strict=True):
            assert of_blocks is None or (low <= exact * (1 + SAME)).all()  # others decide nothing
