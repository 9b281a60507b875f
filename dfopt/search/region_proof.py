"""What is claimed of plans shown once more by a search over regions: it goes no further than the claims."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from dfopt.bnb import (
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    LeafAnswer,
    LeafSolver,
    Outcome,
    OutOfTime,
    Problem,
    SearchParameters,
    View,
)
from dfopt.documents import mapping as documents
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import PlanRecord
from dfopt.errors import Infeasible, PlanError, ScoreMismatch
from dfopt.fusion.partitioning import blocks_of, legal
from dfopt.regions.judged import JudgedMapping
from dfopt.regions.numbering import Numbering
from dfopt.regions.problem import ROUNDED, problem_in
from dfopt.regions.region import Branch, Region, Unclassed, Unlisted, Unsharded
from dfopt.regions.space import MappingSpace
from dfopt.search.graph_search import GraphSearch
from dfopt.search.kept import PROOF
from dfopt.search.state import SearchState
from dfopt.search.status_record import with_note
from dfopt.search.unit_state import TiledPlan, UnitState
from dfopt.search.workload_search import WorkloadSearch, is_late
from dfopt.setting.instance import Setting
from dfopt.solving.priced import priced_mapping
from dfopt.solving.solved import Solved, scored


@dataclass(frozen=True)
class Claims:
    """Claimed lower bounds of the plans of a graph.

    Attributes
    ----------
    lows : dict
        By plan and number of tiles (None: any) the claimed lower bound on the step, s; infinite if no mappings except
        the kept ones are claimed to exist. If the sharding is chosen first, the claim is for mappings with the best
        sharding.
    empty : set
        Plans and numbers of tiles that are claimed to have no mapping.
    otherwise : float
        Seconds that no mapping is below of plans of which nothing is said.
    jointly : bool
        Whether schemes and fusions are chosen together.
    """

    lows: Mapping[Plan, Mapping[int | None, float]]
    empty: Collection[TiledPlan]
    otherwise: float
    jointly: bool

    def every(self, plan: Plan) -> list[float]:
        """All lower bounds, s, claimed of a plan."""
        return [*self.lows.get(plan, {None: self.otherwise}).values()]

    def of(self, plan: Plan, tiles: int) -> float:
        """Lower bound, s, claimed of a plan with a number of tiles."""
        lows = self.lows.get(plan, {})
        return max([lows[number] for number in (tiles, None) if number in lows] or self.every(plan))

    def is_empty(self, plan: Plan, tiles: int | None) -> bool:
        """Whether a plan with a number of tiles is claimed to have no mapping."""
        return (plan, tiles) in self.empty or (plan, None) in self.empty


class Claimed(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver that closes a region once its bound reaches the claims of its plans.

    Parameters
    ----------
    claims : Claims
        The claims.
    """

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether the bound of the region reaches every claim of its plans."""
        if isinstance(region, Unlisted):
            return False
        if isinstance(region, Unclassed | Unsharded):
            pairs = ((max(bound.value, low), self._claims.every(plan)) for plan, low in region.lows)
            return all(low >= max(claimed) for low, claimed in pairs)
        return bound.value >= max(self._claims.of(region.of.plans[i], region.of.tiles) for i in region.plans)

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """No solutions, with the bound of the region."""
        return LeafAnswer([], bound.value)


class RestrictedBranching(BranchingRule[Branch]):
    """Wraps a branching rule and keeps only some plans, with some numbers of tiles.

    Parameters
    ----------
    rule : BranchingRule
        The rule.
    wanted : callable
        Whether a plan is searched in a number of tiles.
    """

    def __init__(self, rule: BranchingRule[Branch], wanted: Callable[[Plan, int], bool]) -> None:
        self._rule, self._wanted = rule, wanted

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """The children of the wrapped rule that have wanted plans."""
        parts = self._rule.children(region, bound, view)
        if parts is None or isinstance(region, Region):
            return parts
        left = [(some, low) for part, low in parts if (some := self._some(part)) is not None]
        return left or [(region, np.inf)]

    def _some(self, part: Branch) -> Branch | None:
        if isinstance(part, Unlisted | Unclassed | Unsharded):
            return part
        plans = tuple(i for i in part.plans if self._wanted(part.of.plans[i], part.of.tiles))
        return part if plans == part.plans else replace(part, plans=plans) if plans else None


@dataclass(frozen=True)
class PlanProof:
    """What could be proven of a plan, or of all its variants together.

    Attributes
    ----------
    records : sequence of PlanRecord
        Records of every number of tiles, if that is a choice.
    for_all : bool
        Whether bounds under the sharding hold for every mapping, as there is only one sharding, or as it is chosen with
        the fusion.
    """

    records: Sequence[PlanRecord]
    for_all: bool

    @classmethod
    def together(cls, each: Sequence[PlanProof]) -> PlanProof:
        """The weakest of several proofs: the least bounds, or that nothing fits if it fits under none."""
        return cls([record for shown in each for record in shown.records], all(shown.for_all for shown in each))

    @property
    def every(self) -> float | None:
        """Proven lower bound, s, of all mappings; None if no mapping fits."""
        return min((each.bound for each in self.records if each.bound is not None), default=None)

    @property
    def level(self) -> float | None:
        """Proven lower bound, s, of all mappings with the plan's sharding; None if no mapping fits."""
        return min((each.level_bound for each in self.records if each.level_bound is not None), default=None)

    def of(self, tiles: int | None) -> list[PlanRecord]:
        """Records for one number of tiles, or for any if ``tiles`` is None."""
        return [each for each in self.records if tiles is None or each.tile_count in (None, tiles)]

    def level_of(self, tiles: int | None) -> float:
        """Proven lower bound, s, with the plan's sharding and a number of tiles; infinite if no mapping fits."""
        return min(_level(each) for each in self.of(tiles) or self.records)

    @property
    def why(self) -> str:
        """A sentence on why no more could be proven, or why nothing fits."""
        least = min(self.records, key=_level)
        return least.note or "a faster mapping may exist" * (least.level_bound is not None)


def _level(record: PlanRecord) -> float:
    return np.inf if record.level_bound is None else record.level_bound


class ClaimedPlans(GraphSearch):
    """Plans with claims, each variant on its own, and what is proven of them.

    Parameters
    ----------
    setting, state, legal : Setting, SearchState, sequence of Plan
        See :class:`GraphSearch`.
    claims_of : callable
        Claims about the plans of a setting, each with all of its variants.
    kept : dict
        Values of the best mappings, by the key that distinguishes them.

    Attributes
    ----------
    proven : frozenset of Plan
        Plans and variants whose claims are proven already, by code independent of the search.
    """

    def __init__(
        self,
        setting: Setting,
        state: SearchState,
        legal: Sequence[Plan],
        claims_of: Callable[[Setting, Mapping[Plan, Sequence[Plan]]], Claims],
        kept: Mapping[Hashable, float],
    ) -> None:
        super().__init__(setting, state, legal)
        self.proven = frozenset[Plan]()
        self.ways = {plan: self.variants.of(plan) for plan in legal}
        self.claims, self.kept = claims_of(setting, self.ways), kept

    def _choices(self, plan: Plan, cutoff: float) -> list[Plan]:
        """A plan with its variants, but where its own bound shows what is claimed of each: then that is shown."""
        ways = self.ways[plan]
        most = max(claimed for way in ways for claimed in self.claims.every(way))
        if len(ways) > 1 and self.bounds[plan] >= most:
            self.give_up_unit((plan, None), self.bounds[plan], late=False)
            return []
        return ways

    def keep(self, solved: Solved) -> None:
        """Record a mapping that refutes a claim; if several mappings are kept, only a claim that none fits."""
        unit, least = self.unit_of(solved.plan, solved.mapping.tile_count), np.inf
        if self.state.request.several and not self.claims.is_empty(*unit):
            least = self.kept.get(solved.different(self.state.request.distinct_in), np.inf)
        if solved.value < least * (1 - PROOF):
            state = self.units.setdefault(unit, UnitState())
            state.value = min(state.value, solved.value)

    def refute(self, mapping: documents.Mapping) -> None:
        """Record a mapping from other code as a counterexample if it is in the space and the judge accepts it."""
        with suppress(PlanError, Infeasible, ScoreMismatch, OutOfTime):
            ready = priced_mapping(self.setting, mapping, self.state.options)
            partition_k = ready.partitions(mapping)
            for stage in ready.stages.values():
                blocks = blocks_of(partition_k[stage.members])
                member = np.array([np.isin(np.arange(stage.tables.kernels), block) for block in blocks])
                numbers = Numbering(stage.limits, stage.tables.sharded.forward_k).kept_by(member)
                if numbers is None or not legal(stage.tables, stage.limits, numbers @ member):
                    return
                partition_k[stage.members] = numbers @ member
            solved = scored(ready, partition_k, None, 0.0, (), 1)
            if solved.value < self.claims.of(solved.plan, solved.mapping.tile_count):
                self._bound([solved.plan])  # it may be a variant that was excluded with its plan
                self.keep(solved)

    def is_open(self, plan: Plan, tiles: int) -> bool:
        """Whether no mapping of a plan with this number of tiles is known yet."""
        return bool(np.isinf(self.units.get(self.unit_of(plan, tiles), UnitState()).value))

    @property
    def unit_count(self) -> int:
        """Number of units (plan and number of tiles) with a known mapping."""
        return sum(bool(np.isfinite(unit.value)) for unit in self.units.values())

    def shown(self) -> dict[Plan, PlanProof]:
        """Proof of every plan and variant; a variant excluded together with its plan has no entry."""
        self.write_records(by_variant=True)
        of_plan, part = defaultdict[Plan, list[PlanRecord]](list), set[Plan]()
        for record in self.records:
            first = self.units[record.plan, record.tile_count].sharded_first
            for_all = self.claims.jointly if first is None else first.alone and first.proven
            if not for_all and record.status != "infeasible":
                part.add(record.plan)
            of_plan[record.plan].append(with_note(record, self.reason(record)))
        return {plan: PlanProof(records, plan not in part) for plan, records in of_plan.items()}


class RegionProof(WorkloadSearch):
    """Proves the claims of the plans of one graph; looks for mappings only to refute that nothing fits.

    Parameters
    ----------
    plans : ClaimedPlans
        The plans, and the claims about them.

    Attributes
    ----------
    regions : int
        Number of regions whose bounds only the search's own code could show.
    """

    def __init__(self, plans: ClaimedPlans) -> None:
        super().__init__([plans])
        self.plans, self._claims, self.regions = plans, plans.claims, 0
        pairs = sorted(plans.kept.items(), key=lambda pair: pair[1])
        self._kept = [Candidate(value, JudgedMapping(different, None)) for different, value in pairs]

    def shown(self) -> dict[Plan, PlanProof]:
        """Search and return the proof of every plan and variant; one excluded with its plan has no entry.

        Raises
        ------
        KeyboardInterrupt
            If a search was interrupted.
        """
        try:
            every = self.plans.space.least
        except OutOfTime:
            return {way: self._late(way) for ways in self.plans.ways.values() for way in ways}
        left = [plan for plan in every if plan not in self.plans.proven]
        self._show_bounds([plan for plan in left if np.isfinite(self._claims.every(plan)).any()])
        self._look_for_mappings([plan for plan in left if np.isinf(self._claims.every(plan)).any()])
        self._leave_proven(every)
        return self.plans.shown()

    def _late(self, plan: Plan) -> PlanProof:
        """What is shown of a plan that there was no time to look at: its claims, if they are already."""
        proven = plan in self.plans.proven
        lows = self._claims.lows.get(plan, {None: self._claims.otherwise}) if proven else {None: self.plans.least}
        records = [
            PlanRecord(plan=plan, tile_count=tiles, status="limit", bound=low, level_bound=low, note="no time left")
            for tiles, low in lows.items()
            if np.isfinite(low)
        ]
        return PlanProof(records or [PlanRecord(plan=plan, status="infeasible", bound=None)], for_all=proven)

    def _leave_proven(self, plans: Collection[Plan]) -> None:
        """Leave plans whose claims are shown already with these; of those that none fits nothing has to be said."""
        for plan in self.plans.proven.intersection(plans):
            for tiles, low in self._claims.lows.get(plan, {None: self._claims.otherwise}).items():
                if np.isfinite(low):
                    self.plans.give_up_unit((plan, tiles), low, late=False)

    @property
    def _more_asked(self) -> bool:
        """Whether more mappings were asked for than are known."""
        return self.state.request.several and len(self._kept) < self.state.request.top

    def _show_bounds(self, plans: Sequence[Plan]) -> None:
        """Look for mappings below what is claimed of plans, where one may fit.

        One that is found, as under plans that were left open, excludes none of the others: then all is shown again.
        """
        if not plans:
            return
        claimed = [value for plan in plans for value in self._claims.every(plan) if np.isfinite(value)]
        problem = self._problem(plans, np.isfinite)
        problem = replace(problem, heuristics=[], leaves=[Claimed(self._claims), *problem.leaves])
        # where more were asked for, the last that is known is nothing that others have to beat
        top = max(len(self._kept) + self._more_asked, 1)
        parameters = SearchParameters(gap=ROUNDED, top=top, limit=max(claimed, default=0.0))
        outcome = self.outcome(problem, parameters, self._kept)
        if not is_late(outcome) and any(each not in self._kept for each in outcome.kept):
            parameters = replace(parameters, top=sys.maxsize)
            outcome = self.outcome(problem, parameters, self._kept)
        self._give_up(plans, outcome, parameters)

    def _look_for_mappings(self, plans: Sequence[Plan]) -> None:
        """Look for mappings of plans that are said to have none, or none but the best: again without what has one."""
        if not plans:
            return
        kept = self._kept if self._more_asked else []
        parameters = SearchParameters(gap=ROUNDED, top=len(kept) + 1)
        while True:
            before = self.plans.unit_count
            outcome = self.outcome(self._problem(plans, np.isinf), parameters, kept)
            if self.plans.unit_count == before or is_late(outcome):
                self._give_up(plans, outcome, parameters)
                return

    def _problem(self, plans: Sequence[Plan], which: Callable[[float], bool]) -> Problem[Branch, JudgedMapping]:
        """The mappings of plans, in numbers of tiles of which something is claimed and no mapping is known."""

        def wanted(plan: Plan, tiles: int) -> bool:
            return bool(which(self._claims.of(plan, tiles))) and self.plans.is_open(plan, tiles)

        lows = {plan: self.plans.bounds[plan] for plan in plans}
        space = MappingSpace(self.plans.setting, self.state.request, self.plans.plan_bounds, lambda: lows)
        problem = problem_in([space], self.state.options)
        return replace(problem, branching=[RestrictedBranching(rule, wanted) for rule in problem.branching])

    def _give_up(
        self, plans: Sequence[Plan], outcome: Outcome[Branch, JudgedMapping], parameters: SearchParameters
    ) -> None:
        """Leave plans with what a search shows of them."""
        self.regions += len(outcome.leaves)
        if self.state.stopped:
            raise KeyboardInterrupt
        for low in self.leave(outcome, parameters).values():  # their classes were not listed
            for plan in plans:
                self.plans.give_up_unit((plan, None), max(self.plans.bounds[plan], low), late=is_late(outcome))
