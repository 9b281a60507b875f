"""What every kernel of a graph reads, writes and leaves for the backward pass, by its name: whole bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops

__all__ = [
    "again_by_kernel",
    "depths",
    "end_share",
    "fanout_groups",
    "saved_by_kernel",
]

Ints = NDArray[np.int64]


def saved_by_kernel(graph: Graph, assumptions: Assumptions) -> dict[str, float]:
    """Bytes of a kernel's output that the backward pass needs, whole, by its name."""
    return _read_later(graph, assumptions, "forward", ("recompute", "backward", "update"))


def again_by_kernel(graph: Graph, assumptions: Assumptions) -> dict[str, float]:
    """Bytes that a kernel computes again for others of the backward pass, whole, by its name."""
    return _read_later(graph, assumptions, "recompute", ("backward", "update"))


def _read_later(graph: Graph, assumptions: Assumptions, made: str, read: tuple[str, ...]) -> dict[str, float]:
    """Bytes that kernels of a pass make and kernels of others read, whole, by the name of the former."""
    groups, passes = fanout_groups(graph, assumptions), {kernel.name: kernel.pass_ for kernel in graph.kernels}
    pairs = zip(groups, graph.tensors, strict=True)
    once = {int(g): t for g, t in pairs if passes[t.src] == made and passes[t.dst] in read}
    found = dict.fromkeys(passes, 0.0)
    for tensor in once.values():
        found[tensor.src] += graph.bytes_of(tensor)
    return found


def fanout_groups(graph: Graph, assumptions: Assumptions) -> Ints:
    """Group of each tensor: when fan-out is shared, those that are the same of one output."""
    if assumptions.fanout == "per_consumer":
        return np.arange(len(graph.tensors), dtype=np.int64)
    seen: dict[tuple[str, float, str | None], int] = {}
    return np.array([seen.setdefault(graph.taken(t), len(seen)) for t in graph.tensors], dtype=np.int64)


def depths(graph: Graph, assumptions: Assumptions) -> list[float]:
    """Tiles of every tensor that wait on a chip between its two kernels, where one partition has both."""
    if assumptions.execution == "library":  # its kernels hand on in registers, a tile of their own size at a time
        return [0.0] * len(graph.tensors)
    if assumptions.skew_buffers != "depth":
        return [2.0] * len(graph.tensors)
    level = graph.levels()
    return [float(level[tensor.dst] - level[tensor.src] + 1) for tensor in graph.tensors]


def end_share(kernel: Kernel, operand: int, scheme: Sharding, shards: int, rules: ops.Rules, elements: float) -> float:
    """Share of an end of the graph that one chip moves."""
    if not operand:
        return ops.output_share(kernel, scheme, shards, rules)
    layout = ops.required_layout(kernel, operand, scheme, rules, elements)
    return ops.input_share(kernel, layout, scheme, shards, rules)
