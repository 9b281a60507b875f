"""What kernels compute, and what they read from SRAM and write there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.physics import ops
from dfopt.physics.states import own_traffic
from dfopt.setting.tables import compute_seconds
from dfopt.terms.charges import Charge, Term
from dfopt.terms.cycle import tiles_for
from dfopt.terms.incidence import Has
from dfopt.terms.layer import Layer
from dfopt.terms.rules.weights import accumulated, weight_bytes

__all__ = ["COMPUTE", "COMPUTE_TILES", "SRAM_TRAFFIC", "TENSOR_TRAFFIC"]


def compute(layer: Layer) -> Iterator[Charge]:
    """Seconds of the largest shard of every kernel at the rate that the chip sustains.

    That is one share of the peak rate of its type, or the chip's share for shards of its size.
    """
    if layer.assumptions.compute_model == "cycle":
        return
    kernels = [kernel for kernel, schemes in zip(layer.kernels, layer.schemes_k, strict=True) for _ in schemes]
    schemes = [scheme for schemes in layer.schemes_k for scheme in schemes]
    seconds = compute_seconds(layer.instance.setting, kernels, schemes, layer.degree)
    for k, of_kernel in enumerate(np.split(seconds, np.cumsum(list(map(len, layer.schemes_k)))[:-1])):
        yield Charge("compute_s", Has(k), (k,), of_kernel)


def compute_tiles(layer: Layer) -> Iterator[Charge]:
    """Fewest compute tiles with which every kernel takes no longer than a latency, under the cycle model.

    Kernels of a block share the tiles of the chip, and the block takes the least latency that all of them reach. Where
    a kernel never does, it needs more tiles than there are.
    """
    if layer.assumptions.compute_model != "cycle":
        return
    too_many = layer.instance.system.chip.tiles + 1
    for k, menus in enumerate(layer.menus_ko):
        needed = np.array([tiles_for(menu, layer.latency_l, too_many) for menu in menus], dtype=np.float64)
        yield Charge("compute_tiles", Has(k), (k,), needed)


COMPUTE_TILES = Term("compute tiles", "DFModel, section V.C: cycles of a systolic array", compute_tiles)
COMPUTE = Term("compute", "DFModel, section IV.D: FLOP over the rate of a chip", compute)


def accessed(layer: Layer) -> Iterator[Charge]:
    """Bytes of its own that every kernel reads from SRAM and writes there, whatever else its block holds."""
    passes = layer.assumptions.gradient_passes
    for k in range(len(layer.kernels)):
        own = layer.by_option(k, lambda kernel, scheme: own_traffic(kernel, scheme, layer.degree))
        read = weight_bytes(layer, k, ops.weights_read) + passes * accumulated(layer, k)
        yield Charge("sram_traffic_bytes", Has(k), (k,), own + read)
    for end in layer.ends:
        yield Charge("sram_traffic_bytes", Has(end.kernel), (end.kernel,), end.bytes_o)


def sram_traffic(layer: Layer) -> Iterator[Charge]:
    """Bytes of its own that every kernel reads from SRAM and writes there, where the SRAM has a bandwidth."""
    if layer.instance.system.chip.sram.bandwidth is not None:
        yield from accessed(layer)


SRAM_TRAFFIC = Term("SRAM traffic", "every operand of a kernel passes through SRAM once", sram_traffic)


def tensor_traffic(layer: Layer) -> Iterator[Charge]:
    """A tensor is written by its source and read by each kernel that takes it, on the chip or on its way to DRAM."""
    limited = layer.instance.system.chip.sram.bandwidth is not None
    for fan in layer.fan_outs if limited else ():
        size = fan.whole * layer.output_share_ko[fan.source]
        for k in (fan.source, *fan.kernels):
            yield Charge("sram_traffic_bytes", Has(k), (fan.source,), size)


TENSOR_TRAFFIC = Term("SRAM traffic of tensors", "every operand of a kernel passes through SRAM once", tensor_traffic)
