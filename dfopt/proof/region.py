"""A region of mappings in a proof: schemes and blocks that are left, and how it is divided.

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
    """Schemes that are left, plans of which not all is shown, bounds, and weights of duals to begin with."""

    domain: Domain
    plans: list[Plan]
    bounds: LayerBounds
    weights: Sequence[Floats | None] = ()

    def by_schemes(self, k: int) -> list[Region]:
        """A region for each scheme that is left of a kernel."""
        return [self._replace(domain=(*self.domain[:k], (o,), *self.domain[k + 1 :])) for o in self.domain[k]]

    def by_blocks(self, k: int) -> list[Region]:
        """A region for each block that is left of a kernel."""
        return [self._replace(bounds=bounds) for bounds in self.bounds.by_blocks(k)]
