"""What kernels move to and from DRAM because no kernel of the graph makes or takes it."""

from __future__ import annotations

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops

__all__ = ["end_share", "ends_by_kernel"]


def ends_by_kernel(graph: Graph) -> dict[str, list[tuple[int, float]]]:
    """By kernel, the operands that it reads from DRAM as inputs of the graph, and the outputs as operand 0."""
    found: dict[str, list[tuple[int, float]]] = {}
    for position, operand, size in [*graph.reads(), *((position, 0, size) for position, size in graph.writes())]:
        found.setdefault(graph.kernels[position].name, []).append((operand, size))
    return found


def end_share(kernel: Kernel, operand: int, scheme: Sharding, shards: int, rules: ops.Rules, elements: float) -> float:
    """Share of an end of the graph that one chip moves."""
    if not operand:
        return ops.output_share(kernel, scheme, shards, rules)
    layout = ops.required_layout(kernel, operand, scheme, rules, elements)
    return ops.input_share(kernel, layout, scheme, shards, rules)
