"""Paths over arcs against a list of all: lengths, numbers of partitions, what waits and how often charges are paid."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from covered import asked_of, covered, setting_of
from hypothesis import assume, given
from hypothesis import strategies as st
from members import drawn_root
from problem_cases import partitionings
from strategies import World, share

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible
from dfopt.fusion.partitioning import IntraChipLimits, most_alive
from dfopt.regions.arcs import Arcs
from dfopt.regions.dual import between
from dfopt.regions.factors import least_by_side, least_of_sets
from dfopt.regions.lattices import arcs_of, distinct_blocks
from dfopt.regions.numbering import Numbering
from dfopt.setting.instance import Setting
from dfopt.terms.incidence import AnyOf, Crosses, Exactly, Has, Incidence, Inside, counts
from dfopt.terms.rules.held import waits

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


# -- paths that keep to numbers of partitions --------------------------------------------------


@st.composite
def limits(draw: st.DrawFn, kernels: int) -> IntraChipLimits:
    """Limits on the partitions of so many kernels."""
    most = draw(st.integers(1, kernels + 1))
    number = st.tuples(st.integers(0, kernels - 1), st.integers(0, most - 1))
    rule = draw(st.sampled_from(["halves", "halves", "shared"]))
    return IntraChipLimits(most, draw(st.booleans()), rule, tuple(draw(st.lists(number, max_size=2))))


def keeps(limits: IntraChipLimits, member: np.ndarray, forward_k: np.ndarray, numbers: tuple[int, ...]) -> bool:
    """Whether partitions with these numbers are as asked for, by the words of the rules."""
    most, both = limits.p_max, forward_k.any() and not forward_k.all()
    of_kernel = {k: number for block, number in zip(member, numbers, strict=True) for k in np.flatnonzero(block)}
    halves = limits.forward_backward == "halves" and both
    return all(of_kernel[k] == number for k, number in limits.pins) and not (
        halves and any(of_kernel[k] >= -(-most // 2) if forward_k[k] else of_kernel[k] < most // 2 for k in of_kernel)
    )


def ways(limits: IntraChipLimits, count: int) -> list[tuple[int, ...]]:
    """Numbers of so many partitions: under halves any of them may stay empty, unless none may."""
    if count > limits.p_max or (limits.exactly and count < limits.p_max):
        return []
    if limits.forward_backward == "halves":
        return list(itertools.combinations(range(limits.p_max), count))
    return [tuple(range(count))]


def chain(kernels: int) -> Arcs:
    """All arcs of kernels of which each needs the one before it."""
    pairs = np.array([(before, after) for after in range(1, kernels + 1) for before in range(after)])
    sets = np.tri(kernels + 1, kernels, -1, dtype=bool)
    return Arcs(sets[pairs[:, 1]] & ~sets[pairs[:, 0]], sets, pairs[:, 0], pairs[:, 1], np.arange(len(pairs)))


@st.composite
def layers(draw: st.DrawFn) -> Arcs:
    """All arcs of a random layer, or of a chain: random layers have few paths with many partitions."""
    if draw(st.booleans()):
        return chain(draw(st.integers(2, 6)))
    world = draw(covered(most=5, least=2, empty_partitions="allow", forward_backward="shared"))
    arcs, _ = arcs_of(setting_of(world).under(Plan()), 0, Request())
    assert arcs is not None
    return arcs


@share(4)
@given(layers(), st.data())
def test_the_paths_that_are_kept_are_those_that_can_be_numbered(arcs: Arcs, data: st.DataObject) -> None:
    """Each once, and with numbers that are as asked for."""
    kernels = arcs.kernels
    asked, forward_k = data.draw(limits(len(kernels))), np.array([data.draw(st.booleans()) for _ in kernels])
    numbering, expected = Numbering(asked, forward_k), set[tuple[bytes, ...]]()
    paths = paths_of(arcs)
    assume(len(paths) <= MANY)
    for path in paths:
        member = arcs.member_bk[arcs.block_a[list(path)]]
        mine = member[:, kernels]
        if any(keeps(asked, mine, forward_k, numbers) for numbers in ways(asked, len(path))):
            expected.add(tuple(block.tobytes() for block in member))
            numbers = tuple(numbering.along(mine))
            assert numbers in ways(asked, len(path)) and keeps(asked, mine, forward_k, numbers)
    kept = numbering.kept(arcs)
    if kept is None:
        assert not expected
        return
    found = [tuple(kept.member_bk[block].tobytes() for block in kept.block_a[list(path)]) for path in paths_of(kept)]
    assert len(set(found)) == len(found) and set(found) == expected
    assert set(kept.block_a.tolist()) == set(range(len(kept.member_bk)))


@pytest.mark.parametrize("most", [3, 30])
def test_down_sets_are_there_once_where_numbers_make_no_difference(most: int) -> None:
    setting = Setting.resolved(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), df.Assumptions())
    free, _ = arcs_of(setting.under(Plan()), 0, Request())
    counted, _ = arcs_of(setting.under(Plan()), 0, Request(p_max=most))
    assert free is not None and counted is not None
    assert (len(counted.set_jk) == len(free.set_jk)) == (most == 30)


# -- what the dual of resources is made of -----------------------------------------------------


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


# -- the fewest bytes that wait between partitions ---------------------------------------------


@share(0.6)
@given(covered(most=4, token_blocks="none"), st.data())
def test_no_partitions_leave_less_to_wait(world: World, data: st.DataObject) -> None:
    _, root = drawn_root(world, data)
    of = root.of
    assume(of.cuts is None and of.is_exact and waits(of.setting))
    assume(of.chip.fused)  # kernel by kernel there is one order
    options = np.array([data.draw(st.sampled_from(left)) for left in root.domain])
    for kind in range(of.kinds):
        found = of.least_waiting(kind, of.table.exact(options[None])[0])
        assert of.least_waiting(kind, of.table.least(root.domain)) <= found
        try:
            tables = of.stage(kind, tuple((option,) for option in options.tolist()))
        except Infeasible:
            assert found == np.inf
            continue
        limits = of.numbering_k[kind].limits
        legal, _ = partitionings(tables, limits)
        least = min((most_alive(tables, limits, partition_k) for partition_k in legal), default=np.inf)
        assert found == pytest.approx(least, rel=1e-9)
