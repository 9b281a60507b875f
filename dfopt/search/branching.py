"""The search over plans: bound each, solve the promising ones, stop when none can be better."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.result import PlanRecord
from dfopt.errors import Infeasible, NoSolution, SolveError
from dfopt.milp import Termination
from dfopt.search.candidate import Prepared, prepare, with_starts
from dfopt.search.options import Options
from dfopt.search.sharing import Memo
from dfopt.search.solved import Solved, finish
from dfopt.setting.bounds import PlanBounds
from dfopt.setting.instance import Setting


class Search:
    """Branch and bound over plans: prepare all, then fuse them from the most promising on.

    It keeps the ``options.top`` fastest mappings of different plans (or tile counts), ``found``, fastest first; a
    plan is given up only when it is slower than the last of them. ``found`` may start with those of another search.
    """

    def __init__(self, setting: Setting, options: Options, found: Sequence[Solved] = ()) -> None:
        self.setting, self.options = setting, options
        self.records: list[PlanRecord] = []
        self.found = list(found)
        self.stopped = False  # by Ctrl-C
        self.reasons: list[str] = []
        self.unsolved: NoSolution | None = None
        self.memo: Memo = {}

    @property
    def best(self) -> Solved | None:
        """The fastest judged mapping so far."""
        return self.found[0] if self.found else None

    @property
    def incumbent(self) -> float:
        """Seconds of the judged step that a plan must beat to be kept."""
        wanted = self.options.top
        return self.found[wanted - 1].score.step_time_s if len(self.found) >= wanted else np.inf

    def run(self, legal: list[Plan]) -> None:
        """Go over the legal plans."""
        self.bounds = PlanBounds(self.setting)
        bounds = {plan: self.bounds.seconds(self.setting.under(plan)) for plan in legal}
        ready: list[tuple[float, float, str, Prepared]] = []
        # steps that are reached, or that some start reaches; the last of the best ones is what others must beat
        reached = [one.score.step_time_s for one in self.found]
        promised = self.incumbent
        for plan in sorted(legal, key=lambda p: (bounds[p], p.label)):
            if bounds[plan] > promised * (1 + 1e-12) or self._out_of_time(bool(ready)):
                self._skip(plan, None, bounds[plan], promised)
                continue
            for variant in self._variants(plan, bounds[plan]):
                floor = max(bounds[plan], variant.floor())
                if floor > promised * (1 + 1e-12) or self._out_of_time(bool(ready)):
                    self._skip(plan, variant, floor, promised)
                    continue
                try:
                    started = with_starts(variant)
                except KeyboardInterrupt:
                    self._stop()
                    started = variant
                known = started.best_known()
                reached = sorted([*reached, known])[: self.options.top]
                promised = reached[-1] if len(reached) == self.options.top else np.inf
                ready.append((known, floor, plan.label, started))
        # the most promising start first: its solve gives the cutoff that ends the others early
        for _, floor, _, variant in sorted(ready, key=lambda entry: entry[:3]):
            if self.best is not None and (floor >= self.incumbent * (1 - 1e-12) or self._out_of_time(True)):
                self._skip(variant.plan, variant, floor, self.incumbent)
                continue
            self._finish(variant, bounds[variant.plan])

    def _out_of_time(self, something: bool) -> bool:
        """Whether to stop; never before there is something to return."""
        return self.stopped or (something and time.perf_counter() > self.options.deadline)

    def _stop(self) -> None:
        """Ctrl-C: what is still solved from here on returns its start at once."""
        self.stopped = True
        self.options = replace(self.options, deadline=0.0)

    def _skip(self, plan: Plan, variant: Prepared | None, bound: float, best: float) -> None:
        pruned = bound >= best * (1 - 1e-12)
        self._note(
            plan,
            variant,
            status="pruned_by_bound" if pruned else "not_reached",
            bound_s=bound,
            solves=(variant.record,) if variant is not None else (),
            note="" if pruned else "Ctrl-C" if self.stopped else "time limit",
        )

    def _note(self, plan: Plan, variant: Prepared | None, **fields: Any) -> None:
        tiles = variant.tile_count if variant is not None else None
        self.records.append(PlanRecord(plan=plan, tile_count=tiles, **fields))

    def _variants(self, plan: Plan, bound: float) -> Iterator[Prepared]:
        try:
            instance = self.setting.under(plan)
            self.bounds.check_dram(instance)
            for variant in prepare(instance, self.options, self.memo):
                if variant.record.termination == Termination.INTERRUPTED_WITH_SOLUTION.value:
                    self._stop()
                yield variant
        except NoSolution as error:
            self.unsolved = error
            self._note(plan, None, status="limit", bound_s=bound, note=str(error))
        except Infeasible as error:
            self._infeasible(plan, None, error)
        except KeyboardInterrupt:
            self._stop()
            self._skip(plan, None, bound, np.inf)

    def _infeasible(self, plan: Plan, variant: Prepared | None, error: Infeasible) -> None:
        self.reasons.append(f"{plan.label}: {error.report}")
        self._note(plan, variant, status="infeasible", bound_s=None, note=str(error.report))

    def _finish(self, variant: Prepared, bound: float) -> None:
        plan, started = variant.plan, time.perf_counter()
        try:
            outcome = finish(variant, self.options, self.incumbent)
        except Infeasible as error:
            self._infeasible(plan, variant, error)
            return
        except NoSolution as error:
            self.unsolved = error
            self._note(plan, variant, status="limit", bound_s=bound, note=str(error))
            return
        except KeyboardInterrupt:
            self._stop()
            self._skip(plan, variant, bound, np.inf)
            return
        seconds = time.perf_counter() - started
        if isinstance(outcome, PlanRecord):
            changes: dict[str, Any] = {"seconds": seconds}
            if not variant.sharding_proven:  # another sharding might still beat the best
                changes |= {"status": "limit", "bound_s": bound}
            self.records.append(outcome.model_copy(update=changes))
            return
        if outcome.interrupted:
            self._stop()
        step_s = outcome.score.step_time_s
        proven = max(bound, outcome.bound_s) if variant.sharding_proven else bound
        self._note(
            plan,
            variant,
            status="limit" if outcome.limited else "solved",
            bound_s=min(proven, step_s),
            step_time_s=step_s,
            gap=max(0.0, (step_s - proven) / step_s),
            seconds=seconds,
            solves=outcome.records,
        )
        if step_s < self.incumbent:
            # a stable sort: of equally fast ones the first found stays first
            self.found = sorted([*self.found, outcome], key=lambda one: one.score.step_time_s)[: self.options.top]

    def failure(self) -> SolveError | KeyboardInterrupt:
        """Why there is no mapping at all."""
        if self.unsolved is not None:
            return self.unsolved
        if self.stopped:
            return KeyboardInterrupt()
        if len(self.reasons) == 1:
            return Infeasible(self.reasons[0])
        return Infeasible("no plan fits:\n  " + "\n  ".join(dict.fromkeys(self.reasons)))
