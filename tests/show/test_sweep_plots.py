"""Heat maps and Pareto fronts from frames."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("matplotlib")
import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from plot_cases import colours, overlapping

import dfopt as df
from dfopt.documents.study_columns import COLUMNS, TEXT_COLUMNS
from dfopt.errors import PlanError
from dfopt.show.plots.cells import label_of, scatter_columns, smaller_is_better, varying
from dfopt.show.plots.fronts import front
from dfopt.show.plots.style import PALETTE

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


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")


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
    said = " ".join(text.get_text() for text in title.findobj(mpl.text.Text))
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
