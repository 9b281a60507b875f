"""Collectives with a formula of their own, and the efficiency of links: against Calculon's own words for the time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import Chip, CollectiveFactor, Dram, NetworkDim, Sram, System
from dfopt.errors import DocumentError
from dfopt.physics.collectives import Collective
from dfopt.physics.network import communication_seconds

KINDS = [kind for kind in Collective if kind is not Collective.BROADCAST]
ONE_CALL = [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER]
TOPOLOGIES = ["ring", "line", "switch", "fully_connected"]


def machine(**fields: Any) -> System:
    chip = Chip(name="c", tiles=1, peak=1e12, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e9))
    given = {"name": "x", "topology": "switch", "link_bandwidth": 300e9, "latency": 1e-6, **fields}
    return System(name="s", chip=chip, network=(NetworkDim(**given),))


@given(
    st.sampled_from(ONE_CALL),
    st.sampled_from(TOPOLOGIES),
    st.sampled_from([2, 8, 64]),
    st.sampled_from([1.0, 1.5, 2.0]),
    st.sampled_from([-1.0, 0.0, 1.0]),
    st.sampled_from([0.65, 1.0]),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from(["exact", "two_stage"]),
)
def test_one_latency_and_the_tensor_times_a_scale(
    kind: Collective, wiring: str, chips: int, scale: float, offset: float, efficiency: float, share: float, model: str
) -> None:
    factor = CollectiveFactor(latency=10e-6, scale=scale, offset=offset, bandwidth_share=share)
    system = machine(topology=wiring, size=64, efficiency=efficiency, factors={kind.value: factor})
    name = "x" if chips == 64 else f"x[{chips}]"
    volume = 50331648.0
    # Calculon, network.py of commit caa4b11: latency + (scalar S + scalar S / n x offset) / (bandwidth x efficiency)
    links = system.dim(name).link_bandwidth  # of a part of a ring that reaches around, both ways
    seconds = 10e-6 + (scale * volume + scale * volume / chips * offset) / (links * efficiency * share)
    found = communication_seconds(kind, volume, [name], system, Assumptions(collective_model=model))
    assert found == pytest.approx(seconds, rel=1e-12)


@given(st.sampled_from(KINDS), st.sampled_from(TOPOLOGIES), st.sampled_from(["exact", "two_stage", "dfmodel"]))
def test_the_efficiency_of_links_is_less_bandwidth(kind: Collective, topology: str, model: str) -> None:
    assume, volume = Assumptions(collective_model=model), 1e7
    times = [
        communication_seconds(kind, volume, ["x"], machine(topology=topology, size=8, **fields), assume)
        for fields in ({"link_bandwidth": 300e9, "efficiency": 0.65}, {"link_bandwidth": 300e9 * 0.65})
    ]
    assert times[0] == times[1]


@given(st.sampled_from(ONE_CALL), st.sampled_from([2, 4, 8]))
def test_a_switch_has_the_formula_that_it_would_have(kind: Collective, chips: int) -> None:
    """An all-reduce by 2 (n - 1) / n of the tensor, the other two by (n - 1) / n, as the switch's own algorithms."""
    scale = 2.0 if kind is Collective.ALL_REDUCE and chips > 2 else 1.0
    offset = 0.0 if kind is Collective.ALL_REDUCE and chips == 2 else -1.0
    formula = machine(size=chips, latency=0.0, factors={kind.value: CollectiveFactor(scale=scale, offset=offset)})
    times = [
        communication_seconds(kind, 1e8, ["x"], system, Assumptions())
        for system in (machine(size=chips, latency=0.0), formula)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


@pytest.mark.parametrize(
    "factor, words",
    [({"offset": -1}, "found -1, but no scale"), ({"scale": 1, "offset": -2}, "offset"), ({"scale": 0}, "scale")],
)
def test_factors_that_are_no_formula(factor: dict[str, Any], words: str) -> None:
    data = machine(size=8).to_data()
    data["network"][0]["factors"] = {"all_reduce": factor}
    with pytest.raises(DocumentError) as error:
        System.from_data(data, "s.yaml")
    assert words in str(error.value)
    assert "$.network[0].factors.all_reduce" in str(error.value)
