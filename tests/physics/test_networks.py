"""Parts of dims, cuts, routes and measured factors: `dfopt.physics` against simulations and lower bounds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
import step_simulator as sim
from hypothesis import given
from hypothesis import strategies as st
from step_costs import bisection_bound, seconds
from step_network import along, is_switch

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import Chip, CollectiveFactor, Dram, NetworkDim, Sram, System
from dfopt.physics.collectives import Collective, CollectiveModel, Dim, DimFit, Topology, affine_cost
from dfopt.physics.network import communication_seconds, dim_of, dims_of

VOLUME, BANDWIDTH, LATENCY, REL = 3.7e6, 25e9, 1.3e-6, 1e-9
KINDS = list(Collective)
STEPPED = [kind for kind in KINDS if kind is not Collective.POINT_TO_POINT]
TOPOLOGIES = [topology.value for topology in Topology]


def wired(topology: str, size: int, name: str = "x", bandwidth: float = BANDWIDTH, **more: object) -> NetworkDim:
    return NetworkDim(
        name=name, topology=topology, size=size, link_bandwidth=bandwidth, latency=more.pop("latency", LATENCY), **more
    )


def machine(*network: NetworkDim, overhead: float = 0.0) -> System:
    chip = Chip(name="c", tiles=1, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9))
    return System(name="s", chip=chip, network=network, collective_overhead=overhead)


# ------------------------------------------------------------------- parts: all groups at once


def parts(size: int) -> list[tuple[int, int]]:
    """(chips, stride) of all parts of a dim that are neither the whole nor single chips."""
    return [(count, stride) for count in range(2, size) for stride in range(1, size) if size % (count * stride) == 0]


def on_the_whole(whole: NetworkDim, size: int, stride: int) -> sim.Wires:
    """The links of the whole dim, used by all its groups of `size` chips `stride` apart."""
    d = dim_of(whole)
    graph = sim.network([d])
    starts = [i for i in range(d.size) if i // stride % size == 0]
    places = [lambda chip, start=start: (start + stride * chip[0],) for start in starts]
    assert sorted(place((k,))[0] for place in places for k in range(size)) == list(range(d.size))
    return sim.Wires(graph, along(d) if d.topology in (Topology.RING, Topology.LINE) else sim.neighbours(graph), places)


PARTS = [(n, *part) for n in (4, 6, 8, 9, 12) for part in parts(n)]


@pytest.mark.parametrize("topology", [*TOPOLOGIES, "adds"])
@pytest.mark.parametrize("kind", STEPPED)
def test_a_part_takes_the_time_of_all_groups_at_once(kind: Collective, topology: str) -> None:
    """``adds``: a switch that reduces."""
    for whole, size, stride in PARTS:
        dim = wired("switch", whole, in_network_reduction=True) if topology == "adds" else wired(topology, whole)
        part = dim_of(dim.part(size, stride))
        run = sim.fastest(kind, VOLUME, [part], on_the_whole(dim, size, stride))
        cost = affine_cost(kind, [part])
        assert cost.per_byte * VOLUME == pytest.approx(run.transfer_seconds, rel=REL), (whole, size, stride)
        assert cost.fixed == pytest.approx(run.latency_seconds, rel=REL), (whole, size, stride)


def test_dims_of_understands_parts() -> None:
    ring = wired("ring", 8, packet_payload=1000.0, packet_header=36.0)
    system = machine(ring, wired("switch", 4, "y", in_network_reduction=True))
    inner, outer, y = dims_of(system, ["x[4]", "x[2@4]", "y"])
    assert (inner.topology, inner.size, inner.bandwidth, inner.latency) == (Topology.LINE, 4, BANDWIDTH, LATENCY)
    assert (outer.topology, outer.size, outer.bandwidth) == (Topology.RING, 2, BANDWIDTH / 2)
    assert outer.latency == pytest.approx(4 * LATENCY)
    assert (inner.packet_payload, inner.packet_header) == (1000.0, 36.0)
    assert y.in_network_reduction and not inner.in_network_reduction


# ----------------------------------------------------------------------- cuts of the network

small = st.lists(
    st.builds(
        lambda topology, size, bandwidth: Dim("d", Topology(topology), size, bandwidth),
        st.sampled_from(TOPOLOGIES),
        st.integers(1, 5),
        st.floats(1e9, 1e11),
    ),
    min_size=1,
    max_size=3,
).filter(lambda dims: math.prod(d.size for d in dims) <= 32)


@given(small, st.booleans())
def test_no_exchange_beats_the_cuts(dims: list[Dim], twice: bool) -> None:
    """One dim after the other takes the sum of the dims' own bounds; no simulated order takes less than the largest,
    which is what all dims at once take."""
    dims = [replace(d, name=f"d{position}") for position, d in enumerate(dims)]
    forward = list(range(len(dims)))
    lanes_share_ports = any(d.topology is Topology.SWITCH for d in dims)  # two rounds of a switch do not mix
    orders = [forward, forward[::-1]] if twice and len(dims) == 2 and not lanes_share_ports else [forward]
    run = sim.simulate(Collective.ALL_TO_ALL, VOLUME, dims, orders=orders)
    bound = bisection_bound(dims, VOLUME)
    assert run.transfer_seconds >= bound * (1 - REL)
    chips = math.prod(d.size for d in dims)
    each = [bisection_bound([d], VOLUME) * d.size / chips for d in dims]
    assert bound == pytest.approx(max(each), rel=REL)
    in_turn = affine_cost(Collective.ALL_TO_ALL, dims, together=False).per_byte * VOLUME
    assert in_turn == pytest.approx(sum(each), rel=REL)
    assert affine_cost(Collective.ALL_TO_ALL, dims).per_byte * VOLUME == pytest.approx(bound, rel=REL)


@pytest.mark.parametrize(
    ("topology", "sides"),
    [*((kind, (side,) * 2) for kind in ("ring", "line", "fully_connected") for side in (2, 3, 5)), ("ring", (3,) * 3)],
)
def test_dim_by_dim_takes_as_many_times_the_bound_as_there_are_dims(topology: str, sides: tuple[int, ...]) -> None:
    """Parts of the tensor that cross the dims in turned orders attain the bound: in turn it takes that much longer."""
    dims = [Dim(axis, Topology(topology), side, BANDWIDTH) for axis, side in zip("xyz", sides, strict=False)]
    bound, count = bisection_bound(dims, VOLUME), len(dims)
    orders = [[(turn + place) % count for place in range(count)] for turn in range(count)]
    at_once = sim.simulate(Collective.ALL_TO_ALL, VOLUME, dims, orders=orders)
    assert at_once.transfer_seconds == pytest.approx(bound, rel=REL)
    assert seconds(Collective.ALL_TO_ALL, VOLUME, dims) == pytest.approx(bound, rel=REL)
    assert seconds(Collective.ALL_TO_ALL, VOLUME, dims, together=False) == pytest.approx(count * bound, rel=REL)


def test_nodes_and_what_is_between_them_exchange_at_the_same_time() -> None:
    """Two nodes of 8 H100: half of the 1/16 of a chip leave its node at 50 GB/s; nccl-tests has 15/16 over that."""
    node, cluster = Dim("node", Topology.SWITCH, 8, 450e9), Dim("cluster", Topology.SWITCH, 2, 50e9)
    buffer = 8 * 2**30  # of a chip
    spent = seconds(Collective.ALL_TO_ALL, 16 * buffer, [node, cluster])
    assert spent == pytest.approx(buffer / 2 / 50e9)
    assert 15 / 16 * buffer / spent == pytest.approx(93.75e9)
    in_turn = seconds(Collective.ALL_TO_ALL, 16 * buffer, [node, cluster], together=False)
    assert in_turn == pytest.approx(buffer * (7 / 8 / 450e9 + 1 / 2 / 50e9))


@pytest.mark.parametrize(
    ("names", "ports"),
    [(("x[2]", "x[3@2]"), (None, None)), (("x[2]+y", "x[3@2]"), (None, None)), (("leaf", "spine"), (None, "leaf"))],
    ids=str,
)
def test_dims_on_the_same_links_exchange_in_turn(names: tuple[str, str], ports: tuple[str | None, str | None]) -> None:
    dims = [Dim(name, Topology.SWITCH, 2 + i, BANDWIDTH, port_of=ports[i]) for i, name in enumerate(names)]
    apart = [replace(d, name="zw"[i], port_of=None) for i, d in enumerate(dims)]
    cost = affine_cost(Collective.ALL_TO_ALL, dims)
    assert cost == affine_cost(Collective.ALL_TO_ALL, dims, together=False)
    assert cost.per_byte > affine_cost(Collective.ALL_TO_ALL, apart).per_byte


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_bound_is_the_worst_of_all_cuts(topology: str, size: int) -> None:
    """By brute force over all sets of chips, switches on the side that suits the cut; on one dim it is attained."""
    d = Dim("x", Topology(topology), size, BANDWIDTH)
    graph = sim.network([d])
    switches = [node for node in graph if is_switch(node)]
    worst = 0.0
    for mask in range(1, 2**size - 1):
        side = {(i,) for i in range(size) if mask >> i & 1}
        links = min(
            sum(a in side | set(extra) and b not in side | set(extra) for a, b in graph.edges)
            for extra in ([], switches)
        )
        worst = max(worst, len(side) * (size - len(side)) / size**2 * VOLUME / (links * BANDWIDTH))
    assert bisection_bound([d], VOLUME) == pytest.approx(worst, rel=REL)
    assert seconds(Collective.ALL_TO_ALL, VOLUME, [d]) == pytest.approx(worst, rel=REL)


# -------------------------------------------------------------------------------- point to point


@pytest.mark.parametrize("model", CollectiveModel)
def test_a_message_takes_one_hop_along_the_first_dim_with_two_chips(model: CollectiveModel) -> None:
    dims = [
        Dim("one", Topology.RING, 1, 1.0, 7.0),
        Dim("x", Topology.RING, 8, 4.0, 1.0),
        Dim("y", Topology.LINE, 3, 2.0),
    ]
    hop = {CollectiveModel.EXACT: 1, CollectiveModel.TWO_STAGE: 2, CollectiveModel.DFMODEL: 0}[model]
    assert seconds(Collective.POINT_TO_POINT, 8.0, dims, model=model) == 8 / 4 + hop


# ------------------------------------------------------------------------------ measured factors


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("kind", KINDS)
@given(share=st.floats(0.1, 1), latency=st.none() | st.floats(0, 1e-3), size=st.integers(2, 9))
def test_a_factor_replaces_the_terms_of_its_dim(
    kind: Collective, topology: str, share: float, latency: float | None, size: int
) -> None:
    plain = Dim("x", Topology(topology), size, BANDWIDTH, LATENCY)
    other = Dim("y", Topology.RING, 3, BANDWIDTH, LATENCY)
    measured = replace(plain, factors=(DimFit(kind, share, latency), DimFit(_another(kind), 0.5, 1.0)))
    free, cost = affine_cost(kind, [plain]), affine_cost(kind, [measured])
    assert cost.per_byte == pytest.approx(free.per_byte / share, rel=REL)
    assert cost.fixed == (free.fixed if latency is None else latency)
    if kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL):
        both, alone = (affine_cost(kind, [one, other], together=False) for one in (measured, plain))
        chips = 1 if kind is not Collective.ALL_TO_ALL else 3
        assert both.per_byte - alone.per_byte == pytest.approx(
            (cost.per_byte - free.per_byte) / chips, abs=1e-9 / BANDWIDTH
        )
        assert both.fixed - alone.fixed == pytest.approx(cost.fixed - free.fixed, abs=1e-15)
    table = [affine_cost(kind, [d], model=CollectiveModel.DFMODEL) for d in (plain, measured)]
    assert table[0] == table[1]


def _another(kind: Collective) -> Collective:
    return KINDS[(KINDS.index(kind) + 1) % len(KINDS)]


def test_an_all_reduce_over_two_dims_uses_the_all_reduce_factor_of_each() -> None:
    x = Dim("x", Topology.RING, 4, 1.0, 1.0, factors=(DimFit(Collective.ALL_REDUCE, 0.5, 7.0),))
    y = Dim("y", Topology.SWITCH, 4, 1.0, 1.0, factors=(DimFit(Collective.ALL_REDUCE, 0.25), DimFit("all_gather", 0.1)))
    cost = affine_cost(Collective.ALL_REDUCE, [x, y])
    assert cost.per_byte == pytest.approx(2 * 3 / 4 / 2 / 0.5 + 1 / 4 * 2 * 3 / 4 / 0.25)
    assert cost.fixed == 7 + 2 * 2


# ------------------------------------------------------------------------- communication_seconds


@given(
    st.sampled_from(KINDS),
    st.floats(0, 1e12),
    st.lists(st.sampled_from(["x", "x[4]", "x[2@4]", "y", "one"]), max_size=2, unique=True),
    st.sampled_from(["exact", "dfmodel"]),
    st.sampled_from([1, 2]),
)
def test_communication_seconds_is_the_formula_plus_overhead(
    kind: Collective, volume: float, names: list[str], model: str, passes: int
) -> None:
    factors = {"all_reduce": CollectiveFactor(bandwidth_share=0.7, latency=1e-5)}
    system = machine(wired("ring", 8), wired("switch", 4, "y", factors=factors), wired("ring", 1, "one"), overhead=1e-3)
    assume = Assumptions(collective_model=model, all_reduce_passes=passes)
    expected = seconds(kind, volume, dims_of(system, names), model=CollectiveModel(model), all_reduce_passes=passes)
    moves = volume > 0 and any(name != "one" for name in names)
    time = communication_seconds(kind, volume, names, system, assume)
    assert type(time) is float
    assert time == pytest.approx(expected + moves * 1e-3, rel=REL)
    assert communication_seconds(None, volume, names, system, assume) == 0


def test_systems_do_not_share_what_is_remembered() -> None:
    """The same name on another system, also on one made where another one was, is priced anew."""
    for bandwidth in (1e9, 2e9, 4e9, 8e9):
        system = machine(wired("line", 4, bandwidth=bandwidth, latency=0.0))
        time = communication_seconds(Collective.ALL_REDUCE, 1e9, ("x",), system, Assumptions())
        assert time == pytest.approx(1e9 / bandwidth)
        del system


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_volume_must_be_finite(bad: float) -> None:
    system = machine(wired("ring", 4))
    with pytest.raises(ValueError, match="volume must be finite"):
        communication_seconds(Collective.ALL_REDUCE, bad, ("x",), system, Assumptions())


Hop = tuple[int, int]


def ways_along(start: int, end: int, chips: int, ring: bool) -> list[list[Hop]]:
    """The shortest ways from one chip of a dim to another, each as its links, whose lower chip stands first."""
    low, high = sorted((start, end))
    straight = [(chip, chip + 1) for chip in range(low, high)]
    if not ring:
        return [straight]
    around = [(chip, chip + 1) for chip in (*range(high, chips - 1), *range(low))] + [(chips - 1, 0)]
    least = min(len(straight), len(around))
    return [way for way in (straight, around) if len(way) == least]


def loads_walked(chips: int, size: int, stride: int, ring: bool) -> tuple[Fraction, int]:
    """Edges of the logical rings of all groups over the most loaded link, and the hops of the edges inside groups.

    A part says how much of a link a group has as its bandwidth. Here every group closes its logical ring, each edge of
    it goes the shortest way (a tie half each way), and both directions of it are used at once, as a ring algorithm
    does. The most loaded link then sets the pace. Nothing of `dfopt` is used here.
    """
    load, longest = Counter[Hop](), 0
    groups = [range(first, first + size * stride, stride) for first in range(chips) if first // stride % size == 0]
    assert sorted(chip for group in groups for chip in group) == list(range(chips))
    for group in groups:
        edges = list(itertools.pairwise(group))
        longest = max(longest, *(len(ways_along(*edge, chips, ring)[0]) for edge in edges))
        for start, end in edges if size == 2 else [*edges, (group[-1], group[0])]:
            taken = ways_along(start, end, chips, ring)
            for way in taken:
                for link in way:
                    load[link] += Fraction(1, len(taken))
    return max(load.values()), longest


@st.composite
def drawn_parts(draw: st.DrawFn) -> tuple[int, int, int, bool]:
    """Chips of a dim, of a part of it, how far these are apart, and whether the dim is a ring of three or more."""
    size, stride, rest = (draw(st.integers(low, 7)) for low in (2, 1, 1))
    return size * stride * rest, size, stride, draw(st.booleans()) and size * stride * rest > 2


@given(drawn_parts())
def test_a_part_has_the_share_of_its_most_loaded_link(drawn: tuple[int, int, int, bool]) -> None:
    """A ring over all groups' edges takes (n-1)/n V/2 per link and edge over it; n = 2 has one edge, with V/2 each way.

    So gathering and scattering on a part, which is a line where it does not reach around, cost what the loads say.
    """
    chips, size, stride, ring = drawn
    whole = NetworkDim(name="x", topology="ring" if ring else "line", size=chips, link_bandwidth=3.0, latency=0.5)
    part = whole.part(size, stride)
    load, hops = loads_walked(chips, size, stride, ring)
    halves = 1 if size == 2 else 2
    expected = (size - 1) / size / halves * float(load) / whole.link_bandwidth
    for kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
        cost = affine_cost(kind, [dim_of(part)])
        assert cost.per_byte == pytest.approx(expected, rel=1e-12)
        assert cost.fixed == pytest.approx((size - 1) * hops * whole.latency, rel=1e-12)
    doubled = affine_cost(Collective.ALL_REDUCE, [dim_of(part)]).per_byte
    assert doubled <= 2 * expected * (1 + 1e-12)  # a line has a better way than to scatter and gather
