"""Regions with few vectors of options: all of them are priced exactly, or decided from the best of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.bnb import Bound, Clock, LeafAnswer, LeafSolver, View
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.facts import FactCache
from dfopt.regions.fusing import best_fusions
from dfopt.regions.judged import JudgedMapping, cutoffs_of, judged
from dfopt.regions.pricing import best_of
from dfopt.regions.reductions import below
from dfopt.regions.region import Branch, Region, listed
from dfopt.solving.options import Options
from dfopt.solving.solved import Solved

VECTORS = 512
"""Vectors of options that are priced together, at most: one product of arrays is cheaper than further branching."""


class Enumeration(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver that prices every vector of options exactly, with its best partitions and plan."""

    def __init__(self, memory: FactCache, options: Options) -> None:
        self._memory, self._options = memory, options

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether the region has few vectors of options and all blocks are listed."""
        return isinstance(region, Region) and region.vectors <= VECTORS and region.complete

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The best mappings below the cutoff, up to the requested number, by enumeration of all vectors of options.

        Fewer mappings than requested mean that no other one is below the cutoff, unless a layer has too many paths to
        list; the bound is then weaker. Each vector is one unit of work.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.
        """
        [region] = listed([region])
        clock.charge(region.vectors)
        cutoff_i, asked = cutoffs_of(view, region.of), self._options.request
        few, several = below(self._memory.of(region), cutoff_i), (asked.top, asked.distinct_in)
        vector_vk = few.of.table.vectors(few.domain)
        best = best_of(few.of, few.plan_i, few.arcs_k, vector_vk, cutoff_i[few.plan_i], *several, clock)
        candidates = [judged(region.of, each, self._options) for each in best.kept]
        lows = [each.value for each in candidates] if region.of.is_exact else [each.step_s for each in best.kept]
        last = lows[-1] if len(candidates) == asked.top else view.cutoff
        return LeafAnswer(candidates, min(last, best.others), None if region.of.is_exact else min(lows, default=None))


class Fusion(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver for one vector of options whose blocks are not all listed: best partitions under each plan."""

    def __init__(self, memory: FactCache, options: Options) -> None:
        self._memory, self._options = memory, options

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether one vector of options is left."""
        return isinstance(region, Region) and region.vectors == 1

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The best mappings below the cutoff, of different plans, up to the requested number; solves charge work.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.
        """
        [region] = listed([region])
        of, cutoff_i = region.of, cutoffs_of(view, region.of)
        plan_i = self._memory.of(region).plan_i
        [option_k] = of.table.vectors(region.domain).tolist()
        kept, low_i = best_fusions(of, plan_i, option_k, cutoff_i[plan_i], clock, self._options.request.top)
        is_kept_i = np.isin(plan_i, [mapping.plan for mapping in kept])
        others, low = (float(low_i[mine_i].min(initial=np.inf)) for mine_i in (~is_kept_i, is_kept_i))
        return LeafAnswer([judged(of, mapping, self._options) for mapping in kept], others, low if kept else None)


class Limited(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver for one plan and sharding under further limits, such as heat or budgets.

    Parameters
    ----------
    within : callable
        Function from the best mapping without the limits, and the cutoff, to the best mapping that keeps them and a
        bound on all others; the mapping is None if none is below the cutoff. It may raise Infeasible, and NoSolution if
        it finds no bound.
    options : Options
        The request under way.
    """

    def __init__(self, within: Callable[[Solved, float], LeafAnswer], options: Options) -> None:
        self._within, self._options = within, options

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether one plan and one sharding are left."""
        return isinstance(region, Region) and len(region.plans) == 1 and region.vectors == 1

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The best mapping that keeps the limits, or none if even without them nothing is below the cutoff.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.
        """
        [region] = listed([region])
        of, cutoff_i = region.of, np.full(len(region.plans), view.cutoff)
        free = best_of(of, region.plan_i, region.arcs_k, of.table.vectors(region.domain), cutoff_i, clock=clock)
        if not free.kept:
            return LeafAnswer([], min(view.cutoff, free.others) if region.complete else bound.value)
        try:
            return self._within(judged(of, free.kept[0], self._options).solution.solved, view.cutoff)
        except Infeasible:
            return LeafAnswer([])
        except NoSolution:
            return LeafAnswer([], bound.value)
