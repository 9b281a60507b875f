"""A search for a good design of the traced problem, one share at a time (Hooke and Jeeves, J. ACM 8(2), 1961)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from crossflow.traced import ROUNDED, Shares, Traced

FIRST, LAST = 2.0, 1.001
"""Factors on a share: the first ones that are tried, and where it ends."""
AREAS = ("L2", "L1", "registers")
POWERS = ("dram", "L2", "L1", "registers", "in_package")
MOVES = tuple(
    tuple((place == one) * sign - (place == other) * sign for place in range(len(AREAS + POWERS)))
    for sign in (1, -1)
    for other in (None, *range(len(AREAS), len(AREAS + POWERS)))
    for one in range(len(AREAS + POWERS))
    if one != other and (other is None or len(AREAS) <= one < other)
)
"""Exponents of the factor: one share up or down, or one share of power up and another down."""


def design(problem: Traced, free: Sequence[float]) -> Shares | None:
    """A design from its shares of area (``AREAS``) and power (``POWERS``); none if they are too large.

    The cores have what is left of both; DRAM the controllers that it needs, and the perimeter for all of its links;
    links to other chips the rest of the perimeter, and the area for as many as fit there.
    """
    dram = problem.technology.stacks
    wired = problem.stacks * dram.links_per_stack / dram.links_per_mm / problem.edge * (1 + ROUNDED)
    links = problem.technology.links["in_package"]
    fit = (1 - wired) * problem.edge * links.links_per_mm
    area = {
        **dict(zip(AREAS, free[: len(AREAS)], strict=True)),
        "dram": problem.controllers,
        "in_package": fit * links.area_mm2 / problem.chip_area * (1 + ROUNDED),
    }
    power = dict(zip(POWERS, free[len(AREAS) :], strict=True))
    area["core"], power["core"] = 1 - sum(area.values()), 1 - sum(power.values())
    if area["core"] <= 0 or power["core"] <= 0:
        return None
    return {"area": area, "power": power, "perimeter": {"dram": wired, "in_package": 1 - wired}}


def searched(problem: Traced, seed: int) -> tuple[float, Shares | None]:
    """The best design that is found from random shares, and its time: none, with infinity, if they lead nowhere."""

    def seconds(free: Sequence[float]) -> float:
        shares = design(problem, free)
        return math.inf if shares is None else problem.seconds(shares)

    draw = random.Random(seed)
    at = [10 ** draw.uniform(-2.5, -1) for _ in AREAS + POWERS]
    best, factor = seconds(at), FIRST
    while factor > LAST:
        before = best
        for move in MOVES:
            there = [share * factor**power for share, power in zip(at, move, strict=True)]
            if (found := seconds(there)) < best:
                at, best = there, found
        if best == before:
            factor = math.sqrt(factor)
    return best, design(problem, at) if math.isfinite(best) else None
