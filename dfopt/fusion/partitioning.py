"""Partitionings of a stage: the limits on them, what they cost, and what none of them beats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.fusion.adding import added
from dfopt.fusion.blocks import StageTables, members_of_groups, over_groups, price_each
from dfopt.terms.chip import combine

SAME = 1e-6  # relative: objective and bound are one, as for a MILP
TIES: Final = 1e-9
"""Relative: what is slower by less than a limit is kept, since seconds of blocks are added up in several orders."""
SCALE: Final = 4
"""Units of the objective of a model at its lower bound: some, so that tolerances of a solver are small beside it."""


@dataclass(frozen=True)
class IntraChipLimits:
    """Limits that a request sets on the partitions of a stage.

    Attributes
    ----------
    p_max : int
        Largest number of partitions.
    exactly : bool
        Whether there must be exactly ``p_max`` partitions.
    forward_backward : str
        Rule for the passes: ``separate``, ``halves`` or ``shared``.
    pins : tuple of (int, int)
        Kernels that are pinned, each with its partition.
    dram_left : float, B
        DRAM for tensors that are alive between partitions.
    saved_in_dram : bool
        Whether saved activations are counted elsewhere.
    """

    p_max: int
    exactly: bool = False
    forward_backward: str = "separate"
    pins: tuple[tuple[int, int], ...] = ()  # (kernel, partition)
    dram_left: float = np.inf  # bytes for activations alive between partitions
    saved_in_dram: bool = True  # saved activations are already counted elsewhere

    @property
    def may_skip(self) -> bool:
        """Whether a partition between two others may stay empty, because partition numbers have a meaning."""
        return self.forward_backward == "halves" and not self.exactly

    def are_counted(self, kernels: int, forward_k: Bools) -> bool:
        """Whether limits depend on the number of partitions, for ``kernels`` kernels with this forward mask."""
        halves = self.forward_backward == "halves" and bool(forward_k.any()) and not bool(forward_k.all())
        return self.exactly or self.p_max < kernels or bool(self.pins) or halves

    def numbers(self, member: Bools, forward_k: Bools) -> tuple[Ints, Ints]:
        """Least and greatest partition number of each block, by pins and the rule of halves.

        Parameters
        ----------
        member : bool array, shape (blocks, kernels)
            Kernels of every block.
        forward_k : bool array, shape (kernels,)
            Kernels of the forward pass.

        Returns
        -------
        (int array, int array), shape (blocks,)
            From 0. A block with a least number above its greatest one is not allowed at all.
        """
        first, last = np.zeros(len(member), dtype=np.int64), np.full(len(member), self.p_max - 1)
        if self.forward_backward == "halves" and forward_k.any() and not forward_k.all():
            first[(member & ~forward_k).any(axis=1)] = self.p_max // 2
            last[(member & forward_k).any(axis=1)] = (self.p_max + 1) // 2 - 1
        for kernel, number in self.pins:
            pinned = member[:, kernel]
            first[pinned], last[pinned] = np.maximum(first[pinned], number), np.minimum(last[pinned], number)
        return first, last


def blocks_of(partition_k: Ints) -> list[Ints]:
    """Kernels of every non-empty partition, by partition number."""
    order = np.argsort(partition_k, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(partition_k[order])) + 1)


def numbered(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> Ints:
    """Partition numbers without gaps; unchanged where an empty partition between halves has a meaning.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage, and the limits on its partitions.
    partition_k : int array, shape (kernels,)
        Partition of every kernel.
    """
    if limits.forward_backward == "halves" and tables.chip.fused:
        return partition_k
    return np.unique(partition_k, return_inverse=True)[1].astype(np.int64)


def runs_alone(tables: StageTables) -> Bools:
    """Mask of the kernels that never share a partition: bool array, shape (kernels,)."""
    return tables.single_k | (not tables.chip.fused)


def always_cut(tables: StageTables, forward_backward: str) -> Bools:
    """Mask of the tensors whose source and reader never share a partition: bool array, shape (tensors,).

    They are in different stages or passes, one has a weight in parts, or no set of the library holds both.
    """
    sharded, n = tables.sharded, tables.kernels
    alone = np.append(runs_alone(tables), True)
    cut = alone[sharded.src_t] | alone[sharded.dst_t]
    if forward_backward == "separate":
        forward = np.concatenate([sharded.forward_k, [False]])
        cut |= forward[sharded.src_t] & ~forward[sharded.dst_t] & (sharded.dst_t < n)
    if tables.chip.library:
        sets_k = np.pad(sharded.sets_k, ((0, 1), (0, 0)))
        cut |= ~(sets_k[sharded.src_t] & sets_k[sharded.dst_t]).any(axis=1)
    return np.asarray(cut)


def always_moved(tables: StageTables, limits: IntraChipLimits) -> tuple[Ints, Ints]:
    """Kernels and tensors of unavoidable DRAM traffic: one store and one read of every tensor that is always cut."""
    sharded, n = tables.sharded, tables.kernels
    cut = np.flatnonzero(always_cut(tables, limits.forward_backward))
    group, src, dst = sharded.group_t[cut], sharded.src_t[cut], sharded.dst_t[cut]
    # a kernel that runs alone reads for itself; of the others one reader is certain
    reader = np.where(np.append(runs_alone(tables), False)[dst], dst, n)
    stored, read = (np.unique(key, return_index=True)[1] for key in (group, group * (n + 1) + reader))
    return np.append(src[stored], dst[read]), cut[np.append(stored, read)]


def least_terms(tables: StageTables, limits: IntraChipLimits) -> tuple[Floats, ...]:
    """Least seconds that each kernel adds to every term of a block's time, for any partitioning.

    They are the work over the whole chip, DRAM traffic that no partitioning avoids (per kernel, and one store and one
    read of every tensor that is always cut), all communication, each toll once, and all steady resources. They are sums
    over kernels, so that bounds of kernel sets may be subtracted.
    """
    sharded, chip, n = tables.sharded, tables.chip, tables.kernels
    if sharded.menus:
        work = np.array([float((tiles * seconds).min()) / chip.tiles for tiles, seconds in sharded.menus])
    else:
        work = sharded.compute_k
    payer, tensor = always_moved(tables, limits)
    # the last is the virtual kernel: what it stores or reads is another stage's traffic
    moved = np.bincount(payer, sharded.moved_t[tensor], n + 1)[:-1]
    talk = sharded.net_k
    if len(sharded.toll_x):
        talk = talk + np.bincount(sharded.payers_xk.argmax(axis=1), sharded.toll_x, n)
    return work, (sharded.mem_k + tables.more_k + moved) / chip.dram_bandwidth, talk, *tables.steady_rk


def sides(tables: StageTables, forward_backward: str) -> Ints:
    """Side of each kernel: kernels of different sides never share a partition. Int array, shape (kernels,)."""
    sharded, n = tables.sharded, tables.kernels
    alone = runs_alone(tables)
    together = ~alone[:, None] & ~alone
    if forward_backward == "separate":
        together &= sharded.forward_k[:, None] == sharded.forward_k
    if tables.chip.library:
        together &= sharded.sets_k.astype(np.int64) @ sharded.sets_k.T > 0
    side_k, before = np.arange(n), np.full(n, -1)
    together |= np.eye(n, dtype=bool)
    while (side_k != before).any():  # the least number that chains of kernels lead to
        before, side_k = side_k, np.where(together, side_k, n).min(axis=1)
    return side_k


def sides_among(tables: StageTables, forward_backward: str, members: Ints, kernels: int) -> Ints:
    """Sides of a stage's kernels, numbered from 0, among all kernels of the layer: -1 for those outside of it.

    Parameters
    ----------
    tables, forward_backward : StageTables, str
        The stage, and how passes share partitions, as for :func:`sides`.
    members : int array
        Its kernels, by their numbers in the layer.
    kernels : int
        Kernels of the layer.
    """
    side_k = np.full(kernels, -1)
    side_k[members] = np.unique(sides(tables, forward_backward), return_inverse=True)[1]
    return side_k


def rest_bound(tables: StageTables, limits: IntraChipLimits, member: Bools) -> Floats:
    """Lower bound on the seconds of all kernels outside of each set, shape (sets,): the sum over sides.

    Within a side the terms of kernels add up before they overlap, so that no partitioning is better.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage, and the limits on its partitions.
    member : bool array, shape (sets, kernels)
        Kernels of each set.
    """
    terms, side_k = least_terms(tables, limits), sides(tables, limits.forward_backward)
    bound = np.zeros(len(member))
    for side in np.unique(side_k):
        members = np.flatnonzero(side_k == side)
        outside = (~member[:, members]).astype(float)
        bound += combine([added(outside, term[members]) for term in terms], tables.chip)
    return bound


def lower_bound(tables: StageTables, limits: IntraChipLimits) -> float:
    """Lower bound on the seconds of any partitioning of a stage, see :func:`rest_bound`."""
    return float(rest_bound(tables, limits, np.zeros((1, tables.kernels), dtype=bool))[0])


def objective(tables: StageTables, partition_k: Ints) -> float:
    """Seconds of a partitioning: the sum of its partitions' times."""
    return float(price_each(tables, blocks_of(partition_k)).time.sum())


def keeps(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps the limits of the stage that single blocks do not show.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage, and the limits on its partitions.
    partition_k : int array, shape (kernels,)
        Partition of every kernel.
    """
    if any(partition_k[k] != p for k, p in limits.pins):
        return False
    return most_alive(tables, limits, partition_k) <= limits.dram_left


def legal(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps every limit of its stage.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage, and the limits on its partitions.
    partition_k : int array, shape (kernels,)
        Partition of every kernel.
    """
    if partition_k.max(initial=0) >= limits.p_max:
        return False
    return bool(price_each(tables, blocks_of(partition_k)).legal.all()) and keeps(tables, limits, partition_k)


def most_alive(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> float:
    """Peak of the DRAM bytes of activations that are alive while the partitions run.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage, and the limits on its partitions.
    partition_k : int array, shape (kernels,)
        Partition of every kernel.
    """
    number = np.unique(partition_k)[:, None]
    return float(alive_bytes(tables, limits, partition_k < number, partition_k == number).max(initial=0.0))


def alive_bytes(tables: StageTables, limits: IntraChipLimits, past: Bools, now: Bools) -> Floats:
    """DRAM bytes alive while blocks run (the paper's L): from source to last consumer, both included.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage; saved activations are left out when they are counted elsewhere.
    past, now : bool array, shape (blocks, kernels)
        Kernels that ran before each block, and those in it.
    """
    sharded = tables.sharded
    counted_t = unsaved(tables) if limits.saved_in_dram else np.ones(len(sharded.src_t), dtype=bool)
    src, dst, group = sharded.src_t[counted_t], sharded.dst_t[counted_t], sharded.group_t[counted_t]
    # kernels by blocks; a source outside the stage ran before, a consumer there comes after
    done, past, now = (np.pad(of.T, ((0, 1), (0, 0))) for of in (past | now, past, now))
    done[-1] = True
    needed = done[src] & ~past[dst] & ~(now[src] & now[dst])
    alive_g = over_groups(np.logical_or, needed, members_of_groups(group))
    return np.asarray(tables.bytes_g[np.unique(group)] @ alive_g)


def unsaved(tables: StageTables) -> Bools:
    """Mask of the tensors that the backward pass does not need; others stay in DRAM under any partitioning."""
    sharded = tables.sharded
    return ~np.isin(sharded.group_t, sharded.group_t[sharded.kept_t])
