"""The fastest mapping of a plan within budgets over regions: rows as a bound, and as a leaf of one sharding.

Without budgets nothing is slower, so what is shown of a region without them holds with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.bnb import (
    Candidate,
    Clock,
    LeafAnswer,
    Parameters,
    Relaxation,
    branch_and_bound,
)
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.facts import Memory
from dfopt.regions.leaves import Limited
from dfopt.regions.problem import one_by_one
from dfopt.regions.region import Part, Region, listed
from dfopt.regions.space import Space
from dfopt.search.fitting import Fitter
from dfopt.solving.relaxed import RelaxedPlans
from dfopt.solving.solved import Pruned, Solved

__all__ = ["best_within"]


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
        tables = of.menu.tables
        left = np.concatenate([first + np.array(left) for first, left in zip(of.first_k, region.domain, strict=True)])
        allowed_o = np.isin(tables.place_o, left)
        try:
            [ready] = self._relaxed.priced(of.instance(plan), allowed_o, (of.tiles,))
        except Infeasible:
            return np.inf
        lows = [stage.floor for stage in ready.stages]
        lows[: of.kinds] = np.maximum(lows[: of.kinds], facts.layer_k).tolist()
        self._fitter.raise_low(ready, lows, cutoff)
        return np.inf if np.isinf(lows).any() else ready.value_of(lows)


class WithinBudgets(Limited[Solved]):
    """The partitions of one plan and sharding within the budgets."""

    def __init__(self, fitter: Fitter) -> None:
        super().__init__(fitter.options)
        self._fitter = fitter

    def limited(self, free: Solved, low: float, cutoff: float) -> LeafAnswer:
        """The mapping with its bound; only the bound where none is below the cutoff, or time is over."""
        try:
            found = self._fitter.within(free.mapping, cutoff)
        except Infeasible:
            return LeafAnswer([])
        except NoSolution:
            return LeafAnswer([], low)
        low = max(low, found.bound)
        if isinstance(found, Pruned):
            return LeafAnswer([], low)
        return LeafAnswer([Candidate(found.value, found)], low, interrupted=found.interrupted)


def best_within(fitter: Fitter, plan: Plan, own: Solved | None) -> tuple[Solved | None, list[float]]:
    """The best mapping of a plan within budgets, and what none is below, if any may keep them.

    Parameters
    ----------
    fitter : Fitter
        The budgets.
    plan : Plan
        The plan; its pipeline stages are not open.
    own : Solved, optional
        A mapping within them that is known.
    """
    memory, options = Memory(), fitter.options
    space = Space(fitter.setting, options.request, lambda: [plan])
    problem = one_by_one([space], memory, WithinBudgets(fitter), Rows(memory, fitter))
    kept = [] if own is None else [Candidate(own.value, own)]
    found = branch_and_bound(problem, Parameters(gap=options.request.gap), clock=options.clock, kept=kept)
    return found.solution, [] if np.isinf(found.bound) else [found.bound]
