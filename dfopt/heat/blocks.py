"""From the priced stage to a heat problem's stage: blocks, their times at every level, and where their joules go.

What a kernel computes, reads from SRAM and sends is the same in every block; what it exchanges with DRAM depends on
which tensors the block cuts, and where its heat is on how the block's kernels share the compute tiles out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import LEAST_DIVISOR, Bools, Floats, Ints
from dfopt.fusion.blocks import StageTables, crossings, holding, in_token_blocks, may_take_blocks, tiles_of, tolls
from dfopt.fusion.columns import layered_arcs
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.lattice import ShortestPath
from dfopt.heat.problem import HeatChoice, HeatStage
from dfopt.terms.chip import combine
from dfopt.terms.token_blocks import TOKEN_RESOURCES

_CHUNK = 4096  # blocks placed at once

JoulePlacement = Callable[[Ints, Floats], Floats]
"""Compute tiles and joules of kernels (blocks, kernels) -> joules on the floorplan's compute tiles (blocks, F)."""


@dataclass(frozen=True)
class Spent:
    """Energy and memory time of each kernel.

    Attributes
    ----------
    local_k : float, J, shape (kernels,)
        Energy on the compute tiles of the kernel.
    other_kx : float, J, shape (kernels, X)
        Energy on other components.
    seconds_k : float, s, shape (kernels,)
        Seconds of its DRAM traffic, each stream at its own bandwidth.
    bytes_dk : float, B, shape (2, kernels)
        That this reads, and writes.
    """

    local_k: Floats
    other_kx: Floats
    seconds_k: Floats
    bytes_dk: Floats


OfKernels = Sequence[tuple[Spent, Floats]]
"""What kernels spend by themselves, and how often each block spends it."""


@dataclass(frozen=True)
class KernelHeat:
    """Energy and memory time of one evaluation of a stage's kernels, at nominal voltage.

    Attributes
    ----------
    own, in_parts, again : Spent
        Figures in any block; additional ones if the kernel's weight is in parts; and those of each further block of
        tokens.
    write_gx, read_gx : float, shape (groups, X)
        Figures of writing a fan-out group's tensor to DRAM, and of reading it.
    toll_zx : float, shape (tolls, X)
        Figures of messages that a block sends once for several of its kernels.
    write_s_g, read_s_g : float
        Seconds of the same traffic, each stream at its own bandwidth.
    write_bytes_g, read_bytes_g : float
        Bytes of a group's tensor.
    whole_gk : bool, shape (groups, kernels)
        Whether a kernel needs a group's tensor again for each further block of tokens.
    turning : float
        Time that turning the bus adds where a block reads as much as it writes, as a share of that without; else in
        proportion to the fewer bytes.
    """

    own: Spent
    in_parts: Spent
    again: Spent
    write_gx: Floats
    read_gx: Floats
    toll_zx: Floats
    write_s_g: Floats
    read_s_g: Floats
    write_bytes_g: Floats
    read_bytes_g: Floats
    whole_gk: Bools
    turning: float


@dataclass(frozen=True)
class StageBlocks:
    """Blocks of a stage in a heat problem.

    Attributes
    ----------
    stage : HeatStage
        Arcs, seconds and energies.
    member : bool array, shape (blocks, kernels)
        Kernels of every block.
    tokens_b : int array, shape (blocks,)
        Number of blocks of tokens; 0 if a block stores its weights.
    number : int array, shape (arcs,), optional
        Partition number of every arc, where it has a meaning.
    """

    stage: HeatStage
    member: Bools
    tokens_b: Ints
    number: Ints | None

    def partition_of(self, choice: HeatChoice, which: int) -> tuple[Ints, Ints, Ints]:
        """Partition of every kernel in a choice, clock level of its partition, and number of blocks of tokens."""
        arcs, levels = choice.arcs[which], choice.levels[which]
        block = self.stage.block[arcs]
        real = block >= 0
        partition_k = np.zeros(self.member.shape[1], dtype=np.int64)
        level_k, tokens_k = np.zeros_like(partition_k), np.zeros_like(partition_k)
        numbers = range(int(real.sum())) if self.number is None else self.number[arcs][real].tolist()
        for place, number, level in zip(numbers, block[real].tolist(), levels[real].tolist(), strict=True):
            members = self.member[number]
            partition_k[members], level_k[members], tokens_k[members] = place, level, self.tokens_b[number]
        return partition_k, level_k, tokens_k

    def choice_of(self, partition_k: Ints, level_k: Ints, tokens_k: Ints) -> tuple[Ints, Ints]:
        """Arcs and clock levels of a partitioning.

        It takes as many blocks of tokens as ``tokens_k`` says, if there is such a block.

        Parameters
        ----------
        partition_k, level_k, tokens_k : int arrays, shape (kernels,)
            Partition of every kernel, clock level of that partition, and its number of blocks of tokens.

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
            candidates = out[block < 0].tolist()
            if place < len(wanted):  # one set of kernels may be a block between several pairs of down-sets
                same = (block >= 0) & (self.member[block] == wanted[place]).all(axis=1)
                if same.any():
                    tokens = tokens_k[np.argmax(wanted[place])]
                    candidates = sorted(out[same].tolist(), key=lambda arc: self.tokens_b[stage.block[arc]] != tokens)
                    place += 1
            if not candidates:
                raise ValueError("a partition is not among the blocks of the heat problem")
            arcs.append(candidates[0])
            at = int(stage.head[arcs[-1]])
        path = np.array(arcs, dtype=np.int64)
        block = stage.block[path]
        first = np.argmax(self.member[block], axis=1)
        return path, np.where(block >= 0, level_k[first], 0).astype(np.int64)


@dataclass(frozen=True)
class HotStage:
    """Stage tables extended by energies: seconds by clock level and joules of any block.

    ``frequency_l`` are the frequencies of compute as shares of the nominal one, ``place`` says where kernels are.
    """

    tables: StageTables
    heat: KernelHeat
    frequency_l: Floats
    place: JoulePlacement

    def ways(self, member: Bools) -> tuple[Ints, Ints]:
        """Ways to run some blocks of which one is best at any heat prices.

        If weights are stored whole, nothing is read again, and blocks of tokens are never better. The fewest blocks of
        tokens that fit read the least again.

        Returns
        -------
        (int array, int array)
            Indices of the blocks, ascending, some of them twice; and numbers of blocks of tokens, 0 if weights are
            stored.
        """
        prices = holding(self.tables, member)
        some = np.flatnonzero(may_take_blocks(self.tables, member, prices))
        if not len(some):
            return np.arange(len(member)), np.zeros(len(member), dtype=np.int64)
        by_tokens = in_token_blocks(self.tables, member[some])
        some, count = some[by_tokens.legal], by_tokens.block_count[by_tokens.legal]
        held = prices.legal | ~np.isin(np.arange(len(member)), some)
        place = np.concatenate([np.flatnonzero(held), some])
        tokens = np.concatenate([np.zeros(held.sum()), count]).astype(np.int64)
        order = np.argsort(place, kind="stable")
        return place[order], tokens[order]

    def spent(self, member: Bools, tokens_b: Ints) -> tuple[Floats, Floats]:
        """Seconds of blocks by clock level, (blocks, levels), and joules by component, (blocks, F + X).

        Components are first the compute tiles, then the others. ``tokens_b``: number of blocks of tokens of each block
        of kernels, 0 if it stores its weights.
        """
        seconds, energy = [], []
        for start in range(0, max(len(member), 1), _CHUNK):
            part, tokens = member[start : start + _CHUNK], tokens_b[start : start + _CHUNK]
            heat, once_b, further_b = self.heat, np.ones(len(part)), np.maximum(tokens - 1.0, 0.0)
            of_kernels = (heat.own, once_b), (heat.in_parts, once_b * (tokens == 0)), (heat.again, further_b)
            stored, read, _ = crossings(self.tables, part)
            again = further_b[:, None] * ((part @ heat.whole_gk.T) > 0)
            energy.append(self._joules(part, of_kernels, stored, read + again))
            memory, prices = self._memory_s(part, of_kernels, stored, read + again), holding(self.tables, part)
            accessed = self._accessed_s(part, further_b)
            # SRAM has the clock of compute
            compute, _, network, *further = prices.seconds
            clocked = [term[:, None] / self.frequency_l for term in (compute, *further)]
            terms = [clocked[0], memory[:, None], network[:, None], *(term + accessed for term in clocked[1:])]
            seconds.append(combine(terms, self.tables.chip))
        return np.concatenate(seconds), np.concatenate(energy)

    def _joules(self, part: Bools, of_kernels: OfKernels, stored: Bools, read: Floats) -> Floats:
        """Joules of blocks, first on compute tiles, then on other components."""
        heat = self.heat
        other = stored @ heat.write_gx + read @ heat.read_gx
        if len(heat.toll_zx):
            other += tolls(self.tables, part) @ heat.toll_zx
        local = np.zeros(part.shape)
        for spent, times_b in of_kernels:
            counted = part * times_b[:, None]
            local, other = local + counted * spent.local_k, other + counted @ spent.other_kx
        return np.concatenate([self.place(tiles_of(self.tables, part), local), other], axis=1)

    def _memory_s(self, part: Bools, of_kernels: OfKernels, stored: Bools, read: Floats) -> Floats:
        """Seconds that DRAM takes for blocks."""
        heat = self.heat
        alone = stored @ heat.write_s_g + read @ heat.read_s_g
        reads, writes = read @ heat.read_bytes_g, stored @ heat.write_bytes_g
        for spent, times_b in of_kernels:
            alone = alone + times_b * (part @ spent.seconds_k)
            reads, writes = reads + times_b * (part @ spent.bytes_dk[0]), writes + times_b * (part @ spent.bytes_dk[1])
        fewer = 2 * np.minimum(reads, writes) / np.maximum(reads + writes, LEAST_DIVISOR)  # 1 where as much is read
        return np.asarray(alone * (1 + heat.turning * fewer))

    def _accessed_s(self, part: Bools, further_b: Floats) -> Floats:
        """Seconds of SRAM that further blocks of tokens take at every level, shape (blocks, levels)."""
        charges, chip = self.tables.sharded.token_charges, self.tables.chip
        if charges is None:
            return np.zeros((len(part), 1))
        accessed = charges.block_totals(part)[TOKEN_RESOURCES.index("block_access_bytes")]
        return np.asarray((further_b * accessed / chip.sram_bandwidth)[:, None] / self.frequency_l)

    def chain(self, partition_k: Ints, tokens_k: Ints) -> StageBlocks:
        """The blocks of a single partitioning, where only clock levels are free.

        ``tokens_k``: number of blocks of tokens of the partition of each kernel, 0 if it stores its weights.
        """
        numbers, first = np.unique(partition_k, return_index=True)
        node = np.arange(len(numbers))
        arcs = node, node + 1, node, node, len(numbers) + 1
        return self._blocks(arcs, partition_k == numbers[:, None], tokens_k[first], numbers)

    def between(self, search: ShortestPath, pairs: tuple[Ints, Ints]) -> StageBlocks:
        """Blocks on given arcs, in each way to run them that may be best.

        Parameters
        ----------
        search : ShortestPath
            Search of the stage, with its lattice and its rules about the numbers of partitions.
        pairs : (int array, int array)
            Down-sets before and after each block.
        """
        lattice = search.lattice
        place, tokens = self.ways(lattice.member[pairs[1]] & ~lattice.member[pairs[0]])
        before, after = pairs[0][place], pairs[1][place]
        size, member = lattice.size, lattice.member[after] & ~lattice.member[before]
        if not search.counted:
            block = np.arange(len(before))
            return self._blocks((before, after, block, size[before], len(size)), member, tokens, None)
        arcs = layered_arcs(search, before, after)
        graph = arcs.tail, arcs.head, arcs.block.astype(np.int64), arcs.number, (search.layers + 1) * len(size)
        number = arcs.number if search.limits.forward_backward == "halves" else None
        return self._blocks(graph, member, tokens, number)

    def _blocks(
        self, arcs: tuple[Ints, Ints, Ints, Ints, int], member: Bools, tokens_b: Ints, number: Ints | None
    ) -> StageBlocks:
        return StageBlocks(HeatStage(*arcs, *self.spent(member, tokens_b)), member, tokens_b, number)


def path_pairs(lattice: Lattice, partition_k: Ints) -> tuple[Ints, Ints]:
    """Down-sets before and after every partition of a partitioning.

    Raises
    ------
    ValueError
        If its partitions are no path through the lattice.
    """
    done, at, pairs = np.zeros(len(partition_k), dtype=bool), 0, []
    for partition in np.unique(partition_k):
        done = done | (partition_k == partition)
        first, last = np.searchsorted(lattice.size, [done.sum(), done.sum() + 1])
        match = np.flatnonzero((lattice.member[first:last] == done).all(axis=1))
        if not len(match):
            raise ValueError(f"partition {int(partition)} comes before one that it needs")
        pairs.append((at, int(first + match[0])))
        at = pairs[-1][1]
    return np.array([a for a, _ in pairs], dtype=np.int64), np.array([b for _, b in pairs], dtype=np.int64)
