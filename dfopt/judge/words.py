"""The judge's own rule of how many bytes an element has, by what it is."""

from __future__ import annotations

from typing import Literal

from dfopt.documents.graph import Graph, Kernel

Of = Literal["weights", "experts", "activations", "logits"]


def word(graph: Graph, of: Of = "activations") -> float:
    """Bytes of an element of some class of data; gradients are activations, and tables are weights."""
    return float(graph.word_bytes)


def weight_word(graph: Graph, kernel: Kernel) -> float:
    """Bytes of one of a kernel's weights."""
    return word(graph, "weights" if kernel.experts is None else "experts")


def made_word(graph: Graph, kernel: Kernel) -> float:
    """Bytes of an element of what a kernel makes."""
    return word(graph)
