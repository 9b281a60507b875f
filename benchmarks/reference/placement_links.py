"""How many rings of a strategy share each link between chips, and the seats under which that is least.

Chips are meshed in their package. An edge of a ring is a route over links, X-Y:

* inside a package from the chip further left along its row, then along the column of the other chip;
* between packages from the chip in the earlier one along its row to the right edge, along that edge to the row of the
  other chip, over the link that leaves the package there, and from the left edge along that row. Packages reach one
  another directly (a switch): a route takes one link between packages, which is counted at the earlier one.

The load of a link is the number of edges over it. A ring that shares its links is slowed down by as much.

Profile ``deepflow`` counts as DeepFlow does (nanocad-lab/DeepFlow, commit 566c192, found from its figures): a hop
downwards inside a package or along its edge is counted on the link above the one that it takes, the hops along the
edge of a route to an earlier package at the package where the edge of the ring starts, and every parallelism is slowed
down by all edges together. By default routes are counted where they run, and each parallelism is slowed down by its
own edges only: parallelisms that do not talk at once do not share.

This is about chips; where tiles of a die lie is :mod:`dfopt.technology.placement`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from seats import Mesh, Ring, Seats, blocks, check_fits, constant, filled, orders

from dfopt.errors import PlanError

__all__ = ["Loads", "Placed", "Profile", "Worst", "heaviest", "loads", "placed"]

Profile = Literal["default", "deepflow"]


class Worst(NamedTuple):
    """Edges on the most loaded link, between packages and inside them."""

    between: int
    inside: int


@dataclass(frozen=True)
class Loads:
    """Edges on every link, by parallelism.

    ``x[i, w, y, n]``: those of parallelism i on the link from (n, y) to (n + 1, y) of package w; ``y[i, w, x, n]``
    from (x, n) to (x, n + 1); ``between[i, w, y]`` on the link that leaves package w from row y. Profile ``deepflow``
    has one link more in each column, beyond the last chip, because it counts one too far.
    """

    x: NDArray[np.int64]
    y: NDArray[np.int64]
    between: NDArray[np.int64]
    profile: Profile = "default"

    @cached_property
    def own(self) -> tuple[Worst, ...]:
        """Of each parallelism alone."""
        each = zip(self.between, self.x, self.y, strict=True)
        return tuple(Worst(_most(c), max(_most(x), _most(y))) for c, x, y in each)

    @cached_property
    def shared(self) -> Worst:
        """Of all parallelisms together."""
        inside = max(_most(self.x.sum(axis=0)), _most(self.y.sum(axis=0)))
        return Worst(_most(self.between.sum(axis=0)), inside)

    @cached_property
    def crosses(self) -> tuple[bool, ...]:
        """Of each parallelism whether an edge of it leaves its package."""
        return tuple(one.between > 0 for one in self.own)

    @property
    def derates(self) -> tuple[Worst, ...]:
        """By how much each parallelism is slowed down on links between packages and inside; 1 where alone, or absent.

        Its own load, or that of all together under profile ``deepflow``.
        """
        found = self.own if self.profile == "default" else (self.shared,) * len(self.x)
        return tuple(Worst(max(1, one.between), max(1, one.inside)) for one in found)


def _most(counts: NDArray[np.int64]) -> int:
    return int(counts.max(initial=0))


@cache
def _edges(rings: tuple[Ring, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of every edge of every ring its parallelism, the chip it starts from and the one it ends at."""
    sizes = [ring.chips for ring in rings]
    chips = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    kinds, starts, ends = [], [], []
    for i, (_, size, closes) in enumerate(rings):
        edges = size if closes and size > 2 else size - 1
        start = chips.take(range(edges), axis=i).ravel()
        kinds.append(np.full(start.size, i, dtype=np.int64))
        starts.append(start)
        ends.append(np.roll(chips, -1, axis=i).take(range(edges), axis=i).ravel())
    kind, start, end = map(constant, (np.concatenate(kinds), np.concatenate(starts), np.concatenate(ends)))
    return kind, start, end


def loads(rings: Sequence[Ring], mesh: Mesh, seats: Seats, profile: Profile = "default") -> Loads:
    """Route every edge of every ring, and count those on each link.

    Raises
    ------
    PlanError
        If seats are not those of the mesh, one chip each, or there is no such profile.

    Examples
    --------
    Data up the columns, k1 between neighbours, k2 over two columns:

    >>> from seats import fill, strategy
    >>> rings, mesh = strategy(k1=2, k2=2, data=4), Mesh(4)
    >>> found = loads(rings, mesh, fill(rings, mesh, ("data", "k1", "k2")))
    >>> [one.inside for one in found.own], found.shared
    ([1, 2, 2, 0], Worst(between=0, inside=2))
    """
    check_fits(rings, mesh)
    if profile not in get_args(Profile):
        raise PlanError(f"$.profile: found {profile!r}, expected {' or '.join(get_args(Profile))}")
    side, packages = mesh
    places: Any = (packages, side, side)
    seats = np.asarray(seats, dtype=np.int64)
    count = packages * side * side
    # as many chips as seats: one that is taken twice leaves another one empty
    sound = seats.shape == (count, 3) and bool(((seats >= 0) & (seats < places)).all())
    if not sound or np.unique(np.ravel_multi_index(tuple(seats.T), places)).size < count:
        raise PlanError(f"$.seats: expected package, x and y of {count} chips, a seat each of {mesh}; found others")
    kind, start, end = _edges(tuple(rings))
    a, b = seats[start], seats[end]
    begins = a[:, 0]
    back = (a[:, 0] > b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] > b[:, 1]))
    a, b = np.where(back[:, None], b, a), np.where(back[:, None], a, b)
    (wa, xa, ya), (wb, xb, yb) = a.T, b.T
    leaves = wa != wb
    edge = side - 1
    # A run from n to m is +1 at n and -1 at m: summed up, that is 1 on each link from n to m.
    shape = (len(rings), packages, side, side + 1)
    off = kind[leaves], wb[leaves], yb[leaves]
    along_x = _runs(shape, (kind, wa, ya), xa, np.where(leaves, edge, xb))
    along_x += _runs(shape, off, np.zeros_like(off[0]), xb[leaves])
    low, high, where = np.minimum(ya, yb), np.maximum(ya, yb), wa
    if profile == "deepflow":
        down = ya > yb
        low, high, where = low + down, high + down, np.where(leaves, begins, wa)
    along_y = _runs(shape, (kind, where, np.where(leaves, edge, xb)), low, high)
    out = np.ravel_multi_index((kind[leaves], wa[leaves], yb[leaves]), shape[:3])
    between = np.bincount(out, minlength=math.prod(shape[:3])).reshape(shape[:3])
    return Loads(along_x[..., :edge], along_y[..., : side if profile == "deepflow" else edge], between, profile)


def _runs(
    shape: tuple[int, ...], line: tuple[NDArray[np.int64], ...], low: NDArray[np.int64], high: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Runs over each link of each line."""
    size = math.prod(shape)
    up = np.bincount(np.ravel_multi_index((*line, low), shape), minlength=size)
    up -= np.bincount(np.ravel_multi_index((*line, high), shape), minlength=size)
    return np.cumsum(up.reshape(shape), axis=-1)


class Placed(NamedTuple):
    """Seats, what they load, and where they are from: an order of `fill`, or nothing for `blocks`."""

    seats: Seats
    loads: Loads
    order: tuple[str, ...] | None


def heaviest(found: Loads) -> Worst:
    """The largest derates of any parallelism: between packages, then inside them.

    What `placed` makes small by default.
    """
    return Worst(max(one.between for one in found.derates), max(one.inside for one in found.derates))


def placed(
    rings: Sequence[Ring], mesh: Mesh, cost: Callable[[Loads], Any] = heaviest, profile: Profile = "default"
) -> Placed:
    """Of all orders of `fill` and all `blocks` the first that costs least; under ``deepflow`` of its orders alone.

    Parameters
    ----------
    rings : sequence of Ring
    mesh : Mesh
    cost : callable
        What comes first is better: seconds of a step whose collectives have the bandwidths that the loads leave them,
        for one. By default the heaviest load on links between packages, and of equal ones that inside.
    profile : {"default", "deepflow"}

    Raises
    ------
    PlanError
        If there are not as many chips as seats, or no placement is known that fills them.

    Examples
    --------
    Sixteen chips in data parallel: back and forth over the columns leaves a way back along the bottom row, around a
    block there is none.

    >>> from seats import fill, strategy
    >>> best = placed(strategy(data=16), Mesh(4))
    >>> heaviest(best.loads).inside, best.order
    (1, None)
    >>> heaviest(loads(strategy(data=16), Mesh(4), fill(strategy(data=16), Mesh(4), ("data",)))).inside
    2
    """
    check_fits(rings, mesh)
    found: list[tuple[Seats, tuple[str, ...] | None]] = []
    for order in orders(rings):
        if (seats := filled(rings, mesh, order)) is not None:
            found.append((seats, order))
    if profile == "default":
        found += [(seats, None) for seats in blocks(rings, mesh)]
    choices = (Placed(seats, loads(rings, mesh, seats, profile), order) for seats, order in found)
    best = min(choices, key=lambda one: cost(one.loads), default=None)
    if best is None:
        raise PlanError(f"$: found no order and no blocks of {rings} that fill {mesh} (change a degree)")
    return best
