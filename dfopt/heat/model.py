"""A plan on a stack as a heat problem: what kernels spend and wait for, and how that warms the dies.

Traffic, streams and energies of single kernels are worked out once (`dfopt.heat.spending`); blocks of kernels are sums
of them. Temperatures of the hottest cell of every die are linear in power, and
leakage is linear in temperature around the last known one (a Newton step: at the answer it is exact). A chip rests at
its lowest level, as the judge has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.documents.stack import Stack
from dfopt.errors import Infeasible
from dfopt.heat.blocks import KernelHeat
from dfopt.heat.problem import HeatChoice, HeatProblem, HeatRows
from dfopt.heat.spending import spending
from dfopt.search.candidate import Prepared
from dfopt.setting.tables import Floats, Ints
from dfopt.technology.leaking import gain
from dfopt.technology.power import PowerModel
from dfopt.technology.stack_models import heat_of
from dfopt.technology.streams import Flow, Memory

_WARMING = 200  # steps of leakage and temperature; where they do not settle it is far too hot anyway
_HOTTEST_K = 700.0
_BELOW_K = 0.01  # kelvin that a lower refresh rate keeps from the threshold of the next


@dataclass(frozen=True)
class Operating:
    """Where leakage is taken to be linear, for each pipeline rank.

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
    """A refresh rate, and the kelvin that no DRAM die may pass for it to stay."""

    rate: float
    below_k: float


class HeatModel:
    """Numbers of one prepared plan on a stack.

    Parameters
    ----------
    ready : Prepared
        The plan with its sharding.
    stack : Stack
        The chip.
    """

    def __init__(self, ready: Prepared, stack: Stack) -> None:
        self.ready, self.stack = ready, stack
        self.power = PowerModel.from_stack(stack, ready.system.chip.tiles)
        self.heat = heat_of(stack)
        self.memory = Memory(stack)
        self.frequency_l = np.array([level.frequency for level in stack.levels])
        self.voltage_l = np.array([level.voltage for level in stack.levels])
        self.clock_l = self.frequency_l * np.square(self.voltage_l)  # what the clock draws, as a share of the nominal
        self.spends = spending(ready)
        self.hop_j = self.spends.hop_r * stack.logic.network

    @property
    def rates(self) -> list[Rate]:
        """The refresh rates that the DRAM may have, from the slowest on."""
        dram, found = self.stack.dram, []
        rate = dram.refresh_rate(self.stack.ambient)
        if not self.stack.dram_dies:
            return [Rate(rate, np.inf)]
        for step in dram.refresh:
            if step.above > self.stack.ambient and step.rate > rate:
                found.append(Rate(rate, step.above - _BELOW_K))
                rate = step.rate
        return [*found, Rate(rate, np.inf)]

    # ------------------------------------------------------------ kernels

    def place(self, tiles_bk: Ints, joules_bk: Floats) -> Floats:
        """Joules on the compute tiles of the floorplan, (blocks, F), as the judge places kernels.

        The same as with `dfopt.technology.placement.placement_shares`, without its shares of every kernel: along the
        line of tiles the joules so far are a broken line, and a tile has the difference at its two ends.
        """
        power = self.power
        size = power.areas[power.compute]
        if self.stack.placement == "interleaved":
            spread: Floats = joules_bk.sum(axis=1)[:, None] * (size / size.sum())
            return spread
        line = np.array(power.order)
        edges = np.concatenate([[0.0], np.cumsum(size[line])]) / size.sum()
        ends = np.cumsum(tiles_bk, axis=1, dtype=np.float64)
        cycle = self.ready.assumptions.compute_model == "cycle"
        total = np.maximum(ends[:, -1], float(self.ready.system.chip.tiles) if cycle else 0.0)
        ends = ends / np.where(total > 0, total, 1.0)[:, None]
        # all blocks at once: each on its own stretch of one long line, two units apart
        start = 2.0 * np.arange(len(tiles_bk))[:, None]
        zero = np.zeros((len(tiles_bk), 1))
        known = np.concatenate([zero, np.cumsum(joules_bk, axis=1)], axis=1)
        at = start + np.concatenate([zero, ends, zero + 1.0], axis=1)  # past the last kernel nothing is added
        known = np.concatenate([known, known[:, -1:]], axis=1)
        so_far = np.interp((start + edges).ravel(), at.ravel(), known.ravel()).reshape(len(tiles_bk), -1)
        so_far[:, -1] = known[:, -1]  # whatever rounding did to the last edge
        found = np.zeros((len(tiles_bk), len(size)))
        found[:, line] = np.diff(so_far, axis=1)
        return found

    def kernels(self, number: int, rate: float) -> KernelHeat:
        """Joules and memory time of the kernels of a stage of the mapping at a refresh rate."""
        stage = self.ready.stages[number]
        members, spends = stage.members, self.spends
        logic, power = self.stack.logic, self.power
        local, other = logic.flop * spends.flop_k[members], np.zeros((len(members), 3))
        for at, (joules_k, tiles) in enumerate(
            ((logic.sram * spends.sram_k, power.sram_tiles), (logic.noc * spends.noc_k, power.noc_tiles))
        ):
            if tiles is None:
                local = local + joules_k[members]
            else:
                other[:, at] = joules_k[members]
        other[:, 2] = logic.network * spends.sent_k[members]
        own = [spends.own[k] for k in members.tolist()]
        group = [spends.fans[g] for g in _groups(self.ready, members)]
        written, read = ([[pair[side]] if pair else [] for pair in group] for side in (0, 1))
        return KernelHeat(
            local_k=local,
            own_kx=np.concatenate([other, self._joules(own)], axis=1),
            write_gx=np.pad(self._joules(written), ((0, 0), (3, 0))),
            read_gx=np.pad(self._joules(read), ((0, 0), (3, 0))),
            own_s_k=np.array([self._alone_s(flows, rate) for flows in own]),
            write_s_g=np.array([self._alone_s(flows, rate) for flows in written]),
            read_s_g=np.array([self._alone_s(flows, rate) for flows in read]),
            reads_k=np.array([any(not flow.write for flow in flows) for flows in own], dtype=bool),
            writes_k=np.array([any(flow.write for flow in flows) for flows in own], dtype=bool),
            turn=self._turn(rate),
        )

    def _joules(self, each: Sequence[Sequence[Flow]]) -> Floats:
        """Joules of the DRAM commands of some flows, and of their way to the logic die, shape (n, 2)."""
        energies, found = self.stack.dram.energies, np.zeros((len(each), 2))
        for at, flows in enumerate(each):
            made = self.memory.by_pattern(flows).commands
            commands = energies.activate * made.activates + energies.read_burst * made.reads
            found[at, 0] = commands + energies.write_burst * made.writes
            found[at, 1] = energies.io * self.stack.dram.burst * (made.reads + made.writes)
        return found

    def _alone_s(self, flows: Sequence[Flow], rate: float) -> float:
        """Seconds of flows that are served one after the other."""
        return sum(self._seconds([flow], rate) for flow in flows)

    def _seconds(self, flows: Sequence[Flow], rate: float) -> float:
        return self.memory.serve(self.memory.by_pattern(flows), rate).seconds

    def _every(self) -> list[Flow]:
        """All flows of the plan."""
        return [flow for flows in (*self.spends.own, *(pair or () for pair in self.spends.fans)) for flow in flows]

    def _turn(self, rate: float) -> float:
        """Share of the bandwidth that is left where reads and writes take turns: the same for all mixes."""
        every = self._every()
        read = next((flow for flow in every if not flow.write), None)
        write = next((flow for flow in every if flow.write), None)
        if read is None or write is None:
            return 1.0
        both = self._seconds([read, write], rate)
        return (self._alone_s([read], rate) + self._alone_s([write], rate)) / both

    def fastest(self, rate: float) -> float:
        """Bytes per second that no mix of the plan's streams exceeds."""
        best = [flow.bytes / self._alone_s([flow], rate) for flow in self._every()]
        return max(best, default=self.stack.dram.peak)

    # ------------------------------------------------------------ rows

    def basis(self) -> Floats:
        """Where a joule of each component goes, shape (components, tiles): compute tiles, then the others."""
        power = self.power
        zero = np.zeros(power.count)
        compute = np.zeros((len(power.compute), power.count))
        compute[np.arange(len(power.compute)), power.compute] = 1.0
        spread = [zero if tiles is None else tiles for tiles in (power.sram_tiles, power.noc_tiles)]
        return np.concatenate([compute, [*spread, power.io_tiles, power.dram_tiles, power.io_heat]])

    def scale(self) -> Floats:
        """Energy of every component at every level, as a share of that at nominal voltage."""
        dynamic = np.ones(len(self.power.compute) + 5)
        dynamic[-3:] = 0.0  # links, DRAM, and the way to it
        scale: Floats = 1 - dynamic + dynamic * np.square(self.voltage_l)[:, None]
        return scale

    def rows(self, where: Operating, rate: Rate, margin_k: float = 0.0) -> HeatRows:
        """The limits as rows, with leakage linear around an operating point.

        Parameters
        ----------
        where : Operating
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
        rise, above, budget, once = (np.array([part[i] for part in parts]) for i in range(4))
        return HeatRows(names, rise, self.scale(), above, budget, once)

    def _limits(self, rate: Rate, margin_k: float) -> tuple[tuple[str, ...], Ints, Floats]:
        """Names of rows, their cells (-1 is the whole stack) and limits, kelvin or watts."""
        limits, side = self.stack.limits, self.stack.cells
        drams = {die.name for die in self.stack.dram_dies}
        names, cells, most = [], [], []
        for at, die in enumerate(self.heat.dies):
            highest = np.inf
            if die in drams:
                highest = min(np.inf if limits.dram is None else limits.dram, rate.below_k)
            elif die == self.stack.logic_die.name and limits.logic is not None:
                highest = limits.logic
            if np.isfinite(highest):
                for cell in range(side * side):
                    names.append(f"cell {cell % side},{cell // side} of die {die}, in K,")
                    cells.append(at * side * side + cell)
                    most.append(highest - margin_k)
        if limits.power is not None:
            names.append("the power of the stack, in W,")
            cells.append(-1)
            most.append(limits.power)
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
                f"heat: leakage runs away at {float(tiles_k.max()) - 273.15:.1f} degC (loop gain {loop_gain:.3g}),"
                " below the limits; levers: a better package, less leakage, lower limits"
            )
        warmed = np.linalg.solve(np.eye(len(leak)) - loop, heat.means_k_per_w)
        whole = np.eye(len(leak)) + slope[:, None] * warmed  # watts with the leakage that they bring
        is_power = cells < 0
        rise = np.concatenate(
            [heat.cells_k_per_w[cells[~is_power]] @ whole, whole.sum(axis=0)[None, :][: is_power.sum()]]
        )
        constant = power.steady_power(rate.rate, float(clock[-1])) + leak - slope * (tiles_k - heat.ambient_k)
        extra = power.logic_tiles[:, None] * self.stack.logic.idle * (clock - clock[-1])
        extra += np.where(power.on_logic, leak / rest, 0.0)[:, None] * (level - rest)
        start = np.where(is_power, 0.0, heat.ambient_k)
        hop = self.hop_j[rank] * power.io_tiles
        return rise @ basis.T, rise @ extra, limit - start - rise @ constant, rise @ hop

    def voltage(self, busy_rl: Floats) -> Floats:
        """Mean voltage of the logic over time, by rank, from its share of time at each level; else it rests."""
        found: Floats = self.voltage_l[-1] + busy_rl @ (self.voltage_l - self.voltage_l[-1])
        return found

    def settled(self, problem: HeatProblem, choice: HeatChoice, period_s: float, rate: Rate) -> tuple[Operating, float]:
        """Temperatures of a choice at a refresh rate, whether or not it would stay at it, and kelvin above a limit.

        The judge would move on to the next rate, whose slower memory is cooler: that does not say how much too hot
        the choice is.
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
                if moved < 1e-7:
                    break
            tiles_k[r] = now
            rise = heat.cells_k_per_w[cells[at]] @ (watts + power.leakage(now, float(voltage_r[r])))
            over = max(over, float((heat.ambient_k + rise - limit[at]).max(initial=-np.inf)))
        return Operating(tiles_k, voltage_r), over


def _groups(ready: Prepared, members: Ints) -> list[int]:
    """Fan-out groups of the graph in the order in which the tables of a stage have them."""
    sharded = ready.sharded
    inside = np.zeros(len(sharded.names), dtype=bool)
    inside[members] = True
    here = inside[sharded.src_t] | inside[sharded.dst_t]
    return list(dict.fromkeys(sharded.group_t[here].tolist()))
