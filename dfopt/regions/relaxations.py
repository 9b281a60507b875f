"""Bounds of regions, the cheapest first."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from dfopt.arrays import Floats
from dfopt.bnb import Bound, Clock, Relaxation
from dfopt.regions.dual import untiled
from dfopt.regions.facts import FactCache, Facts
from dfopt.regions.lattices import sides_of
from dfopt.regions.region import Branch, Region, Unlisted, Unsharded, listed
from dfopt.terms.chip import chip_of
from dfopt.terms.step.roofline import least_step


class LeastOfGraph(Relaxation[Branch, float]):
    """What a step takes at least under any plan, as all chips have so much to do."""

    name = "least step of a graph"

    def applies(self, region: Branch) -> bool:
        """Whether its plans are not listed."""
        return isinstance(region, Unlisted)

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """A hundred units of work for each graph."""
        clock.charge(100.0 * len(regions))
        return [least_step(region.space.setting) for region in regions if isinstance(region, Unlisted)]


class OfClass(Relaxation[Branch, float]):
    """A relaxation of what is left of a class of plans: one unit of work for each region."""

    def __init__(self, memory: FactCache) -> None:
        self._memory = memory

    def applies(self, region: Branch) -> bool:
        """Whether the plans are listed."""
        return isinstance(region, Region)

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """What :meth:`shown` says of the facts of each region."""
        clock.charge(len(regions))
        return [self.shown(self._memory.of(region), cutoff) for region in listed(regions)]

    def shown(self, facts: Facts, cutoff: float) -> float:
        """Seconds of a step that no member of a region is below; of interest up to the cutoff."""
        raise NotImplementedError


class LeastStep(OfClass):
    """The least step of the plans that are left, by the least work of kernels and without a look at options."""

    name = "least step of plans"

    def shown(self, facts: Facts, cutoff: float) -> float:
        """The least of the plans."""
        return float(facts.region.of.least_i[facts.region.plan_i].min(initial=math.inf))


class LeastUntiled(Relaxation[Branch, float]):
    """The dual of every kind of layer by charges that no number of tiles decides, such as those of communication.

    Many classes are above the cutoff by these alone. This shows it of several numbers of tiles at once.
    """

    name = "resources of layers in any tiles"

    def applies(self, region: Branch) -> bool:
        """Whether it is a whole class, with options to choose from."""
        return isinstance(region, Region) and region.is_whole and region.vectors > 1

    def key(self, region: Branch) -> Hashable:
        """Plans, options and blocks."""
        [region] = listed([region])
        return region.of.table_of_plans, region.of.menu, region.arcs_k

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """The least of the plans: one unit of work for each region."""
        clock.charge(len(regions))
        classes = [region.of for region in listed(regions)]
        layers = [untiled(of.menu, of.chip, [arcs.side_k for arcs in of.arcs_k]) for of in classes]
        return [float(of.table_of_plans.seconds(layer_k).min()) for of, layer_k in zip(classes, layers, strict=True)]


class LeastUntiledOfStages(Relaxation[Branch, Floats]):
    """The same of a plan whose pipeline stages are open, and are decided by a program: that takes long.

    All stages together take no less than a layer of all kernels, whichever of them has which: so the slowest has its
    share at least.
    """

    name = "resources of open stages in any tiles"

    def applies(self, region: Branch) -> bool:
        """Whether it is one such plan, whose sharding is not to be chosen first."""
        if not isinstance(region, Unsharded) or region.menu is not None:
            return False
        return region.space.jointly and len(region.plans.plans) == 1

    def key(self, region: Branch) -> Hashable:
        """What a chip does, whatever the stages."""
        return _of_plan(region).space.menu(_of_plan(region).plans.instances[0])

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[Floats]:
        """One unit of work for each region."""
        clock.charge(len(regions))
        seconds = list[Floats]()
        for region in map(_of_plan, regions):
            menu = region.space.menu(region.plans.instances[0])
            chip = chip_of(menu.instance.system, menu.instance.assumptions)
            seconds.append(untiled(menu, chip, [sides_of(menu.instance)]))
        return seconds

    def bound(self, region: Branch, answer: Floats) -> Bound:
        """The least of the plan."""
        return Bound(float(_of_plan(region).plans.seconds(answer)[0]))


def _of_plan(region: Branch) -> Unsharded:
    """A region that is known to be of a plan with open stages."""
    assert isinstance(region, Unsharded)
    return region


class LeastWork(OfClass):
    """Resources of whole layers: the Lagrangean dual of every kind of layer, found by elimination."""

    name = "resources of layers"

    def applies(self, region: Branch) -> bool:
        """Whether there are options, or blocks that are not listed: else a path shows all that is shown here."""
        return isinstance(region, Region) and not region.is_path

    def shown(self, facts: Facts, cutoff: float) -> float:
        """By the dual."""
        return facts.by_dual


class OfUnlisted(OfClass):
    """A relaxation of what is left of a class of plans where not all blocks are listed."""

    def applies(self, region: Branch) -> bool:
        """Whether some are not, and there are options: a leaf decides one vector."""
        return isinstance(region, Region) and not region.complete and region.vectors > 1


class PiecesOverOptions(OfUnlisted):
    """The best options and partitions together, of a layer that is long."""

    name = "pieces over options"

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """25 units of work for a step between what is left of a layer, and one for forty prices."""
        return [self._memory.of(region).choose_together(cutoff, clock) for region in listed(regions)]


class GeneratedBlocks(OfUnlisted):
    """The best partitions with every block at the least of its amounts."""

    name = "blocks over least prices"

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """What the solves charge."""
        return [self._memory.of(region).generate(cutoff, clock) for region in listed(regions)]


class PathBound(OfClass):
    """The shortest path over the down-sets, every block at the least of its amounts."""

    name = "path over least prices"

    def shown(self, facts: Facts, cutoff: float) -> float:
        """By the paths, and all else that is shown."""
        return facts.by_all


class CapacityBound(OfClass):
    """Cuts for the plan with the least step, where the options that are fastest do not fit its memory."""

    name = "capacity of stages"

    def applies(self, region: Branch) -> bool:
        """Whether a memory has a limit, and there are options: one vector fits a plan or does not."""
        return isinstance(region, Region) and region.of.holding.limited and not region.is_path

    def shown(self, facts: Facts, cutoff: float) -> float:
        """By further cuts, and all else that is shown."""
        facts.tighten(cutoff)
        return facts.by_all
