"""Seconds of kernels on one chip: the roofline of every level of memory, under the best of the tilings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crossflow.chip import LAUNCH, Chip
from crossflow.traffic import Numbers, Sides, traffic

Shape = tuple[int, int, int]
"""m, k, n of a product of an m x k by a k x n matrix."""
ORDERS = {"wst": ((1, 2, 0), (2, 1, 0)), "ast": ((0, 1, 2), (1, 0, 2)), "ost": ((0, 2, 1), (2, 0, 1))}
"""How m, k and n take the three sides of the problem that is tiled, for each dataflow."""
REUSED = {"wst": 0, "ast": 2, "ost": 1}
"""Which of these sides the operand that stays is reused along."""


def dataflow(chip: Chip, shape: Shape) -> str:
    """What stays in the arrays; ``best`` goes by the longest side.

    The program writes that choice over its setting, so the first kernel chooses for all that come after it.
    """
    if chip.kind.dataflow != "best":
        return chip.kind.dataflow
    m, k, n = shape
    return "wst" if m >= max(k, n) else "ost" if k >= max(m, n) else "ast"


def products(chip: Chip, shapes: Sequence[Shape], flow: str) -> list[float]:
    """Seconds of products of matrices, each under its best order and tiling; infinity without cores."""
    if chip.rate <= 0:
        return [math.inf] * len(shapes)
    orders = ORDERS[flow]
    problems = tuple(_ordered(shape, order) for shape in shapes for order in orders)
    elements = traffic(problems, chip.room)
    sides = np.array(problems)
    flop = _flop(*sides.T)
    # an operand stays for so many passes of the array: 2 are read and 1 is written at each end of them
    passes = np.ceil(sides[:, REUSED[flow]] / chip.kind.width)
    multiplied = flop * (2 * passes + 1) / (2 * passes) / chip.kind.width
    flop, times = flop[:, None], level_time(chip, 0, flop, multiplied)[:, None]
    for level, entering in enumerate(elements, start=1):
        times = np.maximum(times, level_time(chip, level, flop, entering))
    best = times.min(axis=1).reshape(len(shapes), len(orders)).min(axis=1)
    return [float(seconds) + LAUNCH for seconds in best]


def products_at_least(chip: Chip, shapes: Sequence[Shape], flow: str) -> list[float]:
    """Seconds that no cache and no tiling beats: each of the three matrices passes through DRAM at least once.

    Into L2 go ``a b p + b c q + a c`` elements of a product of sides a, b and c, where p and q count pieces (of c, of
    a) and are 1 or more. It is then the roofline of DRAM, without latency: so more of either rate is never slower.
    """
    found = []
    for a, b, c in shapes:
        # which side is the inner one is up to the order, and with it what is saved on the first sums
        flop = min(_flop(*_ordered((a, b, c), order)) for order in ORDERS[flow])
        matrices = float(a * b + b * c + a * c)
        found.append(max(flop / chip.rate, matrices * chip.precision / chip.rates[3]) + LAUNCH)
    return found


def level_time(chip: Chip, level: int, flop: Numbers, elements: Numbers) -> Numbers:
    """Seconds by the roofline of one memory: its latency counts where it is what binds."""
    rate, latency = chip.rates[level], chip.kind.latencies[level]
    if rate <= 0:
        return np.full(np.shape(elements), math.inf)
    calculating, moving = flop / chip.rate, elements * chip.precision / rate
    return np.where(moving > calculating, moving + latency, calculating)


def pointwise(chip: Chip, flop: float, elements: float) -> float:
    """Seconds of a kernel whose traffic is one figure: the program books it on the registers alone, in whole bytes."""
    moved = int(elements * chip.precision)
    calculating = flop / chip.rate if chip.rate > 0 else math.inf if flop else 0.0
    moving = moved / chip.rates[0] if chip.rates[0] > 0 else math.inf
    return moving + chip.kind.latencies[0] if moving > calculating else calculating


def _flop(a: Numbers, b: Numbers, c: Numbers) -> Numbers:
    return a * c * (2 * b - 1)


def _ordered(shape: Shape, order: tuple[int, int, int]) -> Sides:
    return float(shape[order[0]]), float(shape[order[1]]), float(shape[order[2]])
