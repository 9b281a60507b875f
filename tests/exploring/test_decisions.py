"""Sizes of components and the chips that they make: within the budgets, and no better than the corner of any box."""

from __future__ import annotations

from typing import Any

import pytest
from design_cases import chosen, searched
from exploration_cases import drawn_box, drawn_designs, inside, singles_of
from hypothesis import given
from hypothesis import strategies as st

from dfopt.documents.design import Design
from dfopt.errors import DfoptError, SystemSpecError
from dfopt.exploring.decisions import Decisions
from dfopt.technology.derive import Derived


def figures(chip: Derived) -> list[float]:
    """What more of is never worse."""
    links = [float(part.rate) for part in chip.links.values()]
    own = [chip.core.peak, chip.sram["L2"].size, chip.sram["L2"].rate, chip.dram.rate, chip.dram.size]
    return [*map(float, own), *links]


@given(drawn_designs(), st.data())
def test_no_design_of_a_box_beats_its_corner(design: Design, data: st.DataObject) -> None:
    decisions = Decisions(design)
    box = drawn_box(data.draw, decisions.sizes)
    corner = decisions.chip(box)
    chips = [decisions.chip(decisions.root.at(at)) for at in inside(box)]
    made = [figures(chip) for chip in chips if chip is not None]
    if corner is None:
        assert not made
        return
    for mine in made:
        assert all(own <= best * (1 + 1e-9) for own, best in zip(mine, figures(corner), strict=True))


@given(drawn_designs(), st.data())
def test_a_design_has_the_sizes_asked_for_and_keeps_its_budgets(drawn: Design, data: st.DataObject) -> None:
    decisions = Decisions(drawn)
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
    at_nominal = (wires.supply.max_v or wires.supply.nominal_v) >= wires.supply.nominal_v  # else links are slower
    if design.shares.power["between_packages"] == "auto" and at_nominal:
        one = wires.frequency * wires.utilization / 8
        assert -1e-6 <= (chip.links["between_packages"].rate - sizes["between_packages"]) / one < 1 + 1e-6
    links = (1 - level.overhead) * chip.core.clusters * level.link_area_mm2 if level.shared else 0.0
    area = chip.core.units * technology.core.area_mm2 + chip.dram.stacks * technology.dram.controller_area_mm2
    area += chip.sram["L2"].banks * (level.bank * 8 * level.bit_area_mm2 + links) / (1 - level.overhead)
    area += chip.links["between_packages"].links * wires.area_mm2
    assert area <= design.budgets.chip_area_mm2 * (1 + 1e-8)


def test_halves_hold_every_design_once() -> None:
    decisions = Decisions(chosen())
    singles = singles_of(decisions)
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
