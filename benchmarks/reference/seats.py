"""Who sits where: the chips of a strategy on packages of side x side chips.

A strategy has several parallelisms (kernels in rows and columns, data, pipeline); for each, the chips that differ in
its index alone form a ring. A ring of two is one edge, and a pipeline does not close. Seats come from :func:`fill`
(DeepFlow's heuristic, nanocad-lab/DeepFlow, commit 566c192, one for every order of the parallelisms) and from
:func:`blocks`. What they load is in :mod:`placement_links`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfopt.errors import PlanError

__all__ = ["Mesh", "Ring", "Seats", "blocks", "check_fits", "constant", "fill", "filled", "orders", "strategy"]

Seats = NDArray[np.int64]
"""Of every chip package, x and y; chips by their indices in all parallelisms, the last of which runs fastest."""


class Ring(NamedTuple):
    """A parallelism: how many chips its rings have, and whether they close."""

    name: str
    chips: int
    closes: bool = True


class Mesh(NamedTuple):
    """Packages of side x side chips each."""

    side: int
    packages: int = 1


def strategy(k1: int = 1, k2: int = 1, data: int = 1, pipeline: int = 1) -> tuple[Ring, ...]:
    """Rings of kernels split k1 by k2, of data, and the pipeline, which does not close.

    Examples
    --------
    >>> [ring.name for ring in strategy(k1=2, pipeline=4) if ring.chips > 1]
    ['k1', 'pipeline']
    """
    return Ring("k1", k1), Ring("k2", k2), Ring("data", data), Ring("pipeline", pipeline, closes=False)


def orders(rings: Sequence[Ring]) -> list[tuple[str, ...]]:
    """Every order of the parallelisms of more than one chip.

    Examples
    --------
    >>> orders(strategy(k1=2, data=4))
    [('k1', 'data'), ('data', 'k1')]
    """
    return list(itertools.permutations(ring.name for ring in rings if ring.chips > 1))


def fill(rings: Sequence[Ring], mesh: Mesh, order: Sequence[str]) -> Seats:
    """Seats of chips, one parallelism inside the next, back and forth (boustrophedon).

    The first one runs up a column, the ones between it and the last take columns beside it, and so they form a block;
    blocks lie along x, there and back in the row above. Where it is too high, it takes several columns, and where
    the block is too wide, several rows; if it fits in no package, the last one counts groups of packages.

    Parameters
    ----------
    rings : sequence of Ring
    mesh : Mesh
    order : sequence of str
        Names from the innermost out; those of one chip do not matter.

    Raises
    ------
    PlanError
        If there are not as many chips as seats, the order is none, or blocks leave gaps.

    Examples
    --------
    Rings of four up the columns of a package, and data over the columns:

    >>> fill(strategy(k1=4, data=4), Mesh(4), ("k1", "data"))[:, 1].tolist()
    [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    """
    seats = filled(rings, mesh, order)
    if seats is None:
        text = " x ".join(str(ring.chips) for name in order for ring in rings if ring.name == name and ring.chips > 1)
        raise PlanError(
            f"$.order: found blocks of {text} chips, expected some that fill {mesh.packages} packages of {mesh.side} x "
            f"{mesh.side} without gaps (take another order, or seats of blocks())"
        )
    return seats


def filled(rings: Sequence[Ring], mesh: Mesh, order: Sequence[str]) -> Seats | None:
    """As :func:`fill`, but none where blocks leave gaps.

    Raises
    ------
    PlanError
        If there are not as many chips as seats, or the order is none.

    Examples
    --------
    >>> filled(strategy(k1=9, data=4), Mesh(6), ("k1", "data")) is None
    True
    """
    check_fits(rings, mesh)
    names = [ring.name for ring in rings]
    many = [ring.name for ring in rings if ring.chips > 1]
    asked = [name for name in order if name in many or name not in names]
    if sorted(asked) != sorted(many) or len(set(order)) < len(order):
        raise PlanError(f"$.order: found {', '.join(order) or 'none'}, expected each of {', '.join(many)} once")
    sizes = tuple(rings[names.index(name)].chips for name in asked)
    seats = _filled(sizes, mesh.side, mesh.packages, mesh.side, mesh.side)
    if seats is None:
        return None
    back = [asked[::-1].index(name) for name in many]  # the axes of `seats` run from the last of the order to the first
    return np.ascontiguousarray(seats.transpose(*back, len(sizes)).reshape(-1, 3))


def constant(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """The array, which is kept for others and must not be written to."""
    array.setflags(write=False)
    return array


def check_fits(rings: Sequence[Ring], mesh: Mesh) -> None:
    """Refuse a strategy that has not as many chips as a mesh has seats.

    Raises
    ------
    PlanError
        If it does not, if a number is below one, or two rings have one name.
    """
    if mesh.side < 1 or mesh.packages < 1 or any(ring.chips < 1 for ring in rings):
        found = ", ".join(f"{ring.name} {ring.chips}" for ring in rings)
        raise PlanError(f"$: found {mesh}, {found}; expected 1 or more of each")
    if len({ring.name for ring in rings}) < len(rings):
        raise PlanError(f"$: found {', '.join(ring.name for ring in rings)}, expected names that differ")
    chips, seats = math.prod(ring.chips for ring in rings), mesh.packages * mesh.side**2
    if chips != seats:
        raise PlanError(f"$: found a strategy of {chips} chips, expected {seats}: {mesh.packages} packages of "
                        f"{mesh.side} x {mesh.side} (change a degree, or the packages)")  # fmt: skip


@cache
def _filled(sizes: tuple[int, ...], side: int, packages: int, wide: int, high: int) -> NDArray[np.int64] | None:
    """Seats in a region at 0, 0 (of whole packages, if of several); an axis for each size, the last size first."""
    if not sizes:
        return constant(np.zeros(3, dtype=np.int64))
    *inner, last = sizes
    rest: tuple[int, int, int]
    if not inner:
        if last != packages * wide * high:
            return None
        corners = [(w, x, y) for w in range(packages) for x in range(wide) for y in range(high)[:: -1 if x % 2 else 1]]
        return constant(np.array(corners, dtype=np.int64))
    up = min(inner[0], high)
    columns = math.prod(inner[1:]) * max(1, inner[0] // high)
    if columns > wide:
        up, columns = up * (columns // wide), wide
    if up <= high:
        rest = (1, columns, up)
        rows, beside = high // up, wide // columns
        corners = [
            (w, x * columns, y * up)
            for w in range(packages)
            for y in range(rows)
            for x in range(beside)[:: -1 if y % 2 else 1]
        ]
    else:
        rest = (packages // last, wide, high)
        corners = [(group * rest[0], 0, 0) for group in range(last)]
    block = _filled(tuple(inner), side, *rest)
    whole = len(corners) == last and math.prod(rest) * last == packages * wide * high
    if block is None or not whole:
        return None
    at = np.array(corners, dtype=np.int64)
    return constant(at.reshape(last, *(1,) * len(inner), 3) + block)


def blocks(rings: Sequence[Ring], mesh: Mesh) -> Iterator[Seats]:
    """Seats in blocks of both axes: every parallelism has a part of x, of y and of the packages.

    A parallelism of p q chips inside a package runs around a block of p x q (a Hamiltonian cycle, so that each of
    its edges is one step), each chip of which stands for a block of the ones inside. Where it has several packages, it
    runs around the block in each in turn. All such parts are listed, in every order of the parallelisms, once each.

    Examples
    --------
    A ring of sixteen that closes without a way back:

    >>> from placement_links import heaviest, loads
    >>> ring = strategy(data=16)
    >>> min(heaviest(loads(ring, Mesh(4), seats)).inside for seats in blocks(ring, Mesh(4)))
    1
    """
    check_fits(rings, mesh)
    sizes = [ring.chips for ring in rings]
    seen: set[bytes] = set()
    for parts in _parts(tuple(sizes), mesh):
        for nesting in itertools.permutations(i for i, size in enumerate(sizes) if size > 1):
            seats = np.zeros((*sizes, 3), dtype=np.int64)
            stride = np.ones(3, dtype=np.int64)
            for i in nesting:
                shape = [1] * len(sizes)
                shape[i] = sizes[i]
                seats += (_around(*parts[i]) * stride).reshape(*shape, 3)
                stride *= parts[i]
            flat = seats.reshape(-1, 3)
            if flat.tobytes() not in seen:
                seen.add(flat.tobytes())
                yield flat


def _parts(sizes: tuple[int, ...], mesh: Mesh) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Of every parallelism its packages, columns and rows: they multiply to its chips, and over all to the mesh's."""

    def split(rest: tuple[int, ...], left: tuple[int, int, int]) -> Iterator[tuple[tuple[int, int, int], ...]]:
        if not rest:
            if left == (1, 1, 1):
                yield ()
            return
        for packages, columns in itertools.product(_divisors(left[0]), _divisors(left[1])):
            rows, over = divmod(rest[0], packages * columns)
            if over == 0 and rows and left[2] % rows == 0:
                after = (left[0] // packages, left[1] // columns, left[2] // rows)
                yield from (((packages, columns, rows), *more) for more in split(rest[1:], after))

    return split(sizes, (mesh.packages, mesh.side, mesh.side))


@cache
def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)


@cache
def _around(packages: int, columns: int, rows: int) -> NDArray[np.int64]:
    """Package, x and y of each place of a ring around a block: a Hamiltonian cycle, or a path where there is none."""
    turned = rows % 2 == 1 and columns % 2 == 0
    p, q = (rows, columns) if turned else (columns, rows)
    if min(p, q) == 1 or p * q % 2:
        path = [(x, y) for x in range(p) for y in range(q)[:: -1 if x % 2 else 1]]
    else:  # q is even: back and forth over all but the first of each line, and home along those
        path = [(x, y) for y in range(q) for x in range(1, p)[:: -1 if y % 2 else 1]]
        path += [(0, y) for y in reversed(range(q))]
    corners = [(w, *(step[::-1] if turned else step)) for w in range(packages) for step in path]
    return constant(np.array(corners, dtype=np.int64))
