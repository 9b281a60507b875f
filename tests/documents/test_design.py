"""Technologies and designs as documents: what is read, and what is refused with words that help."""

from __future__ import annotations

import json
from typing import Any

import pytest
from design_cases import data, searched

from dfopt.documents.design import Design
from dfopt.errors import DocumentError, SystemSpecError


def test_rest_is_what_the_others_leave() -> None:
    design = Design.from_data(data())
    assert design.shares_of("area") == {"core": 0.5, "L2": 0.2, "dram": pytest.approx(0.3)}
    assert design.shares_of("power") == {"core": 0.75, "dram": 0.25}
    assert design.shares_of("perimeter") == {}
    assert Design.from_data(design.to_data()) == design


def given(document: dict[str, Any], where: str, value: Any) -> Design:
    """A design with a value in one place of its document."""
    *keys, last = (int(key) if key.isdigit() else key for key in where.split("."))
    changed = json.loads(json.dumps(document))  # parts of it are shared
    at: Any = changed
    for key in keys:
        at = at[key]
    at[last] = value
    return Design.from_data(changed)


@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (
            "shares.power",
            {"core": 1.1, "L2": 0.15},
            ": found shares that sum to 1.25, expected at most 1: 0.25 too much",
        ),
        ("shares.area", {"core": "rest", "dram": "rest"}, ": found rest for core and dram, expected it once"),
        (
            "shares.perimeter",
            {"in_package": 0.1},
            ".in_package: technology test has no such component (it has core, L2, dram)",
        ),
        ("budgets.package_area_mm2", 700, ": found 700 mm2, expected the 800 mm2 of the chip or more"),
        ("budgets.power", 300, ": missing unit"),
        ("technology.core.supply.threshold_v", 0.8, ": found 0.8 V, expected less than the nominal 0.8 V"),
        ("technology.core.supply.max_v", 0.5, ": found 0.5 V, expected 0.55 V"),
        ("technology.sram.0.name", "core", ": found 'core', a name that another component has"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(where: str, value: Any, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        given(data(), where, value)
    assert f"$.{where.replace('.0', '[0]')}{says}" in str(caught.value)


def test_only_deepflow_lets_shares_exceed_one() -> None:
    """But for the rest of them: there is none."""
    changed = data() | {"profile": "deepflow"}
    changed["shares"]["power"] = {"core": 1.1, "L2": 0.15}
    assert Design.from_data(changed).shares_of("power") == {"core": 1.1, "L2": 0.15}
    with pytest.raises(DocumentError, match=r"0\.25 too much"):
        given(changed, "shares.power.dram", "rest")


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
        ("shares.area.core", "auto", r"shares.area.core: found auto.*cores take what the others leave"),
        ("shares.area.L2", 0.1, r"choices: found sizes of L2, expected those.*set \$.shares.area.L2 to auto"),
        ("shares.power.L2", "half", r"shares.power.L2"),
        ("profile", "deepflow", r"profile: found deepflow beside shares that are auto"),
        ("choices.stacks.most", 0, r"choices.stacks.most: found 0"),
        ("choices.capacity.L2.most", "4 MiB", r"capacity.L2.most: found 4.1943e\+06, expected least"),
        ("choices.capacity.L2.step", "1 B", r"choices.capacity.L2.step: found 5.87e\+07 steps"),
        ("template.sram", "L3", r"template.sram: found 'L3', expected an SRAM level.*it has L2"),
        ("template.network.0.links", "in_package", r"network\[0\].links: technology test has no such"),
        ("template.network.0.link_bandwidth", "1 GB/s", r"network\[0\].links: found both of links and"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen(where: str, value: Any, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        given(searched(), where, value)
