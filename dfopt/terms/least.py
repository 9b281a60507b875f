"""The least of every kernel of a layer under any of its options, from the rules: the bounding form of its figures.

Suffixes: k kernel, f figure, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.physics.efficiency import most_sustained
from dfopt.terms.charges import amounts_of
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, weight_held
from dfopt.terms.layer import Layer
from dfopt.terms.rules import HELD, OF_KERNELS
from dfopt.terms.rules.tensors import CARRIED
from dfopt.terms.rules.work import COMPUTE, TENSOR_TRAFFIC, at_one_rate, at_rate, flop, least_cycles

_MOVED: Final = ("dram_bytes", "sram_traffic_bytes")
_FIGURES: Final = ("flop", "weight_bytes", "gradient_bytes", "gradient_bytes_copied", *_MOVED, *HELD)
"""Least figures of a kernel, of one chip in one evaluation: FLOP, bytes of its weight, bytes of its weight gradient as
copies add it up without and with chips of the second axis, bytes that pass through DRAM and SRAM in every partition
that has the kernel, and what it has chips hold (:data:`dfopt.terms.rules.HELD`)."""
_BYTES: Final = tuple(term for term in OF_KERNELS if term is not COMPUTE)  # they are the same on many chips
_PLACES: Final = {name: place for place, name in enumerate(_FIGURES)}


@dataclass(frozen=True)
class Least:
    """Lower bounds on seconds and bytes of kernels on one chip for one microbatch, under every sharding scheme.

    The degree of tensor parallelism is given. Each figure of each kernel is its least over the legal schemes; two
    figures may be least under different schemes. Axis k has the kernels of the graph.

    Attributes
    ----------
    compute_k : s, shape (kernels,)
        Time in which the whole chip computes each kernel.
    memory_k, sram_k : s, shape (kernels,)
        Time of the traffic of the off-chip memories, and of SRAM. A byte in a slower off-chip memory takes the longer
        time of that memory. `sram_k` is 0 where SRAM has no bandwidth.
    gradient_k : B, shape (kernels,)
        Bytes of the weight gradient of each kernel on one chip, in the type in which data-parallel copies add it up.
    weight_k : B, shape (kernels,)
        Bytes of the weights of each kernel on one chip.
    held_kh : shape (kernels, HELD)
        Amounts that each kernel stores on a chip, in the order of :data:`dfopt.terms.rules.HELD`.
    """

    compute_k: Floats
    memory_k: Floats
    sram_k: Floats
    gradient_k: Floats
    weight_k: Floats
    held_kh: Floats


def least_of(layer: Layer) -> Least:
    """Least seconds, memory traffic and held bytes of every kernel on one chip in one evaluation (one microbatch).

    Memory traffic also has parts that depend on schemes of other kernels: tensors that the layer hands to the next one,
    and in SRAM all tensors between kernels. Each such tensor adds its least over the schemes of the kernel that makes
    it.

    Parameters
    ----------
    layer
        The layer: what one chip does for one microbatch. The result does not depend on its number of tiles.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or a frequency under ``compute_model: cycle``, or its table under
        ``efficiency``.
    """
    least_kf = np.array([kernel.answer("least", _of_kernel) for kernel in LayerKernel.all_of(layer)])
    for term in (CARRIED, TENSOR_TRAFFIC):
        for charge in term.charges(layer):
            if charge.resource in _MOVED:
                assert isinstance(charge.incidence, Has)
                least_kf[charge.incidence.kernel, _PLACES[charge.resource]] += float(charge.amount.min())
    flop_k, weight_k, gradient_k, copied_k, moved_k, accessed_k = least_kf[:, : -len(HELD)].T
    chip = layer.instance.system.chip
    return Least(
        compute_k=_least_compute_k(layer, flop_k),
        memory_k=moved_k / most_sustained(chip, layer.assumptions),
        sram_k=accessed_k / (chip.sram.bandwidth or np.inf),
        gradient_k=gradient_k + copied_k,
        weight_k=weight_k,
        held_kh=least_kf[:, -len(HELD) :],
    )


def _of_kernel(of: LayerKernel) -> tuple[float, ...]:
    """What the rules of single kernels say of one."""
    amounts = amounts_of(of, _BYTES) | {"flop": flop(of), "weight_bytes": weight_held(of)}
    none_o = np.zeros_like(amounts["flop"])
    return tuple(np.array([amounts.get(name, none_o) for name in _FIGURES]).min(axis=1).tolist())


def _least_compute_k(layer: Layer, flop_k: Floats) -> Floats:
    """Least seconds in which all compute tiles of one chip compute each kernel, over all its sharding schemes.

    Under ``compute_model: fixed`` the seconds are least FLOP / (peak rate of the kernel's data type x
    ``compute_utilization``). Under ``efficiency`` they are FLOP of the largest shard / (peak rate x share), with the
    share in the first row of the chip's table that fits the shard. Under ``cycle`` every unit of every compute tile is
    busy (:func:`dfopt.terms.cycle.least_cycles_s`).
    """
    if layer.assumptions.compute_model == "fixed":
        return at_one_rate(flop_k, np.array(layer.instance.setting.rate_k), layer.assumptions)
    kernels = LayerKernel.all_of(layer)
    if layer.by_cycles:
        return np.array([kernel.answer("least cycles", least_cycles) for kernel in kernels])
    return np.array([kernel.answer("least seconds", lambda of: float(at_rate(of).min())) for kernel in kernels])
