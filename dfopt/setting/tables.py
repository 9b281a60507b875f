"""Shard and price: the numbers the MILPs see, as numpy arrays.

Suffixes: k kernel, t tensor, g fan-out group, x toll, z sharding scheme. Everything nonlinear (ceilings,
collective formulas, menus of compute tiles) is evaluated here, once, before any solve.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import added_bytes, beside_tensors, reduced_bytes
from dfopt.physics import ops
from dfopt.physics.dtypes import rate
from dfopt.physics.efficiency import efficiency_share, row_op
from dfopt.physics.library import sets_of
from dfopt.physics.operands import read_share, shard_flop, work_whole, written_share
from dfopt.physics.states import cached_bytes, own_traffic
from dfopt.setting.by_kernel import depths, fanout_groups
from dfopt.setting.conversions import overhead_of_kernels, shard_communications, tolls
from dfopt.setting.cycles import compute_menu
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.placements import Counted

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ShardedGraph:
    """One layer on one chip under chosen shardings: what the intra-chip problem is built from.

    Attributes
    ----------
    names : tuple of str
        Kernels, in graph order; the axis k of the arrays.
    forward_k : bool
        Whether the kernel belongs to the forward pass.
    compute_k : float
        Seconds of compute per microbatch with the whole chip; under the cycle model the menus count instead.
    stationary_k : float
        Bytes that stay in SRAM while the kernel's partition runs: weights, gradient accumulators.
    weight_k, read_k : float
        Bytes of weights that are held, and that an evaluation reads: of experts not those of all.
    cached_k : float
        Bytes that are kept for the sequences of one evaluation.
    mem_k : float
        DRAM bytes whatever the partition: weight reads, gradients, carried tensors, inputs and outputs, KV caches; as
        the fastest memory counts them, see :mod:`dfopt.setting.placements`.
    accessed_k : float
        Bytes that the kernel reads from SRAM and writes there beside the tensors between kernels: weights, gradients,
        its own data, carried tensors, inputs and outputs.
    fixed_buffer_k : float
        SRAM bytes of buffers for carried tensors, inputs and outputs.
    net_k : float
        Seconds of communication, layout conversions of the outgoing tensors included.
    src_t, dst_t : int
        Ends of the tensors.
    b_t, moved_t, tile_t, depth_t : float
        Bytes; those that blocks store and read, 0 where kernels have them in `mem_k` as their own; bytes of one tile;
        tiles buffered between the two kernels when fused.
    group_t : int
        Fan-out group: tensors of one group are stored once. Each its own under ``per_consumer``.
    saved_t : bool
        Whether the backward pass needs it: kept in DRAM whatever the partitions are.
    kept_t : bool
        The same, or that its source keeps it.
    menus : tuple of (tiles, seconds)
        Per kernel, compute-tile options under the cycle model; empty under the others.
    tile_count : int
        Tiles that the streamed axis is cut into.
    output_k : float
        Share of its output that one chip holds.
    kept_k, working_k : float
        Bytes that the kernel keeps beside tensors, until the backward pass and while its layer runs.
    gradient_k, added_k : float
        Bytes of weight gradient that the kernel produces, as copies add it up, and that an evaluation adds to: of
        experts not those of all.
    between_k : float
        Bytes of carried tensors and inputs that a kernel reads.
    toll_x, sent_x, payers_xk : float, float, bool
        Tolls: seconds of communication, and bytes that a chip sends in them, of every partition that holds any of
        some kernels, once for all of those.
    sets_k : bool, shape (kernels, sets)
        The sets of a library's kernels that each is in, see :data:`dfopt.physics.library.SETS`.
    """

    names: tuple[str, ...]
    forward_k: Bools
    compute_k: Floats
    stationary_k: Floats
    weight_k: Floats
    read_k: Floats
    cached_k: Floats
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
    saved_t: Bools
    kept_t: Bools
    menus: tuple[tuple[Ints, Floats], ...]
    tile_count: int
    output_k: Floats
    kept_k: Floats
    working_k: Floats
    gradient_k: Floats
    added_k: Floats
    between_k: Floats
    toll_x: Floats
    sent_x: Floats
    payers_xk: Bools
    sets_k: Bools

    @property
    def sram_traffic_k(self) -> Floats:
        """Bytes that each kernel reads from SRAM and writes there, whatever else is in its partition.

        A fan-out group is written once by its source and read once by every kernel that takes it, whether it stays on
        the chip or goes through DRAM.
        """
        n, width = len(self.names), int(self.group_t.max(initial=0)) + 1
        made, read = (np.unique(key, return_index=True)[1] for key in (self.group_t, self.dst_t * width + self.group_t))
        ends = np.append(self.src_t[made], self.dst_t[read])
        return self.accessed_k + np.bincount(ends, self.b_t[np.append(made, read)], n + 1)[:-1]


def least_rows(instance: Instance, schemes: Sequence[Sharding]) -> int:
    """Fewest rows of a tile: one for every chip that shares it."""
    kernels = instance.graph.kernels
    shared = any(ops.splits_tiles(kernel, z) for kernel, z in zip(kernels, schemes, strict=True))
    return instance.plan.shards if shared else 1


def tile_counts(graph: Graph, assumptions: Assumptions, least: int = 1) -> list[int]:
    """Tile counts worth trying, most tiles first; no tile has less than ``least`` rows if the axis has as many.

    Under the cycle model a tile should fill the systolic array, and every distinct ``ceil(rows / size)`` is a
    candidate. Under the others more tiles only save SRAM, so the smallest tiles are best.
    """
    rows = ops.streamed_rows(graph)
    least = min(max(assumptions.tile_rows or 1, least), rows)
    if assumptions.tile_rows is not None or assumptions.compute_model != "cycle":
        return [-(-rows // least)]
    sizes = np.arange(least, rows + 1)
    return sorted({int(count) for count in -(-rows // sizes)}, reverse=True)


def compute_seconds(setting: Setting, kernels: Sequence[Kernel], schemes: Sequence[Sharding], degree: int) -> Floats:
    """Seconds of each kernel's largest shard on the whole chip, at the share that it sustains of its type's peak.

    Under the cycle model there is no such share: that is the time with every unit of every tile busy.

    Parameters
    ----------
    setting : Setting
        The chip, and the compute model.
    kernels, schemes : sequences of equal length
        Pairs of a kernel and one of its shardings.
    degree : int
        Tensor-parallel chips.
    """
    chip, assumptions = setting.system.chip, setting.assumptions
    pairs = list(zip(kernels, schemes, strict=True))
    flop = np.array([shard_flop(k, z, degree, setting.sums, assumptions) for k, z in pairs])
    peak = np.array([rate(setting.graph, kernel, chip) for kernel in kernels])
    if assumptions.compute_model != "efficiency":
        return flop / (peak * (assumptions.compute_utilization or 1.0))
    assert chip.efficiency is not None  # optimize() refuses the efficiency model without it
    simd = np.array([kernel.op == "elementwise" for kernel in kernels])
    op = np.array([row_op(kernel, assumptions) for kernel in kernels])
    extents = [ops.shard_extents(k, z, degree, assumptions.sharding_rules) for k, z in pairs]
    return flop / (peak * efficiency_share(chip.efficiency, simd, flop, np.array(extents, dtype=np.float64), op))


def shard(instance: Instance, sharding: dict[str, Sharding], *, alone: bool = False) -> ShardedGraph:
    """Price one layer under the shardings chosen by kernel name, in the first of :func:`tile_counts` tiles.

    ``alone``: what kernels say of themselves, without communication, which is of several.
    """
    graph, assumptions = instance.graph, instance.assumptions
    kernels, index = graph.kernels, graph.index()
    rules, degree, words = assumptions.sharding_rules, instance.plan.shards, graph.words
    schemes = [sharding[kernel.name] for kernel in kernels]
    exact_gradients = assumptions.gradients == "exact"

    pairs = list(zip(kernels, schemes, strict=True))
    output_k = np.array([ops.output_share(k, z, degree, rules) for k, z in pairs])
    held_k = np.array([ops.weight_share(k, z, degree, rules) * words.of_weight(k) for k, z in pairs])
    weight_k = np.array([ops.weight_elements(k) for k in kernels]) * held_k
    read_k = np.array([ops.weights_read(k) for k in kernels]) * held_k
    at_once_k = np.array([ops.weights_at_once(k) for k in kernels]) * held_k
    made_k = output_k * words.activations
    gradient_k = np.array([ops.gradient_elements(k) for k in kernels]) * (output_k * reduced_bytes(graph))
    added_k = np.array([ops.gradients_added(k) for k in kernels]) * (output_k * added_bytes(graph, assumptions))
    adding_k = np.array([ops.gradients_at_once(k) for k in kernels]) * made_k
    src_t = np.array([index[t.src] for t in graph.tensors], dtype=np.int64)
    dst_t = np.array([index[t.dst] for t in graph.tensors], dtype=np.int64)
    full_t = np.array([graph.bytes_of(t) for t in graph.tensors], dtype=float)
    b_t = full_t * output_k[src_t]
    forward_k = np.array([k.pass_ == "forward" for k in kernels])

    counted = instance.counted
    own_k = np.array([own_traffic(k, z, degree) for k, z in pairs], dtype=float)
    mem_k = own_k
    if counted != Counted():
        mem_k = np.array([counted.own_traffic(k, z, degree) for k, z in pairs], dtype=float)
    if assumptions.weights_from_dram:
        mem_k = mem_k + read_k * np.array([counted.of_weight(k) for k in kernels])
    if exact_gradients:
        mem_k = mem_k + assumptions.gradient_passes * added_k  # over microbatches: read, added to, written back
    accessed_k = read_k + own_k
    if exact_gradients:
        accessed_k += assumptions.gradient_passes * added_k
    mem_k, between_k = mem_k + _of_operands(instance, schemes), np.zeros(len(kernels))
    for end in boundary(instance, schemes):
        mem_k[end.kernel] += end.bytes
        accessed_k[end.kernel] += end.bytes
        between_k[end.kernel] += 0.0 if end.write else end.bytes
    toll_x, sent_x, payers_xk = np.zeros(0), np.zeros(0), np.zeros((0, len(kernels)), dtype=bool)
    if not alone:
        toll_x, sent_x, payers_xk = tolls(instance, schemes)
    saved_t, beside_t = forward_k[src_t] & ~forward_k[dst_t], np.array(beside_tensors(graph), dtype=bool)
    beside_t &= assumptions.fanout == "shared"  # else a reader has a copy of its own
    beside = instance.setting.beside
    kept_k, working_k = np.zeros((2, len(kernels)))
    if beside:
        kept_k, working_k = np.array([beside.on_chip(k, z, degree) for k, z in pairs]).reshape(-1, 2).T
    untiled = ShardedGraph(
        names=tuple(k.name for k in kernels),
        forward_k=forward_k,
        compute_k=compute_seconds(instance.setting, kernels, schemes, degree),
        stationary_k=at_once_k + (adding_k if exact_gradients else 0.0),
        weight_k=weight_k,
        read_k=read_k,
        cached_k=np.array([cached_bytes(k, z, degree) for k, z in pairs], dtype=float),
        mem_k=mem_k,
        accessed_k=accessed_k,
        fixed_buffer_k=np.zeros(len(kernels)),
        net_k=np.zeros(len(kernels)) if alone else _network_seconds(instance, schemes, gradient_k),
        src_t=src_t,
        dst_t=dst_t,
        b_t=b_t,
        moved_t=b_t * (assumptions.operand_traffic is None),
        tile_t=b_t,
        depth_t=np.array(depths(graph, assumptions), dtype=float),
        group_t=fanout_groups(graph, assumptions),
        saved_t=saved_t,
        kept_t=saved_t | beside_t,
        menus=(),
        tile_count=1,
        output_k=output_k,
        kept_k=kept_k,
        working_k=working_k,
        gradient_k=gradient_k,
        added_k=added_k,
        between_k=between_k,
        toll_x=toll_x,
        sent_x=sent_x,
        payers_xk=payers_xk,
        sets_k=np.array([sets_of(kernel) for kernel in kernels]),
    )
    return with_tiles(untiled, instance, sharding, tile_counts(graph, assumptions, least_rows(instance, schemes))[0])


def _of_operands(instance: Instance, schemes: Sequence[Sharding]) -> Floats:
    """DRAM bytes of each kernel for the tensors that it makes and takes, where these are its own."""
    graph, rules, degree = instance.graph, instance.assumptions.sharding_rules, instance.plan.shards
    moved_k = np.zeros(len(graph.kernels))
    if instance.assumptions.operand_traffic is None:
        return moved_k
    tiled = instance.assumptions.operand_traffic == "own_tiled"
    index, groups = graph.index(), fanout_groups(graph, instance.assumptions).tolist()
    sums, chosen = instance.setting.sums, instance.assumptions
    whole_k = [work_whole(k, z, sums, chosen) for k, z in zip(graph.kernels, schemes, strict=True)]
    most: dict[tuple[int, int, bool], float] = {}  # of what a kernel reads twice once
    for group, operand, tensor in zip(groups, ops.operands(graph), graph.tensors, strict=True):
        src, dst, whole = index[tensor.src], index[tensor.dst], graph.bytes_of(tensor)
        made = whole * written_share(graph.kernels[src], schemes[src], degree, rules, tiled)
        elements = graph.elements_of(tensor)
        read = whole * read_share(graph.kernels[dst], operand, schemes[dst], degree, rules, elements, tiled)
        made, read = whole if whole_k[src] else made, whole if whole_k[dst] else read
        for end, size in (((src, group, True), made), ((dst, group, False), read)):
            most[end] = max(most.get(end, 0.0), size)
    for (kernel, _, _), size in most.items():
        moved_k[kernel] += size
    return moved_k


def with_tiles(sharded: ShardedGraph, instance: Instance, sharding: dict[str, Sharding], tiles: int) -> ShardedGraph:
    """The same layer with its streamed axis cut into another number of tiles.

    Only buffers and menus of compute tiles depend on it: nothing else is priced again.
    """
    graph, assumptions = instance.graph, instance.assumptions
    tile_k = np.array([ops.tile_share(k, tiles) for k in graph.kernels])
    fixed_buffer_k = np.zeros(len(graph.kernels))
    schemes = [sharding[kernel.name] for kernel in graph.kernels]
    for end in boundary(instance, schemes):
        fixed_buffer_k[end.kernel] += 2 * end.bytes * end.tile_share(graph, tiles)
    cycle = assumptions.compute_model == "cycle"
    return replace(
        sharded,
        fixed_buffer_k=fixed_buffer_k,
        tile_t=sharded.b_t * tile_k[sharded.src_t],
        menus=tuple(compute_menu(instance, k, z, tiles) for k, z in zip(graph.kernels, schemes, strict=True))
        if cycle
        else (),
        tile_count=tiles,
    )


class Boundary(NamedTuple):
    """What a kernel writes to DRAM or reads from there in any partition: its bytes on a chip, and how it lies there.

    It is the output of kernel ``of``, or if ``operand`` is not 0 that operand of it; ``split``: by its features.
    """

    kernel: int
    bytes: float
    write: bool
    of: int
    operand: int
    split: bool

    def tile_share(self, graph: Graph, tiles: int) -> float:
        """Share of the bytes in one of so many tiles."""
        of = graph.kernels[self.of]
        return ops.input_tile_share(of, tiles, self.operand) if self.operand else ops.tile_share(of, tiles)


def boundary(instance: Instance, schemes: Sequence[Sharding]) -> Iterator[Boundary]:
    """Both ends of every carried tensor, and the graph's inputs and outputs; none if the boundary is free."""
    graph, rules, shards = instance.graph, instance.assumptions.sharding_rules, instance.plan.shards
    if instance.assumptions.layer_boundary == "free":
        return
    index = graph.index()
    taken = [(index[t.src], graph.bytes_of(t), index[t.dst]) for t in graph.carried]
    for src, size, dst in [*taken, *((src, size, None) for src, size in graph.writes())]:
        chip = size * ops.output_share(graph.kernels[src], schemes[src], shards, rules)
        yield Boundary(src, chip, True, src, 0, schemes[src] == "m")
        if dst is not None:
            yield Boundary(dst, chip, False, src, 0, schemes[src] == "m")
    for dst, operand, size in graph.reads():
        kernel, scheme = graph.kernels[dst], schemes[dst]
        layout = ops.required_layout(kernel, operand, scheme, rules, size / graph.words.activations)
        chip = size * ops.input_share(kernel, layout, scheme, shards, rules)
        yield Boundary(dst, chip, False, dst, operand, layout == "SR" and scheme != "outer")


def _network_seconds(instance: Instance, schemes: list[Sharding], gradient_k: Floats) -> Floats:
    """Communication per kernel: inherent, conversions of its outputs, amortised gradient all-reduce."""
    net_k = instance.own_communication_s + overhead_of_kernels(instance.assumptions)
    for one in shard_communications(instance, schemes):
        net_k[one.kernel] += instance.between_shards_s(one.kind, one.whole, one.kernel, one.late, one.behind)
    net_k += [instance.amortized_gradient_s(k, float(volume)) for k, volume in enumerate(gradient_k)]
    return net_k
