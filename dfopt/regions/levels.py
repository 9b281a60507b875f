"""Two levels, as the paper has them: the sharding that is best by itself, and then only mappings with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.bnb import Bound, BranchingRule, OutOfTime, View
from dfopt.documents.plan import Plan
from dfopt.errors import Infeasible, NoSolution
from dfopt.milp import Termination
from dfopt.regions.region import Part, Unsharded
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.sharding.interchip import InterChipMapping, optimize_interchip
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options, record_of, reporter

__all__ = ["FirstLevel"]

_SHARE = 0.5
"""Of the work and the seconds that are left, at most, for one sharding: a hard one must leave some for the fusion."""


class FirstLevel(BranchingRule[Part]):
    """Chooses the sharding of plans: one child for every number of tiles, which holds no other sharding."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def children(self, region: Part, bound: Bound, view: View) -> Sequence[tuple[Part, float]] | None:
        """The plans with the sharding that is best by itself; none where it is chosen.

        Raises
        ------
        KeyboardInterrupt
            If the solve was interrupted.
        OutOfTime
            If there was no time for any sharding.
        """
        if not isinstance(region, Unsharded) or region.menu is None:
            return None
        menu = region.menu
        try:
            found = self._solved(menu, region.plans.plans[0])
        except Infeasible:  # schemes that are pinned contradict each other
            return [(region, np.inf)]
        except NoSolution as error:
            raise OutOfTime from error
        if found.interrupted:
            raise KeyboardInterrupt
        regions = region.space.regions_of(region.plans, menu, menu.tiled(found.sharding), _as_chosen(found, menu))
        return [(one, bound.value) for one in regions] or [(region, np.inf)]  # partitions cannot be as asked for

    def _solved(self, menu: Menu, plan: Plan) -> InterChipMapping:
        """The sharding that is best by itself."""
        asked = self._options
        return optimize_interchip(
            menu.instance.setting,
            menu.tables,
            gap=0.0,  # a gap is left to the fusion: what is optimal for a level has to be this sharding
            clock=asked.clock.share(_SHARE).sooner(_SHARE),
            solver=asked.request.solver,
            progress=reporter(asked, plan, "interchip"),
        )


def _as_chosen(found: InterChipMapping, menu: Menu) -> ShardedFirst:
    """What is shown of a sharding; a solver may stop without any bound."""
    low = found.objective * (1 - min(found.solution.gap, 1.0))
    tables, stages = menu.tables, [found.stage[kernel.name] for kernel in menu.instance.graph.kernels]
    return ShardedFirst(
        record=record_of("interchip", 0, "assignment", found.solution, found.objective, low, found.unit),
        proven=found.solution.termination in (Termination.OPTIMAL, Termination.GAP_REACHED),
        alone=len(tables.kernel_o) == tables.kernels and tables.stages == 1,
        stage_k=tuple(stages) if tables.stages > 1 else None,
    )
