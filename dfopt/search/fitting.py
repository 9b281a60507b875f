"""Budgets over one stage: partitions chosen anew within them, of a mapping and over many shardings at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dfopt.bnb import Candidate, Clock, LeafAnswer, Relaxation
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.fusion.partitioning import objective
from dfopt.regions.facts import Memory
from dfopt.regions.problem import one_by_one
from dfopt.regions.region import Part, Region, listed
from dfopt.search.budgets import Budget, Fitted, fit
from dfopt.setting.instance import Setting
from dfopt.solving.candidate import Prepared, Stage, prepare_mapping
from dfopt.solving.options import Options
from dfopt.solving.relaxed import RelaxedPlans
from dfopt.solving.solved import Pruned, Solved, scored

__all__ = ["Fitter", "Rows"]


@dataclass(frozen=True, eq=False)
class Fitter:
    """Budgets over one stage of the mappings of a setting.

    Attributes
    ----------
    setting, options : Setting, Options
        What is mapped, and how it is asked.
    budgets : sequence of Budget
        Sums that are limited.
    stage : int
        The stage that they are about.
    fitted : dict
        What was solved, by digest of the mapping that it makes.
    """

    setting: Setting
    options: Options
    budgets: Sequence[Budget]
    stage: int
    fitted: dict[str, Fitted] = field(default_factory=dict)

    def within(self, mapping: Mapping, cutoff: float) -> Solved | Pruned:
        """A mapping with the partitions of the stage chosen anew.

        Raises
        ------
        Infeasible, PlanError, NoSolution
        """
        ready = prepare_mapping(self.setting, mapping, self.options.asking(pin_sharding={}))
        stage = _checked(ready.stages, self.stage)
        place = {kernel.name: kernel.partition for kernel in mapping.kernels}
        partition_k = np.array([place[name] for name in ready.sharded.names], dtype=np.int64)
        times = [0.0 if one.tables is None else objective(one.tables, partition_k[one.members]) for one in ready.stages]
        most = self._most(ready, cutoff, times)
        fitted = fit(stage, self.budgets, times[self.stage], self.options, most) if most > 0 else None
        if fitted is None:
            return Pruned(cutoff, ())
        partition_k[stage.members] = fitted.partition_k
        fastest_k = ready.fastest_tokens(partition_k)
        tokens_k = fastest_k.copy()
        tokens_k[stage.members] = fitted.tokens_k
        lows = [*times]
        times[self.stage], lows[self.stage] = fitted.seconds, fitted.low
        # what passes take is known of the fastest way to run each partition
        by_passes = bool(ready.exchanges or ready.moving) and (tokens_k != fastest_k).any()
        value = None if by_passes else ready.reached(times, partition_k)
        found = scored(ready, partition_k, value, ready.value_of(lows), (), len(partition_k), tokens_k)
        self.fitted[found.mapping.digest()] = fitted
        return found

    def best(self, plan: Plan, own: Solved | None) -> tuple[Solved | None, list[float]]:
        """The best mapping of a plan within the budgets, and what none is below, if any may keep them.

        Parameters
        ----------
        plan : Plan
            The plan; its pipeline stages are not open.
        own : Solved, optional
            A mapping within them that is known.
        """

        def within(free: Solved, cutoff: float) -> LeafAnswer:
            found = self.within(free.mapping, cutoff)
            if isinstance(found, Pruned):
                return LeafAnswer([], found.bound)
            return LeafAnswer([Candidate(found.value, found)], found.bound, interrupted=found.interrupted)

        kept = [] if own is None else [Candidate(own.value, own)]
        found = one_by_one({self.setting: [plan]}, within, self.options, kept, lambda memory: Rows(memory, self))
        return found.solution, [] if np.isinf(found.bound) else [found.bound]

    def low(self, ready: Prepared, lows: Sequence[float], cutoff: float) -> float:
        """What the stage takes at least by what the rows say of all shardings at once.

        Parameters
        ----------
        ready : Prepared
            A plan with every figure at its least.
        lows : sequence of float, s
            What each stage is shown to take at least without the rows.
        cutoff : float, s
            Value from which on nothing matters.
        """
        stage, low = ready.stages[self.stage], lows[self.stage]
        if stage.lattice is None:
            return low
        most = self._most(ready, cutoff, lows)
        try:
            fitted = fit(stage, self.budgets, low, self.options, most, every=True)
        except Infeasible:
            return np.inf
        except NoSolution as error:
            return max(low, error.bound)
        return max(low, most if fitted is None else fitted.low)

    def _most(self, ready: Prepared, cutoff: float, lows: Sequence[float]) -> float:
        """Seconds of the stage from which on nothing matters."""
        upper = ready.cutoff(self.stage, cutoff, lows)
        return np.inf if upper is None else upper


class Rows(Relaxation[Part, float]):
    """The budgets over the stage with every figure at its least."""

    name = "rows of budgets"

    def __init__(self, memory: Memory, fitter: Fitter) -> None:
        self._memory, self._fitter = memory, fitter
        self._relaxed = RelaxedPlans(fitter.setting, fitter.options, every=True)

    def applies(self, region: Part) -> bool:
        """Whether plans are listed."""
        return isinstance(region, Region)

    def answers(self, regions: Sequence[Part], cutoff: float, clock: Clock) -> list[float]:
        """The least over the plans of each region."""
        return [min(self._of_plan(one, i, cutoff) for i in one.plans) for one in listed(regions)]

    def _of_plan(self, region: Region, plan: int, cutoff: float) -> float:
        of, facts = region.of, self._memory.of(region)
        if facts.arcs_k is None:
            return np.inf
        try:
            [ready] = self._relaxed.priced(of.instance(plan), of.menu.allowed(region.domain), (of.tiles,))
        except Infeasible:
            return np.inf
        lows = [stage.floor for stage in ready.stages]
        lows[: of.kinds] = np.maximum(lows[: of.kinds], facts.layer_k).tolist()
        lows[self._fitter.stage] = self._fitter.low(ready, lows, cutoff)
        return np.inf if np.isinf(lows).any() else ready.value_of(lows)


def _checked(stages: Sequence[Stage], number: int) -> Stage:
    """A stage whose blocks can be listed.

    Raises
    ------
    PlanError
    """
    held = [n for n, stage in enumerate(stages) if stage.tables is not None]
    if number not in held:
        raise PlanError(f"optimize_within: found stage {number}, expected one of {', '.join(map(str, held))}")
    stage = stages[number]
    if stage.tables is not None and not stage.tables.chip.fused:
        raise PlanError(
            "optimize_within: the chip runs kernel by kernel, so there are no partitions to choose; use a dataflow"
            " chip (assumption execution: dataflow)"
        )
    if stage.lattice is None:
        raise PlanError(
            f"optimize_within: stage {number} has too many down-sets to list its blocks; expected at most 20000:"
            " draw fewer layers (repeat) or fewer parallel branches"
        )
    return stage
