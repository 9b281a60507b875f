"""DFModel cases come in, are solved to the values in the authors' logs, and are judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dfopt.documents.assumptions import profile
from dfopt.documents.pins import Pins
from dfopt.documents.zoo import find
from dfopt.errors import DocumentError
from dfopt.frontends.dfmodel import ImportedCase, Unsupported, convert, load_case, write_case
from dfopt.search import optimize

GOLDEN = Path(__file__).parent.parent / "golden" / "dfmodel"
RUNNER = Path(__file__).parent.parent.parent / "benchmarks" / "reference" / "dfmodel.py"


def solve(case: ImportedCase, **changes: Any) -> Any:
    sharding = changes.pop("pin_sharding", case.sharding)
    return optimize(
        case.graph,
        case.system,
        assumptions=case.assumptions.with_(**changes),
        tp_dims=case.tp_dims,
        pp_dims=case.pp_dims,
        dp_dims=case.dp_dims,
        p_max=case.p_max,
        pin_sharding=sharding,
        pin_partition=case.partition,
    )


@pytest.mark.parametrize(
    "name",
    [
        "table6_nondataflow_8x1",
        "table6_vendor_8x1",
        "table6_dfmodel_8x1",
        "table6_dfmodel_4x2",
        "fig10_gpt1t_sn30_2dtorus_ddr_pcie",
        "readme_gpt1t_1024_rdu_overlap",
        "fig6_rdu_gpt13b_seq2048_16_sn10",
    ],
)
def test_reported_values_are_reproduced_and_proven(name: str) -> None:
    case = load_case(GOLDEN / f"{name}.json")
    result = solve(case)
    assert result.status == "optimal"
    assert result.gap == 0.0
    assert result.utilization == pytest.approx(case.outputs["utilization"], rel=1e-6)
    if case.outputs.get("ns_per_layer"):
        assert result.score.layer_time_s * 1e9 == pytest.approx(case.outputs["ns_per_layer"], rel=1e-6)
    if case.outputs.get("seconds_per_batch"):
        assert result.step_time_s == pytest.approx(case.outputs["seconds_per_batch"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "nanoseconds", "authors"),
    [("table6_dfmodel_8x1", 3998797.4, 4613916.5), ("table6_dfmodel_4x2", 6898756.3, 7242620.1)],
)
def test_fewer_partitions_than_the_authors_allowed_are_faster(name: str, nanoseconds: float, authors: float) -> None:
    result = solve(load_case(GOLDEN / f"{name}.json"), empty_partitions="allow")
    assert result.gap == 0.0
    assert result.score.layer_time_s * 1e9 == pytest.approx(nanoseconds, rel=1e-7)
    assert result.score.layer_time_s * 1e9 < authors


@pytest.mark.parametrize("name", ["table6_dfmodel_8x1", "table6_dfmodel_4x2", "table6_nondataflow_8x1"])
def test_our_own_inter_chip_step_finds_the_recorded_sharding(name: str) -> None:
    case = load_case(GOLDEN / f"{name}.json")
    result = solve(case, pin_sharding={})
    assert {k.name: k.sharding for k in result.mapping.kernels} == case.sharding
    record = next(s for s in result.plans[0].solves if s.problem == "interchip")
    assert record.objective == pytest.approx(100663296)  # bytes, as in the authors' log
    assert result.score.collectives == {"all_reduce.forward": 2}


def test_training_layer_needs_two_all_reduces_each_way() -> None:
    case = load_case(GOLDEN / "fig10_gpt1t_sn30_2dtorus_ddr_pcie.json")
    result = solve(case, pin_sharding={})
    assert result.score.collectives == {"all_reduce.forward": 2, "all_reduce.backward": 2}
    record = next(s for s in result.plans[0].solves if s.problem == "interchip")
    assert record.objective == pytest.approx(419430400)  # bytes, as in the authors' log


def test_cost_in_seconds_is_never_slower_than_cost_in_bytes() -> None:
    case = load_case(GOLDEN / "table6_nondataflow_8x1.json")
    by_bytes, by_seconds = solve(case, pin_sharding={}), solve(case, pin_sharding={}, sharding_objective="seconds")
    assert by_seconds.step_time_s < by_bytes.step_time_s


def test_written_documents_solve_to_the_same_value(tmp_path: Path) -> None:
    from dfopt.documents.assumptions import Assumptions
    from dfopt.documents.system import System
    from dfopt.workloads import load_graph

    lines = write_case(GOLDEN / "table6_vendor_8x1.json", tmp_path)
    assert any("dfopt solve" in line for line in lines)
    pins = Pins.load(tmp_path / "pins.yaml")
    result = optimize(
        load_graph(str(tmp_path / "graph.yaml")),
        System.load(tmp_path / "system.yaml"),
        assumptions=Assumptions.load(tmp_path / "assumptions.yaml"),
        tp_dims=pins.tp_dims,
        pp_dims=pins.pp_dims,
        dp_dims=pins.dp_dims,
        p_max=pins.p_max,
        pin_sharding=pins.sharding,
        pin_partition=pins.partition,
    )
    assert result.utilization == pytest.approx(0.5663880540698807, rel=1e-6)


def _case(name: str = "table6_dfmodel_8x1") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def test_versions_differ_in_all_reduce_passes() -> None:
    data = _case()
    assert convert(data, "a").assumptions.all_reduce_passes == 2
    data["setup"]["execution"]["llm"]["num_layer_in_graph"] = 1
    assert convert(data, "a").assumptions.all_reduce_passes == 1
    data["setup"]["execution"]["separate_rs_ag_for_ar"] = True
    assert convert(data, "a").assumptions.all_reduce_passes == 2


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        (lambda d: d["setup"]["system"].update(HBD=8), "HBD on axes other than TP, PP and DP"),
        (lambda d: d["setup"]["system"]["memory"].update(second_dram_bw=50), "second DRAM"),
        (lambda d: d.update(graph={}), "no graph"),
        (lambda d: d["setup"]["system"].pop("r"), "topology"),
        (lambda d: d["setup"]["system"]["r"].update(par_x="SP"), "SP"),
        (lambda d: d["setup"]["system"]["r"].pop("x"), "sizes"),
        (lambda d: d["setup"]["system"].update(num_chip=16), "num_chip is 16, but the network has 8 chips"),
        (lambda d: d["graph"]["kernels"][0].update(communication_type="BROADCAST"), "explicit BROADCAST"),
        (lambda d: d["setup"]["execution"].update(optimization="CN"), "optimization CN"),
    ],
)
def test_what_is_not_supported_is_named(change: Any, feature: str) -> None:
    data = _case()
    change(data)
    with pytest.raises(Unsupported, match=feature):
        convert(data, "a")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"setup": 1}', '{"setup": {"system": {}}}'])
def test_what_is_no_case_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "case.json"
    path.write_text(text)
    with pytest.raises((DocumentError, Unsupported)) as caught:
        load_case(path)
    assert str(caught.value)


def test_runner_lists_every_case_with_its_status(tmp_path: Path) -> None:
    folder = tmp_path / "cases"
    folder.mkdir()
    for name in ("table6_vendor_8x1", "fig16_fft_1t_sn30_2dtorus_ddr_pcie"):
        (folder / f"{name}.json").write_text((GOLDEN / f"{name}.json").read_text())
    (folder / "broken.json").write_text("{")
    unread = _case()
    unread.update(graph={}, name="unread")
    (folder / "unread.json").write_text(json.dumps(unread))
    torus = _case("fig14_hpl_sn30_2dtorus_ddr_pcie")  # as it was read: without setup and graph
    torus["source"]["setup_read_verbatim"] = False
    torus["setup"]["execution"] = torus["graph"] = None
    (folder / f"{torus['name']}.json").write_text(json.dumps(torus))
    out = tmp_path / "rows.json"
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(folder), "--json", str(out)], capture_output=True, text=True, check=True
    )
    rows = json.loads(out.read_text())
    assert {row["case"]: row["status"] for row in rows} == {
        "broken": "error",
        "fig14_hpl_sn30_2dtorus_ddr_pcie": "ok",
        "fig16_fft_1t_sn30_2dtorus_ddr_pcie": "ok",
        "table6_vendor_8x1": "ok",
        "unread": "unsupported",
    }
    completed = [r for r in rows if r["case"] == "fig14_hpl_sn30_2dtorus_ddr_pcie"]
    assert {r["quantity"] for r in completed} == {"seconds", "utilization"}
    assert all(r["ratio"] == pytest.approx(1.0, abs=1e-6) for r in completed)
    assert all("setup completed from" in r["note"] for r in completed)
    ours = next(r for r in rows if r["case"] == "table6_vendor_8x1" and r["quantity"] == "utilization")
    assert ours["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert ours["gap"] == 0
    assert "table6_vendor_8x1" in done.stdout


def test_the_dfmodel_profile_is_what_the_import_starts_from() -> None:
    case = load_case(GOLDEN / "table6_dfmodel_8x1.json")
    assert case.assumptions == profile("dfmodel").with_(profile="dfmodel (imported)", execution="dataflow")


def test_zoo_is_found() -> None:
    assert find("systems", "sn10-8-ring").is_file()
