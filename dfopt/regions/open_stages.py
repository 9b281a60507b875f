"""Bounds of plans with open pipeline stages, whose kernels may be in any stage.

All stages together take no less than one layer of all kernels, however kernels are assigned to them: their blocks are
blocks of that layer, at the same prices. So the slowest takes at least its share.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.bnb import Bound, Clock, Relaxation
from dfopt.errors import Infeasible
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.regions.dual import untiled
from dfopt.regions.fusing import for_blocks, fused_stage
from dfopt.regions.lattices import rule_of_passes, sides_of
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.region import Branch, Undivided, Unsharded
from dfopt.terms.chip import chip_of


class LeastUntiledOfStages(Relaxation[Branch, Floats]):
    """Dual bound from charges that tiles do not change, for a plan with open pipeline stages."""

    name = "resources of open stages in any tiles"

    def applies(self, region: Branch) -> bool:
        """Whether the region is one plan with open stages whose sharding is not chosen first."""
        if not isinstance(region, Unsharded) or region.menu is not None:
            return False
        return region.space.jointly and len(region.plans.plans) == 1

    def key(self, region: Branch) -> Hashable:
        """The work of a chip, which is the same for all stages."""
        return _of_plan(region).space.menu(_of_plan(region).plans.instances[0])

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[Floats]:
        """Lower bounds on layer seconds, s; charges one unit of work for each region.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        clock.charge(len(regions))
        seconds = list[Floats]()
        for region in map(_of_plan, regions):
            menu = region.space.menu(region.plans.instances[0])
            chip = chip_of(menu.instance.system, menu.instance.assumptions)
            seconds.append(untiled(menu, chip, [sides_of(menu.instance)]))
        return seconds

    def bound(self, region: Branch, answer: Floats) -> Bound:
        """Lower bound on the step of the plan, from layer seconds."""
        return Bound(float(_of_plan(region).plans.seconds(answer)[0]))


def _of_plan(region: Branch) -> Unsharded:
    """A region that is known to be of a plan with open stages."""
    assert isinstance(region, Unsharded)
    return region


class LayerSeconds(NamedTuple):
    """Lower bound on the seconds of all kernels as one layer.

    Attributes
    ----------
    low : float, s
        The bound.
    cut_off : bool
        Whether it is what reached the cutoff of some plan, so that more work may show more for another one.
    """

    low: float
    cut_off: bool


class BlocksOfStages(Relaxation[Branch, LayerSeconds]):
    """Bound by the best partitions of all kernels as one stage, with every figure at its least over the options."""

    name = "blocks of open stages"

    def applies(self, region: Branch) -> bool:
        """Whether the region is one plan with open stages in a number of tiles, whose sharding is not chosen first."""
        return isinstance(region, Undivided) and region.of.sharded_first is None

    def key(self, region: Branch) -> Hashable:
        """The work of a chip, and the tiles."""
        of = _undivided(region).of
        return of.instance(0).on_chip, of.tiles, of.domain

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[LayerSeconds]:
        """Lower bounds on layer seconds; the solves charge their work.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        return [_layer_seconds(region.of, cutoff, for_blocks(clock)) for region in map(_undivided, regions)]

    def bound(self, region: Branch, answer: LayerSeconds) -> Bound:
        """Lower bound on the step of the plan, from layer seconds."""
        seconds = _undivided(region).of.table_of_plans.seconds(np.array([answer.low]))
        return Bound(float(seconds[0]), more=answer.cut_off)

    def refine(self, region: Branch, answer: LayerSeconds, cutoff: float, clock: Clock) -> LayerSeconds:
        """The answer for a plan that needs more seconds of a layer to reach the cutoff than that of another one."""
        [finer] = self.answers([region], cutoff, clock)
        return LayerSeconds(max(answer.low, finer.low), finer.cut_off and finer.low > answer.low)


def _undivided(region: Branch) -> Undivided:
    """A region that is known to be of one plan as a whole."""
    assert isinstance(region, Undivided)
    return region


def _layer_seconds(of: PlanGroup, cutoff: float, clock: Clock) -> LayerSeconds:
    """Lower bound on the seconds of all kernels in any number of partitions, whatever the order of the passes."""
    try:
        stage = of.stage_of(np.arange(len(of.domain)), of.domain)
    except Infeasible:
        return LayerSeconds(np.inf, cut_off=False)
    rule = rule_of_passes(of.instance(0))
    limits = IntraChipLimits(stage.kernels, forward_backward="separate" if rule == "halves" else rule)
    most = of.table_of_plans.most(cutoff)
    low = fused_stage(stage, limits, most, clock).low
    return LayerSeconds(low, cut_off=most <= low < np.inf)
