"""Partitionings of a stage: the limits on them, what they cost, and what none of them beats."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.fusion.blocks import StageTables, Terms3, combine, price_each

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class IntraChipLimits:
    """What the user fixes: partitions at most or exactly, order of passes, pinned kernels, DRAM left."""

    p_max: int
    exactly: bool = False
    forward_backward: str = "separate"
    pins: tuple[tuple[int, int], ...] = ()  # (kernel, partition)
    dram_left: float = np.inf  # bytes for activations alive between partitions
    saved_in_dram: bool = True  # saved activations are already counted elsewhere


def membership(partition_k: Ints, partitions: int) -> NDArray[np.bool_]:
    """Partition of each kernel as a membership matrix (partitions, kernels)."""
    member: NDArray[np.bool_] = np.arange(partitions)[:, None] == partition_k[None, :]
    return member


def blocks_of(partition_k: Ints) -> list[Ints]:
    """Kernels of every partition that holds any, by its number."""
    order = np.argsort(partition_k, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(partition_k[order])) + 1)


def lifetimes(tables: StageTables, partition_k: Ints, partitions: int) -> Floats:
    """DRAM bytes alive in each partition (the paper's L): from source to last consumer, both included."""
    sharded = tables.sharded
    place = np.concatenate([partition_k, [-1]])
    src, dst = place[sharded.src_t], place[sharded.dst_t]
    first = np.where(src < 0, 0, src)
    last = np.where(dst < 0, partitions - 1, dst)
    cut = src != dst
    alive = np.zeros(partitions)
    for g, size in enumerate(tables.bytes_g):
        mine = (sharded.group_t == g) & cut
        if mine.any():
            alive[int(first[mine].min()) : int(last[mine].max()) + 1] += size
    return alive


def always_cut(tables: StageTables, forward_backward: str) -> NDArray[np.bool_]:
    """Tensors whose two kernels never share a partition: another stage, another pass, a weight in parts."""
    sharded, n = tables.sharded, tables.kernels
    tiled = np.concatenate([tables.parts_k > 1, [True]])
    cut = tiled[sharded.src_t] | tiled[sharded.dst_t]
    if forward_backward == "separate":
        forward = np.concatenate([sharded.forward_k, [False]])
        cut |= forward[sharded.src_t] & ~forward[sharded.dst_t] & (sharded.dst_t < n)
    found: NDArray[np.bool_] = cut
    return found


def least_terms(tables: StageTables, limits: IntraChipLimits) -> Terms3:
    """What each kernel adds at least to the three terms of a set of kernels, however it is cut into partitions.

    Work over the whole chip, DRAM traffic that no partitioning avoids (per kernel, and one store and one
    read of what is always cut), all communication. Sums over kernels, so differences bound differences.
    """
    sharded, chip, n = tables.sharded, tables.chip, tables.kernels
    if sharded.menus:
        work = np.array([float((tiles * seconds).min()) / chip.tiles for tiles, seconds in sharded.menus])
    else:
        work = tables.compute_k
    memory = np.concatenate([tables.mem_k, [0.0]])
    cut = np.flatnonzero(always_cut(tables, limits.forward_backward))
    stored: set[int] = set()
    read: set[tuple[int, int]] = set()
    for t in cut.tolist():
        group, src, dst = int(sharded.group_t[t]), int(sharded.src_t[t]), int(sharded.dst_t[t])
        if group not in stored:
            stored.add(group)
            memory[src] += sharded.b_t[t]
        # a kernel that runs alone reads for itself; of the others one reader is certain
        reader = dst if dst < n and tables.parts_k[dst] > 1 else -1
        if (group, reader) not in read:
            read.add((group, reader))
            memory[dst] += sharded.b_t[t]
    memory = memory[:-1]  # what the virtual kernel stores or reads is another stage's traffic
    return Terms3(work, memory / chip.dram_bandwidth, sharded.net_k)


def lower_bound(tables: StageTables, limits: IntraChipLimits) -> float:
    """Seconds that no partitioning beats, see :func:`least_terms`."""
    return float(combine(Terms3(*(term.sum(keepdims=True) for term in least_terms(tables, limits))), tables.chip)[0])


def objective(tables: StageTables, partition_k: Ints) -> float:
    """Seconds of a partitioning: the sum of its partitions' times."""
    return float(price_each(tables, blocks_of(partition_k)).time.sum())


def keeps(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps the limits that its blocks alone do not show."""
    if any(partition_k[k] != p for k, p in limits.pins):
        return False
    return bool(alive_bytes(tables, limits, partition_k).max(initial=0.0) <= limits.dram_left)


def legal(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps every limit of its stage."""
    if partition_k.max(initial=0) >= limits.p_max:
        return False
    return bool(price_each(tables, blocks_of(partition_k)).legal.all()) and keeps(tables, limits, partition_k)


def alive_bytes(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> Floats:
    """DRAM bytes of activations alive per partition, saved ones left out when counted elsewhere."""
    if not limits.saved_in_dram or not tables.sharded.saved_t.any():
        return lifetimes(tables, partition_k, limits.p_max)
    return lifetimes(without_saved(tables), partition_k, limits.p_max)


def unsaved(tables: StageTables) -> NDArray[np.bool_]:
    """Tensors that the backward pass does not need; the others stay in DRAM whatever the partitions are."""
    sharded = tables.sharded
    return ~np.isin(sharded.group_t, sharded.group_t[sharded.saved_t])


def without_saved(tables: StageTables) -> StageTables:
    """The stage without its saved activations, see :func:`unsaved`."""
    sharded, keep = tables.sharded, unsaved(tables)
    fields = {
        f: getattr(sharded, f)[keep] for f in ("src_t", "dst_t", "b_t", "tile_t", "depth_t", "group_t", "saved_t")
    }
    return replace(tables, sharded=replace(sharded, **fields))
