"""Partitionings of a stage: the limits on them, what they cost, and what none of them beats."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dfopt.problems.blocks import StageTables, price_blocks

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


def lower_bound(tables: StageTables) -> float:
    """Seconds that no partitioning beats: all compute, traffic that is never avoided, all network."""
    chip, sharded = tables.chip, tables.sharded
    compute = _compute_floor(tables)
    memory, network = tables.mem_k.sum() / chip.dram_bandwidth, sharded.net_k.sum()
    if chip.overlap == "perfect":
        return float(max(compute, memory, network))
    if chip.overlap == "none":
        return float(compute + memory + network)
    return float(max(compute, memory) + network)


def _compute_floor(tables: StageTables) -> float:
    """Least total compute time: work over the whole chip, by the most efficient menu option."""
    if not tables.sharded.menus:
        return float(tables.compute_k.sum())
    return sum(float((tiles * seconds).min()) for tiles, seconds in tables.sharded.menus) / tables.chip.tiles


def objective(tables: StageTables, partition_k: Ints, partitions: int) -> float:
    """Seconds of a partitioning: the sum of its partitions' times."""
    return float(price_blocks(tables, membership(partition_k, partitions)).time.sum())


def keeps(tables: StageTables, limits: IntraChipLimits, partition_k: Ints) -> bool:
    """Whether a partitioning keeps the limits that its blocks alone do not show."""
    if any(partition_k[k] != p for k, p in limits.pins):
        return False
    return bool(alive_bytes(tables, limits, partition_k).max(initial=0.0) <= limits.dram_left)


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
