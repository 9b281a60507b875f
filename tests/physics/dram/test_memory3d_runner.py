"""The runner of DRAM reference cases, end to end on the golden folder and on broken ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RUNNER = ROOT / "benchmarks" / "reference" / "memory3d.py"
GOLDEN = ROOT / "tests" / "golden" / "memory3d"


def run(folder: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    out = folder.parent / "rows.json" if folder != GOLDEN else Path(more[-1])
    more = more if folder == GOLDEN else (*more, "--json", str(out))
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(folder), *more], capture_output=True, text=True, check=False
    )
    return done, json.loads(out.read_text()) if out.exists() else []


def some(folder: Path, ids: set[str], **changes: Any) -> Path:
    """A folder with a few D cases, changed."""
    folder.mkdir()
    data = json.loads((GOLDEN / "dramsim3_cases.json").read_text())
    data["cases"] = [{**case, **changes} for case in data["cases"] if case["id"] in ids]
    (folder / "dramsim3_cases.json").write_text(json.dumps(data))
    shutil.copy(GOLDEN / "dramsim3_results.csv", folder)
    return folder


def test_golden_folder_meets_the_demands(tmp_path: Path) -> None:
    done, rows = run(GOLDEN, "--json", str(tmp_path / "rows.json"))
    assert done.returncode == 0, done.stderr
    assert all(row["status"] == "ok" for row in rows)
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
    assert "NO" not in done.stdout.split("Absolute errors")[1]
    # What the rule gives to the simulator is run as the case was, so it agrees to the printed digits.
    exact = {row["case"]: row for row in shown if row["case"] in ("D08", "D14", "D29", "D54", "D63")}
    assert len(exact) == 5 and all(abs(row["error_percent"]) < 0.01 for row in exact.values())


def test_other_parameters_are_read_from_the_case(tmp_path: Path) -> None:
    folder = some(tmp_path / "f", {"D08"}, config_overrides={"tRAS": 58}, pattern_parameters={"u": 1, "banks": 1})
    done, rows = run(folder)
    figure = next(row for row in rows if row["quantity"] == "bandwidth" and row["case"] == "D08")
    assert done.returncode == 0 and figure["ours"] == pytest.approx(64 / 72 * (1 - 274 / 3900), rel=0.03)
    assert {row["status"] for row in rows if row["case"] == "D01"} == {"unsupported"}  # reported, nowhere described


def test_a_broken_case_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = some(tmp_path / "f", {"D08", "D54"})
    data = json.loads((folder / "dramsim3_cases.json").read_text())
    data["cases"][0]["config_overrides"] = {"tRAS": -1}
    data["cases"].append({"id": "D98", "pattern": "spiral"})
    data["cases"].append({"id": "D99", "pattern": "rr"})
    (folder / "dramsim3_cases.json").write_text(json.dumps(data))
    done, rows = run(folder)
    status = {row["case"]: (row["status"], row["note"]) for row in rows}
    assert done.returncode == 1
    assert status["D08"][0] == "error" and "$.timing.tRAS" in status["D08"][1]
    assert status["D54"][0] == "ok"
    assert status["D98"][0] == "unsupported" and "spiral" in status["D98"][1]
    assert status["D99"][0] == "error" and "banks" in status["D99"][1]


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
    done, _ = run(folder)
    assert done.returncode == 3 and word in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
