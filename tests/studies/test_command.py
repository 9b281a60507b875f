"""What ``dfopt sweep`` prints and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_turn import in_turn
from study_cases import study
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.store import line_of, read_records

CLAIMS = [
    {"name": "network binds", "value": "network_share", "at_least": 0.5, "figure": "Fig. 0", "paper": 0.9},
    {"name": "too fast", "value": "step_time_s", "at_most": 1e-9, "reason": "light has a speed"},
    {"name": "heat", "value": "stack_power_w", "at_least": 0},  # of no stack
]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*options: str, claims: list[dict[str, Any]] | None = None) -> tuple[int, str]:
        study(claims=CLAIMS if claims is None else claims).dump(tmp_path / "mine.yaml")
        with in_turn():
            found = CliRunner().invoke(app, ["sweep", "mine.yaml", "--jobs", "2", *options])
        assert found.exception is None or isinstance(found.exception, SystemExit)
        return found.exit_code, found.stdout or found.stderr

    return run


def test_a_report_with_claims_and_heat_maps(words: Any, tmp_path: Path) -> None:
    code, out = words("--heat-map", "utilization:system", "--heat-map", "step_time_s", "--csv", "frame.csv")
    assert code == 0
    assert "Runs(small: 2 cells, 2 optimal)" in out
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert all(word in lines["network binds"] for word in (" yes ", "Fig. 0", " 0.9 "))
    assert " no " in lines["too fast"] and "light has a speed" in lines["too fast"]
    assert " open " in lines["heat"]
    assert "utilization" in lines and "step_time_s" in lines
    assert (tmp_path / "mine.runs.jsonl").read_bytes().count(b"\n") == 2
    assert (tmp_path / "frame.csv").read_text().count("\n") == 3
    # again: from the store, and without solving
    assert words("--no-solve")[1] == words()[1]


def test_a_dry_run_lists_the_cells(words: Any, tmp_path: Path) -> None:
    code, out = words("--dry-run")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and out.startswith("Runs(small: 2 cells, 2 pending)\n")
    assert [line[:2] for line in lines if "pending" in line] == [["gpt2-small", "ring"], ["gpt2-small", "torus"]]
    assert not list(tmp_path.glob("*.jsonl"))
    words("--shard", "1/2")
    part = json.loads(words("--shard", "1/2", "--dry-run", "--json")[1])["cells"]
    both = json.loads(words("--store", "mine.runs.1-of-2.jsonl", "--dry-run", "--json")[1])["cells"]
    assert [cell["status"] for cell in part] == ["optimal"] and len(both) == 2 and part[0] in both
    code, out = words("--store", "new.jsonl", "--dry-run")  # the one that the sweep is going to make
    assert code == 0 and "2 pending" in out
    assert not (tmp_path / "new.jsonl").exists()


def test_damaged_lines_are_told(words: Any, tmp_path: Path) -> None:
    words()
    with (tmp_path / "mine.runs.jsonl").open("a") as store:
        store.write('{"schema":"dfopt/ru')
    for how in ("--no-solve", "--dry-run"):
        assert "1 cut or damaged line is left out (mine.runs.jsonl)" in words(how)[1]


def test_check_asks_for_every_claim(words: Any) -> None:
    assert words("--check")[0] == 1
    assert words("--check", claims=CLAIMS[:1])[0] == 0
    assert words("--check", claims=CLAIMS[2:])[0] == 1  # open is not held


def test_json(words: Any) -> None:
    data = json.loads(words("--json")[1])
    assert data["study"] == "small"
    assert [cell["status"] for cell in data["cells"]] == ["optimal", "optimal"]
    assert data["cells"][0]["tp"] == 8 and data["cells"][0]["price_usd"] > 0
    assert [claim["holds"] for claim in data["claims"]] == [True, False, None]
    assert data["claims"][0]["expected"] == ">= 0.5"


def test_another_version_is_told(words: Any, tmp_path: Path) -> None:
    words()
    store = tmp_path / "mine.runs.jsonl"
    records = read_records(store).values()
    store.write_bytes(b"".join(line_of({**record, "dfopt": "9.0"}) for record in records))
    out = words()[1]
    assert "2 cells are from dfopt 9." in out
    assert "another store solves them again" in words("--no-solve")[1]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--heat-map :topology", 2, "--heat-map: found ':topology'"),
        ("--heat-map utilization:", 2, "expected FIGURE or FIGURE:AXIS"),
        ("--heat-map utilisation", 2, "did you mean 'utilization'?"),
        ("--heat-map chip", 2, "found 'chip', no figure of the study's frame"),
        ("--heat-map gap:chp", 2, "found 'chp', no axis of the study's frame; did you mean 'chip'?"),
        ("--dry-run --csv a.csv --check", 2, "leave out --csv, --check, or use --no-solve"),
        ("--csv no/frame.csv", 2, "cannot be written"),
        ("--store no/runs.jsonl", 3, "cannot be opened"),
        ("--no-solve", 3, "cannot be read"),
        ("--results mine.yaml", 2, "cannot be made"),
        ("--store mine.yaml", 3, "line 1: found '# written by dfopt, crc32 "),
    ],
)
def test_bad_options_are_told_before_the_work(
    words: Any, tmp_path: Path, options: str, code: int, message: str
) -> None:
    found, said = words(*options.split())
    assert found == code and message in said
    assert not (tmp_path / "mine.runs.jsonl").exists()


def test_a_lost_cluster_is_told_with_the_way_on(words: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Lost:
        def prepare(self, most: int) -> None: ...

        def run(self, tasks: Any, take: Any) -> str:
            return "no scheduler answers at tcp://x"

        def close(self) -> None: ...

    monkeypatch.setattr("dfopt.studies.sweep.executor_of", lambda jobs, cluster: Lost())
    code, out = words("--quiet", "--cluster", "tcp://x")
    assert code == 5 and "no scheduler answers at tcp://x" in out and "2 pending" in out
