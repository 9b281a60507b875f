"""What kernels compute, and what they read from SRAM and write there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.physics import ops
from dfopt.physics.efficiency import efficiency_share, row_op
from dfopt.physics.operands import shard_flop
from dfopt.physics.states import own_traffic
from dfopt.terms.charges import Charge, Term
from dfopt.terms.cycle import least_cycles_s, tiles_for
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, by_option, end_bytes, schemes, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules.weights import accumulated

__all__ = [
    "COMPUTE",
    "COMPUTE_TILES",
    "SRAM_TRAFFIC",
    "TENSOR_TRAFFIC",
    "accessed",
    "at_one_rate",
    "at_rate",
    "flop",
    "least_cycles",
]


def compute(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Seconds of the largest shard of every kernel at the rate that the chip sustains.

    That is one share of the peak rate of its type, or the chip's share for shards of its size.
    """
    if of.assumptions.compute_model != "cycle":
        yield "compute_s", at_rate(of)


def flop(of: LayerKernel) -> Floats:
    """FLOP of a kernel's largest shard under each of its options."""
    degree, sums, chosen = of.degree, of.sums, of.assumptions
    return by_option(of, lambda kernel, scheme: shard_flop(kernel, scheme, degree, sums, chosen))


def at_one_rate(flop_k: Floats, rate_k: Floats | float, assumptions: Assumptions) -> Floats:
    """Seconds of some FLOP where all kernels sustain one share of their type's peak rate; under others with no loss."""
    return flop_k / (rate_k * (assumptions.compute_utilization or 1.0))


def at_rate(of: LayerKernel) -> Floats:
    """Seconds of a kernel's largest shard on the whole chip, at the share that it sustains of its type's peak.

    Under the cycle model there is no such share: that is the time with every unit of every tile busy.
    """
    flop_o, chosen = flop(of), of.assumptions
    if chosen.compute_model != "efficiency":
        return at_one_rate(flop_o, of.rate, chosen)
    rows, degree, rules = of.chip.efficiency, of.degree, chosen.sharding_rules
    assert rows is not None  # optimize() refuses the efficiency model without it
    extents = [ops.shard_extents(of.kernel, scheme, degree, rules) for scheme in schemes(of)]
    shares = efficiency_share(rows, of.kernel.op == "elementwise", flop_o, extents, row_op(of.kernel, chosen))
    return flop_o / (of.rate * shares)


def least_cycles(of: LayerKernel) -> float:
    """Seconds of a kernel under the cycle model that none of its options beats, in any number of tiles."""
    degree, chip, rules = of.degree, of.chip, of.assumptions.sharding_rules
    least_s = by_option(of, lambda kernel, z: least_cycles_s(kernel, z, degree, chip, rules)).min()
    return float(least_s) * (chip.peak_flops / of.rate)


def compute_tiles(layer: Layer) -> Iterator[Charge]:
    """Fewest compute tiles with which every kernel takes no longer than a latency, under the cycle model.

    Kernels of a block share the tiles of the chip, and the block takes the least latency that all of them reach. Where
    a kernel never does, it needs more tiles than there are.
    """
    if not layer.by_cycles:
        return
    too_many = layer.instance.system.chip.tiles + 1
    for k, menus in enumerate(layer.menus_ko):
        needed = np.array([tiles_for(menu, layer.latency_l, too_many) for menu in menus], dtype=np.float64)
        yield Charge("compute_tiles", Has(k), (k,), needed)


COMPUTE_TILES = Term("compute tiles", "DFModel, section V.C: cycles of a systolic array", compute_tiles)
COMPUTE = Term.of_kernel("compute", "DFModel, section IV.D: FLOP over the rate of a chip", compute)


def accessed(of: LayerKernel) -> Floats:
    """Bytes of its own that a kernel reads from SRAM and writes there, whatever else its block holds.

    Data of its own, weights, gradients, inputs and outputs of the graph; shape (options,).
    """
    own_o = by_option(of, lambda kernel, scheme: own_traffic(kernel, scheme, of.degree))
    own_o += weight_bytes(of, ops.weights_read) + of.assumptions.gradient_passes * accumulated(of)
    for operand, whole in of.ends:
        own_o += end_bytes(of, operand, whole)
    return own_o


def sram_traffic(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes of its own that every kernel reads from SRAM and writes there, where the SRAM has a bandwidth."""
    if of.limits_sram:
        yield "sram_traffic_bytes", accessed(of)


SRAM_TRAFFIC = Term.of_kernel("SRAM traffic", "every operand of a kernel passes through SRAM once", sram_traffic)


def tensor_traffic(layer: Layer) -> Iterator[Charge]:
    """A tensor is written by its source and read by each kernel that takes it, on the chip or on its way to DRAM."""
    limited = layer.instance.system.chip.sram.bandwidth is not None
    for fan in layer.fan_outs if limited else ():
        size = fan.whole * layer.output_share_ko[fan.source]
        for k in (fan.source, *fan.kernels):
            yield Charge("sram_traffic_bytes", Has(k), (fan.source,), size)


TENSOR_TRAFFIC = Term("SRAM traffic of tensors", "every operand of a kernel passes through SRAM once", tensor_traffic)
