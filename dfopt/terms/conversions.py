"""When layouts of tensors are converted between the tensor-parallel chips, and who pays for it.

A conversion is charged where its tensor is produced, once for all readers. With sequence parallelism a saved tensor
stays as it lies, and every partition of the backward pass that reads it pays a *toll* to gather it again (Korthikanti
et al., "Reducing activation recomputation in large transformer models", 2022, section 4.2.2).

The axis of tensors is ``graph.tensors``.
"""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Bools
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.physics import ops
from dfopt.terms.by_kernel import fanout_groups

LAYOUTS: tuple[ops.Layout, ...] = ("RR", "SR", "RS")
"""Layouts of a matrix over the tensor-parallel chips: whole, split by features (or heads), split by tokens.

A layout has its place here as its number. In a set of layouts bit l stands for layout l.
"""


def gathered_late(graph: Graph, assumptions: Assumptions) -> Bools:
    """Whether each tensor needs a conversion of its layout for a later pass, apart from that for the forward pass.

    A layout says how the tensor-parallel chips share a tensor (:data:`LAYOUTS`). Sequence parallelism saves a tensor in
    the layout that its source leaves. So a tensor from a forward kernel to a kernel of another pass is converted again
    for the latter (Korthikanti et al., 2022, section 4.2.2). With ``backward_gathers: kept_calculon`` there is one more
    condition: the same output goes to a forward kernel, too, and recomputed kernels read what that forward kernel
    makes. With ``backward_gathers: kept``, or without sequence parallelism, there are no such tensors.

    Parameters
    ----------
    graph
        The workload.
    assumptions
        Only ``sequence_parallelism``, ``backward_gathers`` and ``fanout`` are read.

    Returns
    -------
    bool array, shape (tensors,)
        For every tensor of ``graph.tensors``, which has one reader: true if the reader needs such a conversion. A
        conversion between equal layouts takes no collective.
    """
    way, passes = assumptions.backward_gathers, {kernel.name: kernel.pass_ for kernel in graph.kernels}
    if not assumptions.splits_tokens or way == "kept":
        return np.zeros(len(graph.tensors), dtype=bool)
    late_t = [passes[t.src] == "forward" != passes[t.dst] for t in graph.tensors]
    if way == "kept_calculon":  # where what reads them in the forward pass feeds what is computed again
        again = {t.src for t in graph.tensors if passes[t.dst] == "recompute"}
        groups = fanout_groups(graph, assumptions).tolist()
        feeding = {
            g for g, t in zip(groups, graph.tensors, strict=True) if t.dst in again and passes[t.dst] == "forward"
        }
        late_t = [late and group in feeding for late, group in zip(late_t, groups, strict=True)]
    return np.array(late_t, dtype=bool)


def overhead_of_kernels(assumptions: Assumptions) -> float:
    """Seconds that each kernel takes to start in one evaluation (one microbatch), as a part of its communication.

    Under ``execution: kernel_by_kernel``, where each kernel has an on-chip partition of its own, they are the
    assumption ``kernel_overhead``, or 0 if that is None. Under any other execution they are 0: there a partition pays
    the overhead once for all its kernels (:func:`dfopt.terms.converted.tolls`).
    """
    return assumptions.kernel_overhead or 0.0 if assumptions.execution == "kernel_by_kernel" else 0.0
