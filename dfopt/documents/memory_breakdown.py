"""What the memory of a chip is full of: parts that add up to it, told for every pipeline stage."""

from __future__ import annotations

import math

from dfopt.documents.base import Part

__all__ = ["MemoryBreakdown"]


class MemoryBreakdown(Part):
    """Bytes that a chip of a pipeline stage holds in all its memories, by what they are; their sum is all of them.

    The meaning of the parts is that of Calculon (Isaev et al., SC'23, section 3), whose activations are ours and those
    of the layer at work.

    Attributes
    ----------
    weights_b : B, e.g. 5500000000
        Memory of a chip that weights, tables and resident matrices take.
    activations_b : B, e.g. 47000000000
        Memory of a chip that activations take between the forward pass and the backward pass.
    checkpoints_b : B, e.g. 8000000000
        Memory of a chip that the inputs of layers take from which all other activations are recomputed.
    working_b : B, e.g. 1200000000
        Memory of a chip that activations of the layer at work take, while they wait between partitions, are recomputed
        or are sent.
    activation_gradients_b : B, e.g. 400000000
        Memory of a chip that gradients of activations of the layer at work take.
    weight_gradients_b : B, e.g. 11000000000
        Memory of a chip that gradients of parameters take.
    optimizer_b : B, e.g. 4000000000
        Memory of a chip that the optimizer state takes, main weights included.
    caches_b : B, e.g. 2700000000
        Memory of a chip that KV caches and recurrent states of sequences take.

    Examples
    --------
    >>> parts = MemoryBreakdown(weights_b=2.0, weight_gradients_b=4.0, optimizer_b=12.0)
    >>> parts.total, list(parts.parts)
    (18.0, ['weights', 'weight_gradients', 'optimizer'])
    """

    weights_b: float = 0.0
    activations_b: float = 0.0
    checkpoints_b: float = 0.0
    working_b: float = 0.0
    activation_gradients_b: float = 0.0
    weight_gradients_b: float = 0.0
    optimizer_b: float = 0.0
    caches_b: float = 0.0

    @property
    def total(self) -> float:
        """All bytes."""
        return math.fsum(dict(self).values())

    @property
    def parts(self) -> dict[str, float]:
        """Bytes of the parts that hold any, by name without the unit."""
        return {name.removesuffix("_b"): size for name, size in dict(self).items() if size}
