"""`dfopt.physics.two_stage`: what it charges over the exact model, judge against MILP."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from step_costs import seconds
from strategies import World, share, worlds

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import System
from dfopt.errors import DocumentError, Infeasible
from dfopt.judge import evaluate
from dfopt.physics.collectives import Collective, CollectiveModel, Dim, DimFit, Topology, affine_cost
from dfopt.physics.network import communication_seconds

KINDS = list(Collective)
TWO, EXACT = CollectiveModel.TWO_STAGE, CollectiveModel.EXACT
REL = 1e-9

rates = st.floats(1e8, 1e12)
latencies = st.floats(0.0, 1e-5)
factors = st.lists(
    st.builds(
        DimFit,
        st.sampled_from(KINDS),
        st.floats(0.1, 1.0),
        st.none() | latencies,
        st.none() | st.floats(0.5, 2),
        st.floats(-1, 1),
        st.none() | latencies,
    ),
    max_size=2,
    unique_by=lambda factor: factor.kind,
).map(tuple)


@st.composite
def dims(draw: st.DrawFn, measured: bool = True) -> Dim:
    topology = draw(st.sampled_from(list(Topology)))
    return Dim(
        "x",
        topology,
        draw(st.integers(1, 9)),
        draw(rates),
        draw(latencies),
        topology is Topology.SWITCH and draw(st.booleans()),
        draw(factors) if measured else (),
        draw(st.none() | st.floats(64.0, 9000.0)),
        draw(st.sampled_from([0.0, 16.0, 90.0])),
    )


networks = st.lists(dims(), min_size=1, max_size=3)
volumes = st.floats(1.0, 1e12)


# ------------------------------------------------------------------------- the affine model


@given(st.sampled_from(KINDS), networks)
def test_never_cheaper_than_exact_in_either_term(kind: Collective, network: list[Dim]) -> None:
    two, exact = affine_cost(kind, network, model=TWO), affine_cost(kind, network)
    assert two.per_byte >= exact.per_byte * (1 - REL) >= 0  # so more bytes never take less
    assert two.fixed >= exact.fixed * (1 - REL)


@given(st.sampled_from(KINDS), networks)
def test_without_latency_and_headers_it_is_exact(kind: Collective, network: list[Dim]) -> None:
    bare = [replace(d, latency=0.0, packet_header=0.0) for d in network]
    assert affine_cost(kind, bare, model=TWO) == pytest.approx(affine_cost(kind, bare), rel=REL, abs=0)


@given(st.sampled_from(KINDS), networks, volumes, st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_tends_to_exact_with_latency_and_headers(
    kind: Collective, network: list[Dim], volume: float, small: float
) -> None:
    """What is charged over exact shrinks at least as fast as latencies and headers do."""

    def over(scale: float) -> float:
        less = [replace(d, latency=d.latency * scale, packet_header=d.packet_header * scale) for d in network]
        return seconds(kind, volume, less, model=TWO) - seconds(kind, volume, less)

    assert over(small) <= small * over(1.0) + 1e-12 * seconds(kind, volume, network, model=TWO)


@given(st.sampled_from(KINDS), st.lists(dims(measured=False), min_size=1, max_size=3))
def test_a_round_takes_two_latencies(kind: Collective, network: list[Dim]) -> None:
    bare = [replace(d, packet_payload=None) for d in network]
    two, exact = affine_cost(kind, bare, model=TWO), affine_cost(kind, bare)
    assert two.fixed == pytest.approx(2 * exact.fixed, rel=REL)
    assert two.per_byte == exact.per_byte  # no packets, so the header field says nothing


def test_what_is_charged_is_worked_by_hand() -> None:
    """A ring all-reduce of eight: 14 rounds, each of two latencies and one header; 10 % of headers on the bytes."""
    ring = [Dim("x", Topology.RING, 8, 25e9, 1e-6, packet_payload=1000.0, packet_header=100.0)]
    cost = affine_cost(Collective.ALL_REDUCE, ring, model=TWO)
    assert cost.per_byte == pytest.approx(1.1 * 2 * (7 / 8) / 50e9)
    assert cost.fixed == pytest.approx(14 * (2e-6 + 100 / 25e9))


@given(st.sampled_from(KINDS), networks, volumes, st.floats(1.0, 100.0))
def test_latency_and_headers_make_it_longer(kind: Collective, network: list[Dim], volume: float, times: float) -> None:
    before = seconds(kind, volume, network, model=TWO)
    slower = [replace(d, latency=d.latency * times) for d in network]
    larger = [replace(d, packet_header=d.packet_header * times) for d in network]
    assert seconds(kind, volume, larger, model=TWO) >= before * (1 - REL)
    # A tie in bytes is decided by latency, so with one dimension's scaled the way may change, not with all.
    assert seconds(kind, volume, slower, model=TWO) >= before * (1 - REL)


@given(st.sampled_from(KINDS), dims(), volumes, st.floats(1.0, 100.0))
def test_a_faster_link_makes_it_shorter(kind: Collective, d: Dim, volume: float, times: float) -> None:
    faster = replace(d, bandwidth=d.bandwidth * times)
    assert seconds(kind, volume, [faster], model=TWO) <= seconds(kind, volume, [d], model=TWO) * (1 + REL)


@given(dims(measured=False), st.floats(0.1, 1.0), latencies)
def test_a_measured_share_has_the_headers_in_it(d: Dim, measured: float, fixed: float) -> None:
    d = replace(d, size=max(2, d.size), factors=(DimFit(Collective.ALL_GATHER, measured, fixed),))
    payload = 1.0 if d.packet_payload is None else d.packet_payload / (d.packet_payload + d.packet_header)
    ideal = affine_cost(Collective.ALL_GATHER, [replace(d, factors=())]).per_byte
    two = affine_cost(Collective.ALL_GATHER, [d], model=TWO)
    assert two.fixed == fixed
    assert two.per_byte == pytest.approx(ideal / min(measured, payload), rel=REL)


@given(st.floats(1.0, 1e7), st.floats(64.0, 9000.0), st.floats(0.0, 200.0), rates, latencies)
def test_headers_are_those_of_whole_packets_or_one_more(
    volume: float, payload: float, header: float, rate: float, latency: float
) -> None:
    link = Dim("x", Topology.SWITCH, 2, rate, latency, packet_payload=payload, packet_header=header)
    whole = (volume + math.ceil(volume / payload) * header) / rate + 2 * latency
    found = seconds(Collective.POINT_TO_POINT, volume, [link], model=TWO)
    assert whole * (1 - REL) <= found <= (whole + header / rate) * (1 + REL)


# ------------------------------------------------------------------------- documents, judge


def machine(**more: object) -> dict[str, object]:
    dim = {"name": "x", "topology": "switch", "size": 8, "link_bandwidth": "32 GB/s", "latency": "1 us", **more}
    chip = {"name": "c", "tiles": 1, "peak": "1 TFLOP/s", "sram": {"capacity": "1 MB"}, "dram": {"bandwidth": "1 GB/s"}}
    return {"schema": "dfopt/system/1", "name": "s", "chip": chip, "network": [dim]}


def test_packets_of_a_file_are_charged_under_two_stage_only() -> None:
    bare = System.from_data(machine(), "bare")
    packets = System.from_data(machine(packet_payload="1 kB", packet_header="100 B"), "packets")
    for model in ("exact", "dfmodel", "two_stage"):
        times = [
            communication_seconds(Collective.ALL_REDUCE, 1e6, ["x"], s, Assumptions(collective_model=model))
            for s in (bare, packets)
        ]
        assert (times[0] < times[1]) == (model == "two_stage")
        assert times[0] <= times[1]


def test_headers_without_packets_are_refused() -> None:
    with pytest.raises(DocumentError, match="no packet_payload") as caught:
        System.from_data(machine(packet_header="36 B"), "headers")
    assert "$.network[0]" in str(caught.value)


def with_packets(world: World, payload: float, header: float) -> World:
    update = {"packet_payload": payload, "packet_header": header}
    network = tuple(dim.model_copy(update=update) for dim in world.system.network)
    return replace(world, system=world.system.model_copy(update={"network": network}))


@settings(share(1.0))
@given(
    worlds(most=4, roomy=True, collective_model="two_stage", empty_partitions="allow"),
    st.sampled_from([(8.0, 2.0), (30.0, 1.0)]),
)
def test_judge_and_milp_agree_on_what_it_costs(world: World, packets: tuple[float, float]) -> None:
    """A difference would be raised as `ScoreMismatch`; the best found is no faster than under the exact model."""
    world = with_packets(world, *packets)
    try:
        result = optimizer.solve(world.graph, world.system, assumptions=world.assumptions)
    except Infeasible:
        assume(False)
    score = evaluate(result.mapping, world.graph, world.system, world.assumptions)
    assert score.step_time_s == pytest.approx(result.step_time_s, rel=1e-6)
    exact = evaluate(result.mapping, world.graph, world.system, world.assumptions.with_(collective_model="exact"))
    assert exact.step_time_s <= score.step_time_s * (1 + REL)
    assert result.level_bound is not None and result.level_bound <= result.step_time_s * (1 + REL)
