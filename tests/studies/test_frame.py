"""The frame: its columns and their units against a single solve, cells without figures, heat maps, exports."""

from __future__ import annotations

import io
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from study_cases import study

import dfopt
from dfopt.cli.sweep_tables import report
from dfopt.documents.study_columns import COLUMNS
from dfopt.documents.study_expressions import check_expression
from dfopt.errors import DocumentError, PlanError
from dfopt.processes.worker import solve
from dfopt.show.grid import print_to
from dfopt.studies.cells import expand
from dfopt.studies.packing import Tasks
from dfopt.studies.runs import Runs

PRICES = {
    "chip.price_usd": 1000.0,
    "chip.power_w": 100.0,
    "chip.dram.usd_per_gb_s": 2.0,
    "chip.dram.w_per_gb_s": 0.5,
    "network.ring.link_usd_per_gb_s": 3.0,
    "network.ring.link_w_per_gb_s": 0.25,
}


def record(cell: Any) -> dict[str, Any]:
    return solve(Tasks([cell])[0])


def test_figures_are_those_of_a_single_solve() -> None:
    whole = study(systems=[{"system": "sn10-8-ring", "set": PRICES}], axes={"size": [{"label": 3}]})
    (cell,) = expand(whole)
    frame = Runs(whole, (cell,), {cell.key: record(cell)}).frame()
    assert tuple(frame.columns) == whole.columns
    line = frame.loc[0]
    result = dfopt.optimize(cell.graph, cell.system, tp=8, variants=cell.graphs[1:])
    score, plan = result.score, result.plan
    for name in ("step_time_s", "gap", "level_gap", "utilization", "status"):
        assert line[name] == getattr(result, name), name
    assert (line["bound_s"], line["level_bound_s"]) == (result.bound, result.level_bound)
    for name in (
        "layer_time_s", "pipeline_fill_s", "point_to_point_s", "gradient_reduction_s", "flop_per_step", "samples_per_s",
        "tokens_per_s", "bound_by", "compute_share", "memory_share", "network_share",
    ):  # fmt: skip
        assert line[name] == getattr(score, name), name
    for name in ("tp", "pp", "dp", "microbatches", "layers_per_stage", "interleave"):
        assert line[name] == getattr(plan, name), name
    for term in ("compute", "memory", "network"):
        assert line[f"layer_{term}_s"] == math.fsum(getattr(part, f"{term}_s") for part in score.partitions)
    assert line["partitions"] == len(score.partitions)
    assert line["dram_used_bytes"] == score.stages[0].dram_bytes
    assert line["flop_per_s"] == pytest.approx(8 * 307.2e12 * result.utilization)
    # eight chips, eight links of 25 GB/s, no switch
    price, power = 8 * (1000 + 200 * 2) + 8 * 25 * 3, 8 * (100 + 200 * 0.5) + 8 * 25 * 0.25
    assert (line["price_usd"], line["power_w"]) == pytest.approx((price, power))
    assert line["perf_per_dollar"] == pytest.approx(line["flop_per_s"] / price)
    assert line["perf_per_watt"] == pytest.approx(line["flop_per_s"] / power)
    assert line["energy_per_step_j"] == pytest.approx(power * line["step_time_s"])
    assert (line["chips"], line["tiles"], line["sram_bytes"]) == (8, 640, 320 * 2**20)
    assert (line["dram_bandwidth_bytes_per_s"], line["peak_flop_per_s"]) == (200e9, 307.2e12)
    assert (line["size"], line["cell"], line["dfopt"]) == (3, cell.key, dfopt.__version__)
    assert line["solve_s"] > 0 and pd.isna(line["note"])
    missing = {name for name in COLUMNS if name in line and name != "note" and pd.isna(line[name])}
    assert missing == {  # of serving, of a calibration, and of a stack of dies, which this system is not
        "produced_tokens_per_s", "calibrated_by",
        "physical_step_time_s", "physical_flop_per_s", "physical_tokens_per_s", "frequency_share", "logic_max_c",
        "dram_max_c", "stack_power_w", "stack_bandwidth_bytes_per_s", "refresh_rate", "stack_energy_per_step_j",
        "stack_energy_per_token_j", "limits_broken",
    }  # fmt: skip


def test_links_and_switches_may_be_counted_as_dfmodel_does() -> None:
    prices = {**PRICES, "network.ring.switch_usd_per_gb_s": 1.0, "network.ring.switch_w_per_gb_s": 0.0}
    systems = [{"system": "sn10-8-ring", "set": prices}]
    exact, theirs = (study(systems=systems, cost_counts=counts) for counts in ("exact", "dfmodel"))
    price = [Runs(one, expand(one), {}).frame().loc[0, "price_usd"] for one in (exact, theirs)]
    assert price[1] - price[0] == pytest.approx(2 * 25)  # two ports of 25 GB/s


def test_cells_without_a_mapping_keep_their_row() -> None:
    whole = study(axes={"sram": [{"label": 1, "set": {"system.chip.dram.capacity": "1 B"}}, {"label": 2}]})
    cells = expand(whole)
    frame = Runs(whole, cells, {cells[0].key: record(cells[0])}).frame()
    assert frame["status"].tolist() == ["infeasible", "pending", "pending", "pending"]
    assert "DRAM" in frame.loc[0, "note"]
    assert frame["step_time_s"].isna().all() and frame["step_time_s"].dtype == float
    assert frame["tp"].isna().all()
    assert frame["chips"].tolist() == [8] * 4


def test_what_the_price_lacks_is_told() -> None:
    whole = study(systems=[{"system": "b300-8"}])
    line = Runs(whole, expand(whole), {}).frame().loc[0]
    assert pd.isna(line["price_usd"]) and line["power_w"] > 8 * 1100
    assert line["note"] == "price: 187,200 USD without $.chip.price_usd"  # (2 + 24) x 8 x 900 of links and switches


@cache
def runs_of_a_grid() -> Runs:
    """Eight cells with made-up figures: utilization = 0.1 system + 0.01 degree + 0.001 batch."""
    whole = study(
        graphs=[
            {"graph": "gpt2-small", "label": label, "parameters": {"batch": n}} for label, n in (("a", 8), ("b", 16))
        ],
        axes={"degree": [{"label": 1, "set": {"options.tp": 1}}, {"label": 2, "set": {"options.tp": 2}}]},
    )
    cells = expand(whole)
    (one,) = expand(study(systems=[{"system": "sn10-8-ring"}]))
    figures = record(one)["figures"]
    records = {}
    for cell in cells:
        value = 0.1 * (cell.axes["system"] == "torus") + 0.01 * cell.options.tp + 0.001 * (cell.axes["graph"] == "b")
        made = {**figures, "utilization": value}
        records[cell.key] = {"cell": cell.key, "status": "optimal", "figures": made, "seconds": 1.0, "dfopt": "0"}
    return Runs(whole, cells, records)


def test_heat_maps() -> None:
    runs = runs_of_a_grid()
    whole = runs.heat_map()  # the topology tells the systems apart, so their labels add nothing
    assert whole.index.names == ["graph", "degree"]
    assert whole.loc[("a", 2), "ring 8"] == pytest.approx(0.02)
    by_degree = runs.heat_map("utilization", columns="degree", rows=["graph", "system"])
    assert by_degree.shape == (4, 2)
    assert by_degree.loc[("b", "torus"), 2] == pytest.approx(0.121)
    means = runs.heat_map("utilization", columns="system", rows=["graph"])
    assert means.loc["a", "ring"] == pytest.approx(0.015)
    for changes, words in (
        ({"value": "utilisation"}, "did you mean 'utilization'"),
        ({"value": "plan"}, "value: found 'plan'"),
        ({"columns": "degre"}, "did you mean 'degree'"),
        ({"rows": ["gap"]}, "rows: found 'gap'"),
    ):
        with pytest.raises(PlanError, match=words):
            runs.heat_map(**changes)  # type: ignore[arg-type]


def test_csv_has_every_row_and_column(tmp_path: Path) -> None:
    runs = runs_of_a_grid()
    runs.to_csv(tmp_path / "frame.csv")
    back = pd.read_csv(tmp_path / "frame.csv")
    assert list(back.columns) == list(runs.frame().columns)
    assert back["utilization"].tolist() == runs.frame()["utilization"].tolist()
    for path in (tmp_path, tmp_path / "no" / "frame.csv"):
        with pytest.raises(DocumentError, match="cannot be written"):
            runs.to_csv(path)


def test_parquet_or_a_word_about_it(tmp_path: Path) -> None:
    runs = runs_of_a_grid()
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        with pytest.raises(PlanError, match="pip install pyarrow"):
            runs.to_parquet(tmp_path / "frame.parquet")
    else:
        runs.to_parquet(tmp_path / "frame.parquet")
        again = pd.read_parquet(tmp_path / "frame.parquet")
        assert list(again.columns) == list(runs.study.columns) and str(again["tp"].dtype) == "Int64"
        assert again["utilization"].equals(runs.frame()["utilization"])


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "calibrated_by"])  # where one is assumed
def test_every_figure_can_be_claimed(name: str) -> None:
    frame = runs_of_a_grid().frame()
    kind = "value" if name not in ("status", "plan", "bound_by", "note", "cell", "dfopt") else "condition"
    check_expression(name if kind == "value" else f"{name} == 'x'", kind, list(frame.columns))
    if kind == "value":
        assert len(frame.eval(name, engine="python")) == 8


def test_an_axis_takes_the_place_of_the_column_that_says_what_was_asked() -> None:
    served = {"graph": "llama-3.2-1b", "parameters": {"phase": "decode", "context": 64, "microbatch": 4}}
    whole = study(graphs=[served], systems=[{"system": "h100-8"}], parameters={"batch": [4, 8]})
    cells = expand(whole)
    assert whole.columns.count("batch") == 1 and whole.columns.index("batch") < whole.columns.index("status")
    runs = Runs(whole, cells, {cells[0].key: record(cells[0])})
    frame = runs.frame()
    assert frame["batch"].tolist() == [4, 8] and frame["status"].tolist() == ["optimal", "pending"]
    assert frame["phase"].tolist() == ["decode"] * 2 and frame["microbatch"].tolist() == [4, 4]
    line = frame.loc[0]
    assert line["tokens_per_s_per_chip"] == pytest.approx(line["tokens_per_s"] / 8)
    assert line["tokens_per_s_per_sequence"] == pytest.approx(1 / line["step_time_s"]), "a token of each in a step"
    out = io.StringIO()
    print_to(out, report(runs), 160)
    assert re.search(r"^Cells\nbatch +step_time_s", out.getvalue(), re.M) and "pending" in out.getvalue()
