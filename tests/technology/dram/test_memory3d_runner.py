"""The runner of DRAM reference cases, end to end on the golden folder and on broken ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from by_path import ran

ROOT = Path(__file__).parents[3]
RUNNER = ROOT / "benchmarks" / "reference" / "memory3d.py"
GOLDEN = ROOT / "tests" / "golden" / "memory3d"


def run(folder: Path) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code and errors of a run in this process, and the rows."""
    out = folder.parent / "rows.json"
    code, _, errors = ran(RUNNER, folder, "--json", out, "--jobs", 1)
    return code, errors, json.loads(out.read_text()) if out.exists() else []


def some(folder: Path, ids: set[str], **changes: Any) -> Path:
    """A folder with a few D cases, changed."""
    folder.mkdir()
    data = json.loads((GOLDEN / "dramsim3_cases.json").read_text())
    data["cases"] = [{**case, **changes} for case in data["cases"] if case["id"] in ids]
    (folder / "dramsim3_cases.json").write_text(json.dumps(data))
    shutil.copy(GOLDEN / "dramsim3_results.csv", folder)
    return folder


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """What the runner prints on the golden folder, called as a user does, in as many processes as there are cores."""
    out = tmp_path_factory.mktemp("golden") / "rows.json"
    given = [sys.executable, str(RUNNER), str(GOLDEN), "--json", str(out)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_golden_folder_meets_the_demands(golden: tuple[str, list[dict[str, Any]]]) -> None:
    shown_text, rows = golden
    assert all(row["status"] == "ok" and row["formulation"] == row["model"] for row in rows)
    limits = {"read": 10, "closed loop": 15, "mixes": 10, "energy": 0.5}
    for row in rows:
        for group in set(row["groups"]) & set(limits):
            assert abs(row["error_percent"]) <= limits[group], row
    shown = [row for row in rows if row["quantity"] == "bandwidth"]
    assert len(shown) == 24
    assert {row["case"][0] for row in shown} == {"D", "L", "R"}
    assert {row["model"] for row in shown} == {"formula", "simulator"}
    assert all(row["formula"] > 0 and row["simulator"] > 0 and row["unit"] == "GB/s" for row in shown)
    assert {"energy_act", "energy_read", "energy_total_predicted"} <= {row["quantity"] for row in rows}
    assert "NO" not in shown_text.split("Absolute errors")[1]
    # What the rule gives to the simulator is run as the case was, so it agrees to the printed digits.
    exact = {row["case"]: row for row in shown if row["case"] in ("D08", "D14", "D29", "D54", "D63")}
    assert len(exact) == 5 and all(abs(row["error_percent"]) < 0.01 for row in exact.values())


def test_other_parameters_are_read_from_the_case(tmp_path: Path) -> None:
    folder = some(tmp_path / "f", {"D08"}, config_overrides={"tRAS": 58}, pattern_parameters={"u": 1, "banks": 1})
    code, _, rows = run(folder)
    figure = next(row for row in rows if row["quantity"] == "bandwidth" and row["case"] == "D08")
    assert code == 0 and figure["ours"] == pytest.approx(64 / 72 * (1 - 274 / 3900), rel=0.03)
    assert {row["status"] for row in rows if row["case"] == "D01"} == {"unsupported"}  # reported, nowhere described


def test_a_broken_case_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = some(tmp_path / "f", {"D08", "D54"})
    data = json.loads((folder / "dramsim3_cases.json").read_text())
    data["cases"][0]["config_overrides"] = {"tRAS": -1}
    data["cases"].append({"id": "D98", "pattern": "spiral"})
    data["cases"].append({"id": "D99", "pattern": "rr"})
    (folder / "dramsim3_cases.json").write_text(json.dumps(data))
    code, _, rows = run(folder)
    status = {row["case"]: (row["status"], row["note"]) for row in rows}
    assert code == 1
    assert status["D08"][0] == "error" and "$.timing.tRAS" in status["D08"][1]
    assert status["D54"][0] == "ok"
    assert status["D98"][0] == "unsupported" and "spiral" in status["D98"][1]
    assert status["D99"][0] == "error" and "banks" in status["D99"][1]


def test_a_d_case_runs_as_its_file_says(golden: tuple[str, list[dict[str, Any]]]) -> None:
    """All its clocks from a cold start: then latency and command counts are those of the tool, as printed."""
    mine = [row for row in golden[1] if row["case"][0] == "D"]
    latency = [abs(row["error_percent"]) for row in mine if row["quantity"] == "latency"]
    joules = [abs(row["error_percent"]) for row in mine if row["quantity"].endswith("_predicted")]
    assert len(latency) > 8 and max(latency) < 0.2
    assert len(joules) > 40 and max(joules) < 0.1


def cases(folder: Path, listed: list[Any], **more: Any) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit code and bandwidth rows by case of a folder with D cases of our own, and the errors."""
    folder.mkdir()
    (folder / "dramsim3_cases.json").write_text(json.dumps({"cases": listed, "cycles": 20_000, **more}))
    code, errors, rows = run(folder)
    return code, {row["case"]: row for row in rows if row["quantity"] == "bandwidth"}, errors


def case(name: str, pattern: str, given: dict[str, Any] | None = None, **over: Any) -> dict[str, Any]:
    return {"id": name, "pattern": pattern, "pattern_parameters": given or {}, "config_overrides": over}


def test_where_the_formula_leaves_its_domain_the_simulator_is_taken(tmp_path: Path) -> None:
    """Each of these was up to 45 % off when the rule took the formula."""
    port = {"bankgroups": 1, "tCCD_L": 1, "tRRD_S": 2, "tFAW": 8}
    listed = [
        case("D81", "rand", {"u": 32}, row_buf_policy="CLOSE_PAGE"),
        case("D82", "seqrow", row_buf_policy="CLOSE_PAGE"),
        case("D83", "rand", {"u": 1}, row_buf_policy="CLOSE_PAGE"),
        case("D84", "rr", {"u": 6, "banks": 4}),
        case("D85", "rr", {"u": 6, "banks": 4}, **port),
        case("D86", "rr", {"u": 1, "banks": 4}),
    ]
    code, rows, _ = cases(tmp_path / "f", listed)
    assert code == 0 and {row["status"] for row in rows.values()} == {"ok"}
    words = {name: row["note"] for name, row in rows.items() if row["model"] == "simulator"}
    assert set(words) == {"D81", "D82", "D84", "D85"}
    assert "closed" in words["D81"] and "little to spare" in words["D84"]
    for row in rows.values():
        assert row["reported"] is None and row["error_percent"] is None
        if row["model"] == "formula":
            assert row["ours"] == pytest.approx(row["simulator"], rel=0.05)
    assert max(abs(row["formula"] / row["simulator"] - 1) for row in rows.values()) > 0.1


def test_entries_that_are_no_cases_are_rows_of_their_own(tmp_path: Path) -> None:
    listed = [
        case("D81", "rr", {"u": 1, "banks": 8}),
        {"pattern": "rand"},
        "D82",
        None,
        case("D83", "rand", channels=2),
    ]
    listed += [case("D84", "rand", channel_size=2048), case("D85", "rand", unified_queue=False, remark="x")]
    code, rows, errors = cases(tmp_path / "f", listed, remark={"a": 1})
    assert code == 1 and errors == ""
    assert {name: row["status"] for name, row in rows.items()} == {
        "D81": "ok", "$.cases[1]": "error", "$.cases[2]": "error", "$.cases[3]": "error", "D83": "unsupported",
        "D84": "ok", "D85": "unsupported",
    }  # fmt: skip
    assert "'id'" in rows["$.cases[1]"]["note"] and "channels = 2" in rows["D83"]["note"]
    assert "2 ranks" in rows["D84"]["note"]


def test_ramulator_cases_without_figures_are_those_of_ramulator(tmp_path: Path) -> None:
    """But for mixes, which it does not simulate; options that it knows and we do not are refused."""
    folder = tmp_path / "f"
    folder.mkdir()
    known = json.loads((GOLDEN / "ramulator_hbm3_cases.json").read_text())
    rand = {"pattern": "rand", "pattern_parameters": {"u": 32}, "options": {"rb": 64}}
    known["cases"] = [
        {"id": "R40", **rand},
        {"id": "R41", "pattern": "rw", "pattern_parameters": {"nr": 3, "nw": 1}, "options": {}},
        {"id": "R42", **rand, "options": {"refresh": "PerBank"}},
        {"id": "R43", **rand, "options": {"over": {"nRAS": 90}}},
        {"id": "R44", **rand},
    ]
    (folder / "ramulator_hbm3_cases.json").write_text(json.dumps(known))
    (folder / "ramulator_hbm3_results.csv").write_text("case,ramulator_bw_GBs,dramsim3_bw_GBs\nR44,,20.0516\n")
    code, _, found = run(folder)
    rows = {row["case"]: row for row in found if row["quantity"] == "bandwidth"}
    assert code == 0
    # What both tools say of this stream (R08): 21.31 GB/s with one shared buffer, 20.05 GB/s with queues per bank.
    assert rows["R40"]["ours"] == pytest.approx(21.3124, rel=0.02)
    assert rows["R44"]["ours"] == pytest.approx(20.0516, rel=0.02)
    assert rows["R41"]["status"] == "ok" and rows["R41"]["ours"] > 13
    assert rows["R42"]["status"] == "unsupported" and "PerBank" in rows["R42"]["note"]
    assert rows["R43"]["status"] == "ok" and rows["R43"]["ours"] < rows["R40"]["ours"]


def test_reported_cases_are_looked_up_in_the_base(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    lines = (GOLDEN / "dramsim3_results.csv").read_text().splitlines()
    (folder / "dramsim3_results.csv").write_text("\n".join([lines[0], *(line for line in lines if line[:4] == "D08,")]))
    code, _, rows = run(folder)
    assert code == 0 and {row["case"] for row in rows} == {"D08"}
    assert all(row["status"] == "ok" and abs(row["error_percent"]) < 0.5 for row in rows)


@pytest.mark.parametrize(
    "name, text, word",
    [
        ("dramsim3_cases.json", "{", "not JSON"),
        ("dramsim3_closed_loop.csv", "a,b\n1,2\n", "no column 'case'"),
        ("notes.txt", "", "with a case found"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, name: str, text: str, word: str) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / name).write_text(text)
    code, errors, _ = run(folder)
    assert code == 3 and word in errors
    assert len(errors.strip().splitlines()) == 1
