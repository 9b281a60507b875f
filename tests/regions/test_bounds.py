"""Bounds of random regions against the judge's value of every member; what is left out, and what leaves say, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from brute import joint_optimum, least_capacities
from covered import covered, in_token_blocks, jointly, request_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from members import Members, drawn_root, places
from small_systems import rings, small_system
from strategies import World, share, with_dram

import dfopt as df
from dfopt.bnb import Bound, Candidate, Clock, Incumbents, Problem, Relaxation, branch_and_bound
from dfopt.documents.efficiency import EfficiencyRow
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.physics.pipeline import resolve
from dfopt.regions.branching import Probing
from dfopt.regions.facts import FactCache
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.leaves import Enumeration
from dfopt.regions.open_stages import BlocksOfStages, LeastUntiledOfStages
from dfopt.regions.problem import problem_in
from dfopt.regions.reductions import AboveCutoff, Dominated
from dfopt.regions.region import Branch, Region, Unlisted, Unsharded
from dfopt.regions.relaxations import (
    CapacityBound,
    GeneratedBlocks,
    LeastOfGraph,
    LeastStep,
    LeastUntiled,
    LeastWork,
    PathBound,
    PiecesOverOptions,
)
from dfopt.solving.options import Options

MANY = 300
"""Members that brute force values in one example."""
SAME = 1e-9
BEATEN = SimpleNamespace(different="another graph")
"""A mapping that others have found."""
BY_CYCLES: dict[str, Any] = {"compute_model": "cycle", "tile_rows": [None, None, 1, 2]}
BY_SHARES: dict[str, Any] = {"compute_model": "efficiency", "memory": True}
BROKEN: list[tuple[type[Relaxation[Any, Any]], int]] = [
    (LeastOfGraph, 1), (LeastStep, 1), (LeastUntiled, 2), (LeastWork, 2), (PathBound, 1), (CapacityBound, 2),
]  # fmt: skip
"""Relaxations, each with the chips of a world in which 1 % more is too much. On one chip the path says all."""
ELSEWHERE = {LeastUntiledOfStages, BlocksOfStages, PiecesOverOptions, GeneratedBlocks}
"""Relaxations of open stages and of lattices that are not listed; other tests hold those."""
NOTHING = Bound(-math.inf)
"""Of a region that no relaxation was asked about."""


def problem(members: Members) -> Problem[Region, JudgedMapping]:
    """The entries of a world."""
    return problem_in([members.space], Options(members.space.request))


def drawn(world: World, data: st.DataObject, asked: Request | None = None) -> tuple[Members, Region]:
    """A random part of a random root, of few members."""
    members, root = drawn_root(world, data, asked)
    plans = data.draw(st.sets(st.sampled_from(root.plans), min_size=1, max_size=3))
    domain = [sorted(data.draw(st.sets(st.sampled_from(left), min_size=1, max_size=3))) for left in root.domain]
    ways = max(len(places(world.graph, root.of.plans[i])) for i in plans)
    while ways * len(plans) * math.prod(map(len, domain)) > MANY and max(map(len, domain)) > 1:
        domain[max(range(len(domain)), key=lambda k: len(domain[k]))].pop()
    return members, replace(root, plans=tuple(sorted(plans)), domain=tuple(map(tuple, domain)))


def below(bound: float, least: float) -> bool:
    """Whether no member is below a bound."""
    return bound <= least * (1 + SAME)


def check_bounds(relaxations: Sequence[Relaxation[Region, Any]], region: Branch, least: float) -> None:
    """No relaxation gives a bound above the best member."""
    for relaxation in (each for each in relaxations if each.applies(region)):
        [answer] = relaxation.answers([region], math.inf, Clock())
        bound = relaxation.bound(region, answer).value
        assert below(bound, least), f"{relaxation.name}: {bound!r} of members from {least!r} on"


@share(3)
@given(covered(most=4), st.data())
def test_no_member_is_below_a_bound(world: World, data: st.DataObject) -> None:
    members, region = drawn(world, data)
    least = members.least(region)
    note(f"{region.domain} {region.plans} {least}")
    check_bounds(problem(members).relaxations, region, least)


def undominated(region: Region) -> Region:
    """What is left of a region without options that others dominate."""
    return Dominated().reduce(region, NOTHING, Incumbents(1, 0.0)) or region


WORLDS = {
    "in blocks of tokens": in_token_blocks(),
    "by cycles": covered(most=4, **BY_CYCLES),
    "with shares of bandwidth": covered(most=4, **BY_SHARES),
}


@pytest.mark.parametrize("worlds", WORLDS.values(), ids=WORLDS)
@share(1)
@given(st.data())
def test_no_member_is_below_a_bound_nor_lost_by_dominance(
    worlds: st.SearchStrategy[World], data: st.DataObject
) -> None:
    members, region = drawn(data.draw(worlds), data)
    least = members.least(region)
    check_bounds(problem(members).relaxations, region, least)
    assert members.least(undominated(region)) == pytest.approx(least, rel=SAME)


@share(1)
@given(st.one_of(covered(), in_token_blocks(), covered(**BY_CYCLES), covered(**BY_SHARES)), st.data())
def test_no_block_takes_less_than_its_least_price(world: World, data: st.DataObject) -> None:
    _, region = drawn(world, data)
    of, vectors = region.of, [[data.draw(st.sampled_from(left)) for left in region.domain] for _ in range(8)]
    for arcs in region.arcs_k:
        least_b = of.least_prices(arcs, of.table.least(region.domain)[None])[0]
        price_vb = of.prices(arcs, of.table.exact(np.array(vectors)))
        assert (least_b <= price_vb * (1 + SAME)).all()


@share(1)
@given(st.one_of(covered(most=4), in_token_blocks(), covered(most=4, **BY_CYCLES), covered(**BY_SHARES)), st.data())
def test_no_member_is_below_a_bound_for_any_number_of_tiles(world: World, data: st.DataObject) -> None:
    """The search asks of whole classes only, of which brute force would value too many members."""
    members, region = drawn(world, data)
    relaxation = LeastUntiled()
    [answer] = relaxation.answers([region], math.inf, Clock())
    assert below(relaxation.bound(region, answer).value, members.least(region))


@pytest.mark.parametrize("bytes_", [48.0, 64.0])
def test_what_moves_more_bytes_faster_is_not_dominated(bytes_: float) -> None:
    """One product on two chips, which the memory delays most: schemes of few bytes are slower than others."""
    rows = [EfficiencyRow(unit="memory", bytes=bytes_, share=1.0), EfficiencyRow(unit="memory", share=0.01)]
    rows += [EfficiencyRow(unit="matrix", share=1.0), EfficiencyRow(unit="vector", share=1.0)]
    system = small_system(*rings(2, rate=1e9), tiles=2, peak=1e9, bandwidth=1.0, capacity=1e9, efficiency=tuple(rows))
    graph = Graph(name="g", batch=1, kernels=(Kernel(name="a", op="gemm", m=4, k=4, n=4),))
    chosen = resolve(df.Assumptions(compute_model="efficiency"), "library", 0.9)
    world = World(graph, system, df.Plan(), chosen)
    members = Members(world, Request(tp=2, pp=1, two_batch_overlap=False))
    pairs = [(root, pair) for root in members.space.roots for pair in combinations(root.domain[0], 2)]
    for region in (replace(root, domain=(pair,)) for root, pair in pairs):
        assert members.least(undominated(region)) == pytest.approx(members.least(region), rel=SAME)


@share(1)
@given(covered(most=4), st.data())
def test_no_member_is_below_a_bound_where_capacity_binds(world: World, data: st.DataObject) -> None:
    """With a little less DRAM than the fastest mapping needs, and more than some other one does."""
    request, unlimited = request_of(world, data.draw), with_dram(world.system, None)
    try:
        fastest = joint_optimum(world.graph, unlimited, jointly(world), request)
        bytes_of = least_capacities(world.graph, unlimited, jointly(world), request)
    except PlanError:
        assume(False)
    assume(fastest is not None)
    most, least = max(stage.dram_bytes for stage in fastest.score.stages), min(bytes_of.values())
    assume(least < most * 0.99)  # the judge's tolerance of a limit is 1e-6
    capacity = least + data.draw(st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.99])) * (most - least)
    members = Members(replace(world, system=with_dram(world.system, capacity)), request)
    for root in members.space.roots:
        if len(root.plans) * root.vectors <= MANY:
            check_bounds(problem(members).relaxations, root, members.least(root))
    found = branch_and_bound(problem(members))
    expected = joint_optimum(world.graph, members.world.system, jointly(world), request)
    assert expected is not None
    assert found.best == pytest.approx(expected.value, rel=SAME)


@share(1)
@given(covered(most=4), st.data())
def test_what_is_left_out_does_not_matter(world: World, data: st.DataObject) -> None:
    """Under a cutoff just above the best member, or some other one, this member stays; dominance leaves one as good."""
    members, region = drawn(world, data)
    least = members.least(region)
    assume(math.isfinite(least))
    assert members.least(undominated(region)) == pytest.approx(least, rel=SAME)
    cutoff = Incumbents(1, 0.0)
    cutoff.offer(Candidate(least * data.draw(st.sampled_from([1 + 1e-6, 1.02, 1.5])), BEATEN))
    memory = FactCache()
    smaller = AboveCutoff(memory).reduce(region, NOTHING, cutoff) or region
    assert members.least(smaller) == pytest.approx(least, rel=SAME)
    # with the blocks that are left, too
    leaf = Enumeration(memory, Options(Request()))
    [candidate] = leaf.solve(smaller, NOTHING, cutoff, Clock()).candidates
    assert candidate.value == pytest.approx(least, rel=SAME)


@share(1)
@given(covered(most=4), st.data())
def test_children_cover_a_region_and_none_has_a_member_below_its_bound(world: World, data: st.DataObject) -> None:
    members, region = drawn(world, data)
    assume(region.vectors > 1)
    memory = FactCache()
    if memory.of(region).arcs_k is None:
        assert math.isinf(members.least(region))
        return
    best = Incumbents(1, 0.0)
    if math.isfinite(least := members.least(region)) and data.draw(st.booleans()):
        best.offer(Candidate(least * 1.1, BEATEN))
    children = Probing(memory).children(region, Bound(0.0), best)
    assert children is not None
    every = sorted((plan.label, vector) for plan, vector, _ in members.of(region))
    parts = [(plan.label, vector) for child, _ in children for plan, vector, _ in members.of(child)]
    assert sorted(parts) == every
    assert all(below(low, members.least(child)) for child, low in children)


@share(1)
@given(covered(most=4), st.data())
def test_a_leaf_has_the_best_member(world: World, data: st.DataObject) -> None:
    """Under a limit on DRAM that some vectors of options keep, and of those some only with other partitions."""
    members, region = drawn(world, data)
    memory = FactCache()
    least = members.least(region)
    if memory.of(region).arcs_k is None:
        assert math.isinf(least)
        return
    answer = Enumeration(memory, Options(Request())).solve(region, NOTHING, Incumbents(1, 0.0), Clock())
    assert bool(answer.candidates) == math.isfinite(least)
    assert below(answer.others, least)
    for candidate in answer.candidates:
        assert candidate.value == pytest.approx(least, rel=SAME)


# -- what these tests would miss -----------------------------------------------------------------------------------


class Raised(Relaxation[Region, Any]):
    """A relaxation that is wrong by one percent."""

    def __init__(self, of: Relaxation[Region, Any]) -> None:
        self.name, self._of = of.name, of

    def applies(self, region: Region) -> bool:
        return self._of.applies(region)

    def answers(self, regions: Sequence[Region], cutoff: float, clock: Clock) -> Sequence[Any]:
        return self._of.answers(regions, cutoff, clock)

    def bound(self, region: Region, answer: Any) -> Bound:
        return Bound(self._of.bound(region, answer).value * 1.01)


def lone_kernel(shards: int = 1) -> Members:
    """One product, on one chip or shared out somehow, which computes all the time: every bound is exact."""
    graph = Graph(name="g", batch=4, kernels=(Kernel(name="a", op="gemm", m=4, k=4, n=4),))
    chosen = resolve(df.Assumptions(), "dataflow", 0.9)
    request = Request(pp=1, tp=shards, two_batch_overlap=False)
    links = rings(shards, rate=1e15) if shards > 1 else ()
    system = small_system(*links, tiles=2, peak=300.0, bandwidth=1e9, capacity=1e9)
    return Members(World(graph, system, df.Plan(), chosen), request)


@pytest.mark.parametrize(("kind", "shards"), BROKEN)
def test_a_relaxation_that_is_wrong_by_a_percent_is_caught(kind: type[Relaxation[Any, Any]], shards: int) -> None:
    members = lone_kernel(shards=shards)
    region = members.space.roots[0]
    relaxations = list(problem(members).relaxations)
    [number] = [place for place, each in enumerate(relaxations) if isinstance(each, kind)]
    least = members.least(region)
    parts = region, Unlisted(members.space)
    for part in parts:
        check_bounds(relaxations, part, least)
    relaxations[number] = Raised(relaxations[number])
    [part] = [one for one in parts if relaxations[number].applies(one)]
    with pytest.raises(AssertionError, match=relaxations[number].name):
        check_bounds(relaxations, part, least)


def test_the_bound_of_open_stages_is_met_and_one_percent_more_is_too_much() -> None:
    """Two equal products in two stages: each stage has its half, with nothing to send that takes any time."""
    alone = lone_kernel(shards=2)
    kernels = tuple(Kernel(name=name, op="gemm", m=4, k=4, n=4) for name in "ab")
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=(Tensor(src="a", dst="b"),))
    world = World(graph, alone.world.system, alone.world.plan, alone.world.assumptions)
    with patch("dfopt.regions.cuts._MOST_CUTS", 1):  # else all stages are listed
        [region] = Members(world, Request(pp=2, tp=1, two_batch_overlap=False)).space.roots
        assert isinstance(region, Unsharded)
        [part] = region.space.of_plan(region.plans)
        found = df.solve(graph, world.system, assumptions=world.assumptions, pp=2, tp=1)
    pairs: list[tuple[Relaxation[Branch, Any], Branch]] = [(LeastUntiledOfStages(), region), (BlocksOfStages(), part)]
    for relaxation, here in pairs:
        assert relaxation.applies(here)
        [answer] = relaxation.answers([here], math.inf, Clock())
        assert relaxation.bound(here, answer).value == pytest.approx(found.value, rel=1e-6)
    [few] = relaxation.answers([here], found.value / 2, Clock())  # which another plan with these stages asked for
    assert below(relaxation.bound(here, few).value, found.value) and relaxation.bound(here, few).more
    every = relaxation.bound(here, relaxation.refine(here, few, math.inf, Clock()))
    assert every.value == pytest.approx(found.value, rel=1e-6) and not every.more


def test_all_relaxations_are_broken_in_turn() -> None:
    """A new one goes into ``BROKEN``, or behind a test of its own into ``ELSEWHERE``."""
    kinds = [type(each) for each in problem(lone_kernel()).relaxations]
    assert {kind for kind, _ in BROKEN} | ELSEWHERE == set(kinds)
