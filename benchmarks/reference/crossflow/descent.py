"""Gradient descent over shares, as in equation 6 of the DeepFlow paper, with the constants of the authors' program.

Like the program (github.com/nanocad-lab/DeepFlow, 566c192) it does without the norm by which the equation divides W.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from crossflow.traced import Shares, Traced

STEPS = 100
RATE = 1.0
"""The learning rate: a step is this long in each budget, whose gradient is divided by its norm."""
KEPT = 0.9
"""How much of the average of earlier shares counts."""
PROBE = 0.5
"""By how much of itself a share is raised to see what it does."""
LEAST = 0.01
"""What a share is set to that a step would take below 0."""
COMPONENTS = {
    "area": ("core", "dram", "L2", "L1", "registers", "in_package"),
    "power": ("core", "dram", "L2", "L1", "registers", "in_package"),
    "perimeter": ("dram", "in_package"),
}


def start(seed: int) -> Shares:
    """Random shares: integers up to 99, over their sum."""
    draw = random.Random(seed)
    found = {}
    for budget, names in COMPONENTS.items():
        drawn = draw.sample(range(1, 100), len(names))
        found[budget] = {name: value / sum(drawn) for name, value in zip(names, drawn, strict=True)}
    return found


def descent(problem: Traced, shares: Shares, *, held: bool) -> Iterator[tuple[Shares, float]]:
    """The designs of a descent, the first one included, each with its time; there is no end to them.

    Each costs an evaluation for itself, and one for each share to get to the next. A share has gradient 0 where one of
    the two times is infinite. Shares of a budget are averaged and then divided by their sum, which projects them onto
    the budget. ``held`` projects them onto designs that hold the workload, too, as the program does: controllers of
    DRAM have the area that it takes. The equation has none of that.
    """
    average = {budget: dict.fromkeys(names, 0.0) for budget, names in shares.items()}
    while True:
        seconds = problem.seconds(shares)
        yield shares, seconds
        gradients = {budget: _gradient(problem, shares, budget, seconds) for budget in shares}
        shares = {budget: _stepped(shares[budget], gradients[budget], average[budget]) for budget in shares}
        if held:
            shares = {**shares, "area": _held(shares["area"], problem.controllers)}


def _stepped(shares: Mapping[str, float], gradient: Mapping[str, float], average: dict[str, float]) -> dict[str, float]:
    """The next shares of one budget; the average is brought up to date."""
    length = math.hypot(*gradient.values()) or 1.0
    for name, share in shares.items():
        moved = share - RATE * gradient[name] / length
        average[name] = KEPT * average[name] + (1 - KEPT) * (moved if moved > 0 else LEAST)
    total = sum(average.values())
    return {name: value / total for name, value in average.items()}


def _held(areas: Mapping[str, float], controllers: float) -> Mapping[str, float]:
    if areas["dram"] >= controllers:
        return areas
    rest = (1 - controllers) / (1 - areas["dram"])
    return {name: controllers if name == "dram" else rest * share for name, share in areas.items()}


def _gradient(problem: Traced, shares: Shares, budget: str, seconds: float) -> dict[str, float]:
    found = {}
    for name, share in shares[budget].items():
        step = PROBE * share
        more = problem.seconds({**shares, budget: {**shares[budget], name: share + step}})
        found[name] = (more - seconds) / step if step and math.isfinite(more) and math.isfinite(seconds) else 0.0
    return found
