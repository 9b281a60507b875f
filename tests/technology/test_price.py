"""Dies on a wafer, yields and packages: a table by hand, what another program charges, and what may never happen."""

from __future__ import annotations

import csv
from decimal import Decimal, getcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfopt.documents.wafer import Interposer, Packaging, Wafer
from dfopt.technology.price import die_price, die_yield, dies_per_wafer, package_price

GOLDEN = Path(__file__).parents[1] / "golden" / "deepflow" / "chiplet_actuary_packages.csv"
PI = Decimal("3.14159265358979323846264338327950288")
# USD of a wafer and defects per cm2: The Information Network and Chiplet Actuary's parameter.ini (b85c29f); the defects
# of N3 and N2 are its figure for N3, which its authors mark as inaccurate
NODES = {
    "n7": Wafer(usd=9346, defects_per_cm2=0.09),
    "n5": Wafer(usd=16988, defects_per_cm2=0.11),
    "n3": Wafer(usd=19865, defects_per_cm2=0.2),
    "n2": Wafer(usd=24570, defects_per_cm2=0.2),
}
ORGANIC = {"usd_per_mm2": 0.005, "area_factor": 4}
PACKAGES = {
    "OS": Packaging(**ORGANIC, bump_usd_per_mm2=0.005, layers=((0, 1.5), (289, 1.75), (900, 2)), bonding_yield=0.99),
    "FO": Packaging(
        **ORGANIC, bump_usd_per_mm2=0.01, ball_usd_per_mm2=0.005, bonding_yield=0.98, substrate_yield=0.99,
        interposer=Interposer(wafer=Wafer(usd=1200, defects_per_cm2=0.05, clustering=3), area_factor=1.2),
    ),
    "SI": Packaging(
        **ORGANIC, bump_usd_per_mm2=0.01, ball_usd_per_mm2=0.005, bonding_yield=0.95, substrate_yield=0.99,
        interposer=Interposer(wafer=Wafer(usd=1937, defects_per_cm2=0.06, clustering=6), area_factor=1.1),
    ),
}  # fmt: skip
with GOLDEN.open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(line for line in file if not line.startswith("#")))


def by_hand(mm2: int, wafer: Wafer) -> Decimal:
    """USD of a good die, in decimal figures of mm."""
    getcontext().prec = 40
    lane, radius = Decimal("0.2"), Decimal(300) / 2 - 5
    cut = (Decimal(mm2).sqrt() + lane) ** 2
    dies = PI * radius**2 / cut - PI * 2 * radius / (2 * cut).sqrt()
    good = (1 + Decimal(str(wafer.defects_per_cm2)) * mm2 / 100 / 10) ** -10
    return Decimal(wafer.usd) / (dies * good)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("mm2", [50, 100, 204, 407, 814])
def test_price_of_a_die_is_that_of_a_table_by_hand(node: str, mm2: int) -> None:
    assert float(die_price(mm2 * 1e-6, NODES[node])) == pytest.approx(float(by_hand(mm2, NODES[node])), rel=1e-9)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(list(row.values())[:4]))
def test_package_costs_what_another_program_charges(row: dict[str, str]) -> None:
    wafer, dies = NODES["n" + row["node"]], int(row["dies"])
    area = float(row["mm2"]) * 1e-6 * (1 if dies == 1 else 1.1 / dies)
    seen = package_price([(area, float(die_price(area, wafer)))] * dies, PACKAGES[row["package"]])
    told = {key: float(value) for key, value in row.items() if key.endswith(("chips", "package")) and key != "package"}
    assert seen.dies == pytest.approx(told["raw_chips"] + told["defect_chips"], abs=2e-6)
    assert seen.package == pytest.approx(told["raw_package"], abs=2e-6)
    assert seen.lost_dies == pytest.approx(told["wasted_chips"], abs=2e-6)
    assert seen.lost_packages == pytest.approx(told["defect_package"], abs=2e-6)
    assert seen.total == pytest.approx(sum(told.values()), abs=1e-5)


wafers = st.builds(
    Wafer,
    usd=st.floats(1, 1e5), diameter=st.floats(0.1, 0.45), edge=st.floats(0, 0.01), scribe=st.floats(0, 0.001),
    defects_per_cm2=st.floats(0, 2), clustering=st.floats(0.5, 50),
)  # fmt: skip


@given(wafers, st.lists(st.floats(1e-6, 900e-6), min_size=2, max_size=6))
def test_larger_dies_are_fewer_worse_and_dearer(wafer: Wafer, areas: list[float]) -> None:
    areas = sorted(areas)
    for rising in (-dies_per_wafer(areas, wafer), -die_yield(areas, wafer), die_price(areas, wafer)):
        assert all(one <= other * (1 + 1e-12 * np.sign(other)) for one, other in pairwise(rising))


@given(wafers, st.floats(1e-6, 900e-6))
def test_no_more_dies_than_area(wafer: Wafer, area: float) -> None:
    assert 0 <= float(dies_per_wafer(area, wafer)) * area <= np.pi * (wafer.diameter / 2 - wafer.edge) ** 2
    assert 0 < float(die_yield(area, wafer)) <= 1


@pytest.mark.parametrize("defects", [0, 0.1])
def test_a_wafer_without_room_has_no_die_and_no_price(defects: float) -> None:
    """Infinitely much, even where none of it is lost: not 'no number'."""
    small = Wafer(usd=1000, diameter=0.02, defects_per_cm2=defects)
    price = float(die_price(800e-6, small))
    assert float(dies_per_wafer(800e-6, small)) == 0 and price == np.inf
    standing = Packaging(usd_per_mm2=0.005, area_factor=4, interposer=Interposer(wafer=small, area_factor=1.1))
    assert package_price([(800e-6, 100.0)], standing).total == np.inf
    for packaging in (standing, Packaging(usd_per_mm2=0.005, area_factor=4)):
        whole = package_price([(800e-6, price)], packaging)
        assert whole.total == np.inf and whole.lost_dies == 0


def test_a_package_needs_dies() -> None:
    with pytest.raises(ValueError, match="found none, expected one or more"):
        package_price([], PACKAGES["OS"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Wafer(usd=1, diameter=0.01, edge=0.005, defects_per_cm2=0), "found 5 mm around 10 mm"),
        (lambda: Wafer(usd=1, defects_per_cm2=-1), "greater than or equal to 0"),
        (lambda: Packaging(**ORGANIC, layers=((10, 1.5), (10, 2))), "found 10 mm2 after 10 mm2"),
        (lambda: Packaging(**ORGANIC, bonding_yield=0), "greater than 0"),
    ],
)
def test_what_no_wafer_or_package_can_be(made: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        made()  # type: ignore[operator]
