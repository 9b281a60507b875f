"""Named topologies: every collective on every one of them, simulated on its links, against the formulas on its dims."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import pytest
import step_simulator as sim
from hypothesis import given
from hypothesis import strategies as st
from step_costs import bisection_bound
from step_network import Chip, Item, Links

from dfopt.documents.system import Link, NetworkDim
from dfopt.errors import SystemSpecError
from dfopt.machines.compose import compose
from dfopt.machines.topologies import TOPOLOGIES, expand
from dfopt.physics.collectives import Collective, Dim, affine_cost
from dfopt.physics.network import dim_of

VOLUME, REL = 3.7e6, 1e-9
STEPPED = [kind for kind in Collective if kind is not Collective.POINT_TO_POINT]
# Each level slower and farther than the one inside, and none a round multiple: a swapped figure shows.
LINKS = [Link(bandwidth=97e9 / 3.1**i, latency=0.7e-6 * 2.3**i) for i in range(4)]

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "ring": [(2,), (5,), (48,)],
    "line": [(2,), (6,), (7,), (40,)],
    "switch": [(2,), (6,), (64,)],
    "fully_connected": [(2,), (5,), (64,)],
    "torus": [(2, 2), (4, 3), (8, 8), (3, 2, 2), (4, 4, 4), (2, 3, 2, 2)],
    "mesh": [(2, 3), (4, 4), (8, 8), (3, 2, 4), (2, 2, 2, 3)],
    "dgx_1": [(4, 2), (8, 3), (8, 8)],
    "dgx_2": [(2, 2), (4, 3), (8, 8)],
    "zionex": [(4, 3), (8, 8)],
    "rail_only": [(4, 3), (8, 8)],
    "dragonfly": [(1, 4), (2, 2), (2, 3), (4, 5), (3, 7), (8, 8)],
    "fat_tree": [(4, 2), (2, 5), (8, 8), (2, 3, 4), (2, 2, 2, 3)],
    "wafer": [()],
}
CASES = [(name, sizes) for name, shapes in SHAPES.items() for sizes in shapes]


def dims_of(network: tuple[NetworkDim, ...]) -> list[Dim]:
    return [dim_of(dim) for dim in network]


# ----------------------------------------------------------- wirings that are no product of dims


def dragonfly(chips: int, groups: int, local: Link, between: Link) -> sim.Wires:
    """Groups of fully connected chips; one link between each two groups, dealt to the chips of a group in turn."""
    graph = nx.DiGraph()

    def gateway(here: int, there: int) -> Chip:
        return ((there - here - 1) % groups % chips, here)

    for group in range(groups):
        for i, j in itertools.permutations(range(chips), 2):
            graph.add_edge((i, group), (j, group), bandwidth=local.bandwidth, latency=local.latency)
    for a, b in itertools.permutations(range(groups), 2):
        graph.add_edge(gateway(a, b), gateway(b, a), bandwidth=between.bandwidth, latency=between.latency)

    def route(src: Chip, dst: Chip, item: Item) -> Links:
        stops = [src] if src[1] == dst[1] else [src, gateway(src[1], dst[1]), gateway(dst[1], src[1])]
        stops.append(dst)
        return [(a, b) for a, b in itertools.pairwise(stops) if a != b]

    return sim.Wires(graph, route)


def fat_tree(sizes: tuple[int, ...], links: list[Link], taper: tuple[float, ...]) -> sim.Wires:
    """A tree of switches: what a switch has upwards is what its chips have, divided by the taper."""
    graph = nx.DiGraph()
    chips = list(itertools.product(*map(range, sizes)))
    upwards = links[0].bandwidth
    rates = [upwards]  # per chip, into the switches of each level
    for link, factor in zip(links[1:], taper, strict=True):
        upwards = min(upwards, link.bandwidth) / factor
        rates.append(upwards)
    for chip in chips:
        below: Chip | tuple[str, int, Chip] = chip
        for level, link in enumerate(links):
            switch = ("switch", level, chip[level + 1 :])
            wide = rates[level] * math.prod(sizes[:level])
            graph.add_edge(below, switch, bandwidth=wide, latency=link.latency)
            graph.add_edge(switch, below, bandwidth=wide, latency=0.0)
            below = switch

    def route(src: Chip, dst: Chip, item: Item) -> Links:
        top = max(k for k in range(len(src)) if src[k] != dst[k])
        up = [src, *(("switch", level, src[level + 1 :]) for level in range(top + 1))]
        down = [*(("switch", level, dst[level + 1 :]) for level in range(top, -1, -1)), dst]
        return [*itertools.pairwise(up), *itertools.pairwise(down)]

    return sim.Wires(graph, route)


# ---------------------------------------------------------------------------------- the matrix


@pytest.mark.parametrize("kind", STEPPED)
@pytest.mark.parametrize(("name", "sizes"), CASES, ids=str)
def test_every_collective_on_every_topology(name: str, sizes: tuple[int, ...], kind: Collective) -> None:
    links = LINKS[: len(sizes)]
    network = expand(name, sizes, links)
    assert tuple(dim.size for dim in network) == sizes
    dims, wires = dims_of(network), None
    if name == "dragonfly":
        wires = dragonfly(*sizes, *links)
    elif name == "fat_tree":
        wires = fat_tree(sizes, links, (1.0,) * (len(sizes) - 1))
    run = sim.fastest(kind, VOLUME, dims, wires)
    cost = affine_cost(kind, dims, together=False)
    assert cost.per_byte * VOLUME == pytest.approx(run.transfer_seconds, rel=REL)
    if name == "dragonfly" and 1 < sizes[0] <= 2:
        # With two chips in a group every chip has a global link next to it or at the other end: a hop less.
        assert run.latency_seconds <= cost.fixed * (1 + REL)
    else:
        assert cost.fixed == pytest.approx(run.latency_seconds, rel=REL)
    if kind is Collective.ALL_TO_ALL:
        bound = bisection_bound(dims, VOLUME)
        assert bound * (1 - REL) <= run.transfer_seconds <= max(len(sizes), 1) * bound * (1 + REL)
        # at once: the slowest dim; but what goes up through a leaf, or over links of a group, has no links of its own
        least = run.transfer_seconds if name in ("dragonfly", "fat_tree") else bound
        assert affine_cost(kind, dims).per_byte * VOLUME == pytest.approx(least, rel=REL)


@pytest.mark.parametrize("sizes", [(2, 3), (2, 5), (3, 8), (4, 5), (4, 13)], ids=str)
@pytest.mark.parametrize("kind", STEPPED)
def test_dragonfly_with_slow_local_links(kind: Collective, sizes: tuple[int, int]) -> None:
    """Where the local links on the way are what is narrow, the dim is never faster than the links, at most 2 times
    slower: the formula takes every gateway to be loaded both ways as fully as the busiest link may be."""
    links = [Link(bandwidth=1e9, latency=1e-6), Link(bandwidth=40e9, latency=2e-6)]
    dims = dims_of(expand("dragonfly", sizes, links))
    run = sim.fastest(kind, VOLUME, dims, dragonfly(*sizes, *links))
    cost = affine_cost(kind, dims).per_byte * VOLUME
    assert run.transfer_seconds * (1 - REL) <= cost <= 2 * run.transfer_seconds * (1 + REL)


@pytest.mark.parametrize("kind", STEPPED)
@pytest.mark.parametrize(
    ("sizes", "taper"),
    [((4, 3), (2.0,)), ((2, 3, 2), (3.0, 1.0)), ((2, 2, 3), (1.0, 4.0)), ((2, 2, 2, 2), (2.0, 1.5, 2.0))],
)
def test_a_tapered_fat_tree(kind: Collective, sizes: tuple[int, ...], taper: tuple[float, ...]) -> None:
    # The links do not narrow upwards here: it is the taper, and the port of the chip, that limit the upper levels.
    links = [Link(bandwidth=50e9 * (1 + i), latency=1e-6 * (i + 1)) for i in range(len(sizes))]
    network = expand("fat_tree", sizes, links, taper=taper)
    dims = dims_of(network)
    assert [dim.link_bandwidth for dim in network] == pytest.approx(
        [50e9 / math.prod(taper[:i]) for i in range(len(sizes))]
    )
    run, cost = sim.fastest(kind, VOLUME, dims, fat_tree(sizes, links, taper)), affine_cost(kind, dims)
    assert cost.per_byte * VOLUME == pytest.approx(run.transfer_seconds, rel=REL)
    assert cost.fixed == pytest.approx(run.latency_seconds, rel=REL)


# ------------------------------------------------------------------------------------- figures


def test_every_name_is_tested_and_says_what_it_is() -> None:
    assert set(SHAPES) == set(TOPOLOGIES)
    for name, known in TOPOLOGIES.items():
        assert known.name == name
        assert known.description and known.source
        assert all(known.takes(len(sizes)) for sizes in SHAPES[name])


def test_one_link_serves_all_dims_and_tiers_are_kept() -> None:
    links = [Link(bandwidth=1e9, tier="node"), Link(bandwidth=1e8, tier="cluster")]
    assert [dim.tier for dim in expand("dgx_2", (8, 4), links)] == ["node", "cluster"]
    assert [dim.link_bandwidth for dim in expand("torus", (2, 3, 4), links[:1])] == [1e9] * 3


def test_names_of_dims() -> None:
    assert [dim.name for dim in expand("mesh", (2, 2), LINKS[:1])] == ["x", "y"]
    assert [dim.name for dim in expand("mesh", (2, 2), LINKS[:1], ["rows", "columns"])] == ["rows", "columns"]


@given(st.sampled_from(CASES), st.floats(1, 10))
def test_better_links_never_hurt(case: tuple[str, tuple[int, ...]], factor: float) -> None:
    name, sizes = case
    faster = [Link(bandwidth=link.bandwidth * factor, latency=link.latency) for link in LINKS]
    slow, fast = (dims_of(expand(name, sizes, links[: len(sizes)])) for links in (LINKS, faster))
    for kind in STEPPED:
        assert affine_cost(kind, fast).per_byte <= affine_cost(kind, slow).per_byte * (1 + REL)


# ---------------------------------------------------------------------------------------- errors

ONE = Link(bandwidth=1e9)


@pytest.mark.parametrize(
    ("topology", "sizes", "links", "more", "where", "says"),
    [
        ("tours", (2, 2), [ONE], {}, "$.topology", "did you mean 'torus'"),
        ("hyperx", (2, 2), [ONE], {}, "$.topology", "dragonfly"),
        ("torus", (8,), [ONE], {}, "$.sizes", "found 1 sizes, expected 2 to 4"),
        ("dragonfly", (2, 2, 2), [ONE], {}, "$.sizes", "expected 2 for dragonfly"),
        ("wafer", (1,), [ONE], {}, "$.sizes", "found 1 sizes, expected 0"),
        ("torus", (2, 0), [ONE], {}, "$.sizes[1]", "found 0, expected a whole number of 1 or more"),
        ("ring", (2.0,), [ONE], {}, "$.sizes[0]", "whole number"),
        ("ring", (True,), [ONE], {}, "$.sizes[0]", "whole number"),
        ("torus", (2, 2, 2), [ONE, ONE], {}, "$.links", "found 2 links, expected 1 or 3"),
        ("torus", (2, 2), [], {}, "$.links", "found 0 links"),
        ("torus", (2, 2), [ONE], {"names": ["x"]}, "$.names", "found 1 names, expected 2"),
        ("torus", (2, 2), [ONE], {"taper": [2.0]}, "$.taper", "only a fat_tree is tapered"),
        ("fat_tree", (2, 2), [ONE], {"taper": [2.0, 2.0]}, "$.taper", "found 2 tapers, expected 1"),
        ("fat_tree", (2, 2), [ONE], {"taper": [0.5]}, "$.taper[0]", "found 0.5, expected a finite number of 1 or more"),
        ("fat_tree", (2, 2), [ONE], {"taper": [math.nan]}, "$.taper[0]", "finite"),
    ],
)
def test_one_clear_error(
    topology: str, sizes: tuple[int, ...], links: list[Link], more: dict[str, list[float]], where: str, says: str
) -> None:
    with pytest.raises(SystemSpecError) as caught:
        expand(topology, sizes, links, **more)  # type: ignore[arg-type]
    (issue,) = caught.value.issues
    assert issue.where == where
    assert says in issue.text


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SystemSpecError) as caught:
        expand("dgx_2", (0, 2, 3), [ONE, ONE], ["a"], taper=[0.5])
    places = [issue.where for issue in caught.value.issues]
    assert places == ["$.sizes", "$.sizes[0]", "$.links", "$.names", "$.taper", "$.taper[0]"]


@pytest.mark.parametrize("topology", ["torus", ["ring", "switch"]])
def test_the_packets_of_a_link_are_those_of_its_dims(topology: object) -> None:
    """Named topologies and plain products alike."""
    link = {"bandwidth": "25 GB/s", "packet_payload": "256 B", "packet_header": "32 B"}
    made = compose(chip="sn30", memory="ddr4", network={"topology": topology, "sizes": [4, 2], "links": link})
    assert [(dim.packet_payload, dim.packet_header) for dim in made.network] == [(256.0, 32.0)] * 2
