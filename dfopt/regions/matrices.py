"""The paper's program as a leaf: one plan in one number of tiles is one MILP over assignment matrices."""

from __future__ import annotations

from dataclasses import replace

from dfopt.bnb import Bound, Clock, LeafAnswer, LeafSolver, OutOfTime, View
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.facts import FactCache
from dfopt.regions.heuristics import Rounding
from dfopt.regions.judged import JudgedMapping, priced
from dfopt.regions.region import Branch, Region, listed
from dfopt.solving.matrices import from_start
from dfopt.solving.options import Options
from dfopt.solving.solved import Pruned, Solved, fused


class MatrixProgram(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver: one MILP over the assignment matrices of the paper, for schemes and partitions of one plan."""

    def __init__(self, memory: FactCache, rounding: Rounding, options: Options) -> None:
        self._memory, self._rounding, self._options = memory, rounding, options

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether a single plan is left."""
        return isinstance(region, Region) and len(region.plans) == 1

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The mapping that the MILP finds, with its bound; when time is over, the mapping that it started from.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.

        Raises
        ------
        OutOfTime
            If the clock was over before there was any mapping.
        """
        [region] = listed([region])
        try:
            answer = self._solved(region, view.cutoff)
        except Infeasible:
            return LeafAnswer([])
        return JudgedMapping.answer(answer, bound.value, self._options.request)

    def _solved(self, region: Region, cutoff: float) -> Solved | Pruned:
        of, [plan] = region.of, region.plans
        best = self._rounding.best(self._memory.of(region), cutoff)
        first: Solved | None = None if best is None else best.solution.solved
        if of.sharded_first is None:
            return from_start(of.instance(plan), self._options, of.menu, of.tiles, first, cutoff)
        [option_k] = of.table.vectors(region.domain)
        ready = priced(of, plan, option_k.tolist(), self._options)
        try:
            return fused(ready, self._options, [of.sharded_first.record], cutoff)
        except NoSolution as error:
            if first is None:
                raise OutOfTime from error
            return replace(first, bound=0.0)
