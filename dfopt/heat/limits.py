"""How a plan warms a stack: its limits as rows over what blocks spend, and the temperatures of a choice.

Temperatures of the cells of every die are linear in power, and leakage is linear in temperature around the last known
one (a Newton step: at the answer it is exact). A chip rests at its lowest level, as the judge has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.stack import Stack
from dfopt.errors import Infeasible
from dfopt.fusion.priced import PricedPlan
from dfopt.heat.kernels import OF_CHIP, OF_MEMORY, KernelsOnStack
from dfopt.heat.problem import HeatChoice, HeatProblem, HeatRows
from dfopt.technology.leaking import gain
from dfopt.technology.stack_models import heat_of, power_of

_WARMING = 200  # steps of leakage and temperature; where they do not settle it is far too hot anyway
_HOTTEST_K = 700.0
_BELOW_K = 0.01  # kelvin that a lower refresh rate keeps from the threshold of the next
_STEADY_K: Final = 1e-7  # change of the temperatures at which they are settled: far below what the judge tells apart
ZERO_C: Final = 273.15  # kelvin at 0 degC


@dataclass(frozen=True)
class Linearization:
    """Operating point around which leakage is linearized, for each pipeline rank.

    Attributes
    ----------
    tiles_k : float, shape (ranks, tiles)
        Kelvin.
    voltage_r : float, shape (ranks,)
        Mean voltage of the logic over time, as a share of the nominal one.
    """

    tiles_k: Floats
    voltage_r: Floats


@dataclass(frozen=True)
class Rate:
    """A refresh rate, and the DRAM temperature limit below which it applies, K."""

    rate: float
    below_k: float


class HeatLimits:
    """Thermal limits of one plan and sharding on a stack, with clock levels and refresh rates."""

    def __init__(self, ready: PricedPlan, stack: Stack) -> None:
        self.stack = stack
        self.power, self.heat = power_of(stack), heat_of(stack)
        self.frequency_l = np.array([level.frequency for level in stack.levels])
        self.voltage_l = np.array([level.voltage for level in stack.levels])
        self.clock_l = self.frequency_l * np.square(self.voltage_l)  # what the clock draws, as a share of the nominal
        self.kernels = KernelsOnStack(ready, stack, self.power)
        self.hop_j = self.kernels.spends.hop_r * stack.logic.network

    @property
    def rates(self) -> list[Rate]:
        """Possible refresh rates of the DRAM in ascending order."""
        dram, rates = self.stack.dram, []
        rate = dram.refresh_rate(self.stack.ambient)
        if not self.stack.dram_dies:
            return [Rate(rate, np.inf)]
        for step in dram.refresh:
            if step.above > self.stack.ambient and step.rate > rate:
                rates.append(Rate(rate, step.above - _BELOW_K))
                rate = step.rate
        return [*rates, Rate(rate, np.inf)]

    def basis(self) -> Floats:
        """Distribution of each component's energy over tiles: shape (components, tiles)."""
        power = self.power
        zero = np.zeros(power.count)
        compute = np.zeros((len(power.compute), power.count))
        compute[np.arange(len(power.compute)), power.compute] = 1.0
        spread = [zero if tiles is None else tiles for tiles in (power.sram_tiles, power.noc_tiles)]
        return np.concatenate([compute, [*spread, power.io_tiles, power.dram_tiles, power.io_heat]])

    def scale(self) -> Floats:
        """Energy of every component at every level, relative to nominal voltage."""
        dynamic = np.ones(len(self.power.compute) + len(OF_CHIP) + len(OF_MEMORY))
        dynamic[-len(OF_MEMORY) - 1 :] = 0.0  # and links
        scale: Floats = 1 - dynamic + dynamic * np.square(self.voltage_l)[:, None]
        return scale

    def rows(self, where: Linearization, rate: Rate, margin_k: float = 0.0) -> HeatRows:
        """Linear rows of the temperature limits, with leakage linearized at an operating point.

        Parameters
        ----------
        where : Linearization
            Temperatures and voltages there.
        rate : Rate
            The refresh rate of all ranks; the DRAM must stay cool enough for it.
        margin_k : float
            Kelvin to stay below the limits on temperature.

        Raises
        ------
        Infeasible
            If leakage alone runs away at the operating point.
        """
        names, cells, limit = self._limits(rate, margin_k)
        basis = self.basis()
        parts = [self._of_rank(where.tiles_k[r], float(where.voltage_r[r]), r, rate, cells, limit, basis)
                 for r in range(len(where.voltage_r))]  # fmt: skip
        rise, above, budget, once = map(np.array, zip(*parts, strict=True))
        return HeatRows(names, rise, self.scale(), above, budget, once)

    def _limits(self, rate: Rate, margin_k: float) -> tuple[tuple[str, ...], Ints, Floats]:
        """Names of rows, their cells (-1 is the whole stack) and limits, kelvin or watts."""
        power, side = self.stack.limits.power, self.stack.cells
        names, cells, most = [], [], []
        for at, die in enumerate(self.heat.dies):
            highest = self.stack.most_k(die)
            if die != self.stack.logic_die.name:
                highest = min(highest, rate.below_k)
            if np.isfinite(highest):
                for cell in range(side * side):
                    names.append(f"cell {cell % side},{cell // side} of die {die}, in K,")
                    cells.append(at * side * side + cell)
                    most.append(highest - margin_k)
        if power is not None:
            names.append("the power of the stack, in W,")
            cells.append(-1)
            most.append(power)
        return tuple(names), np.array(cells, dtype=np.int64), np.array(most)

    def _of_rank(
        self, tiles_k: Floats, voltage: float, rank: int, rate: Rate, cells: Ints, limit: Floats, basis: Floats
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Rise by component, rise of a level above rest, budget and load of the hop, all by row."""
        power, heat = self.power, self.heat
        level, clock, rest = self.voltage_l, self.clock_l, float(self.voltage_l[-1])
        leak = power.leakage(tiles_k, rest)
        slope = power.leakage_slope(tiles_k, voltage)
        # T = T_a + R (P + leak + slope (T - T_0))  =>  T - T_a = (1 - R slope)^-1 R (P + leak - slope (T_0 - T_a))
        loop = heat.means_k_per_w * slope
        loop_gain = gain(heat.means_k_per_w, slope, np.arange(len(slope)))
        if loop_gain >= 1:
            raise Infeasible(
                f"heat: leakage runs away at {float(tiles_k.max()) - ZERO_C:.1f} degC (loop gain {loop_gain:.3g}),"
                " below the limits; levers: a better package, less leakage, lower limits"
            )
        warmed = np.linalg.solve(np.eye(len(leak)) - loop, heat.means_k_per_w)
        amplified = np.eye(len(leak)) + slope[:, None] * warmed  # watts with the leakage that they bring
        is_power = cells < 0
        rise = np.concatenate(
            [heat.cells_k_per_w[cells[~is_power]] @ amplified, amplified.sum(axis=0)[None, :][: is_power.sum()]]
        )
        constant = power.steady_power(rate.rate, float(clock[-1])) + leak - slope * (tiles_k - heat.ambient_k)
        extra = power.logic_tiles[:, None] * self.stack.logic.idle * (clock - clock[-1])
        extra += np.where(power.on_logic, leak / rest, 0.0)[:, None] * (level - rest)
        start = np.where(is_power, 0.0, heat.ambient_k)
        hop = self.hop_j[rank] * power.io_tiles
        return rise @ basis.T, rise @ extra, limit - start - rise @ constant, rise @ hop

    def voltage(self, busy_rl: Floats) -> Floats:
        """Time-averaged logic voltage by rank, from its share of time at each level; idle otherwise."""
        volts: Floats = self.voltage_l[-1] + busy_rl @ (self.voltage_l - self.voltage_l[-1])
        return volts

    def settled(
        self, problem: HeatProblem, choice: HeatChoice, period_s: float, rate: Rate
    ) -> tuple[Linearization, float]:
        """Temperatures of a choice at a fixed refresh rate, and the excess over a limit, K.

        The judge would move on to the next rate, whose slower memory is cooler: that does not say how much too hot
        the choice is.

        Parameters
        ----------
        problem, choice : HeatProblem, HeatChoice
            A choice of the problem.
        period_s : float, s
            Its interval between microbatches.
        rate : Rate
            Refresh rate to keep.
        """
        power, heat, clock = self.power, self.heat, self.clock_l
        energy_rk, seconds_rl = problem.spent_by_rank(choice)
        busy_rl = seconds_rl / period_s
        tiles_k, voltage_r, over = np.zeros((len(busy_rl), power.count)), self.voltage(busy_rl), -np.inf
        idle_r = clock[-1] + busy_rl @ (clock - clock[-1])
        joules_r = energy_rk @ self.basis() + self.hop_j[:, None] * power.io_tiles
        _, cells, limit = self._limits(rate, 0.0)
        at = cells >= 0
        for r, joules in enumerate(joules_r):
            watts = joules / period_s + power.steady_power(rate.rate, float(idle_r[r]))
            now = heat.ambient_k + heat.means_k_per_w @ watts
            for _ in range(_WARMING):
                leak = power.leakage(now, float(voltage_r[r]))
                after = heat.ambient_k + heat.means_k_per_w @ (watts + leak)
                moved, now = float(np.abs(after - now).max()), np.minimum(after, _HOTTEST_K)
                if moved < _STEADY_K:
                    break
            tiles_k[r] = now
            rise = heat.cells_k_per_w[cells[at]] @ (watts + power.leakage(now, float(voltage_r[r])))
            over = max(over, float((heat.ambient_k + rise - limit[at]).max(initial=-np.inf)))
        return Linearization(tiles_k, voltage_r), over
