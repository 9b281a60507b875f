"""A relaxation, a heuristic, a branching rule and a leaf of one's own: each a class, and one line of a list.

They are asked first, so that they do what they can; the answers are those without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from covered import covered, request_of, setting_of, space_of
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, share
from table_sums import sums_of

import dfopt as df
from dfopt.bnb import (
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    LeafAnswer,
    LeafSolver,
    Node,
    Problem,
    View,
    branch_and_bound,
)
from dfopt.documents.request import Request
from dfopt.errors import PlanError
from dfopt.regions.facts import FactCache
from dfopt.regions.judged import JudgedMapping, cutoffs_of, judged
from dfopt.regions.pricing import best_of
from dfopt.regions.problem import problem_in
from dfopt.regions.region import Branch, Region, listed
from dfopt.regions.relaxations import OfClass
from dfopt.setting.instance import Setting
from dfopt.solving.options import Options


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
