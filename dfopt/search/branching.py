"""The search over plans: bound each, solve the promising ones, stop when none can be better."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dfopt.bnb import ENDED, Clock
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import GraphRecord, PlanRecord
from dfopt.documents.uncollected import uncollected
from dfopt.errors import Infeasible, NoSolution, PlanError, SolveError
from dfopt.fusion.downsets import Lattice
from dfopt.interrupts import LIMIT, SIGNALS, cause, interruptible, wall_limit
from dfopt.search import work
from dfopt.search.candidate import Prepared, prepare, with_starts
from dfopt.search.options import Options, Progress
from dfopt.search.sharing import Memo, lattices_of, nothing_else_fits
from dfopt.search.solved import Pruned, Solved, finish
from dfopt.setting.instance import Setting
from dfopt.setting.listing import Listing
from dfopt.setting.plans import Rejected, asked_plans
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.step.roofline import least_step

_GRACE_S = 0.2  # beyond the limit while no mapping is known at all
_SAME = 1e-12
_OPEN = "limit", "not_reached"
_RECORD_S = 1e-4  # that the record of a plan takes: made, hashed, written and counted
_MOST_KEPT = 0.4  # of the time that is left, for all records
_POINTS = 200  # of a trace, of which a longer one loses every other
_REPORT_S = 1.0  # between two reports, but of better mappings


class Search:
    """Branch and bound over plans: prepare all, then fuse them from the most promising on.

    It keeps the ``top`` best mappings that are distinct, ``found``, best first; a plan is given up
    only when it is worse than the last of them. Searches of one workload in several sizes share the list ``found``. Two
    bounds are kept of every plan: one of all its mappings, and one of those with the sharding that was chosen for it.
    """

    def __init__(
        self, setting: Setting, options: Options, found: list[Solved] | None = None, peers: Sequence[Search] = ()
    ) -> None:
        self.setting, self.options = setting, options
        self.records: list[PlanRecord] = []
        self.found = [] if found is None else found
        self.stopped = ""  # by what: Ctrl-C, SIGTERM, or a time limit that a step did not keep by itself
        self.reasons: list[str] = []
        self.unsolved: NoSolution | None = None
        self.refused: PlanError | None = None  # no plan can use the graph
        self.rejected: list[Rejected] = []
        self.apart: GraphRecord | None = None  # all plans were given up together
        self.memo: Memo = {}
        self.began = time.perf_counter()
        self.bounds: dict[Plan, float] = {}
        self.used: dict[Plan, float] = {}
        self.peers = peers  # of the same workload, with which it reports progress
        self.due = 0.0  # when their first one reports next
        self.trace: list[tuple[float, float | None, float]] = []  # of their first one: seconds, best value, bound

    def lattices(self) -> dict[int, Lattice | None]:
        """The down-sets of every kind of layer that are listed."""
        return lattices_of(self.memo, self.setting.graph)

    @property
    def best(self) -> Solved | None:
        """The best judged mapping so far."""
        return self.found[0] if self.found else None

    @property
    def incumbent(self) -> float:
        """Value of the judged mapping that a plan must beat to be kept."""
        wanted = self.options.request.top
        return min(self.ceiling, self.found[wanted - 1].value if len(self.found) >= wanted else np.inf)

    @cached_property
    def ceiling(self) -> float:
        """Value that the limits of the objective allow; a little more, so that a mapping that meets it is kept."""
        return self.options.request.objective.ceiling * (1 + 1e-9)

    @cached_property
    def least(self) -> float:
        """The least that is proven of what is left to search; at first what all chips have to do."""
        return least_step(self.setting)

    @cached_property
    def plan_bounds(self) -> PlanBounds:
        """Bounds of plans, which searches of one setting may share."""
        return PlanBounds(self.setting)

    @property
    def given(self) -> dict[Plan, float]:
        """What is known of plans that are given: what a step takes at least under each."""
        graph, only = self.setting.graph, self.options.only
        return {} if only is None else only.get((graph.microbatch, graph.variant), {})

    @cached_property
    def legal(self) -> list[Plan]:
        """The plans that the request leaves free, unless some are given; of others there are records of why not."""
        setting = self.setting
        if self.options.only is not None:
            return [*self.given]
        try:
            with uncollected():
                of = setting.graph, setting.system, self.options.request, setting.assumptions
                found, self.rejected = asked_plans(*of, Listing(self.check_time))
                self.options.clock.charge(work.LISTED * (len(found) + len(self.rejected)))
        except PlanError as error:
            self.refused = error
            return []
        variant = setting.graph.variant
        self.records += [
            PlanRecord(plan=plan.plan, variant=variant, status="infeasible", bound=None, note=plan.reason)
            for plan in self.rejected
        ]
        return found

    @classmethod
    def run_all(cls, searches: Sequence[Self]) -> None:
        """Go over the legal plans of several searches, one after the other."""
        for number, search in enumerate(searches):
            search.run(search.legal)
            if search.stopped:
                for later in searches[number + 1 :]:
                    later.stop()

    def run(self, legal: list[Plan]) -> None:
        """Go over some plans."""
        self._bound_all([plan for plan in legal if plan not in self.bounds])
        bounds, top = self.bounds, self.options.request.top
        ready: list[tuple[float, float, str, Prepared]] = []
        # values that are reached, or that some start reaches; the last of the best ones is what others must beat
        reached = {one.different("plan"): one.value for one in reversed(self.found)}
        promised = self.incumbent
        for plan in sorted(legal, key=lambda p: (bounds[p], p.label)):
            if bounds[plan] > promised * (1 + _SAME) or self._out_of_time(bool(ready)):
                self._skip(plan, None, promised)
                continue
            for variant in self._variants(plan):
                floor = max(bounds[plan], variant.floor())
                if floor > promised * (1 + _SAME) or self._out_of_time(bool(ready)):
                    self._skip(plan, variant, promised)
                    continue
                try:
                    with interruptible():
                        started = with_starts(variant, self._start_clock())
                except KeyboardInterrupt:
                    self.stop()
                    started = variant
                known = started.best_known()
                key = plan, self.setting.graph.variant
                reached[key] = min(known, reached.get(key, np.inf))
                promised = min([self.ceiling, *sorted(reached.values())[top - 1 : top]])
                ready.append((known, floor, plan.label, started))
        # the most promising start first: its solve gives the cutoff that ends the others early
        for _, floor, _, variant in sorted(ready, key=lambda entry: entry[:3]):
            # what has a start is finished even when time is up, if nothing else is known: that returns the start
            late = self._out_of_time(True) and (self.best is not None or not np.isfinite(variant.best_known()))
            if late or (self.best is not None and floor >= self.incumbent * (1 - _SAME)):
                self._skip(variant.plan, variant, self.incumbent)
                continue
            self._finish(variant)

    def report(self) -> None:
        """Tell what all searches of the workload have found and proven."""
        if not self.peers:
            return
        seconds = self._seconds()
        self.peers[0].due = self.began + seconds + _REPORT_S
        label, value = (self.best.plan.label, self.best.value) if self.best is not None else ("no mapping yet", np.inf)
        low = min(value, *(peer.proven() for peer in self.peers))
        trace, best = self.peers[0].trace, value if np.isfinite(value) else None
        if not trace or trace[-1][1:] != (best, low):
            trace.append((seconds, best, low))
        if len(trace) > _POINTS:
            del trace[1:-1:2]
        if self.options.progress is None:
            return
        open_, listed = map(sum, zip(*(peer.counts() for peer in self.peers), strict=True))
        problem = f"{open_:,} of {listed:,} plans open" if listed else "no plans listed yet"
        self.options.progress(Progress(label, problem, seconds, value, low))

    def proven(self) -> float:
        """The step time that no mapping of the search beats, as far as that is shown."""
        return max(self.least, min(self.bounds.values(), default=0.0))

    def counts(self) -> tuple[int, int]:
        """How many of its plans may still be better than what is known, and how many are listed."""
        return len(self.bounds.keys() - {record.plan for record in self.records}), len(self.bounds)

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _bound_all(self, legal: list[Plan], check_time: Callable[[], None] = lambda: None) -> None:
        """Say of some plans what a step takes at least, and which share of a memory they take up at least."""
        with uncollected():
            self.tables = self.plan_bounds.tables(legal, check_time)
            for table in self.tables:
                check_time()
                self.options.clock.charge(work.TABLE + work.BOUNDED * len(table.plans))
                self.bounds.update(zip(table.plans, table.seconds().tolist(), strict=True))
                self.used.update(zip(table.plans, table.used_i.tolist(), strict=True))
        self._keep_time(_RECORD_S * len(legal))

    def _keep_time(self, seconds: float) -> None:
        """Have all searches of the workload end earlier by what comes behind them, but for most of the time."""
        if self.peers:
            seconds = min(seconds, _MOST_KEPT * self.options.clock.seconds_left)
            wall_limit.earlier(seconds)
            self.options.clock.end_earlier(seconds)

    def _fits(self, plan: Plan) -> bool:
        """Whether a plan may fit the memories whatever the schemes; else that is on record."""
        if self.used[plan] > 1.0:
            try:
                self.plan_bounds.check_dram(self.setting.under(plan))
            except Infeasible as error:
                self._infeasible(plan, None, error, "infeasible")
                return False
            self.used[plan] = 1.0  # as it is rounded there
        return True

    def _out_of_time(self, something: bool) -> bool:
        """Whether to stop; while there is nothing to return a little later than was asked for."""
        now = time.perf_counter()
        if self.peers and now >= self.peers[0].due:
            self.report()
        return bool(self.stopped) or self.options.clock.over_since(0.0 if something else _GRACE_S)

    def _start_clock(self) -> Clock:
        """The clock for finding a start: a little beyond the limit there is time for one."""
        clock = self.options.clock
        return Clock.of_limit(_GRACE_S) if clock.over else clock

    def check_time(self) -> None:
        """Called while plans are listed and bounded, which here takes as long as it takes."""

    def stop(self) -> None:
        """An interrupt: what is still solved from here on returns its start at once."""
        self.stopped = cause()
        self.options = replace(self.options, clock=ENDED)

    def _skip(self, plan: Plan, variant: Prepared | None, best: float) -> None:
        level = variant.floor() if variant is not None else 0.0
        beaten = best * (1 - _SAME)
        status = "not_reached"
        if self.bounds[plan] >= beaten:
            status = "pruned_by_bound"
        elif level >= beaten:
            status = "pruned_per_level"
        solves = () if variant is None else (variant.record,)
        note = "" if status != "not_reached" else self.stopped or LIMIT
        self._note(plan, variant, status=status, level_bound=level, solves=solves, note=note)

    def _note(self, plan: Plan, variant: Prepared | None, *, level_bound: float = 0.0, **fields: Any) -> None:
        """Record what is known of a plan, or of one of its tile counts."""
        bound = self.bounds[plan]
        level_bound = max(level_bound, bound)
        if variant is not None and variant.only_sharding:  # what holds for this sharding holds for every mapping
            bound = level_bound
            whole = {"pruned_per_level": "pruned_by_bound", "infeasible_per_level": "infeasible"}
            fields["status"] = whole.get(fields["status"], fields["status"])
        feasible = fields["status"] != "infeasible"
        self.records.append(
            PlanRecord(
                plan=plan,
                variant=self.setting.graph.variant,
                tile_count=variant.tile_count if variant is not None else None,
                bound=bound if feasible else None,
                level_bound=level_bound if feasible and fields["status"] != "infeasible_per_level" else None,
                **fields,
            )
        )

    def _variants(self, plan: Plan) -> Iterator[Prepared]:
        if not self._fits(plan):  # whatever the sharding
            return
        instance = self.setting.under(plan)
        try:
            for variant in interruptible.steps(prepare(instance, self.options, self.memo)):
                if variant.interrupted:
                    self.stop()
                yield variant
        except NoSolution as error:
            self.unsolved = error
            self._note(plan, None, status="limit", note=str(error))
        except Infeasible as error:
            only = nothing_else_fits(self.memo, instance)
            self._infeasible(plan, None, error, "infeasible" if only else "infeasible_per_level")
        except KeyboardInterrupt:
            self.stop()
            self._skip(plan, None, np.inf)

    def _infeasible(self, plan: Plan, variant: Prepared | None, error: Infeasible, status: str) -> None:
        self.reasons.append(f"{plan.label}: {error.report}")
        self._note(plan, variant, status=status, note=str(error.report))

    def _finish(self, variant: Prepared) -> None:
        plan = variant.plan
        try:
            with interruptible():
                outcome = finish(variant, self.options, self.incumbent)
        except Infeasible as error:
            self._infeasible(plan, variant, error, "infeasible_per_level")
            return
        except NoSolution as error:
            self.unsolved = error
            self._note(plan, variant, status="limit", note=str(error))
            return
        except KeyboardInterrupt:
            self.stop()
            self._skip(plan, variant, np.inf)
            return
        # where the sharding is not proven to be the best of its level, nothing is proven per level
        proven = outcome.bound if variant.sharding_proven else 0.0
        if isinstance(outcome, Pruned):
            status, note = ("pruned_per_level", "") if variant.sharding_proven else ("limit", outcome.note)
            self._note(plan, variant, status=status, level_bound=proven, note=note, solves=outcome.records)
            return
        if outcome.interrupted:
            self.stop()
        value, (status, note) = outcome.value, ("limit", LIMIT) if outcome.limited else ("solved", "")
        level = min(max(self.bounds[plan], proven), value)
        self.bounds[plan] = min(self.bounds[plan], value)
        gap, solves = (value - level) / value, outcome.records
        self._note(plan, variant, status=status, level_bound=level, value=value, gap=gap, note=note, solves=solves)
        self.accept(outcome)

    def accept(self, outcome: Solved) -> None:
        """Keep a mapping that is among the best of those that are different."""
        by = self.options.request.distinct_in
        same = next((one for one in self.found if one.different(by) == outcome.different(by)), None)
        if outcome.value >= (self.incumbent if same is None else same.value):
            return
        others = [one for one in self.found if one is not same]
        # a stable sort: of equally good ones the first found stays first
        self.found[:] = sorted([*others, outcome], key=lambda one: one.value)[: self.options.request.top]
        self.report()

    def failure(self) -> SolveError | KeyboardInterrupt:
        """Why there is no mapping at all."""
        if self.stopped in SIGNALS:
            return KeyboardInterrupt()
        records: list[PlanRecord | GraphRecord] = [*self.records]
        records += [self.apart] if self.apart is not None else []
        open_ = [record for record in records if record.status in _OPEN]
        if open_ or self.unsolved is not None:
            least = min((record.bound for record in records if record.bound is not None), default=0.0)
            return NoSolution(least, self._seconds(), _counted(self.peers or (self,)))
        beaten = [r.level_bound or 0.0 for r in self.records if r.status.startswith("pruned")]
        beaten += [self.apart.bound] if self.apart is not None else []
        if beaten and np.isfinite(self.ceiling):
            what = f"{self.options.request.objective.metric} of at most {self.ceiling:.6g}"
            return Infeasible(
                f"no mapping keeps the limit of the objective, a {what}: the best plan allows {min(beaten):.6g} with"
                " shardings that are optimal for the inter-chip problem; levers: a higher limit, more chips"
            )
        if len(self.reasons) == 1:
            return Infeasible(self.reasons[0])
        return Infeasible("no plan fits:\n  " + "\n  ".join(dict.fromkeys(self.reasons)))


def _counted(searches: Sequence[Search]) -> str:
    """How many plans of some searches, listed as far as there was time, may be solutions."""
    listed, given_up = sum(len(each.bounds) for each in searches), sum(each.apart is not None for each in searches)
    left = [each.bounds if each.apart else {r.plan for r in each.records if r.status in _OPEN} for each in searches]
    open_ = sum(map(len, left))
    others = f", and of {given_up} of {len(searches)} graphs not all plans are listed" if given_up else ""
    return f"{open_:,} of {listed:,} plans {'is' if open_ == 1 else 'are'} open{others}"


def failure_of(searches: Sequence[Search]) -> SolveError | KeyboardInterrupt:
    """Why none of several searches of one workload has a mapping: that no plan fits only if that is shown for all."""
    reasons = [search.failure() for search in searches]
    if stopped := [one for one in reasons if isinstance(one, KeyboardInterrupt)]:
        return stopped[0]
    if open_ := [one for one in reasons if isinstance(one, NoSolution)]:
        return min(open_, key=lambda one: one.bound)
    return min(reasons, key=_lacking)  # of equal ones the first


def _lacking(error: object) -> float:
    """Bytes of a memory that the plan which lacks least of it lacks, where that is known."""
    least: Any = getattr(error, "least", None)
    return np.inf if least is None else float(least.bytes - least.capacity)
