"""Tensors and outputs of a graph before any sharding: which are stored once, which later passes read, and what waits.

The axis of tensors is ``graph.tensors``. Bytes are those of whole tensors.
"""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph


def read_later(graph: Graph, assumptions: Assumptions, pass_: str, readers: tuple[str, ...]) -> dict[str, float]:
    """Bytes of the output of each kernel of a pass that kernels of other passes read.

    Parameters
    ----------
    graph
        The workload.
    assumptions
        Only ``fanout`` is read: whether readers of one output share one copy (``shared``) or each have their own.
    pass_, readers : e.g. forward, (backward, update)
        The pass of the kernels, and those of the readers that count.

    Returns
    -------
    dict, B
        By name of the kernel, for every kernel of the graph. Bytes are of one evaluation (one microbatch), before any
        sharding. Tensors of one fan-out group (:func:`fanout_groups`) count once. 0 for kernels of other passes, and
        for a kernel whose output no such kernel reads.
    """
    groups, passes = fanout_groups(graph, assumptions), {kernel.name: kernel.pass_ for kernel in graph.kernels}
    pairs = zip(groups, graph.tensors, strict=True)
    once = {int(g): t for g, t in pairs if passes[t.src] == pass_ and passes[t.dst] in readers}
    output_bytes = dict.fromkeys(passes, 0.0)
    for tensor in once.values():
        output_bytes[tensor.src] += graph.bytes_of(tensor)
    return output_bytes


def fanout_groups(graph: Graph, assumptions: Assumptions) -> Ints:
    """Number of the fan-out group of each tensor, where a group is a set of tensors that are stored only once.

    A tensor leads from one kernel to one reader. With ``fanout: shared`` a group is one output of a kernel, or one part
    of it: all tensors of the same source, part and size. With ``fanout: per_consumer`` every tensor is a group of its
    own.

    Parameters
    ----------
    graph
        The workload, whose ``tensors`` are the axis of the result.
    assumptions
        Only ``fanout`` is read.

    Returns
    -------
    int array, shape (tensors,)
        By tensor the number of its group. Groups are numbered from 0, in the order of their first tensors.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel, Tensor
    >>> kernels = tuple(Kernel(name=name, op="elementwise", m=4, n=8) for name in "abc")
    >>> graph = Graph(name="g", kernels=kernels, tensors=tuple(Tensor(src="a", dst=name) for name in "bc"))
    >>> [fanout_groups(graph, Assumptions(fanout=way)).tolist() for way in ("shared", "per_consumer")]
    [[0, 0], [0, 1]]
    """
    if assumptions.fanout == "per_consumer":
        return np.arange(len(graph.tensors), dtype=np.int64)
    seen: dict[tuple[str, float, str | None], int] = {}
    return np.array([seen.setdefault(graph.taken(t), len(seen)) for t in graph.tensors], dtype=np.int64)


def depths(graph: Graph, assumptions: Assumptions) -> list[float]:
    """Number of tiles of each tensor that wait in SRAM if its source and its reader run in the same on-chip partition.

    A tile is a slice of the tensor along the axis that kernels stream. Under ``execution: library`` the number is 0,
    since fused kernels hand on in registers. Else it is 2 with ``skew_buffers: double``. With ``skew_buffers: depth``
    it is level of the reader - level of the source + 1. The level of a kernel is the length of the longest path to it
    from a kernel that reads no tensor.

    Parameters
    ----------
    graph
        The workload, whose ``tensors`` are the axis of the result.
    assumptions
        Only ``execution`` and ``skew_buffers`` are read. Resolved: ``execution`` is not ``auto``.

    Returns
    -------
    list of float
        Tiles, not bytes: one number for each tensor of the graph, in their order.
    """
    if assumptions.execution == "library":  # its kernels hand on in registers, a tile of their own size at a time
        return [0.0] * len(graph.tensors)
    if assumptions.skew_buffers != "depth":
        return [2.0] * len(graph.tensors)
    level = graph.levels()
    return [float(level[tensor.dst] - level[tensor.src] + 1) for tensor in graph.tensors]
