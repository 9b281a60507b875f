"""Designs with DRAM layers: no design beats the corner of its box, and the best is that of all of them solved alone."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from design_cases import GPT2, check_costs, problem
from exploration_cases import (
    asking,
    corners,
    drawn_box,
    every_layered,
    inside,
    is_refused,
    places,
    seconds_under_heat,
    singles_of,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration_request import DesignLimits
from dfopt.errors import DocumentError, Infeasible, SystemSpecError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.layer_space import LayerSpace
from dfopt.library import as_design
from dfopt.machines.stacks import load_stack
from dfopt.technology.derive import Derived
from dfopt.technology.layered_stack import most_delivered

ALL: dict[str, Any] = {
    "dram_layers": [1, 3, 8, 14],
    "connected_layers": [1, 3, 8],
    "buffer": ["64 KiB", "512 KiB"],
    "buffer_port": ["128 B", "1 KiB"],
    "network_die": ["logic", "dram"],
    "rate": {"in_package": {"least": "100 GB/s", "most": "900 GB/s", "step": "400 GB/s"}},
    "power": {"least": "30 W", "most": "150 W", "step": "60 W"},
}
SOME = {"dram_layers": [3, 10], "connected_layers": [3, 10], "network_die": ["logic", "dram"]}


def design(choices: dict[str, Any], **technology: Any) -> Design:
    """The design of the zoo on one torus of four, with choices and other figures of its units."""
    data = as_design("stacked-256").to_data()
    data["technology"]["core"] |= technology
    data["template"]["network"] = data["template"]["network"][:1]
    return Design.from_data({**data, "choices": choices}, "it")


def figures(chip: Derived) -> list[float]:
    """What more of is never worse."""
    links = [float(part.rate) for part in chip.links.values()]
    own = [chip.core.peak, chip.sram["buffer"].size, chip.sram["buffer"].rate, chip.dram.rate, chip.dram.size]
    layers = as_design("stacked-256").technology.layers
    assert layers is not None
    return [*map(float, own), *links, most_delivered(layers, chip, load_stack("hybrid-vault").dram)]


cores = st.fixed_dictionaries(
    {
        "static_power": st.sampled_from([None, "1 W", "6 W"]),
        "supply": st.sampled_from(
            [
                {"nominal_v": 0.75, "threshold_v": 0.25, "margin_v": 0.2, "max_v": 0.75},
                {"nominal_v": 0.75, "threshold_v": 0.25, "margin_v": 0.2},
            ]
        ),
    }
)


@given(cores, st.data())
def test_no_design_of_a_box_beats_its_corner_or_draws_less(core: dict[str, Any], data: st.DataObject) -> None:
    space = LayerSpace(design(ALL, **core))
    box = drawn_box(data.draw, space.sizes)
    corner = space.chip(box)
    chips = [space.chip(space.root.at(at)) for at in inside(box)]
    made = [chip for chip in chips if chip is not None]
    if corner is None:
        assert not made
        return
    least = space.least(box, corner)
    for chip in made:
        assert all(own <= best * (1 + 1e-9) for own, best in zip(figures(chip), figures(corner), strict=True))
        assert float(chip.power) >= float(least.power) * (1 - 1e-9) or not chip.core.units  # no system
        assert all(chip.links[role].rate >= wires.rate * (1 - 1e-9) for role, wires in least.links.items())


def test_halves_hold_every_design_once() -> None:
    space = LayerSpace(design(ALL))
    assert len(space.layers(space.root)) == 2
    singles = singles_of(space)
    assert len(set(singles)) == len(singles) == space.count == 864


def test_the_best_is_that_of_every_design_alone() -> None:
    space = LayerSpace(design(SOME))
    alone = [score.step_time_s for _, score in every_layered(space).values()]
    made = df.explore(GPT2, space.design, gap=0.0, sensitivity=False)
    assert made.status == "optimal" and made.value == pytest.approx(min(alone), rel=1e-9)
    assert max(alone) > 1.1 * made.value  # the choice matters
    assert made.effort.designs == 8 and made.effort.solves < 6
    assert made.best["network_on_logic"] == 0
    assert "verified optimal" in check_exploration(made, "it")


def test_the_cheapest_and_limits_on_price() -> None:
    space = LayerSpace(design(SOME))
    made = df.explore("gpt2-small", space.design, objective="cost", gap=0.0, sensitivity=False)
    assert made.best["dram_layers"] == 3 and "verified optimal" in check_exploration(made, "it")
    limits = DesignLimits(price=made.value * 1.001)
    cheap = df.explore("gpt2-small", space.design, limits=limits, gap=0.0, sensitivity=False)
    assert cheap.best["dram_layers"] == 3 and cheap.result.score.price_usd == pytest.approx(made.value, rel=1e-12)
    data = space.design.to_data()
    del data["technology"]["layers"]["wafer"], data["technology"]["package"]
    with pytest.raises(SystemSpecError, match=r"\$.technology.package: found none(?s:.)*layers.wafer: found none"):
        df.explore("gpt2-small", Design.from_data(data, "it"), objective="cost")


@given(st.data())
def test_no_system_of_a_box_draws_or_costs_less_than_is_said_of_the_box(data: st.DataObject) -> None:
    workload = problem("gpt2-small", [design(ALL)])
    box = drawn_box(data.draw, workload.spaces[0].sizes)
    check_costs(workload, box, corners(box))


def test_the_best_under_heat_is_that_of_every_design_alone() -> None:
    space = LayerSpace(design({"dram_layers": [2, 8], "connected_layers": [2, 8]}))
    alone = [seconds_under_heat(score) for _, score in every_layered(space, "hybrid-vault").values()]
    made = df.explore(
        GPT2, space.design, gap=0.0, stack="hybrid-vault", heat="throttle", time_limit=120, sensitivity=False
    )
    assert made.value == pytest.approx(min(alone), rel=1e-9)
    assert made.gap < 0.05  # the bound knows the peak of the DRAM alone
    layers = made.best["dram_layers"]
    assert made.result.system.stack is not None and len(made.result.system.stack.dram_dies) == layers
    assert "verified" in check_exploration(made, "it", 120)


def test_a_range_of_energy_is_one_of_stacks() -> None:
    with pytest.raises(SystemSpecError, match=r"\$.technology.layers: found DRAM layers in stacked, expected stacks"):
        df.explore("gpt2-small", design(SOME), range=True)


@pytest.mark.parametrize(
    ("name", "choices", "words"),
    [
        ("stacked-256", {}, r"\$.choices: found no choices, expected lists of sizes"),
        ("stacked-256", {"buffer": ["2 KiB", "1 KiB"]}, r"\$.choices.buffer: found .* expected rising values"),
        ("stacked-256", {"network_die": ["dram", "dram"]}, r"\$.choices.network_die: found .* expected each die once"),
        ("reticle-2026", {"network_die": ["dram"]}, r"\$.choices.network_die: found sizes of DRAM layers beside"),
        ("stacked-256", {"stacks": {"most": 2}}, r"\$.choices: found sizes of dram, expected those of components"),
        ("reticle-2026", {"dram_layers": [1]}, r"\$.choices.dram_layers: found sizes of DRAM layers beside shares"),
    ],
)
def test_choices_that_cannot_be_are_refused(name: str, choices: dict[str, Any], words: str) -> None:
    with pytest.raises((DocumentError, SystemSpecError), match=words):
        df.explore(GPT2, Design.from_data({**as_design(name).to_data(), "choices": choices}, "it"))


def test_a_question_with_all_that_is_free_is_that_of_every_design_alone() -> None:
    space = LayerSpace(design(SOME))
    asked: dict[str, Any] = {"phase": "decode", "batch": 8, "context": 64, "rank_order": "tp-mp", "tp": 2}
    made = df.explore("llama-68m", space.design, gap=0.0, sensitivity=False, **asked)
    found = []
    for at in places(space):
        with contextlib.suppress(SystemSpecError, DocumentError, Infeasible):
            alone = Design.from_data(space.one_design(at).to_data())
            found.append(df.solve("llama-68m", alone, assumptions="default", **asked).step_time_s)
    assert 0 < len(found) < space.count  # more layers than there are cannot be connected
    assert made.value == pytest.approx(min(found), rel=1e-9) and made.status == "optimal"
    assert made.result.plan.tp == 2 and made.result.variants and "rank_order tp-mp-pp-dp" in made.result.fixed
    assert check_exploration(made, "it").startswith("verified optimal")
    other = asking(made, options=None).model_copy(update={"asked": made.asked})
    is_refused(other.sealed(), r"\$.asked")
