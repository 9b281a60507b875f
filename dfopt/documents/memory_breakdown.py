"""What the memory of a chip is full of: parts that add up to it, told for every pipeline stage."""

from __future__ import annotations

import math

from pydantic import Field

from dfopt.documents.base import Part

__all__ = ["MemoryBreakdown"]


class MemoryBreakdown(Part):
    """Bytes that a chip of a pipeline stage holds in all its memories, by what they are; their sum is all of them.

    The meaning of the parts is that of Calculon (Isaev et al., SC'23, section 3), whose activations are ours and those
    of the layer at work.

    Examples
    --------
    >>> parts = MemoryBreakdown(weights_b=2.0, weight_gradients_b=4.0, optimizer_b=12.0)
    >>> parts.total, list(parts.parts)
    (18.0, ['weights', 'weight_gradients', 'optimizer'])
    """

    weights_b: float = Field(default=0.0, description="weights, tables and matrices")
    activations_b: float = Field(default=0.0, description="what forward passes keep for their backward passes")
    checkpoints_b: float = Field(
        default=0.0, description="the same, where layers keep nothing but what all else is computed again from"
    )
    working_b: float = Field(
        default=0.0,
        description="activations of the layer at work: what waits between partitions, is computed again, or is sent",
    )
    activation_gradients_b: float = Field(default=0.0, description="of the layer at work")
    weight_gradients_b: float = Field(default=0.0, description="gradients of parameters")
    optimizer_b: float = Field(default=0.0, description="state of the optimizer, with main weights")
    caches_b: float = Field(default=0.0, description="kept for the sequences of serving")

    @property
    def total(self) -> float:
        """All bytes."""
        return math.fsum(dict(self).values())

    @property
    def parts(self) -> dict[str, float]:
        """Those that there are, without the unit in their names."""
        return {name.removesuffix("_b"): size for name, size in dict(self).items() if size}
