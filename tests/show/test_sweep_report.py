"""Reports of sweeps: claims, cells, figures, and errors for wrong columns."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("matplotlib")
from pages import check, elements, facts, of, table
from rich.console import Console

import dfopt as df
from dfopt.cli.sweep_tables import claims_table
from dfopt.documents.study_entries import Claim
from dfopt.errors import PlanError
from dfopt.show.report import sweep, sweep_report
from dfopt.studies.claims import Verdict as Judged


@dataclass
class Verdict:
    claim: Claim
    ours: float | None
    holds: bool | None
    cells: str = "2"
    why: str = ""
    expected: str = ">= 1"


def rows(chips: int = 3, topologies: int = 2) -> list[dict[str, Any]]:
    return [
        {
            "graph": "g", "chip": f"c{i}", "topology": f"t{k}", "status": "optimal", "step_time_s": 1.0 + i * k,
            "utilization": 0.1 + 0.01 * i * k, "flop_per_s": 1e12 * (i + 1), "price_usd": 100.0 * (i + k + 1),
            "gap": 0.0, "note": None,
        }
        for i in range(chips)
        for k in range(topologies)
    ]  # fmt: skip


def claim(name: str) -> Claim:
    return Claim(name=name, value="utilization", at_least=0.1)


def test_a_page_has_claims_cells_and_figures() -> None:
    verdicts = [Verdict(claim("a"), 0.5, True), Verdict(claim("<b>"), 0.05, False, why="too <small>"),
                Verdict(claim("c"), None, None)]  # fmt: skip
    page = check(sweep_report("mine", rows(), claims=verdicts, about=[("description", "a <study>")]))
    found = table(page, "What the source claims")
    holds = found[0].index("holds")
    assert [(row[0], row[holds]) for row in found[1:]] == [("a", "yes"), ("<b>", "no"), ("c", "open")]
    assert facts(page)["claims that hold"] == "1 of 3"
    assert len(of(page, "figure")) == 2 and len(of(page, "svg")) == 4  # each for a desk and for a phone
    cells = table(page, "Every cell")
    assert len(cells) == 7 and cells[0][:2] == ["chip", "topology"]
    assert "graph" not in cells[0] and facts(page)["graph"] == "g"  # the same everywhere
    assert "note" not in cells[0]  # of no cell


def test_every_workload_has_figures_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    both = rows() + [row | {"graph": "h"} for row in rows()]
    page = check(sweep_report("mine", both))
    labels = [one.text for one in of(page, "figcaption")]
    assert [label.split(" by ")[0].split(";")[0] for label in labels] == [
        "Heat map of utilization (% of peak) of g", "Every cell of g",
        "Heat map of utilization (% of peak) of h", "Every cell of h",
    ]  # fmt: skip
    monkeypatch.setattr(sweep, "_MAPS", 1)
    page = elements(sweep_report("mine", both))
    assert len(of(page, "figure")) == 2
    assert any("the first 1 of 2 workloads are" in one.text for one in of(page, "p"))


def test_a_bound_is_not_printed_like_an_estimate() -> None:
    some = [row | {"bound_s": 0.5 + i} for i, row in enumerate(rows())]
    cells = table(elements(sweep_report("mine", some)), "Every cell")
    column = cells[0].index("bound_s")
    assert [row[column] for row in cells[1:3]] == ["\u2265 0.5", "\u2265 1.5"]


def test_cells_without_a_mapping_are_counted_by_message() -> None:
    some = rows()
    for row in some[:2]:
        row |= {"status": "infeasible", "note": "SRAM <short>\nmore", "utilization": None, "flop_per_s": None}
    page = check(sweep_report("mine", some))
    assert table(page, "Cells without a mapping")[1:] == [["infeasible", "2", "SRAM <short>"]]


def test_many_cells_are_cut_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_CELLS", 300)
    page = check(sweep_report("mine", rows(chips=40)))
    kept = len(table(page, "Every cell")) - 1
    assert 20 <= kept < 80
    assert any(f"The first {kept} of 80 cells" in one.text for one in of(page, "p"))


def test_a_figure_that_cannot_be_drawn_says_why() -> None:
    one = rows(chips=1, topologies=1)
    page = elements(sweep_report("mine", one))
    assert any("Not shown: heat map: found no axis with more than one label" in p.text for p in of(page, "p"))


@pytest.mark.parametrize("option", ["value", "x", "y"])
def test_a_column_that_is_asked_for_must_be_there(option: str) -> None:
    with pytest.raises(PlanError, match=f"--{option}: found 'utilisation'.*did you mean 'utilization'"):
        sweep_report("mine", rows(), **{option: "utilisation"})
    with pytest.raises(PlanError, match="a column without figures"):
        sweep_report("mine", rows(), **{option: "status"})


@pytest.mark.parametrize("width", [40, 60, 100])
def test_claims_can_be_read_at_any_width(width: int) -> None:
    claim = Claim(name="twice as fast", figure="Fig. 10", value="utilization", paper=0.5, at_least=0.4)
    said = io.StringIO()
    Console(file=said, width=width).print(claims_table([Judged(claim, 0.45, True, "7 of 8", "one is pending")]))
    lines = said.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    for words in ("twice as fast", "Fig. 10", "0.45", "0.5", "7 of 8", "one is pending", "yes"):
        assert words in " ".join(said.getvalue().split())
    assert any("─" in line for line in lines) == (width >= 72), "a table, or one claim after the other"


def test_no_rows_are_an_error() -> None:
    with pytest.raises(PlanError, match="without rows"):
        sweep_report("mine", [])


def test_graphs_by_systems_are_one_map_in_the_order_of_the_study() -> None:
    cells = [("g", "a"), ("g", "c"), ("h", "a"), ("h", "b"), ("h", "c")]
    rows = [{"graph": g, "system": s, "status": "optimal", "utilization": 0.1, "chips": i + 1, "flop_per_s": 1.0 + i}
            for i, (g, s) in enumerate(cells)]  # fmt: skip
    page = elements(sweep_report("zoo", rows))
    captions = [one.text for one in of(page, "figcaption")]
    assert len(captions) == 2 and captions[0].startswith("Heat map of utilization (% of peak) by graph and system")
    assert [label.get_text() for label in df.plot.heat_map(rows, x="system", y="graph").get_xticklabels()] == [*"abc"]


def test_a_front_for_each_value_of_a_column_that_is_named() -> None:
    rows = [{"system": s, "batch": b, "flop_per_step": 10.0 * b, "chips": b, "flop_per_s": 1.0 * b}
            for s in "ab" for b in (1, 2, 4)]  # fmt: skip
    assert len(df.plot.pareto(rows, "chips", "flop_per_s").lines) == 3, "cells of other work do not beat each other"
    assert len(df.plot.pareto(rows, "chips", "flop_per_s", by="system").lines) == 2
