"""Plans whose schemes are still open, priced with every figure at its least: no mapping with these schemes has less."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.plan_records import SolveRecord
from dfopt.errors import Infeasible
from dfopt.fusion.downsets import Lattice
from dfopt.milp import Termination
from dfopt.physics.efficiency import memory_rows
from dfopt.setting.instance import Instance, Setting
from dfopt.sharding import interchip
from dfopt.solving import work
from dfopt.solving.candidate import Prepared, prepare
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options
from dfopt.solving.sharing import ChipWork
from dfopt.solving.sums import handed_on, meeting
from dfopt.solving.waiting import Chains, too_much
from dfopt.terms.sharded_graph import Bools, tile_counts

__all__ = ["RelaxedPlans", "covers", "open_record"]

_NOTE = "found together with the fusion"


class RelaxedPlans:
    """Prices plans of one setting with schemes left open; what plans share is worked out once.

    Parameters
    ----------
    setting : Setting
        Graph, system and resolved assumptions.
    options : Options
        What is asked for, with the clock that counts the work.
    every : bool
        Also schemes that another one replaces at no cost in time, where more than time matters.
    """

    def __init__(self, setting: Setting, options: Options, every: bool = False) -> None:
        self.setting, self.options, self.every = setting, options, every
        self.menus: dict[Instance, Menu] = {}
        self.alike: dict[tuple[Setting, tuple[object, ...]], Menu] = {}
        self.works: dict[tuple[Menu, tuple[bytes, tuple[int, ...]]], ChipWork] = {}
        self.domains: dict[Menu, list[tuple[tuple[int, ...], Bools]]] = {}
        self.lattices: dict[int, Lattice | None] = {}
        self.chains: Chains = {}

    def menu(self, instance: Instance) -> Menu:
        """Figures of all options under a plan: one menu for all plans on whose dims they are the same."""
        shared = instance.shared
        if shared not in self.menus:
            menu = Menu(shared, interchip.build(shared, self.options.request.pin_sharding))
            self.menus[shared] = self.alike.setdefault((shared.setting, menu.look), menu)
        return self.menus[shared]

    def domains_of(self, instance: Instance) -> list[tuple[tuple[int, ...], Bools]]:
        """Tile counts and schemes that go together: small tiles if chips share none, one layout between layers."""
        menu = self.menu(instance)
        if menu not in self.domains:
            graph, assumptions, shares = instance.graph, instance.assumptions, menu.shares_tiles
            shared = tuple(tile_counts(graph, assumptions, instance.plan.shards if shares.any() else 1))
            apart = tuple(count for count in tile_counts(graph, assumptions) if count not in shared)
            legal = {shared: np.ones_like(shares)} | ({apart: ~shares} if apart else {})
            every = self.every or bool(memory_rows(instance.system.chip, assumptions))  # fewer bytes may take longer
            some = {counts: one if every else menu.undominated(one) for counts, one in legal.items()}
            kept = ((counts, meeting(menu, one)) for counts, mine in some.items() for one in handed_on(menu, mine))
            self.domains[menu] = [(counts, left) for counts, left in kept if left is not None]
        return self.domains[menu]

    def priced(
        self, instance: Instance, allowed_o: Bools, counts: tuple[int, ...], *, roomy: bool = False
    ) -> Iterator[Prepared]:
        """The stages of a plan for each tile count, with every figure at its least over the schemes that are left.

        Parameters
        ----------
        instance : Instance
            The plan.
        allowed_o : bool array
            Options that are left, at least one of every kernel.
        counts : tuple of int
            Tile counts that go with them.
        roomy : bool
            As if memories had no limit.

        Raises
        ------
        Infeasible
            If nothing fits in any of the tile counts.
        """
        menu, key = self.menu(instance), (allowed_o.tobytes(), counts)
        if (menu, key) not in self.works:
            relaxed = menu.stage(allowed_o, 1)
            record, stages = open_record(Termination.LIMIT_WITH_SOLUTION), dict.fromkeys(relaxed.names, 0)
            cut = partial(menu.stage, allowed_o)
            made = ChipWork(instance.plan, {}, stages, record, relaxed, cut, counts, only_sharding=False, bounds=True)
            made.lattices = self.lattices
            self.works[menu, key] = made
        refused, opened = None, False
        for ready in prepare(instance, self.options, {instance.shared: self.works[menu, key]}, roomy):
            if short := too_much(ready, self.chains, self.options):
                refused = refused or Infeasible(short)
                continue
            opened = True
            yield ready
        if refused is not None and not opened:
            raise refused

    def of_plan(self, plan: Plan) -> Iterator[Prepared]:
        """A plan with every scheme: the stages for each tile count, priced when they are asked for.

        Raises
        ------
        Infeasible
            If nothing fits whatever the schemes; by the first that is asked for.
        """
        instance, opened = self.setting.under(plan), False
        refused: Infeasible | None = None
        for counts, allowed_o in self.domains_of(instance):
            self.options.clock.charge(work.OPENED)
            try:
                for ready in self.priced(instance, allowed_o, counts):
                    opened = True
                    yield ready
            except Infeasible as error:
                refused = refused or error  # of the first, which leaves most schemes
        if not opened:
            raise refused or Infeasible("the pinned schemes leave partial sums that nothing adds up")


def covers(graph: Graph, plan: Plan) -> bool:
    """Whether the schemes are all that is open: of graphs drawn once also the pipeline stage of each kernel may be."""
    return plan.stages == 1 or graph.folded


def open_record(termination: Termination) -> SolveRecord:
    """The record of schemes that are found together with the fusion."""
    return SolveRecord(
        problem="interchip", formulation="joint", termination=termination.value,
        objective=None, bound=0.0, gap=None, seconds=0.0, note=_NOTE,
    )  # fmt: skip
