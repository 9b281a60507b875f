"""The runner of all claims: what it lists, and that its mutations still meet the source."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _beside_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_it_lists_its_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module("joint").main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split(": ")[0] for line in lines]
    assert {"reproduced", "infeasible", "dse", "best-plans", "check", "mutations"} <= set(names)
    assert all(len(line.split(": ", 1)[1]) > 10 for line in lines)


def test_every_mutation_meets_the_source_once() -> None:
    mutations = importlib.import_module("claims.mutations").MUTATIONS
    assert [(one.count(), one.text != one.instead) for one in mutations] == [(1, True)] * 7


@pytest.mark.parametrize("met, word", [(True, "yes"), (False, "**no**"), (None, "error")])
def test_a_row_says_whether_a_claim_is_met(met: bool | None, word: str) -> None:
    row = importlib.import_module("claims.rows").Row("a", "b|c", "d", "e", met)
    assert row.line() == f"| a | b/c | d | e | {word} |"


def test_a_program_that_does_not_end_is_ended() -> None:
    run = importlib.import_module("claims.rows").run
    ended = run(["-c", "import time; time.sleep(60)"], limit=0.5)
    assert ended.code is None and ended.seconds < 30
    assert [str(part).strip() for part in run(["-c", "print(7)"], limit=60.0)[:2]] == ["0", "7"]


@pytest.mark.parametrize(
    ("change", "met"),
    [
        (lambda rows: None, True),
        (lambda rows: rows.extend(rows), True),
        (lambda rows: rows.pop(), False),
        (lambda rows: rows[0].update(status="error"), False),
        (lambda rows: rows[0].update(reported=None), False),
    ],
)
def test_a_row_that_is_lost_is_seen(change: Callable[[Rows], Any], met: bool) -> None:
    rows: Rows = [{"status": "ok", "reported": 1.0, "ours": 1.1} for _ in range(3)]
    change(rows)
    assert importlib.import_module("claims.programs").Kept("", 3, 3).of(rows)[1] is met
