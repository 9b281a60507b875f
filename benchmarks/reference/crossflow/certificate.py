"""The best design of the traced problem, with a proof: branch and bound over shares of the perimeter.

A box is a range of the share of the perimeter that DRAM has. The bound of a box holds for all designs with such a
share: whatever their other shares, whatever is left over, and whatever tiles there are. It has three steps.

**Rates.** At given shares of power no design in the box has a higher rate of anything than its best corner: there DRAM
has the highest share of the perimeter, links have what the lowest share leaves, and every component has the whole chip
for its area. For each rate rises, or stays, with every budget of its component. Cores, DRAM and links are circuits of n
units that draw ``n V (V - V_t)^2`` and work at ``n (V - V_t)^2 / V``, which is their power over ``V^2``; with more of
them V falls, down to the lowest V, whose square then divides the power. Links below it work at ``n V (V - V_t)^2``,
which is their power; DRAM at its highest V works at n. Registers have what their power buys, less leakage, of which the
corner has none. Caches are endless.

**Time.** `step_time_at_least` bounds all chips whose rates are no higher than these.

**Power.** At the corner this bound is convex in the shares of power. So it is above each of its tangent planes, and
above every weighted mean of them; and the least of a mean, where shares sum to 1 at most, is below all designs. It is
convex because it is a sum of the larger of amounts of work over rates, and 1 / rate is convex in the power P: where the
rate is in proportion to P, and where it is constant, that is plain. In between, with u = V - V_t, ``P = (u + V_t) u^2``
and ``1 / rate = (u + V_t) / u^2``, so its slope in P is ``-(u + 2 V_t) / (u^4 (3 u + 2 V_t))``, which rises with u. At
the lowest V the slope is steeper below, where V does not grow with P; at the highest V it is 0 above.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from crossflow.attributed import Rate
from crossflow.chip import Chip
from crossflow.language_model import step_time_at_least
from crossflow.pattern import searched
from crossflow.traced import ROUNDED, Shares, Traced
from crossflow.traffic import Numbers
from dfopt.bnb import (
    BRANCHING,
    Bound,
    BranchingRule,
    Candidate,
    Clock,
    Heuristic,
    Node,
    Outcome,
    Problem,
    Relaxation,
    SearchParameters,
    View,
    branch_and_bound,
)
from dfopt.technology.components import DEGREE, core_of, dram_of, links_of
from dfopt.technology.operating import V_MAX, V_MIN
from dfopt.technology.rules import DEEPFLOW

POWERED = ("core", "dram", "in_package", "registers")
"""Whose shares of power the bound knows."""
PLANES = 100
NEAR = 1e-5
"""Relative distance between a bound by planes and the function at its least at which more planes do not help."""
LEAST = 1e-4
"""Share of power below which no plane is made: there they are steep, and say little of other shares."""
Point = tuple[float, ...]


class Box(NamedTuple):
    """Shares of the perimeter that DRAM has."""

    low: float
    high: float


_WHOLE = Box(0.0, 1.0)


class Supply(NamedTuple):
    """A rate, and by what part of itself it grows with the share of power that it has."""

    rate: float
    growth: float


def supplies(problem: Traced, box: Box, powers: Point) -> list[Supply]:
    """The highest rates of cores, DRAM, links and registers in a box, at some shares of power."""
    technology, area, edge = problem.technology, problem.chip_area, problem.edge
    core, dram, link, register = (share * problem.power for share in powers)
    cores = core_of(technology.core, area, core, DEEPFLOW)
    memory = dram_of(technology.stacks, problem.package_area - area, area, dram, box.high * edge)
    part = technology.links["in_package"]
    links = links_of(part, area, link, (1 - box.low) * edge, DEGREE["in_package"], DEEPFLOW)
    leakage = technology.stacks.static_w_per_bit * 8 * memory.size
    circuits = (
        (cores, technology.core.supply.threshold_v, core),
        (memory, technology.stacks.supply.threshold_v, dram - leakage),
        (links, part.supply.threshold_v, link),
    )
    found = [
        Supply(at.rate, _rise(at.voltage, threshold, at.bound) * problem.power / watts if at.rate > 0 else 0.0)
        for at, threshold, watts in circuits
    ]
    level = next(level for level in technology.sram if level.name == "registers")
    return [*found, Supply(register / level.energy * level.utilization, 1 / powers[-1])]


def _rise(voltage: float, threshold: float, bound: int) -> float:
    """By what part of itself a rate rises per part of the power: d log(rate) / d log(P)."""
    if bound in (V_MIN, V_MAX):
        return float(bound == V_MIN)
    above = voltage - threshold
    return (2 * voltage - above) / (2 * voltage + above)


def corner(problem: Traced, box: Box, powers: Point) -> tuple[float, Point]:
    """Seconds at the best corner of a box at some shares of power, and their slope in each of these."""
    found = supplies(problem, box, powers)
    if not all(supply.rate > 0 for supply in found):
        return math.inf, (0.0,) * len(powers)
    # in place of plain rates: the seconds that come back then know how much work of each kind they are
    kinds = np.eye(len(found)).tolist()
    core, dram, links, registers = (Rate(supply.rate, tuple(kind)) for supply, kind in zip(found, kinds, strict=True))
    chip = Chip(core, (registers, math.inf, math.inf, dram), (math.inf,) * 3, problem.kind)
    ring = problem.ring(links)
    time = step_time_at_least(chip, problem.model, ring)
    done = zip(time.work, (core, dram, ring.rate, registers), found, strict=True)
    return time.seconds, tuple(-work / rate.value * supply.growth for work, rate, supply in done)


def bound(problem: Traced, box: Box, cutoff: float = math.inf) -> float:
    """Seconds that no design in a box is below, less what rounding may add; once at the cutoff it is good enough.

    Planes are added where those before have their least (Kelley, J. SIAM 8(4), 1960). The solver only says which mean
    of them to take: the least of that mean is worked out here.
    """
    if not math.isfinite(corner(problem, box, (1.0,) * len(POWERED))[0]):
        return math.inf
    at, best = (1 / len(POWERED),) * len(POWERED), 0.0
    planes: list[tuple[float, ...]] = []
    for _ in range(PLANES):
        seconds, slope = corner(problem, box, at)
        if not math.isfinite(seconds) or best >= min(cutoff, seconds * (1 - NEAR)):
            break
        planes.append((seconds - float(np.dot(slope, at)), *slope))
        found = _weighted(np.array(planes))
        if found is None:
            break
        weights, at = found
        constant, *slopes = weights @ np.array(planes)
        best = max(best, float(constant + min(0.0, *slopes)) * (1 - ROUNDED))
    return best


def _weighted(planes: Numbers) -> tuple[Numbers, Point] | None:
    """Weights of a mean of planes, and shares of power where the highest of the planes is lowest; none if not found."""
    names = planes.shape[1] - 1
    rows = np.hstack([planes[:, 1:], -np.ones((len(planes), 1))])
    within = np.array([[1.0] * names + [0.0]])
    solved = linprog(
        [0.0] * names + [1.0],
        A_ub=np.vstack([rows, within]),
        b_ub=[*-planes[:, 0], 1.0],
        bounds=[(0, 1)] * names + [(None, None)],
    )
    if solved.status:
        return None
    weights = np.maximum(-solved.ineqlin.marginals[:-1], 0.0)
    return weights / weights.sum(), tuple(max(float(share), LEAST) for share in solved.x[:-1])


class Planes(Relaxation[Box, float]):
    """A mean of planes that no design of a box is below."""

    name = "planes"

    def __init__(self, problem: Traced) -> None:
        self.problem = problem

    def answers(self, regions: Sequence[Box], cutoff: float, clock: Clock) -> list[float]:
        """The bounds of some boxes."""
        return [bound(self.problem, box, cutoff) for box in regions]


class RandomStarts(Heuristic[Box, Shares]):
    """Designs from random starts, all in the first box."""

    def __init__(self, problem: Traced, starts: int) -> None:
        self.problem, self.starts = problem, starts

    def due(self, node: Node[Box], after: str) -> bool:
        """Before the first box is divided."""
        return after == BRANCHING and node.region == _WHOLE

    def propose(self, node: Node[Box], view: View) -> Iterator[Candidate]:
        """The designs that were found."""
        for seed in range(self.starts):
            seconds, shares = searched(self.problem, seed)
            if shares is not None:
                yield Candidate(seconds, shares)


class Halves(BranchingRule[Box]):
    """The halves of a box."""

    def children(self, region: Box, bound: Bound, view: View) -> list[tuple[Box, float]]:
        """Two."""
        middle = (region.low + region.high) / 2
        return [(Box(region.low, middle), bound.value), (Box(middle, region.high), bound.value)]


def best_design(problem: Traced, gap: float, time_limit: float, starts: int) -> Outcome[Box, Shares]:
    """A design that no other beats by more than a gap, if there is the time for it; from some random starts."""
    of = Problem([_WHOLE], [Planes(problem)], [Halves()], [RandomStarts(problem, starts)])
    return branch_and_bound(of, SearchParameters(gap=gap), clock=Clock(time.perf_counter() + time_limit))
