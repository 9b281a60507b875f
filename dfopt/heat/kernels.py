"""The kernels of a plan on a stack: joules and memory time of each, and where their compute tiles are.

What single kernels do is worked out once (`dfopt.heat.spending`); blocks of kernels are sums of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.stack import Stack
from dfopt.fusion.priced import PricedPlan
from dfopt.heat.blocks import HotStage, KernelHeat, Spent
from dfopt.heat.spending import spending
from dfopt.technology.power import PowerModel
from dfopt.technology.streams import DramStreams, Flow

OF_CHIP: Final = ("SRAM tiles", "NoC tiles", "links")
"""Components of a chip beside compute tiles, in the order of energies per component."""
OF_MEMORY: Final = ("DRAM", "way to DRAM")
"""Components of the memory, which follow those of the chip."""
_LINKS: Final = OF_CHIP.index("links")
_ABOVE: Final = 1e-9  # relative: the fastest mix of streams is a rounded quotient, and prices have to stay below


class KernelsOnStack:
    """Energy of the kernels of a plan and sharding on a stack, at any refresh rate."""

    def __init__(self, ready: PricedPlan, stack: Stack, power: PowerModel) -> None:
        self.ready, self.stack, self.power = ready, stack, power
        self.memory, self.spends = DramStreams(stack), spending(ready)
        self.frequency_l = np.array([level.frequency for level in stack.levels])
        self._hot: dict[tuple[int, float], HotStage] = {}

    def hot(self, number: int, rate: float) -> HotStage:
        """A stage of the mapping with the energies of its kernels at a refresh rate (cached)."""
        if (number, rate) not in self._hot:
            tables = self.ready.stages[number].tables
            self._hot[number, rate] = HotStage(tables, self.heat(number, rate), self.frequency_l, self.place)
        return self._hot[number, rate]

    def bounding(self, number: int, rate: float) -> HotStage:
        """The stage with an upper bound on memory bandwidth, so that its prices are lower bounds."""
        hot, faster = self.hot(number, rate), self.fastest(rate) * (1 + _ABOVE)
        return replace(hot, tables=replace(hot.tables, chip=replace(hot.tables.chip, dram_bandwidth=faster)))

    def place(self, tiles_bk: Ints, joules_bk: Floats) -> Floats:
        """Energy of each compute tile of the floorplan, J, shape (blocks, F), with kernels placed as in the judge.

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
        cycle = bool(self.ready.sharded.menus)
        total = np.maximum(ends[:, -1], float(self.ready.instance.system.chip.tiles) if cycle else 0.0)
        ends = ends / np.where(total > 0, total, 1.0)[:, None]
        # all blocks at once: each on its own stretch of one long line, two units apart
        start = 2.0 * np.arange(len(tiles_bk))[:, None]
        zero = np.zeros((len(tiles_bk), 1))
        cumulative = np.concatenate([zero, np.cumsum(joules_bk, axis=1)], axis=1)
        at = start + np.concatenate([zero, ends, zero + 1.0], axis=1)  # past the last kernel nothing is added
        cumulative = np.concatenate([cumulative, cumulative[:, -1:]], axis=1)
        so_far = np.interp((start + edges).ravel(), at.ravel(), cumulative.ravel()).reshape(len(tiles_bk), -1)
        so_far[:, -1] = cumulative[:, -1]  # whatever rounding did to the last edge
        joules_bf = np.zeros((len(tiles_bk), len(size)))
        joules_bf[:, line] = np.diff(so_far, axis=1)
        return joules_bf

    def heat(self, number: int, rate: float) -> KernelHeat:
        """Energy and memory time of the kernels of a stage at a refresh rate."""
        stage = self.ready.stages[number]
        members, spends = stage.members, self.spends
        logic = self.stack.logic
        flop, sram_j, noc_j = logic.flop * spends.flop_k, logic.sram * spends.sram_traffic_k, logic.noc * spends.noc_k
        local, other = self._on_tiles(sram_j[members], noc_j[members], len(members))
        other[:, _LINKS] = logic.network * spends.sent_k[members]
        again_local, again = self._on_tiles(logic.sram * spends.accessed_again_k[members], None, len(members))
        groups = _groups(self.ready, members)
        group = [spends.fans[g] for g in groups]
        toll_zx = np.zeros((len(stage.tables.sharded.sent_x), len(OF_CHIP) + len(OF_MEMORY)))
        toll_zx[:, _LINKS] = logic.network * stage.tables.sharded.sent_x
        written, read = ([[pair[side]] if pair else [] for pair in group] for side in (0, 1))
        return KernelHeat(
            own=self._spent_by(members, spends.own, flop[members] + local, other, rate),
            in_parts=self._spent_by(members, spends.in_parts, 0 * local, 0 * other, rate),
            again=self._spent_by(members, spends.again, again_local, again, rate),
            write_gx=np.pad(self._joules(written), ((0, 0), (len(OF_CHIP), 0))),
            read_gx=np.pad(self._joules(read), ((0, 0), (len(OF_CHIP), 0))),
            toll_zx=toll_zx,
            write_s_g=np.array([self._alone_s(flows, rate) for flows in written]),
            read_s_g=np.array([self._alone_s(flows, rate) for flows in read]),
            write_bytes_g=np.array([_moved(flows, write=True) for flows in written]),
            read_bytes_g=np.array([_moved(flows, write=False) for flows in read]),
            whole_gk=spends.whole_gk[groups][:, members],
            turning=self._turning(rate),
        )

    def _on_tiles(self, sram_j: Floats, noc_j: Floats | None, count: int) -> tuple[Floats, Floats]:
        """Joules of kernels on their own compute tiles, (kernels,), and on SRAM tiles, NoC tiles and links, (_, 3)."""
        local, other = np.zeros(count), np.zeros((count, len(OF_CHIP)))
        for at, (joules_k, tiles) in enumerate(((sram_j, self.power.sram_tiles), (noc_j, self.power.noc_tiles))):
            if joules_k is None:
                continue
            if tiles is None:
                local = local + joules_k
            else:
                other[:, at] = joules_k
        return local, other

    def _spent_by(
        self, members: Ints, flows_k: Sequence[Sequence[Flow]], local_k: Floats, other_k: Floats, rate: float
    ) -> Spent:
        """Joules and memory time of flows of kernels, with joules beside the memory."""
        own = [flows_k[k] for k in members.tolist()]
        return Spent(
            local_k=local_k,
            other_kx=np.concatenate([other_k, self._joules(own)], axis=1),
            seconds_k=np.array([self._alone_s(flows, rate) for flows in own]),
            bytes_dk=np.array([[_moved(flows, write) for flows in own] for write in (False, True)]),
        )

    def _joules(self, each: Sequence[Sequence[Flow]]) -> Floats:
        """Joules of the DRAM commands of some flows, and of their way to the logic die, shape (n, 2)."""
        energies, joules = self.stack.dram.energies, np.zeros((len(each), 2))
        for at, flows in enumerate(each):
            counts = self.memory.by_pattern(flows).commands
            commands = energies.activate * counts.activates + energies.read_burst * counts.reads
            joules[at, 0] = commands + energies.write_burst * counts.writes
            joules[at, 1] = energies.io * self.stack.dram.burst * (counts.reads + counts.writes)
        return joules

    def _alone_s(self, flows: Sequence[Flow], rate: float) -> float:
        """Seconds of flows that are served one after the other."""
        return sum(self._seconds([flow], rate) for flow in flows)

    def _seconds(self, flows: Sequence[Flow], rate: float) -> float:
        return self.memory.serve(self.memory.by_pattern(flows), rate).seconds

    def _every(self) -> list[Flow]:
        """All flows of the plan."""
        of = self.spends
        every = (*of.own, *of.in_parts, *of.again, *(pair or () for pair in of.fans))
        return [flow for flows in every for flow in flows]

    def _turning(self, rate: float) -> float:
        """Time that turning the bus adds where as much is read as written, as a share of that without."""
        flow = next(iter(self._every()), None)
        if flow is None:
            return 0.0
        both = [flow._replace(write=write) for write in (False, True)]
        return self._seconds(both, rate) / self._alone_s(both, rate) - 1.0

    def fastest(self, rate: float) -> float:
        """Upper bound on the memory bandwidth, B/s, of any mix of the plan's streams at a refresh rate."""
        best = [flow.bytes / self._alone_s([flow], rate) for flow in self._every()]
        return max(best, default=self.stack.dram.peak)


def _moved(flows: Sequence[Flow], write: bool) -> float:
    """Bytes that are written, or read."""
    return math.fsum(flow.bytes for flow in flows if flow.write == write)


def _groups(ready: PricedPlan, members: Ints) -> list[int]:
    """Fan-out groups of the graph in the order in which the tables of a stage have them."""
    sharded = ready.sharded
    inside = np.zeros(len(sharded.names), dtype=bool)
    inside[members] = True
    here = inside[sharded.src_t] | inside[sharded.dst_t]
    return list(dict.fromkeys(sharded.group_t[here].tolist()))
