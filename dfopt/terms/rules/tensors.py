"""Tensors: what passes through DRAM and what waits in SRAM, between kernels and at the ends of a layer.

A rule of single kernels yields pairs of the name of a resource and a float array, shape (options,): what the block of
the kernel pays once, under each option of the kernel. All other rules yield charges. Bytes are those of one chip in one
evaluation.

*Ends* are inputs and outputs of the graph. *Carried* tensors are handed from one layer to the next. A kernel that is
alone in its block may run in *parts* of its weight. A *fan-out* is one output of a kernel with all its readers.

Suffix: o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.physics.operands import read_share, work_whole, written_share
from dfopt.terms.charges import Charge, Term
from dfopt.terms.chip import CROSSING_TILES, reads_again, writes_again
from dfopt.terms.incidence import Crosses, Has, Inside
from dfopt.terms.kernel import LayerKernel, by_option, end_bytes, output_share
from dfopt.terms.layer import FanOut, Layer
from dfopt.terms.rules.weights import stays


def tensors(layer: Layer) -> Iterator[Charge]:
    """Bytes that tensors between kernels take: through DRAM from one block to another, and buffered in SRAM.

    A tile is a part of a tensor along its streamed axis. A tensor that passes through DRAM has two tiles in SRAM at
    each end. A tensor inside a block waits there, some tiles of it (DFModel, section V.A and V.B). A kernel alone in
    its block may run in parts of its weight. Then its outputs are cut too, and it moves tensors again for each further
    part, as the assumption ``weight_tiling`` says.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        For every fan-out but those that the next layer reads. A fan-out is one output of a kernel with all its readers
        under ``fanout: shared``, else with one of them. The option of its source decides each amount, in B on one chip
        in one evaluation.

        - ``dram_bytes``: the part of the tensor that one chip holds under the scheme of its source. Each block that
          stores or reads the tensor pays once (:class:`~dfopt.terms.incidence.Crosses`). Only if ``operand_traffic`` is
          None; else :func:`operands` counts these bytes.
        - ``buffer_bytes``: two tiles, paid by the same blocks.
        - ``buffer_bytes``: a tile. The block of the source pays it as often as tiles wait there: the largest
          :attr:`~dfopt.terms.layer.Reader.depth` of the readers that it holds (:class:`~dfopt.terms.incidence.Inside`).
          Not if tensors wait nowhere inside a block (``execution: library``).
        - ``cut_buffer_bytes``: two tiles, paid once by the block of a source that has something to cut
          (:func:`~dfopt.terms.rules.weights.stays`). These bytes are among its ``buffer_bytes``: those that are cut if
          it runs in parts.
        - ``reread_bytes``: as many as ``dram_bytes``, also where these are not yielded. The block of each kernel that
          moves the tensor again pays them, for each part after the first.
    """
    moves = layer.moves_tensors
    for fan in layer.fan_outs:
        if fan.carried:
            continue
        size = fan.bytes * layer.output_share_ko[fan.source]
        tile, scope, crosses = size * layer.output_tile_k[fan.source], (fan.source,), Crosses(fan.source, fan.kernels)
        if moves:
            yield Charge("dram_bytes", crosses, scope, size)
        yield Charge("buffer_bytes", crosses, scope, CROSSING_TILES * tile)
        depth_of = {reader.kernel: reader.depth for reader in fan.readers}
        if any(depth_of.values()):
            yield Charge("buffer_bytes", Inside(fan.source, tuple(depth_of), tuple(depth_of.values())), scope, tile)
        if stays(LayerKernel.all_of(layer)[fan.source]):
            yield Charge("cut_buffer_bytes", Has(fan.source), scope, CROSSING_TILES * tile)
        yield from _read_again(layer, fan, size)


TENSORS = Term("tensors", "DFModel, section V.A and V.B: matrices B, D, L and H", tensors, by_tiles=True)


def _read_again(layer: Layer, fan: FanOut, size: Floats) -> Iterator[Charge]:
    """What kernels that run in parts of their weight move once more of a tensor for each part after the first.

    A kernel that is alone on the chip may run in parts, if the whole weight does not fit SRAM. Those that read the
    tensor do so under ``weight_tiling: reread`` and ``reread_all``. So does its source, under ``reread_all`` and if the
    tensor is not carried to the next layer. None does under ``free`` and ``forbid``.
    """
    read = fan.kernels if reads_again(layer.assumptions) else ()
    written = (fan.source,) if writes_again(layer.assumptions) and not fan.carried else ()
    for k in (*read, *written):
        yield Charge("reread_bytes", Has(k), (fan.source,), size)


def operands(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM bytes of the tensors between kernels that a kernel writes or reads, if all of them pass through DRAM.

    The assumption ``operand_traffic`` turns the rule on (as in Calculon, Isaev et al., SC23). The bytes are those of
    the whole tensor, times a share. With ``own`` the source of a tensor counts the share of it that one chip writes,
    before any collective, and each reader counts the share that its own scheme needs on one chip. With ``own_tiled``
    the same holds, but products of the backward pass and weight updates count only one chip's part of a gathered or
    reduced tensor. With both, an elementwise kernel that adds up partial sums counts whole tensors under an option that
    splits tokens.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``dram_bytes``, B, once for every tensor that the kernel writes or
        reads. A tensor that is both inputs of a kernel counts once, with the larger share. Tensors to the next layer
        are not among them. Nothing is yielded if ``operand_traffic`` is None: then :func:`tensors` counts what blocks
        of kernels move.
    """
    chosen = of.assumptions
    if chosen.operand_traffic is None:
        return
    tiled, degree, rules = chosen.operand_traffic == "own_tiled", of.degree, chosen.sharding_rules
    sum_kernels = of.sum_kernels
    whole_o = by_option(of, lambda kernel, scheme: float(work_whole(kernel, scheme, sum_kernels, chosen)))
    for places, size, elements in of.passed:

        def moved(kernel: Kernel, z: Sharding, places: tuple[int, ...] = places, elements: float = elements) -> float:
            if places == (0,):
                return written_share(kernel, z, degree, rules, tiled)
            return max(read_share(kernel, operand, z, degree, rules, elements, tiled) for operand in places)

        yield "dram_bytes", size * np.where(whole_o > 0, 1.0, by_option(of, moved))


OPERANDS = Term.of_kernel("operands", "operand_traffic of the assumptions", operands)


def carried(layer: Layer) -> Iterator[Charge]:
    """DRAM and SRAM bytes of the tensors that a layer hands to the next one, which always pass through DRAM.

    A partition starts and ends in DRAM (DFModel, section V.A). A *tile* is one of the equal slices that tensors are cut
    into along their streamed axis (tokens), ``layer.tiles`` in number. A kernel alone in its block may run in *parts*
    of its weight, if the whole weight does not fit SRAM.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        For every tensor that the next layer reads. The option of its source decides each amount, in B on one chip in
        one evaluation. ``dram_bytes`` is the part of the tensor that one chip holds, and ``buffer_bytes`` two tiles of
        that: the block of the source pays both once, and so does the block of each reader, even if that is the same
        block. ``reread_bytes`` is as much as ``dram_bytes``: the block of each kernel that moves the tensor again pays
        it for each part after the first that the kernel runs in. Nothing is yielded under ``layer_boundary: free``.
    """
    for fan in layer.carried:
        size = fan.bytes * LayerKernel.all_of(layer)[fan.source].answer("output share", output_share)
        buffer = CROSSING_TILES * size * layer.output_tile_k[fan.source]
        for k in (fan.source, *(reader.kernel for reader in fan.readers)):
            yield Charge("dram_bytes", Has(k), (fan.source,), size)
            yield Charge("buffer_bytes", Has(k), (fan.source,), buffer)
        yield from _read_again(layer, fan, size)


CARRIED = Term("carried tensors", "DFModel, section V.A: a partition starts and ends in DRAM", carried, by_tiles=True)


def ends(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM bytes of the inputs and outputs of the graph that a kernel reads or writes.

    They pass through DRAM wherever the kernel runs (DFModel, section V.A: a partition starts and ends in DRAM). The
    bytes are those of the whole tensor times the share that one chip reads or writes.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``dram_bytes``, B, for every input of the graph that the kernel reads
        and every output of the graph that it writes. ``reread_bytes``, B: as much for every input, if a kernel that
        runs in parts of its weight reads inputs again (``weight_tiling: reread`` and ``reread_all``); it counts for
        each part after the first. Nothing is yielded for a kernel that reads no input and writes no output of the
        graph, nor under ``layer_boundary: free``.
    """
    for operand, tensor_bytes in of.ends:
        size_o = end_bytes(of, operand, tensor_bytes)
        yield "dram_bytes", size_o
        if operand and reads_again(of.assumptions):
            yield "reread_bytes", size_o


ENDS = Term.of_kernel("ends", "DFModel, section V.A: a partition starts and ends in DRAM", ends)


def end_buffers(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """SRAM bytes that buffer every input and output of the graph which a kernel reads or writes: two tiles of each.

    The bytes are 2, times those of the tensor on one chip, times the share of it in one tile (:func:`end_tile`). Tiles
    are buffered in pairs (DFModel, section V.B): one moves while the other is worked on.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``buffer_bytes``, B, for every input of the graph that the kernel
        reads and every output of the graph that it writes. Nothing is yielded for a kernel without any, nor under
        ``layer_boundary: free``.
    """
    for operand, tensor_bytes in of.ends:
        yield "buffer_bytes", CROSSING_TILES * end_bytes(of, operand, tensor_bytes) * end_tile(of, operand)


def end_tile(of: LayerKernel, operand: int) -> float:
    """Share of an input or output of the graph that is in one tile (equal slice) of the axis that a kernel streams.

    It is ``ceil(length / tiles) / length``, with the length of the streamed axis and the number of tiles of the layer.
    Where a mask leaves only some elements of the tensor, it is that share over the share of elements left, at most 1.

    Parameters
    ----------
    of
        The kernel that reads the input or writes the output.
    operand : int
        0 for an output, 1 or 2 for an input that the kernel takes as that operand.

    Returns
    -------
    float, no unit
        Above 0 and at most 1. It is 1 if the kernel streams no axis. It is also 1 for an output if the kernel streams
        its contraction ``k``, as weight updates do. Both inputs of a kernel that streams count as streamed.
    """
    if operand:
        return ops.input_tile_share(of.kernel, of.tiles, operand)
    return ops.tile_share(of.kernel, of.tiles)


END_BUFFERS = Term.of_kernel(
    "buffers of ends", "DFModel, section V.B: tiles are buffered in pairs", end_buffers, by_tiles=True
)


def own_data(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM bytes that a kernel moves because the graph states them: own data, lookups in tables, caches of sequences.

    They are ``dram_bytes_per_chip + dram_bytes / shards``, and what one chip reads and writes of the caches
    (``states``). These are fields of the graph's kernel, and ``shards`` is the number of tensor-parallel chips.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``dram_bytes``, B. A byte in a slower memory counts as (bandwidth of
        the fastest memory / bandwidth of that memory) bytes, so that their number over the bandwidth of the fastest
        memory is the time. Nothing is yielded for a kernel without ``states``, ``dram_bytes`` and
        ``dram_bytes_per_chip``.
    """
    kernel = of.kernel
    if kernel.states or kernel.dram_bytes or kernel.dram_bytes_per_chip:
        degree, counted = of.degree, of.counted
        yield "dram_bytes", by_option(of, lambda kernel, scheme: counted.own_traffic(kernel, scheme, degree))


OWN_DATA = Term.of_kernel("own data", "stated by the kernels of the graph", own_data)
