"""The efficiency model: shares of peak, and of the bandwidth of a memory, looked up by the size of a kernel's shard.

Source: Calculon (Isaev et al., SC23; github.com/calculon-ai/calculon, `systems/*.json`), whose matrix and
vector engines each have a table ``[least GFLOP, share]``, and memories one ``[least MB, share]``, largest first.
One share for all kernels is too kind to small ones, which do not fill the chip: bf16 GEMMs on an A100 sustain
85 % of peak from 128 GFLOP on, 69 % from 16 and 30 % from 1 (medians over the measured tables of
aiconfigurator-core 0.12.0). The condition on extents is ours: a thin product wastes a systolic array however many
FLOP it has (same tables, 1 to 16 GFLOP: 45 % where no extent is below 128). So is the one on ``op``: the products of
attention are many small ones, and a kernel that does attention at once sustains less than a GEMM of as many FLOP: 25 to
40 % of an A100's peak in the first FlashAttention, 50 to 73 % in the second (Dao, arXiv:2307.08691, section 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dfopt.arrays import ROUNDING, Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Kernel
from dfopt.documents.system import Chip, EfficiencyRow

# FLOP of a shard are a product with a rounded share such as 1/3: what is a threshold but for rounding reaches it.


def efficiency_share(
    rows: Sequence[EfficiencyRow], simd: ArrayLike, flop: ArrayLike, extents: ArrayLike, op: ArrayLike | None = None
) -> Floats:
    """Share of the peak FLOP/s that each shard sustains, from the first row of the chip's table that it matches.

    Parameters
    ----------
    simd : bool, shape (...)
        Whether it is an elementwise kernel, which the vector unit runs.
    flop : float, shape (...)
        FLOP of one evaluation of the shard.
    extents : shape (..., 3)
        Rows (``outer`` included), columns and contraction of the shard, see `ops.shard_extents`. An elementwise
        kernel has no contraction, so its last extent is not looked at.
    op : str, shape (...), optional
        Operation that rows with an ``op`` must match, see `row_op`. None: no such row applies.

    Returns
    -------
    array of float, shape (...)
        NaN where no row applies; the table of a validated system has one for every kernel.

    Examples
    --------
    >>> rows = [
    ...     EfficiencyRow(unit="matrix", flop=1e9, extent=128, share=0.8),
    ...     EfficiencyRow(unit="matrix", share=0.3),
    ...     EfficiencyRow(unit="vector", share=0.1),
    ... ]
    >>> extents = [(512, 2048, 1024), (4096, 4096, 64), (4096, 4096, 1)]
    >>> efficiency_share(rows, [False, False, True], [2.1e9, 2.1e9, 1.7e7], extents)
    array([0.8, 0.3, 0.1])
    """
    simd, flop, extents = np.asarray(simd, dtype=bool), np.asarray(flop, dtype=float), np.asarray(extents, dtype=float)
    smallest = np.where(simd, extents[..., :2].min(axis=-1), extents.min(axis=-1))
    vector_r, flop_r, extent_r, op_r, share_r = _conditions(tuple(rows))
    applies = (
        (simd[..., None] == vector_r)
        & (flop[..., None] >= flop_r)
        & (smallest[..., None] >= extent_r)
        & ((op_r == "") | (np.asarray("" if op is None else op)[..., None] == op_r))
    )
    return np.where(applies.any(axis=-1), share_r[applies.argmax(axis=-1)], np.nan)


@lru_cache(maxsize=16)
def _conditions(rows: tuple[EfficiencyRow, ...]) -> tuple[NDArray[Any], ...]:
    """Of rows about kernels: of the vector unit or not, least FLOP, least extent, op or nothing, and the share."""
    conditions = [
        (row.unit == "vector", (row.flop or 0.0) * (1 - ROUNDING), row.extent or 1, row.op or "", row.share)
        for row in rows
        if row.unit != "memory"
    ]
    return tuple(map(np.array, zip(*conditions, strict=True)))


def row_op(kernel: Kernel, assumptions: Assumptions) -> str:
    """Name of a kernel for ``EfficiencyRow.op``; empty unless it is a product of two activations.

    Examples
    --------
    >>> scores = Kernel(name="QK", op="matmul", m=8, k=4, n=8)
    >>> [row_op(scores, Assumptions(execution=how)) for how in ("kernel_by_kernel", "library")]
    ['matmul', 'attention']
    """
    if kernel.op != "matmul":
        return ""
    return "attention" if assumptions.execution == "library" else "matmul"


def bandwidth_share(rows: Sequence[EfficiencyRow], moved: ArrayLike, memory: str | None = None) -> Floats:
    """Share of a memory's bandwidth that a partition sustains, from the first ``memory`` row that it matches.

    Parameters
    ----------
    moved : float, shape (...)
        Bytes that one evaluation of the partition, all its kernels, moves to and from the memory.
    memory
        Name of one of several memories of a chip; none of the only one.

    Returns
    -------
    array of float, shape (...)
        1 where the table says nothing about the memory.

    Examples
    --------
    >>> rows = [EfficiencyRow(unit="memory", bytes=100e6, share=0.9), EfficiencyRow(unit="memory", share=0.3)]
    >>> bandwidth_share(rows, [2e8, 1e8, 1e6]), float(bandwidth_share([], 1e6))
    (array([0.9, 0.9, 0.3]), 1.0)
    """
    moved = np.asarray(moved, dtype=float)
    of_memory = [row for row in rows if row.unit == "memory" and row.memory in (None, memory)]
    applies = [moved >= (row.bytes or 0.0) * (1 - ROUNDING) for row in of_memory]
    if not of_memory:
        return np.ones_like(moved)
    share: Floats = np.select(applies, [row.share for row in of_memory], default=1.0)
    return share


def vector_share(rows: Sequence[EfficiencyRow], flop: float) -> float:
    """:func:`efficiency_share` of one vector operation with ``flop`` FLOP, without arrays (fast for single calls).

    Examples
    --------
    >>> rows = [EfficiencyRow(unit="vector", flop=1e9, share=0.5), EfficiencyRow(unit="vector", share=0.1)]
    >>> vector_share(rows, 2e9), vector_share(rows, 1.0), vector_share([], 1.0)
    (0.5, 0.1, nan)
    """
    shares = (
        row.share
        for row in rows
        if row.unit == "vector" and row.op is None and flop >= (row.flop or 0.0) * (1 - ROUNDING)
    )
    return next(shares, math.nan)


def one_bandwidth_share(rows: Sequence[EfficiencyRow], moved: float, memory: str | None = None) -> float:
    """:func:`bandwidth_share` for one number of bytes, without arrays.

    Parameters
    ----------
    rows
        Efficiency table of the chip. Rows of other units are passed over, and the first row that fits counts.
    moved : float, B
        Bytes that are read or written in one go.
    memory : str, optional
        Name of the memory; None for the fastest.

    Examples
    --------
    >>> one_bandwidth_share([EfficiencyRow(unit="memory", bytes=100e6, share=0.9)], 2e8), one_bandwidth_share([], 1.0)
    (0.9, 1.0)
    """
    of_memory = (row for row in rows if row.unit == "memory" and row.memory in (None, memory))
    return next((row.share for row in of_memory if moved >= (row.bytes or 0.0) * (1 - ROUNDING)), 1.0)


def memory_rows(
    chip: Chip, assumptions: Assumptions, op: Literal["optimizer"] | None = None
) -> tuple[EfficiencyRow, ...]:
    """Memory rows of the chip's efficiency table; empty if the compute model does not use the table.

    Parameters
    ----------
    chip, assumptions
        The chip, and resolved assumptions.
    op : str, optional
        What moves the bytes, see :class:`dfopt.documents.efficiency.EfficiencyRow`. None for the partitions of kernels.

    Examples
    --------
    >>> from dfopt.documents.system import Dram, Sram
    >>> row = EfficiencyRow(unit="memory", share=0.5)
    >>> whole = EfficiencyRow(unit="matrix", share=1.0), EfficiencyRow(unit="vector", share=1.0)
    >>> parts = {"sram": Sram(capacity=1e6), "dram": Dram(bandwidth=1e12), "efficiency": (*whole, row)}
    >>> chip = Chip(name="c", tiles=4, peak=1e12, **parts)
    >>> memory_rows(chip, Assumptions()), memory_rows(chip, Assumptions(compute_model="efficiency")) == (row,)
    ((), True)
    """
    if assumptions.compute_model != "efficiency":
        return ()
    return tuple(row for row in chip.efficiency or () if row.unit == "memory" and row.op in (None, op))


def most_sustained(chip: Chip, assumptions: Assumptions) -> float:
    """Upper bound on the sustained rate of the fastest memory, B/s: its bandwidth times the largest share.

    A share may rise with the bytes that are moved, so that more bytes may take less time; at this rate they take more,
    and never more than at their own.
    """
    return chip.fastest.bandwidth * max((row.share for row in memory_rows(chip, assumptions)), default=1.0)
