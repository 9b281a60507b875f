"""What sizes of components take of each budget, and which sizes there are where a design does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dfopt.documents.design import DesignBudgets
from dfopt.documents.technology import SramLevel, Technology

ROUND = 1e-9  # relative; areas and edges are multiplied and divided again
_STEPS = 64  # of a size without choices of its own


class Need(NamedTuple):
    """Area (mm2), power (W) and perimeter (mm) that a component takes."""

    area: float
    power: float
    perimeter: float


def need_of(technology: Technology, name: str, size: float) -> Need:
    """Area, power and perimeter of a component of some size at nominal voltage, without links from SRAM to clusters.

    Parameters
    ----------
    technology
        The technology.
    name : str
        Name of the component: ``dram``, a role of links, or a level of SRAM.
    size : float
        Its size: stacks of DRAM, B/s of links, or bytes of SRAM.
    """
    if name == "dram":
        part = technology.stacks
        links = size * part.links_per_stack
        nominal = part.energy / 8 * links * part.frequency + part.static_w_per_bit * 8 * size * part.stack
        return Need(size * part.controller_area_mm2, nominal, links / part.links_per_mm)
    if name in technology.links:
        wire = technology.links[name]
        count = math.ceil(size * 8 / (wire.frequency * wire.utilization) * (1 - ROUND))
        return Need(count * wire.area_mm2, wire.energy / 8 * count * wire.frequency, count / wire.links_per_mm)
    level = level_of(technology, name)
    banks = banks_of(level, size)
    bits = banks * level.bank * 8
    power = level.static_w_per_bit * bits
    if level.port is not None:
        power += banks * level.port * technology.core.frequency * level.energy
    return Need(bits * level.bit_area_mm2 / (1 - level.overhead), power, 0.0)


def level_of(technology: Technology, name: str) -> SramLevel:
    """The SRAM level of a technology with this name."""
    return next(level for level in technology.sram if level.name == name)


def banks_of(level: SramLevel, size: float) -> int:
    """Number of SRAM banks for ``size`` bytes."""
    return math.ceil(size / level.bank * (1 - ROUND))


def crossed_mm2(technology: Technology, sizes: Mapping[str, float]) -> float:
    """Area of each cluster's links to all SRAM banks, mm2, for given sizes."""
    levels = [level for level in technology.sram if level.name in sizes and level.shared]
    return sum(banks_of(level, sizes[level.name]) * level.link_area_mm2 for level in levels)


def all_sizes(technology: Technology, budgets: DesignBudgets, edge_mm: float, name: str) -> tuple[float, ...]:
    """Candidate sizes of a component without listed choices: all numbers of stacks that fit, or even steps.

    Parameters
    ----------
    technology, budgets : Technology, DesignBudgets
        The technology, and the budgets of the chip.
    edge_mm : float, mm
        Edge of the die.
    name : str
        Component.
    """
    area = budgets.chip_area_mm2
    if name == "dram":
        part = technology.stacks
        by_edge = edge_mm * part.links_per_mm / part.links_per_stack
        by_package = (budgets.package_area_mm2 - area) / part.stack_area_mm2
        most = math.floor(min(by_package, area / part.controller_area_mm2, by_edge) * (1 + ROUND))
        return tuple(float(count) for count in range(1, most + 1))
    if name in technology.links:
        wire = technology.links[name]
        most = math.floor(min(area / wire.area_mm2, edge_mm * wire.links_per_mm))
        return tuple(count * wire.frequency * wire.utilization / 8 for count in _even(most))
    level = level_of(technology, name)
    most = math.floor(area * (1 - level.overhead) / (level.bank * 8 * level.bit_area_mm2))
    return tuple(count * level.bank for count in _even(most))


def _even(most: int) -> list[int]:
    return sorted({math.ceil(most * step / _STEPS) for step in range(1, _STEPS + 1)}) if most > 0 else []
