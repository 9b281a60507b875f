"""Shortest paths over arcs, and how often charges are paid at least, against a list of all paths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from covered import asked_of, covered, setting_of
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import World, share

from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.regions.arcs import Arcs
from dfopt.regions.lattices import arcs_of, distinct_blocks
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Inside, counts

MANY = 3000


def paths_of(arcs: Arcs) -> list[tuple[int, ...]]:
    """All paths, as arcs; without more than are needed to see that they are too many."""
    last = len(arcs.set_jk) - 1

    def onward(place: int) -> Iterator[tuple[int, ...]]:
        if place == last:
            yield ()
        for arc in np.flatnonzero(arcs.before_a == place).tolist():
            for rest in onward(int(arcs.after_a[arc])):
                yield (arc, *rest)

    return [path for path, _ in zip(onward(0), range(MANY + 1), strict=False)]


@st.composite
def drawn_arcs(draw: st.DrawFn) -> tuple[Arcs, list[tuple[int, ...]]]:
    """Arcs of a random layer, some of them left out, and all paths."""
    world: World = draw(covered(most=5, least=2))
    asked = {name: value for name, value in asked_of(world, draw).items() if name in ("p_max", "pin_partition")}
    arcs, _ = arcs_of(setting_of(world).under(Plan()), 0, Request(**asked))
    assume(arcs is not None)
    if draw(st.booleans()):
        keep_a = np.array(draw(st.lists(st.booleans(), min_size=len(arcs.after_a), max_size=len(arcs.after_a))))
        few = arcs.kept(keep_a | (np.arange(len(arcs.after_a)) % 3 == 0))
        arcs = arcs if few is None else few[0]
    paths = paths_of(arcs)
    assume(len(paths) <= MANY)
    return arcs, paths


def prices_of(draw: st.DrawFn, arcs: Arcs, vectors: int) -> np.ndarray:
    seed = draw(st.integers(0, 2**32 - 1))
    price_vb = np.random.default_rng(seed).integers(0, 9, (vectors, len(arcs.member_bk))).astype(float)
    price_vb[price_vb == 8] = np.inf
    return price_vb


@share(1)
@given(drawn_arcs(), st.data())
def test_no_path_is_shorter(drawn: tuple[Arcs, list[tuple[int, ...]]], data: st.DataObject) -> None:
    arcs, paths = drawn
    price_vb = prices_of(data.draw, arcs, 3)
    distance_vj = arcs.distances(price_vb)
    for price_b, distance_j in zip(price_vb, distance_vj, strict=True):
        sums = {path: price_b[arcs.block_a[list(path)]].sum() for path in paths}
        assert distance_j[-1] == min(sums.values())
        _, through_a = arcs.through(price_b)
        for arc in range(len(arcs.after_a)):
            assert through_a[arc] == min((length for path, length in sums.items() if arc in path), default=np.inf)
        if np.isfinite(distance_j[-1]):
            assert sums[tuple(arcs.path(distance_j, price_b).tolist())] == distance_j[-1]


@share(1)
@given(drawn_arcs(), st.data())
def test_arcs_that_are_kept_have_the_paths_that_are_left(
    drawn: tuple[Arcs, list[tuple[int, ...]]], data: st.DataObject
) -> None:
    arcs, paths = drawn
    keep_a = np.array([data.draw(st.integers(0, 4)) > 0 for _ in arcs.after_a])
    left = {tuple(arcs.block_a[list(path)].tolist()) for path in paths if keep_a[list(path)].all()}
    few = arcs.kept(keep_a)
    if few is None:
        assert not left
        return
    some, blocks, numbers = few
    assert (some.member_bk == arcs.member_bk[blocks]).all()
    assert (arcs.block_a[numbers] == blocks[some.block_a]).all()
    assert {tuple(blocks[some.block_a[list(path)]].tolist()) for path in paths_of(some)} == left


@share(1)
@given(drawn_arcs(), st.data())
def test_no_path_pays_less_often_by_side(drawn: tuple[Arcs, list[tuple[int, ...]]], data: st.DataObject) -> None:
    """And some path pays no more of each incidence by itself; kernels of two sides share no block."""
    arcs, paths = drawn
    count = len(arcs.kernels)
    assume(count >= 2)
    mine = tuple(data.draw(st.permutations(arcs.kernels.tolist())))[:3]
    others = mine[1:]
    several = [
        Has(mine[0]), AnyOf(mine), Crosses(mine[0], others), Inside(mine[0], others, (2.0,) * len(others)),
        Exactly(mine, tuple(data.draw(st.booleans()) for _ in mine)),
    ]  # fmt: skip
    found, side_k = arcs.least_counts(several), arcs.side_k
    assert (side_k[arcs.kernels] >= 0).all()
    for member in arcs.member_bk:
        assert len(set(side_k[member].tolist())) == 1
    side_b = side_k[arcs.member_bk.argmax(axis=1)]
    for incidence in several:
        count_b = counts([incidence], arcs.member_bk)[:, 0]
        for side in np.unique(side_b).tolist():
            paid = [count_b[[b for b in arcs.block_a[list(path)] if side_b[b] == side]].sum() for path in paths]
            assert found[incidence].get(side, 0.0) == pytest.approx(min(paid))


@pytest.mark.parametrize("words", [1, 2])
def test_distinct_blocks(words: int) -> None:
    some = np.random.default_rng(3).integers(0, 1 << 63, (300, words), dtype=np.uint64)
    rows = some[np.random.default_rng(4).integers(0, 300, 2_000)]
    first, number = distinct_blocks(rows)
    assert np.array_equal(rows[first], np.unique(rows, axis=0))
    assert np.array_equal(rows[first][number], rows)
