"""From a technology and budgets to a chip: one design as floats, or many as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dfopt.documents.design import SLACK, Design, no_links_between, too_much, unknown
from dfopt.documents.technology import LinkRole, Technology
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.arithmetic import Numbers, arithmetic_of
from dfopt.technology.components import DEGREE, ChipDram, ChipSram, Core, Links, core_of, dram_of, links_of, sram_of
from dfopt.technology.dies import across, seam_mm
from dfopt.technology.layered import layered_chip
from dfopt.technology.rules import DEFAULT, PROFILES, DerivationRules


@dataclass(frozen=True)
class Budgets:
    """Budgets of one design, or of many: each number may be an array.

    Parameters
    ----------
    chip_area, package_area
        Areas, mm2; DRAM stacks have the area of the package outside of the chip.
    power
        Power budget, W.
    area_shares, power_shares, edge_shares
        Shares of the chip's area, of the power and of the chip's perimeter, by component: ``core``, ``dram``, the names
        of SRAM levels and the roles of links. A component without a share has nothing of that budget.
    dies
        Equal ones that the chip is made of; links between them have the seams, and no share of the perimeter.
    edge
        Length of the chip's edge in mm. None: that of a square.
    """

    chip_area: Numbers
    package_area: Numbers
    power: Numbers
    area_shares: Mapping[str, Numbers]
    power_shares: Mapping[str, Numbers]
    edge_shares: Mapping[str, Numbers]
    dies: int = 1
    edge: Numbers | None = None

    @classmethod
    def of(cls, design: Design) -> Self:
        """Budgets of a design document."""
        given = design.budgets
        shares = (design.shares_of("area"), design.shares_of("power"), design.shares_of("perimeter"))
        return cls(given.chip_area_mm2, given.package_area_mm2, given.power, *shares, given.dies or 1, given.edge)


@dataclass(frozen=True, slots=True)
class Derived:
    """Components of a chip derived from a technology and budgets."""

    core: Core
    sram: Mapping[str, ChipSram]
    dram: ChipDram
    links: Mapping[LinkRole, Links]
    dies: int = 1

    @property
    def power(self) -> Numbers:
        """Power of all components, W."""
        on_chip = self.core.power + sum(level.power for level in self.sram.values())
        return on_chip + self.dram.power + sum(part.power for part in self.links.values())


def derive(technology: Technology, budgets: Budgets, rules: DerivationRules = DEFAULT) -> Derived:
    """Derive the chip, or an array of chips, of a technology under some budgets.

    Parameters
    ----------
    technology, budgets
        The technology, and the area, power and perimeter of the chip, with the share of each component.
    rules
        Rules by which components are derived.

    Raises
    ------
    SystemSpecError
        For shares of components that the technology does not have, for negative shares, and, unless the rules allow it,
        for shares of a budget that sum to more than 1.

    Examples
    --------
    >>> from dfopt.documents.technology import CoreUnit, DramStacks, Supply
    >>> supply = Supply(nominal_v=0.8, threshold_v=0.2, margin_v=0.2)
    >>> core = CoreUnit(
    ...     area_mm2=2.0, flop_per_cycle=1024.0, power=1.0, frequency=1e9, supply=supply, units_per_cluster=4
    ... )
    >>> dram = DramStacks(
    ...     stack=4e9, stack_area_mm2=100.0, controller_area_mm2=5.0, links_per_stack=1024, links_per_mm=400.0,
    ...     frequency=1e9, supply=supply, energy=32e-12, static_w_per_bit=0.0,
    ... )
    >>> technology = Technology(name="small", core=core, dram=dram)
    >>> shares = {"core": 0.5, "dram": 0.1}
    >>> budgets = Budgets(400.0, 800.0, 200.0, shares, shares, {"dram": 0.5})
    >>> chip = derive(technology, budgets)
    >>> chip.core.units, round(chip.core.peak / 1e12, 1), chip.dram.stacks, chip.dram.links
    (100.0, 102.4, 4.0, 4096.0)
    """
    _check(technology, budgets, rules)
    do = arithmetic_of(budgets.chip_area)
    chip, watts = budgets.chip_area, budgets.power
    edge = 4 * do.sqrt(chip) if budgets.edge is None else budgets.edge
    areas, powers, edges = budgets.area_shares.get, budgets.power_shares.get, budgets.edge_shares.get
    core = core_of(technology.core, areas("core", 0.0) * chip, powers("core", 0.0) * watts, rules)
    return joined(
        core=core,
        sram={
            level.name: sram_of(level, areas(level.name, 0.0) * chip, powers(level.name, 0.0) * watts, core, rules)
            for level in technology.sram
        },
        dram=dram_of(
            technology.stacks,
            budgets.package_area - chip,
            areas("dram", 0.0) * chip,
            powers("dram", 0.0) * watts,
            edges("dram", 0.0) * edge,
        ),
        links={
            role: links_of(
                part,
                areas(role, 0.0) * chip,
                powers(role, 0.0) * watts,
                seam_mm(budgets.dies, chip) if role == "between_dies" else edges(role, 0.0) * edge,
                DEGREE[role],
                rules,
            )
            for role, part in technology.links.items()
        },
        dies=budgets.dies,
    )


def joined(
    core: Core, sram: Mapping[str, ChipSram], dram: ChipDram, links: Mapping[LinkRole, Links], dies: int = 1
) -> Derived:
    """A chip from derived components; with several dies, links between them limit the memory bandwidth.

    Parameters
    ----------
    core, dram
        Cores and DRAM of the chip.
    sram : mapping of str
        SRAM by name of its level.
    links : mapping of str
        Links by their role.
    dies : int
        Number of dies of the chip.
    """
    if dies > 1:
        dram = across(dram, links["between_dies"], dies)
    return Derived(core, sram, dram, links, dies)


def derive_design(design: Design) -> Derived:
    """Derive the chip of a design document, from its sizes or its shares of budgets."""
    if design.sizes is not None:
        core, buffer, dram, links = layered_chip(design)
        return Derived(core, {"buffer": buffer}, dram, links)
    return derive(design.technology, Budgets.of(design), PROFILES[design.profile])


def _check(technology: Technology, budgets: Budgets, rules: DerivationRules) -> None:
    components, issues = technology.components, []
    if budgets.dies > 1 and "between_dies" not in technology.links:
        issues.append(Issue("$.budgets.dies", *no_links_between(budgets.dies, technology)))
    shares = (("area", budgets.area_shares), ("power", budgets.power_shares), ("perimeter", budgets.edge_shares))
    for what, by_name in shares:
        total: Numbers = 0.0
        for name, share in by_name.items():
            if name not in components:
                issues.append(Issue(f"$.shares.{what}.{name}", *unknown(technology)))
            elif _any(share < 0):
                message = "found a share below 0, expected 0 or more"
                issues.append(Issue(f"$.shares.{what}.{name}", message, "take the component out instead"))
            total = total + share
        if rules.shares_within_budgets and _any(total > 1 + SLACK):
            most = float(total if isinstance(total, float | int) else total.max())
            issues.append(Issue(f"$.shares.{what}", too_much(most), "lower them, or derive with the profile deepflow"))
    if rules.shares_within_budgets and _any(budgets.chip_area > budgets.package_area):
        message = "found a chip larger than the package, expected room for it"
        issues.append(Issue("$.budgets.package_area_mm2", message, "DRAM stacks have what the chip leaves: raise it"))
    if issues:
        raise SystemSpecError("", issues)


def _any(condition: Numbers) -> bool:
    return condition if isinstance(condition, bool) else bool(condition.any())
