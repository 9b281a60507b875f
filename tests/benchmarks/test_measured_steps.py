"""The runner of measured training steps, as a command: what it prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from by_path import ran

REFERENCE = Path(__file__).parents[2] / "benchmarks" / "reference"
RUNNER = REFERENCE / "measured.py"


def test_rows_are_judged_refused_and_left_out(tmp_path: Path) -> None:
    lines = (REFERENCE / "data" / "korthikanti_table5.csv").read_text(encoding="utf-8").splitlines()
    fits = lines[1].replace("t5_22B_full", "fits")
    huge = lines[1].replace("t5_22B_full", "huge").replace("22,48,6144,64,,24576", "176,48,17408,64,,69632")
    other = lines[1].replace("t5_22B_full", "other").replace("fp16", "int3")
    table, kept = tmp_path / "rows.csv", tmp_path / "rows.json"
    table.write_text("\n".join([lines[0], fits, fits, huge, other]) + "\n", encoding="utf-8")
    code, out, err = ran(RUNNER, table, "--json", kept)
    assert code == 0, err
    rows = json.loads(kept.read_text(encoding="utf-8"))
    assert [row["status"] for row in rows] == ["ok", "ok", "refused", "not taken"]
    assert {(row["quantity"], row["profile"]) for row in rows} == {("step_seconds", "default")}
    assert rows[0]["ratio"] == pytest.approx(rows[0]["ours"] / 1.42) and rows[0]["ours"] == rows[1]["ours"]
    assert "GB of DRAM per chip" in rows[2]["note"] and "int3" in rows[3]["note"]
    # 22e9 parameters x 4 samples x 2048 tokens: with all recomputed 8 FLOP each, at most at 8 x 312 TFLOP/s
    assert rows[0]["ours"] > 8 * 22e9 * 4 * 2048 / (8 * 312e12)
    assert "4 rows, 2 different steps" in out
    assert ran(RUNNER, table, "--no-memory-limit", "--json", kept)[0] == 0
    assert [row["status"] for row in json.loads(kept.read_text(encoding="utf-8"))][2] == "ok"


def test_a_file_that_is_no_table_ends_with_3(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("x\n1\n", encoding="utf-8")
    code, _, err = ran(RUNNER, table)
    assert code == 3 and "found columns x" in err and "Traceback" not in err
