"""Chips with DRAM layers: the area law by hand, and one DRAM for the optimiser and the judge."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.design import Design
from dfopt.errors import DocumentError, SystemSpecError
from dfopt.library import as_design
from dfopt.machines.stacks import load_stack
from dfopt.technology.layered_stack import most_delivered
from dfopt.technology.operating import LIMITS
from dfopt.technology.streams import DramStreams, Flow


def design(technology: dict[str, Any] | None = None, power: str = "1 kW", **sizes: Any) -> Design:
    """The design of the zoo with other sizes, and other figures of its technology."""
    data = as_design("stacked-256").to_data()
    for path, value in (technology or {}).items():
        section, key = path.split(".")
        data["technology"][section][key] = value
    data["budgets"]["power"] = power
    data["sizes"] |= sizes
    return Design.from_data(data, "it")


def test_the_start_by_hand() -> None:
    chip = df.derive(design()).components
    # 85 mm2 less four layers, their connections (1,024 of 100 um2 times 19.468) and 2.412 mm2 of network
    left = 85 - 4 * 2.9903 - 4 * 1024 * 1e-4 * 19.468 - (256 * 0.002 + 100 * 0.009 + 50 * 0.02)
    unit = 6.6 + 256 * 1024 * 8 * 3.367e-7 + 256 * 1.109e-3
    assert chip.core.units == pytest.approx(left / unit, rel=1e-12)
    assert chip.core.peaks["fp8"] == pytest.approx(left / unit * 10400 * 0.9e9, rel=1e-12)
    assert chip.dram.rate == pytest.approx(4 * 8 * 128 * 1.65e9 / 8, rel=1e-12)
    assert LIMITS[chip.dram.bound] == "layers"
    assert chip.dram.size == 4 * 2 * 2**30
    assert chip.sram["buffer"].size == pytest.approx(left / unit * 256 * 2**10, rel=1e-12)


def test_each_limit_of_the_bandwidth() -> None:
    by = {
        "layers": design(buffer_port="1 KiB"),
        "ports": design(dram_layers=12, connected_layers=12),
        "buffers": design(buffer="16 KiB", buffer_port="1 KiB"),
    }
    assert {name: LIMITS[df.derive(each).components.dram.bound] for name, each in by.items()} == {n: n for n in by}


def test_a_network_in_a_dram_die_takes_no_logic_area() -> None:
    fast = {"in_package": "1 TB/s", "between_packages": "400 GB/s", "between_nodes": "200 GB/s"}
    slow, logic, dram = (
        df.derive(each).components.core.units
        for each in (design(network_die="dram"), design(rate=fast), design(rate=fast, network_die="dram"))
    )
    assert dram == slow > logic


def test_a_network_in_a_dram_die_takes_its_area_from_one_layer() -> None:
    for factor in (0.0, 1.0, 4.0):
        chip = df.derive(design({"layers.network_area": factor}, network_die="dram")).components
        share = factor * (256 * 0.002 + 100 * 0.009 + 50 * 0.02) / 85
        assert chip.dram.size == pytest.approx((4 - share) * 2 * 2**30, rel=1e-12)
        assert chip.dram.rate == df.derive(design(network_die="dram")).components.dram.rate


sizes = st.fixed_dictionaries(
    {
        "dram_layers": st.integers(1, 16),
        "buffer": st.sampled_from(["128 KiB", "256 KiB", "512 KiB"]),
        "buffer_port": st.sampled_from(["128 B", "256 B", "512 B", "1 KiB"]),
        "network_die": st.sampled_from(["logic", "dram"]),
    }
)


@given(sizes, st.integers(1, 16), st.sampled_from(["hybrid-vault", "hybrid-4", "microbump-8"]))
def test_what_is_derived_is_what_the_judge_stacks(drawn: dict[str, Any], connected: int, on: str) -> None:
    assume(connected <= drawn["dram_layers"])
    made = df.derive(design(**drawn, connected_layers=connected), on)
    try:
        stack, memory = made.stack, made.system.chip.dram
    except SystemSpecError:  # no room for units, or for data connections
        assume(False)
    assert memory is not None
    assert stack.dram.peak == pytest.approx(memory.bandwidth, rel=1e-12)
    assert stack.dram.capacity == memory.capacity
    displaced = 3 * 2.412 / 85 if drawn["network_die"] == "dram" else 0.0
    assert memory.capacity == pytest.approx((drawn["dram_layers"] - displaced) * 2 * 2**30, rel=1e-12)
    assert len(stack.dram_dies) == drawn["dram_layers"]
    assert stack.side_x * stack.side_y == pytest.approx(85e-6, rel=1e-12)
    assert stack.dram.channels == 8 * connected
    assert stack.dram.banks == 4 * drawn["dram_layers"] // connected
    in_flight = stack.dram.buffers.requests * stack.dram.burst * stack.dram.channels
    assert in_flight <= made.system.chip.sram.capacity / 2 < in_flight + stack.dram.burst * stack.dram.channels


streams = st.builds(Flow, st.just(1e9), st.floats(64, 1e9), write=st.booleans(), scattered=st.booleans())


@given(
    sizes, st.integers(1, 16), st.lists(streams, min_size=1, max_size=3), st.sampled_from(["hybrid-vault", "hybrid-4"])
)
def test_no_stream_gets_more_than_a_bound(drawn: dict[str, Any], connected: int, flows: list[Flow], on: str) -> None:
    assume(connected <= drawn["dram_layers"])
    asked = design(**drawn, connected_layers=connected)
    made, layers, like = df.derive(asked, on), asked.technology.layers, load_stack(on).dram
    assert layers is not None
    try:
        memory = DramStreams(made.stack)
    except SystemSpecError:
        assume(False)
    most = most_delivered(layers, made.components, like)
    for rate in (1.0, 2.0):
        assert memory.serve(memory.by_pattern(flows), rate).bandwidth <= most * (1 + 1e-12)
    in_order = memory.serve(memory.by_pattern([Flow(1e9, 1e9, write=False)]), 1.0).bandwidth
    assert in_order <= most * (1 + 1e-12)
    if made.stack.dram.banks > 4:  # so many open their rows in turn while others send
        assert in_order >= 0.7 * most


@given(sizes, st.integers(1, 15))
def test_a_layer_more_costs_units_and_adds_capacity(drawn: dict[str, Any], connected: int) -> None:
    fewer = {**drawn, "dram_layers": max(drawn["dram_layers"] - 1, 1)}
    assume(drawn["dram_layers"] > 1 and connected <= fewer["dram_layers"])
    try:
        more, less = (df.derive(design(**each, connected_layers=connected)).components for each in (drawn, fewer))
    except SystemSpecError:
        assume(False)
    assert more.core.units < less.core.units
    assert more.dram.size > less.dram.size
    assert more.dram.rate <= less.dram.rate


def test_a_mapping_is_judged_on_its_layers() -> None:
    made = df.derive(design(), "hybrid-vault")
    system = made.system.model_copy(update={"stack": made.stack})
    result = df.solve("gpt2-small", system, tp=4, time_limit=20)
    assert result.score.physical is not None
    # The judge gives each stream what its rows and banks allow: never more than was derived.
    assert result.score.physical.dram_bandwidth_b_per_s <= made.components.dram.rate * (1 + 1e-9)
    assert math.isfinite(result.score.physical.step_time_s)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"dram_layers": 17, "connected_layers": 17},
            r"\$.sizes: found layers and network of .* mm2, expected less than the 85 mm2",
        ),
        ({"power": "20 W"}, r"\$.budgets.power: found DRAM and links of .* W, expected less than the 20 W"),
        ({"connected_layers": 5}, r"connected_layers: found 5, expected at most the 4 of dram_layers"),
        ({"rate": {"between_dies": "1 GB/s"}}, r"\$.sizes.rate.between_dies: technology stacked has no such"),
        ({"rate": {}}, r"found a chip without in_package \(area ends it\)"),
        (
            {"rate": {"between_nodes": "2 TB/s"}, "network_die": "dram"},
            r"\$.sizes.network_die: found a network of 120 mm2, expected at most the 85 mm2 of a DRAM die",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((SystemSpecError, DocumentError), match=words):
        df.derive(design(**changes)).system  # noqa: B018


def test_shares_and_sizes_go_with_their_technologies() -> None:
    data = as_design("stacked-256").to_data()
    for change, words in (
        ({"shares": {"area": {"core": 0.5}, "power": {"core": 0.5}}}, "found both shares and sizes"),
        ({"technology": as_design("h100").technology.to_data()}, "with stacks of DRAM beside the chip"),
    ):
        with pytest.raises(DocumentError, match=words):
            Design.from_data({**data, **change}, "it")
