"""Sizes of components and the chips that they make: within the budgets, and no better than the corner of any box."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from design_cases import chosen, searched
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.design import Design
from dfopt.errors import DfoptError, SystemSpecError
from dfopt.exploring.decisions import Decisions
from dfopt.exploring.space import Box
from dfopt.technology.derive import Derived


def figures(chip: Derived) -> list[float]:
    """What more of is never worse."""
    links = [float(part.rate) for part in chip.links.values()]
    level = chip.sram["L2"]
    return [
        float(chip.core.peak),
        float(level.size),
        float(level.rate),
        float(chip.dram.rate),
        float(chip.dram.size),
        *links,
    ]


@st.composite
def designs(draw: st.DrawFn) -> Decisions:
    core = {"technology__core__static_power": draw(st.sampled_from([None, "10 mW", "50 mW"]))}
    core["technology__core__units_per_cluster"] = draw(st.sampled_from([1, 4, 9]))
    level = {"technology__sram__0__link_area_mm2": draw(st.sampled_from([0.0, 1e-4, 1e-3]))}
    level["technology__sram__0__shared"] = draw(st.booleans())
    level["technology__sram__0__port"] = draw(st.sampled_from([None, "16 B", "128 B"]))
    level["technology__sram__0__static_w_per_bit"] = draw(st.sampled_from([0.0, 8e-12, 2e-8]))
    if level["technology__sram__0__port"] is not None:
        level["shares__power__L2"] = draw(st.sampled_from(["auto", 0.05]))
    if draw(st.booleans()):  # a size that is not to be chosen
        level |= {"shares__area__L2": 0.1, "shares__power__L2": 0.05, "choices__capacity": {}}
    power: dict[str, Any] = {"budgets__power": draw(st.sampled_from(["150 W", "300 W", "900 W"]))}
    if draw(st.booleans()):  # or one that is to be chosen
        level["choices__power"] = {"least": "60 W", "most": "900 W", "step": "120 W"}
    given = chosen(
        **power,
        **core,
        **level,
        technology__dram__static_w_per_bit=draw(st.sampled_from([0.0, 1e-12, 2e-10])),
        shares__power__dram=draw(st.sampled_from(["auto", 0.1, 0.3])),
        shares__perimeter__dram=draw(st.sampled_from(["auto", 0.4])),
        shares__power__between_packages=draw(st.sampled_from(["auto", 0.05])),
        budgets__chip_area_mm2=draw(st.sampled_from([200, 500, 800])),
    )
    return Decisions(given)


@given(designs(), st.data())
def test_no_design_of_a_box_beats_its_corner(decisions: Decisions, data: st.DataObject) -> None:
    ends = [sorted(data.draw(st.tuples(*[st.integers(0, len(sizes) - 1)] * 2))) for sizes in decisions.sizes.values()]
    box = Box(tuple(low for low, _ in ends), tuple(high for _, high in ends))
    corner = decisions.chip(box)
    inside = [decisions.chip(decisions.root.at(at)) for at in itertools.product(*(range(a, b + 1) for a, b in ends))]
    made = [figures(chip) for chip in inside if chip is not None]
    if corner is None:
        assert not made
        return
    for mine in made:
        assert all(own <= best * (1 + 1e-9) for own, best in zip(mine, figures(corner), strict=True))


@given(designs(), st.data())
def test_a_design_has_the_sizes_asked_for_and_keeps_its_budgets(decisions: Decisions, data: st.DataObject) -> None:
    at = tuple(data.draw(st.integers(0, len(sizes) - 1)) for sizes in decisions.sizes.values())
    chip, sizes = decisions.chip(decisions.root.at(at)), decisions.named(at)
    if chip is None:
        return
    design, technology = decisions.one_design(at), decisions.design.technology
    assert float(chip.power) <= design.budgets.power * (1 + 1e-8)
    level = technology.sram[0]
    if chip.sram["L2"].size and "L2" in sizes:  # leakage may take all its power
        assert 0 <= chip.sram["L2"].size - sizes["L2"] < level.bank
    if chip.dram.rate:
        assert chip.dram.stacks == sizes["dram"]
    wires = technology.links["between_packages"]
    if design.shares.power["between_packages"] == "auto":
        one = wires.frequency * wires.utilization / 8
        assert -1e-6 <= (chip.links["between_packages"].rate - sizes["between_packages"]) / one < 1 + 1e-6
    links = (1 - level.overhead) * chip.core.clusters * level.link_area_mm2 if level.shared else 0.0
    area = chip.core.units * technology.core.area_mm2 + chip.dram.stacks * technology.dram.controller_area_mm2
    area += chip.sram["L2"].banks * (level.bank * 8 * level.bit_area_mm2 + links) / (1 - level.overhead)
    area += chip.links["between_packages"].links * wires.area_mm2
    assert area <= design.budgets.chip_area_mm2 * (1 + 1e-8)


def test_halves_hold_every_design_once() -> None:
    decisions = Decisions(chosen())
    boxes, singles = [decisions.root], []
    while boxes:
        box = boxes.pop()
        parts = decisions.halves(box)
        boxes += parts[len(boxes) % len(parts)] if parts else ()
        singles += [] if parts else [box]
    assert all(box.single for box in singles)
    assert len(set(singles)) == len(singles) == decisions.count == 288


def test_sizes_that_are_not_given_are_all_that_fit() -> None:
    given: Any = searched()
    del given["choices"]
    decisions = Decisions(Design.from_data(given))
    assert [len(sizes) for sizes in decisions.sizes.values()] == [64, 4, 64]  # stacks; steps of the others
    assert decisions.sizes["dram"] == (1, 2, 3, 4)


def test_what_leaves_no_choice() -> None:
    with pytest.raises(SystemSpecError, match=r"shares.power.L2: found auto, but no port of L2 says"):
        Decisions(chosen(shares__power__L2="auto"))
    given: Any = searched()
    del given["choices"]["stacks"]
    given["budgets"]["package_area_mm2"] = 850
    with pytest.raises(SystemSpecError, match=r"shares.area.dram: found auto, but not even one fits the budgets"):
        Decisions(Design.from_data(given))


def test_a_budget_of_power_may_be_chosen() -> None:
    decisions = Decisions(chosen(choices__power={"least": "200 W", "most": "400 W", "step": "100 W"}))
    assert decisions.sizes["power"] == (200.0, 300.0, 400.0)
    for at, watts in enumerate(decisions.sizes["power"]):
        alone = Decisions(chosen(budgets__power=f"{watts} W"))
        assert decisions.chip(decisions.root.at((1, 1, 1, at))) == alone.chip(alone.root.at((1, 1, 1)))
    given: Any = searched()
    given["technology"]["sram"][0]["name"] = given["template"]["sram"] = "power"
    for budget in ("area", "power"):
        given["shares"][budget] = {"power" if k == "L2" else k: v for k, v in given["shares"][budget].items()}
    given["choices"] = {"power": {"least": "200 W", "most": "400 W", "step": "100 W"}}
    with pytest.raises(
        DfoptError, match=r"\$.choices.power: found budgets of power to choose, and a component 'power'"
    ):
        Design.from_data(given)
