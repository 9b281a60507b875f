"""The paper's program as a leaf: one plan in one number of tiles is one MILP over assignment matrices."""

from __future__ import annotations

from dataclasses import replace

from dfopt.bnb import Bound, Candidate, Clock, LeafAnswer, LeafSolver, OutOfTime, View
from dfopt.errors import Infeasible, NoSolution
from dfopt.formulation.plan_model import Large, Unstated
from dfopt.regions.facts import Memory
from dfopt.regions.heuristics import Rounding
from dfopt.regions.judged import JudgedMapping, priced
from dfopt.regions.region import Part, Region, listed
from dfopt.solving.matrices import in_tiles
from dfopt.solving.options import Options
from dfopt.solving.solved import Pruned, Solved, fused

__all__ = ["Matrices"]


class Matrices(LeafSolver[Part, JudgedMapping]):
    """Schemes and partitions as one program; where the sharding comes first, the partitions of every layer as one."""

    def __init__(self, memory: Memory, rounding: Rounding, options: Options) -> None:
        self._memory, self._rounding, self._options = memory, rounding, options

    def accepts(self, region: Part, bound: Bound) -> bool:
        """Whether there is one plan."""
        return isinstance(region, Region) and len(region.plans) == 1

    def solve(self, region: Part, bound: Bound, view: View, clock: Clock) -> LeafAnswer:
        """The mapping that the program finds, with its bound; where time is over, what it starts from.

        Raises
        ------
        OutOfTime
            If the clock was over before there was any mapping.
        """
        [region] = listed([region])
        first = self._first(region, view.cutoff)
        try:
            found = self._solved(region, first, view.cutoff)
        except Infeasible:
            return LeafAnswer([])
        except (OutOfTime, NoSolution) as error:
            if first is None:
                raise OutOfTime from error
            found = first
        except KeyboardInterrupt:
            if first is None:
                raise
            found = replace(first, bound=0.0, interrupted=True)
        except (Large, Unstated):  # nobody solves it: what is shown without it stays
            found = Pruned(0.0, ())
        low = max(bound.value, found.bound)
        if isinstance(found, Pruned):
            if first is None:
                return LeafAnswer([], low)
            low = min(low, first.value)
            found = replace(first, bound=low, records=(*first.records, *found.records), limited=True)
        candidate = Candidate(found.value, JudgedMapping.of(found, self._options.request))
        return LeafAnswer([candidate], low, interrupted=found.interrupted)

    def _first(self, region: Region, cutoff: float) -> Solved | None:
        """A mapping to start from, of which nothing is shown."""
        best = self._rounding.best(self._memory.of(region), cutoff)
        return None if best is None else best.solution.solved

    def _solved(self, region: Region, first: Solved | None, cutoff: float) -> Solved | Pruned:
        of, [plan] = region.of, region.plans
        if of.sharded_first is None:
            return in_tiles(of.instance(plan), self._options, of.menu, of.tiles, first, cutoff)
        [option_k] = of.table.vectors(region.domain)
        ready = priced(of, plan, option_k.tolist(), self._options)
        return fused(ready, self._options, [of.sharded_first.record], cutoff)
