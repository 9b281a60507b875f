"""From the priced stage to a heat problem's stage: blocks, their times at every level, and where their joules go.

What a kernel computes, reads from SRAM and sends is the same in every block; what it exchanges with DRAM depends on
which tensors the block cuts, and where its heat is on how the block's kernels share the compute tiles out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dfopt.fusion.blocks import StageTables, crossings, price_blocks, tiles_of, tolls
from dfopt.fusion.columns import layered_arcs
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.lattice import ShortestPath
from dfopt.heat.problem import HeatChoice, HeatStage
from dfopt.terms.chip import RESOURCES, combine
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_CHUNK = 4096  # blocks placed at once

Placement = Callable[[Ints, Floats], Floats]
"""Compute tiles and joules of kernels (blocks, kernels) -> joules on the floorplan's compute tiles (blocks, F)."""


@dataclass(frozen=True)
class KernelHeat:
    """Joules and memory time of one evaluation of the kernels of a stage, at nominal voltage.

    Attributes
    ----------
    local_k : float, shape (kernels,)
        On the compute tiles that the kernel has.
    own_kx : float, shape (kernels, X)
        On other components, whatever the block is.
    write_gx, read_gx : float, shape (groups, X)
        Of writing a fan-out group's tensor to DRAM, and of reading it.
    toll_zx : float, shape (tolls, X)
        Of what a block sends once for some of its kernels.
    own_s_k, write_s_g, read_s_g : float
        Seconds of the same traffic, each stream at its own bandwidth.
    own_bytes_dk : float, shape (2, kernels)
        Bytes that a kernel's own traffic reads, and writes.
    write_bytes_g, read_bytes_g : float
        Bytes of a group's tensor.
    turning : float
        Time that turning the bus adds where a block reads as much as it writes, as a share of that without; else in
        proportion to the fewer bytes.
    """

    local_k: Floats
    own_kx: Floats
    write_gx: Floats
    read_gx: Floats
    toll_zx: Floats
    own_s_k: Floats
    write_s_g: Floats
    read_s_g: Floats
    own_bytes_dk: Floats
    write_bytes_g: Floats
    read_bytes_g: Floats
    turning: float


@dataclass(frozen=True)
class StageBlocks:
    """A stage of a heat problem, and which kernels its blocks hold, shape (blocks, kernels).

    ``number`` is the partition number of every arc, none where it has no meaning.
    """

    stage: HeatStage
    member: Bools
    number: Ints | None

    def partition_of(self, choice: HeatChoice, which: int) -> tuple[Ints, Ints]:
        """Partition of every kernel, and the level that its partition has."""
        arcs, levels = choice.arcs[which], choice.levels[which]
        block = self.stage.block[arcs]
        real = block >= 0
        partition_k = np.zeros(self.member.shape[1], dtype=np.int64)
        level_k = np.zeros_like(partition_k)
        numbers = range(int(real.sum())) if self.number is None else self.number[arcs][real].tolist()
        for place, one, level in zip(numbers, block[real].tolist(), levels[real].tolist(), strict=True):
            partition_k[self.member[one]], level_k[self.member[one]] = place, level
        return partition_k, level_k

    def choice_of(self, partition_k: Ints, level_k: Ints) -> tuple[Ints, Ints]:
        """The path of a partitioning, each block at the level that its kernels have.

        Raises
        ------
        ValueError
            If one of its blocks is not there.
        """
        stage = self.stage
        wanted = [partition_k == partition for partition in np.unique(partition_k)]
        at, arcs, place = 0, [], 0
        while at != stage.nodes - 1:
            out = np.flatnonzero(stage.tail == at)
            block = stage.block[out]
            mine = out[block < 0]
            if place < len(wanted):  # one set of kernels may be a block between several pairs of down-sets
                same = (block >= 0) & (self.member[block] == wanted[place]).all(axis=1)
                if same.any():
                    mine, place = out[same], place + 1
            if not len(mine):
                raise ValueError("a partition is not among the blocks of the heat problem")
            arcs.append(int(mine[0]))
            at = int(stage.head[arcs[-1]])
        path = np.array(arcs, dtype=np.int64)
        block = stage.block[path]
        first = np.argmax(self.member[block], axis=1)
        return path, np.where(block >= 0, level_k[first], 0).astype(np.int64)


@dataclass(frozen=True)
class HotStage:
    """A stage's prices with what its kernels spend: seconds at every level and joules of any block.

    ``frequency_l`` are the frequencies of compute as shares of the nominal one, ``place`` says where kernels are.
    """

    tables: StageTables
    heat: KernelHeat
    frequency_l: Floats
    place: Placement

    def spent(self, member: Bools) -> tuple[Floats, Floats]:
        """Seconds of blocks at every level, shape (blocks, levels), and joules by component, (blocks, F + X).

        Components are first the compute tiles, then the others.
        """
        heat, seconds, energy = self.heat, [], []
        for start in range(0, max(len(member), 1), _CHUNK):
            part = member[start : start + _CHUNK]
            stored, read, _ = crossings(self.tables, part)
            other = part @ heat.own_kx + stored @ heat.write_gx + read @ heat.read_gx
            if len(heat.toll_zx):
                other += tolls(self.tables, part) @ heat.toll_zx
            local = self.place(tiles_of(self.tables, part), part * heat.local_k)
            energy.append(np.concatenate([local, other], axis=1))
            alone = part @ heat.own_s_k + stored @ heat.write_s_g + read @ heat.read_s_g
            moved = [part @ own for own in heat.own_bytes_dk]
            reads, writes = moved[0] + read @ heat.read_bytes_g, moved[1] + stored @ heat.write_bytes_g
            fewer = 2 * np.minimum(reads, writes) / np.maximum(reads + writes, 1e-300)  # 1 where as much is read
            memory, prices = alone * (1 + heat.turning * fewer), price_blocks(self.tables, part)
            # SRAM has the clock of compute
            clocked = [term[:, None] / self.frequency_l for term in (prices.compute, *prices.terms[len(RESOURCES) :])]
            terms = [clocked[0], memory[:, None], prices.network[:, None], *clocked[1:]]
            seconds.append(combine(terms, self.tables.chip))
        return np.concatenate(seconds), np.concatenate(energy)

    def chain(self, partition_k: Ints) -> StageBlocks:
        """The blocks of one partitioning alone: nothing but levels is left to choose."""
        numbers = np.unique(partition_k)
        node = np.arange(len(numbers))
        return self._blocks((node, node + 1, node, node, len(numbers) + 1), partition_k == numbers[:, None], numbers)

    def between(self, search: ShortestPath, pairs: tuple[Ints, Ints]) -> StageBlocks:
        """Blocks between down-sets with their arcs.

        Parameters
        ----------
        search : ShortestPath
            Of the stage, for its lattice and its rules about the numbers of partitions.
        pairs : (int array, int array)
            Down-sets before and after each block.
        """
        before, after = pairs
        size, member = search.lattice.size, search.lattice.member[after] & ~search.lattice.member[before]
        if not search.counted:
            block = np.arange(len(before))
            return self._blocks((before, after, block, size[before], len(size)), member, None)
        arcs = layered_arcs(search, before, after)
        graph = arcs.tail, arcs.head, arcs.block.astype(np.int64), arcs.number, (search.layers + 1) * len(size)
        return self._blocks(graph, member, arcs.number if search.limits.forward_backward == "halves" else None)

    def _blocks(self, arcs: tuple[Ints, Ints, Ints, Ints, int], member: Bools, number: Ints | None) -> StageBlocks:
        return StageBlocks(HeatStage(*arcs, *self.spent(member)), member, number)


def path_pairs(lattice: Lattice, partition_k: Ints) -> tuple[Ints, Ints]:
    """Down-sets before and after every partition of a partitioning.

    Raises
    ------
    ValueError
        If its partitions are no path through the lattice.
    """
    done, at, found = np.zeros(len(partition_k), dtype=bool), 0, []
    for partition in np.unique(partition_k):
        done = done | (partition_k == partition)
        first, last = np.searchsorted(lattice.size, [done.sum(), done.sum() + 1])
        match = np.flatnonzero((lattice.member[first:last] == done).all(axis=1))
        if not len(match):
            raise ValueError(f"partition {int(partition)} comes before one that it needs")
        found.append((at, int(first + match[0])))
        at = found[-1][1]
    return np.array([a for a, _ in found], dtype=np.int64), np.array([b for _, b in found], dtype=np.int64)
