"""How many bytes an element of a graph has, by what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dfopt.documents.graph import Kernel

__all__ = ["Words"]


class Words(NamedTuple):
    """Bytes of an element of every class of data.

    Gradients are activations, and tables and matrices that kernels keep are weights.
    """

    weights: float
    experts: float
    activations: float
    logits: float

    def of_weight(self, kernel: Kernel) -> float:
        """Of a weight of a kernel."""
        return self.experts if kernel.experts is not None else self.weights

    def of_output(self, kernel: Kernel) -> float:
        """Of what a kernel makes."""
        return self.activations
