"""The study of the library has every model in its phases, and its page what it measured."""

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
