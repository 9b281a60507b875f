"""Bounds of regions, the cheapest first."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final

from dfopt.bnb import Clock, Relaxation
from dfopt.regions.dual import untiled
from dfopt.regions.facts import FactCache, Facts
from dfopt.regions.region import Branch, Region, Unlisted, listed
from dfopt.terms.step.roofline import least_step

_GRAPH: Final = 100.0
"""Units of work of the least step of a graph, about: it adds up all kernels."""


class LeastOfGraph(Relaxation[Branch, float]):
    """Bound of a graph for any plan, from the work that all chips share."""

    name = "least step of a graph"

    def applies(self, region: Branch) -> bool:
        """Whether the region is a graph whose plans are not listed."""
        return isinstance(region, Unlisted)

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s; charges 100 units of work for each graph.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        clock.charge(_GRAPH * len(regions))
        return [least_step(region.space.setting) for region in regions if isinstance(region, Unlisted)]


class OfClass(Relaxation[Branch, float]):
    """Base of relaxations of regions within a class of plans; charges one unit of work for each region."""

    def __init__(self, memory: FactCache) -> None:
        self._memory = memory

    def applies(self, region: Branch) -> bool:
        """Whether the plans of the region are in a class."""
        return isinstance(region, Region)

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s, by :meth:`shown`.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        clock.charge(len(regions))
        return [self.shown(self._memory.of(region), cutoff) for region in listed(regions)]

    def shown(self, facts: Facts, cutoff: float) -> float:
        """Lower bound on the step of all members, s; it need not be tight above ``cutoff``."""
        raise NotImplementedError


class LeastStep(OfClass):
    """Bound by the least work of kernels under each remaining plan, for any options."""

    name = "least step of plans"

    def shown(self, facts: Facts, cutoff: float) -> float:
        """The least step, s, over the remaining plans."""
        return float(facts.region.of.least_i[facts.region.plan_i].min(initial=math.inf))


class LeastUntiled(Relaxation[Branch, float]):
    """Dual bound from charges that do not depend on the number of tiles, such as communication.

    Many classes are above the cutoff by these alone. This shows it of several numbers of tiles at once.
    """

    name = "resources of layers in any tiles"

    def applies(self, region: Branch) -> bool:
        """Whether the region is a whole class with options to choose from."""
        return isinstance(region, Region) and region.is_whole and region.vectors > 1

    def key(self, region: Branch) -> Hashable:
        """Plans, options and blocks of the region, without its number of tiles."""
        [region] = listed([region])
        return region.of.table_of_plans, region.of.menu, region.arcs_k

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s; charges one unit of work for each region.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        clock.charge(len(regions))
        classes = [region.of for region in listed(regions)]
        layers = [untiled(of.menu, of.chip, [arcs.side_k for arcs in of.arcs_k]) for of in classes]
        return [float(of.table_of_plans.seconds(layer_k).min()) for of, layer_k in zip(classes, layers, strict=True)]


class LeastWork(OfClass):
    """Lagrangean dual bound from the resources of every kind of layer, computed by elimination."""

    name = "resources of layers"

    def applies(self, region: Branch) -> bool:
        """Whether options are left or blocks are not listed; otherwise the path bound is as tight."""
        return isinstance(region, Region) and not region.is_path

    def shown(self, facts: Facts, cutoff: float) -> float:
        """The dual bound on the step, s."""
        return facts.by_dual


class OfUnlisted(OfClass):
    """Base of relaxations of regions within a class whose blocks are not all listed."""

    def applies(self, region: Branch) -> bool:
        """Whether some blocks are not listed and options are left; a leaf solver handles a single vector."""
        return isinstance(region, Region) and not region.complete and region.vectors > 1


class PiecesOverOptions(OfUnlisted):
    """Bound by optimizing options and partitions together over the pieces of a long layer."""

    name = "pieces over options"

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s; charges 25 units for a step between rests and one for 40 prices.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        return [self._memory.of(region).choose_together(cutoff, clock) for region in listed(regions)]


class GeneratedBlocks(OfUnlisted):
    """Bound by the best partitions, from blocks generated on demand, each with its least charge amounts."""

    name = "blocks over least prices"

    def answers(self, regions: Sequence[Branch], cutoff: float, clock: Clock) -> list[float]:
        """Lower bounds on the step, s; the solves charge their work.

        Parameters
        ----------
        regions, cutoff, clock
            As for :meth:`dfopt.bnb.entries.Relaxation.answers`.
        """
        return [self._memory.of(region).generate(cutoff, clock) for region in listed(regions)]


class PathBound(OfClass):
    """Shortest-path bound over the down-sets, every block with its least charge amounts."""

    name = "path over least prices"

    def shown(self, facts: Facts, cutoff: float) -> float:
        """The best of the path bound and all other bounds so far, s."""
        return facts.by_all


class CapacityBound(OfClass):
    """Bound by capacity cuts, where the fastest options do not fit the memory of the plan with the least step."""

    name = "capacity of stages"

    def applies(self, region: Branch) -> bool:
        """Whether a memory has a limit and options are left; a single vector either fits a plan or does not."""
        return isinstance(region, Region) and region.of.holding.limited and not region.is_path

    def shown(self, facts: Facts, cutoff: float) -> float:
        """The best of the bound with further cuts and all other bounds so far, s."""
        facts.tighten(cutoff)
        return facts.by_all
