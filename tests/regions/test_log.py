"""What a log of a search shows by itself, and what entries of one's own, each one line of a list, leave as it is."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from unittest.mock import patch

import numpy as np
import pytest
from covered import covered, request_of, setting_of, space_of
from hypothesis import assume, given
from hypothesis import strategies as st
from members import Members
from replayed import replay
from strategies import World, share
from table_sums import sums_of

import dfopt as df
from dfopt.bnb import (
    Bound,
    BoundRaised,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Problem,
    SearchParameters,
    View,
    branch_and_bound,
)
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.regions.facts import FactCache
from dfopt.regions.judged import JudgedMapping, cutoffs_of, judged
from dfopt.regions.pricing import best_of
from dfopt.regions.problem import ROUNDED, ClassesFirst, problem_in, searched
from dfopt.regions.region import Branch, Region, Unclassed, Unlisted, listed
from dfopt.regions.relaxations import OfClass, PathBound
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options
from dfopt.terms.table import Domain

MANY = 400


def held(of: Unclassed, parts: Sequence[Branch]) -> Counter[tuple[Plan, int, Domain]]:
    """How often parts hold a plan in a number of tiles, with options, when all of their plans are in classes."""
    later = (of.space.in_classes(dict(part.lows)) for part in parts if isinstance(part, Unclassed))
    regions = listed([*chain.from_iterable(later), *(part for part in parts if not isinstance(part, Unclassed))])
    return Counter((root.of.plans[i], root.of.tiles, root.domain) for root in regions for i in root.plans)


def covers(region: Branch, parts: Sequence[Branch]) -> bool:
    """Whether each plan with each vector of options is in exactly one part."""
    if isinstance(region, Unlisted):
        return [*parts] == [region.space.unclassed or region]
    if isinstance(region, Unclassed):
        return held(region, parts) == held(region, [region])
    parts = listed(parts)
    every = sorted(itertools.product(region.plans, *region.domain))
    found = [one for part in parts for one in itertools.product(part.plans, *part.domain)]
    return sorted(found) == every and all(part.of is region.of for part in parts)


@share(1)
@given(covered(most=4), st.data())
def test_a_log_shows_the_bound_and_each_of_its_bounds_holds(world: World, data: st.DataObject) -> None:
    """No member of a region is below what the log says of it, unless it does not beat the answer."""
    members = Members(world, request_of(world, data.draw))
    try:
        roots = members.space.roots
    except PlanError:
        assume(False)
    assume(sum(len(root.plans) * root.vectors for root in roots) <= MANY)
    problem = problem_in([members.space], Options(members.space.request))
    order = ClassesFirst(len(problem.relaxations))
    with patch("dfopt.regions.branching._FIRST", data.draw(st.integers(1, 3))):
        found = branch_and_bound(problem, SearchParameters(gap=ROUNDED), selection=order)

    def shows(region: Branch, relaxation: str, value: float) -> bool:
        if isinstance(region, Unlisted | Unclassed):
            return value <= max(min(map(members.least, roots), default=math.inf), found.best) * (1 + 1e-9)
        return value <= max(members.least(region), found.best) * (1 + 1e-9)

    least = replay(found.log, problem.roots, covers, shows)
    assert math.isinf(found.best) if math.isinf(least) else least == pytest.approx(found.best, rel=1e-9)


def test_the_class_of_the_mapping_that_is_known_at_the_start_is_bounded_first() -> None:
    """Whichever it is: under its plan good mappings are near, and it has to be bounded anyway."""
    setting = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("h100-8"), df.Assumptions())
    space = space_of(setting, Request(top=6))
    options = Options(space.request)
    first = set[frozenset[Plan]]()
    for candidate in searched(problem_in([space], options), SearchParameters(top=6), Clock()).kept:
        log = searched(problem_in([space], options), SearchParameters(), Clock(), [candidate]).log
        of_paths = (
            event for event in log.events if isinstance(event, BoundRaised) and event.relaxation == PathBound.name
        )
        [region] = listed([log.regions[next(of_paths).node]])
        assert candidate.solution.solved.plan in region.of.plans
        first.add(frozenset(region.of.plans))
    assert len(first) > 1


# -- a relaxation, a heuristic, a branching rule and a leaf of one's own -----------------------


class ComputeAlone(OfClass):
    """All compute of a layer, as if nothing else took time."""

    name = "compute alone"

    def __init__(self, memory: FactCache) -> None:
        self._memory = memory

    def applies(self, region: Branch) -> bool:
        return isinstance(region, Region) and region.of.kinds == 1 and region.of.cuts is None

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        return [self._least(region) for region in listed(regions)]

    def _least(self, region: Region) -> float:
        table, facts = region.of.table, self._memory.of(region)
        whole = np.ones((1, len(region.domain)), dtype=bool)
        return float(facts.least_step(sums_of(table, facts.least_c[None], whole, "compute_s")[0]))


class FirstOptions(Heuristic[Branch, JudgedMapping]):
    """The first option that is left to every kernel, with the best partitions."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.proposed = 0

    def due(self, node: Node[Branch], after: str) -> bool:
        return isinstance(node.region, Region) and node.region.complete and after == ComputeAlone.name

    def propose(self, node: Node[Branch], view: View) -> Iterator[Candidate]:
        [region] = listed([node.region])
        of, first_vk = region.of, np.array([[left[0] for left in region.domain]])
        best = best_of(of, region.plan_i, region.arcs_k, first_vk, cutoffs_of(view, of)[region.plan_i])
        for one in best.kept:
            self.proposed += 1
            yield judged(of, one, self._options)


class FirstKernel(BranchingRule[Branch]):
    """The options of the first kernel that has several, without a look at what they cost."""

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        if not isinstance(region, Region) or region.vectors == 1:
            return None
        k = next(k for k, left in enumerate(region.domain) if len(left) > 1)
        domains = ((*region.domain[:k], (option,), *region.domain[k + 1 :]) for option in region.domain[k])
        return [(replace(region, domain=domain), bound.value) for domain in domains]


class OneVector(LeafSolver[Branch, JudgedMapping]):
    """One vector of options, with the best partitions under its best plan."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.solved = 0

    def accepts(self, region: Branch, bound: Bound) -> bool:
        return isinstance(region, Region) and region.vectors == 1 and region.complete

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        [region], self.solved = listed([region]), self.solved + 1
        of, cutoff_i = region.of, cutoffs_of(view, region.of)[region.plan_i]
        best = best_of(of, region.plan_i, region.arcs_k, of.table.vectors(region.domain), cutoff_i)
        return LeafAnswer([judged(of, one, self._options) for one in best.kept], min(best.others, view.cutoff))


def with_further(usual: Problem[Branch, JudgedMapping], options: Options) -> Problem[Branch, JudgedMapping]:
    """The same problem with one more entry in each list."""
    return replace(
        usual,
        relaxations=[ComputeAlone(FactCache()), *usual.relaxations],
        heuristics=[FirstOptions(options), *usual.heuristics],
        branching=[*usual.branching[:-2], FirstKernel(), *usual.branching[-2:]],
        leaves=[OneVector(options), *usual.leaves[1:]],
    )


@share(0.5)
@given(covered(most=4), st.data())
def test_entries_of_ones_own_leave_the_answer_as_it_is(world: World, data: st.DataObject) -> None:
    options = Options(request_of(world, data.draw))
    try:
        usual = problem_in([space_of(setting_of(world), options.request)], options)
        expected = branch_and_bound(usual)
    except PlanError:
        return
    found = branch_and_bound(with_further(usual, options))
    assert found.ending == expected.ending
    assert found.best == pytest.approx(expected.best, rel=1e-9)
    assert found.bound == pytest.approx(expected.bound, rel=1e-9)


def test_each_of_them_has_its_say() -> None:
    """Without most of the others, which leave little to decide."""
    setting = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("h100-8"), df.Assumptions())
    options = Options(Request(tp=4))
    problem = with_further(problem_in([space_of(setting, options.request)], options), options)
    problem = replace(problem, heuristics=problem.heuristics[:1], relaxations=problem.relaxations[:2])
    found = branch_and_bound(problem)
    first, vector = problem.heuristics[0], problem.leaves[0]
    assert isinstance(first, FirstOptions) and isinstance(vector, OneVector)
    assert found.ending == "optimal" and found.bounded[ComputeAlone.name] and first.proposed and vector.solved
