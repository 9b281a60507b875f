"""Parts of the work of a graph, and mixtures of levels at which it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from dfopt.documents.graph import Graph
from dfopt.physics.ops import flop

__all__ = ["mixture", "part_of"]


def part_of(graph: Graph, names: frozenset[str]) -> float:
    """The part of all FLOP that some kernels have."""
    parts = [graph.times_of(one) * flop(one) for one in graph.kernels if one.name in names]
    whole = math.fsum(graph.times_of(one) * flop(one) for one in graph.kernels)
    return math.fsum(parts) / whole if whole > 0 else 0.0


def mixture(points: Sequence[tuple[float, float]]) -> float:
    """The least of the larger coordinate over all mixtures of points.

    Examples
    --------
    >>> mixture([(1.0, 3.0), (3.0, 1.0), (4.0, 0.5)])
    2.0
    """
    least = min(max(point) for point in points)
    for (a, b), (c, d) in combinations(points, 2):
        one, other = a - b, c - d
        if one * other < 0:  # on the line between them both are equal somewhere
            part = one / (one - other)
            least = min(least, a + part * (c - a))
    return least
