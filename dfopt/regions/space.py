"""All mappings of a question: its plans in classes, each a region to start from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.regions.arcs import Arcs
from dfopt.regions.classes import PlanClass
from dfopt.regions.cuts import Cuts, TooMany, cuts_of
from dfopt.regions.lattices import KnownArcs, arcs_of, kinds_of
from dfopt.regions.numbering import Numbering
from dfopt.regions.plan_group import PlanGroup
from dfopt.regions.region import Region, Unclassed, Undivided, Unsharded, rounded
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import memoized
from dfopt.setting.stages import is_cut
from dfopt.solving.menu import Menu
from dfopt.terms.bounds import PlanBounds, PlanTable
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.step.ledger import offloaded
from dfopt.terms.table import Domain

OPEN: Final = 1e-9
"""Share of a memory that bounds leave open: sums of bytes are rounded, and what is a little over is left to states."""


@dataclass(frozen=True, eq=False)
class MappingSpace:
    """All mappings of a graph that a request leaves free.

    Attributes
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    request : Request
        The request, with pins and limits.
    bounds : PlanBounds
        Lower bounds of plans by the least work of kernels.
    listing : callable
        Lists the plans that may fit the memories, each with a lower bound on the step, s, over all its mappings.
    may_list : callable
        Whether there is room for the plans.
    known_arcs : dict
        Arcs of layers, which spaces of one question share.
    """

    setting: Setting
    request: Request
    bounds: PlanBounds
    listing: Callable[[], Mapping[Plan, float]]
    may_list: Callable[[], bool] = lambda: True
    known_arcs: KnownArcs = field(default_factory=dict, repr=False)

    @classmethod
    def of_plans(
        cls, setting: Setting, request: Request, plans: Sequence[Plan], known_arcs: KnownArcs | None = None
    ) -> MappingSpace:
        """The space of all mappings under given plans.

        Parameters
        ----------
        setting, request
            The setting, and what the request fixes.
        plans
            The plans of the space.
        known_arcs : KnownArcs, optional
            Lattices of stages that are known already. New ones are added to it.
        """
        bounds, arcs = PlanBounds(setting), {} if known_arcs is None else known_arcs
        return cls(setting, request, bounds, partial(_fitting, bounds, plans), known_arcs=arcs)

    @property
    def listable(self) -> bool:
        """Whether the plans of the space may be listed now."""
        return self.may_list()

    @cached_property
    def least(self) -> Mapping[Plan, float]:
        """Every plan that may fit the memories, with a lower bound on its step, s."""
        return self.listing()

    @cached_property
    def _arcs_of_setting(self) -> dict[Setting, list[tuple[Arcs | None, Numbering]]]:
        return {}

    def _arcs(self, instance: Instance) -> list[tuple[Arcs | None, Numbering]]:
        """By kind of layer, as a chip sees it: with a second axis it has a part of the graph."""
        setting = instance.setting
        if setting not in self._arcs_of_setting:
            kinds = kinds_of(instance)
            self._arcs_of_setting[setting] = [arcs_of(instance, kind, self.request, self.known_arcs) for kind in kinds]
        return self._arcs_of_setting[setting]

    @cached_property
    def _cut(self) -> dict[Setting, Cuts | TooMany | None]:
        return {}

    def _cuts(self, instance: Instance) -> Cuts | TooMany | None:
        """Where a chip's part of the graph may be cut into pipeline stages; none if no partitions are as asked for."""
        if instance.setting not in self._cut:
            [(arcs, numbering)] = self._arcs(instance)
            try:
                self._cut[instance.setting] = cuts_of(instance, arcs, numbering, self.request)
            except TooMany as error:
                self._cut[instance.setting] = error
        return self._cut[instance.setting]

    def _is_whole(self, plan: Plan) -> bool:
        """Whether the stages of a plan are open, and their partitions are not listed.

        Nobody lists them where the sharding comes first, and stages with it, or programs are asked for. What slower
        memories hold while a graph trains is counted by layers.
        """
        if not is_cut(self.setting.graph, plan):
            return False
        instance = self.setting.under(plan)
        if not self.jointly or self.request.formulation == "assignment" or offloaded(instance):
            return True
        return isinstance(self._cuts(instance), TooMany)

    @cached_property
    def unclassed(self) -> Unclassed | None:
        """A region of all plans that may fit the memories; None if there are none."""
        of_chip: dict[Instance, dict[Plan, float]] = {}
        group_of: dict[Hashable, dict[Plan, float]] = {}
        for plan, least in self.least.items():
            if (key := plan.apart_from_stages) not in group_of:
                group_of[key] = of_chip.setdefault(self.setting.under(plan).on_chip, {})
            group_of[key][plan] = least
        groups = sorted(of_chip.values(), key=_simplest)
        return Unclassed(self, tuple(groups)) if groups else None

    @cached_property
    def roots(self) -> list[Region | Undivided | Unsharded]:
        """The root regions of the search: disjoint, and together all mappings."""
        return self.in_classes(self.least)

    def in_classes(self, plans: Collection[Plan]) -> list[Region | Undivided | Unsharded]:
        """Disjoint regions that cover all mappings under some plans: one for every class and number of tiles.

        Where the sharding comes first, one for every class until that is chosen.
        """
        is_whole = {plan: self._is_whole(plan) for plan in plans}
        tables = self.bounds.tables(plan for plan, undivided in is_whole.items() if undivided)
        regions: list[Region | Undivided | Unsharded] = [Unsharded(self, table) for table in tables]
        for menu, alike in self._menus(plan for plan, undivided in is_whole.items() if not undivided):
            [table] = self.bounds.tables(alike)
            regions += self.regions_of(table, menu, _domains(menu)) if self.jointly else [Unsharded(self, table, menu)]
        return regions

    def of_plan(self, plan: PlanTable) -> Sequence[Region | Undivided | Unsharded]:
        """Disjoint regions that cover all mappings of a plan with open pipeline stages, one for each number of tiles.

        Where the sharding comes first, and stages with it, the plan with the options that these are chosen of.
        """
        shared = plan.instances[0].shared
        menu = Menu(shared, self.request.pin_sharding)
        if not self.jointly:
            return [Unsharded(self, plan, menu)]
        return self.regions_of(plan, menu, _domains(menu))

    @property
    def jointly(self) -> bool:
        """Whether sharding schemes are chosen jointly with partitions rather than first."""
        return self.setting.assumptions.sharding_objective == "joint"

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
        if self._is_whole(plans.plans[0]):
            groups = [PlanGroup(menu, tiles, domain, plans, sharded_first) for tiles, domain in counts]
            return [Undivided(group, (0,)) for group in groups]
        listed, numbering_k = zip(*self._arcs(menu.instance), strict=True)
        are_cut = is_cut(self.setting.graph, plans.plans[0])
        cuts = self._cuts(menu.instance) if are_cut else None
        assert not isinstance(cuts, TooMany), "such plans are decided as a whole"
        if are_cut:
            listed = (None if cuts is None else cuts.arcs,)
        arcs_k = tuple(arcs for arcs in listed if arcs is not None)
        if len(arcs_k) < len(listed):  # partitions cannot be as asked for
            return []
        every = tuple(range(len(plans.plans)))
        classes = [
            PlanClass(menu, tiles, domain, plans, sharded_first, arcs_k, numbering_k, cuts) for tiles, domain in counts
        ]
        return [Region(of, of.domain, every, arcs_k) for of in classes]

    def menu(self, instance: Instance) -> Menu:
        """Sharding options and figures of a layer, for any pipeline stages of its kernels."""
        return self._menu(instance.on_chip)

    @memoized
    def _menu(self, shared: Instance) -> Menu:
        return Menu(shared, self.request.pin_sharding)

    def _menus(self, plans: Iterable[Plan]) -> list[tuple[Menu, list[Plan]]]:
        """Some plans, with the menu that they share.

        A sharding that comes first is chosen by other figures than those of the menu's signature.
        """
        alike: dict[tuple[object, ...], tuple[Menu, list[Plan]]] = {}
        group_of: dict[Hashable, list[Plan]] = {}
        for plan in plans:
            if (group := plan.apart_from_stages) not in group_of:
                menu = self.menu(self.setting.under(plan))
                signature = menu.signature if self.jointly else (menu.instance,)
                key = menu.instance.setting, bool(plan.two_batch_overlap), *signature, is_cut(self.setting.graph, plan)
                group_of[group] = alike.setdefault(key, (menu, []))[1]
            group_of[group].append(plan)
        return list(alike.values())


def _fitting(bounds: PlanBounds, plans: Sequence[Plan]) -> dict[Plan, float]:
    """Plans that may fit the memories, with seconds of a step at least under each."""
    fitting = dict[Plan, float]()
    for table in bounds.tables(plans):
        fits_i = table.used_i <= 1 + OPEN
        pairs = zip(table.plans, table.least_i.tolist(), fits_i.tolist(), strict=True)
        fitting.update((plan, seconds) for plan, seconds, fits in pairs if fits)
    return fitting


def _simplest(group: Mapping[Plan, float]) -> tuple[float, int, int]:
    """What orders groups of plans: seconds at least; of those that are as fast, the fewest chips that share kernels."""
    plan = min(group, key=group.__getitem__)
    return rounded(group[plan]), plan.shards * plan.members, plan.stages


def _domains(menu: Menu) -> Sequence[tuple[int, Domain]]:
    """Numbers of tiles with the options that go with each: chips that share no rows of a tile may have smaller ones."""
    graph, assumptions, unshared = menu.instance.graph, menu.instance.assumptions, menu.unshared
    shared = tile_counts(graph, assumptions, menu.instance.plan.shards if unshared != menu.domain else 1)
    others = [tiles for tiles in tile_counts(graph, assumptions) if tiles not in shared]
    return [(tiles, menu.domain) for tiles in shared] + [(tiles, unshared) for tiles in others if all(unshared)]
