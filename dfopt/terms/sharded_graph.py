"""Shard and price: the numbers the MILPs see, as numpy arrays.

Suffixes: k kernel, t tensor, g fan-out group, x toll, z sharding scheme. Everything nonlinear (ceilings,
collective formulas, menus of compute tiles) is evaluated here, once, before any solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.setting.instance import Instance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ShardedGraph:
    """One layer on one chip under chosen shardings: what the intra-chip problem is built from.

    Arrays have the shape (kernels,) with the suffix k, (tensors,) with t and (tolls,) with x, unless another one is
    given. Bytes and seconds are those of one chip in one evaluation.

    Attributes
    ----------
    names : tuple of str
        Kernels, in graph order; the axis k of the arrays.
    forward_k : bool
        Whether the kernel belongs to the forward pass.
    compute_k : float, s
        Compute with the whole chip; under the cycle model 0, and the menus count instead.
    stationary_k : float, B
        What stays in SRAM while the kernel's partition runs: weights, gradient accumulators.
    weight_k : float, B
        Weights that are held, of experts those of all.
    read_k : float, B
        Weights that an evaluation reads: of experts only those that some token chooses.
    mem_k : float, B
        What passes through DRAM whatever the partition: weight reads, gradients, carried tensors, inputs and outputs,
        KV caches; as the fastest memory counts them, see :mod:`dfopt.setting.placements`.
    accessed_k : float, B
        What the kernel reads from SRAM and writes there beside the tensors between kernels: weights, gradients, its own
        data, carried tensors, inputs and outputs.
    fixed_buffer_k : float, B
        Buffers in SRAM for carried tensors, inputs and outputs.
    net_k : float, s
        Communication, layout conversions of the outgoing tensors included; tolls are apart.
    src_t, dst_t : int
        Kernels that make and that read the tensor, as places on the axis k. In a part of a layer an end elsewhere is
        ``len(names)``.
    b_t : float, B
        The tensor as its source holds it on one chip.
    moved_t : float, B
        What blocks store and read of it: ``b_t``, or 0 where kernels have it in ``mem_k`` as their own.
    tile_t : float, B
        One tile of the tensor.
    depth_t : float
        Tiles of it that are buffered between its two kernels where they are fused.
    group_t : int
        Fan-out group: tensors of one group are stored once. Each its own under ``per_consumer``.
    kept_t : bool
        Whether the backward pass needs it, or its source keeps it: in DRAM whatever the partitions are.
    menus : tuple of (int array, float array)
        By kernel under the cycle model: numbers of compute tiles, ascending, and seconds with each, descending. Empty
        under the others.
    tile_count : int
        Tiles that the streamed axis is cut into.
    output_k : float
        Share of its output that one chip holds.
    held_k : float, shape (kernels, amounts)
        What the kernel has a chip hold, in the order of :data:`dfopt.terms.rules.HELD`: bytes, and numbers of
        parameters.
    gradient_k : float, B
        Weight gradient of the kernel in the type in which copies add it up, of experts that of all.
    added_k : float, B
        Weight gradient that an evaluation adds to: of experts only those that some token chooses.
    again_k : float, B
        Inputs and outputs that pass through DRAM once more for each part of the kernel's weight after the first, where
        its weight is loaded in parts. 0 where the chip does not move them again.
    toll_x : float, s
        Communication that every partition pays which holds any of some kernels, once for all of those.
    sent_x : float, B
        What a chip sends in it.
    payers_xk : bool, shape (tolls, kernels)
        These kernels.
    sets_k : bool, shape (kernels, sets)
        The sets of a library's kernels that each is in, see :data:`dfopt.physics.library.SETS`.
    """

    names: tuple[str, ...]
    forward_k: Bools
    compute_k: Floats
    stationary_k: Floats
    weight_k: Floats
    read_k: Floats
    mem_k: Floats
    accessed_k: Floats
    fixed_buffer_k: Floats
    net_k: Floats
    src_t: Ints
    dst_t: Ints
    b_t: Floats
    moved_t: Floats
    tile_t: Floats
    depth_t: Floats
    group_t: Ints
    kept_t: Bools
    menus: tuple[tuple[Ints, Floats], ...]
    tile_count: int
    output_k: Floats
    held_k: Floats
    gradient_k: Floats
    added_k: Floats
    again_k: Floats
    toll_x: Floats
    sent_x: Floats
    payers_xk: Bools
    sets_k: Bools

    @property
    def sram_traffic_k(self) -> Floats:
        """Bytes that each kernel reads from SRAM and writes there, whatever else is in its partition: shape (kernels,).

        A fan-out group is written once by its source and read once by every kernel that takes it, whether it stays on
        the chip or goes through DRAM.
        """
        n, width = len(self.names), int(self.group_t.max(initial=0)) + 1
        made, read = (np.unique(key, return_index=True)[1] for key in (self.group_t, self.dst_t * width + self.group_t))
        ends = np.append(self.src_t[made], self.dst_t[read])
        return self.accessed_k + np.bincount(ends, self.b_t[np.append(made, read)], n + 1)[:-1]


def least_rows(instance: Instance, schemes: Sequence[Sharding]) -> int:
    """Fewest rows that a tile may have: one for every chip that shares it, or 1 if no chips share tiles.

    Parameters
    ----------
    instance
        Setting and plan.
    schemes
        Scheme of every kernel of its graph, in their order.
    """
    kernels = instance.graph.kernels
    shared = any(ops.splits_tiles(kernel, z) for kernel, z in zip(kernels, schemes, strict=True))
    return instance.plan.shards if shared else 1


def tile_counts(graph: Graph, assumptions: Assumptions, least: int = 1) -> list[int]:
    """Tile counts worth trying, most tiles first.

    Under the cycle model a tile should fill the systolic array, and every distinct ``ceil(rows / size)`` is a
    candidate. Under the others more tiles only save SRAM, so the smallest tiles are best.

    Parameters
    ----------
    graph
        The rows of its shortest streamed axis are cut into tiles.
    assumptions
        The compute model, and the rows of a tile if they are stated (``tile_rows``): then there is one candidate.
    least : int
        Fewest rows of a tile, if the axis has as many.

    Returns
    -------
    list of int
        At least one, descending.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel
    >>> graph = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=4, k=8, n=16),))
    >>> [tile_counts(graph, Assumptions(compute_model=model)) for model in ("fixed", "cycle")]
    [[16], [16, 8, 6, 4, 3, 2, 1]]
    """
    rows = ops.streamed_rows(graph)
    least = min(max(assumptions.tile_rows or 1, least), rows)
    if assumptions.tile_rows is not None or assumptions.compute_model != "cycle":
        return [-(-rows // least)]
    sizes = np.arange(least, rows + 1)
    return sorted({int(count) for count in -(-rows // sizes)}, reverse=True)
