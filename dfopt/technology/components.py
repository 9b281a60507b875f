"""What each component of a chip is, under its budgets of area, power and perimeter.

Rules of the architecture generator of DeepFlow (github.com/nanocad-lab/DeepFlow, 566c192), with the corrections of
`dfopt.technology.rules.DerivationRules`. Areas in mm2, edges in mm, powers in W, sizes in bytes, rates per second;
``..._left`` is what a component does not use of its budget, ``bound`` what ends its rate, ``count_bound`` what ends its
number (codes of `dfopt.technology.operating.LIMITS`). They are tuples because those are made
fastest, and a search makes one of each for every chip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dfopt.documents.technology import ChipLinks, CoreUnit, DramStacks, LinkRole, SramLevel
from dfopt.technology.arithmetic import TINY, Numbers, arithmetic_of
from dfopt.technology.operating import AREA, OFF, PACKAGE_AREA, PERIMETER, PORTS, POWER, V_MIN, operating
from dfopt.technology.rules import DerivationRules
from dfopt.technology.voltage import power_share, speed

DEGREE: Mapping[LinkRole, int] = {"in_package": 4, "between_packages": 1, "between_nodes": 1, "between_dies": 1}
"""Neighbours of a chip: in a mesh inside a package, and in a ring direction between packages (DeepFlow, 566c192).

Links between the dies of one chip are counted together.
"""


class Core(NamedTuple):
    """Compute units of a derived chip; each number may be an array over many chips.

    Attributes
    ----------
    units, clusters
        Number of units, and of clusters of units.
    voltage, frequency : V, Hz
        Operating point.
    peak, peaks, rate : FLOP/s
        Peak, peaks by data type, and the sustained rate.
    energy : J/FLOP
        Energy at the operating voltage.
    nominal_power, power, power_left : W
        Power at nominal voltage, in operation, and left of the budget.
    area_left : mm2
        Area left of the budget.
    bound
        Code of the limit that sets the operating point, see `limit_names`.
    """

    units: Numbers
    clusters: Numbers
    voltage: Numbers
    frequency: Numbers
    peak: Numbers
    peaks: Mapping[str, Numbers]
    rate: Numbers
    energy: Numbers
    nominal_power: Numbers
    power: Numbers
    power_left: Numbers
    area_left: Numbers
    bound: Numbers


class ChipSram(NamedTuple):
    """One SRAM level of a derived chip; each number may be an array over many chips.

    In a chip with stated sizes components leave nothing of their budgets, and ``bound`` is the area if nothing else
    limits a component.

    Attributes
    ----------
    banks, size : B
        Number of banks, and capacity.
    bandwidth, rate : B/s
        Peak and sustained bandwidth.
    energy : J/B
        Energy of an access.
    static_power, power, power_left : W
        Leakage of the banks, total power (0 if leakage takes the whole budget), and the rest of the budget.
    area_left : mm2
        Area left of the budget.
    bound
        Code of the limit that sets the bandwidth.
    """

    banks: Numbers
    size: Numbers
    bandwidth: Numbers
    rate: Numbers
    energy: Numbers
    static_power: Numbers = 0.0
    power: Numbers = 0.0
    power_left: Numbers = 0.0
    area_left: Numbers = 0.0
    bound: Numbers = AREA


class ChipDram(NamedTuple):
    """DRAM of a derived chip; each number may be an array over many chips.

    Attributes
    ----------
    stacks, links, size : B
        Number of stacks, number of links, and capacity.
    voltage, frequency : V, Hz
        Operating point of the links.
    bandwidth, rate : B/s
        Peak and sustained bandwidth.
    energy : J/B
        Energy of an access.
    power, power_left : W
        Power, and the rest of the budget.
    area_left, package_area_left, edge_left : mm2, mm2, mm
        Left of the budgets for controllers, stacks and links.
    count_bound, link_bound, bound
        Codes of the limits on stacks, on links and on the operating point.
    """

    stacks: Numbers
    links: Numbers
    size: Numbers
    voltage: Numbers
    frequency: Numbers
    bandwidth: Numbers
    rate: Numbers
    energy: Numbers
    power: Numbers
    power_left: Numbers = 0.0
    area_left: Numbers = 0.0
    package_area_left: Numbers = 0.0
    edge_left: Numbers = 0.0
    count_bound: Numbers = AREA
    link_bound: Numbers = AREA
    bound: Numbers = AREA


class Links(NamedTuple):
    """Links of a derived chip to other chips; each number may be an array over many chips.

    Attributes
    ----------
    links
        Number of links.
    voltage, frequency : V, Hz
        Operating point.
    rate : B/s
        Sustained bandwidth to each neighbour.
    energy : J/B
        Energy of a transfer.
    power, power_left : W
        Power, and the rest of the budget.
    area_left, edge_left : mm2, mm
        Left of the budgets.
    count_bound, bound
        Codes of the limits on links and on the operating point.
    latency : s
        Latency of a link.
    """

    links: Numbers
    voltage: Numbers
    frequency: Numbers
    rate: Numbers
    energy: Numbers
    power: Numbers
    power_left: Numbers = 0.0
    area_left: Numbers = 0.0
    edge_left: Numbers = 0.0
    count_bound: Numbers = AREA
    bound: Numbers = AREA
    latency: float = 0.0


def clock_at(unit: CoreUnit, volts: float) -> float:
    """Clock of a compute unit at a voltage, Hz."""
    supply = unit.supply
    return unit.frequency * float(speed(volts - supply.threshold_v, supply.nominal_v, supply.threshold_v))


def fastest_clock(unit: CoreUnit) -> float:
    """Upper bound on the clock of compute units, Hz; infinite if their voltage is unlimited."""
    return math.inf if unit.supply.max_v is None else clock_at(unit, unit.supply.max_v)


def core_of(unit: CoreUnit, area: Numbers, power: Numbers, rules: DerivationRules) -> Core:
    """Derive the compute units: as many as fit the area, as fast as the power allows.

    Parameters
    ----------
    unit : CoreUnit
        The technology.
    area, power : float or array, mm2 and W
        Budgets of the cores.
    rules : DerivationRules
        Conventions of the derivation.
    """
    do = arithmetic_of(area, power)
    fit = area // unit.area_mm2 if rules.whole_units else area / unit.area_mm2
    static = unit.static_power or 0.0 if rules.leakage else 0.0
    n, cut = fit, fit < 0
    if rules.fewer_units_at_v_min:
        supply = unit.supply
        slowest = power_share(
            supply.floor, speed(supply.margin_v, supply.nominal_v, supply.threshold_v), supply.nominal_v
        )
        each = max(unit.power * slowest + static, TINY)
        # a single unit goes slower instead: there is no fewer
        fed = do.minimum(power / each, fit)
        n = do.minimum(fit, do.maximum(do.floor(fed) if rules.whole_units else fed, 1.0))
        cut = n < fit
    alive = power > n * static
    n = n * alive
    clusters = n // unit.units_per_cluster if rules.whole_units else n / unit.units_per_cluster
    nominal = unit.power * n
    leaks = static * n
    at = operating(power - leaks, nominal, unit.supply, unit.frequency, top=rules.core_v_max)
    cycles = n * at.frequency
    peak = cycles * unit.flop_per_cycle
    types = (unit.flop_per_cycle_by_type or {}) if rules.peak_by_type else {}
    drawn = at.power + leaks
    bound = do.where(cut & (at.bound == POWER), V_MIN, at.bound)
    return Core(
        units=n,
        clusters=clusters,
        voltage=at.voltage,
        frequency=at.frequency,
        peak=peak,
        peaks={name: cycles * flop for name, flop in types.items()},
        rate=peak * unit.utilization,
        energy=at.energy * (unit.power / (unit.frequency * unit.flop_per_cycle)),
        nominal_power=nominal,
        power=drawn,
        power_left=power - drawn,
        area_left=area - n * unit.area_mm2,
        bound=do.where(power > 0, do.where(fit > 0, do.where(alive, bound, POWER), AREA), OFF),
    )


def sram_of(level: SramLevel, area: Numbers, power: Numbers, core: Core, rules: DerivationRules) -> ChipSram:
    """Derive an SRAM level: as many banks as fit with their links to clusters, and the bandwidth that the power buys.

    Parameters
    ----------
    level : SramLevel
        The technology.
    area, power : float or array, mm2 and W
        Budgets of the level; leakage takes its part of the power first.
    core : Core
        The cores that it serves.
    rules : DerivationRules
        Conventions of the derivation.
    """
    do = arithmetic_of(area, power, core.clusters)
    held = 1 - level.overhead
    bits = level.bank * 8
    crossed = level.shared or not rules.crossbars_where_shared
    each = bits * level.bit_area_mm2 + (held * core.clusters * level.link_area_mm2 if crossed else 0.0)
    fit = held * area // each
    static = level.static_w_per_bit * bits * fit
    bandwidth = do.maximum(power - static, 0.0) / level.energy * (fit > 0)
    bound = do.where(fit > 0, POWER, AREA)
    if rules.sram_ports and level.port is not None:
        through = fit * level.port * core.frequency
        bound = do.where((through < bandwidth) & (fit > 0), PORTS, bound)
        bandwidth = do.minimum(bandwidth, through)
    on = bandwidth > 0
    banks = fit * on
    drawn = (static + bandwidth * level.energy) * on
    return ChipSram(
        banks=banks,
        size=banks * level.bank,
        bandwidth=bandwidth,
        rate=bandwidth * level.utilization,
        energy=level.energy * on,
        static_power=static,
        power=drawn,
        power_left=power - drawn,
        area_left=area - banks * each / held,
        bound=do.where(power > 0, bound, OFF),
    )


def dram_of(part: DramStacks, package_area: Numbers, area: Numbers, power: Numbers, edge: Numbers) -> ChipDram:
    """Derive the DRAM: stacks that fit the package and have a controller, and links that fit the edge.

    Parameters
    ----------
    part : DramStacks
        The technology.
    package_area, area, edge : float or array, mm2, mm2 and mm
        Budgets: package for stacks, chip for controllers, edge for links.
    power : float or array, W
        Budget of power.
    """
    do = arithmetic_of(package_area, area, power, edge)
    placed, controlled = package_area // part.stack_area_mm2, area // part.controller_area_mm2
    stacks = do.maximum(do.minimum(placed, controlled), 0.0)
    routed, offered = do.floor(edge * part.links_per_mm), stacks * part.links_per_stack
    links = do.minimum(routed, offered)
    static = part.static_w_per_bit * 8 * stacks * part.stack
    nominal = part.energy / 8 * links * part.frequency
    at = operating(power - static, nominal, part.supply, part.frequency)
    bandwidth = links * at.frequency / 8
    on = bandwidth > 0
    kept, wired = stacks * on, links * on
    drawn = (at.power + static) * on
    count_bound = do.where(controlled < placed, AREA, PACKAGE_AREA)
    link_bound = do.where(routed < offered, PERIMETER, count_bound)
    bound = do.where(on, at.bound, do.where(links > 0, POWER, link_bound))
    return ChipDram(
        stacks=kept,
        links=links,
        size=kept * part.stack,
        voltage=at.voltage,
        frequency=at.frequency,
        bandwidth=bandwidth,
        rate=bandwidth * part.utilization,
        energy=at.energy * part.energy,
        power=drawn,
        power_left=power - drawn,
        area_left=area - kept * part.controller_area_mm2,
        package_area_left=package_area - kept * part.stack_area_mm2,
        edge_left=edge - wired / part.links_per_mm,
        count_bound=count_bound,
        link_bound=link_bound,
        bound=do.where(power > 0, bound, OFF),
    )


def links_of(
    part: ChipLinks, area: Numbers, power: Numbers, edge: Numbers, degree: int, rules: DerivationRules
) -> Links:
    """Derive the links to other chips: as many as area and edge allow, shared by ``degree`` neighbours.

    Parameters
    ----------
    part : ChipLinks
        The technology.
    area, power, edge : float or array, mm2, W and mm
        Budgets.
    degree : int
        Number of neighbours.
    rules : DerivationRules
        Conventions of the derivation.
    """
    do = arithmetic_of(area, power, edge)
    by_area, by_edge = area / part.area_mm2, edge * part.links_per_mm
    n = do.floor(do.minimum(by_area, by_edge))
    nominal = part.energy / 8 * n * part.frequency
    low = not rules.links_at_v_min
    at = operating(power, nominal, part.supply, part.frequency, low=low, top=not low)
    count_bound = do.where(by_area < by_edge, AREA, PERIMETER)
    return Links(
        links=n,
        voltage=at.voltage,
        frequency=at.frequency,
        rate=n * at.frequency * part.utilization / (8 * degree),
        energy=at.energy * part.energy,
        power=at.power,
        power_left=power - at.power,
        area_left=area - n * part.area_mm2,
        edge_left=edge - n / part.links_per_mm,
        count_bound=count_bound,
        bound=do.where(power > 0, do.where(n > 0, at.bound, count_bound), OFF),
        latency=part.latency or 0.0,
    )
