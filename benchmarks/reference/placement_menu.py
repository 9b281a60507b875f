"""Where `dfopt.optimize` may lay the chips of four parallelisms, against every order of DeepFlow's fill.

The chips of a package are on a grid of lines, and each has a port of a switch between packages. An order of the fill
seats them; its rings go along x, then along y, then through the port, and the most loaded link or port of a parallelism
sets the pace of its rings. Of the placements that a search lists, one has to take no longer than the order in any
collective of any parallelism, whatever the bytes: in the time per byte and in the latency.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from seats import Mesh, Ring, filled, orders

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.axes import Dims
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.physics.collectives import Collective
from dfopt.physics.network import affine
from dfopt.setting.orders import Orders
from dfopt.setting.plans import placed_dims
from dfopt.setting.shares import shares

AXES = ("tp", "mp", "dp", "pp")  # for DeepFlow's k1, k2, data and pipeline, in this order
HOP, SWITCH = 1.0, 5.0  # latencies of a link inside a package and through the switch
Price = tuple[float, ...]  # of the collectives of a parallelism: seconds per byte, and latencies


class Pace(NamedTuple):
    """Edges over the most loaded link inside packages and over the most loaded port, and the longest way of an edge."""

    inside: int
    port: int
    latency: float


def paces(rings: Sequence[Ring], mesh: Mesh, order: Sequence[str]) -> list[Pace] | None:
    """Those of each parallelism under an order of the fill, every edge walked; none where it leaves gaps."""
    seats = filled(rings, mesh, order)
    if seats is None:
        return None
    sizes = [ring.chips for ring in rings]
    at = dict(zip(itertools.product(*map(range, sizes)), map(tuple, seats.tolist()), strict=True))
    found = []
    for axis, ring in enumerate(rings):
        links, ports, slowest = Counter[tuple[object, ...]](), Counter[tuple[int, int, int]](), 0.0
        for chip, (package, x, y) in at.items():
            after = chip[axis] + 1
            if after == ring.chips and not (ring.closes and ring.chips > 2):
                continue
            to, to_x, to_y = at[(*chip[:axis], after % ring.chips, *chip[axis + 1 :])]
            for low in range(min(x, to_x), max(x, to_x)):
                links[package, "x", y, low] += 1
            for low in range(min(y, to_y), max(y, to_y)):
                links[package, "y", to_x, low] += 1
            if to != package:
                ports[package, to_x, to_y] += 1
                ports[to, to_x, to_y] += 1
            slowest = max(slowest, HOP * (abs(to_x - x) + abs(to_y - y)) + SWITCH * (to != package))
        found.append(Pace(max(links.values(), default=0), max(ports.values(), default=0), slowest))
    return found


def priced(ring: Ring, pace: Pace, port: float) -> Price:
    """The collectives of a parallelism as rings of that pace; links inside packages have 1 B/s, ports so many."""
    if ring.chips == 1:
        return ()
    slow = max(pace.inside, pace.port / port)
    if not ring.closes:  # one chip sends to the next
        return slow, pace.latency
    gathered = (ring.chips - 1) / ring.chips / (1 if ring.chips == 2 else 2)
    return gathered * slow, (ring.chips - 1) * pace.latency, 2 * gathered * slow, 2 * (ring.chips - 1) * pace.latency


def machine(mesh: Mesh, port: float) -> System:
    """Packages on a switch."""
    dims = [
        NetworkDim(name=name, topology="line", size=mesh.side, link_bandwidth=1.0, latency=HOP, tier="package")
        for name in "xy"
    ]
    node = NetworkDim(name="node", topology="switch", size=mesh.packages, link_bandwidth=port, latency=SWITCH)
    chip = Chip(name="c", tiles=1, peak=1.0, sram=Sram(capacity=1), dram=Dram(bandwidth=1))
    return System(name="packages", chip=chip, network=(*dims, *([node] if mesh.packages > 1 else [])))


class Menu:
    """All placements of strategies on the packages of a mesh."""

    def __init__(self, mesh: Mesh, port: float, strategies: Iterable[tuple[int, ...]]) -> None:
        self._system, self._assumptions = machine(mesh, port), Assumptions()
        placed = placed_dims(self._system, self._assumptions)
        graph = Graph(name="any", kernels=(Kernel(name="any", op="gemm", m=1, k=1, n=1),))
        self._ways = Orders(graph, self._system, self._assumptions, placed).ways
        wanted = set(strategies)
        self._of: dict[tuple[int, ...], set[tuple[Dims, ...]]] = defaultdict(set)
        for degrees, shared in shares(self._system.network, True, placed, axes=AXES):
            key = tuple(degrees[axis] for axis in AXES)
            if key in wanted:
                self._of[key].add(tuple(shared[axis] for axis in AXES))
        self._known: dict[tuple[Dims, bool], list[Price]] = {}

    def _prices(self, dims: Dims, closes: bool) -> list[Price]:
        """Of every way to use some dims."""
        if (dims, closes) not in self._known:
            kinds = (Collective.ALL_GATHER, Collective.ALL_REDUCE) if closes else (Collective.POINT_TO_POINT,)
            self._known[dims, closes] = [
                tuple(one for kind in kinds for one in affine(kind, way, self._system, self._assumptions))
                for way in self._ways(dims)
            ]
        return self._known[dims, closes]

    def as_fast(self, rings: Sequence[Ring], most: Sequence[Price]) -> bool:
        """Whether one of the placements takes no longer in anything."""

        def within(price: Price, limit: Price) -> bool:
            return all(one <= other * (1 + 1e-9) for one, other in zip(price, limit, strict=False))

        degrees = tuple(ring.chips for ring in rings)
        return any(
            all(
                ring.chips == 1 or any(within(price, limit) for price in self._prices(dims, ring.closes))
                for ring, dims, limit in zip(rings, shared, most, strict=True)
            )
            for shared in self._of[degrees]
        )


def orders_met(mixes: Iterable[tuple[Sequence[Ring], Mesh]], ports: Sequence[float]) -> Iterator[bool]:
    """Of every order of every strategy on a mesh whether some placement is as fast, with ports of each bandwidth."""
    of_mesh: dict[Mesh, list[Sequence[Ring]]] = defaultdict(list)
    for rings, mesh in mixes:
        of_mesh[mesh].append(rings)
    for mesh, several in of_mesh.items():
        strategies = [tuple(ring.chips for ring in rings) for rings in several]
        menus = {port: Menu(mesh, port, strategies) for port in ports}
        for rings in several:
            for order in orders(rings):
                if (found := paces(rings, mesh, order)) is None:
                    continue
                for port, menu in menus.items():
                    most = [priced(ring, pace, port) for ring, pace in zip(rings, found, strict=True)]
                    yield menu.as_fast(rings, most)
