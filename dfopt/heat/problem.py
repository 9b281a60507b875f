"""Heat as a limit on a mapping: blocks of kernels at operating points, and how long they must take to stay cool.

The average power of a chip is the energy of one microbatch over the *period*, the time between two microbatches. The
rise of temperature is linear in power (Fourier's law with constant conductivities). So for every tile of the
floorplan, with chosen blocks ``c`` at levels ``l``::

    sum over chosen blocks of load_cl  <=  budget * period        (kelvin seconds)

is linear in the choice and in the period, and the period that a choice needs is known in closed form: the largest of
its time and of all ``load / budget``. What is more than its time is idle time. Here are the arrays and that closed
form; :mod:`dfopt.heat.bound` bounds the period of any choice, :mod:`dfopt.heat.period` finds the
shortest.

Suffixes: c blocks, l levels, k components of energy, i rows (tiles, and the whole stack for a limit on power),
r pipeline ranks, s stages of the mapping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.errors import Infeasible


@dataclass(frozen=True)
class HeatStage:
    """Blocks of one stage at every clock level, and the arcs whose paths are its partitionings.

    Attributes
    ----------
    tail, head : int, shape (arcs,)
        Nodes; a path leads from node 0 to node ``nodes - 1``.
    block : int, shape (arcs,)
        Block of an arc, -1 for a partition that stays empty.
    step : int, shape (arcs,)
        Ascending along every path: arcs of one step never follow each other.
    nodes : int
        Number of nodes.
    seconds_cl : float, shape (blocks, levels)
        Time of a block, once.
    energy_ck : float, shape (blocks, components)
        Joules of a block by component at nominal voltage, once.
    """

    tail: Ints
    head: Ints
    block: Ints
    step: Ints
    nodes: int
    seconds_cl: Floats
    energy_ck: Floats


@dataclass(frozen=True)
class HeatRows:
    """Coefficients of the thermal limits.

    Attributes
    ----------
    names : tuple of str
        Names of the rows in reports.
    rise_rik : float, shape (ranks, rows, components)
        Kelvin per watt of each component (1 for a row about power).
    scale_lk : float, shape (levels, components)
        Energy of a component at a level as a share of that at nominal voltage.
    above_ril : float, shape (ranks, rows, levels)
        Kelvin by which constant power at a level is above that of a resting chip.
    budget_ri : float, shape (ranks, rows)
        Kelvin that are left above a resting chip; infinite where there is no limit.
    once_ri : float, shape (ranks, rows)
        Kelvin seconds of a microbatch outside of the stages, from messages to the next stage.
    """

    names: tuple[str, ...]
    rise_rik: Floats
    scale_lk: Floats
    above_ril: Floats
    budget_ri: Floats
    once_ri: Floats


@dataclass(frozen=True)
class HeatPrices:
    """Prices of time and energy in a heat problem.

    Attributes
    ----------
    second_l : float array, shape (levels,)
        Price of a second at every clock level.
    joule_lk : float array, shape (levels, components)
        Price of a joule of every component at every level.
    """

    second_l: Floats
    joule_lk: Floats


@dataclass(frozen=True)
class HeatChoice:
    """A solution of a heat problem: a path and clock levels for each stage.

    Attributes
    ----------
    arcs : tuple of int array
        Arcs of the path, in order.
    levels : tuple of int array
        Clock level of each partition; -1 for an empty one.
    """

    arcs: tuple[Ints, ...]
    levels: tuple[Ints, ...]


@dataclass(frozen=True)
class HeatProblem:
    """The heat-aware fusion problem: stages, evaluations of each pipeline rank, and limits.

    Attributes
    ----------
    stages : tuple of HeatStage
        Stages of the mapping that have kernels.
    runs_rs : float, shape (ranks, stages)
        Evaluations of a stage by a rank, for one microbatch.
    wait_r : float, shape (ranks,)
        Seconds of a microbatch that a rank spends outside its stages: the hop to its neighbour.
    floor : float
        Seconds that the period has at least.
    rows : HeatRows
        The limits.

    Raises
    ------
    Infeasible
        If a resting chip alone is above a limit: no pause would help.
    """

    stages: tuple[HeatStage, ...]
    runs_rs: Floats
    wait_r: Floats
    floor: float
    rows: HeatRows

    def __post_init__(self) -> None:
        if not self.rows.budget_ri.size:
            return
        rank, row = np.unravel_index(int(np.argmin(self.rows.budget_ri)), self.rows.budget_ri.shape)
        least = float(self.rows.budget_ri[rank, row])
        if least <= 0:
            raise Infeasible(
                f"heat: {self.rows.names[row]} is {-least:.4g} above its limit while the chip rests, so no pause and no"
                " lower frequency helps; levers: a better package, a cooler ambient, less leakage, background or idle"
                " power, a higher limit"
            )

    def spent(self, number: int, arcs: Ints, levels: Ints) -> tuple[Floats, Floats]:
        """Joules by component and seconds by level of one evaluation of a stage along a path.

        Parameters
        ----------
        number : int
            Number of the stage.
        arcs, levels : int array
            By step of the path, its arc and the level of the DRAM rate.
        """
        stage, scale_lk = self.stages[number], self.rows.scale_lk
        block = stage.block[arcs]
        block, levels = block[block >= 0], levels[block >= 0]
        energy_k: Floats = (stage.energy_ck[block] * scale_lk[levels]).sum(axis=0)
        seconds_l = np.bincount(levels, weights=stage.seconds_cl[block, levels], minlength=len(scale_lk))
        return energy_k, seconds_l.astype(np.float64)

    def spent_by_rank(self, choice: HeatChoice) -> tuple[Floats, Floats]:
        """Joules and seconds of one microbatch, shapes (ranks, components) and (ranks, levels)."""
        each = [self.spent(s, choice.arcs[s], choice.levels[s]) for s in range(len(self.stages))]
        energy_rk, seconds_rl = (self.runs_rs @ np.array(of_stages) for of_stages in zip(*each, strict=True))
        return energy_rk, seconds_rl

    def loads(self, choice: HeatChoice) -> Floats:
        """Thermal load of one microbatch, K s, by rank and row: shape (ranks, rows)."""
        rows, (energy_rk, seconds_rl) = self.rows, self.spent_by_rank(choice)
        load = rows.rise_rik @ energy_rk[:, :, None] + rows.above_ril @ seconds_rl[:, :, None]
        loads: Floats = load[:, :, 0] + rows.once_ri
        return loads

    def demand(self, choice: HeatChoice) -> Floats:
        """Least period that each limit alone requires, s, shape (ranks, rows); the largest binds."""
        demand: Floats = self.loads(choice) / self.rows.budget_ri
        return demand

    def busy(self, choice: HeatChoice) -> Floats:
        """Seconds of one microbatch of every rank without idle time, shape (ranks,)."""
        busy: Floats = self.spent_by_rank(choice)[1].sum(axis=1) + self.wait_r
        return busy

    def period(self, choice: HeatChoice) -> float:
        """Least period in seconds under which a choice keeps every limit.

        Examples
        --------
        One block of 1 s and 30 J, a row of 2 K/W and 40 K to spare: 1.5 s, half a second of them idle.

        >>> once = np.array([0])
        >>> stage = HeatStage(once, once + 1, once, once, 2, np.array([[1.0]]), np.array([[30.0]]))
        >>> one = np.ones((1, 1))
        >>> rows = HeatRows(("tile",), 2 * one[None], one, np.zeros((1, 1, 1)), 40 * one, 0 * one)
        >>> problem = HeatProblem((stage,), one, np.zeros(1), 0.0, rows)
        >>> problem.period(HeatChoice((once,), (once,)))
        1.5
        """
        return max(self.floor, float(self.busy(choice).max()), float(self.demand(choice).max(initial=0.0)))

    def worth(self, number: int, time_r: Floats, row_ri: Floats) -> HeatPrices:
        """Prices of seconds and joules of a stage, from dual prices.

        Parameters
        ----------
        number : int
            The stage.
        time_r, row_ri : float array
            Prices of a second of each rank and of a kelvin second of each row.
        """
        runs, rows = self.runs_rs[:, number], self.rows
        weight_ri = runs[:, None] * row_ri
        second_l = float(runs @ time_r) + np.tensordot(weight_ri, rows.above_ril, axes=2)
        return HeatPrices(second_l, np.tensordot(weight_ri, rows.rise_rik, axes=2) * rows.scale_lk)

    def prices(self, time_r: Floats, row_ri: Floats) -> tuple[Floats, ...]:
        """Cost of every block at every clock level under dual prices, by stage: shape (blocks, levels)."""
        costs = []
        for number, stage in enumerate(self.stages):
            worth = self.worth(number, time_r, row_ri)
            costs.append(stage.energy_ck @ worth.joule_lk.T + stage.seconds_cl * worth.second_l)
        return tuple(costs)
