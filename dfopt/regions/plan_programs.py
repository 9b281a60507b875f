"""Plans whose pipeline stages are open, or were chosen first, each decided as a whole by programs of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dfopt.bnb import Bound, Clock, LeafAnswer, LeafSolver, OutOfTime, View
from dfopt.errors import Infeasible, NoSolution
from dfopt.regions.judged import JudgedMapping, cutoffs_of, priced
from dfopt.regions.region import Branch, Undivided
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options
from dfopt.solving.solved import Pruned, Solved, fused

if TYPE_CHECKING:
    from dfopt.sharding.interchip import InterChipMapping


class PlanPrograms(LeafSolver[Branch, JudgedMapping]):
    """Leaf solver by MILPs for one plan whose pipeline stages are open, or were chosen with the sharding.

    Where the sharding comes first, and stages with it, the partitions of every stage are fused as they are best. Where
    a program over all would be large, they are, too: that is a mapping, and shows nothing.

    Parameters
    ----------
    options : Options
        The request under way.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._shardings: dict[Menu, InterChipMapping] = {}

    def accepts(self, region: Branch, bound: Bound) -> bool:
        """Whether the region is one plan with open or previously chosen stages."""
        return isinstance(region, Undivided)

    def solve(self, region: Branch, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The mapping that the MILPs find, with its bound.

        Parameters
        ----------
        region, bound, view, clock
            As for :meth:`dfopt.bnb.entries.LeafSolver.solve`.

        Raises
        ------
        OutOfTime
            If the clock was over before there was any mapping.
        """
        assert isinstance(region, Undivided)
        of, [plan] = region.of, region.plans
        cutoff, by_level = float(cutoffs_of(view, of)[plan]), of.sharded_first is not None
        try:
            answer = self._by_level(region, cutoff) if by_level else self._together(region, cutoff)
        except Infeasible:
            return LeafAnswer([])
        except (NoSolution, OutOfTime) as error:
            if clock.over:
                raise OutOfTime from error
            return LeafAnswer([], bound.value)
        return JudgedMapping.answer(answer, bound.value, self._options.request)

    def _by_level(self, region: Undivided, cutoff: float) -> Solved | Pruned:
        """The best partitions with the sharding and the stages that were chosen."""
        of, [plan] = region.of, region.plans
        assert of.sharded_first is not None
        option_k, first = [option for [option] in of.domain], of.sharded_first
        ready = priced(of, plan, option_k, self._options, first.stage_k, listed=True)
        return fused(ready, self._options, [first.record], cutoff)

    def _together(self, region: Undivided, cutoff: float) -> Solved | Pruned:
        """The best schemes, stages and partitions."""
        from dfopt.solving.levels import by_levels  # not for those who never ask
        from dfopt.solving.matrices import from_levels, solved_together

        of, [plan], options = region.of, region.plans, self._options
        instance, choose = of.instance(plan), partial(self._sharding, region)
        if solved_together(instance.graph, instance.plan, options.request):
            return from_levels(instance, options, of.menu, of.tiles, cutoff, choose)
        solved = by_levels(instance, choose, options, of.tiles)
        return Pruned(0.0, ()) if solved is None else replace(solved, bound=0.0)

    def _sharding(self, region: Undivided) -> InterChipMapping:
        """The sharding that is best by itself; the numbers of tiles of a plan share it."""
        from dfopt.solving.levels import best_sharding

        of, [plan] = region.of, region.plans
        if of.menu not in self._shardings:
            self._shardings[of.menu] = best_sharding(of.instance(plan), of.menu.tables, self._options)
        return self._shardings[of.menu]
