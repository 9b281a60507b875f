"""Technologies and designs as documents: what is read, and what is refused with words that help."""

from __future__ import annotations

from typing import Any

import pytest

from dfopt.documents.design import Design
from dfopt.errors import DocumentError, UnitError

SUPPLY = {"nominal_v": 0.8, "threshold_v": 0.2, "margin_v": 0.35}


def data() -> dict[str, Any]:
    """A design as its file has it."""
    return {
        "schema": "dfopt/design/1",
        "name": "small",
        "technology": {
            "schema": "dfopt/technology/1",
            "name": "test",
            "core": {
                "area_mm2": 0.4, "flop_per_cycle": 128, "power": "130 mW", "frequency": "1.3 GHz", "supply": SUPPLY,
                "units_per_cluster": 8,
            },
            "sram": [
                {"name": "L2", "bit_area_mm2": 6e-8, "energy": "0.13 pJ/bit", "static_w_per_bit": 8e-12,
                 "bank": "32 KiB"},
            ],
            "dram": {
                "stack": "4 GiB", "stack_area_mm2": 100, "controller_area_mm2": 5, "links_per_stack": 1024,
                "links_per_mm": 400, "frequency": "1.4 GHz", "supply": SUPPLY, "energy": "4 pJ/bit",
                "static_w_per_bit": 6e-13,
            },
        },
        "budgets": {"chip_area_mm2": 800, "package_area_mm2": 1200, "power": "300 W"},
        "shares": {"area": {"core": "50 %", "L2": 0.2, "dram": "rest"}, "power": {"core": "rest", "dram": 0.25}},
    }  # fmt: skip


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
