r"""Seconds of one collective, and the least that the cuts of a network allow.

Cut the chips of a network in two by their coordinate along one dimension of n: those with k of the coordinates, and
the rest. In an all-to-all of V bytes over N chips each pair of chips exchanges V/N^2 bytes, so k(n-k)/n^2 V crosses
the cut each way, over the links of that dimension only: N/n times those of one group. No routing avoids them.

==================  ===============================  ==========================  =================================
wiring              links across the cut, each way   worst k                     bound, times V/N
==================  ===============================  ==========================  =================================
ring                2 (1 for two chips)              n/2, rounded                floor(n/2) ceil(n/2)/(2 n b)
line                1                                n/2, rounded                floor(n/2) ceil(n/2)/(n b)
switch              the ports of the smaller side    1: the chip's own port      (n-1)/(n b)
fully connected     k(n-k)                           any                         1/(n b)
==================  ===============================  ==========================  =================================

The exchange of one dimension after the other (`dfopt.physics.collectives.affine_cost`) takes exactly this time in
*each* dimension, since every group attains its own bound. So in one dimension it is optimal, and in several it takes
the *sum* of the dimensions' bounds, where the bound of the network is the *largest* of them: at most as many times
longer as there are dimensions, and that much where they are equally narrow, as in a torus of equal sides. There, halves
of the tensor that go through the dimensions in opposite orders at the same time attain the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dfopt.physics.collectives import Collective, Dim, Topology, affine_cost


def seconds(kind: Collective, volume: float, dims: Sequence[Dim], **options: Any) -> float:
    """Of a collective of so many bytes, by the coefficients of `affine_cost`; no message takes no time."""
    cost = affine_cost(kind, dims, **options)
    return cost.per_byte * volume + cost.fixed if volume else 0.0


def _crossing(dim: Dim) -> float:
    """Largest (pairs across the cut) / (links across it) over the cuts of one group of n > 1 chips."""
    n = dim.size
    pairs = (n // 2) * (n - n // 2)
    match dim.topology:
        case Topology.RING:
            return pairs / (1 if n == 2 else 2)
        case Topology.LINE:
            return pairs
        case Topology.SWITCH:
            return n - 1
    return 1.0


def bisection_bound(dims: Sequence[Dim], volume: float) -> float:
    """Least seconds of an all-to-all of so many bytes, whatever the algorithm and its routes; no latency."""
    chips = math.prod(dim.size for dim in dims)
    used = [dim for dim in dims if dim.size > 1]
    return max((volume / chips * _crossing(dim) / (dim.size * dim.bandwidth) for dim in used), default=0.0)
