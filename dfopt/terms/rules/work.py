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


def compute(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Seconds in which one chip computes its shard of a kernel in one evaluation, at the rate that the chip sustains.

    They are FLOP of the largest shard over (peak rate x share), as in DFModel, section IV.D (:func:`at_rate`). Under
    ``compute_model: fixed`` the share is ``compute_utilization``. Under ``efficiency`` it is that of the chip's table
    for shards of that size.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``compute_s``, s. Nothing is yielded under ``compute_model: cycle``,
        where :func:`compute_tiles` counts instead.

    Raises
    ------
    AssertionError
        Under ``compute_model: efficiency``, if the chip has no table. Questions to the optimiser refuse that before.
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
    """
    if of.assumptions.compute_model != "cycle":
        yield "compute_s", at_rate(of)


def flop(of: LayerKernel) -> Floats:
    """FLOP of a kernel's largest shard in one evaluation, under each of its options.

    They are FLOP of the whole kernel times the largest share that a chip has, such as ``ceil(m / chips) / m`` of a
    split axis of length ``m``. Under ``operand_traffic`` a kernel that adds up partial sums has all FLOP even if its
    tokens are split.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Returns
    -------
    float array, shape (options,), FLOP
        Work of the most loaded chip.
    """
    degree, sum_kernels, chosen = of.degree, of.sum_kernels, of.assumptions
    return by_option(of, lambda kernel, scheme: shard_flop(kernel, scheme, degree, sum_kernels, chosen))


def at_one_rate(flop_k: Floats, rate_k: Floats | float, assumptions: Assumptions) -> Floats:
    """Seconds to compute some FLOP if all kernels sustain one share of their type's peak rate: FLOP / (rate x share).

    The share is ``compute_utilization``, or 1 if that is None. Resolved assumptions state it under ``compute_model:
    fixed``.

    Parameters
    ----------
    flop_k : float array
        FLOP, of any shape: for example of all kernels, or of all options of one kernel.
    rate_k : float or float array, FLOP/s
        Peak rate in the type that is computed in: one for all FLOP, or an array of the shape of ``flop_k``.
    assumptions
        Resolved: no ``auto`` is left.

    Returns
    -------
    float array, s
        Seconds in the shape of ``flop_k``.
    """
    return flop_k / (rate_k * (assumptions.compute_utilization or 1.0))


def at_rate(of: LayerKernel) -> Floats:
    """Seconds of a kernel's largest shard in one evaluation on the whole chip, at the rate that the chip sustains.

    They are FLOP of the shard over (peak rate in the kernel's type x share). Under ``compute_model: fixed`` the share
    is ``compute_utilization``. Under ``efficiency`` it is the share in the first row of the chip's table that fits the
    shard. Under ``cycle`` no share is known. Then it is 1, every unit of every compute tile busy, unless
    ``compute_utilization`` is stated all the same.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Returns
    -------
    float array, shape (options,), s
        One entry for each option.

    Raises
    ------
    AssertionError
        Under ``compute_model: efficiency``, if the chip has no table. Questions to the optimiser refuse that before.
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
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
    """Lower bound on the seconds of a kernel in one evaluation by the cycle model, for all options and all tiles.

    It is the time of the fastest option (sharding scheme) on the whole chip, if no unit of any compute tile is wasted:
    multiply-adds of the largest shard over (lanes x stages x compute tiles x frequency) of the chip. An elementwise
    kernel has elements in place of multiply-adds, and uses no stages. What a mask leaves out does not count. If the
    kernel's data type has another peak rate than ``chip.peak_flops``, the time is multiplied by ``peak_flops`` / rate.

    Parameters
    ----------
    of
        The kernel. Its chip has lanes, stages and a frequency.

    Returns
    -------
    float, s
        Seconds on one chip.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or frequency. Questions to the optimiser refuse that before.
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of the kernel.
    """
    degree, chip, rules = of.degree, of.chip, of.assumptions.sharding_rules
    least_s = by_option(of, lambda kernel, z: least_cycles_s(kernel, z, degree, chip, rules)).min()
    return float(least_s) * (chip.peak_flops / of.rate)


def compute_tiles(layer: Layer) -> Iterator[Charge]:
    """Number of the chip's compute tiles that a kernel needs to reach each of several latencies, in the cycle model.

    Kernels of a block share the compute tiles of the chip. The block takes the least latency for which the tiles of all
    its kernels together are no more than the chip has (DFModel, section V.C).

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``compute_tiles``, no unit, for every kernel, paid once by its block and decided by its option. The
        amount has the shape (options, levels). A level is one of the latencies of
        :attr:`~dfopt.terms.layer.Layer.latency_l`, in s of one evaluation. The number is the fewest compute tiles with
        which the kernel takes no longer. Where the kernel is never that fast, it is one more than the chip has compute
        tiles. Nothing is yielded unless ``compute_model: cycle`` is assumed.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or frequency. Questions to the optimiser refuse that before.
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
    """
    if not layer.by_cycles:
        return
    too_many = layer.instance.system.chip.tiles + 1
    for k, menus in enumerate(layer.menus_ko):
        needed = np.array([tiles_for(menu, layer.latency_l, too_many) for menu in menus], dtype=np.float64)
        yield Charge("compute_tiles", Has(k), (k,), needed)


COMPUTE_TILES = Term("compute tiles", "DFModel, section V.C: cycles of a systolic array", compute_tiles, by_tiles=True)
COMPUTE = Term.of_kernel("compute", "DFModel, section IV.D: FLOP over the rate of a chip", compute)


def accessed(of: LayerKernel) -> Floats:
    """Bytes that a kernel reads from SRAM and writes there in one evaluation, without tensors that kernels pass on.

    They are its own data (tables and caches that the graph states), the weights that it reads, its weight gradient, and
    inputs and outputs of the graph. Tensors between kernels, and those that the layer carries to the next one, are not
    among them: :func:`tensor_traffic` counts these. A gradient counts twice, as it is read and written, or once under
    ``gradient_traffic: written``.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Returns
    -------
    float array, shape (options,), B
        Bytes on one chip, the same in every block. A byte of a slower memory counts as one byte.
    """
    own_o = by_option(of, lambda kernel, scheme: own_traffic(kernel, scheme, of.degree))
    own_o += weight_bytes(of, ops.weights_read) + of.assumptions.gradient_passes * accumulated(of)
    for operand, tensor_bytes in of.ends:
        own_o += end_bytes(of, operand, tensor_bytes)
    return own_o


def sram_traffic(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """SRAM bytes that a kernel reads and writes in one evaluation, without tensors that kernels pass on to each other.

    Every operand of a kernel passes through SRAM once.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``sram_traffic_bytes``, B: weights, weight gradient, own data, inputs
        and outputs of the graph (:func:`accessed`). Nothing is yielded if the SRAM of the chip has no bandwidth: it
        then takes no time.
    """
    if of.limits_sram:
        yield "sram_traffic_bytes", accessed(of)


SRAM_TRAFFIC = Term.of_kernel("SRAM traffic", "every operand of a kernel passes through SRAM once", sram_traffic)


def tensor_traffic(layer: Layer) -> Iterator[Charge]:
    """SRAM bytes that kernels write and read of the tensors that they pass on to each other.

    The kernel that makes a tensor writes it to SRAM, and each kernel that takes it reads it there. That holds wherever
    the tensor goes: it stays on the chip, passes through DRAM, or is carried to the next layer.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``sram_traffic_bytes``, in B on one chip in one evaluation: all that the chip has of the tensor,
        which the option of its source decides. For every entry of :attr:`~dfopt.terms.layer.Layer.fan_outs` (an output
        and its readers), there is one charge that the block of its source pays once, and one for each kernel that reads
        it, which the block of that reader pays once. Nothing is yielded if the SRAM of the chip has no bandwidth.
    """
    limited = layer.instance.system.chip.sram.bandwidth is not None
    for fan in layer.fan_outs if limited else ():
        size = fan.bytes * layer.output_share_ko[fan.source]
        for k in (fan.source, *fan.kernels):
            yield Charge("sram_traffic_bytes", Has(k), (fan.source,), size)


TENSOR_TRAFFIC = Term("SRAM traffic of tensors", "every operand of a kernel passes through SRAM once", tensor_traffic)
