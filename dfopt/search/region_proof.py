"""What is claimed of plans shown once more by a search over regions: it goes no further than the claims."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dfopt.bnb import Bound, Candidate, Clock, LeafAnswer, LeafSolver, Outcome, Parameters, Problem, View
from dfopt.documents.plan import Plan
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.problem import ROUNDED, problem_in
from dfopt.regions.region import Part, Region, listed
from dfopt.search.options import Options
from dfopt.search.unit_state import Unit
from dfopt.search.workload_search import WorkloadSearch, is_late
from dfopt.setting.instance import Setting

__all__ = ["RegionProof"]

Claim = Callable[[Plan, int], float]
"""The value that no mapping of a plan and number of tiles is said to be below; infinite where none is said to fit."""


class Claimed(LeafSolver[Part, JudgedMapping]):
    """Closes regions whose bound shows what is claimed of their plans.

    Parameters
    ----------
    claim : callable
        The claims.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def accepts(self, region: Part, bound: Bound) -> bool:
        """Whether nothing more is claimed of any plan that is left."""
        return isinstance(region, Region) and bound.value >= max(claims_of(region, self._claim))

    def solve(self, region: Part, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """No solutions, and the bound."""
        return LeafAnswer([], bound.value)


def claims_of(region: Region, claim: Claim) -> list[float]:
    """What is claimed of each plan of a region."""
    return [claim(region.of.plans[i], region.of.tiles) for i in region.plans]


class RegionProof:
    """Shows what is claimed of plans, and looks for mappings only to refute "none fits".

    Parameters
    ----------
    setting, options : Setting, Options
        The problem.
    legal : list of Plan
        The plans that are searched.
    claims : dict
        Value that no mapping of a plan and tile count is said to beat, infinite where none is said to fit.
    value : float
        That of the answer: what is to be shown of plans of which nothing is claimed.
    kept : dict
        Values of the mappings that are the best, by what makes them different.
    """

    def __init__(
        self,
        setting: Setting,
        options: Options,
        legal: list[Plan],
        claims: Mapping[Unit, float],
        value: float,
        kept: Mapping[Hashable, float],
    ) -> None:
        self.search = WorkloadSearch([setting], options)
        [self.graph] = self.search.graphs
        self.graph.legal = legal
        self.claims, self.value = claims, value
        pairs = sorted(kept.items(), key=lambda pair: pair[1])
        self.kept = [Candidate(value, JudgedMapping(different, None)) for different, value in pairs]

    def claim(self, plan: Plan, tiles: int) -> float:
        """What is claimed of a plan and number of tiles."""
        known = (self.claims.get(unit) for unit in ((plan, tiles), (plan, None)))
        return max((value for value in known if value is not None), default=self.value)

    def prove(self) -> None:
        """Write a record of each plan, with what is shown of it."""
        for root in listed(self.graph.space.roots):
            self.graph.give_up(root.of, root.plans, np.full(len(root.of.plans), np.inf), late=False)
        self._below_claims()
        while self._refuted():  # each time without what has a mapping
            pass
        self.graph.write_records(apart=True)

    def _below_claims(self) -> None:
        """Look for mappings below what is claimed, where one may fit."""
        roots = self._roots(lambda claim: bool(np.isfinite(claim)))
        most = max((claim for root in roots for claim in claims_of(root, self.claim)), default=0.0)
        problem = self._problem
        leaves = [Claimed(self.claim), *problem.leaves]
        self._show(replace(problem, roots=roots, heuristics=[], leaves=leaves), most, self.kept)

    def _refuted(self) -> bool:
        """Look for mappings of plans that are said to have none; whether there is one, and something was not shown."""
        roots = self._roots(np.isinf)
        found = self._show(replace(self._problem, roots=roots), np.inf)
        return bool(roots) and found.solution is not None and not is_late(found)

    @property
    def _problem(self) -> Problem[Part, JudgedMapping]:
        return problem_in([self.graph.space], self.search.state.options)

    def _roots(self, which: Callable[[float], bool]) -> list[Region]:
        """Plans whose claims are some, and of which no mapping is known, class by class."""
        parts = []
        for root in listed(self.graph.space.roots):
            pairs = zip(root.plans, claims_of(root, self.claim), strict=True)
            plans = tuple(i for i, claim in pairs if which(claim) and not self._has_mapping(root, i))
            parts += [replace(root, plans=plans)] if plans else []
        return parts

    def _has_mapping(self, region: Region, plan: int) -> bool:
        unit = self.graph.unit_of(region.of.plans[plan], region.of.tiles)
        return bool(np.isfinite(self.graph.units[unit].value))

    def _show(
        self, problem: Problem[Part, JudgedMapping], limit: float, kept: Sequence[Candidate] = ()
    ) -> Outcome[Part, JudgedMapping]:
        """Run a branch and bound, and leave what it shows of its plans."""
        parameters = Parameters(gap=ROUNDED, top=max(len(kept), 1), limit=limit)
        outcome = self.search.outcome(problem, parameters, kept)
        self.search.leave(outcome, parameters)
        return outcome
