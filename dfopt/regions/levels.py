"""Two levels, as the paper has them: the sharding that is best by itself, and then only mappings with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dfopt.bnb import Bound, BranchingRule, OutOfTime, View
from dfopt.errors import Infeasible, NoSolution
from dfopt.milp import Termination
from dfopt.regions.region import Branch, Unsharded
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options

if TYPE_CHECKING:
    from dfopt.sharding.interchip import InterChipMapping


class FirstLevel(BranchingRule[Branch]):
    """Two-level branching: first choose the best sharding of the plans, one child for every number of tiles."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def children(self, region: Branch, bound: Bound, view: View) -> Sequence[tuple[Branch, float]] | None:
        """The plans with their chosen sharding; None where it is chosen already.

        Parameters
        ----------
        region, bound, view
            As for :meth:`dfopt.bnb.entries.BranchingRule.children`.

        Raises
        ------
        KeyboardInterrupt
            If the solve was interrupted.
        OutOfTime
            If there was no time for any sharding.
        """
        if not isinstance(region, Unsharded) or region.menu is None:
            return None
        from dfopt.solving.levels import best_sharding  # not for those who never ask

        menu = region.menu
        try:
            mapping = best_sharding(region.plans.instances[0], menu.tables, self._options)
        except Infeasible:  # schemes that are pinned contradict each other
            return [(region, np.inf)]
        except NoSolution as error:
            raise OutOfTime from error
        if mapping.interrupted:
            raise KeyboardInterrupt
        regions = region.space.regions_of(region.plans, menu, menu.tiled(mapping.sharding), _as_chosen(mapping, menu))
        return [(part, bound.value) for part in regions] or [(region, np.inf)]  # partitions cannot be as asked for


def _as_chosen(mapping: InterChipMapping, menu: Menu) -> ShardedFirst:
    """What is shown of a sharding."""
    from dfopt.solving.levels import sharding_record

    tables, stages = menu.tables, [mapping.stage[kernel.name] for kernel in menu.instance.graph.kernels]
    return ShardedFirst(
        record=sharding_record(mapping),
        proven=mapping.solution.termination in (Termination.OPTIMAL, Termination.GAP_REACHED),
        alone=len(tables.kernel_o) == tables.kernels and tables.stages == 1,
        stage_k=tuple(stages) if tables.stages > 1 else None,
    )
