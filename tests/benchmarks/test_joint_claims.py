"""The runner of all claims: what it lists, and that its mutations still meet the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def said(*words: str) -> str:
    """What Python prints, with the benchmarks on the path."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    done = subprocess.run(
        [sys.executable, *words], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_it_lists_its_sections() -> None:
    lines = said(str(ROOT / "benchmarks" / "joint.py"), "--list").splitlines()
    names = [line.split(": ")[0] for line in lines]
    assert {"reproduced", "infeasible", "dse", "best-plans", "check", "mutations"} <= set(names)
    assert all(len(line.split(": ", 1)[1]) > 10 for line in lines)


def test_every_mutation_meets_the_source_once() -> None:
    code = "from claims.mutations import MUTATIONS\nfor one in MUTATIONS: print(one.count(), one.text != one.instead)"
    assert said("-c", code).splitlines() == ["1 True"] * 7


@pytest.mark.parametrize("met, word", [(True, "yes"), (False, "**no**"), (None, "error")])
def test_a_row_says_whether_a_claim_is_met(met: bool | None, word: str) -> None:
    code = f"from claims.rows import Row\nprint(Row('a', 'b|c', 'd', 'e', {met}).line())"
    assert said("-c", code).strip() == f"| a | b/c | d | e | {word} |"


def test_a_program_that_does_not_end_is_ended() -> None:
    code = "from claims.rows import run\ndone = run(['-c', 'import time; time.sleep(60)'], limit=0.5)\n"
    assert said("-c", f"{code}print(done.code, done.seconds < 30)").strip() == "None True"
    assert said("-c", "from claims.rows import run\nprint(*run(['-c', 'print(7)'], limit=60.0)[:2])").split() == [
        "0",
        "7",
    ]


@pytest.mark.parametrize(
    "change, met", [("", True), ("rows += rows", True), ("rows.pop()", False), ("rows[0]['status'] = 'error'", False),
                    ("rows[0]['reported'] = None", False)],
)  # fmt: skip
def test_a_row_that_is_lost_is_seen(change: str, met: bool) -> None:
    row = "{'status': 'ok', 'reported': 1.0, 'ours': 1.1}"
    code = f"from claims.programs import Kept\nrows = [{row} for _ in range(3)]\n{change}\n"
    assert said("-c", f"{code}print(Kept('', 3, 3).of(rows)[1])").strip() == str(met)
