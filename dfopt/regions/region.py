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
    """Interface of a mapping space whose plans can be listed."""

    @property
    def setting(self) -> Setting:
        """Graph, system and resolved assumptions."""

    @property
    def listable(self) -> bool:
        """Whether the plans of the space may be listed now."""

    @property
    def jointly(self) -> bool:
        """Whether sharding schemes are chosen jointly with partitions rather than first."""

    def menu(self, instance: Instance) -> Menu:
        """Sharding options and figures of a layer, for any pipeline stages of its kernels."""

    @property
    def unclassed(self) -> Unclassed | None:
        """A region of all plans that may fit the memories; None if there are none."""

    def in_classes(self, plans: Collection[Plan]) -> Sequence[Region | Undivided | Unsharded]:
        """Disjoint regions that cover all mappings under some plans."""

    def of_plan(self, plan: PlanTable) -> Sequence[Region | Undivided | Unsharded]:
        """Disjoint regions that cover all mappings of a plan with open pipeline stages."""

    def regions_of(
        self,
        plans: PlanTable,
        menu: Menu,
        counts: Iterable[tuple[int, Domain]],
        sharded_first: ShardedFirst | None = None,
    ) -> Sequence[Region | Undivided]:
        """One region for each number of tiles.

        Parameters
        ----------
        plans, menu : PlanTable, Menu
            The plans, and the options of their kernels.
        counts : iterable of (int, Domain)
            Numbers of tiles, each with the options allowed with it.
        sharded_first : ShardedFirst, optional
            Record of the sharding solve, if the sharding was chosen first.
        """


@dataclass(frozen=True, eq=False)
class Unlisted:
    """Region of all mappings of a graph whose plans are not listed yet.

    Attributes
    ----------
    space : MappingSpace
        The mappings.
    """

    space: Classes


@dataclass(frozen=True, eq=False)
class Unclassed:
    """Region of mappings under plans that are listed but not yet divided into classes.

    Attributes
    ----------
    space : MappingSpace
        All mappings of the graph.
    groups : tuple
        By group of plans under which a chip has the same layers, a lower bound on the step, s, under each plan. The
        group with the least bound comes first, apart from rounding.
    opened : int
        Groups of the graph that are in classes already.
    """

    space: Classes
    groups: tuple[Mapping[Plan, float], ...]
    opened: int = 0

    @cached_property
    def least(self) -> float:
        """Lower bound on the step, s, over all plans of the region."""
        return min(low for _, low in self.lows)

    @property
    def lows(self) -> Iterator[tuple[Plan, float]]:
        """Every plan with a lower bound on its step, s."""
        return chain.from_iterable(group.items() for group in self.groups)


@dataclass(frozen=True, eq=False)
class Unsharded:
    """Region of plans whose sharding or pipeline stages are chosen first, and are not chosen yet.

    Attributes
    ----------
    space : MappingSpace
        All mappings of the graph.
    plans : PlanTable
        The plans as arrays.
    menu : Menu, optional
        Options and figures of the layer, shared by the plans. None: kernels of an unrolled graph may be in any pipeline
        stage, and every plan has its own menu, which is made once the plan is alone in the region.
    """

    space: Classes
    plans: PlanTable
    menu: Menu | None = None

    @cached_property
    def least(self) -> float:
        """Lower bound on the step, s, over all plans of the region, for any sharding."""
        return float(self.plans.least_i.min())

    @property
    def lows(self) -> Iterator[tuple[Plan, float]]:
        """Every plan with a lower bound on its step, s."""
        return zip(self.plans.plans, self.plans.least_i.tolist(), strict=True)


@dataclass(frozen=True, eq=False)
class Undivided:
    """Region of one plan whose pipeline stages are open or chosen first; one program solves it as a whole.

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
        """The plan, as an int array of one place in the group."""
        return np.array(self.plans, dtype=np.int64)


@dataclass(frozen=True)
class Region:
    """Mappings under some plans of one class, with some options and blocks left.

    Attributes
    ----------
    of : PlanClass
        The class: table of charges, number of tiles, all of its plans.
    domain : Domain
        Indices of the remaining options of every kernel.
    plans : tuple of int
        The plans that are left, as places among those of the class, ascending.
    arcs_k : tuple of Arcs
        Remaining blocks of each kind of layer, and the down-sets that they join. Mappings with any other block are no
        members, unless a kind of layer has too many blocks to list.
    """

    of: PlanClass
    domain: Domain
    plans: tuple[int, ...]
    arcs_k: tuple[Arcs, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the region still has all mappings of its class."""
        of = self.of
        return self.domain is of.domain and self.arcs_k is of.arcs_k and len(self.plans) == len(of.plans)

    @property
    def complete(self) -> bool:
        """Whether the lattices list all blocks that members may use."""
        return all(arcs.complete for arcs in self.arcs_k)

    @property
    def is_path(self) -> bool:
        """Whether only blocks are left to choose: one option for every kernel, and all blocks are listed."""
        return self.vectors == 1 and self.complete

    @property
    def vectors(self) -> int:
        """Number of vectors of options: the product of the options left to each kernel."""
        return math.prod(map(len, self.domain))

    @property
    def plan_i(self) -> Ints:
        """The remaining plans: int array of places in the class."""
        return np.array(self.plans, dtype=np.int64)


Branch = Unlisted | Unclassed | Unsharded | Undivided | Region
"""What the mapping problem is divided into: graphs, plans, and classes of plans with what is left of options."""


def listed(parts: Iterable[Branch]) -> list[Region]:
    """The given parts, checked to be regions of classes.

    Raises
    ------
    TypeError
        If plans or sharding of one are open: a bug of the caller.
    """
    regions = []
    for part in parts:
        if not isinstance(part, Region):
            raise TypeError("the plans of a graph are not listed yet, or their sharding is not chosen")
        regions.append(part)
    return regions


def surrounds(part: Branch, plan: Plan, model: Graph) -> bool:
    """Whether a part contains all mappings of the class of a given plan and graph.

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
