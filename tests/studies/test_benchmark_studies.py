"""The studies of the paper's figures in ``benchmarks/studies``: they expand, and say where they come from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dfopt.documents.study import Study
from dfopt.studies.cells import Cell, expand

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "studies"
CELLS = {
    "best-plans": 320, "deepflow-fig09": 84, "deepflow-fig10": 98, "deepflow-fig11": 80, "dse": 320,
    "deepstack-fig20": 40, "deepstack-fig21": 36, "deepstack-hbm": 16,
    "deepflow-roadmap-fig09": 96, "deepflow-roadmap-fig10": 96, "deepflow-roadmap-fig11": 20,
    "fig07": 6, "fig08": 16, "fig10": 80, "fig10-text": 80, "fig12": 80, "fig14": 80, "fig16": 80,
    "fig12-setups": 80, "fig14-setups": 80, "fig16-setups": 80,
    "fig19": 18, "fig20": 20, "fig20-decode": 20, "fig22": 30, "fig22-heat": 35, "table6": 5,
}  # fmt: skip


@cache
def cells(name: str) -> tuple[Cell, ...]:
    path = FOLDER / f"{name}.yaml"
    return expand(Study.load(path), FOLDER, str(path))


def test_every_study_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(CELLS)


@pytest.mark.parametrize("name", CELLS)
def test_it_expands(name: str) -> None:
    study = Study.load(FOLDER / f"{name}.yaml")
    assert len(cells(name)) == CELLS[name]
    assert study.name == name
    assert study.source.startswith(("DFModel, ", "DeepFlow, ", "DeepStack ("))
    if study.source.startswith("DeepStack ("):  # whose energies and rates are not published
        assert "assumption" in study.source + study.description
    else:
        assert "setup files" in study.description or "text" in study.description
    assert all(claim.figure for claim in study.claims) and study.claims


def test_the_whole_exploration_is_the_cells_of_its_figures() -> None:
    apart = {cell.key for name in ("fig10", "fig12-setups", "fig14-setups", "fig16-setups") for cell in cells(name)}
    assert {cell.key for cell in cells("dse")} == apart
    assert len(apart) == 320


def test_systems_have_1024_chips_and_a_price() -> None:
    from dfopt.physics.cost import system_cost

    for cell in cells("dse"):
        assert cell.system.chips == 1024
        assert system_cost(cell.system, "dfmodel").missing == ()
