"""The runner end to end on a few cases of HotSpot and 3D-ICE, and what it says of broken folders."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from by_path import ran

GOLDEN = Path(__file__).parents[2] / "golden" / "thermal"
RUNNER = Path(__file__).parents[3] / "benchmarks" / "reference" / "thermal.py"


def run(folder: Path, out: Path, *options: str) -> tuple[int, str, str, list[dict[str, Any]]]:
    """Exit code, both streams and the rows."""
    code, shown, errors = ran(RUNNER, folder, "--json", out, *options)
    rows = json.loads(out.read_text()) if out.exists() else []
    return code, shown, errors, rows


def some(folder: Path, tool: str, ids: set[str], **changes: Any) -> dict[str, Any]:
    """A folder with some cases of HotSpot or 3D-ICE, changed; the content of the case file."""
    folder.mkdir(exist_ok=True)
    data: dict[str, Any] = json.loads((GOLDEN / f"{tool}_cases.json").read_text())
    data["cases"] = [{**case, **changes} for case in data["cases"] if case["id"] in ids]
    (folder / f"{tool}_cases.json").write_text(json.dumps(data))
    return data


def reported(folder: Path, ids: set[str]) -> dict[str, Any]:
    """A folder with some cases of 3D-ICE and what is reported of all."""
    data = some(folder, "threedice", ids)
    shutil.copy(GOLDEN / "threedice_results.csv", folder)
    return data


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, str, list[dict[str, Any]]]:
    """As a process of its own, as it is called."""
    out = tmp_path_factory.mktemp("rows") / "rows.json"
    given = [sys.executable, str(RUNNER), str(GOLDEN), "--json", str(out)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr, json.loads(out.read_text())


def test_every_reported_figure_is_met(golden: tuple[int, str, str, list[dict[str, Any]]]) -> None:
    code, shown, _, rows = golden
    assert code == 0
    assert all(row["status"] == "ok" and row["formulation"] for row in rows)
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
    assert {row["quantity"] for row in rows} == {"T_max", "T_mean"}
    assert all("energy balance" in row["check"] for row in rows if row["group"] == "hotspot layers" and row["check"])
    # slots that the data leave out are there too
    assert known["TR1/logic/0.0030", "T_max"]["reported"] is None


def test_cases_alone_are_solved_all_the_same(tmp_path: Path) -> None:
    some(tmp_path, "threedice", {"I15"})
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda case: case.pop("die_side_m"), "$.cases[0].die_side_m: missing"),
        (lambda case: case["layers"][1].update(t_m="thin"), "$.cases[0].layers[1].t_m: found 'thin'"),
        (lambda case: case["layers"][0]["p_W"].pop(), "found 15 powers, expected 16"),
        (lambda case: case["package"].update(leak=1.0), "package: got an unexpected keyword argument 'leak'"),
        (lambda case: case["package"].pop("ambient"), "ambient: missing"),
        (lambda case: case["layers"][2].update(k_W_per_mK=-1.0), "$.slabs[2].conductivity: found -1.0"),
        (lambda case: case.update(grid="fine"), "found 'fine', expected the cells"),
        (lambda case: case.update(grid="0x4"), "found '0x4', expected at least one cell"),
        (lambda case: case.update(package=5), "$.cases[0].package: found 5, expected a mapping"),
        (lambda case: case.update(package=None), "$.cases[0].package: found nothing, expected a mapping"),
        (lambda case: case.update(layers=[7]), "$.cases[0].layers[0].t_m: missing"),
        (lambda case: case["layers"][0].update(tiles_per_side=0, p_W=[]), "found 0 powers"),
        (lambda case: case["layers"][0]["p_W"].__setitem__(3, float("nan")), "$.powers[3]: found nan"),
    ],
)
def test_a_broken_case_is_a_row_and_a_line(tmp_path: Path, change: Any, words: str) -> None:
    data = json.loads((GOLDEN / "hotspot_cases.json").read_text())
    change(data["cases"][0])
    (tmp_path / "hotspot_cases.json").write_text(json.dumps(data))
    code, _, errors, rows = run(tmp_path, tmp_path / "rows.json")
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
        ("hotspot_blocks.csv", "case,layer,tile_ix,tile_iy,T_C\nH07,logic,7,0,1\n", "tile 7,0 of 'logic'"),
        ("hotspot_grid_refinement.csv", "case,grid,logic_Tmax_C\nH07,fine,1\n", "found 'fine'"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    some(tmp_path, "hotspot", {"H07"})
    (tmp_path / name).write_text(text)
    code, _, errors, _ = run(tmp_path, tmp_path / "rows.json")
    assert code == 1
    assert "Traceback" not in errors
    assert len([line for line in errors.splitlines() if words in line]) == 1


def test_what_one_file_leaves_out_comes_from_another_or_is_null(tmp_path: Path) -> None:
    """Only a layer's maximum, only the summary, keys that may be missing, keys that nobody knows."""
    data = some(tmp_path, "hotspot", {"H07"})
    (case,) = data["cases"]
    for key in ("c_convec", "k_sink", "k_spreader", "cv_sink", "cv_spreader"):
        case["package"].pop(key)
    for layer in case["layers"]:
        layer.pop("tiles_per_side", None)
        layer.pop("power")
    case["package"]["comment"] = "as in the tool"
    case |= {"leakage": {"a": 1}, "remark": "none"}
    data.pop("grid")
    (tmp_path / "hotspot_cases.json").write_text(json.dumps(data), encoding="utf-8-sig")
    (tmp_path / "hotspot_summary.csv").write_text("case,logic_Tmean_C,dram_Tmax_C\nH07,71.28,70.82\n")
    lines = "case,layer,Tmax_C\r\n\r\n H07 ,logic,72.06\r\nH07,dram0,warm\r\nH07,dram1,\r\n"
    (tmp_path / "hotspot_results.csv").write_text(lines, encoding="utf-8-sig")
    code, _, errors, rows = run(tmp_path, tmp_path / "rows.json")
    known = {(row["case"], row["quantity"]): row for row in rows}
    assert len(known) == len(rows) and {row["status"] for row in rows} == {"ok"}
    assert code == 1 and errors.count("'warm'") == 1  # told, and the lines after it count
    for place, value in {
        ("H07/logic", "T_max"): 72.06,
        ("H07/logic", "T_mean"): 71.28,
        ("H07/dram", "T_max"): 70.82,
    }.items():
        assert known[place]["reported"] == value and known[place]["met"]
    assert known["H07/dram0", "T_mean"]["ours"] == pytest.approx(70.03, abs=0.05)
    assert known["H07/dram0", "T_max"]["reported"] is None
    note = known["H07/logic", "T_max"]["note"]
    assert "not read: $.cases[0].leakage" in note and "32x32" in note and "remark" not in note


def test_a_reported_case_without_description_is_looked_up_or_unsupported(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    reported(folder, set())
    with (folder / "threedice_results.csv").open("a") as file:
        file.write("I99,logic,50,50,50\n")
    shutil.copy(GOLDEN / "threedice_transient.csv", folder)
    code, _, _, rows = run(folder, tmp_path / "rows.json", "--base", str(GOLDEN))
    assert code == 0
    assert [(row["case"], row["status"]) for row in rows if row["status"] != "ok"] == [("I99", "unsupported")]
    assert any(row["case"] == "I15/logic" and row["met"] for row in rows)
    assert any(row["case"].startswith("TR1/logic/") and row["met"] for row in rows)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("hotspot_grid_refinement.csv", "H23/logic/grid 16"),
        ("package_plate_fv.csv", "H07/plates/dram0"),
        ("hotspot_solver_checks.csv", "C1D/logic"),
        ("threedice_summary.csv", "I15/dram"),
    ],
)
def test_figures_alone_will_do(tmp_path: Path, name: str, wanted: str) -> None:
    shutil.copy(GOLDEN / name, tmp_path)
    code, _, _, rows = run(tmp_path, tmp_path / "rows.json", "--base", str(GOLDEN))
    (row,) = [row for row in rows if row["case"] == wanted and row["quantity"] == "T_max"]
    assert code == 0 and abs(row["error_K"]) < 1


def test_slots_shorter_than_the_printed_digits(tmp_path: Path) -> None:
    """Each slot has a name of its own, and times that end no slot are errors."""
    folder = tmp_path / "folder"
    (ident, *_) = [case["id"] for case in json.loads((GOLDEN / "threedice_cases.json").read_text())["cases"]]
    reported(folder, {ident})
    pulse = {"base_case": ident, "step_s": 1e-5, "slot_s": 2e-5, "power_scale_per_slot": [1, 0, 0.5], "boost": 2}
    (folder / "threedice_transient_cases.json").write_text(
        json.dumps({"TR9": pulse, "TR8": 3, "TR7": {**pulse, "base_case": 1}})
    )
    (folder / "threedice_transient.csv").write_text(
        "case,layer,t_s,Tmax_C\nTR9,logic,0.00002,45.5\nTR9,logic,0.00003,45\nTR9,lid,0.00004,45\n"
    )
    code, _, _, rows = run(folder, tmp_path / "rows.json")
    mine = [row for row in rows if row["case"].startswith("TR")]
    good = [row for row in mine if row["case"].startswith("TR9/logic/") and row["status"] == "ok"]
    assert code == 1
    assert [row["case"] for row in good[::2]] == [f"TR9/logic/{t}" for t in ("0.00002", "0.00004", "0.00006")]
    assert good[0]["reported"] == 45.5 and "boost" in good[0]["note"] and "20x20" in good[0]["note"]
    broken = {row["case"]: row["note"] for row in mine if row["status"] == "error"}
    assert set(broken) == {"TR9/logic/0.00003", "TR9/lid/0.00004", "TR8", "TR7"}
    assert "no end of a slot" in broken["TR9/logic/0.00003"] and "base_case" in broken["TR8"]


def test_a_case_that_comes_twice(tmp_path: Path) -> None:
    data = reported(tmp_path, {"I15"})
    data["cases"].append({**data["cases"][0], "T_fluid_K": 400.0})
    (tmp_path / "threedice_cases.json").write_text(json.dumps(data))
    code, _, _, rows = run(tmp_path, tmp_path / "rows.json", "--base", str(tmp_path))
    (row,) = [row for row in rows if row["status"] == "error"]
    assert code == 1 and "a second time" in row["note"]
    assert max(row["ours"] for row in rows if row["ours"]) < 120


def test_rows_in_any_order_are_the_same_rows(tmp_path: Path) -> None:
    found = []
    for turn in (False, True):
        folder = tmp_path / str(turn)
        data = reported(folder, {"I15"})
        with (GOLDEN / "threedice_blocks.csv").open(newline="") as file:
            head, *lines = [line for line in csv.reader(file) if line[0] in ("case", "I15")]
        with (folder / "threedice_blocks.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *(reversed(lines) if turn else lines)])
        data["cases"].reverse()
        code, _, _, rows = run(folder, tmp_path / "rows.json", "--base", str(GOLDEN))
        found.append({(row["case"], row["quantity"]): (row["ours"], row["reported"]) for row in rows})
        assert code == 0 and len(lines) > 100
    assert found[0] == found[1]


def test_an_empty_folder(tmp_path: Path) -> None:
    code, _, errors, _ = run(tmp_path, tmp_path / "rows.json")
    assert code == 3 and errors.count("\n") == 1 and "hotspot_cases.json" in errors
