"""What is to be decided about a design: sizes of components, each from a list, and what one size of each makes.

A box of designs is a range of sizes of every component. Its best corner is a chip that is at least as good as every
chip in it: each component has its largest size, and the cores have what the smallest sizes leave. Two things are not
monotone, and have bounds of their own. Memories with a fixed share of power lose bandwidth to leakage of more stacks or
banks: of DRAM the best of all numbers of stacks counts, and of SRAM the leakage of the fewest banks. Links from SRAM to
clusters take area, so the cores of a corner are those that are left beside SRAM with as few links as there can be.
A budget of power that is to be chosen is one more size: more of it is never slower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dfopt.documents.design import POWER, Design, DesignBudgetName
from dfopt.documents.technology import LinkRole, SramLevel
from dfopt.errors import Issue, SystemSpecError
from dfopt.exploring.needs import ROUND, Need, all_sizes, banks_of, crossed_mm2, need_of
from dfopt.exploring.space import Box, DesignSpace, Sizes
from dfopt.setting.reads import memoized
from dfopt.technology.components import (
    DEGREE,
    ChipDram,
    ChipSram,
    Core,
    Links,
    clock_at,
    core_of,
    dram_of,
    fastest_clock,
    links_of,
    sram_of,
)
from dfopt.technology.derive import Derived, joined
from dfopt.technology.dies import seam_mm
from dfopt.technology.rules import DEFAULT

_BUDGETS: Final[tuple[DesignBudgetName, ...]] = ("area", "power", "perimeter")  # as `Need` has them


@dataclass(frozen=True)
class Decisions(DesignSpace):
    """Design space of a document with ``auto`` shares of its budgets.

    Examples
    --------
    >>> from dfopt.documents.technology import CoreUnit, DramStacks, SramLevel, Supply, Technology
    >>> supply = Supply(nominal_v=0.75, threshold_v=0.25, margin_v=0.2, max_v=0.825)
    >>> core = CoreUnit(
    ...     area_mm2=4.0, flop_per_cycle=4096, power=4.0, frequency=1.7e9, supply=supply, units_per_cluster=1
    ... )
    >>> level = SramLevel(name="L2", bit_area_mm2=6e-8, energy=1e-12, static_w_per_bit=0.0, bank=2**20)
    >>> dram = DramStacks(
    ...     stack=24e9, stack_area_mm2=110.0, controller_area_mm2=15.0, links_per_stack=1024, links_per_mm=100.0,
    ...     frequency=6.4e9, supply=supply, energy=3.5e-12 * 8, static_w_per_bit=0.0,
    ... )
    >>> design = Design.from_data({
    ...     "schema": "dfopt/design/1", "name": "small",
    ...     "technology": Technology(name="t", core=core, sram=(level,), dram=dram).to_data(),
    ...     "budgets": {"chip_area_mm2": 800, "package_area_mm2": 1300, "power": "600 W"},
    ...     "shares": {
    ...         "area": {"core": "rest", "L2": "auto", "dram": "auto"},
    ...         "power": {"core": "rest", "L2": 0.05, "dram": "auto"}, "perimeter": {"dram": "auto"},
    ...     },
    ...     "choices": {"capacity": {"L2": {"least": "8 MiB", "most": "64 MiB", "step": "8 MiB"}}},
    ... })
    >>> decisions = Decisions(design)
    >>> {name: len(sizes) for name, sizes in decisions.sizes.items()}, decisions.count
    ({'L2': 8, 'dram': 4}, 32)
    >>> chip = decisions.chip(decisions.root.at((1, 3)))
    >>> chip.sram["L2"].size / 2**20, chip.dram.stacks, chip.core.units
    (16.0, 4.0, 182.0)
    """

    def __post_init__(self) -> None:
        issues = [
            Issue(f"$.shares.area.{name}", "found auto, but not even one fits the budgets", "raise the budgets")
            for name, sizes in self.sizes.items()
            if not sizes
        ]
        for level in self.design.technology.sram:
            if level.port is None and self.design.shares.power.get(level.name) == "auto":
                message = f"found auto, but no port of {level.name} says how much bandwidth that would be"
                issues.append(Issue(f"$.shares.power.{level.name}", message, "give it a number, or the level a port"))
        if issues:
            raise SystemSpecError(self.design.name, issues)

    @cached_property
    def sizes(self) -> Mapping[str, tuple[float, ...]]:
        """All candidate sizes of every free component, in ascending order."""
        choices = self.design.choices
        given = {name: choices.of(name) if choices else None for name in self.design.chosen}
        sizes_by_name = {
            name: steps.values if steps else all_sizes(self.design.technology, self.design.budgets, self._edge, name)
            for name, steps in given.items()
        }
        return {**sizes_by_name, POWER: choices.power.values} if choices and choices.power else sizes_by_name

    def chip(self, box: Box) -> Derived | None:
        """Chip of one design, or the best corner of several; None if nothing in the box fits the budgets."""
        (weakest, low), (strongest, high) = self._end(box.low), self._end(box.high)
        return strongest._chip(low, high, box.single, weakest)

    def _end(self, positions: Sizes) -> tuple[Decisions, Mapping[str, float]]:
        """The sizes at some positions, with the one budget of power that designs have there."""
        sizes = self.named(positions)
        power = sizes.pop(POWER, None)
        return self if power is None else self._under(power), sizes

    @memoized
    def _under(self, power: float) -> Decisions:
        budgets = self.design.budgets.model_copy(update={"power": power})
        choices = self.design.choices and self.design.choices.model_copy(update={"power": None})
        return Decisions(self.design.model_copy(update={"budgets": budgets, "choices": choices}))

    def one_design(self, positions: Sizes) -> Design:
        """The document of one design, with its power budget."""
        return self._end(positions)[0].design

    def _chip(
        self, low: Mapping[str, float], high: Mapping[str, float], single: bool, weakest: Decisions
    ) -> Derived | None:
        """The corner of some sizes; ``weakest`` has the least power of those that are meant."""
        technology = self.design.technology
        if self._others("perimeter", low) > self._edge * (1 + ROUND):
            return None
        if low.get("dram", 0.0) * technology.stacks.stack_area_mm2 > self._beside_mm2:
            return None
        core = self._cores(low)
        if core is None or core.units < 1:
            return None
        fewest = core if single else weakest._cores(high)
        if not single and technology.core.static_power:
            core = self._cores(low, 0.0 if fewest is None else float(fewest.units)) or core
        clusters = 0.0 if fewest is None else fewest.clusters
        ports = core if single else core._replace(clusters=clusters, frequency=fastest_clock(technology.core))
        return joined(
            core=core,
            sram={
                level.name: self._sram(level, low.get(level.name), high.get(level.name), ports, single)
                for level in technology.sram
            },
            dram=self._dram(low.get("dram"), high.get("dram")),
            links={role: self._links(role, high.get(role)) for role in technology.links},
            dies=self.design.budgets.dies or 1,
        )

    def least(self, box: Box, corner: Derived) -> Derived:
        """The best corner with lower bounds on power and price over all valid designs of the box.

        Each component has its least power over these designs, and links have the lowest rates.
        """
        if box.single:
            return corner
        (weakest, low), (_, high) = self._end(box.low), self._end(box.high)
        return weakest._least(low, high, corner)

    def _least(self, low: Mapping[str, float], high: Mapping[str, float], corner: Derived) -> Derived:
        fewest = self._cores(high)  # with the least area and power, they draw least
        stacks = [dram for dram in self._drams(low.get("dram"), high.get("dram")) if dram.rate > 0]
        unit = self.design.technology.core
        # several cores have no lower clock: there would be fewer of them instead
        slow = 0.0 if fewest is None or fewest.units < 2 else clock_at(unit, unit.supply.floor)
        return replace(
            corner,
            core=corner.core._replace(power=0.0 if fewest is None else fewest.power),
            sram={
                level.name: corner.sram[level.name]._replace(power=self._drawn(level, low, high, slow))
                for level in self.design.technology.sram
            },
            dram=corner.dram._replace(power=min((dram.power for dram in stacks), default=0.0)),
            links={role: self._links(role, low.get(role)) for role in self.design.technology.links},
        )

    # what components take

    @cached_property
    def _edge(self) -> float:
        return self.design.budgets.edge

    @cached_property
    def _beside_mm2(self) -> float:
        """The room for stacks beside the chip."""
        of = self.design.budgets
        return (of.package_area_mm2 - of.chip_area_mm2) * (1 + ROUND)

    def _budget(self, budget: DesignBudgetName) -> float:
        of = self.design.budgets
        return {"area": of.chip_area_mm2, "power": of.power, "perimeter": self._edge}[budget]

    def _share(self, budget: DesignBudgetName, name: str) -> float | None:
        """The share of a budget that a component has whatever its size; none where that follows from its size."""
        share = getattr(self.design.shares, budget).get(name, 0.0)
        return None if isinstance(share, str) else float(share)

    def _taken(self, budget: DesignBudgetName, name: str, need: float) -> float:
        share = self._share(budget, name)
        return need if share is None else share * self._budget(budget)

    def _others(self, budget: DesignBudgetName, sizes: Mapping[str, float]) -> float:
        """What components of some sizes take, and those whose sizes are not to be chosen, cores aside."""
        needs = {name: need_of(self.design.technology, name, size) for name, size in sizes.items()}
        taken = sum(self._taken(budget, name, getattr(need, budget)) for name, need in needs.items())
        fixed = [name for name in getattr(self.design.shares, budget) if name != "core" and name not in self.sizes]
        return taken + sum(self._share(budget, name) or 0.0 for name in fixed) * self._budget(budget)

    def _core(self, budget: DesignBudgetName, sizes: Mapping[str, float]) -> float:
        """What the cores have of a budget; below 0 where nothing fits."""
        budget_total = self._budget(budget)
        left = budget_total - self._others(budget, sizes)
        share = self._share(budget, "core")
        own = left if share is None else share * budget_total
        return own if own <= left + budget_total * ROUND else -1.0

    def _beside_links(self, area: float, crossed: float) -> float:
        """The area of the cores beside the links to as many clusters as there are then.

        With one cluster more the links would not leave room for its units, and SRAM is made for no more than these.
        """
        unit = self.design.technology.core
        each = unit.units_per_cluster * unit.area_mm2 + crossed
        clusters = max(math.floor(area / each), 0)
        most = ((clusters + 1) * unit.units_per_cluster - 1) * unit.area_mm2 * (1 + ROUND)
        return min(area - clusters * crossed, most)

    # what components are

    def _cores(self, sizes: Mapping[str, float], leaking: float | None = None) -> Core | None:
        """The cores beside other components, where there is anything left for them.

        ``leaking``: so many leak, however many there are; more of them are then never slower.
        """
        unit = self.design.technology.core
        power, area = self._core("power", sizes), self._core("area", sizes)
        if crossed := crossed_mm2(self.design.technology, sizes):
            area = self._beside_links(area, crossed)
        if leaking is not None:
            power -= leaking * (unit.static_power or 0.0)
            unit = unit.model_copy(update={"static_power": None})
        return core_of(unit, area, power, DEFAULT) if area > 0 and power > 0 else None

    def _given(self, name: str, size: float | None) -> Need:
        """What a component has of each budget: what its size takes, and a little for rounding, or its shares."""
        if size is None:
            return Need(*(self._taken(budget, name, 0.0) for budget in _BUDGETS))
        need = need_of(self.design.technology, name, size)
        return Need(*(self._taken(of, name, taken) * (1 + ROUND) for of, taken in zip(_BUDGETS, need, strict=True)))

    def _sram(self, level: SramLevel, low: float | None, high: float | None, core: Core, exact: bool) -> ChipSram:
        """A level of one design; or the most capacity and bandwidth of several, with as little leakage as one has.

        Its ports have the clock of the cores.
        """
        least, most = self._given(level.name, low), self._given(level.name, high)
        links = 0.0 if low is None or not level.shared else banks_of(level, low) * core.clusters * level.link_area_mm2
        sram = sram_of(level, least.area + links * (1 + ROUND), least.power, core, DEFAULT)
        if exact or not sram.size:
            return sram
        banks, leaking = (sram.banks, 0.0) if high is None else (banks_of(level, high), sram.static_power)
        bandwidth = (most.power - float(leaking)) / level.energy
        if level.port is not None:
            bandwidth = min(bandwidth, float(banks) * level.port * float(core.frequency))
        return sram._replace(size=banks * level.bank, bandwidth=bandwidth, rate=bandwidth * level.utilization)

    def _drawn(self, level: SramLevel, low: Mapping[str, float], high: Mapping[str, float], clock: float) -> float:
        """The least that a level draws, of sizes from low to high with cores of this clock or more."""
        name, chosen = level.name, level.name in low
        power = self._taken("power", name, need_of(self.design.technology, name, low[name]).power if chosen else 0.0)
        leaking = level.static_w_per_bit * level.bank * 8
        needed = self.design.template is not None and self.design.template.sram == name
        if not needed and not (chosen and leaking * banks_of(level, high[name]) < power):
            return 0.0  # it may be off in one of them
        if level.port is None:
            return power
        banks = banks_of(level, low[name]) if chosen else 1
        return min(power, banks * (leaking + level.port * clock * level.energy))

    def _dram(self, low: float | None, high: float | None) -> ChipDram:
        """Of several numbers of stacks the best bandwidth and the most capacity."""
        options = self._drams(low, high)
        return max(options, key=lambda dram: float(dram.rate))._replace(size=max(dram.size for dram in options))

    def _drams(self, low: float | None, high: float | None) -> list[ChipDram]:
        """The DRAM with each number of stacks, or with its shares."""
        sizes: Sequence[float | None] = [None]
        if low is not None and high is not None:
            sizes = [size for size in self.sizes["dram"] if low <= size <= high]
        return [dram_of(self.design.technology.stacks, self._beside_mm2, *self._given("dram", size)) for size in sizes]

    def _links(self, role: LinkRole, size: float | None) -> Links:
        given = self._given(role, size)
        if size is None and role == "between_dies":
            given = given._replace(perimeter=seam_mm(self.design.budgets.dies or 1, self.design.budgets.chip_area_mm2))
        return links_of(self.design.technology.links[role], *given, DEGREE[role], DEFAULT)
