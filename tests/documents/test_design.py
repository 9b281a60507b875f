"""Technologies and designs as documents: what is read, and what is refused with words that help."""

from __future__ import annotations

from typing import Any

import pytest
from design_cases import SUPPLY, data, searched

from dfopt.documents.design import Design
from dfopt.errors import DocumentError, SystemSpecError, UnitError


def messages(changed: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        Design.from_data(changed)
    return str(caught.value)


def test_rest_is_what_the_others_leave() -> None:
    design = Design.from_data(data())
    assert design.shares_of("area") == {"core": 0.5, "L2": 0.2, "dram": pytest.approx(0.3)}
    assert design.shares_of("power") == {"core": 0.75, "dram": 0.25}
    assert design.shares_of("perimeter") == {}
    assert Design.from_data(design.to_data()) == design


def test_shares_above_one_say_by_how_much() -> None:
    changed = data()
    changed["shares"]["power"] = {"core": 1.1, "L2": 0.15}
    message = messages(changed)
    assert "$.shares.power: found shares that sum to 1.25, expected at most 1: 0.25 too much" in message
    assert Design.from_data({**changed, "profile": "deepflow"}).shares_of("power") == {"core": 1.1, "L2": 0.15}
    changed["shares"]["power"]["dram"] = "rest"  # there is none
    assert "0.25 too much" in messages({**changed, "profile": "deepflow"})


def test_rest_stands_once() -> None:
    changed = data()
    changed["shares"]["area"]["core"] = "rest"
    assert "$.shares.area: found rest for core and dram, expected it once" in messages(changed)


def test_what_the_technology_does_not_have() -> None:
    changed = data()
    changed["shares"]["perimeter"] = {"in_package": 0.1}
    message = messages(changed)
    assert "$.shares.perimeter.in_package: technology test has no such component (it has core, L2, dram)" in message


def test_a_chip_fits_its_package() -> None:
    changed = data()
    changed["budgets"]["package_area_mm2"] = 700
    assert "$.budgets.package_area_mm2: found 700 mm2, expected the 800 mm2 of the chip or more" in messages(changed)


@pytest.mark.parametrize(
    ("supply", "says"),
    [
        ({"threshold_v": 0.8}, "threshold_v: found 0.8 V, expected less than the nominal 0.8 V"),
        ({"max_v": 0.5}, "max_v: found 0.5 V, expected 0.55 V"),
    ],
)
def test_voltages_are_in_order(supply: dict[str, float], says: str) -> None:
    changed = data()
    changed["technology"]["core"]["supply"] = SUPPLY | supply
    assert f"$.technology.core.supply.{says}" in messages(changed)


def test_names_of_components_differ() -> None:
    changed = data()
    changed["technology"]["sram"][0]["name"] = "core"
    assert "$.technology.sram[0].name: found 'core', a name that another component has" in messages(changed)


def test_units_are_required() -> None:
    changed = data()
    changed["budgets"]["power"] = 300
    with pytest.raises(UnitError, match=r"\$\.budgets\.power: missing unit"):
        Design.from_data(changed)


def test_sizes_that_are_to_be_chosen() -> None:
    design = Design.from_data(searched())
    assert design.chosen == ("L2", "dram", "between_packages")
    assert design.choices is not None
    assert [len(steps.values) for name in design.chosen if (steps := design.choices.of(name))] == [8, 4, 9]
    assert design.choices.capacity["L2"].values[-1] == 64 * 2**20
    with pytest.raises(SystemSpecError, match=r"shares.area: found auto for L2 and dram and between_packages.*explore"):
        design.shares_of("area")
    assert Design.from_data(design.to_data()) == design


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("shares", "area", "core"), "auto", r"shares.area.core: found auto.*cores take what the others leave"),
        (("shares", "area", "L2"), 0.1, r"choices: found sizes of L2, expected those.*set \$.shares.area.L2 to auto"),
        (("shares", "power", "L2"), "half", r"shares.power.L2"),
        (("profile",), "deepflow", r"profile: found deepflow beside shares that are auto"),
        (("choices", "stacks", "most"), 0, r"choices.stacks.most: found 0"),
        (("choices", "capacity", "L2", "most"), "4 MiB", r"capacity.L2.most: found 4.1943e\+06, expected least"),
        (("choices", "capacity", "L2", "step"), "1 B", r"choices.capacity.L2.step: found 5.87e\+07 steps"),
        (("template", "sram"), "L3", r"template.sram: found 'L3', expected an SRAM level.*it has L2"),
        (("template", "network", 0, "links"), "in_package", r"network\[0\].links: technology test has no such"),
        (("template", "network", 0, "link_bandwidth"), "1 GB/s", r"network\[0\].links: found both of links and"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen(where: tuple[str | int, ...], value: Any, says: str) -> None:
    given: Any = searched()
    at = given
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    with pytest.raises(DocumentError, match=says):
        Design.from_data(given)
