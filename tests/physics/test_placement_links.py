"""Chips in their seats, and what their rings load: every route walked, and the best placement."""

from __future__ import annotations

import contextlib
import doctest
import itertools
import math
from collections import Counter
from types import ModuleType

import benchmark_path  # noqa: F401
import numpy as np
import placement_links
import pytest
import seats as seating
from hypothesis import given
from hypothesis import strategies as st
from placement_links import Loads, heaviest, loads, placed
from seats import Mesh, Ring, Seats, blocks, fill, orders, strategy

from dfopt.errors import PlanError

Link = tuple[int, tuple[int, int], tuple[int, int]]  # of a package, between chips; or to another package


@pytest.mark.parametrize("module", [placement_links, seating], ids=lambda module: module.__name__)
def test_examples_run(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


# --- every route, step by step --------------------------------------------------------------------------------------

Seat = tuple[int, int, int]


def ring_edges(sizes: list[int], axis: int, closes: bool) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of neighbours in all rings of one parallelism, by their indices in all of them."""
    found = []
    for chip in itertools.product(*map(range, sizes)):
        after = chip[axis] + 1
        if after == sizes[axis]:
            if not closes or sizes[axis] <= 2:
                continue
            after = 0
        found.append((chip, (*chip[:axis], after, *chip[axis + 1 :])))
    return found


def walk(package: int, x: int, y: int, to_x: int, to_y: int) -> list[Link]:
    """Links from a chip along its row, then along the column."""
    found: list[Link] = []
    while x != to_x:
        step = 1 if to_x > x else -1
        found.append((package, (min(x, x + step), y), (max(x, x + step), y)))
        x += step
    while y != to_y:
        step = 1 if to_y > y else -1
        found.append((package, (x, min(y, y + step)), (x, max(y, y + step))))
        y += step
    return found


def route(one: Seat, other: Seat, side: int) -> list[Link]:
    """All links of an edge; the one between packages is named by the chip of the earlier package that it leaves."""
    if one[0] == other[0]:
        left, right = sorted((one, other), key=lambda seat: seat[1])
        return walk(*left, right[1], right[2])
    early, late = sorted((one, other), key=lambda seat: seat[0])
    out = early[0], (side - 1, late[2]), (side, late[2])
    return [*walk(*early, side - 1, late[2]), out, *walk(late[0], 0, late[2], late[1], late[2])]


def walked(rings: tuple[Ring, ...], mesh: Mesh, seats: Seats) -> list[Counter[Link]]:
    """How many edges of each parallelism are on each link."""
    sizes = [ring.chips for ring in rings]
    at = dict(zip(itertools.product(*map(range, sizes)), map(tuple, seats.tolist()), strict=True))
    return [
        Counter(
            link for a, b in ring_edges(sizes, axis, ring.closes) for link in route(at[a], at[b], mesh.side)
        )
        for axis, ring in enumerate(rings)
    ]  # fmt: skip


def as_links(found: Loads, number: int, side: int) -> Counter[Link]:
    """The loads of one parallelism, link by link."""
    counted: Counter[Link] = Counter()
    for (package, y, x), count in np.ndenumerate(found.x[number]):
        counted[package, (x, y), (x + 1, y)] = int(count)
    for (package, x, y), count in np.ndenumerate(found.y[number]):
        counted[package, (x, y), (x, y + 1)] = int(count)
    for (package, y), count in np.ndenumerate(found.between[number]):
        counted[package, (side - 1, y), (side, y)] = int(count)
    return +counted


@st.composite
def strategies(draw: st.DrawFn, most: int = 4) -> tuple[tuple[Ring, ...], Mesh]:
    """Degrees that multiply to the chips of a mesh."""
    mesh = Mesh(draw(st.integers(1, most)), draw(st.sampled_from([1, 2, 3, 4, 8])))
    left, degrees = mesh.packages * mesh.side**2, list[int]()
    for _ in range(3):
        degrees.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= degrees[-1]
    return strategy(*draw(st.permutations([*degrees, left]))), mesh


def check_walked(rings: tuple[Ring, ...], mesh: Mesh, seats: Seats) -> None:
    found, counted = loads(rings, mesh, seats), walked(rings, mesh, seats)
    for number, links in enumerate(counted):
        assert as_links(found, number, mesh.side) == links
        inside = max((n for (_, _, (x, _)), n in links.items() if x < mesh.side), default=0)
        between = max((n for (_, _, (x, _)), n in links.items() if x == mesh.side), default=0)
        assert found.own[number] == (between, inside)
        assert found.derates[number] == (max(between, 1), max(inside, 1))
        assert found.crosses[number] == (between > 0)
    together = sum(counted, Counter[Link]())
    assert max(found.shared) == max(together.values(), default=0)


@given(strategies(), st.randoms(use_true_random=False))
def test_loads_are_those_of_every_route_walked(drawn: tuple[tuple[Ring, ...], Mesh], random: object) -> None:
    """Whoever sits where."""
    rings, mesh = drawn
    every = [list(seat) for seat in itertools.product(range(mesh.packages), range(mesh.side), range(mesh.side))]
    random.shuffle(every)  # type: ignore[attr-defined]
    check_walked(rings, mesh, np.array(every, dtype=np.int64))


def filled(rings: tuple[Ring, ...], mesh: Mesh) -> list[Seats]:
    """The seats of every order of the parallelisms that leaves no gaps."""
    found = []
    for order in orders(rings):
        with contextlib.suppress(PlanError):
            found.append(fill(rings, mesh, order))
    return found


@given(strategies())
def test_every_order_and_every_block_seats_all(drawn: tuple[tuple[Ring, ...], Mesh]) -> None:
    rings, mesh = drawn
    chips = mesh.packages * mesh.side**2
    found = [*itertools.islice(blocks(rings, mesh), 50), *filled(rings, mesh)]
    for seats in found:
        assert len({tuple(seat) for seat in seats.tolist()}) == chips == math.prod(ring.chips for ring in rings)
    for seats in found[-3:]:
        check_walked(rings, mesh, seats)


@given(strategies())
def test_the_chosen_placement_is_none_the_worse_for_any_order(drawn: tuple[tuple[Ring, ...], Mesh]) -> None:
    rings, mesh = drawn
    every = [heaviest(loads(rings, mesh, seats)) for seats in filled(rings, mesh)]
    try:
        chosen = placed(rings, mesh)
    except PlanError:
        assert not every
        return
    assert heaviest(chosen.loads) <= min(every, default=heaviest(chosen.loads))
    check_walked(rings, mesh, chosen.seats)


@pytest.mark.parametrize("side", [2, 4, 6])
def test_a_ring_around_a_whole_package_shares_no_link(side: int) -> None:
    """There is a Hamiltonian cycle where a side is even."""
    rings, mesh = strategy(data=side * side), Mesh(side)
    assert heaviest(placed(rings, mesh).loads).inside == 1


def test_a_cost_of_ones_own_decides() -> None:
    """Only data parallelism talks: the order that is best for it is taken, whatever the others have to bear."""
    rings, mesh = strategy(k1=4, data=4), Mesh(4)
    chosen = placed(rings, mesh, cost=lambda found: found.own[2].inside)
    assert chosen.loads.own[2].inside == 1


@pytest.mark.parametrize(
    ("rings", "mesh", "order", "expected"),
    [
        (strategy(data=8), Mesh(4), ("data",), "found a strategy of 8 chips, expected 16"),
        (strategy(data=0), Mesh(4), ("data",), "expected 1 or more"),
        (strategy(data=16), Mesh(0), ("data",), "expected 1 or more"),
        ((Ring("a", 4), Ring("a", 4)), Mesh(4), ("a",), "names that differ"),
        (strategy(k1=4, data=4), Mesh(4), ("data",), "each of k1, data once"),
        (strategy(k1=4, data=4), Mesh(4), ("data", "k1", "tensor"), "each of k1, data once"),
        (strategy(k1=4, data=4), Mesh(4), ("data", "k2", "k1", "k2"), "each of k1, data once"),
        (strategy(k1=9, data=4), Mesh(6), ("k1", "data"), "without gaps"),
    ],
)
def test_what_cannot_be_seated_is_refused(
    rings: tuple[Ring, ...], mesh: Mesh, order: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(PlanError, match=expected):
        fill(rings, mesh, order)


@pytest.mark.parametrize("seats", [np.zeros((4, 3)), np.zeros((3, 3)), np.full((4, 3), -1), np.full((4, 3), 5)])
def test_seats_that_are_none_of_the_mesh_are_refused(seats: Seats) -> None:
    with pytest.raises(PlanError, match="seat each"):
        loads(strategy(data=4), Mesh(2), seats)


def test_a_profile_that_is_none_is_refused() -> None:
    rings, mesh = strategy(data=4), Mesh(2)
    with pytest.raises(PlanError, match="expected default or deepflow"):
        loads(rings, mesh, fill(rings, mesh, ("data",)), "paper")  # type: ignore[arg-type]


def test_what_is_kept_cannot_be_changed_by_others() -> None:
    rings, mesh = strategy(k1=4, data=4), Mesh(4)
    before = fill(rings, mesh, ("k1", "data")).copy()
    with contextlib.suppress(ValueError):
        fill(rings, mesh, ("k1", "data"))[:] = 0
    assert (fill(rings, mesh, ("k1", "data")) == before).all()
