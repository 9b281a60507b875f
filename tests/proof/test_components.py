"""Blocks and their shortest paths against all partitionings one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dfopt.arrays import Floats
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.proof.blocks import Component, components_of


@st.composite
def layers(draw: st.DrawFn) -> tuple[Graph, dict[frozenset[int], float], set[frozenset[int]]]:
    """A graph of up to five kernels, a price of every set of them, and sets that cannot be a block."""
    count = draw(st.integers(1, 5))
    kernels = tuple(Kernel(name=f"k{n}", op="elementwise", m=2, n=2) for n in range(count))
    pairs = draw(st.sets(st.sampled_from([*itertools.combinations(range(count), 2)] or [(0, 0)])))
    tensors = tuple(Tensor(src=f"k{a}", dst=f"k{b}") for a, b in sorted(pairs) if a != b)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sets = [frozenset(few) for size in range(1, count + 1) for few in itertools.combinations(range(count), size)]
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    forbidden = {few for few in sets if len(few) > 1 and rng.random() < share}
    forbidden |= {few for few in sets if not _is_joined(few, forbidden)}
    return Graph(name="g", kernels=kernels, tensors=tensors), {few: rng.random() for few in sets}, forbidden


def _is_joined(few: frozenset[int], forbidden: set[frozenset[int]]) -> bool:
    """Whether pairs that may be a block join all kernels of a set."""
    left, found = set(few), {min(few)}
    while found:
        left -= found
        found = {k for k in left for other in few - left if frozenset((k, other)) not in forbidden}
    return not left


def _least(graph: Graph, price: dict[frozenset[int], float], forbidden: set[frozenset[int]]) -> float:
    """The least sum over all numbers of partitions that go with the order of tensors."""
    count, index = len(graph.kernels), graph.index()
    least = math.inf
    for number_k in itertools.product(range(count), repeat=count):
        parts = [frozenset(k for k in range(count) if number_k[k] == n) for n in sorted(set(number_k))]
        ordered = all(number_k[index[t.src]] <= number_k[index[t.dst]] for t in graph.tensors)
        if ordered and not forbidden & set(parts):
            least = min(least, sum(price[part] for part in parts))
    return least


def _check_fewer_blocks(whole: Component, price_b: Floats) -> None:
    """What is left of blocks holds each partitioning that is cheap enough, or that has a block."""
    price_of = {row.tobytes(): price for row, price in zip(whole.member_bk, price_b, strict=True)}
    parts = [few for part in whole.parts for few in part.member_bk.tolist()]
    assert sorted(parts) == sorted(whole.member_bk.tolist())

    def least(component: Component) -> float:
        return component.least(np.array([price_of[row.tobytes()] for row in component.member_bk]))

    for k in whole.kernels:
        assert math.isclose(min(map(least, whole.with_each(k))), whole.least(price_b), rel_tol=1e-12)
        for each in whole.with_each(k):
            most = least(each) * (1 + 1e-9)
            if math.isfinite(most):
                assert math.isclose(least(whole.within(price_b, most)), whole.least(price_b), rel_tol=1e-12)
                kept = {row.tobytes() for row in whole.within(price_b, most).member_bk}
                best = each.within(np.array([price_of[row.tobytes()] for row in each.member_bk]), most)
                assert kept.issuperset(row.tobytes() for row in best.member_bk)


@given(layers())
def test_all_partitionings_one_by_one(case: tuple[Graph, dict[frozenset[int], float], set[frozenset[int]]]) -> None:
    graph, price, forbidden = case

    def allowed(members: Sequence[int]) -> bool:
        return frozenset(members) not in forbidden

    components = components_of(graph, allowed)
    assert sorted(k for each in components for k in each.kernels) == list(range(len(graph.kernels)))
    found = 0.0
    for each in components:
        sets = [frozenset(np.flatnonzero(row).tolist()) for row in each.member_bk]
        assert not forbidden & set(sets)
        price_b = np.array([price[few] for few in sets])
        found += each.least(price_b)
        _check_fewer_blocks(each, price_b)
    least = _least(graph, price, forbidden)
    assert found <= least * (1 + 1e-12)
    if len(components) in (1, len(graph.kernels)):  # no order between parts is left out
        assert math.isclose(found, least, rel_tol=1e-12)
