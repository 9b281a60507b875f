"""What derived chips cost, and how many dies they need."""

from __future__ import annotations

from typing import Any

import pytest

import dfopt as df
from dfopt.documents.design import Design
from dfopt.technology.price import die_price, package_price
from tests.technology.test_as_system import fixed

# USD of a wafer and defects per cm2 of N5: The Information Network, and Chiplet Actuary's parameter.ini (b85c29f);
# 15 USD per GB of DRAM is an assumption
WAFER = {"usd": 16988, "defects_per_cm2": 0.11}
PACKAGE = {"usd_per_mm2": 0.005, "area_factor": 4, "bump_usd_per_mm2": 0.005, "bonding_yield": 0.99}


def priced(**budgets: Any) -> dict[str, Any]:
    """The data of a design whose technology has prices."""
    given = fixed().to_data()
    given["technology"] |= {"wafer": WAFER, "package": PACKAGE}
    given["technology"]["dram"]["usd_per_gb"] = 15.0
    given["budgets"] |= budgets
    return given


def test_dies_stacks_and_package_add_up() -> None:
    made = df.derive(Design.from_data(priced()))
    price, technology = made.price, made.design.technology
    assert price is not None and technology.wafer is not None and technology.package is not None
    stacks = int(made.components.dram.stacks)
    stack_usd = 15.0 * technology.dram.stack / 1e9
    dies = [(800e-6, float(die_price(800e-6, technology.wafer)))] + [(100e-6, stack_usd)] * stacks
    assert price.usd == pytest.approx(package_price(dies, technology.package).total)
    assert price.dram_usd == stacks * stack_usd and price.die_area_mm2 == 800
    assert made.system.chip.price_usd == price.usd
    assert "$.chip.price_usd" not in df.system_cost(made.system).missing
    assert "$.chip.dram.usd_per_gb_s" not in df.system_cost(made.system).missing


def test_what_has_no_price_has_none() -> None:
    assert df.derive(fixed()).price is None and df.derive(fixed()).system.chip.price_usd is None
    for section, key in (("dram", "usd_per_gb"), (None, "package")):
        given = priced()
        del (given["technology"][section] if section else given["technology"])[key]
        price = df.derive(Design.from_data(given)).price
        assert price is not None and price.usd is None and price.die_usd > 0
        assert df.derive(Design.from_data(given)).system.chip.price_usd is None


def test_smaller_dies_are_cheaper_to_make() -> None:
    one, two = (df.derive(Design.from_data(priced(reticle_mm2=900, dies=dies))).price for dies in (1, 2))
    assert one is not None and two is not None
    assert two.die_yield > one.die_yield and 2 * two.die_usd < one.die_usd


def test_a_chip_above_the_reticle_needs_more_dies() -> None:
    area = {"chip_area_mm2": 1600, "package_area_mm2": 2600}
    says = r"chip_area_mm2: found 1600 mm2 on 1 die, expected at most the 858 mm2 of a reticle.*dies to 2 or more"
    with pytest.raises(df.DocumentError, match=says):
        Design.from_data(priced(**area))
    with pytest.raises(df.DocumentError, match=r"found 1600 mm2 on 3 dies, expected at most the 400 mm2.*to 4 or more"):
        Design.from_data(priced(**area, dies=3, reticle_mm2=400))
    assert Design.from_data({**priced(**area), "profile": "deepflow"}).budgets.die_area_mm2 == 1600  # it knows none
    assert Design.from_data(priced(**area, reticle_mm2=46225)).budgets.dies is None


def test_a_die_that_no_wafer_holds_is_refused() -> None:
    design = Design.from_data(priced(chip_area_mm2=80000, package_area_mm2=90000, reticle_mm2=80000))
    with pytest.raises(df.SystemSpecError, match=r"chip_area_mm2: found dies that no wafer has room for"):
        _ = df.derive(design).price


def test_what_is_wrong_with_a_wafer_is_told_at_its_place() -> None:
    given = priced()
    given["technology"]["wafer"] = {**WAFER, "edge": "200 mm"}
    with pytest.raises(df.DocumentError, match=r"\$\.technology\.wafer\.edge: found 200 mm around 300 mm"):
        Design.from_data(given)
    given["technology"] |= {"wafer": WAFER, "package": {**PACKAGE, "layers": [[10, 1.5], [10, 2]]}}
    with pytest.raises(df.DocumentError, match=r"\$\.technology\.package\.layers\[1\]: found 10 mm2 after 10 mm2"):
        Design.from_data(given)
