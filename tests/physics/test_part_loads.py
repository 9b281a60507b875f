"""Parts of rings and lines: the load of every link, all groups at once, walked hop by hop, against what a part costs.

A part says how much of a link a group has as its bandwidth. Here every group closes its logical ring, each edge of it
goes the shortest way (a tie half each way), and both directions of it are used at once, as a ring algorithm does.
The most loaded link then sets the pace. Nothing of `dfopt` is used but what is checked: the figures of the part, and
the price of a collective on it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.system import NetworkDim
from dfopt.physics.collectives import Collective, affine_cost
from dfopt.physics.network import dim_of

Link = tuple[int, int]


def ways(start: int, end: int, chips: int, ring: bool) -> list[list[Link]]:
    """The shortest ways from one chip of a dim to another, each as its links, whose lower chip stands first."""
    low, high = sorted((start, end))
    straight = [(chip, chip + 1) for chip in range(low, high)]
    if not ring:
        return [straight]
    around = [(chip, chip + 1) for chip in (*range(high, chips - 1), *range(low))] + [(chips - 1, 0)]
    least = min(len(straight), len(around))
    return [way for way in (straight, around) if len(way) == least]


def walked(chips: int, size: int, stride: int, ring: bool) -> tuple[Fraction, int]:
    """Edges of the logical rings of all groups over the most loaded link, and the hops of the edges inside groups."""
    load, longest = Counter[Link](), 0
    groups = [range(first, first + size * stride, stride) for first in range(chips) if first // stride % size == 0]
    assert sorted(chip for group in groups for chip in group) == list(range(chips))
    for group in groups:
        edges = list(itertools.pairwise(group))
        longest = max(longest, *(len(ways(*edge, chips, ring)[0]) for edge in edges))
        for start, end in edges if size == 2 else [*edges, (group[-1], group[0])]:
            taken = ways(start, end, chips, ring)
            for way in taken:
                for link in way:
                    load[link] += Fraction(1, len(taken))
    return max(load.values()), longest


@st.composite
def drawn_parts(draw: st.DrawFn) -> tuple[int, int, int, bool]:
    """Chips of a dim, of a part of it, how far these are apart, and whether the dim is a ring of three or more."""
    size, stride, rest = (draw(st.integers(low, 7)) for low in (2, 1, 1))
    return size * stride * rest, size, stride, draw(st.booleans()) and size * stride * rest > 2


@given(drawn_parts())
def test_a_part_has_the_share_of_its_most_loaded_link(drawn: tuple[int, int, int, bool]) -> None:
    """A ring over all groups' edges takes (n-1)/n V/2 per link and edge over it; n = 2 has one edge, with V/2 each way.

    So gathering and scattering on a part, which is a line where it does not reach around, cost what the loads say.
    """
    chips, size, stride, ring = drawn
    whole = NetworkDim(name="x", topology="ring" if ring else "line", size=chips, link_bandwidth=3.0, latency=0.5)
    part = whole.part(size, stride)
    load, hops = walked(chips, size, stride, ring)
    halves = 1 if size == 2 else 2
    expected = (size - 1) / size / halves * float(load) / whole.link_bandwidth
    for kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        cost = affine_cost(kind, [dim_of(part)])
        assert cost.per_byte == pytest.approx(expected, rel=1e-12)
        assert cost.fixed == pytest.approx((size - 1) * hops * whole.latency, rel=1e-12)
    doubled = affine_cost(Collective.ALL_REDUCE, [dim_of(part)]).per_byte
    assert doubled <= 2 * expected * (1 + 1e-12)  # a line has a better way than to scatter and gather
