"""Figures of the paper: what is stored belongs to the studies, and making one anew gives the same numbers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from by_path import module_at

from dfopt.documents.study import Study

HERE = Path(__file__).resolve().parents[2] / "benchmarks"
STORED = HERE / "figures"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return module_at(HERE / "figures.py")


def test_what_is_stored_is_what_the_studies_ask(figures: ModuleType) -> None:
    """A picture, a row per cell, and a line per claim for each study; small enough to be shown on a page."""
    assert {path.name for path in STORED.iterdir()} == set(figures.FIGURES)
    shown = (HERE / "figures.md").read_text(encoding="utf-8")
    for name, pictures in figures.FIGURES.items():
        folder = STORED / name
        assert {path.name for path in folder.iterdir()} == {"frame.csv", "claims.md", *(f"{p}.svg" for p in pictures)}
        study = Study.load(HERE / "studies" / f"{name}.yaml")
        frame = pd.read_csv(folder / "frame.csv")
        assert list(frame.columns) == [name for name in study.columns if name not in ("solve_s", "cell")]
        assert frame["status"].isin(["optimal", "optimal_per_level", "gap_reached"]).all()
        assert ((frame["status"] == "optimal") == (frame["gap"] == 0)).all()
        assert ((frame["status"] == "gap_reached") == (frame["level_gap"] > 0)).all()
        lines = (folder / "claims.md").read_text(encoding="utf-8").splitlines()[2:]
        assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [claim.name for claim in study.claims]
        for picture in pictures:
            svg = folder / f"{picture}.svg"
            assert svg.stat().st_size < 200_000 and svg.read_text(encoding="utf-8").startswith("<?xml")
            assert f"figures/{name}/{picture}.svg" in shown


def test_a_study_makes_the_stored_numbers_again(figures: ModuleType, tmp_path: Path) -> None:
    runs = figures.make("table6", tmp_path / "table6", jobs=1, store=tmp_path)
    assert (tmp_path / "table6.jsonl").exists() and all(one.holds for one in runs.claims())
    made, stored = (pd.read_csv(folder / "table6" / "frame.csv") for folder in (tmp_path, STORED))
    assert list(made.columns) == list(stored.columns) and len(made) == 5
    figures_of = ["step_time_s", "utilization", "layer_compute_s", "layer_memory_s", "layer_network_s"]
    pd.testing.assert_frame_equal(made[figures_of], stored[figures_of], rtol=1e-6)
    assert (tmp_path / "table6" / "table6.svg").stat().st_size > 1000
    assert (tmp_path / "table6" / "claims.md").read_text() == (STORED / "table6" / "claims.md").read_text()


def test_the_terms_of_a_step_add_up_or_are_refused(figures: ModuleType) -> None:
    frame = pd.read_csv(STORED / "fig08" / "frame.csv")
    parts = figures.step_terms(frame)
    pd.testing.assert_series_equal(parts.sum(axis=1), frame["step_time_s"], check_names=False, rtol=1e-8)
    assert (parts >= 0).all().all() and (parts["compute"] > 0).all()
    with pytest.raises(ValueError, match="times overlap"):
        figures.step_terms(frame.assign(layer_memory_s=frame["layer_time_s"]))


@pytest.mark.parametrize("name", ["fig07", "fig08", "fig10", "fig12", "fig19", "fig20", "fig22", "fig22-heat"])
def test_stored_frames_can_be_drawn(figures: ModuleType, name: str) -> None:
    """Each picture from the frame alone: axes have labels or titles, and bars or lines for all of the cells."""
    frame = pd.read_csv(STORED / name / "frame.csv")
    for draw in figures.FIGURES[name].values():
        figure = draw(frame)
        spots = [ax for ax in figure.axes if ax.axison and ax.get_label() != "<colorbar>"]
        assert all(ax.get_ylabel() or ax.get_title(loc="left") or ax.get_xlabel() or ax.images for ax in spots)
        marks = sum(len(line.get_xdata()) for ax in spots for line in ax.lines)
        marks += sum(len(ax.patches) + len(ax.texts) for ax in spots)
        assert marks >= len(frame)
        plt.close(figure)


_LINES = {
    "deepflow-fig09": {"deepflow-fig09": (12, 84)},
    "deepflow-fig10": {"deepflow-fig10": (3, 21)},
    "deepflow-fig11": {"deepflow-fig11": (3, 12)},
    "deepflow-roadmap-fig09": {"scaling": (10, 40)},
    "deepflow-roadmap-fig10": {"searching": (4, 16)},
    "deepflow-roadmap-fig11": {"packages": (5, 22)},
}


@pytest.mark.parametrize("name", _LINES)
def test_stored_frames_of_technologies_can_be_drawn(figures: ModuleType, name: str) -> None:
    """A line for each memory and network, or for each thing that is chosen, with a point for each that is compared."""
    frame = pd.read_csv(STORED / name / "frame.csv")
    for picture, counts in _LINES[name].items():
        figure = figures.FIGURES[name][picture](frame)
        lines = [line for ax in figure.axes for line in ax.lines]
        assert (len(lines), sum(len(line.get_xdata()) for line in lines)) == counts
        assert figure.axes[0].get_ylabel()
        for ax in figure.axes:  # nothing is cut off
            low, high = ax.get_ylim()
            assert all(low <= height <= high for line in ax.lines for height in line.get_ydata())
        plt.close(figure)


@pytest.mark.parametrize(("name", "cells"), [("deepflow-fig09", 84), ("deepflow-roadmap-fig09", 96)])
def test_maps_of_what_binds_have_every_cell(figures: ModuleType, name: str, cells: int) -> None:
    frame = pd.read_csv(STORED / name / "frame.csv")
    figure = figures.FIGURES[name]["limiters"](frame)
    drawn = [ax for ax in figure.axes if ax.patches]
    assert sum(len(ax.patches) for ax in drawn) == sum(len(ax.texts) for ax in drawn) == cells
    shown = {patch.get_facecolor() for ax in drawn for patch in ax.patches}
    assert len(shown) == frame["bound_by"].nunique()
    plt.close(figure)


def test_an_unknown_study_is_refused(figures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        figures.main(["fig99"])
    assert "found fig99, expected some of table6, fig07" in capsys.readouterr().err
