"""A search over classes of plans as regions of one branch and bound, where these cover the question.

It is not what answers yet: :data:`dfopt.search.options.SWITCH` turns it on, so that both engines can be compared.
Questions that regions do not cover (:mod:`dfopt.regions.scope`) go to the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Self

import numpy as np

from dfopt.arrays import Floats
from dfopt.bnb import Candidate, Incumbents, Leaf, Outcome, Parameters, Problem, Progress, branch_and_bound
from dfopt.documents.plan import Plan
from dfopt.documents.uncollected import uncollected
from dfopt.errors import Infeasible
from dfopt.fusion.downsets import Lattice
from dfopt.interrupts import LIMIT
from dfopt.regions.classes import PlanClass
from dfopt.regions.judged import JudgedMapping as Mapped
from dfopt.regions.judged import cutoffs_of
from dfopt.regions.lattices import down_sets_of, kinds_of
from dfopt.regions.problem import ClassesFirst, parameters_of, problem_in
from dfopt.regions.region import Classes, Part, Region, Unlisted, Unsharded
from dfopt.regions.scope import NotCovered
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.regions.space import Space
from dfopt.regions.variants import with_variants
from dfopt.search.branching import Search
from dfopt.search.jointly import JointSearch
from dfopt.search.node import Found, Unit
from dfopt.search.per_level import per_level
from dfopt.search.relaxed import RelaxedPlans, covers
from dfopt.setting.instance import Setting

__all__ = ["RegionSearch", "Run", "is_late", "lows"]


class RegionSearch(JointSearch):
    """Plans of one graph; those of all graphs of a workload are one problem."""

    chosen: dict[Unit, ShardedFirst]  # how the sharding was chosen, where it comes first
    shown: float | None = None  # what no mapping of any graph is below; None where the other engine searches

    @classmethod
    def run_all(cls, searches: Sequence[Self]) -> None:
        """Go over the legal plans of several searches together."""
        for one in searches:
            one.units, one.chosen, one.levelled, one.shown = {}, {}, frozenset(), one.least
        try:
            Run(searches).run()
        except NotCovered:
            for one in searches:
                one.shown, one.records = None, []
                for name in ("space", "legal"):
                    vars(one).pop(name, None)
            if searches[0].jointly:
                super().run_all(searches)
            else:
                for one in searches:
                    Search.run(one, one.legal)

    @property
    def jointly(self) -> bool:
        """Whether schemes and fusions are chosen together."""
        return self.setting.assumptions.sharding_objective == "joint"

    @property
    def fitting(self) -> list[Plan]:
        """Plans that may fit the memories, bounded; of others there are records."""
        with uncollected():
            self._bound_all([plan for plan in self.legal if plan not in self.bounds], self.check_time)
            listed = list(chain(*map(self._choices, self.legal)))
            self._bound_all([plan for plan in listed if plan not in self.bounds], self.check_time)
            return [plan for plan in listed if self._fits(plan)]

    def _choices(self, plan: Plan) -> Iterator[Plan]:
        """A plan with all its placements and ways to hide collectives, if any may be better than what is known.

        No figure is lower at its least than where all lies in the fastest memory and collectives hide in rings, so a
        plan that is excluded so stands for all.
        """
        if self.bounds[plan] >= self.incumbent:
            return iter([plan])
        return with_variants(self.setting, self.options.request, plan)

    @cached_property
    def space(self) -> Space:
        """Its mappings under plans that may fit the memories."""
        return Space(self.setting, self.options.request, lambda: self.fitting, self.plan_bounds)

    def lattices(self) -> dict[int, Lattice | None]:
        """The down-sets of every kind of layer."""
        if self.shown is None:
            return super().lattices() if self.jointly else Search.lattices(self)
        if not self.legal:
            return {}
        first = self.setting.under(self.legal[0])  # whether it fits or not
        return {kind: down_sets_of(first, kind) for kind in kinds_of(first)}

    def give_up(self, of: PlanClass, plan_i: Iterable[int], low_i: Floats, *, late: bool) -> None:
        """Leave some plans of a class, each with a bound: those of all plans, shape (plans of the class,)."""
        for i in plan_i:
            unit = self.unit_of(of.plans[i], of.tiles)
            self._give_up(unit, float(low_i[i]), late=late)
            if of.sharded_first is not None:
                self.chosen[unit] = of.sharded_first

    def write_records(self) -> None:
        """The records of all plans that may fit the memories; of each with the sharding that came first."""
        opened = {plan for plan, _ in self.units}
        for plan in (each for each in self.space.plans if each not in opened):  # its options cannot be together
            self.units[plan, None] = Found()
        with uncollected():
            for unit, found in self.units.items():
                self._told(unit, found)
                if unit in self.chosen:
                    of_all = self.bounds[unit[0]], self._to_beat(unit)
                    self.records[-1] = per_level(self.records[-1], *of_all, self.chosen[unit])

    def proven(self) -> float:
        """What no mapping is below, as far as it is shown."""
        if not self.jointly:
            return Search.proven(self)
        return super().proven() if self.shown is None else max(self.least, self.shown)

    @cached_property
    def relaxed(self) -> RelaxedPlans:
        """Plans with every figure at its least, which say why nothing fits."""
        return RelaxedPlans(self.setting, self.options)

    def _told(self, unit: Unit, found: Found) -> None:
        """The record of a plan and tile count; where nothing fits, why, if that holds whatever the schemes are."""
        told = self.jointly and self.shown is not None and covers(self.setting.graph, unit[0])
        if told and np.isinf(min(found.value, found.low)):
            try:
                self.relaxed.of_plan(unit[0])
            except Infeasible as error:
                found.note = str(error.report)
        super()._told(unit, found)

    def counts(self) -> tuple[int, int]:
        """How many of its plans may still be better than what is known, and how many are listed."""
        if self.shown is None:
            return super().counts()
        return sum(low < self.incumbent for low in self.bounds.values()) - len(self.records), len(self.bounds)


class Run:
    """One branch and bound over the plans of some searches, and what it leaves on record of each.

    Parameters
    ----------
    searches : sequence of RegionSearch
        Of one workload.
    """

    def __init__(self, searches: Sequence[RegionSearch]) -> None:
        self.searches = searches
        self.of_graph = {id(one.setting.model): one for one in searches}
        self.of_space: dict[Classes, RegionSearch] = {one.space: one for one in searches}
        self._asked = searches[0].options.request
        self._parameters = parameters_of(self._asked)

    def run(self) -> None:
        """Search, and write the records."""
        first = self.searches[0]
        problem = problem_in([one.space for one in self.searches], first.options)
        kept = [Candidate(one.value, Mapped.of(one, self._asked)) for one in first.found]
        if self._asked.formulation == "assignment":  # programs find, and show, what is there by themselves
            kept = []
        self._records(self.outcome(problem, self._parameters, kept))

    def outcome(
        self, problem: Problem[Part, Mapped], parameters: Parameters, kept: Sequence[Candidate] = ()
    ) -> Outcome[Part, Mapped]:
        """Run a branch and bound; mappings that it finds count for their searches."""
        found = branch_and_bound(
            problem,
            parameters,
            clock=self.searches[0].options.clock,
            selection=ClassesFirst(len(problem.relaxations)),
            kept=kept,
            progress=self._progress,
        )
        if found.ending == "interrupted":
            for one in self.searches:
                one.stop()
        of_leaves = [one for leaf in found.leaves for one in leaf.solutions] if parameters.top > 1 else []
        for candidate in [*found.kept, *of_leaves]:  # a plan may have mappings like those that are kept
            self._keep(candidate.solution)
        return found

    def _of(self, setting: Setting) -> RegionSearch:
        return self.of_graph[id(setting.model)]

    def _progress(self, state: Progress[Mapped]) -> None:
        for one in self.searches:
            one.shown = min(state.bound, state.best)
        self._keep(state.solution)
        self.searches[0]._out_of_time(True)  # reports, where that is due
        if any(one.stopped for one in self.searches):  # by an interrupt of a solve, which ended with a mapping
            raise KeyboardInterrupt

    def _keep(self, mapped: Mapped | None) -> None:
        """Count a mapping among the best of its search."""
        if mapped is None or mapped.solved is None:
            return
        solved = mapped.solved
        one = self.of_graph[id(solved.graph)]
        unit = one.unit_of(solved.plan, solved.mapping.tile_count)
        if one.several or solved.value < one.units.setdefault(unit, Found()).value:
            one._keep(unit, solved)

    def _records(self, outcome: Outcome[Part, Mapped]) -> None:
        """What is shown of every plan."""
        late = is_late(outcome)
        unlisted: dict[RegionSearch, float] = {}
        for leaf in outcome.leaves:
            if isinstance(leaf.region, Unlisted) and leaf.bound < np.inf:  # else it was listed, and has no plan
                one = self.of_space[leaf.region.space]
                unlisted[one] = max(leaf.bound, one.least)  # there may have been no time to bound it
            if isinstance(leaf.region, Unsharded):
                plans = leaf.region.plans
                for plan, low in zip(plans.plans, np.maximum(leaf.bound, plans.seconds()).tolist(), strict=True):
                    self._of(plans.work.setting)._give_up((plan, None), low, late=late)
        low_of = lows(outcome, self._parameters, several=self.searches[0].several)
        for of in dict.fromkeys(part.of for part in outcome.log.regions if isinstance(part, Region)):
            self._of(of.setting).give_up(of, range(len(of.plans)), low_of(of), late=late)
        for one in self.searches:
            one.stopped = one.stopped or (LIMIT if late else "")
            if one in unlisted:
                one._give_up_graph(unlisted[one], late)
            else:
                one.write_records()


def is_late(outcome: Outcome[Part, Mapped]) -> bool:
    """Whether a search ended before it was done."""
    return outcome.ending in ("time_limit", "interrupted")


def lows(outcome: Outcome[Part, Mapped], parameters: Parameters, *, several: bool) -> Callable[[PlanClass], Floats]:
    """What no mapping of each plan of a class is below: the least bound of the leaves that hold the plan.

    Plans that no leaf holds were left out by reductions: they hold too much, or are not below the cutoff. ``several``:
    the bound is one of all mappings but those that are kept.
    """
    kept = Incumbents(parameters.top, parameters.gap, outcome.kept, parameters.limit)
    low_of = dict[PlanClass, Floats]()
    for leaf in outcome.leaves:
        if isinstance(leaf.region, Region):
            of, plan_i = leaf.region.of, leaf.region.plan_i
            low_i = low_of.setdefault(of, np.full(len(of.plans), np.nan))
            shown_i = np.maximum(_shown(of, leaf, kept, several), of.least_i)
            low_i[plan_i] = np.fmin(low_i[plan_i], shown_i[plan_i])

    def low_of_plans(of: PlanClass) -> Floats:
        dropped_i = cutoffs_of(kept, of)
        low_i = low_of.get(of, dropped_i)
        return np.where(np.isnan(low_i), dropped_i, low_i)

    return low_of_plans


def _shown(of: PlanClass, leaf: Leaf[Part], kept: Incumbents, several: bool) -> Floats:
    """What no mapping of a leaf is below, by plan of its class, but for those that are kept among several of one.

    Among several a leaf solver looks for mappings of a plan that is kept only below its value, and others may have
    taken its place since.
    """
    if leaf.value is None:
        return np.full(len(of.plans), leaf.bound)
    low_i = np.minimum(leaf.others, cutoffs_of(kept, of) if kept.top > 1 else np.full(len(of.plans), np.inf))
    for candidate in () if several else leaf.solutions:
        low_i[of.places[candidate.solution.different]] = min(candidate.value, leaf.others)
    return low_i
