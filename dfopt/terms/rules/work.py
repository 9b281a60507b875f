"""What kernels compute, and what they read from SRAM and write there.

A rule of single kernels yields pairs of the name of a resource and a float array, shape (options,): what the block of
the kernel pays once, under each option of the kernel. All other rules yield charges. Seconds and bytes are those of one
chip in one evaluation.

Suffixes: k kernel, o option of a kernel (a sharding scheme).
"""

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

    Yields
    ------
    (str, float array of shape (options,))
        ``compute_s``, s. Nothing is yielded under the cycle model, see :func:`compute_tiles`.
    """
    if of.assumptions.compute_model != "cycle":
        yield "compute_s", at_rate(of)


def flop(of: LayerKernel) -> Floats:
    """FLOP of a kernel's largest shard under each of its options: float array, shape (options,)."""
    degree, sums, chosen = of.degree, of.sums, of.assumptions
    return by_option(of, lambda kernel, scheme: shard_flop(kernel, scheme, degree, sums, chosen))


def at_one_rate(flop_k: Floats, rate_k: Floats | float, assumptions: Assumptions) -> Floats:
    """Seconds of some FLOP where all kernels sustain one share of their type's peak rate.

    That share is ``compute_utilization``, or 1 if it is not stated. Resolved assumptions state it under
    ``compute_model: fixed``.

    Parameters
    ----------
    flop_k : float array
        FLOP, of any shape: such as of kernels, or of the options of one.
    rate_k : float or float array, FLOP/s
        Peak rate in the type that each computes in: one for all, or of the shape of ``flop_k``.
    assumptions
        Resolved.

    Returns
    -------
    float array, s
        Of the shape of ``flop_k``.
    """
    return flop_k / (rate_k * (assumptions.compute_utilization or 1.0))


def at_rate(of: LayerKernel) -> Floats:
    """Seconds of a kernel's largest shard on the whole chip, at the share that it sustains of its type's peak.

    Under the cycle model no share is known: unless ``compute_utilization`` is stated all the same, it is the time with
    every unit of every compute tile busy.

    Returns
    -------
    float array, shape (options,), s
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
    """Seconds of an evaluation of a kernel under the cycle model that no option beats, in any number of tiles."""
    degree, chip, rules = of.degree, of.chip, of.assumptions.sharding_rules
    least_s = by_option(of, lambda kernel, z: least_cycles_s(kernel, z, degree, chip, rules)).min()
    return float(least_s) * (chip.peak_flops / of.rate)


def compute_tiles(layer: Layer) -> Iterator[Charge]:
    """Fewest compute tiles with which every kernel takes no longer than a latency, under the cycle model.

    Kernels of a block share the tiles of the chip, and the block takes the least latency that all of them reach. Where
    a kernel never does, it needs more tiles than there are.

    Yields
    ------
    Charge
        Of ``compute_tiles``, no unit, for every kernel, paid once by its block and decided by its option. The amount
        has the shape (options, levels): levels are the latencies of :attr:`~dfopt.terms.layer.Layer.latency_l`. Nothing
        is yielded under other compute models.
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

    These are data of its own, weights, gradients, and inputs and outputs of the graph. Tensors between kernels are not
    among them, nor are those that the next layer reads.

    Returns
    -------
    float array, shape (options,), B
        Each byte counts once, in whatever memory it lies.
    """
    own_o = by_option(of, lambda kernel, scheme: own_traffic(kernel, scheme, of.degree))
    own_o += weight_bytes(of, ops.weights_read) + of.assumptions.gradient_passes * accumulated(of)
    for operand, whole in of.ends:
        own_o += end_bytes(of, operand, whole)
    return own_o


def sram_traffic(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Bytes of its own that every kernel reads from SRAM and writes there.

    Yields
    ------
    (str, float array of shape (options,))
        ``sram_traffic_bytes``, B, as :func:`accessed` has them. Nothing is yielded if the SRAM has no bandwidth.
    """
    if of.limits_sram:
        yield "sram_traffic_bytes", accessed(of)


SRAM_TRAFFIC = Term.of_kernel("SRAM traffic", "every operand of a kernel passes through SRAM once", sram_traffic)


def tensor_traffic(layer: Layer) -> Iterator[Charge]:
    """A tensor is written by its source and read by each kernel that takes it, on the chip or on its way to DRAM.

    Yields
    ------
    Charge
        Of ``sram_traffic_bytes``, B, for every output that kernels pass on, one for its source and one for each kernel
        that reads it. The block of that kernel pays it once, and the option of the source decides it. Nothing is
        yielded if the SRAM has no bandwidth.
    """
    limited = layer.instance.system.chip.sram.bandwidth is not None
    for fan in layer.fan_outs if limited else ():
        size = fan.whole * layer.output_share_ko[fan.source]
        for k in (fan.source, *fan.kernels):
            yield Charge("sram_traffic_bytes", Has(k), (fan.source,), size)


TENSOR_TRAFFIC = Term("SRAM traffic of tensors", "every operand of a kernel passes through SRAM once", tensor_traffic)
