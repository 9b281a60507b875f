"""A region of mappings in a proof: schemes and blocks that are left, and how it is divided.

It means the same in :mod:`dfopt.regions.region`, of which nothing is used here.

Suffixes: k kernel, r resource that takes time, o scheme that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dfopt.arrays import Floats
from dfopt.documents.plan import Plan
from dfopt.proof.dual import Domain
from dfopt.proof.layer import LayerBounds


class Region(NamedTuple):
    """A region of mappings in a proof.

    Attributes
    ----------
    domain : Domain
        Schemes left to each kernel.
    plans : list of Plan
        Plans not yet proven.
    bounds : LayerBounds
        Bounds of the layer with the blocks that are left.
    weights : sequence of float array or None
        Weights with which duals begin.
    """

    domain: Domain
    plans: list[Plan]
    bounds: LayerBounds
    weights: Sequence[Floats | None] = ()

    def by_schemes(self, k: int) -> list[Region]:
        """Branch on kernel ``k``: one region for each of its remaining schemes."""
        return [self._replace(domain=(*self.domain[:k], (o,), *self.domain[k + 1 :])) for o in self.domain[k]]

    def by_blocks(self, k: int) -> list[Region]:
        """Branch on kernel ``k``: one region for each of its remaining blocks."""
        return [self._replace(bounds=bounds) for bounds in self.bounds.by_blocks(k)]
