"""Dies on a wafer, yields and packages: a table by hand, what another program charges; what derived chips cost."""

from __future__ import annotations

import csv
from collections import Counter
from decimal import Decimal, getcontext
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.wafer import Interposer, Packaging, Wafer
from dfopt.errors import SystemSpecError
from dfopt.exploring.decisions import Decisions
from dfopt.library import as_design
from dfopt.technology.dies import memory_per_link_rate, seam_mm
from dfopt.technology.plain_data import plain_figures
from dfopt.technology.price import die_price, die_yield, dies_per_wafer, package_price
from tests.technology.test_as_system import fixed

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


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Wafer(usd=1, defects_per_cm2=-1), "greater than or equal to 0"),
        (lambda: Packaging(**ORGANIC, bonding_yield=0), "greater than 0"),
        (lambda: package_price([], PACKAGES["OS"]), "found none, expected one or more"),
    ],
)
def test_what_no_wafer_or_package_can_be(made: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made()  # type: ignore[operator]


# 15 USD per GB of DRAM is an assumption
N5_WAFER = NODES["n5"].model_dump(mode="json", exclude_defaults=True)
CHEAP_PACKAGE = {**ORGANIC, "bump_usd_per_mm2": 0.005, "bonding_yield": 0.99}
# UCIe on an interposer: 32 Gbit/s a lane at 0.3 pJ/bit (Hot Interconnects 2025); area and pitch are assumptions
BETWEEN_DIES = {
    "area_mm2": 0.02, "links_per_mm": 160, "frequency": "32 GHz", "energy": "0.3 pJ/bit",
    "supply": {"nominal_v": 0.8, "threshold_v": 0.2, "margin_v": 0.35},
}  # fmt: skip


def dies(count: int, **budgets: Any) -> dict[str, Any]:
    """The data of a design of several dies with links between them."""
    given = priced(dies=count, **budgets)
    given["technology"]["links"]["between_dies"] = BETWEEN_DIES
    for budget in ("area", "power"):
        given["shares"][budget]["between_dies"] = 0.05
    return given


def priced(**budgets: Any) -> dict[str, Any]:
    """The data of a design whose technology has prices."""
    given = fixed().to_data()
    given["technology"] |= {"wafer": N5_WAFER, "package": CHEAP_PACKAGE}
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


def layered(layers: int = 4, part: dict[str, Any] | None = None, **sizes: Any) -> Design:
    """The design of the zoo with so many layers, at other prices."""
    given = as_design("stacked-256").to_data()
    given["technology"]["layers"] |= part or {}
    given["sizes"] |= {"dram_layers": layers, "connected_layers": layers, **sizes}
    return Design.from_data(given, "it")


def test_a_stack_is_what_its_dies_cost_over_what_of_it_is_good() -> None:
    area, data = 85e-6, as_design("stacked-256").technology
    assert data.wafer is not None and data.package is not None and data.layers is not None and data.layers.wafer
    logic, layer = (float(die_price(area, wafer)) for wafer in (data.wafer, data.layers.wafer))
    good, dram_good = (float(die_yield(area, wafer)) for wafer in (data.wafer, data.layers.wafer))
    bond = data.layers.bonding_yield
    assert bond < 1 and dram_good < 1
    by_hand = {
        True: (logic + 4 * layer) / bond**4,
        False: (logic * good + 4 * layer * dram_good) / (good * (dram_good * bond) ** 4),
    }
    for tested, usd in by_hand.items():
        price = df.derive(layered(part={"tested": tested})).price
        assert price is not None and price.stack is not None and price.dram_usd is not None
        assert price.stack.total == pytest.approx(usd, rel=1e-12)
        assert price.usd == pytest.approx(package_price([(area, usd)], data.package).total, rel=1e-12)
        assert price.dram_usd == pytest.approx(4 * layer * (1 if tested else dram_good), rel=1e-12)
        assert df.derive(layered(part={"tested": tested})).system.chip.price_usd == price.usd
    unpriced = df.derive(layered(part={"wafer": None})).price
    assert unpriced is not None and unpriced.usd is None and unpriced.die_usd == logic


@given(st.integers(1, 12), st.booleans(), st.floats(0.5, 1), st.floats(0, 3), st.sampled_from(["logic", "dram"]))
def test_more_layers_cost_yield_and_money(
    layers: int, tested: bool, bonding: float, defects: float, network: str
) -> None:
    wafer = {"usd": 2100, "defects_per_cm2": defects}
    part = {"wafer": wafer, "tested": tested, "bonding_yield": bonding}
    asked = [(layers, 1), (layers, layers), (layers + 1, layers), (layers + 1, layers + 1)]
    prices = [
        df.derive(layered(total, part, connected_layers=connected, network_die=network)).price
        for total, connected in asked
    ]
    for less, more in pairwise(prices):
        assert less is not None and more is not None and less.stack is not None and more.stack is not None
        assert less.usd is not None and more.usd is not None and less.usd <= more.usd
        assert more.stack.kept <= less.stack.kept
    assert prices[0].usd < prices[-1].usd  # type: ignore[union-attr, operator]


def test_what_has_no_price_has_none() -> None:
    assert df.derive(fixed()).price is None and df.derive(fixed()).system.chip.price_usd is None
    for section, key in (("dram", "usd_per_gb"), (None, "package")):
        given = priced()
        del (given["technology"][section] if section else given["technology"])[key]
        price = df.derive(Design.from_data(given)).price
        assert price is not None and price.usd is None and price.die_usd > 0
        assert df.derive(Design.from_data(given)).system.chip.price_usd is None


def test_smaller_dies_are_cheaper_to_make() -> None:
    one, two = (df.derive(Design.from_data(given)).price for given in (priced(), dies(2)))
    assert one is not None and two is not None
    assert two.die_yield > one.die_yield and 2 * two.die_usd < one.die_usd


def test_a_chip_above_the_reticle_needs_more_dies() -> None:
    area = {"chip_area_mm2": 1600, "package_area_mm2": 2600}
    says = r"chip_area_mm2: found 1600 mm2 on 1 die, expected at most the 858 mm2 of a reticle.*dies to 2 or more"
    with pytest.raises(df.DocumentError, match=says):
        Design.from_data(priced(**area))
    with pytest.raises(df.DocumentError, match=r"found 1600 mm2 on 3 dies, expected at most the 400 mm2.*to 4 or more"):
        Design.from_data(dies(3, **area, reticle_mm2=400))
    assert Design.from_data({**priced(**area), "profile": "deepflow"}).budgets.die_area_mm2 == 1600  # it knows none
    assert Design.from_data(priced(**area, reticle_mm2=46225)).budgets.dies is None


@pytest.mark.parametrize(
    "design",
    [
        layered(part={"wafer": {"usd": 2100, "defects_per_cm2": 0.1, "diameter": "20 mm"}}),
        Design.from_data(priced(chip_area_mm2=80000, package_area_mm2=90000, reticle_mm2=80000)),
    ],
    ids=["layers", "die"],
)
def test_dies_that_no_wafer_holds_are_refused(design: Design) -> None:
    with pytest.raises(SystemSpecError, match=r"chip_area_mm2: found dies that no wafer has room for"):
        _ = df.derive(design).price


def test_what_is_wrong_with_a_wafer_is_told_at_its_place() -> None:
    given = priced()
    given["technology"]["wafer"] = {**N5_WAFER, "edge": "200 mm"}
    with pytest.raises(df.DocumentError, match=r"\$\.technology\.wafer\.edge: found 200 mm around 300 mm"):
        Design.from_data(given)
    given["technology"] |= {"wafer": N5_WAFER, "package": {**CHEAP_PACKAGE, "layers": [[10, 1.5], [10, 2]]}}
    with pytest.raises(df.DocumentError, match=r"\$\.technology\.package\.layers\[1\]: found 10 mm2 after 10 mm2"):
        Design.from_data(given)


def test_dies_pay_for_the_links_between_them() -> None:
    area = {"chip_area_mm2": 1600, "package_area_mm2": 2600}
    whole, split = Design.from_data(dies(2, **area)), df.derive(Design.from_data(dies(2, **area))).components
    links = split.links["between_dies"]
    assert links.links == 4000 < int(2 * (1600 / 2) ** 0.5 * 160) and links.power > 0  # 80 mm2; the seam has more
    assert split.dram.rate == min(split.dram.bandwidth, 2 * links.rate)  # half of the bytes cross, half each way
    thin = dies(2, **area)
    thin["shares"]["power"]["between_dies"] = 1e-4
    slow = df.derive(Design.from_data(thin)).components
    assert slow.dram.rate == 2 * slow.links["between_dies"].rate < split.dram.rate
    assert plain_figures(slow)["dram"]["bound"] == "dies"
    assert df.derive(whole).system.chip.fastest.bandwidth == split.dram.rate


@pytest.mark.parametrize("count", [2, 3, 4, 6, 8, 9])
def test_links_between_dies_carry_what_every_route_brings(count: int) -> None:
    """Every pair of dies, every hop: the busiest seam is as full as its links allow."""
    rows = max(rows for rows in range(1, count + 1) if count % rows == 0 and rows * rows <= count)
    columns = count // rows
    loads: Counter[tuple[int, int, int, int]] = Counter()
    for (y, x), (v, u) in product(product(range(rows), range(columns)), repeat=2):
        while (y, x) != (v, u):
            then = (y, x + (1 if u > x else -1)) if x != u else (y + (1 if v > y else -1), x)
            loads[y, x, *then] += 1
            y, x = then
    seams = 2 * (rows * (columns - 1) + columns * (rows - 1))
    busiest = max(loads.values()) / count**2  # of the bytes of memory
    assert memory_per_link_rate(count) == pytest.approx(1 / seams / busiest)
    assert seam_mm(count, 100.0 * count) == pytest.approx(seams * 10)


def test_dies_need_links() -> None:
    with pytest.raises(df.DocumentError, match=r"budgets\.dies: found 2, expected 1: technology test has no links bet"):
        Design.from_data(priced(dies=2))
    for budget in ("area", "power"):
        given = dies(2)
        del given["shares"][budget]["between_dies"]
        says = rf"shares\.{budget}\.between_dies: found none, expected a share for the links between 2 dies"
        with pytest.raises(df.DocumentError, match=says):
            Design.from_data(given)
    given = dies(2)
    given["shares"]["perimeter"]["between_dies"] = 0.1
    with pytest.raises(df.DocumentError, match=r"perimeter\.between_dies: found 0\.1, expected none.*seams"):
        Design.from_data(given)
    given = dies(2)
    given["template"]["network"][0]["links"] = "between_dies"
    with pytest.raises(df.DocumentError, match=r"network\[0\]\.links: found between_dies, expected links between ch"):
        Design.from_data(given)
    with pytest.raises(df.DocumentError, match=r"budgets\.dies: found 2, expected 1: the profile deepflow knows no"):
        Design.from_data({**dies(2), "profile": "deepflow"})


def test_a_search_sees_the_same_dies() -> None:
    given = dies(2)
    del given["shares"]["area"]["dram"], given["shares"]["power"]["dram"], given["shares"]["perimeter"]["dram"]
    for budget in ("area", "power", "perimeter"):
        given["shares"][budget]["dram"] = "auto"
    given["shares"]["power"]["between_dies"] = 1e-4
    given["shares"]["area"]["core"] = given["shares"]["power"]["core"] = "rest"
    decisions = Decisions(Design.from_data(given))
    chips = [decisions.chip(decisions.root.at((at,))) for at in range(decisions.count)]
    best = decisions.chip(decisions.root)
    assert best is not None and best.dies == 2
    rates = [chip.dram.rate for chip in chips if chip is not None]
    assert rates and max(rates) <= best.dram.rate == 2 * best.links["between_dies"].rate
