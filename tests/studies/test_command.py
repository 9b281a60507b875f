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
    store.write_text(store.read_text().replace('"dfopt":"', '"dfopt":"9.'))
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


def test_progress_on_a_terminal_is_one_line_that_goes_away() -> None:
    stream = Terminal()
    line = Progress(stream)
    line(2, 4, None)
    line(3, 4, {"cell": "a", "status": "failed"})
    line(4, 4, {"cell": "b", "status": "optimal", "figures": {}})
    line.close()
    shown = stream.getvalue().split("\r")
    assert "2/4 cells" in shown[1]
    assert "3/4 cells" in shown[2] and "1 without a mapping" in shown[2] and "s left" in shown[2]
    assert "4/4 cells" in shown[3] and "left" not in shown[3]
    assert shown[-2].strip() == "" and shown[-1] == ""


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_may_be_quiet(stream: io.StringIO) -> None:
    line = Progress(stream, quiet=True)
    line(0, 1, None)
    line.close()
    assert stream.getvalue() == ""
