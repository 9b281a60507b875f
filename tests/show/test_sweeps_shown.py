"""Sweeps as they are shown: heat maps and Pareto fronts from frames, and the report with claims, cells and figures."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from pages import check, elements, facts, of, table
from plot_cases import closed_figures, colours, overlapping
from rich.console import Console

import dfopt as df
from dfopt.cli.sweep_tables import claims_table
from dfopt.documents.study_columns import COLUMNS, TEXT_COLUMNS
from dfopt.documents.study_entries import Claim
from dfopt.errors import PlanError
from dfopt.show.plots.cells import label_of, scatter_columns, smaller_is_better, varying
from dfopt.show.plots.fronts import front
from dfopt.show.plots.style import PALETTE
from dfopt.show.report import sweep, sweep_report
from dfopt.studies.claims import Verdict

_closed = pytest.fixture(autouse=True)(closed_figures)

ROWS: list[dict[str, Any]] = [
    {
        "graph": graph, "system": f"{chip}-{memory}-{topology}", "chip": chip, "memory": memory, "topology": topology,
        "status": "optimal", "utilization": 0.01 * (3 * i + 5 * j + 7 * k + 11 * g) + 0.05,
        "price_usd": 1e6 * (1 + i + 2 * j), "flop_per_s": 1e15 * (1 + k + i * j), "step_time_s": 1.0 + i,
    }
    for g, graph in enumerate(("gpt3-175b", "dlrm-793b"))
    for i, chip in enumerate(("h100", "sn30", "tpu-v4"))
    for j, memory in enumerate(("ddr", "hbm"))
    for k, topology in enumerate(("torus-2d", "dragonfly", "dgx-2"))
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25))
def test_the_front_is_what_no_point_beats(points: list[tuple[int, int]]) -> None:
    found = front([(float(a), float(b)) for a, b in points])
    beaten = {(a, b) for a, b in points if any((c <= a and d <= b) and (c, d) != (a, b) for c, d in points)}
    assert {points[i] for i in found} == set(points) - beaten
    assert len({points[i] for i in found}) == len(found)
    assert [points[i] for i in found] == sorted(points[i] for i in found)


def test_a_front_names_the_systems_without_a_price() -> None:
    rows = [
        dict(row, price_usd=None, note="price: 5 USD without a link") if "sn30" in row["system"] else row
        for row in ROWS
    ]
    title = df.plot.pareto(rows, "price_usd", "flop_per_s").figure
    said = " ".join(text.get_text() for text in title.findobj(Text))
    assert "24 of 36 cells" in said and "without price: sn30-ddr-torus-2d, sn30-ddr-dragonfly" in said
    assert "and 2 more" in said and "without achieved rate" not in said
    with pytest.raises(PlanError, match="price: 5 USD without a link"):
        df.plot.pareto(
            [dict(row, flop_per_s=None if row["price_usd"] else 1.0) for row in rows], "price_usd", "flop_per_s"
        )


def test_cells_of_a_heat_map_tell_small_figures_apart() -> None:
    """Of milliseconds two decimals of a second would all be the same."""
    rows = [{"chip": c, "topology": t, "step_time_s": s} for c, t, s in [("a", "x", 0.01172), ("b", "x", 0.0059)]]
    ax = df.plot.heat_map(rows, "step_time_s", x="topology", y="chip")
    assert [text.get_text() for text in ax.texts] == ["0.0117", "0.0059"]


def test_a_heat_map_has_every_cell_and_its_mean() -> None:
    frame = pd.DataFrame(ROWS)
    ax = df.plot.heat_map(frame, "utilization", x="topology", y=["chip", "memory"])
    wanted = frame.groupby(["chip", "memory", "topology"])["utilization"].mean() * 100
    lines = [label.get_text() for label in ax.get_yticklabels()]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    found = {
        (*lines[round(text.get_position()[1])].split(" / "), columns[round(text.get_position()[0])]): text.get_text()
        for text in ax.texts
    }
    assert len(found) == len(wanted) == 18
    for key, text in found.items():
        assert float(text) == pytest.approx(wanted[key], rel=0.01)
    assert overlapping(ax) == []
    assert any(one.get_ylabel() == "utilization (% of peak)" for one in ax.figure.axes)


@pytest.mark.parametrize("count", [4, 9])
def test_labels_of_narrow_columns_do_not_overlap(count: int) -> None:
    name = "sn30-1024-torus-2d-hbm-pcie"
    rows = [{"graph": "g", "system": name, "batch": 2**i, "utilization": 0.05 * (i + 1)} for i in range(count)]
    with df.plot.width(420):
        ax = df.plot.heat_map(pd.DataFrame(rows).assign(status="optimal"), x="batch", y="system")
        assert overlapping(ax) == []
        between = ax.get_window_extent().width / count
    for label in ax.get_xticklabels() if count > 4 else ():
        height = label.get_fontsize() / 72 * ax.figure.dpi
        assert between * math.sin(math.radians(label.get_rotation())) > height


def test_axes_are_chosen_and_the_system_left_out_where_parts_tell_it() -> None:
    assert varying(ROWS) == ["graph", "chip", "memory", "topology"]
    ax = df.plot.heat_map(ROWS)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("topology", "graph / chip / memory")


@pytest.mark.parametrize(
    "columns, wanted",
    [
        (("chip", "link"), ["chip"]),  # a link of its own for each chip
        (("system", "chip", "topology"), ["system"]),
        (("graph", "assumptions", "batch"), ["graph", "batch"]),
    ],
)
def test_axes_that_always_change_together_are_one(columns: tuple[str, ...], wanted: list[str]) -> None:
    rows = [dict.fromkeys(columns, f"{i}") | {"batch": k, "status": "optimal"} for i in range(3) for k in range(2)]
    rows = [{name: row[name] for name in (*columns, "status")} for row in rows]
    assert varying(rows) == wanted


def test_whole_systems_are_no_grid_of_their_parts() -> None:
    chips = {"a": ("h100", "ring 8"), "b": ("h100", "torus"), "c": ("tpu", "ring 4"), "d": ("wse", "one chip")}
    rows = [{"graph": "g", "system": name, "chip": c, "topology": t} for name, (c, t) in chips.items()]
    assert varying(rows) == ["system"]
    ax = df.plot.heat_map([row | {"batch": b, "gap": 0.1} for row in rows for b in (1, 2)], "gap")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("batch", "system")


@given(st.data())
def test_the_fewest_axes_tell_as_much_as_all(data: st.DataObject) -> None:
    names = ["graph", "system", "chip", "memory", "topology", "batch"]
    rows = [
        {name: data.draw(st.sampled_from("ab")) for name in names} for _ in range(data.draw(st.integers(1, 8)))
    ]  # fmt: skip

    def count(of: list[str]) -> int:
        return len({tuple(row[name] for name in of) for row in rows})

    found = varying(rows)
    assert count(found) == count(names)
    assert all(count([one for one in found if one != name]) < count(found) for name in found)


def test_a_cell_without_a_mapping_is_hatched_and_one_that_is_not_there_blank() -> None:
    rows = [dict(row) for row in ROWS if row["graph"] == "gpt3-175b"]
    rows[0] |= {"utilization": math.nan, "status": "infeasible"}
    ax = df.plot.heat_map(rows[:-1], "utilization", x="topology", y=["chip", "memory"])
    hatched = [patch for patch in ax.patches if patch.get_hatch()]
    assert len(hatched) == 1 and len(ax.texts) == 16


def test_small_multiples_share_their_scale() -> None:
    figure = df.plot.heat_maps(ROWS, "graph", "utilization")
    maps = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title(loc="left") for ax in maps] == ["graph: gpt3-175b", "graph: dlrm-793b"]
    assert len({ax.images[0].get_clim() for ax in maps}) == 1
    assert overlapping(figure) == []


def test_a_pareto_picture_names_its_front_and_what_is_better() -> None:
    ax = df.plot.pareto(ROWS, "price_usd", "flop_per_s")
    assert [one.get_label() for one in ax.lines][-1] == "Pareto front of each workload" and len(ax.lines) == 2
    for line in ax.lines:
        x, y = list(line.get_xdata()), list(line.get_ydata())
        assert y == sorted(y) and x == sorted(x)
    assert ax.get_xlabel() == "price, less is better"
    assert ax.get_ylabel() == "achieved rate, more is better"
    assert overlapping(ax) == []
    assert colours(ax) <= {colour.lower() for colour in PALETTE.values()}
    ax.figure.canvas.draw()
    assert {text.get_text() for text in ax.get_xticklabels()} >= {"1 M USD", "2 M USD", "4 M USD"}
    assert {text.get_text() for text in ax.get_yticklabels()} >= {"2 PFLOP/s", "4 PFLOP/s"}


def test_a_front_never_joins_workloads() -> None:
    """Of two graphs, and of one graph whose parameter changes the work of a step."""
    rows = [
        {"graph": g, "seq": n, "flop_per_step": 1e9 * n, "price_usd": 1e6 * i, "flop_per_s": 1e12 * (i * n + 1)}
        for g in "gh" for n in (1, 2) for i in range(1, 4)
    ]  # fmt: skip
    ax = df.plot.pareto(rows, "price_usd", "flop_per_s")
    drawn = [tuple(line.get_xydata().ravel()) for line in ax.lines]
    assert len(drawn) == 4
    of_n = {tuple(v for i in range(1, 4) for v in (1e6 * i, 1e12 * (i * n + 1))) for n in (1, 2)}
    assert set(drawn) == of_n


def test_points_of_a_store_without_labels_are_named_by_plan_and_cell() -> None:
    rows = [{"cell": f"c{i}", "plan": f"TP{i}", "price_usd": i, "flop_per_s": 10.0**i} for i in range(1, 6)]
    ax = df.plot.pareto(rows, "price_usd", "flop_per_s")
    assert {text.get_text() for text in ax.texts} == {f"TP{i}, c{i}" for i in range(1, 6)}
    assert overlapping(ax) == []


def test_figures_may_come_as_text_from_a_file() -> None:
    text = [{key: str(one) for key, one in row.items()} for row in ROWS]
    same = [[t.get_text() for t in df.plot.heat_map(rows, "utilization").texts] for rows in (ROWS, text)]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in TEXT_COLUMNS])
def test_every_figure_of_a_frame_has_a_unit(name: str) -> None:
    words, factor = label_of(name)
    assert re.fullmatch(r"[a-z].* \(\S.*\)", words) and factor > 0
    assert smaller_is_better(name) in (True, False)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: df.plot.heat_map(ROWS, "utilisation"), "did you mean 'utilization'?"),
        (lambda: df.plot.heat_map(ROWS, "status"), "a column without figures; expected one of utilization, price_usd"),
        (lambda: df.plot.heat_map(ROWS, x="chips"), "x: found 'chips', no column of the frame"),
        (lambda: df.plot.heat_map(ROWS[:1]), "found no axis with more than one label"),
        (lambda: df.plot.heat_map([]), "found a frame without rows"),
        (lambda: sweep_report("mine", []), "without rows"),
        (lambda: df.plot.heat_map(3), "found int, expected what sweep returns"),
        (lambda: df.plot.heat_maps(ROWS, "flavour"), "by: found 'flavour'"),
        (lambda: df.plot.pareto(ROWS, "price", "flop_per_s"), "x: found 'price'"),
        (lambda: df.plot.pareto(ROWS, by="system"), "found 18 labels of 'system', expected at most 7"),
        (lambda: df.plot.heat_map([{"a": i, "b": 0, "gap": 1} for i in range(200)], "gap", "a", "b"), "at most 120 a"),
    ],
)  # fmt: skip
def test_errors_name_the_column(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(PlanError, match=re.escape(said)):
        call()


def test_rates_have_a_front_of_each_system_over_all_of_its_batches() -> None:
    rows = [
        {"graph": "g", "system": system, "batch": batch, "phase": "decode", "status": "optimal",
         "tokens_per_s_per_sequence": rate / (1 + batch / 8), "tokens_per_s_per_chip": batch * rate / (1 + batch / 8)}
        for system, rate in (("a", 10.0), ("b", 30.0)) for batch in (1, 4, 16)
    ]  # fmt: skip
    x, y = scatter_columns(rows)
    assert (x, y) == ("tokens_per_s_per_sequence", "tokens_per_s_per_chip")
    ax = df.plot.pareto(rows, x, y)
    assert [len(line.get_xdata()) for line in ax.lines] == [3, 3]
    assert {line.get_drawstyle() for line in ax.lines} == {"steps-post"}
    assert ax.figure.texts[0].get_text().endswith("6 on a front; labels: batch")
    assert sorted(text.get_text() for text in ax.texts) == sorted(["1", "4", "16"] * 2)
    assert overlapping(ax) == []


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
    judged = [("a", 0.5, True, ""), ("<b>", 0.05, False, "too <small>"), ("c", None, None, "")]
    verdicts = [Verdict(claim(name), ours, holds, "2", why) for name, ours, holds, why in judged]
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
    Console(file=said, width=width).print(claims_table([Verdict(claim, 0.45, True, "7 of 8", "one is pending")]))
    lines = said.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    for words in ("twice as fast", "Fig. 10", "0.45", "0.5", "7 of 8", "one is pending", "yes"):
        assert words in " ".join(said.getvalue().split())
    assert any("─" in line for line in lines) == (width >= 72), "a table, or one claim after the other"


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
