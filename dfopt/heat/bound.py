"""A bound on the period that no choice of blocks and levels beats, and good choices on the way.

The LP relaxation of a path with side rows is solved over mixtures of paths (Dantzig and Wolfe, Operations Research
8(1), 1960): a small LP over the paths known so far prices a second of every rank and a kelvin second of every row,
and a shortest path under these prices is the best path to add. Every round also gives a Lagrangian bound, and a real
choice. Rows are taken up as they are found too hot: of thousands a handful binds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import LEAST_UNIT, Floats
from dfopt.bnb import Clock
from dfopt.heat.paths import Paths
from dfopt.heat.problem import HeatChoice, HeatProblem
from dfopt.milp.linear import GrowingLp, LpPoint

_ROUNDS = 2000  # far more than it ever takes: a guard against a price that flickers
_SAME = 1e-9
_TAKEN = 8  # rows of a rank taken up at once


@dataclass(frozen=True)
class HeatBound:
    """Result of the Lagrangean relaxation of a heat problem.

    Attributes
    ----------
    bound_s : float
        Seconds: no choice has a shorter period.
    choice, period_s
        The best choice seen, and its period.
    choices : list of HeatChoice
        All choices that were found; their blocks make a good small MILP.
    time_r, row_ri : float array
        Dual prices that prove the bound: of a second of each rank, and of a kelvin second of each row.
    rounds : int
        Shortest paths searched, per stage.
    """

    bound_s: float
    choice: HeatChoice
    period_s: float
    choices: list[HeatChoice]
    time_r: Floats
    row_ri: Floats
    rounds: int


def bound(
    problem: HeatProblem, paths: list[Paths], starts: list[HeatChoice], deadline: float = np.inf, gap: float = 0.0
) -> HeatBound:
    """Solve the Lagrangean relaxation of a heat problem.

    Parameters
    ----------
    problem : HeatProblem
        Blocks, levels and limits.
    paths : list of Paths
        Paths of the problem's stages.
    starts : list of HeatChoice
        Choices to begin with, at least one.
    deadline : float
        Reading of :func:`time.perf_counter` at which the search stops with the bound reached so far.
    gap : float
        Relative distance of bound and best choice that is close enough.

    Examples
    --------
    Two blocks one after the other, at full and at half speed; only half of the energy at half speed. The row allows
    three joules per second: a mixture of levels takes 18/7 s, any real choice three:

    >>> step = np.arange(2)
    >>> seconds, energy = np.array([[1.0, 2.0], [1.0, 2.0]]), np.full((2, 1), 4.5)
    >>> from dfopt.heat.problem import HeatRows, HeatStage
    >>> stage = HeatStage(step, step + 1, step, step, 3, seconds, energy)
    >>> one = np.ones((1, 1))
    >>> rows = HeatRows(("tile",), one[None], np.array([[1.0], [0.5]]), np.zeros((1, 1, 2)), 3 * one, 0 * one)
    >>> problem = HeatProblem((stage,), one, np.zeros(1), 0.0, rows)
    >>> fast = HeatChoice((step,), (np.zeros(2, dtype=int),))
    >>> found = bound(problem, [Paths(stage)], [fast])
    >>> problem.period(fast), round(found.bound_s, 6), found.period_s
    (3.0, 2.571429, 3.0)
    """
    return _MasterProblem(problem, paths, starts, gap).run(deadline)


class _MasterProblem:
    """The paths seen so far with their times and loads, and the LP that mixes them."""

    def __init__(self, problem: HeatProblem, paths: list[Paths], starts: list[HeatChoice], gap: float) -> None:
        self.problem, self.paths, self.gap = problem, paths, gap
        self.best = min(starts, key=problem.period)
        self.period = problem.period(self.best)
        self.unit = max(self.period, LEAST_UNIT)
        self.active = np.zeros(problem.rows.budget_ri.shape, dtype=bool)
        self.seen: list[set[bytes]] = [set() for _ in problem.stages]
        self.stage_p: list[int] = []
        self.time_p: list[Floats] = []  # seconds by rank
        self.load_p: list[Floats] = []  # seconds of the period that every row asks for, by rank
        self.choices: list[HeatChoice] = []
        for choice in starts:
            self.take(choice)
            self.take_up(problem.demand(choice), 0.0)
        self.least, self.rounds = problem.floor, 0
        self.time_r, self.row_ri = np.zeros(len(problem.wait_r)), np.zeros_like(problem.rows.budget_ri)

    def take(self, choice: HeatChoice) -> bool:
        """Add the paths of a choice to the master problem, and tell whether any of them is new."""
        problem, new = self.problem, False
        for number, seen in enumerate(self.seen):
            arcs, levels = choice.arcs[number], choice.levels[number]
            key = arcs.tobytes() + levels.tobytes()
            if key in seen:
                continue
            seen.add(key)
            runs = problem.runs_rs[:, number]
            self.stage_p.append(number)
            energy_k, seconds_l = problem.spent(number, arcs, levels)
            load_ri = problem.rows.rise_rik @ energy_k + problem.rows.above_ril @ seconds_l
            self.time_p.append(runs * seconds_l.sum())
            self.load_p.append(runs[:, None] * load_ri / problem.rows.budget_ri)
            new = True
        if new:
            self.choices.append(choice)
        return new

    def take_up(self, demand_ri: Floats, period: float) -> bool:
        """Take up the rows that ask for more than a period, the hottest first; whether there are any."""
        hot = np.where(self.active, -np.inf, demand_ri)
        new = False
        for rank, row in enumerate(np.argsort(-hot, axis=1)[:, :_TAKEN]):
            chosen = row[hot[rank, row] > period * (1 + _SAME)]
            self.active[rank, chosen] = True
            new |= len(chosen) > 0
        return new

    def run(self, deadline: float) -> HeatBound:
        """Add paths and rows until nothing helps, or the time is up."""
        while time.perf_counter() < deadline:
            point, theta = self._columns(deadline)
            if point is None or self._near():
                break
            demand = np.tensordot(theta, np.array(self.load_p), axes=1)
            demand += self.problem.rows.once_ri / self.problem.rows.budget_ri
            if not self.take_up(demand, float(point.x[0]) * self.unit):
                break
        return HeatBound(
            bound_s=min(self.least, self.period),
            choice=self.best,
            period_s=self.period,
            choices=self.choices,
            time_r=self.time_r,
            row_ri=self.row_ri,
            rounds=self.rounds,
        )

    def _near(self) -> bool:
        return self.period - self.least <= max(self.gap, _SAME) * self.period

    def _columns(self, deadline: float) -> tuple[LpPoint | None, Floats]:
        """Add paths until none has a lower reduced cost, for the rows that are taken up."""
        problem = self.problem
        ranks, stages, rows = len(problem.wait_r), len(problem.stages), int(self.active.sum())
        once = (problem.rows.once_ri / problem.rows.budget_ri)[self.active] / self.unit
        lower = np.concatenate([problem.wait_r / self.unit, once, np.ones(stages)])
        upper = np.concatenate([np.full(ranks + rows, np.inf), np.ones(stages)])
        master = GrowingLp(lower, upper)
        period = np.concatenate([np.ones(ranks + rows), np.zeros(stages)])
        _add(master, period[:, None], problem.floor / self.unit)
        inside = 0
        while True:
            new = [self._column(p) for p in range(inside, len(self.stage_p))]
            inside += len(new)
            if new:
                _add(master, np.stack(new, axis=1), 0.0)
            point = master.solve(Clock(deadline))
            if not point.optimal or self.rounds >= _ROUNDS:
                return None, np.zeros(0)
            self.rounds += 1
            added = self._price(point, ranks + rows)
            if not added or self._near() or point.objective * self.unit - self.least <= _SAME * self.unit:
                theta = np.zeros(len(self.stage_p))
                theta[:inside] = point.x[1:]
                return point, theta

    def _column(self, p: int) -> Floats:
        convexity = np.zeros(len(self.problem.stages))
        convexity[self.stage_p[p]] = 1.0
        return np.concatenate([-self.time_p[p] / self.unit, -self.load_p[p][self.active] / self.unit, convexity])

    def _price(self, point: LpPoint, priced: int) -> bool:
        """Search the shortest paths under the prices of the LP; whether one of them is new."""
        problem, ranks = self.problem, len(self.problem.wait_r)
        dual = np.maximum(point.duals[:priced], 0.0)
        dual /= max(float(dual.sum()), 1.0)  # a solver keeps the column of the period to its tolerance only
        time_r, row_ri = dual[:ranks], np.zeros_like(self.row_ri)
        row_ri[self.active] = dual[ranks:] / problem.rows.budget_ri[self.active]
        choice, costs = cheapest(problem, self.paths, time_r, row_ri)
        total = sum(costs) + float(time_r @ problem.wait_r) + float((row_ri * problem.rows.once_ri).sum())
        total += (1.0 - float(dual.sum())) * problem.floor
        if total > self.least:
            self.least, self.time_r, self.row_ri = total, time_r, row_ri
        period = problem.period(choice)
        if period < self.period:
            self.best, self.period = choice, period
        return self.take(choice)


def _add(master: GrowingLp, columns: Floats, lower: float) -> None:
    import scipy.sparse as sp

    cost = np.zeros(columns.shape[1])
    cost[0] = 1.0 if master.columns == 0 else 0.0  # the first column is the period, the others are paths
    master.add_columns(cost, sp.csc_array(columns), lower)


def cheapest(
    problem: HeatProblem, paths: list[Paths], time_r: Floats, row_ri: Floats
) -> tuple[HeatChoice, list[float]]:
    """Least-cost choice under prices, and the cost of each stage; stages are then independent.

    Parameters
    ----------
    problem, paths : HeatProblem, list of Paths
        The problem, and the shortest paths of its stages.
    time_r, row_ri : float arrays, shapes (ranks,) and (ranks, rows)
        Dual prices of seconds and of limits.
    """
    arcs, levels, costs = [], [], []
    for path, cost_cl in zip(paths, problem.prices(time_r, row_ri), strict=True):
        cost, level = path.cheapest(cost_cl)
        to_go = path.to_go(cost)
        arcs.append(path.shortest(cost, to_go))
        levels.append(level[arcs[-1]])
        costs.append(float(to_go[0]))
    return HeatChoice(tuple(arcs), tuple(levels)), costs
