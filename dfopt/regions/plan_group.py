"""Plans with common options of kernels, in one number of tiles."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dfopt.arrays import Floats, Ints
from dfopt.documents.mapping import Sharding
from dfopt.documents.plan import Plan
from dfopt.fusion.blocks import StageTables, restrict, stage_tables
from dfopt.regions.sharded_first import ShardedFirst
from dfopt.setting.instance import Instance, Setting
from dfopt.solving.menu import Menu
from dfopt.terms.bounds import PlanTable
from dfopt.terms.chip import ChipModel, chip_of
from dfopt.terms.layer import Layer
from dfopt.terms.table import Domain


@dataclass(frozen=True, eq=False)
class PlanGroup:
    """Plans that share the sharding options of kernels and the number of tiles.

    Attributes
    ----------
    menu : Menu
        Options and figures of the layer, shared by the plans.
    tiles : int
        Tiles that the streamed axis is cut into.
    domain : Domain
        Options that are possible at this number of tiles.
    table_of_plans : PlanTable
        The plans as arrays.
    sharded_first : ShardedFirst or None
        Record of the sharding solve, if the sharding was chosen first, with one option for each kernel.
    """

    menu: Menu
    tiles: int
    domain: Domain
    table_of_plans: PlanTable
    sharded_first: ShardedFirst | None

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of the group, in the order of the axis ``i``."""
        return self.table_of_plans.plans

    @cached_property
    def places(self) -> dict[Hashable, int]:
        """Place of each plan, by the key that distinguishes mappings of different plans."""
        variant = self.setting.model.variant
        return {(plan, variant): i for i, plan in enumerate(self.plans)}

    @property
    def setting(self) -> Setting:
        """Graph, system and resolved assumptions."""
        return self.table_of_plans.setting

    def instance(self, plan: int) -> Instance:
        """The setting under the plan at place ``plan``."""
        return Instance(self.setting, self.plans[plan])

    @property
    def least_i(self) -> Floats:
        """Lower bound on the step under each plan from the least work of kernels: float array, s, shape (plans,)."""
        return self.table_of_plans.least_i

    @property
    def complete(self) -> bool:
        """Whether the lattices list all blocks."""
        return True

    @property
    def is_exact(self) -> bool:
        """Whether the table of charges gives exact times; otherwise it gives lower bounds."""
        return self.menu.is_listed

    @property
    def layer(self) -> Layer:
        """Kernels and their options."""
        return self.menu.priced(self.tiles)[0]

    @cached_property
    def chip(self) -> ChipModel:
        """The chip model; bounds use its :attr:`dfopt.terms.chip.ChipModel.rising` form."""
        return chip_of(self.setting.system, self.setting.assumptions)

    def stage_of(self, members: Ints, domain: Domain) -> StageTables:
        """The stage tables of some kernels, by number, with every figure at its least over the remaining options.

        With one option left for each kernel the figures are exact; with more they are lower bounds.

        Raises
        ------
        Infeasible
            If a kernel does not fit the chip, even alone.
        """
        layer, exact = self.menu.layer.least(domain, self.tiles), all(len(left) == 1 for left in domain)
        return stage_tables(restrict(layer, members), self.chip if exact else self.chip.bounding)

    def schemes(self, option_k: Sequence[int]) -> dict[str, Sharding]:
        """Sharding scheme of every kernel by name, from option places."""
        pairs = zip(self.layer.kernels, self.layer.schemes_k, option_k, strict=True)
        return {kernel.name: schemes[option] for kernel, schemes, option in pairs}
