"""What a die costs that works, and a package of them: dies on a wafer, yields, and what is lost with a bad bond.

Sources. Dies on a round wafer: the usual area of the wafer over that of a die, less the dies that the rim cuts
(Hennessy and Patterson, "Computer architecture", section 1.6). Yield: negative binomial, Stapper, "Defect density
distribution for LSI yield calculations", IEEE Trans. Electron Devices 20 (1973). What is lost where tested dies are
bonded onto an interposer and that onto a substrate: package.py of Chiplet Actuary
(github.com/Yinxiao-Feng/chiplet-actuary, b85c29f), dies last. Stacks of dies, tested or bonded as wafers: Dong and Xie,
"System-level cost analysis and design exploration for three-dimensional integrated circuits", ASP-DAC 2009 (the form;
unconfirmed). Costs of design (NRE) are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import Floats
from dfopt.documents.wafer import Packaging, Wafer

_MM2 = 1e-6  # m2
_CM2 = 1e-4


def dies_per_wafer(area: ArrayLike, wafer: Wafer) -> Floats:
    """Average number of square dies on a wafer, not rounded.

    Parameters
    ----------
    area
        Area of a die, m2; any shape.
    wafer
        Its diameter, edge and scribe lanes.

    Returns
    -------
    Dies, of the shape of ``area``; 0 where not one fits.

    Examples
    --------
    >>> wafer = Wafer(usd=16988, defects_per_cm2=0.11)
    >>> dies_per_wafer([100e-6, 814e-6], wafer).round(2).tolist()
    [571.71, 57.6]
    """
    cut = (np.sqrt(np.asarray(area, dtype=float)) + wafer.scribe) ** 2
    radius = wafer.diameter / 2 - wafer.edge
    counted = math.pi * radius**2 / cut - 2 * math.pi * radius / np.sqrt(2 * cut)
    return np.asarray(np.maximum(counted, 0.0))


def die_yield(area: ArrayLike, wafer: Wafer) -> Floats:
    """Yield: share of dies without a defect.

    Examples
    --------
    >>> die_yield([0.0, 814e-6], Wafer(usd=16988, defects_per_cm2=0.11)).round(4).tolist()
    [1.0, 0.4242]
    """
    defects = wafer.defects_per_cm2 * np.asarray(area, dtype=float) / _CM2
    return np.asarray((1 + defects / wafer.clustering) ** -wafer.clustering)


def die_price(area: ArrayLike, wafer: Wafer) -> Floats:
    """Price of a good die, USD; infinite if the wafer has room for none.

    Examples
    --------
    >>> die_price([100e-6, 814e-6], Wafer(usd=16988, defects_per_cm2=0.11)).round(2).tolist()
    [33.15, 695.31]
    """
    return _each(wafer, dies_per_wafer(area, wafer) * die_yield(area, wafer))


class PackagePrice(NamedTuple):
    """Price of a working package, USD: the sum `total` of its parts.

    Attributes
    ----------
    dies : float, USD
        Good dies with their bumps.
    package : float, USD
        Substrate, and interposer if there is one.
    lost_dies, lost_packages : float, USD
        Dies and packages in assemblies that do not work.
    """

    dies: float  # all that were made, good or not, and their bumps
    package: float  # substrate and interposer
    lost_dies: float  # good dies that a bad bond takes along
    lost_packages: float  # and substrates and interposers

    @property
    def total(self) -> float:
        """Price of the package with all losses, USD."""
        return sum(self)


class StackPrice(NamedTuple):
    """Price of a working stack of a logic die and DRAM layers, USD: the sum `total` of its parts.

    Attributes
    ----------
    kept : float
        Yield: share of stacks that work.
    logic, layers : float, USD
        The logic die, and all DRAM dies.
    lost : float, USD
        Dies in stacks that do not work.
    """

    kept: float
    """Share of the stacks that work."""
    logic: float
    layers: float
    lost: float  # dies of stacks that do not work

    @property
    def total(self) -> float:
        """Price of a working stack with losses, USD."""
        return self.logic + self.layers + self.lost


def stack_price(area: float, layers: int, logic: Wafer, dram: Wafer, bonding_yield: float, tested: bool) -> StackPrice:
    """Price of a die of ``area`` m2 with ``layers`` DRAM layers on it, from tested or untested dies.

    Parameters
    ----------
    area, layers : float, m2, and int
        Area of each die, and number of DRAM dies.
    logic, dram : Wafer
        Wafers of the dies.
    bonding_yield : float
        Share of bonds that succeed.
    tested : bool
        Whether only good dies are stacked.

    Examples
    --------
    >>> wafers = Wafer(usd=16988, defects_per_cm2=0.11), Wafer(usd=2100, defects_per_cm2=0.1)
    >>> for tested in (True, False):
    ...     price = stack_price(85e-6, 4, *wafers, 0.99, tested)
    ...     print(round(price.kept, 3), round(price.layers, 2), round(price.total, 2))
    0.961 13.52 42.79
    0.624 12.43 60.2
    """
    below, above = float(die_price(area, logic)), layers * float(die_price(area, dram))
    kept = bonding_yield**layers
    if not tested:
        good, each = float(die_yield(area, logic)), float(die_yield(area, dram))
        below, above, kept = below * good, above * each, kept * good * each**layers
    return StackPrice(kept, below, above, _lost(below + above, kept))


def package_price(dies: Sequence[tuple[float, float]], packaging: Packaging) -> PackagePrice:
    """Price of a package with tested dies: contents and losses.

    Parameters
    ----------
    dies
        (area in m2, USD for a good one) of every die, one for each that there is.
    packaging
        Substrate, interposer, prices and yields.

    Raises
    ------
    ValueError
        No dies.

    Examples
    --------
    Two dies on an organic substrate:

    >>> wafer = Wafer(usd=9346, defects_per_cm2=0.09)
    >>> organic = Packaging(usd_per_mm2=0.005, area_factor=4, bump_usd_per_mm2=0.005, bonding_yield=0.99)
    >>> priced = package_price([(400e-6, float(die_price(400e-6, wafer)))] * 2, organic)
    >>> round(priced.package, 6), round(priced.total, 2)
    (16.0, 229.38)
    """
    if not dies:
        raise ValueError("dies: found none, expected one or more; name the area and the price of each")
    area = sum(each for each, _ in dies) / _MM2
    dies_usd = sum(usd + packaging.bump_usd_per_mm2 * each / _MM2 for each, usd in dies)
    bonded = packaging.bonding_yield ** len(dies)
    if packaging.interposer is None:
        substrate = packaging.area_factor * area * packaging.usd_per_mm2 * _layers(packaging, len(dies), area)
        return PackagePrice(dies_usd, substrate, _lost(dies_usd, bonded), _lost(substrate, bonded))
    below = packaging.interposer.area_factor * area
    wafer = packaging.interposer.wafer
    between = float(_each(wafer, dies_per_wafer(below * _MM2, wafer))) + packaging.ball_usd_per_mm2 * below
    substrate = packaging.area_factor * below * packaging.usd_per_mm2
    good, last = float(die_yield(below * _MM2, wafer)), packaging.substrate_yield
    lost = _lost(between, good * bonded * last) + _lost(substrate, last)
    return PackagePrice(dies_usd, between + substrate, _lost(dies_usd, bonded * last), lost)


def _lost(usd: float, kept: float) -> float:
    """USD of what is thrown away for one that is kept, of which there is such a share."""
    return 0.0 if kept >= 1 else usd * (1 / kept - 1) if kept > 0 else math.inf  # infinite prices too


def _each(wafer: Wafer, pieces: Floats) -> Floats:
    """USD of one of so many pieces of a wafer; infinite where there is none."""
    some = pieces > 0
    return np.asarray(np.where(some, wafer.usd / np.where(some, pieces, 1.0), np.inf))


def _layers(packaging: Packaging, dies: int, area: float) -> float:
    """How many times its price a substrate of several dies costs, by its area."""
    substrate_mm2 = packaging.area_factor * area
    steps = [factor for least, factor in packaging.layers if substrate_mm2 > least]
    return steps[-1] if dies > 1 and steps else 1.0
