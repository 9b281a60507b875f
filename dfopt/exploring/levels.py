"""Levels of the clock of a chip on a stack, or of any of several chips, the chip at one of them, and mixtures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

from dfopt.documents.stack import Stack
from dfopt.documents.system import System
from dfopt.documents.technology import CoreUnit
from dfopt.technology.components import Core, clock_at

_RUNGS: Final = 16  # intervals of voltage from the lowest that works to the highest


class Rung(NamedTuple):
    """A clock level of a chip.

    Attributes
    ----------
    share : float
        Clock relative to that of the corner.
    flop, sram : float, J
        Energy of a FLOP, and of a byte of SRAM traffic.
    voltage : float
        Relative voltage of leaking logic; 0 if it differs between designs.
    """

    share: float
    flop: float
    sram: float
    voltage: float = 0.0  # of what leaks at it; 0 where that is not the same for all designs


def levels_of_stack(stack: Stack) -> list[Rung]:
    """Clock levels of one stack."""
    return [
        Rung(level.frequency, stack.logic.flop * level.voltage**2, stack.logic.sram * level.voltage**2, level.voltage)
        for level in stack.levels
    ]


def intervals_of_voltage(unit: CoreUnit, corner: Core) -> list[Rung]:
    """Clock levels that bound those of all chips of a technology, interval by interval of the voltage.

    Each has the clock of the interval's upper end and the energy of its lower end.

    Parameters
    ----------
    unit : CoreUnit
        The technology of cores.
    corner : Core
        The best core of the box.
    """
    supply, nominal = unit.supply, unit.power / (unit.frequency * unit.flop_per_cycle)
    top = max(supply.max_v or float(corner.voltage), supply.floor)
    ends = [supply.floor + (top - supply.floor) * at / _RUNGS for at in range(_RUNGS + 1)]
    rungs = []
    for low, high in zip(ends, (*ends[1:], math.inf), strict=True):
        share = 1.0
        if high <= top:
            share = min(float(clock_at(unit, high) / corner.frequency), 1.0)
        rungs.append(Rung(share, nominal * (low / supply.nominal_v) ** 2, 0.0))
        if share == 1.0:  # what has a higher voltage yet is no faster than the corner
            break
    return rungs[::-1]


def slower(system: System, share: float, sram: bool = True) -> System:
    """A machine with its chip at a share of the clock and no stack; memories beside the chip and links are unchanged.

    Parameters
    ----------
    system : System
        System at full clock.
    share : float
        Share of the chips' clock, which compute follows.
    sram : bool
        Whether the bandwidth of SRAM follows too.

    Examples
    --------
    >>> from dfopt.machines.compose import load_system
    >>> whole = load_system("sn10-8-ring")
    >>> slower(whole, 0.5).chip.peak_flops / whole.chip.peak_flops, slower(whole, 1.0) == whole
    (0.5, True)
    """
    if share == 1:
        return system.model_copy(update={"stack": None})
    chip = system.chip.faster(share)
    if sram and chip.sram.bandwidth is not None:
        own = chip.sram.model_copy(update={"bandwidth": chip.sram.bandwidth * share})
        chip = chip.model_copy(update={"sram": own})
    return system.model_copy(update={"chip": chip, "stack": None})


def mixture(points: Sequence[tuple[float, float]]) -> float:
    """Least value of the larger coordinate over all convex combinations of points.

    Examples
    --------
    >>> mixture([(1.0, 3.0), (3.0, 1.0), (4.0, 0.5)])
    2.0
    """
    least = min(max(point) for point in points)
    for (a, b), (c, d) in combinations(points, 2):
        left, right = a - b, c - d
        if left * right < 0:  # on the line between them both are equal somewhere
            part = left / (left - right)
            least = min(least, a + part * (c - a))
    return least
