"""Pages have what was measured: of the whole library, of larger questions, and of what newcomers read."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_path import module_at

import dfopt as df
from dfopt.documents.strict_yaml import load_strict
from dfopt.documents.study import Study
from dfopt.documents.zoo import find, zoo
from dfopt.workloads import WORKLOADS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ZOO = module_at(BENCHMARKS / "zoo.py")


def test_it_has_every_model_in_its_phases() -> None:
    study = Study.load(BENCHMARKS / "zoo.yaml")
    entries = {entry.label: dict(entry.parameters) for entry in study.graphs}
    expected: dict[str, dict[str, object]] = {}
    for name in zoo("graphs"):
        recipe = load_strict(find("graphs", name))
        if "phase" in WORKLOADS[recipe["workload"]].parameters.model_fields:
            tokens = min(4096, recipe["parameters"]["seq"])
            expected[f"{name} prefill"] = {"phase": "prefill", "batch": 8, "seq": tokens}
            expected[f"{name} decode"] = {"phase": "decode", "batch": 16, "context": tokens}
    assert entries.items() <= expected.items()
    without = expected.keys() - entries.keys()  # nothing is kept of their tokens, so they do not decode
    assert all(label.endswith(" decode") for label in without)
    assert len(entries) > 100 and len(study.systems) == 6


def test_the_page_has_what_its_cells_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ZOO.part_of(Study.load(BENCHMARKS / "zoo.yaml"), ["llama-68m"], ["h100-8"])
    frame = ZOO.outcomes(df.sweep(part, executor=ZOO.InTurn()).frame())
    frame.loc[1, ["status", "note", "ended"]] = "infeasible", "short by 1 GB", "-"
    frame = ZOO.outcomes(frame.assign(solve_s=[1.0, 3.0]))
    monkeypatch.setattr(ZOO, "PAGE", tmp_path / "zoo.md")
    monkeypatch.setattr(ZOO, "PICTURE", tmp_path / "zoo.svg")
    ZOO.write(frame)
    text = (tmp_path / "zoo.md").read_text(encoding="utf-8")
    assert "| h100-8 | 2 | 1 | 1 | 0 | 2.00 | 2.90 | 3.00 | llama-68m decode |" in text and "1 models" in text
    assert (tmp_path / "zoo.svg").stat().st_size > 1000


GROWTH = module_at(BENCHMARKS / "speed" / "growth.py")


def test_the_page_has_what_was_measured() -> None:
    points_of = GROWTH.known()
    assert points_of.keys() <= {axis.name for axis in GROWTH.AXES}
    assert GROWTH.page(points_of) == (GROWTH.GUIDE / "growth.md").read_text(encoding="utf-8")


def test_an_exponent_is_the_slope_of_both_logarithms() -> None:
    points = [GROWTH.Point("chips", n, 3 * n**0.5, "optimal", 1.0, "-", "2026-11-30") for n in (1, 4, 64)]
    late = GROWTH.Point("chips", 512, 9.0, "limit_with_solution", 1.0, "-", "2026-11-30")
    assert abs(GROWTH.exponent([*points, late]) - 0.5) < 1e-12


PERSONAS = module_at(BENCHMARKS / "personas.py")


@pytest.mark.parametrize("name", PERSONAS.PERSONAS)
def test_a_newcomer_reads_few_lines(name: str) -> None:
    persona = PERSONAS.PERSONAS[name]
    count = sum(lines for _, lines in PERSONAS.reading(persona))
    assert 20 < count <= persona.bar
    last = (PERSONAS.ROOT / "benchmarks" / "personas" / f"{name}.txt").read_text(encoding="utf-8").splitlines()[-1]
    assert last.startswith(f"{count} lines read (at most {persona.bar}), own answer after ")
