"""What tests ask of a graph: its kernels by name, what each of them reads, and the work of its products."""

from __future__ import annotations

from dfopt.documents.graph import Graph, Kernel
from dfopt.physics.ops import flop

RECOMPUTES = ("none", "attention", "full", "full+attention")
"""Ways to recompute all layers of a stage alike that every model of layers has, least recomputed first."""


def by_name(graph: Graph) -> dict[str, Kernel]:
    """Every kernel by its name."""
    return {kernel.name: kernel for kernel in graph.kernels}


def reads(graph: Graph) -> dict[str, list[str]]:
    """Names of the kernels whose outputs a kernel reads, in the order of its tensors."""
    found: dict[str, list[str]] = {}
    for tensor in graph.tensors:
        found.setdefault(tensor.dst, []).append(tensor.src)
    return found


def product_flop(graph: Graph, *passes: str) -> float:
    """FLOP of all matrix products of some passes, in one evaluation of the whole model."""
    products = (kernel for kernel in graph.kernels if kernel.op != "elementwise" and kernel.pass_ in passes)
    return sum(flop(kernel) * graph.times_of(kernel) for kernel in products)
