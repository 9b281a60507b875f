"""The least of every kernel of a layer under any of its options, from the rules: the bounding form of its figures.

Suffixes: k kernel, f figure, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.physics import ops
from dfopt.terms.charges import amounts_of
from dfopt.terms.incidence import Has
from dfopt.terms.kernel import LayerKernel, weight_bytes
from dfopt.terms.layer import Layer
from dfopt.terms.rules import HELD, OF_KERNELS
from dfopt.terms.rules.tensors import CARRIED
from dfopt.terms.rules.work import COMPUTE, TENSOR_TRAFFIC, at_one_rate, at_rate, flop, least_cycles

__all__ = ["FIGURES", "least_compute_k", "least_figures"]

MOVED: Final = ("dram_bytes", "sram_traffic_bytes")
FIGURES: Final = ("flop", "weight_bytes", "gradient_bytes", "gradient_bytes_copied", *MOVED, *HELD)
"""Names of the least figures of a kernel, of one chip in one evaluation.

``flop``: FLOP. ``weight_bytes``: bytes of its weight on a chip. ``gradient_bytes``, ``gradient_bytes_copied``: bytes of
its weight gradient as copies add it up: the second is the part that all chips of the second axis add up as well, the
first is the rest. ``dram_bytes``, ``sram_traffic_bytes``: bytes that pass through DRAM and SRAM in every partition that
has the kernel. All others are what it has chips hold (:data:`dfopt.terms.rules.HELD`).
"""
_BYTES: Final = tuple(term for term in OF_KERNELS if term is not COMPUTE)  # they are the same on many chips
_PLACES: Final = {name: place for place, name in enumerate(FIGURES)}


def least_compute_k(layer: Layer, flop_k: Floats) -> Floats:
    """Least seconds in which one chip computes each kernel in one evaluation, over all sharding schemes of the kernel.

    All compute tiles of the chip work on the kernel. Under ``compute_model: fixed`` the seconds are FLOP / (peak rate
    of the kernel's data type x ``compute_utilization``). Under ``efficiency`` they are FLOP of the largest shard /
    (peak rate x share), with the share in the first row of the chip's table that fits the shard. Under ``cycle`` every
    unit of every compute tile is busy (:func:`dfopt.terms.cycle.least_cycles_s`).

    Parameters
    ----------
    layer
        The layer: what one chip does for one microbatch. The result does not depend on its number of tiles.
    flop_k : float array, shape (kernels,), FLOP
        Least FLOP of each kernel on one chip, such as the column ``flop`` of :func:`least_figures`. Read under
        ``compute_model: fixed`` only.

    Returns
    -------
    float array, shape (kernels,), s
        A lower bound: no sharding scheme of the kernel, and no number of compute tiles, takes less. Kernels are in the
        order of the graph.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or a frequency under ``compute_model: cycle``, or its table under
        ``efficiency``.
    """
    if layer.assumptions.compute_model == "fixed":
        return at_one_rate(flop_k, np.array(layer.instance.setting.rate_k), layer.assumptions)
    kernels = LayerKernel.all_of(layer)
    if layer.by_cycles:
        return np.array([kernel.answer("least cycles", least_cycles) for kernel in kernels])
    return np.array([kernel.answer("least seconds", lambda of: float(at_rate(of).min())) for kernel in kernels])


def least_figures(layer: Layer) -> Floats:
    """Least FLOP, memory traffic and held bytes of every kernel on one chip in one evaluation (one microbatch).

    Each figure is the least over all sharding schemes of the kernel, whatever scheme the other figures take. Memory
    traffic also has parts that depend on schemes of other kernels: tensors that the layer hands to the next one, and in
    SRAM all tensors between kernels. Each such tensor adds its least over the schemes of the kernel that makes it.

    Parameters
    ----------
    layer
        The layer: what one chip does for one microbatch. The result does not depend on its number of tiles.

    Returns
    -------
    float array, shape (kernels, figures)
        Rows are kernels in the order of the graph. Columns are the figures of :data:`FIGURES`, in that order: ``flop``
        in FLOP, ``parameters`` and ``parameters_copied`` as numbers, all others in bytes. ``sram_traffic_bytes`` are 0
        if the SRAM of the chip states no bandwidth.
    """
    least_kf = np.array([kernel.answer("least", _of_kernel) for kernel in LayerKernel.all_of(layer)])
    for term in (CARRIED, TENSOR_TRAFFIC):
        for charge in term.of(layer):
            if charge.resource in MOVED:
                assert isinstance(charge.incidence, Has)
                least_kf[charge.incidence.kernel, _PLACES[charge.resource]] += float(charge.amount.min())
    return least_kf


def _of_kernel(of: LayerKernel) -> tuple[float, ...]:
    """What the rules of single kernels say of one."""
    found = amounts_of(of, _BYTES) | {"flop": flop(of), "weight_bytes": weight_bytes(of, ops.weight_elements)}
    none_o = np.zeros_like(found["flop"])
    return tuple(np.array([found.get(name, none_o) for name in FIGURES]).min(axis=1).tolist())
