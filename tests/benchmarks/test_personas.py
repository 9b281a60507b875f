"""Newcomers of three kinds reach their own answer after few lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_path import module_at

PERSONAS = module_at(Path(__file__).resolve().parents[2] / "benchmarks" / "personas.py")


@pytest.mark.parametrize("name", PERSONAS.PERSONAS)
def test_a_newcomer_reads_few_lines(name: str) -> None:
    persona = PERSONAS.PERSONAS[name]
    count = sum(lines for _, lines in PERSONAS.reading(persona))
    assert 20 < count <= persona.bar
    last = (PERSONAS.ROOT / "benchmarks" / "personas" / f"{name}.txt").read_text(encoding="utf-8").splitlines()[-1]
    assert last.startswith(f"{count} lines read (at most {persona.bar}), own answer after ")
