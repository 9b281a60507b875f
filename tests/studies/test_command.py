"""What ``dfopt sweep`` prints and returns."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from study_cases import study

from dfopt.cli.sweep_command import Progress, run_sweep
from dfopt.errors import DfoptError, DocumentError, PlanError
from dfopt.studies.store import line_of, read_records

CLAIMS = [
    {"name": "network binds", "value": "network_share", "at_least": 0.5, "figure": "Fig. 0", "paper": 0.9},
    {"name": "too fast", "value": "step_time_s", "at_most": 1e-9, "reason": "light has a speed"},
    {"name": "price", "value": "price_usd", "at_least": 0},
]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*, claims: list[dict[str, Any]] | None = None, **options: Any) -> tuple[int, str]:
        study(claims=CLAIMS if claims is None else claims).dump(tmp_path / "mine.yaml")
        out = io.StringIO()
        code = run_sweep("mine.yaml", jobs=2, out=out, **options)
        return code, out.getvalue()

    return run


def test_a_report_with_claims_and_heat_maps(words: Any, tmp_path: Path) -> None:
    code, out = words(heat_maps=["utilization:system", "step_time_s"], csv="frame.csv")
    assert code == 0
    assert "Runs(small: 2 cells, 2 optimal)" in out
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert (
        " yes " in lines["network binds"] and "Fig. 0" in lines["network binds"] and " 0.9 " in lines["network binds"]
    )
    assert " no " in lines["too fast"] and "light has a speed" in lines["too fast"]
    assert " open " in lines["price"]
    assert "utilization" in lines and "step_time_s" in lines
    assert (tmp_path / "mine.runs.jsonl").read_bytes().count(b"\n") == 2
    assert (tmp_path / "frame.csv").read_text().count("\n") == 3
    # again: from the store, and without solving
    assert words(no_solve=True)[1] == words()[1]


def test_check_asks_for_every_claim(words: Any) -> None:
    assert words(check=True)[0] == 1
    assert words(check=True, claims=CLAIMS[:1])[0] == 0
    assert words(check=True, claims=CLAIMS[2:])[0] == 1  # open is not held


def test_json(words: Any) -> None:
    data = json.loads(words(as_json=True)[1])
    assert data["study"] == "small"
    assert [cell["status"] for cell in data["cells"]] == ["optimal", "optimal"]
    assert data["cells"][0]["tp"] == 8 and data["cells"][0]["price_usd"] is None
    assert [claim["holds"] for claim in data["claims"]] == [True, False, None]
    assert data["claims"][0]["expected"] == ">= 0.5"


def test_another_version_is_told(words: Any, tmp_path: Path) -> None:
    words()
    store = tmp_path / "mine.runs.jsonl"
    records = read_records(store).values()
    store.write_bytes(b"".join(line_of({**record, "dfopt": "9.0"}) for record in records))
    out = words()[1]
    assert "2 cells are from dfopt 9." in out
    assert "another store solves them again" in words(no_solve=True)[1]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"heat_maps": [":topology"]}, PlanError, "--heat-map: found ':topology'"),
        ({"heat_maps": ["utilization:"]}, PlanError, "expected FIGURE or FIGURE:AXIS"),
        ({"csv": "no/frame.csv"}, PlanError, "no file can be written there"),
        ({"store": "no/runs.jsonl"}, DocumentError, "cannot be opened"),
        ({"no_solve": True}, DocumentError, "cannot be read"),
        ({"results": "mine.yaml"}, PlanError, "cannot be made"),
    ],
)
def test_bad_options_are_told_before_the_work(
    words: Any, tmp_path: Path, options: dict[str, Any], kind: type[DfoptError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        words(**options)
    assert not (tmp_path / "mine.runs.jsonl").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    clock = iter([100.0, 100.0, 100.0, 102.0, 104.0])  # made, told of what there is, and each second record
    monkeypatch.setattr("dfopt.cli.sweep_command.time.perf_counter", lambda: next(clock))
    stream = Terminal()
    line = Progress(stream)
    line(2, 6, None)
    line(3, 6, {"cell": "a", "status": "failed"})
    line(6, 6, {"cell": "b", "status": "gap_reached", "figures": {"gap": 0.034}})
    line.close()
    shown = [text.strip() for text in stream.getvalue().split("\r")]
    assert shown[1] == "2/6 cells, 0 s"
    assert shown[2] == "3/6 cells, 1 without a mapping, 2 s, 2 s per cell, about 6 s left"
    assert shown[3] == "6/6 cells, 1 without a mapping, worst gap 3.4 %, 4 s, 1 cells/s"
    assert stream.getvalue().split("\r")[-2].strip() == "" and stream.getvalue().endswith("\r")


def test_progress_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    line = Progress(stream)
    for done in range(1, 100):
        line(done, 100, {"cell": "a", "status": "failed"})
    assert max(map(len, stream.getvalue().split("\r"))) < 30


def test_a_lost_cluster_is_told_with_the_way_on(words: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Lost:
        def prepare(self, most: int) -> None: ...

        def run(self, tasks: Any, take: Any) -> str:
            return "no scheduler answers at tcp://x"

        def close(self) -> None: ...

    monkeypatch.setattr("dfopt.studies.sweep._executor", lambda jobs, cluster: Lost())
    code, out = words(quiet=True)
    assert code == 5 and "no scheduler answers at tcp://x" in out and "2 pending" in out


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_may_be_quiet(stream: io.StringIO) -> None:
    line = Progress(stream, quiet=True)
    line(0, 1, None)
    line.close()
    assert stream.getvalue() == ""
