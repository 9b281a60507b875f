"""Tensors: what passes through DRAM and what waits in SRAM, between kernels and at the ends of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics.operands import read_share, work_whole, written_share
from dfopt.terms.charges import Charge, Term
from dfopt.terms.chip import CROSSING_TILES
from dfopt.terms.incidence import Crosses, Has, Inside
from dfopt.terms.layer import FanOut, Layer
from dfopt.terms.rules.weights import stays

__all__ = ["CARRIED", "ENDS", "OPERANDS", "OWN_DATA", "TENSORS"]


def tensors(layer: Layer) -> Iterator[Charge]:
    """A tensor between blocks passes through DRAM, two tiles of it buffered at each end; inside one it waits in SRAM.

    A kernel alone in its block may run in parts of its weight. Then its outputs are cut too, and it reads its inputs
    again for each further part.
    """
    moves = layer.assumptions.operand_traffic is None
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
        if stays(layer, fan.source):
            yield Charge("cut_buffer_bytes", Has(fan.source), scope, CROSSING_TILES * tile)
        yield from _read_again(layer, fan, size)


TENSORS = Term("tensors", "DFModel, section V.A and V.B: matrices B, D, L and H", tensors)


def _read_again(layer: Layer, fan: FanOut, size: Floats) -> Iterator[Charge]:
    """What a kernel in parts moves once more of a tensor for each part after the first."""
    for k in moves_again(layer, fan):
        yield Charge("reread_bytes", Has(k), (fan.source,), size)


def moves_again(layer: Layer, fan: FanOut) -> tuple[int, ...]:
    """Kernels that move a tensor once more for each part of their weight after the first."""
    if layer.assumptions.weight_tiling not in ("reread", "reread_all"):
        return ()
    written = (fan.source,) if layer.assumptions.weight_tiling == "reread_all" and not fan.carried else ()
    return (*fan.kernels, *written)


def operands(layer: Layer) -> Iterator[Charge]:
    """What kernels move of the tensors between them where each runs alone: as it is written, and as each takes it."""
    for fan in () if layer.assumptions.operand_traffic is None else layer.fan_outs:
        if not fan.carried:
            yield from _of_its_kernels(layer, fan)


def _of_its_kernels(layer: Layer, fan: FanOut) -> Iterator[Charge]:
    chosen, sums = layer.assumptions, layer.instance.setting.sums
    tiled = chosen.operand_traffic == "own_tiled"

    def moved(k: int, share_o: Floats) -> Charge:
        whole = layer.by_option(k, lambda kernel, scheme: float(work_whole(kernel, scheme, sums, chosen)))
        return Charge("dram_bytes", Has(k), (k,), fan.whole * np.where(whole > 0, 1.0, share_o))

    def written(kernel: Kernel, scheme: Sharding) -> float:
        return written_share(kernel, scheme, layer.degree, layer.rules, tiled)

    def read(operand: int) -> Callable[[Kernel, Sharding], float]:
        return lambda one, z: read_share(one, operand, z, layer.degree, layer.rules, fan.elements, tiled)

    yield moved(fan.source, layer.by_option(fan.source, written))
    for k in fan.kernels:
        operands = {reader.operand for reader in fan.readers if reader.kernel == k}
        yield moved(k, np.max([layer.by_option(k, read(operand)) for operand in operands], axis=0))


OPERANDS = Term("operands", "operand_traffic of the assumptions", operands)


def carried(layer: Layer) -> Iterator[Charge]:
    """What layers hand on passes through DRAM wherever its kernels run."""
    for fan in layer.fan_outs:
        if not fan.carried:
            continue
        size = fan.whole * layer.output_share_ko[fan.source]
        buffer = CROSSING_TILES * size * layer.output_tile_k[fan.source]
        for k in (fan.source, *(reader.kernel for reader in fan.readers)):
            yield Charge("dram_bytes", Has(k), (fan.source,), size)
            yield Charge("buffer_bytes", Has(k), (fan.source,), buffer)
        yield from _read_again(layer, fan, size)


CARRIED = Term("carried tensors", "DFModel, section V.A: a partition starts and ends in DRAM", carried)


def ends(layer: Layer) -> Iterator[Charge]:
    """Inputs and outputs of the graph pass through DRAM wherever their kernels run."""
    for end in layer.ends:
        yield Charge("dram_bytes", Has(end.kernel), (end.kernel,), end.bytes_o)
        yield Charge("buffer_bytes", Has(end.kernel), (end.kernel,), CROSSING_TILES * end.bytes_o * end.tile)
        if end.operand and layer.assumptions.weight_tiling in ("reread", "reread_all"):
            yield Charge("reread_bytes", Has(end.kernel), (end.kernel,), end.bytes_o)


ENDS = Term("ends", "DFModel, section V.A: a partition starts and ends in DRAM", ends)


def own_data(layer: Layer) -> Iterator[Charge]:
    """What kernels move because they say so: data of their own, lookups in tables, caches of sequences."""
    for k in range(len(layer.kernels)):
        moved = layer.by_option(k, lambda one, scheme: layer.instance.counted.own_traffic(one, scheme, layer.degree))
        yield Charge("dram_bytes", Has(k), (k,), moved)


OWN_DATA = Term("own data", "stated by the kernels of the graph", own_data)
