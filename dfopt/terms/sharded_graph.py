"""Shard and price: the numbers the MILPs see, as numpy arrays.

Suffixes: k kernel, t tensor, g fan-out group, x toll, z sharding scheme. Everything nonlinear (ceilings,
collective formulas, menus of compute tiles) is evaluated here, once, before any solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.terms.token_blocks import TokenCharges


@dataclass(frozen=True)
class ShardedGraph:
    """Bytes, seconds and tensors of a layer on one chip for one microbatch, under the sharding schemes of its kernels.

    Arrays have the shape (kernels,) with the suffix k, (tensors,) with t and (tolls,) with x, unless another one is
    given. Bytes and seconds are those of one chip in one evaluation of the graph, which is one microbatch. A
    *partition*, or block, is a set of kernels that the chip runs together: partitions are chosen from these figures. A
    *carried* tensor goes from one layer to the next. A *toll* is a cost that a partition pays once if it holds any of
    some kernels. If several options (sharding schemes) of a kernel are left, figures are the least over them or lower
    bounds on it.

    Attributes
    ----------
    names : tuple of str
        Kernels, in graph order; the axis k of the arrays.
    forward_k : bool
        Whether the kernel belongs to the forward pass.
    compute_k : float, s
        Time in which the whole chip computes the kernel. 0 under the cycle model, where ``menus`` has the time instead.
    stationary_k : float, B
        Bytes that stay in SRAM while the kernel's partition runs: its weight and its gradient accumulator. Routed
        experts run one after another, so those of one count.
    weight_k : float, B
        Bytes of the kernel's weight on the chip. All routed experts count.
    mem_k : float, B
        Bytes that the kernel moves to and from DRAM whatever the partitions are: weight reads, gradients, carried
        tensors, inputs and outputs of the graph, KV caches. A byte in a slower memory counts as several, see
        :mod:`dfopt.setting.placements`. If the assumption ``operand_traffic`` is given, no tensor stays on the chip and
        those between kernels are included.
    sram_traffic_k : float, B
        Bytes that the kernel reads from SRAM and writes there, whatever other kernels are in its partition: weights,
        gradients, data of the kernel such as caches, inputs and outputs of the graph, and tensors. The source writes an
        output once for all kernels that share it, and each of these reads it once, on the chip or through DRAM.
    fixed_buffer_k : float, B
        Buffers in SRAM for carried tensors, and for inputs and outputs of the graph.
    net_k : float, s
        Seconds of communication that the kernel pays, conversions of the layout of its output included. Under
        ``execution: kernel_by_kernel`` its start (``kernel_overhead``) is included, too. ``toll_x`` is not.
    src_t, dst_t : int
        Kernels that make and that read the tensor, as places on the axis k. If the object is of some kernels of a layer
        only, ``len(names)`` stands for all others.
    b_t : float, B
        Bytes of the tensor that one chip holds under the scheme of its source.
    moved_t : float, B
        Bytes that a partition moves to or from DRAM if it stores or reads the tensor there: ``b_t``. 0 if
        ``operand_traffic`` is given, as ``mem_k`` includes them then.
    tile_t : float, B
        Bytes of one tile of the tensor.
    depth_t : float
        Number of tiles of the tensor that are buffered in SRAM where one partition has both of its kernels
        (:func:`dfopt.terms.by_kernel.depths`).
    group_t : int
        Number of the fan-out group: one output with all kernels that read it is stored once. Under ``fanout:
        per_consumer`` every tensor is a group of its own.
    kept_t : bool
        Whether the tensor stays in DRAM until the backward pass, whatever the partitions are: the forward pass makes it
        and a later pass reads it, or its source states that the output is kept.
    menus : tuple of (int array, float array)
        By kernel under the cycle model: numbers of compute tiles, ascending, and seconds with each, descending. Empty
        under other compute models.
    tile_count : int
        Tiles that the streamed axis is cut into.
    output_k : float
        Share of the kernel's output that one chip holds, at most 1.
    held_k : float, shape (kernels, amounts)
        Amounts of the kernel that one chip holds in memory, in the order of :data:`dfopt.terms.rules.HELD`: bytes, and
        numbers of parameters.
    gradient_k : float, B
        Bytes of the kernel's weight gradient, in the type in which data-parallel copies add it up, of routed experts
        that of all. 0 for all ops but ``weight_update``.
    again_k : float, B
        DRAM traffic that is added to ``mem_k`` for each part of the weight after the first, if the kernel is alone in
        its partition and runs in parts because it does not fit SRAM. Under ``weight_tiling: reread`` these are the
        inputs of the kernel. Under ``reread_all`` they are also its outputs to other kernels of the layer. Else 0.
    toll_x : float, s
        Seconds of tolls: each is added once to every partition that holds any of the kernels of ``payers_xk``. Tolls
        are conversions of saved tensors for later passes, and the start of a partition (``kernel_overhead``).
    sent_x : float, B
        Bytes that one chip sends each time that a partition pays the toll.
    payers_xk : bool, shape (tolls, kernels)
        Whether a partition that holds the kernel pays the toll.
    sets_k : bool, shape (kernels, sets)
        Whether the kernel is in each set of kernels that a library fuses, see :data:`dfopt.physics.library.SETS`.
    token_charges : TokenCharges, optional
        Charges of partitions that take their tokens in blocks. None: no partition does.
    """

    names: tuple[str, ...]
    forward_k: Bools
    compute_k: Floats
    stationary_k: Floats
    weight_k: Floats
    mem_k: Floats
    sram_traffic_k: Floats
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
    again_k: Floats
    toll_x: Floats
    sent_x: Floats
    payers_xk: Bools
    sets_k: Bools
    token_charges: TokenCharges | None = None


def least_rows(instance: Instance, schemes: Sequence[Sharding]) -> int:
    """Fewest rows that a tile of the streamed axis may have, so that every chip that shares a tile has a row.

    The streamed axis, mostly that of tokens, is the one that a chip works through tile by tile.

    Parameters
    ----------
    instance
        Setting (graph, system and assumptions) and plan.
    schemes
        Sharding scheme of every kernel of the graph, in the order of the kernels.

    Returns
    -------
    int, no unit
        The number of tensor-parallel chips if some scheme splits the rows of each tile (the tokens), else 1.
    """
    kernels = instance.graph.kernels
    shared = any(ops.splits_tiles(kernel, z) for kernel, z in zip(kernels, schemes, strict=True))
    return instance.plan.shards if shared else 1


def tile_counts(graph: Graph, assumptions: Assumptions, least: int = 1) -> list[int]:
    """Numbers of tiles worth cutting the streamed axis into, most tiles first.

    The streamed axis, mostly that of tokens, is the one that a chip works through tile by tile. Under the cycle model
    a tile should fill the systolic array. Candidates are all distinct ``ceil(rows / size)``, for tiles of ``size`` rows
    from the fewest to all. Under other compute models more tiles only save SRAM, so the smallest tiles are the only
    candidate.

    Parameters
    ----------
    graph
        The rows of its shortest streamed axis are cut into tiles. Without a streamed axis there is one row.
    assumptions
        The compute model, and the rows of a tile if they are stated (``tile_rows``): then there is one candidate, with
        ``least`` rows to a tile if that is more.
    least : int
        Fewest rows of a tile, such as :func:`least_rows` returns; if the axis has fewer rows, one tile has all of them.

    Returns
    -------
    list of int
        Numbers of tiles, descending. At least one entry.

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
    counts: Ints = np.unique(-(-rows // np.arange(least, rows + 1)))
    return [int(count) for count in counts[::-1]]
