"""A lower bound on the step time of a graph that holds under every plan: its work, spread evenly over all chips."""

from __future__ import annotations

import math

import numpy as np

from dfopt.documents.graph import Kernel
from dfopt.physics import ops
from dfopt.physics.dtypes import rate, slowdown
from dfopt.physics.efficiency import most_sustained
from dfopt.physics.pipeline import partition_time
from dfopt.physics.states import cache_traffic
from dfopt.setting.instance import Setting
from dfopt.terms.cycle import least_cycles_s


def least_step(setting: Setting) -> float:
    """Seconds per step that no mapping of a graph onto a machine beats, under any plan: a roofline bound.

    It is the roofline of the machine (Williams et al., CACM 2009) with all chips as one: evaluations per step, times
    the sum over layers of the overlapped compute and memory time of their kernels, over the number of chips. However a
    plan shares out kernels, sequences, experts, layers and batches, all chips together compute the FLOP of every
    kernel. For every microbatch some chip reads each weight that a token needs, and all cached data (KV caches and
    others) that kernels read or write. The slowest chip takes at least the average of all chips. Left out is all that
    plans differ in: communication, copies of weights, the fill of a pipeline, gradients. Bounds of a plan
    (:class:`dfopt.terms.bounds.PlanBounds`) are never lower, but need the plan.

    Parameters
    ----------
    setting : Setting
        Graph, machine and assumptions, which have no ``auto`` left.

    Returns
    -------
    float
        Seconds per step, for all microbatches.

    Raises
    ------
    ValueError
        If the assumption ``overlap`` is ``auto``.
    SystemSpecError
        If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
    AssertionError
        If the chip lacks lanes, stages or frequency under ``compute_model: cycle``, or a table under ``efficiency``.

    Examples
    --------
    >>> from dfopt.documents.assumptions import Assumptions
    >>> from dfopt.documents.graph import Graph
    >>> from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e12))
    >>> dims = (NetworkDim(name="x", topology="switch", size=4, link_bandwidth=1e11),)
    >>> machine = System(name="s", chip=chip, network=dims)
    >>> graph = Graph(name="g", batch=8, kernels=(Kernel(name="a", op="gemm", m=1000, k=1000, n=1000),))
    >>> f"{least_step(Setting(graph, machine, Assumptions(compute_utilization=0.5, overlap='perfect'))):.3g}"
    '0.008'
    """
    graph, system, assumptions = setting.graph, setting.system, setting.assumptions
    bandwidth = most_sustained(system.chip, assumptions)
    evaluations = graph.batch / graph.microbatch
    seconds = []
    for kernels in graph.kernels_by_kind:
        compute = math.fsum(_compute_s(setting, kernel) for kernel in kernels)
        memory = math.fsum(_traffic(setting, kernel) for kernel in kernels) / bandwidth
        times = graph.times_of(kernels[0]) if kernels else 0
        seconds.append(times * partition_time(compute, memory, 0.0, assumptions.overlap))
    return math.fsum(seconds) * evaluations / system.chips


def _compute_s(setting: Setting, kernel: Kernel) -> float:
    """Seconds of a whole kernel on one chip, at the largest share of its peak that any part of it may sustain."""
    graph, chip, assumptions = setting.graph, setting.system.chip, setting.assumptions
    if assumptions.compute_model == "cycle":
        least_s = least_cycles_s(kernel, "none", 1, setting.system.chip, assumptions.sharding_rules)
        return least_s * slowdown(graph, kernel, chip)
    share = assumptions.compute_utilization or 1.0
    if assumptions.compute_model == "efficiency":
        assert chip.efficiency is not None  # optimize() refuses the efficiency model without it
        unit = "vector" if kernel.op == "elementwise" else "matrix"
        share = max(row.share for row in chip.efficiency if row.unit == unit)
    return ops.flop(kernel) / (rate(graph, kernel, chip) * share)


def _traffic(setting: Setting, kernel: Kernel) -> float:
    """Bytes of weights and caches that some chip moves in an evaluation of a kernel."""
    read = 0.0
    if setting.assumptions.weights_from_dram:
        read = ops.weights_read(kernel) * setting.graph.words.of_weight(kernel)
    return float(np.sum([read, *cache_traffic(kernel, "none", 1)]))
