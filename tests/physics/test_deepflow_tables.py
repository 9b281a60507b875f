"""The runner of DeepFlow's tables, on the rows that are kept here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from by_path import module_at

TESTS = Path(__file__).parents[1]
REFERENCE = TESTS.parent / "benchmarks" / "reference"
sys.path.insert(0, str(REFERENCE))  # as when it is run: its neighbours are beside it
RUNNER = module_at(REFERENCE / "deepflow.py")
GOLDEN = TESTS / "golden" / "deepflow"


def test_every_table_of_a_folder_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNNER.main([str(GOLDEN), "--json"]) == 0
    sharing, derate, chosen, *predictions = json.loads(capsys.readouterr().out)
    assert sharing["seen"].startswith("59 of 59 layouts equal") and sharing["met"]
    assert derate["met"] is None
    assert chosen["seen"].endswith("heavier for 0") and chosen["met"]
    assert [line["seen"].split(",")[0] for line in predictions] == [
        "16 of 16 within 1e-06", "16 of 16 within 1e-06", "12 of 12 within 1e-06",
    ]  # fmt: skip
    assert all(line["met"] for line in predictions)


def test_a_changed_figure_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "placement_link_sharing.csv"
    head, row, *rest = (GOLDEN / name).read_text(encoding="utf-8").splitlines()
    fields = row.split(",")
    fields[10] = str(int(fields[10]) + 1)
    (tmp_path / name).write_text("\n".join([head, ",".join(fields), *rest]) + "\n", encoding="utf-8")
    assert RUNNER.main([str(tmp_path)]) == 1
    assert "58 of 59 layouts equal" in capsys.readouterr().out


def test_a_folder_without_any_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNNER.main([str(tmp_path)]) == 3
    assert "found none of placement_link_sharing.csv" in capsys.readouterr().err
