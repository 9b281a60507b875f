"""What the dual of resources is made of: what blocks pay at least by side, and weights. Regions test the dual."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.regions.dual import between
from dfopt.regions.factors import least_by_side, least_of_sets
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, counts

KERNELS = st.integers(0, 3)


@st.composite
def incidences(draw: st.DrawFn) -> Incidence:
    some = tuple(draw(st.lists(KERNELS, min_size=2, max_size=3, unique=True)))
    held = tuple(draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some))))
    made = [Has(some[0]), AnyOf(some), Crosses(some[0], some[1:]), Inside(some[0], some[1:], (2.0,) * len(some[1:])),
            Exactly(some, held)]  # fmt: skip
    return draw(st.sampled_from(made))


@given(incidences(), st.lists(st.integers(-1, 2), min_size=4, max_size=4), st.data())
def test_no_partition_pays_less_by_side(incidence: Incidence, sides: list[int], data: st.DataObject) -> None:
    """Kernels of one side may share blocks, those of two sides never do; -1 is another stage."""
    side_k = np.array(sides)
    block_k = np.array([data.draw(st.integers(0, 3)) for _ in sides]) + 4 * side_k  # apart by side
    found = least_by_side(incidence, side_k)
    for side in range(3):
        blocks = np.unique(block_k[side_k == side])
        paid = counts([incidence], block_k[None, :] == blocks[:, None]).sum() if len(blocks) else 0.0
        assert found.get(side, 0.0) <= paid


@given(st.integers(1, 4), st.data())
def test_no_cut_into_blocks_pays_less_by_what_they_hold(kernels: int, data: st.DataObject) -> None:
    sets = [frozenset(k for k in range(kernels) if number >> k & 1) for number in range(1, 1 << kernels)]
    amounts = st.lists(st.integers(0, 9).map(float), min_size=2, max_size=2).map(np.array)
    amount_of = {held: data.draw(amounts) for held in sets if data.draw(st.booleans())}
    some = sorted(data.draw(st.sets(st.integers(0, kernels - 1), min_size=1)))
    paid = []
    for block_k in itertools.product(range(len(some)), repeat=len(some)):
        blocks = [frozenset(k for k, block in zip(some, block_k, strict=True) if block == b) for b in set(block_k)]
        paid.append(sum((amount_of.get(block, np.zeros(2)) for block in blocks), np.zeros(2)))
    least = least_of_sets(amount_of, some)
    assert np.min(paid, axis=0).tolist() == ([0.0, 0.0] if least is None else least.tolist())


def test_two_vectors_have_the_same_weighted_sums_under_the_best_weights() -> None:
    """One resource is larger under the first vector, the other under the second: neither alone is the best weight."""
    weight_sq = between(np.array([[6.0, 2.0]]), np.array([[1.0, 5.0]]))
    assert weight_sq.sum() == pytest.approx(1.0)
    assert (weight_sq * [[6.0, 2.0]]).sum() == pytest.approx((weight_sq * [[1.0, 5.0]]).sum())
