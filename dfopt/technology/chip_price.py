"""What a derived chip costs: its dies, the stacks of DRAM beside them or layers on them, and the package."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dfopt.documents.design import Design
from dfopt.documents.technology import Technology
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.derive import Derived
from dfopt.technology.price import (
    PackagePrice,
    StackPrice,
    die_price,
    die_yield,
    dies_per_wafer,
    package_price,
    stack_price,
)

_MM2 = 1e-6  # m2
_GB = 1e9


@dataclass(frozen=True, slots=True)
class ChipPrice:
    """Price of one chip in USD, with the figures that it follows from.

    Without a price of DRAM or a package in the technology, those fields and `usd` are None.

    Attributes
    ----------
    dies, die_area_mm2 : int, and float, mm2
        Number of dies, and area of each.
    dies_per_wafer, die_yield, die_usd : float
        Dies on a wafer, share of good ones, and price of a good one.
    dram_usd : float, USD, optional
        Price of all DRAM.
    package, stack : PackagePrice, StackPrice, optional
        Package, and die stack of a chip with DRAM layers.
    """

    dies: int
    die_area_mm2: float
    dies_per_wafer: float
    die_yield: float
    die_usd: float
    """Of one that works."""
    dram_usd: float | None
    """Of all stacks, or of all layers."""
    package: PackagePrice | None
    """With the dies and stacks in it."""
    stack: StackPrice | None = None
    """A die with the layers of DRAM on it; none where DRAM stands beside the dies."""

    @property
    def usd(self) -> float | None:
        """Price of the packaged chip, USD; None if a part has no price."""
        return None if self.package is None else self.package.total


def price_of(design: Design, chip: Derived) -> ChipPrice | None:
    """Price of a design's chip; None without wafer data, see `chip_price`."""
    budgets = design.budgets
    return chip_price(design.technology, budgets.chip_area_mm2, budgets.dies or 1, float(chip.dram.stacks))


def chip_price(technology: Technology, chip_area_mm2: float, dies: int, stacks: float) -> ChipPrice | None:
    """Price of a chip of ``dies`` equal dies and ``stacks`` DRAM stacks; None without wafer data.

    Stacks are next to the dies in the package, at the price of working ones; if the technology has DRAM layers, each
    die has this number of layers on it.

    Parameters
    ----------
    technology
        The technology, with prices of wafers and packages.
    chip_area_mm2 : float, mm2
        Area of all dies of the chip.
    dies : int
        Number of dies, of one size.
    stacks : float
        DRAM stacks, or DRAM layers on each die.

    Raises
    ------
    SystemSpecError
        If a die does not fit on a wafer.

    Examples
    --------
    >>> from dfopt.documents.technology import CoreUnit, DramStacks, Supply
    >>> from dfopt.documents.wafer import Packaging, Wafer
    >>> supply = Supply(nominal_v=0.8, threshold_v=0.2, margin_v=0.2)
    >>> core = CoreUnit(
    ...     area_mm2=2.0, flop_per_cycle=1024.0, power=1.0, frequency=1e9, supply=supply, units_per_cluster=4
    ... )
    >>> dram = DramStacks(
    ...     stack=16e9, stack_area_mm2=100.0, controller_area_mm2=5.0, links_per_stack=1024, links_per_mm=400.0,
    ...     frequency=1e9, supply=supply, energy=32e-12, static_w_per_bit=0.0, usd_per_gb=10.0,
    ... )
    >>> wafer = Wafer(usd=16988, defects_per_cm2=0.11)
    >>> organic = Packaging(usd_per_mm2=0.005, area_factor=4, bonding_yield=0.99)
    >>> made = Technology(name="t", core=core, dram=dram, wafer=wafer, package=organic)
    >>> price = chip_price(made, 800.0, 1, 4.0)
    >>> round(price.die_yield, 3), round(price.die_usd), price.dram_usd, round(price.usd)
    (0.43, 672, 640.0, 1404)
    """
    wafer = technology.wafer
    if wafer is None:
        return None
    area = chip_area_mm2 / dies * _MM2
    usd = float(die_price(area, wafer))
    layers, stack, dram, held = technology.layers, None, None, [(area, usd)] * dies
    if layers is None and (per_gb := technology.stacks.usd_per_gb) is not None:
        each = per_gb * technology.stacks.stack / _GB
        dram, held = each * stacks, held + [(technology.stacks.stack_area_mm2 * _MM2, each)] * int(stacks)
    elif layers is not None and layers.wafer is not None:
        stack = stack_price(area, int(stacks), wafer, layers.wafer, layers.bonding_yield, layers.tested)
        dram, held = stack.layers * dies, [(area, stack.total)] * dies
    package = None
    if technology.package is not None and dram is not None:
        package = package_price(held, technology.package)
    if math.isinf(usd + (dram or 0.0)) or (package is not None and math.isinf(package.total)):
        what = "dies" if math.isinf(usd + (dram or 0.0)) else "dies and stacks on an interposer"
        message = f"found {what} that no wafer has room for, expected smaller ones"
        raise SystemSpecError(
            technology.name, [Issue("$.budgets.chip_area_mm2", message, "lower it, or take more dies")]
        )
    return ChipPrice(
        dies=dies,
        die_area_mm2=chip_area_mm2 / dies,
        dies_per_wafer=float(dies_per_wafer(area, wafer)),
        die_yield=float(die_yield(area, wafer)),
        die_usd=usd,
        dram_usd=dram,
        package=package,
        stack=stack,
    )


def unpriced(technology: Technology) -> list[str]:
    """Paths of the fields that a technology lacks for a price of its chips."""
    fields: dict[str, object] = {"wafer": technology.wafer, "package": technology.package}
    if technology.layers is None:
        fields["dram.usd_per_gb"] = technology.stacks.usd_per_gb
    else:
        fields["layers.wafer"] = technology.layers.wafer
    return [name for name, given in fields.items() if given is None]
