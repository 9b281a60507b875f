"""The study of the library has the models, phases and machines whose searches are timed."""

from __future__ import annotations

from pathlib import Path

from by_path import module_at

from dfopt.documents.study import Study

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ZOO = module_at(BENCHMARKS / "zoo_speed.py")


def test_it_has_every_model_in_its_phases() -> None:
    study = Study.load(BENCHMARKS / "zoo.yaml")
    asked = {f"{name} {phase}": options for name, phase, options in ZOO.models([])}
    entries = {entry.label: dict(entry.parameters) for entry in study.graphs}
    assert entries.items() <= asked.items()
    without = asked.keys() - entries.keys()  # nothing is kept of their tokens, so they do not decode
    assert all(label.endswith(" decode") for label in without)
    assert len(entries) > 100 and tuple(entry.system for entry in study.systems) == ZOO.SYSTEMS
