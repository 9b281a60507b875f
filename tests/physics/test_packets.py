"""``benchmarks/reference/packets.py``: messages against a simulation, and against the affine model where both apply."""

from __future__ import annotations

import math
from dataclasses import replace

import benchmark_path  # noqa: F401
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packets import Level, Link, Packets, packet_seconds
from step_costs import seconds

from dfopt.physics.collectives import Collective, CollectiveModel, Dim, Topology, affine_cost

TWO, REL = CollectiveModel.TWO_STAGE, 1e-9

rates = st.floats(1e8, 1e12)
latencies = st.floats(0.0, 1e-5)
volumes = st.floats(1.0, 1e12)


def stored_and_forwarded(sizes: list[float], path: list[Link]) -> float:
    """When the last packet has crossed the last link: each link takes them in order, each once it is all there."""
    arrived = [0.0] * len(sizes)
    for link in path:
        free = 0.0
        for i, size in enumerate(sizes):
            free = max(free, arrived[i]) + size / link.bandwidth
            arrived[i] = free + link.latency
    return arrived[-1]


paths = st.lists(st.builds(Link, rates, latencies), min_size=1, max_size=4)


@given(st.floats(1.0, 2e4), paths, st.floats(64.0, 2000.0), st.floats(0.0, 100.0), st.booleans())
def test_a_message_takes_the_time_of_its_packets(
    volume: float, path: list[Link], payload: float, header: float, alike: bool
) -> None:
    """Exactly on links of one rate; else at most by what the short last packet saves on the others."""
    path = [replace(link, bandwidth=path[0].bandwidth) for link in path] if alike else path
    count = math.ceil(volume / payload * (1 - 1e-12))  # a byte more by rounding is no packet
    sizes = [payload + header] * (count - 1) + [volume - (count - 1) * payload + header]
    simulated = stored_and_forwarded(sizes, path) + sum(link.latency for link in path)  # and the acknowledgement
    pair = [Level(Topology.SWITCH, 2, tuple(path))]
    found = packet_seconds(Collective.ALL_GATHER, 2 * volume, pair, Packets(payload, header))
    spare = 0.0 if alike else (payload + header) / min(link.bandwidth for link in path)
    assert simulated * (1 - REL) <= found <= (simulated + spare) * (1 + REL)


@given(
    st.sampled_from([Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE]),
    st.lists(
        st.tuples(st.sampled_from([Topology.RING, Topology.SWITCH]), st.integers(3, 9), rates, latencies),
        min_size=1,
        max_size=3,
    ),
    volumes,
    st.floats(64.0, 9000.0),
    st.sampled_from([0.0, 16.0, 90.0]),
)
def test_both_agree_where_both_apply(
    kind: Collective, network: list[tuple[Topology, int, float, float]], volume: float, payload: float, header: float
) -> None:
    """The rounds are the same: between them is at most one header per round, and nothing without headers.

    A ring here sends one way round, with half the bandwidth of a chip of ours.
    """
    levels = [Level(t, n, (Link(b, a),)) for t, n, b, a in network]
    ours = [
        Dim("x", t, n, b / 2 if t is Topology.RING else b, a, packet_payload=payload, packet_header=header)
        for t, n, b, a in network
    ]
    packets = Packets(payload, header)
    found = packet_seconds(kind, volume, levels, packets)
    affine = seconds(kind, volume, ours, model=TWO)
    headers = affine - seconds(kind, volume, [replace(d, packet_header=0.0) for d in ours], model=TWO)
    if header == 0.0:
        assert affine == pytest.approx(found, rel=REL)
    rounds = affine_cost(kind, [replace(d, bandwidth=1e300, latency=header / d.bandwidth) for d in ours]).fixed
    assert found * (1 - REL) <= affine <= (found + rounds) * (1 + REL)
    assert headers >= 0


@given(st.integers(2, 16), st.floats(1.0, 1e6), rates, latencies, st.floats(0.0, 100.0))
def test_an_exchange_over_a_switch_sends_all_at_once(
    n: int, part: float, rate: float, latency: float, reply: float
) -> None:
    """One round, by hand: n - 1 messages through the port, one packet more through the next link, two latencies."""
    port = Link(rate, latency)
    found = packet_seconds(
        Collective.ALL_TO_ALL, part * n * n, [Level(Topology.SWITCH, n, (port, port))], Packets(2e6, 0.0, reply)
    )
    assert found == pytest.approx((n - 1) * (part + reply) / rate + (part + reply) / rate + 4 * latency, rel=REL)


def test_a_ring_of_four_passes_six_messages_on() -> None:
    ring = [Level(Topology.RING, 4, (Link(32e9, 32e-9),))]
    packets = Packets(1000.0, 36.0, 40.0, 1e-9)
    found = packet_seconds(Collective.ALL_TO_ALL, 4 * 4 * 128, ring, packets)
    # 164 B take 5.1, so 5 ticks, the acknowledgement 1, both ways 64: 6 x 70 ns (half of NS-3's 840 for a 4x4 torus)
    assert found == pytest.approx(6 * 70e-9)


@given(st.floats(0.0, 1.0), volumes, st.integers(2, 8))
def test_overlap_hides_no_more_than_the_wait(overlap: float, volume: float, sharers: int) -> None:
    up = Link(64e9, 5e-7, sharers)
    level = [Level(Topology.SWITCH, 8, (up, up))]
    step, spread = (
        packet_seconds(Collective.ALL_REDUCE, volume, level, Packets(1e3, 36.0, overlap=o)) for o in (0, overlap)
    )
    assert spread <= step
    assert spread >= (step - overlap * 6 * 2e-6) * (1 - REL)
    gather = [packet_seconds(Collective.ALL_GATHER, volume, level, Packets(1e3, 36.0, overlap=o)) for o in (0, overlap)]
    assert gather[0] == gather[1]


def test_empty_or_alone_takes_no_time() -> None:
    alone = [Level(Topology.SWITCH, 1, (Link(1e9),))]
    assert packet_seconds(Collective.ALL_REDUCE, 1e6, alone, Packets(1e3)) == 0.0
    assert packet_seconds(Collective.ALL_REDUCE, 0.0, [Level(Topology.RING, 4, (Link(1e9),))], Packets(1e3)) == 0.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Packets(0.0), "payload"),
        (lambda: Packets(math.nan), "payload"),
        (lambda: Packets(1.0, header=-1.0), "header"),
        (lambda: Packets(1.0, acknowledgement=math.inf), "acknowledgement"),
        (lambda: Packets(1.0, tick=-1e-9), "tick"),
        (lambda: Packets(1.0, overlap=1.5), "overlap"),
        (lambda: Link(0.0), "bandwidth"),
        (lambda: Link(1.0, -1.0), "latency"),
        (lambda: Link(1.0, sharers=0), "sharers"),
        (lambda: Level(Topology.LINE, 2, (Link(1.0),)), "ring or switch"),
        (lambda: Level(Topology.RING, 2, (Link(1.0), Link(1.0))), "one link of a ring"),
        (lambda: Level(Topology.SWITCH, 0, (Link(1.0),)), "size"),
        (lambda: packet_seconds(Collective.BROADCAST, 1.0, [], Packets(1.0)), "no rule"),
        (lambda: packet_seconds(Collective.ALL_REDUCE, math.nan, [], Packets(1.0)), "volume"),
    ],
)
def test_bad_values_are_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
