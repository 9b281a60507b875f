"""What the chips that share kernels communicate: the schemes' own collectives, and conversions of layouts.

A conversion is charged where its tensor is produced, once for all readers. With sequence parallelism a saved tensor
stays as it lies, and every partition of the backward pass that reads it pays a *toll* to gather it again (Korthikanti
et al., "Reducing activation recomputation in large transformer models", 2022, section 4.2.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.physics import ops
from dfopt.terms.by_kernel import fanout_groups

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LAYOUTS: tuple[ops.Layout, ...] = ("RR", "SR", "RS")
"""Layouts of a matrix over the chips that share kernels: whole, split by features, split by tokens."""


def gathered_late(graph: Graph, assumptions: Assumptions) -> Bools:
    """Tensors that are converted for the backward pass by themselves: sequence parallelism saves them as they lie."""
    way, passes = assumptions.backward_gathers, {kernel.name: kernel.pass_ for kernel in graph.kernels}
    if not assumptions.splits_tokens or way == "kept":
        return np.zeros(len(graph.tensors), dtype=bool)
    found = [passes[t.src] == "forward" != passes[t.dst] for t in graph.tensors]
    if way == "kept_calculon":  # where what reads them in the forward pass feeds what is computed again
        again = {t.src for t in graph.tensors if passes[t.dst] == "recompute"}
        groups = fanout_groups(graph, assumptions).tolist()
        feeding = {
            g for g, t in zip(groups, graph.tensors, strict=True) if t.dst in again and passes[t.dst] == "forward"
        }
        found = [late and group in feeding for late, group in zip(found, groups, strict=True)]
    return np.array(found, dtype=bool)


def readers_pay(assumptions: Assumptions) -> bool:
    """Whether every partition pays that reads what is gathered late; else it is one conversion, of its source."""
    return assumptions.backward_gathers is None


def overhead_of_kernels(assumptions: Assumptions) -> float:
    """Seconds of starting a partition, where each kernel has one of its own; elsewhere a toll of all kernels."""
    return assumptions.kernel_overhead or 0.0 if assumptions.execution == "kernel_by_kernel" else 0.0
