"""Brute-force oracle, part 1: explicit directed links, and transfers over them that load them and move data.

Nothing here uses a formula of `dfopt.physics`. A step is a list of transfers that happen at the same time. It lasts
(bytes on the busiest link) / bandwidth, plus the latency of the longest path used in it. Chips can only send what
they held when the step began; at the end of a run `step_simulator` checks that each chip holds exactly what the
collective promises (for reductions: every contribution once and only once).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import networkx as nx

from dfopt.physics.collectives import Dim, Topology

Chip = tuple[int, ...]  # one coordinate per dimension
Item = Hashable
Node = Hashable  # a chip, or a switch: a tuple that begins with a word
Links = list[tuple[Node, Node]]
Router = Callable[[Chip, Chip, Item], Links]


def chips_of(dims: Sequence[Dim]) -> list[Chip]:
    return list(itertools.product(*(range(dim.size) for dim in dims)))


def at(chip: Chip, axis: int, value: int) -> Chip:
    """`chip` with one coordinate replaced."""
    return (*chip[:axis], value, *chip[axis + 1 :])


def is_switch(node: Node) -> bool:
    return isinstance(node, tuple) and isinstance(node[0], str)


def network(dims: Sequence[Dim]) -> nx.DiGraph:
    """Cartesian product of the dimensions; parallel edges of a ring of two collapse into one link."""
    graph = nx.DiGraph()
    chips = chips_of(dims)
    graph.add_nodes_from(chips)
    for axis, dim in enumerate(dims):
        attrs = {"bandwidth": dim.bandwidth, "latency": dim.latency}
        for chip in chips:
            if dim.topology is Topology.RING and dim.size > 1:
                for step in (1, -1):
                    graph.add_edge(chip, at(chip, axis, (chip[axis] + step) % dim.size), **attrs)
            elif dim.topology is Topology.LINE and chip[axis] + 1 < dim.size:
                neighbour = at(chip, axis, chip[axis] + 1)
                graph.add_edge(chip, neighbour, **attrs)
                graph.add_edge(neighbour, chip, **attrs)
            elif dim.topology is Topology.FULLY_CONNECTED:
                for j in range(dim.size):
                    if j != chip[axis]:
                        graph.add_edge(chip, at(chip, axis, j), **attrs)
            elif dim.topology is Topology.SWITCH:
                switch = ("switch", axis, at(chip, axis, -1))
                graph.add_node(switch, adds=dim.in_network_reduction)
                graph.add_edge(chip, switch, **attrs)
                graph.add_edge(switch, chip, bandwidth=dim.bandwidth, latency=0.0)  # one latency in all
    return graph


def neighbours(graph: nx.DiGraph) -> Router:
    """The link, or the two links through the one switch, between chips adjacent in a dimension."""

    def route(src: Chip, dst: Chip, item: Item) -> Links:
        if graph.has_edge(src, dst):
            return [(src, dst)]
        axis = next(k for k in range(len(src)) if src[k] != dst[k])
        switch = ("switch", axis, at(src, axis, -1))
        assert graph.has_edge(src, switch) and graph.has_edge(switch, dst), f"no link from {src} to {dst}"
        return [(src, switch), (switch, dst)]

    return route


def along(whole: Dim) -> Router:
    """Links of a ring or line between any two of its chips, the short way; half 1 of an item goes the other
    way round where both are as long."""

    def route(src: Chip, dst: Chip, item: Item) -> Links:
        n, (a,), (b,) = whole.size, src, dst
        if whole.topology is Topology.LINE:
            way, count = (1, b - a) if b > a else (-1, a - b)
        else:
            right, left = (b - a) % n, (a - b) % n
            assert isinstance(item, tuple)
            way = 1 if right < left or (right == left and item[-1] == 0) else -1
            count = min(right, left)
        return [(((a + way * k) % n,), ((a + way * (k + 1)) % n,)) for k in range(count)]

    return route


@dataclass
class Run:
    """State of the chips and time spent. `held[chip][item]` is the tuple of contributions in it.

    `places` maps the chips of a collective to those of the network. Several of them are as many groups that do the same
    at the same time: each loads the links, the data is moved once.
    """

    graph: nx.DiGraph
    item_bytes: float
    router: Router | None = None
    places: Sequence[Callable[[Chip], Chip]] = (lambda chip: chip,)
    held: dict[Chip, dict[Item, tuple[Chip, ...]]] = field(default_factory=lambda: defaultdict(dict))
    transfer_seconds: float = 0.0
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.route: Router = self.router or neighbours(self.graph)

    @property
    def seconds(self) -> float:
        return self.transfer_seconds + self.latency_seconds

    def step(self, transfers: Iterable[tuple[Chip, Chip, Item]], mode: str) -> None:
        """All `transfers` at once; `mode` is copy (source keeps), move, reduce (move and add up) or add (copy and
        add up)."""
        arrivals, departures = [], []
        counts: dict[tuple[Chip, Chip, int], int] = defaultdict(int)  # items of a kind that take the same way
        sample: dict[tuple[Chip, Chip, int], Item] = {}
        for src, dst, item in transfers:
            assert item in self.held[src], f"{src} sends {item} before it has it"
            arrivals.append((dst, item, self.held[src][item]))
            departures.append((src, item))
            key = (src, dst, item[-1] if isinstance(item, tuple) else 0)
            counts[key] += 1
            sample[key] = item
        load: dict[tuple[Node, Node], float] = defaultdict(float)
        peers: dict[tuple[Node, Node], set[Chip]] = defaultdict(set)
        latency = 0.0
        for (src, dst, half), count in counts.items():
            for place in self.places:
                here, there = place(src), place(dst)
                path = self.route(here, there, sample[src, dst, half])
                for link in path:
                    load[link] += count * self.item_bytes
                if is_switch(path[0][1]):  # a port serves one message per step: this is what counts the rounds
                    peers[path[0]].add(there)
                    peers[path[-1]].add(here)
                latency = max(latency, sum(self.graph.edges[link]["latency"] for link in path))
        assert all(len(who) == 1 for who in peers.values()), "a switch port with two messages in a step"
        self._apply(arrivals, departures if mode in ("move", "reduce") else [], adds=mode in ("reduce", "add"))
        self._spend(load, latency)

    def switch_step(self, flows: Iterable[tuple[Sequence[Chip], Sequence[Chip], Item]], mode: str) -> None:
        """Switches that add and multicast: what the sources send up is added, and the sum sent down to the targets.

        Modes: copy (targets lack the item), reduce (sources give it away, targets add it to theirs), total (the
        sum takes the place of the target's own).
        """
        load: dict[tuple[Node, Node], float] = defaultdict(float)
        arrivals, departures, latency = [], [], 0.0
        for sources, targets, item in flows:
            total: tuple[Chip, ...] = ()
            for src in sources:
                assert item in self.held[src], f"{src} sends {item} before it has it"
                total += self.held[src][item]
                departures.append((src, item))
            for place in self.places:
                ups = {self.route(place(s), place(t), item)[0] for s in sources for t in targets if s != t}
                downs = {self.route(place(s), place(t), item)[-1] for s in sources for t in targets if s != t}
                assert all(self.graph.nodes[link[1]]["adds"] for link in ups), "this switch does not add"
                for link in ups | downs:
                    load[link] += self.item_bytes
                latency = max([latency, *(self.graph.edges[link]["latency"] for link in ups)])
            arrivals += [(dst, item, total) for dst in targets]
        self._apply(arrivals, departures if mode in ("reduce", "total") else [], adds=mode == "reduce")
        self._spend(load, latency)

    def _apply(
        self, arrivals: list[tuple[Chip, Item, tuple[Chip, ...]]], departures: list[tuple[Chip, Item]], adds: bool
    ) -> None:
        for src, item in set(departures):
            del self.held[src][item]
        for dst, item, parts in arrivals:
            if adds:
                parts = self.held[dst].get(item, ()) + parts
            else:
                assert item not in self.held[dst], f"{dst} gets {item} twice"
            self.held[dst][item] = parts

    def _spend(self, load: dict[tuple[Node, Node], float], latency: float) -> None:
        times = (size / self.graph.edges[link]["bandwidth"] for link, size in load.items())
        self.transfer_seconds += max(times, default=0.0)
        self.latency_seconds += latency
