"""What tests ask of a graph: its kernels by name, and what each of them reads."""

from __future__ import annotations

from dfopt.documents.graph import Graph, Kernel


def by_name(graph: Graph) -> dict[str, Kernel]:
    """Every kernel by its name."""
    return {kernel.name: kernel for kernel in graph.kernels}


def reads(graph: Graph) -> dict[str, list[str]]:
    """Names of the kernels whose outputs a kernel reads, in the order of its tensors."""
    found: dict[str, list[str]] = {}
    for tensor in graph.tensors:
        found.setdefault(tensor.dst, []).append(tensor.src)
    return found
