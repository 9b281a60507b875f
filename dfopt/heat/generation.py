"""The blocks of a heat problem, generated where prices of time and heat say that they may help."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Clock
from dfopt.documents.mapping import Mapping
from dfopt.errors import PlanError
from dfopt.fusion.columns import near_blocks
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import lower_bound
from dfopt.heat.blocks import HotStage, StageBlocks, path_pairs
from dfopt.heat.bound import bound, cheapest
from dfopt.heat.paths import Paths
from dfopt.heat.period import HeatSolution, shortest_period
from dfopt.heat.priced_path import PricedPath
from dfopt.heat.problem import HeatChoice, HeatPrices, HeatProblem, HeatRows
from dfopt.heat.settle import HeatSettler

_ROUNDS = 50  # of generation; it takes a handful
_LOWER = 1e-7  # relative: a path must be cheaper than the cheapest known one by that much to be taken up
_TAKEN = 500  # blocks taken up at once, those on the cheapest paths
_LEAST_S = 0.05  # of a solve, even past the deadline
_ROUGH = 1e-3  # relative gap of solves before the temperatures have settled

Pairs = tuple[Ints, Ints]


class BlockPool:
    """Generated blocks of every stage at one refresh rate.

    Parameters
    ----------
    settler : HeatSettler
        The plan on its stack.
    rate : float
        Refresh rate of the DRAM.
    mappings : list of Mapping
        Their partitions are there from the start.

    Raises
    ------
    PlanError
        If a stage has too many down-sets to list them.
    """

    def __init__(self, settler: HeatSettler, rate: float, mappings: list[Mapping]) -> None:
        self.settler, self.rate, self.mappings = settler, rate, list(mappings)
        self.fused = all(stage.tables.chip.fused for stage in settler.ready.stages.values())
        self.pairs: list[Pairs] = []
        self.hot: list[HotStage] = []
        self.searches: list[ShortestPath] = []
        self.note, self.closed = "", False
        if not self.fused:
            return
        for number in settler.used:
            stage = settler.ready.stages[number]
            hot = settler.limits.kernels.bounding(number, rate)
            if stage.lattice is None:
                raise PlanError(
                    f"heat: 'aware' needs the columns form, at most 20000 down-sets in a stage; stage {number} has more"
                    f" ({hot.tables.kernels} kernels); draw one layer and repeat it, or use heat='ignore' and let the"
                    " judge throttle the mapping"
                )
            self.hot.append(hot)
            self.searches.append(ShortestPath(hot.tables, stage.limits, stage.lattice, np.inf))
            none = np.zeros(0, dtype=np.int64)
            self.pairs.append((none, none))
        for mapping in mappings:
            self.add(mapping)

    def add(self, mapping: Mapping) -> None:
        """Add the partitions of a mapping to the pool."""
        for s, number in enumerate(self.settler.used if self.fused else []):
            pairs = path_pairs(self.searches[s].lattice, self.settler.partitions(mapping, number))
            self.pairs[s] = _merged(self.pairs[s], pairs)

    def _blocks(self, pairs: list[Pairs]) -> list[StageBlocks]:
        if not self.fused:
            return self.settler.chain(self.mappings[0], self.rate)
        return [hot.between(search, near) for hot, search, near in zip(self.hot, self.searches, pairs, strict=True)]

    # ------------------------------------------------------------ solve

    def choose(
        self, rows: HeatRows, final: bool, beat: float = np.inf
    ) -> tuple[list[StageBlocks], HeatProblem, HeatSolution]:
        """The best choice over all blocks under some limits;

        Parameters
        ----------
        rows
            Limits on heat and power.
        final : bool
            Whether the choice is proven to the requested gap. Otherwise it may be rough.
        beat : float, s
            Time at or above which a choice is of no interest.
        """
        settler, effort = self.settler, self.settler.effort
        self.note = ""
        blocks = self._generated(rows)
        problem = settler.problem(blocks, rows)
        starts = settler.starts(blocks, self.mappings)

        answer = self._solved(problem, starts, max(effort.gap, _ROUGH), beat)
        if not self.fused or not final:
            if final:
                answer = self._solved(problem, [answer.choice], effort.gap, beat)
            return blocks, problem, answer
        # The relaxation bounds the choices of all blocks, a MILP those of its own: a split block may have finer levels.
        if self.closed and answer.columns == 0 and (answer.proven or answer.bound_s >= beat):
            return blocks, problem, answer
        every = self._every(problem, answer, beat)
        if every is None:
            return blocks, problem, replace(answer, bound_s=self.floor_s(), note=f"{answer.note}; {self.note}")
        mapping = settler.mapping(blocks, problem, answer.choice, answer.period_s)
        blocks = self._blocks(every)
        problem = settler.problem(blocks, rows)
        return blocks, problem, self._solved(problem, settler.starts(blocks, [mapping])[:1], effort.gap, beat)

    def _solved(self, problem: HeatProblem, starts: list[HeatChoice], gap: float, beat: float) -> HeatSolution:
        """The best choice, looked for at least a little while."""
        effort = self.settler.effort
        until = max(effort.deadline, time.perf_counter() + _LEAST_S)
        return shortest_period(problem, starts, replace(effort, gap=gap, deadline=until), beat)

    def _generated(self, rows: HeatRows) -> list[StageBlocks]:
        """Blocks of all paths that lower the relaxation, and of those that were there."""
        for _ in range(_ROUNDS):
            blocks = self._blocks(self.pairs)
            problem = self.settler.problem(blocks, rows)
            if not self.fused:
                break
            paths = [Paths(stage) for stage in problem.stages]
            relaxed = bound(problem, paths, self.settler.starts(blocks, self.mappings), self.settler.effort.deadline)
            _, costs = cheapest(problem, paths, relaxed.time_r, relaxed.row_ri)
            new, self.closed = False, True
            for s in range(len(self.pairs)):
                priced = self._priced(problem, s, relaxed.time_r, relaxed.row_ri, costs[s] * (1 - _LOWER))
                if priced is None:
                    self.closed = False
                elif np.isfinite(priced.dist[:, -1].min()):
                    before = len(self.pairs[s][0])
                    i, j, _ = near_blocks(priced, _TAKEN)
                    self.pairs[s] = _merged(self.pairs[s], (i, j))
                    new |= len(self.pairs[s][0]) > before
            self.closed &= not new
            if not new or time.perf_counter() > self.settler.effort.deadline:
                break
        return blocks

    def _every(self, problem: HeatProblem, answer: HeatSolution, beat: float) -> list[Pairs] | None:
        """All blocks that a choice below ``beat`` and the answer may use; None if the time does not suffice to say."""
        paths = [Paths(stage) for stage in problem.stages]
        relaxed = bound(problem, paths, [answer.choice], self.settler.effort.deadline)
        _, costs = cheapest(problem, paths, relaxed.time_r, relaxed.row_ri)
        rounding = 2 * _LOWER * (abs(sum(costs)) + answer.period_s)
        slack = max(min(answer.period_s, beat) - relaxed.bound_s, 0.0) + rounding
        pairs = []
        for s, cost in enumerate(costs):
            priced = self._priced(problem, s, relaxed.time_r, relaxed.row_ri, cost + slack)
            if priced is None:
                return None
            i, j, _ = near_blocks(priced)
            pairs.append(_merged(self.pairs[s], (i, j)))
        return pairs

    def _priced(self, problem: HeatProblem, s: int, time_r: Floats, row_ri: Floats, upper: float) -> PricedPath | None:
        """The search for paths of a stage that cost no more than ``upper``; None if the time did not suffice.

        No second has a price below zero: rest is the coolest that a chip can do.
        """
        deadline, limits = self.settler.effort.deadline, self.searches[s].limits
        worth = problem.worth(s, time_r, row_ri)
        prices = HeatPrices(np.maximum(worth.second_l, 0.0), np.maximum(worth.joule_lk, 0.0))
        path = PricedPath(self.hot[s], limits, self.searches[s].lattice, upper, prices)
        if not path.run(Clock(deadline)).complete:
            self.note = "the time limit came before all blocks were priced: no bound"
            return None
        return path

    def floor_s(self) -> float:
        """Lower bound on the interval between microbatches, s, regardless of heat."""
        low = np.array([lower_bound(search.tables, search.limits) for search in self.searches])
        return float((self.settler.runs_rs @ low + self.settler.wait_r).max(initial=0.0)) if self.fused else 0.0


def _merged(pairs: Pairs, others: Pairs) -> Pairs:
    """All pairs of both."""
    every = np.unique(np.concatenate([np.stack(pairs), np.stack(others)], axis=1), axis=1)
    return every[0], every[1]
