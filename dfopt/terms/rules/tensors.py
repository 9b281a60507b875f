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

__all__ = ["CARRIED", "ENDS", "END_BUFFERS", "OPERANDS", "OWN_DATA", "TENSORS", "end_tile", "moves_again"]


def tensors(layer: Layer) -> Iterator[Charge]:
    """A tensor between blocks passes through DRAM, two tiles of it buffered at each end; inside one it waits in SRAM.

    A kernel alone in its block may run in parts of its weight. Then its outputs are cut too, and it reads its inputs
    again for each further part.

    Yields
    ------
    Charge
        For every fan-out but carried ones; the option of its source decides the amount of each.

        - ``dram_bytes``, B: the tensor, paid by each block that stores or reads it
          (:class:`~dfopt.terms.incidence.Crosses`). Not where kernels move their operands by themselves
          (:func:`operands`).
        - ``buffer_bytes``, B: two tiles, paid by the same blocks.
        - ``buffer_bytes``, B: a tile, paid by the block of the source as often as its deepest reader inside is deep
          (:class:`~dfopt.terms.incidence.Inside`).
        - ``cut_buffer_bytes``, B: two tiles, paid once by the block of a source that has something to cut
          (:func:`~dfopt.terms.rules.weights.stays`).
        - ``reread_bytes``, B: the tensor, paid once by the block of each kernel of :func:`moves_again`.
    """
    moves = layer.moves_tensors
    for fan in layer.fan_outs:
        if fan.carried:
            continue
        size = fan.whole * layer.output_share_ko[fan.source]
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


TENSORS = Term("tensors", "DFModel, section V.A and V.B: matrices B, D, L and H", tensors)


def _read_again(layer: Layer, fan: FanOut, size: Floats) -> Iterator[Charge]:
    """What a kernel in parts moves once more of a tensor for each part after the first."""
    for k in moves_again(layer, fan):
        yield Charge("reread_bytes", Has(k), (fan.source,), size)


def moves_again(layer: Layer, fan: FanOut) -> tuple[int, ...]:
    """Kernels that move a tensor once more for each part of their weight after the first.

    Parameters
    ----------
    layer
        The layer, whose ``weight_tiling`` decides.
    fan
        The tensor, of this layer.

    Returns
    -------
    tuple of int
        Numbers of its readers where inputs are read again, and of its source where outputs are written again and it is
        not carried. Empty where nothing is repeated.
    """
    read = fan.kernels if reads_again(layer.assumptions) else ()
    written = (fan.source,) if writes_again(layer.assumptions) and not fan.carried else ()
    return (*read, *written)


def operands(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM bytes of tensors between kernels, where each kernel reads and writes its own (``operand_traffic``).

    The output counts in the layout in which the kernel leaves it, each input in that in which the kernel reads it.

    Yields
    ------
    (str, float array of shape (options,))
        ``dram_bytes``, B, once for every tensor that the kernel writes or reads, on one chip and in one evaluation.
        Nothing is yielded if ``operand_traffic`` is not given: then :func:`tensors` has these bytes.
    """
    chosen = of.assumptions
    if chosen.operand_traffic is None:
        return
    tiled, degree, rules, sums = (
        chosen.operand_traffic == "own_tiled",
        of.degree,
        of.assumptions.sharding_rules,
        of.sums,
    )
    whole_o = by_option(of, lambda kernel, scheme: float(work_whole(kernel, scheme, sums, chosen)))
    for places, size, elements in of.passed:

        def moved(kernel: Kernel, z: Sharding, places: tuple[int, ...] = places, elements: float = elements) -> float:
            if places == (0,):
                return written_share(kernel, z, degree, rules, tiled)
            return max(read_share(kernel, operand, z, degree, rules, elements, tiled) for operand in places)

        yield "dram_bytes", size * np.where(whole_o > 0, 1.0, by_option(of, moved))


OPERANDS = Term.of_kernel("operands", "operand_traffic of the assumptions", operands)


def carried(layer: Layer) -> Iterator[Charge]:
    """What layers hand on passes through DRAM wherever its kernels run.

    Yields
    ------
    Charge
        For every carried tensor; the option of its source decides the amount of each. ``dram_bytes``, B, is the tensor
        and ``buffer_bytes``, B, two tiles of it: both are paid once by the block of the source and once by that of each
        reader. ``reread_bytes``, B, is the tensor: the block of each kernel of :func:`moves_again` pays it once.
        Nothing is yielded if layers hand on for nothing (``layer_boundary: free``).
    """
    for fan in layer.carried:
        of = LayerKernel.all_of(layer)[fan.source]
        size = fan.whole * output_share(of)
        buffer = CROSSING_TILES * size * ops.tile_share(of.kernel, layer.tiles)
        for k in (fan.source, *(reader.kernel for reader in fan.readers)):
            yield Charge("dram_bytes", Has(k), (fan.source,), size)
            yield Charge("buffer_bytes", Has(k), (fan.source,), buffer)
        yield from _read_again(layer, fan, size)


CARRIED = Term("carried tensors", "DFModel, section V.A: a partition starts and ends in DRAM", carried)


def ends(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Inputs and outputs of the graph pass through DRAM wherever their kernels run.

    Yields
    ------
    (str, float array of shape (options,))
        ``dram_bytes``, B, for every end that the kernel reads or writes. ``reread_bytes``, B, as much for every input,
        where a kernel in parts reads inputs again. Nothing is yielded for a kernel without ends, as under
        ``layer_boundary: free``.
    """
    for operand, whole in of.ends:
        size_o = end_bytes(of, operand, whole)
        yield "dram_bytes", size_o
        if operand and reads_again(of.assumptions):
            yield "reread_bytes", size_o


ENDS = Term.of_kernel("ends", "DFModel, section V.A: a partition starts and ends in DRAM", ends)


def end_buffers(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Two tiles of what passes between DRAM and a kernel as an input or output of the graph wait in SRAM.

    Yields
    ------
    (str, float array of shape (options,))
        ``buffer_bytes``, B, for every end that the kernel reads or writes.
    """
    for operand, whole in of.ends:
        yield "buffer_bytes", CROSSING_TILES * end_bytes(of, operand, whole) * end_tile(of, operand)


def end_tile(of: LayerKernel, operand: int) -> float:
    """Share of an input or output of the graph in one tile, at most 1.

    Parameters
    ----------
    of
        The kernel that reads or writes it.
    operand : int
        0 for an output, 1 or 2 for an input that the kernel takes as that operand.
    """
    if operand:
        return ops.input_tile_share(of.kernel, of.tiles, operand)
    return ops.tile_share(of.kernel, of.tiles)


END_BUFFERS = Term.of_kernel("buffers of ends", "DFModel, section V.B: tiles are buffered in pairs", end_buffers)


def own_data(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """What a kernel moves because it says so: data of its own, lookups in tables, caches of sequences.

    Yields
    ------
    (str, float array of shape (options,))
        ``dram_bytes``, B, as the fastest memory counts them. Nothing for a kernel that states nothing of the sort.
    """
    kernel = of.kernel
    if kernel.states or kernel.dram_bytes or kernel.dram_bytes_per_chip:
        degree, counted = of.degree, of.counted
        yield "dram_bytes", by_option(of, lambda kernel, scheme: counted.own_traffic(kernel, scheme, degree))


OWN_DATA = Term.of_kernel("own data", "stated by the kernels of the graph", own_data)
