"""``benchmarks/reference/network3d.py``: the published NS-3 times of ``tests/golden/network3d``, and bad rows."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import benchmark_path  # noqa: F401
import pytest
from by_path import module_at, ran

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "benchmarks" / "reference" / "network3d.py"
DATA = ROOT / "tests" / "golden" / "network3d" / "network_ns3.csv"

network3d = module_at(RUNNER)


def rows() -> list[dict[str, Any]]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


RESULTS = network3d.compare(rows())


def test_every_row_has_a_status_and_a_name() -> None:
    assert len({r["case"] for r in RESULTS}) == len(RESULTS) == 277
    assert {r["status"] for r in RESULTS} == {"ok"}
    assert all(r["ours"] > 0 and r["formulation"] == "packets" for r in RESULTS)
    assert sum(r["reported"] is None and r["ratio"] is None and r["note"] == "no NS-3 time" for r in RESULTS) == 16
    assert "s5/switch/all_gather/1096/8x1" in {r["case"] for r in RESULTS}


@pytest.mark.parametrize("panel", ["/".join(panel) for panel in network3d._PANELS])
def test_a_panel_is_within_its_limit(panel: str) -> None:
    mine = [r for r in RESULTS if r["panel"] == panel and r["reported"]]
    found, theirs = network3d.errors(mine), network3d.errors(mine, "deepstack")
    mean = sum(found) / len(found)
    assert len(found) > 30
    assert mean < (0.001 if panel.startswith("torus") else 0.015)
    assert max(found) < 0.06
    assert mean < sum(theirs) / len(theirs) / 10


def test_larger_rings_are_met_to_the_nanosecond() -> None:
    exact = [r for r in RESULTS if r["panel"][:5] == "torus" and not r["case"].endswith("2x2") and r["reported"]]
    assert len(exact) == 94
    assert max(abs(r["ours"] - r["reported"]) / r["reported"] for r in exact) < 1e-9


def test_the_constants_are_what_the_data_give() -> None:
    systems = network3d.systems_of(rows())
    points = [p for row in rows() if (p := network3d.point(row, systems)).ns3]
    lines = network3d.fit(points).splitlines()
    assert [line.split()[0] for line in lines] == ["payload", "header", "acknowledgement", "overlap"]
    assert all("(in it)" in line for line in lines), lines


ROW = {"topology": "switch", "collective": "all_reduce", "case": "a", "dim1": "8", "dim2": "1", "bytes": "548"}
SYSTEM = {"inferred_L1_link_GBs": "32", "inferred_L1_hop_ns": "32"}


def test_a_system_is_taken_from_another_row_of_the_case() -> None:
    data = [
        {**ROW, "ns3_ns": "848"},
        {**ROW, **SYSTEM, "bytes": "1024", "ns3_ns": ""},
        {**ROW, "case": "b", "ns3_ns": "9"},
    ]
    one, two, three = network3d.compare(data)
    assert one["status"] == "ok" and one["ours"] == pytest.approx(848)
    assert two["status"] == "ok" and two["ours"] > 0 and two["ratio"] is None and two["note"] == "no NS-3 time"
    assert three["status"] == "error" and "inferred_L1_link_GBs" in three["note"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bytes": "many"}, "bytes: found 'many'"),
        ({"bytes": "-5"}, "bytes"),
        ({"bytes": ""}, "bytes"),
        ({"dim1": "2.5"}, "dim1"),
        ({"dim1": ""}, "dim1: missing"),
        ({"dim3": "4"}, "dim3: found '4', expected two dims"),
        ({"bytes": "9" * 400}, "bytes"),
        ({"topology": "mesh"}, "mesh"),
        ({"collective": "broadcast"}, "broadcast"),
        ({"ns3_ns": "nan"}, "ns3_ns"),
        ({"inferred_L1_link_GBs": "fast"}, "inferred_L1_link_GBs"),
        ({"dim2": "8"}, "inferred_L2_link_GBs"),
    ],
)
def test_a_bad_row_is_an_error_of_its_own(change: dict[str, str], words: str) -> None:
    good = {**ROW, **SYSTEM, "ns3_ns": "848"}
    bad, fine = network3d.compare([{**good, **change}, good])
    assert bad["status"] == "error" and words in bad["note"] and bad["ours"] is None
    assert fine["status"] == "ok"


def test_rows_that_come_twice_have_names_of_their_own() -> None:
    name = "a/switch/all_reduce/548/8x1"
    assert [r["case"] for r in network3d.compare([ROW, ROW])] == [name, f"{name}#2"]


def test_missing_columns_are_left_out() -> None:
    short = {key: value for key, value in {**ROW, **SYSTEM, "ns3_ns": "848"}.items() if key not in ("dim2", "case")}
    (found,) = network3d.compare([short])
    assert found["status"] == "ok" and found["deepstack"] is None


def test_the_command_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    run = subprocess.run(
        [sys.executable, str(RUNNER), str(DATA), "--json", str(out)], capture_output=True, text=True, check=True
    )
    assert "torus/all_to_all" in run.stdout and "16 without an NS-3 time" in run.stdout
    written = json.loads(out.read_text())
    assert len(written) == 277
    assert {"case", "quantity", "reported", "ours", "ratio", "gap", "seconds", "status", "note"} <= set(written[0])


def test_bad_rows_are_told_and_the_exit_code_says_so(tmp_path: Path) -> None:
    lines = ["\ufefftopology,collective,case,dim1,bytes,ns3_ns,inferred_L1_link_GBs,inferred_L1_hop_ns,remark"]
    lines += ["switch,all_reduce,a,8,548,848,32,32,x", "mesh,all_reduce,b,8,548,848,32,32,", "torus,all_gather,c,4"]
    file, out = tmp_path / "some.csv", tmp_path / "rows.json"
    file.write_text("\n".join(lines), encoding="utf-8")
    code, _, errors = ran(RUNNER, file, "--json", out)
    assert code == 1
    assert [line.split(": ")[0] for line in errors.splitlines()] == [
        "b/mesh/all_reduce/548/8x1", "c/torus/all_gather/?/4x1",
    ]  # fmt: skip
    assert [row["status"] for row in json.loads(out.read_text())] == ["ok", "error", "error"]


def test_a_row_with_a_figure_that_is_no_number_has_null_and_an_error() -> None:
    import report

    row = report.finished({"case": "a", "quantity": "time", "ours": float("inf"), "status": "ok", "note": "n"})
    assert (row["ours"], row["status"]) == (None, "error")
    assert row["note"] == "ours is inf, expected a finite number; n"
    assert set(row) == set(report.KEYS)
    same = report.finished(
        {"case": "a", "quantity": "time", "ours": None, "ratio": float("nan"), "status": "ok", "note": ""}
    )
    assert same["ratio"] is None and same["status"] == "ok"


def test_a_file_that_is_none_ends_with_a_word(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("a,b\n1,2\n")
    for file in (empty, tmp_path / "absent.csv"):
        code, _, errors = ran(RUNNER, file)
        assert code == 3 and str(file) in errors
