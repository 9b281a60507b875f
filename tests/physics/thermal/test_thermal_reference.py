"""The runner end to end on a few cases of HotSpot and 3D-ICE, and what it says of broken folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "thermal"
RUNNER = Path(__file__).parents[3] / "benchmarks" / "reference" / "thermal.py"


def run(folder: Path, out: Path, *options: str) -> tuple[int, str, str, list[dict[str, Any]]]:
    """Exit code, both streams and the rows."""
    given = [sys.executable, str(RUNNER), str(folder), "--json", str(out), *options]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    rows = json.loads(out.read_text()) if out.exists() else []
    return done.returncode, done.stdout, done.stderr, rows


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, str, list[dict[str, Any]]]:
    return run(GOLDEN, tmp_path_factory.mktemp("rows") / "rows.json")


def test_every_reported_figure_is_met(golden: tuple[int, str, str, list[dict[str, Any]]]) -> None:
    code, shown, _, rows = golden
    assert code == 0
    assert not [row for row in rows if row["status"] != "ok"]
    worst: dict[str, float] = {}
    for row in rows:
        if row["error_K"] is not None:
            worst[row["group"]] = max(worst.get(row["group"], 0.0), abs(row["error_K"]))
            assert row["ours"] == pytest.approx(row["reported"] + row["error_K"], abs=1e-9)
    # half of the last printed digit is 0.005 K for HotSpot; 3D-ICE differs a little in the die at its far face
    for group in ("hotspot layers", "hotspot tiles", "hotspot grids", "hotspot column"):
        assert worst.pop(group) <= 0.0055
    assert worst.pop("htc layers") <= 0.05 and worst.pop("htc tiles") <= 0.05
    assert worst.pop("transient") <= 0.1
    assert worst.pop("column, analytic") <= 1e-6
    assert worst.pop("hotspot plates") < 1.0
    assert not worst
    assert "hotspot tiles" in shown and "NO" not in shown


def test_the_rows_name_cases_layers_tiles_and_slots(golden: tuple[int, str, str, list[dict[str, Any]]]) -> None:
    rows = golden[3]
    known = {(row["case"], row["quantity"]): row for row in rows}
    assert len(known) == len(rows)
    assert known["H07/logic", "T_max"]["reported"] == 72.06
    assert known["H07/sink", "T_mean"]["reported"] == pytest.approx(61.53, abs=0.005)
    assert known["H23/logic/1,2", "T_mean"]["reported"] is not None
    assert known["I15/dram3/2,3", "T_max"]["reported"] is not None
    assert known["TR1/logic/0.0010", "T_max"]["reported"] == 46.926
    assert known["C1D/logic", "T_max"]["ours"] == pytest.approx(85.254, abs=5e-4)
    assert {row["quantity"] for row in rows} == {"T_max", "T_mean", "T_min"}
    assert all("energy balance" in row["check"] for row in rows if row["group"] == "hotspot layers" and row["check"])
    # slots that the data leave out are there too
    assert known["TR1/logic/0.0030", "T_max"]["reported"] is None


def test_cases_alone_are_solved_all_the_same(tmp_path: Path) -> None:
    data = json.loads((GOLDEN / "threedice_cases.json").read_text())
    data["cases"] = [case for case in data["cases"] if case["id"] == "I15"]
    (tmp_path / "threedice_cases.json").write_text(json.dumps(data))
    code, _, _, rows = run(tmp_path, tmp_path / "rows.json")
    assert code == 0
    assert {row["reported"] for row in rows} == {None} and all(row["ours"] > 35 for row in rows)
    assert {"I15/logic", "I15/dram15", "I15/logic/0,0"} <= {row["case"] for row in rows}


def test_base_cases_of_transients_are_looked_up(tmp_path: Path) -> None:
    folder, away = tmp_path / "folder", tmp_path / "away"
    folder.mkdir()
    away.mkdir()
    for name in ("threedice_transient_cases.json", "threedice_transient.csv"):
        shutil.copy(GOLDEN / name, folder / name)
    code, _, _, rows = run(folder, tmp_path / "rows.json", "--base", str(GOLDEN))
    assert code == 0 and all(row["met"] is not False for row in rows) and any(row["met"] for row in rows)
    code, _, errors, rows = run(folder, tmp_path / "rows.json", "--base", str(away))
    assert code == 1
    assert [row["status"] for row in rows] == ["error", "error"]
    assert "--base" in rows[0]["note"] and rows[0]["case"] == "TR1"
    assert len([line for line in errors.splitlines() if "TR1" in line]) == 1


def spoilt(tmp_path: Path, change: Any) -> tuple[int, str, str, list[dict[str, Any]]]:
    """A run on one sound case and one that ``change`` spoilt."""
    data = json.loads((GOLDEN / "hotspot_cases.json").read_text())
    change(data["cases"][0])
    (tmp_path / "hotspot_cases.json").write_text(json.dumps(data))
    return run(tmp_path, tmp_path / "rows.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda case: case.pop("die_side_m"), "$.cases[0].die_side_m: missing"),
        (lambda case: case["layers"][1].update(t_m="thin"), "$.cases[0].layers[1].t_m: found 'thin'"),
        (lambda case: case["layers"][0]["p_W"].pop(), "found 15 powers, expected 16"),
        (
            lambda case: case["package"].update(leak=1.0),
            "package: got an unexpected keyword argument 'leak'",
        ),
        (lambda case: case["package"].pop("ambient"), "ambient: missing"),
        (lambda case: case["layers"][2].update(k_W_per_mK=-1.0), "$.slabs[2].conductivity: found -1.0"),
        (lambda case: case.update(grid="fine"), "found 'fine', expected the cells"),
    ],
)
def test_a_broken_case_is_a_row_and_a_line(tmp_path: Path, change: Any, words: str) -> None:
    code, _, errors, rows = spoilt(tmp_path, change)
    assert code == 1
    (row,) = [row for row in rows if row["status"] == "error"]
    assert words in row["note"] and row["case"] == "H07"
    assert [words in line for line in errors.splitlines() if "H07" in line] == [True]
    assert any(row["case"] == "H23/logic" and row["status"] == "ok" for row in rows)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("hotspot_cases.json", "{", "not readable as JSON"),
        ("hotspot_cases.json", "[1]", "expected a list of cases"),
        ("hotspot_results.csv", "case,layer,Tmax_C\nH07,logic,hot\n", "could not convert string to float: 'hot'"),
        ("hotspot_results.csv", "case,Tmax_C\nH07,1\n", "line 2: no column 'layer'"),
        ("hotspot_results.csv", "case,layer,Tmax_C\nH07,cover,1\n", "names the layer 'cover'"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    data = json.loads((GOLDEN / "hotspot_cases.json").read_text())
    data["cases"] = [case for case in data["cases"] if case["id"] == "H07"]
    (tmp_path / "hotspot_cases.json").write_text(json.dumps(data))
    (tmp_path / name).write_text(text)
    code, _, errors, _ = run(tmp_path, tmp_path / "rows.json")
    assert code == 1
    assert "Traceback" not in errors
    assert len([line for line in errors.splitlines() if words in line]) == 1


def test_an_empty_folder(tmp_path: Path) -> None:
    code, _, errors, _ = run(tmp_path, tmp_path / "rows.json")
    assert code == 3 and errors.count("\n") == 1 and "hotspot_cases.json" in errors
