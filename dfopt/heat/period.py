"""The shortest period under limits on heat: a MILP over the blocks and levels that the bound does not exclude."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dfopt.arrays import LEAST_UNIT, ROUNDING, Bools, Floats, Ints
from dfopt.fusion.columns import flow_rows
from dfopt.heat.bound import HeatBound, bound
from dfopt.heat.paths import Paths
from dfopt.heat.problem import HeatChoice, HeatProblem
from dfopt.milp import Model, Termination, solve
from dfopt.milp.model import LinearTerm

_PROVEN = 1e-6  # relative: what MILP solvers call equal
_TAKEN = 8  # rows that are too hot, taken up at once
_SMALL = 0.2  # of the time at most for a first MILP over the blocks of the paths that the bound has seen
_LEAST_S: Final = 0.05  # seconds that a MILP gets where no time is left: enough to complete its start
_OPEN: Final = 1e-9  # relative: a slack is a difference, and what is over it by rounding stays


@dataclass(frozen=True)
class HeatEffort:
    """Limits on the effort of a heat solve.

    Attributes
    ----------
    gap : float
        Relative gap at which one may stop; 0 asks for a proof.
    deadline : float
        Reading of :func:`time.perf_counter` at which the solves end.
    solver, seed
        Solver and random seed of the MILPs, see :func:`dfopt.milp.solve`.
    """

    gap: float = 0.0
    deadline: float = np.inf
    solver: str = "highs"
    seed: int = 0

    def left(self, share: float = 1.0, least: float = 0.0) -> float | None:
        """A share of the seconds left, at least ``least``; None without a deadline."""
        left = self.deadline - time.perf_counter()
        return max(left * share, least) if np.isfinite(left) else None


@dataclass(frozen=True)
class HeatSolution:
    """The best choice of a heat problem with its bound.

    Attributes
    ----------
    choice : HeatChoice
        Blocks and levels.
    period_s, bound_s : float
        Period of the choice, and the lower bound on all choices.
    demand_ri : float array
        :meth:`HeatProblem.demand` of the choice.
    price_ri : float array
        Seconds of the period that one kelvin more of each row's budget brings, by the LP relaxation.
    columns : int
        Blocks at levels that the bound left to the MILP.
    note : str
        Remark on the solve, in words.
    """

    choice: HeatChoice
    period_s: float
    bound_s: float
    demand_ri: Floats
    price_ri: Floats
    columns: int
    note: str

    @property
    def gap(self) -> float:
        """Relative gap between period and bound."""
        return max(0.0, (self.period_s - self.bound_s) / self.period_s) if self.period_s > 0 else 0.0

    @property
    def proven(self) -> bool:
        """Whether the period is optimal within solver tolerance."""
        return self.gap <= _PROVEN


def shortest_period(
    problem: HeatProblem,
    starts: list[HeatChoice],
    effort: HeatEffort = HeatEffort(),  # frozen
    beat: float = np.inf,
) -> HeatSolution:
    """Choose blocks and clock levels that minimize the period under all limits.

    Parameters
    ----------
    problem : HeatProblem
        Blocks, levels and limits.
    starts : list of HeatChoice
        Choices that keep them, such as a throttled mapping; at least one. The answer is never worse than these.
    effort : HeatEffort
        Limit on the work and time of the solves; without a deadline they run to the end.
    beat : float
        Seconds of a period that is reached elsewhere: only shorter ones are looked for, and the bound is at most that.

    Examples
    --------
    Two blocks one after the other, the second of them hot. Half speed costs it a second and saves half of its energy:

    >>> from dfopt.heat.problem import HeatRows, HeatStage
    >>> step = np.arange(2)
    >>> seconds, energy = np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[1.0], [11.0]])
    >>> stage = HeatStage(step, step + 1, step, step, 3, seconds, energy)
    >>> one = np.ones((1, 1))
    >>> rows = HeatRows(("tile",), one[None], np.array([[1.0], [0.5]]), np.zeros((1, 1, 2)), 2 * one, 0 * one)
    >>> problem = HeatProblem((stage,), one, np.zeros(1), 0.0, rows)
    >>> fast = HeatChoice((step,), (np.zeros(2, dtype=int),))
    >>> found = shortest_period(problem, [fast])
    >>> problem.period(fast), found.period_s, found.choice.levels[0].tolist(), found.proven
    (6.0, 3.25, [0, 1], True)
    """
    paths = [Paths(stage) for stage in problem.stages]
    relaxed = bound(problem, paths, starts, effort.deadline, effort.gap)
    wanted = min(relaxed.period_s, beat)
    task = _PeriodSearch(problem, paths, relaxed, relaxed.choice, wanted, effort)
    note = f"{relaxed.rounds} shortest paths"
    least, columns = relaxed.bound_s, 0
    if task.open(least):
        seen = [np.zeros((len(stage.block), stage.seconds_cl.shape[1]), dtype=bool) for stage in problem.stages]
        for choice in relaxed.choices:
            for kept, arcs, levels in zip(seen, choice.arcs, choice.levels, strict=True):
                kept[arcs, levels] = True
        task, _ = _by_milp(task, seen, effort.left(_SMALL))
    if task.open(least):
        keep = _survivors(task, relaxed)
        columns = int(sum(kept.sum() for kept in keep))
        task, low = _by_milp(task, keep, effort.left(least=_LEAST_S))
        least = max(least, min(low, task.period))
        note += f", {columns} blocks at levels in the MILP"
    return HeatSolution(
        choice=task.best,
        period_s=problem.period(task.best),
        bound_s=min(least, task.period),
        demand_ri=problem.demand(task.best),
        # d period / d budget of the relaxation: the row is `budget * period >= load`
        price_ri=relaxed.row_ri * relaxed.bound_s,
        columns=columns,
        note=note,
    )


@dataclass(frozen=True)
class _PeriodSearch:
    """One search, with the best choice so far; the period is what others must be below, of that choice or given."""

    problem: HeatProblem
    paths: list[Paths]
    relaxed: HeatBound
    best: HeatChoice
    period: float
    effort: HeatEffort

    def open(self, least: float) -> bool:
        """Whether something is left to prove, and time to do it."""
        far = self.period - least > max(self.effort.gap, _PROVEN) * self.period
        return far and time.perf_counter() < self.effort.deadline


def _survivors(task: _PeriodSearch, relaxed: HeatBound) -> list[Bools]:
    """Arcs at levels that some choice better than the best may use, shape (arcs, levels) per stage.

    By the prices of the relaxation no choice through the others is better (reduced-cost fixing).
    """
    slack = task.period - relaxed.bound_s
    survivors = []
    prices = task.problem.prices(relaxed.time_r, relaxed.row_ri)
    for stage, path, cost_cl in zip(task.problem.stages, task.paths, prices, strict=True):
        cost, level = path.cheapest(cost_cl)
        through = path.through(cost)
        least = float(through.min())
        real = stage.block >= 0
        extra = np.zeros((len(stage.block), cost_cl.shape[1]))
        extra[real] = cost_cl[stage.block[real]] - cost[real, None]
        extra[~real, 1:] = np.inf
        with np.errstate(invalid="ignore"):
            keep = through[:, None] + extra - least <= slack * (1 + _OPEN) + ROUNDING * task.period
        keep[real] &= ~_dominated(task.problem, stage.seconds_cl)[stage.block[real]]
        keep[np.arange(len(level)), level] |= through - least <= slack
        survivors.append(keep)
    return survivors


def _dominated(problem: HeatProblem, seconds_cl: Floats) -> Bools:
    """Levels that a slower one replaces for nothing: as fast, because compute does not bind, and cooler."""
    rows = problem.rows
    cooler = bool((np.diff(rows.scale_lk, axis=0) <= 0).all() and (np.diff(rows.above_ril, axis=2) <= 0).all())
    dominated = np.zeros(seconds_cl.shape, dtype=bool)
    if cooler and (rows.rise_rik >= 0).all():
        dominated[:, :-1] = seconds_cl[:, :-1] == seconds_cl[:, 1:]
    return dominated


def _by_milp(task: _PeriodSearch, keep: list[Bools], time_limit: float | None) -> tuple[_PeriodSearch, float]:
    """Solve over the kept arcs and levels; rows of tiles are added as they are found too hot.

    Returns the task with a better choice, if there is one, and a bound on choices of the kept arcs, in seconds.
    """
    effort = replace(task.effort, deadline=np.inf if time_limit is None else time.perf_counter() + time_limit)
    problem = task.problem
    active, low = task.relaxed.row_ri > 0, 0.0
    while True:
        model = _HeatModel(task, keep, active)
        solution = solve(
            model.model,
            gap=effort.gap,
            time_limit=effort.left(least=_LEAST_S),
            cutoff=task.period / model.unit,
            seed=effort.seed,
            solver=effort.solver,
        )
        if solution.termination is Termination.INFEASIBLE:  # nothing at or below the best
            return task, task.period
        low = max(low, solution.bound * model.unit if np.isfinite(solution.bound) else 0.0)
        if solution.x is None:
            return task, low
        choice = model.decode(solution.x)
        period = problem.period(choice)
        if period < task.period:
            task = replace(task, best=choice, period=period)
        demand = np.where(active, 0.0, problem.demand(choice))
        hot = demand > solution.objective * model.unit * (1 + _PROVEN)
        if not hot.any() or not solution.proven or time.perf_counter() > effort.deadline:
            return task, low
        active |= hot & (demand >= np.sort(demand, axis=None)[-_TAKEN:].min())


class _HeatModel:
    """One binary per kept arc and level, the period, a row per rank and active tile."""

    def __init__(self, task: _PeriodSearch, keep: list[Bools], active: Bools) -> None:
        problem = task.problem
        self.problem, self.unit = problem, max(task.period, LEAST_UNIT)
        self.model = Model("heat")
        period = self.model.continuous("period", 1, lower=problem.floor / self.unit)
        self.model.minimize([(period, 1.0)])
        self.parts: list[tuple[Ints, Ints]] = []
        levels = len(problem.rows.scale_lk)
        rank_a, row_a = np.nonzero(active)
        columns, seconds, loads = [], [], []
        for s, (stage, kept) in enumerate(zip(problem.stages, keep, strict=True)):
            arc, level = np.nonzero(kept)
            self.parts.append((arc, level))
            x = self.model.binary(f"x{s}", (len(arc),))
            columns.append(x)
            flow_rows(self.model, x, stage.tail[arc], stage.head[arc], 0, stage.nodes - 1, f"flow{s}")
            block = stage.block[arc]
            real = block >= 0
            took = np.where(real, stage.seconds_cl[block, level], 0.0)
            rise = np.zeros((len(rank_a), len(arc)))
            if len(rank_a):
                for at in range(levels):
                    at_level = real & (level == at)
                    energy = stage.energy_ck[block[at_level]] * problem.rows.scale_lk[at]
                    rise[:, at_level] = problem.rows.rise_rik[rank_a, row_a] @ energy.T
                    rise[:, at_level] += problem.rows.above_ril[rank_a, row_a, at][:, None] * took[at_level]
            seconds.append(problem.runs_rs[:, s, None] * took / self.unit)
            budget = problem.rows.budget_ri[rank_a, row_a]
            loads.append(problem.runs_rs[rank_a, s][:, None] * rise / (budget[:, None] * self.unit))
        every = np.concatenate(columns)

        def period_covers(name: str, needs: Floats, least: Floats) -> None:
            count = len(least)
            terms: list[LinearTerm] = [(np.tile(period, (count, 1)), 1.0), (np.tile(every, (count, 1)), -needs)]
            self.model.rows(name, terms, least)

        period_covers("time", np.concatenate(seconds, axis=1), problem.wait_r / self.unit)
        if len(rank_a):
            once = problem.rows.once_ri[rank_a, row_a] / (problem.rows.budget_ri[rank_a, row_a] * self.unit)
            period_covers("heat", np.concatenate(loads, axis=1), once)

    def decode(self, x: Floats) -> HeatChoice:
        """The chosen arcs of every stage in the order of their path, and their levels."""
        arcs, levels = [], []
        for s, (arc, level) in enumerate(self.parts):
            taken = np.flatnonzero(self.model.value(f"x{s}", x) > 0.5)
            stage = self.problem.stages[s]
            taken = taken[np.argsort(stage.tail[arc[taken]], kind="stable")]
            arcs.append(arc[taken].astype(np.int64))
            levels.append(level[taken].astype(np.int64))
        return HeatChoice(tuple(arcs), tuple(levels))
