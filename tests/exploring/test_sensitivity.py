"""What 10 % more of each budget would buy: designs that keep the raised budgets, judged anew, and checked."""

from __future__ import annotations

import io
from functools import cache

import pytest
from design_cases import GPT2, SIZES, chosen, data
from exploration_cases import forged, is_refused
from test_layer_space import design as layered

import dfopt as df
from dfopt.documents.design import Design
from dfopt.documents.exploration import Exploration
from dfopt.documents.exploration_request import DesignLimits, ExplorationRequest
from dfopt.errors import DocumentError
from dfopt.exploring.checking import check_exploration
from dfopt.exploring.decisions import Decisions
from dfopt.exploring.explore import explore
from dfopt.exploring.sensitivity import raised
from dfopt.show.exploration import exploration_report
from dfopt.show.grid import print_to
from dfopt.technology.as_system import system_of
from dfopt.technology.derive import derive_design

GIVEN = {**data(), "shares": {**data()["shares"], "perimeter": {"dram": 0.5}}}
EDGES: tuple[dict[str, float], ...] = ({}, {"edge_mm": 120})
DESIGN = chosen(**SIZES)
BUDGETS = ExplorationRequest().budgets_of(DESIGN)


@pytest.fixture(scope="module")
def made() -> Exploration:
    return explore(GPT2, DESIGN, gap=0.02)


def test_a_raised_budget_is_10_percent_more_of_it_and_of_no_other() -> None:
    of = DESIGN.budgets
    for budget in BUDGETS:
        design, more = raised(DESIGN, budget)
        assert Design.from_data(design.to_data()) == design  # which a file may say too
        then = design.budgets
        figures = {"area": then.chip_area_mm2, "power": then.power, "edge": then.edge, "package": then.package_area_mm2}
        were = {"area": of.chip_area_mm2, "power": of.power, "edge": of.edge, "package": of.package_area_mm2}
        assert figures[budget] == pytest.approx(1.1 * were[budget]) == pytest.approx(were[budget] + more)
        others = set(BUDGETS) - {budget} - ({"edge", "package"} if budget == "area" else set())
        assert all(figures[other] == were[other] for other in others)
    large = chosen(budgets__chip_area_mm2=850, budgets__package_area_mm2=1300, budgets__edge_mm=120)
    design, _ = raised(large, "area")
    assert Design.from_data(design.to_data()) == design and design.budgets.reticle == pytest.approx(935)
    assert design.budgets.edge > 120 and design.budgets.package_area_mm2 == pytest.approx(1385)


def test_an_edge_is_that_of_a_rectangle() -> None:
    with pytest.raises(DocumentError, match=r"edge_mm: found 100 mm, expected the 113.137 mm of a square chip"):
        chosen(budgets__edge_mm=100)
    chips = [derive_design(Design.from_data({**GIVEN, "budgets": {**GIVEN["budgets"], **edge}})) for edge in EDGES]
    assert chips[1].dram.edge_left == pytest.approx(chips[0].dram.edge_left + 0.5 * (120 - 4 * 800**0.5))


def test_they_are_a_table_on_a_terminal_of_80_columns(made: Exploration) -> None:
    page = io.StringIO()
    print_to(page, exploration_report(made), 80)
    lines = page.getvalue().splitlines()
    at = lines.index("More of each budget")
    assert " ".join(lines[at + 1].split()) == "budget more best found better by at least with"
    assert sum(line.startswith(("area of the ", "power ", "edge ")) for line in lines[at + 3 :]) == len(BUDGETS)
    assert max(map(len, lines)) <= 80
    least = next(line for line in lines if line.startswith("dram "))
    assert " 1 stack " in least and "1 stacks" not in page.getvalue()


def test_each_is_a_design_of_the_raised_budgets(made: Exploration) -> None:
    assert [one.budget for one in made.sensitivity] == list(BUDGETS)
    best = {one.budget: one.value for one in made.sensitivity}
    assert best["area"] < made.value * 0.97 and best["power"] < made.value * 0.97
    for one in made.sensitivity:
        space = Decisions(raised(DESIGN, one.budget)[0])
        at = tuple(sizes.index(one.best[name]) for name, sizes in space.sizes.items())
        chip = space.chip(space.root.at(at))
        assert chip is not None and DESIGN.template is not None
        system = system_of("mine", chip, DESIGN.template, DESIGN.technology.core.utilization)
        assert df.evaluate(one.mapping, "gpt2-small", system).step_time_s == pytest.approx(one.value, rel=1e-12)


def test_forged_sensitivities_are_caught(made: Exploration) -> None:
    assert check_exploration(made, "it").startswith("verified within")
    first, *rest = made.sensitivity
    for update, says in (
        ({"value": first.value * 0.9}, r"\$.sensitivity\[0\].value: found .*, the judge says"),
        ({"more": 81.0}, r"\$.sensitivity\[0\].more: found 81.0, expected 80.0"),
        ({"best": {**first.best, "dram": 3.5}}, r"\$.sensitivity\[0\].best.dram: found 3.5, which is no choice"),
        ({"budget": "power"}, r"\$.sensitivity: found power, package, power, edge, expected area"),
    ):
        is_refused(made.model_copy(update={"sensitivity": (first.model_copy(update=update), *rest)}).sealed(), says)


@cache
def hot() -> Exploration:
    """Stacks that a limit on heat and one on the price hold back."""
    of = layered({"dram_layers": [4, 6, 8], "power": {"least": "90 W", "most": "270 W", "step": "90 W"}})
    limits = DesignLimits(temperature=353.15, price=1250.0)
    return explore(GPT2, of, heat="lumped", gap=0.0, limits=limits)


def test_what_a_layer_a_dollar_and_a_kelvin_are_worth() -> None:
    made = hot()
    by = {one.budget: one for one in made.sensitivity}
    assert list(by) == ["layers", "price", "temperature"]
    assert by["layers"].best["dram_layers"] == made.best["dram_layers"] + 1 and by["layers"].more == 1
    assert by["price"].more == pytest.approx(125.0) and by["temperature"].more == 10
    warmer = explore(
        GPT2, made.designs[0], heat="lumped", gap=0.0, limits=DesignLimits(temperature=363.15, price=1250.0),
        sensitivity=False,
    )  # fmt: skip
    assert by["temperature"].value == pytest.approx(warmer.value, rel=1e-9) and warmer.value < made.value
    assert "verified" in check_exploration(made, "it")
    for number, name in ((0, "value"), (1, "more"), (2, "value")):
        wrong = forged(made, "sensitivity", number, name, value=lambda value: value * 0.9)
        is_refused(wrong, rf"\$\.sensitivity\[{number}\]\.{name}: found")
    page = io.StringIO()
    print_to(page, exploration_report(made), 80)
    assert "limits of temperature" in page.getvalue() and "DRAM layers" in page.getvalue()
