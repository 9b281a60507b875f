"""The plans of one graph that are searched, and what is known of each."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord
from dfopt.documents.request import Request
from dfopt.documents.space import Space
from dfopt.documents.uncollected import uncollected
from dfopt.errors import Infeasible, PlanError
from dfopt.regions.lattices import down_sets_by_kind
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.space import OPEN, MappingSpace
from dfopt.regions.variants import Variants
from dfopt.search.kept import Kept
from dfopt.search.space import search_space
from dfopt.search.state import SearchState
from dfopt.search.status_record import AnyRecord, StatusRecord, with_note
from dfopt.search.unit_state import TiledPlan, UnitState
from dfopt.setting.instance import Setting
from dfopt.setting.listing import PlanListing
from dfopt.setting.plans import Rejected, asked_plans
from dfopt.solving import work
from dfopt.solving.solved import Solved
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.step.roofline import least_step

if TYPE_CHECKING:
    from dfopt.regions.refusals import Refusals

_BOUNDED: Final = 10_000
"""Plans that are bounded together: their arrays take up to a hundred megabytes."""
_MOST_PLANS: Final = 350_000
"""Plans that are listed of all graphs, where the first has no more: with their records, 0.8 gigabytes."""
_RECORD_S: Final = 5e-5
"""Seconds that the record of a plan takes: made, hashed, written and counted."""


class GraphSearch:
    """The plans of one graph during a search, with their bounds and records.

    Parameters
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    state : SearchState
        State shared with the searches of the workload's other graphs.
    legal : sequence of Plan, optional
        The plans that are searched; left out, all that the request leaves free.

    Attributes
    ----------
    records : list
        Records of closed plans.
    units : dict
        Bounds and best value of every plan and tile count that may fit the memories.
    apart : GraphRecord, optional
        Record of all plans, if they were closed together.
    refused : PlanError, optional
        Why no plan can use the graph.
    """

    def __init__(self, setting: Setting, state: SearchState, legal: Sequence[Plan] | None = None) -> None:
        self.setting, self.state = setting, state
        self.records: list[AnyRecord] = []
        self.units: dict[TiledPlan, UnitState] = {}
        self.apart: GraphRecord | None = None
        self.refused: PlanError | None = None
        self.rejected: list[Rejected] = []
        self.bounds: dict[Plan, float] = {}
        self._full: dict[Plan, float] = {}  # share of a memory that plans take up at least, above 1
        self._unfit: dict[Plan, Plan] = {}  # by plan of a record the one that holds too much
        self._ways: dict[Plan, list[Plan]] = {}  # what a legal plan stands for, if that is more than itself
        self._fitting_low_i: Floats | None = None  # bounds of the plans that may fit, as soon as all are known
        self._given = legal

    # -- plans ------------------------------------------------------------------------------------------------------

    @cached_property
    def least(self) -> float:
        """Lower bound on the step of any mapping, s, from the work that all chips share."""
        return least_step(self.setting)

    @cached_property
    def plan_bounds(self) -> PlanBounds:
        """Lower bounds of plans by the least work of kernels."""
        return PlanBounds(self.setting)

    @cached_property
    def variants(self) -> Variants:
        """The placements and overlaps that every legal plan is searched with."""
        return Variants(self.setting, self.state.request)

    @cached_property
    def known_plans(self) -> dict[Plan, float]:
        """Plans to which the caller restricts the search, each with a lower bound on its step, s."""
        graph, only = self.setting.graph, self.state.options.only
        return {} if only is None else only.get((graph.microbatch, graph.variant), {})

    @cached_property
    def legal(self) -> Sequence[Plan]:
        """The plans that the request allows, unless given; rejected ones get records with the reason."""
        if self._given is not None:
            return self._given
        if self.state.options.only is not None:
            return [*self.known_plans]
        setting = self.setting
        try:
            with uncollected():
                of = setting.graph, setting.system, self.state.request, setting.assumptions
                legal, self.rejected = asked_plans(*of, PlanListing(self.state.check_time, plans=self.state.plans))
                self.state.clock.charge(work.LISTED * (len(legal) + len(self.rejected)))
        except PlanError as error:
            self.refused = error
            return []
        self.records += [
            StatusRecord(each.plan, None, setting.graph.variant, "infeasible", None, None, each.reason)
            for each in self.rejected
        ]
        return legal

    @cached_property
    def space(self) -> MappingSpace:
        """The mapping space of the plans that may fit the memories."""
        state = self.state
        listed = self._fitting, lambda: sum(state.listed) + max(state.listed, default=0) <= _MOST_PLANS
        return MappingSpace(self.setting, state.request, self.plan_bounds, *listed, state.known_arcs)

    def _fitting(self) -> dict[Plan, float]:
        """Plans that may fit the memories, bounded; of others there are records."""
        lows, cutoff = self.known_plans, self.state.incumbent
        with uncollected():
            self._bound(self.legal)
            self.state.listed.append(len(self.legal))
            every = list(chain.from_iterable(self._choices(plan, cutoff) for plan in self.legal))
            if every != self.legal:
                self._bound(every)
            fitting = {plan: self.bounds[plan] for plan in every if self._fits(plan)}
            for plan in [plan for plan, low in lows.items() if low >= cutoff and plan in fitting]:
                del fitting[plan]  # the caller knows that it is no better than what is kept
                self.give_up_unit((plan, None), lows[plan], late=False)
        self._fitting_low_i = np.array([*fitting.values()])
        return fitting

    def _choices(self, plan: Plan, cutoff: float) -> list[Plan]:
        """A plan with all its placements and ways to hide collectives, if any may be better than what is known.

        No figure is lower at its least than where all lies in the fastest memory and collectives hide in rings, so a
        plan that is excluded so stands for all. One with other placements is given up here: that it fits no memory says
        nothing of these.
        """
        low = max(self.bounds[plan], self.known_plans.get(plan, 0.0)) if self.known_plans else self.bounds[plan]
        if low < cutoff:
            ways = self.variants.of(plan)
            if len(ways) > 1:
                self._ways[plan] = ways
            return ways
        if not self.variants.placements:
            return [plan]
        self.give_up_unit((plan, None), low, late=False)
        return []

    def _bound(self, plans: Sequence[Plan]) -> None:
        """Say of some plans what a step takes at least, and which share of a memory they take up at least."""
        plans = [plan for plan in plans if plan not in self.bounds]
        for at in range(0, len(plans), _BOUNDED):
            self._bound_together(plans[at : at + _BOUNDED])
            if len(plans) > _BOUNDED:
                gc.collect(0)  # a table and what is worked out of it refer to each other, and nothing else does by now
        self.state.end_earlier(_RECORD_S * len(plans))

    def _bound_together(self, plans: Sequence[Plan]) -> None:
        state = self.state
        for table in self.plan_bounds.tables(plans):
            state.check_time()
            state.clock.charge(work.TABLE * len(table.settings) + work.BOUNDED * len(table.plans))
            self.bounds.update(zip(table.plans, table.least_i.tolist(), strict=True))
            used = zip(table.plans, table.used_i.tolist(), strict=True)
            self._full.update((plan, share) for plan, share in used if share > 1.0)

    def _fits(self, plan: Plan) -> bool:
        """Whether a plan may fit the memories whatever the schemes; else that is on record."""
        share = self._full.get(plan, 0.0)
        if share > 1 + OPEN or (share > 1.0 and self._too_large(plan)):
            self._unfit[plan] = plan
            self.units[plan, None] = UnitState(unfit=plan)
            return False
        return True

    def _too_large(self, plan: Plan) -> str:
        """What a plan must hold, if that is too much for a memory; else nothing."""
        try:
            self.plan_bounds.check_dram(self.setting.under(plan))
        except Infeasible as error:
            return str(error.report)
        return ""

    @property
    def least_shares(self) -> dict[Plan, float]:
        """Least share of the fullest memory that each plan occupies, with most in slower memories; 0: it may fit."""
        held = (self.variants.of(plan)[-1] for plan in self.legal)
        return {plan: self._full.get(plan, 0.0) for plan in held}

    def size(self, asked: Request) -> Space:
        """Number of mappings under the legal plans, for what ``asked`` leaves free of sharding and partitions."""
        placements, lattices = len(self.variants.placements) or 1, down_sets_by_kind(self.setting, self.legal)
        return search_space(self.setting, self.legal, lattices, placements, asked)

    # -- what is known of them --------------------------------------------------------------------------------------

    @cached_property
    def _several_tiles(self) -> bool:
        """Whether there are several numbers of tiles, each with a record of its own."""
        return len(tile_counts(self.setting.graph, self.setting.assumptions)) > 1

    def unit_of(self, plan: Plan, tiles: int | None) -> TiledPlan:
        """The unit that has its own record: a plan, or a plan with a number of tiles."""
        return plan, tiles if self._several_tiles else None

    def keep(self, solved: Solved) -> None:
        """Add a mapping to the best of its plan and of the search."""
        unit = self.units.setdefault(self.unit_of(solved.plan, solved.mapping.tile_count), UnitState())
        if solved.interrupted:
            self.state.stop()
        if solved.value < unit.value:
            unit.value, unit.solves = solved.value, solved.records
        elif not self.state.request.several:
            return
        self.state.accept(solved)

    def give_up(self, of: PlanGroup, plan_i: Iterable[int], low_i: Floats, *, late: bool) -> None:
        """Close some plans of a class with their lower bounds.

        Parameters
        ----------
        of, plan_i : PlanGroup, iterable of int
            The class, and the places of the plans in it.
        low_i : float array, s, shape (plans of the class,)
            Lower bounds on the step under all plans of the class.
        late : bool
            Whether the time limit is the reason.
        """
        for i in plan_i:
            state = self.give_up_unit(self.unit_of(of.plans[i], of.tiles), float(low_i[i]), late=late)
            state.wide |= not of.complete
            state.sharded_first = of.sharded_first or state.sharded_first

    def give_up_unit(self, unit: TiledPlan, low: float, *, late: bool) -> UnitState:
        """Close a unit, a plan with a number of tiles, with a lower bound and return its state.

        Parameters
        ----------
        unit
            The unit.
        low : float, s
            Lower bound on the step of its mappings.
        late : bool
            Whether the time limit is the reason.
        """
        state = self.units.setdefault(unit, UnitState())
        state.give_up(low, late=late)
        return state

    def give_up_graph(self, low: float, *, late: bool) -> None:
        """Close all plans together with a lower bound ``low`` (s) that holds under each.

        ``late``: whether the time limit is the reason.
        """
        given_up, self.records = UnitState(low=max(low, self.least), late=late), []
        self.apart = given_up.graph_record(self.setting.graph, self.state.kept, self.state.stopped)

    # -- records ----------------------------------------------------------------------------------------------------

    def write_records(self, *, by_variant: bool = False) -> None:
        """Write the records of all plans that were not rejected.

        Records of plans that exceed a memory get their reasons on demand (:meth:`reason`), as there may be many.

        Parameters
        ----------
        by_variant : bool
            Whether each variant of a plan has its own; else there is one of a plan with all its variants where nothing
            was found of any.
        """
        opened, kept = {plan for plan, _ in self.units}, self.state.kept
        for plan in (each for each in self.space.least if each not in opened):  # its options cannot be together
            self.units[plan, None] = UnitState()
        with uncollected():
            units = [*(self.units.items() if by_variant else self._together())]
            self.records += [self._record(unit, state, kept) for unit, state in units]

    def _together(self) -> Iterator[tuple[TiledPlan, UnitState]]:
        """Units with what is known; of plans that differ in variants only one, where nothing was found of any."""
        of_plan = defaultdict[Plan, list[tuple[TiledPlan, UnitState]]](list)
        for each in self.units.items():
            of_plan[each[0][0]].append(each)
        for plan in self.legal:
            ways = [of_plan[way] for way in self._ways.get(plan, (plan,)) if way in of_plan]
            pairs = [*chain.from_iterable(ways)]
            if len(ways) > 1 and all(state.says_status for _, state in pairs):
                yield (plan, None), pairs[0][1].together([state for _, state in pairs[1:]])
            else:
                yield from pairs

    @property
    def reasons(self) -> list[str]:
        """Sentences on why plans have no feasible mapping, without rejected plans."""
        rejected = {each.plan for each in self.rejected}
        infeasible = (record for record in self.records if record.status == "infeasible")
        return [f"{each.plan.label}: {self.reason(each)}" for each in infeasible if each.plan not in rejected]

    def reason(self, record: AnyRecord) -> str:
        """The note of a record, or a sentence on why its plan exceeds a memory."""
        unfit = None if record.note or record.status != "infeasible" else self._unfit.get(record.plan)
        return record.note if unfit is None else self._too_large(unfit)

    def _record(self, unit: TiledPlan, state: UnitState, kept: Kept) -> AnyRecord:
        """The record of a plan and tile count; where nothing fits, why."""
        plan, _ = unit
        record = state.plan_record(unit, self.setting.graph.variant, self.bounds[plan], kept, self.state.stopped)
        if not record.status.startswith("infeasible"):
            return record
        if state.unfit is not None:
            self._unfit[plan] = state.unfit
            return record
        return with_note(record, self._refusals.of(*unit))

    @cached_property
    def _refusals(self) -> Refusals:
        from dfopt.regions.refusals import Refusals

        return Refusals(self.space, self.state.options)

    def raise_known(self) -> None:
        """Raise the bounds in :attr:`known_plans` to those that the search proved."""
        if self.apart is not None:
            shown = dict.fromkeys(self.known_plans, self.apart.bound or 0.0)
        elif any(len(self.variants.of(plan)) > 1 for plan in self.known_plans):  # a plan may stand for others
            return
        else:
            shown = {}
            for record in self.records:
                low = np.inf if record.status == "infeasible" else record.bound or 0.0
                shown[record.plan] = min(low, shown.get(record.plan, np.inf))
        self.known_plans.update((plan, max(low, shown.get(plan, 0.0))) for plan, low in self.known_plans.items())

    # -- progress ---------------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Number of plans that may still beat the incumbent, and number of plans listed."""
        low_i = self._fitting_low_i
        open_ = len(self.bounds) if low_i is None else int((low_i < self.state.incumbent).sum())
        return open_, len(self.bounds)
