"""Drawn questions held against themselves: a few of the day."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
from by_path import beside_its_own

HERE = Path(__file__).resolve().parents[2] / "benchmarks"
KINDS = ("doors", "files", "fixed", "pins", "more", "wider", "relabelled", "solvers")
SECONDS = 4.0  # of an answer; what a busy machine does not reach by then is not compared


@pytest.fixture(scope="module")
def relations() -> ModuleType:
    return beside_its_own(HERE / "relations.py")


def test_every_kind_is_tried(relations: ModuleType) -> None:
    assert tuple(relations.KINDS) == KINDS


@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_an_answer_agrees_with_others(relations: ModuleType, number: int) -> None:
    seed = date.today().isoformat()
    rng = random.Random(f"{seed}/{number}")
    verdict = relations.held(KINDS[number], relations.drawn(rng), SECONDS, rng)
    again = f"python benchmarks/consistency.py --seed {seed} --only {number}"
    assert verdict.kind != "different", f"{verdict.why}; {again}"
