"""A region of mappings: a class of plans, some of its plans, and the options and blocks that are left."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol

import numpy as np

from dfopt.arrays import Ints
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.regions.arcs import Arcs
from dfopt.regions.classes import PlanClass
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.menu import Menu
from dfopt.terms.bounds import PlanTable
from dfopt.terms.table import Domain

__all__ = [
    "Branch", "Classes", "Region", "Unclassed", "Undivided", "Unlisted", "Unsharded", "listed", "rounded", "surrounds",
]  # fmt: skip


class Classes(Protocol):
    """A space whose plans can be listed."""

    @property
    def setting(self) -> Setting:
        """Graph, system and resolved assumptions."""

    @property
    def listable(self) -> bool:
        """Whether its plans may be listed."""

    @property
    def jointly(self) -> bool:
        """Whether schemes are chosen with partitions, and not first."""

    def menu(self, instance: Instance) -> Menu:
        """Options and figures of a layer, whatever stages its kernels are in."""

    @property
    def unclassed(self) -> Unclassed | None:
        """All plans that may fit the memories; none if there are none."""

    def in_classes(self, plans: Collection[Plan]) -> Sequence[Region | Undivided | Unsharded]:
        """Regions that hold all mappings under some plans, each in one."""

    def of_plan(self, plan: PlanTable) -> Sequence[Region | Undivided | Unsharded]:
        """Regions that hold all mappings of a plan with open pipeline stages, each in one."""

    def regions_of(
        self,
        plans: PlanTable,
        menu: Menu,
        counts: Iterable[tuple[int, Domain]],
        sharded_first: ShardedFirst | None = None,
    ) -> Sequence[Region | Undivided]:
        """A region for each of some numbers of tiles with the options that go with it."""


@dataclass(frozen=True, eq=False)
class Unlisted:
    """All mappings of a graph, whose plans are not listed yet.

    Attributes
    ----------
    space : MappingSpace
        The mappings.
    """

    space: Classes


@dataclass(frozen=True, eq=False)
class Unclassed:
    """Mappings under some plans, of which it is not known yet what a chip does.

    Attributes
    ----------
    space : MappingSpace
        All mappings of the graph.
    groups : tuple
        Plans under which a chip has the same layers: seconds of a step at least under each of them. The group with the
        least seconds comes first, but for rounding.
    opened : int
        Groups of the graph that are in classes already.
    """

    space: Classes
    groups: tuple[Mapping[Plan, float], ...]
    opened: int = 0

    @cached_property
    def least(self) -> float:
        """Seconds of a step at least under any of the plans."""
        return min(low for _, low in self.lows)

    @property
    def lows(self) -> Iterator[tuple[Plan, float]]:
        """Every plan with seconds of a step at least under it."""
        return chain.from_iterable(group.items() for group in self.groups)


@dataclass(frozen=True, eq=False)
class Unsharded:
    """Mappings under some plans whose sharding is chosen first, or with open pipeline stages, and is not chosen yet.

    Attributes
    ----------
    space : MappingSpace
        All mappings of the graph.
    plans : PlanTable
        The plans as arrays.
    menu : Menu, optional
        Options and figures of the layer, shared by the plans. None: kernels that are drawn once may be in any pipeline
        stage, and every plan has a menu of its own, which is made as soon as the plan is alone.
    """

    space: Classes
    plans: PlanTable
    menu: Menu | None = None

    @cached_property
    def least(self) -> float:
        """Seconds of a step at least under any of the plans, whatever the sharding is."""
        return float(self.plans.least_i.min())

    @property
    def lows(self) -> Iterator[tuple[Plan, float]]:
        """Every plan with seconds of a step at least under it."""
        return zip(self.plans.plans, self.plans.least_i.tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class Undivided:
    """Mappings under one plan whose pipeline stages are open, or were chosen first: a program decides them together.

    Attributes
    ----------
    of : PlanGroup
        The plan, number of tiles and options.
    plans : tuple of int
        The plan, as the only place among those of the group.
    """

    of: PlanGroup
    plans: tuple[int, ...]

    @property
    def plan_i(self) -> Ints:
        """The plan."""
        return np.array(self.plans, dtype=np.int64)


@dataclass(frozen=True)
class Region:
    """Mappings under some plans of one class.

    Attributes
    ----------
    of : PlanClass
        The class: table of charges, number of tiles, all of its plans.
    domain : Domain
        By kernel the options that are left, as places among its schemes.
    plans : tuple of int
        The plans that are left, as places among those of the class, ascending.
    arcs_k : tuple of Arcs
        By kind of layer the blocks that are left, and the down-sets that they join. Mappings with any other block are
        no members, unless a kind of layer has too many to list.
    """

    of: PlanClass
    domain: Domain
    plans: tuple[int, ...]
    arcs_k: tuple[Arcs, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all mappings of the class are left."""
        of = self.of
        return self.domain is of.domain and self.arcs_k is of.arcs_k and len(self.plans) == len(of.plans)

    @property
    def complete(self) -> bool:
        """Whether all blocks that its members may have are listed."""
        return all(arcs.complete for arcs in self.arcs_k)

    @property
    def is_path(self) -> bool:
        """Whether only its blocks are left to choose: one option of every kernel is left, and all blocks are listed."""
        return self.vectors == 1 and self.complete

    @property
    def vectors(self) -> int:
        """Number of vectors of options."""
        return math.prod(map(len, self.domain))

    @property
    def plan_i(self) -> Ints:
        """The plans that are left."""
        return np.array(self.plans, dtype=np.int64)


Branch = Unlisted | Unclassed | Unsharded | Undivided | Region
"""What the mapping problem is divided into: graphs, plans, and classes of plans with what is left of options."""


def listed(parts: Iterable[Branch]) -> list[Region]:
    """Parts that are known to be regions of classes.

    Raises
    ------
    TypeError
        If plans or sharding of one are open: that is a bug of whoever asks.
    """
    regions = []
    for part in parts:
        if not isinstance(part, Region):
            raise TypeError("the plans of a graph are not listed yet, or their sharding is not chosen")
        regions.append(part)
    return regions


def surrounds(part: Branch, plan: Plan, model: Graph) -> bool:
    """Whether a part has all mappings of the class of a plan of a graph, or that class on its own.

    Parameters
    ----------
    part : Branch
        A graph, plans, or a class of plans.
    plan : Plan
        The plan.
    model : Graph
        The graph that it is a plan of.
    """
    if isinstance(part, Region | Undivided):
        is_whole = isinstance(part, Undivided) or part.is_whole
        return is_whole and part.of.setting.model is model and (plan, model.variant) in part.of.places
    if part.space.setting.model is not model:
        return False
    if isinstance(part, Unclassed):
        return any(plan in group for group in part.groups)
    return isinstance(part, Unlisted) or plan in part.plans.plans


def rounded(seconds: float) -> float:
    """Seconds to twelve digits: sums of the same figures in another order are equal then.

    Examples
    --------
    >>> rounded(0.1 + 0.2) == rounded(0.3)
    True
    """
    return float(f"{seconds:.12g}")
