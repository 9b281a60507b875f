"""The area law of stacked chips: what was fitted is what the technology has, and published counts are met."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_path import module_at

from dfopt.library import as_design
from dfopt.technology.layered import AreaLaw, Point

LAW = module_at(Path(__file__).resolve().parents[2] / "benchmarks" / "stacked" / "area_law.py")
DESIGN = as_design("stacked-256")


def _start() -> tuple[AreaLaw, float]:
    assert DESIGN.sizes is not None
    law = AreaLaw.of(DESIGN.technology, DESIGN.budgets.chip_area_mm2)
    return law, float(Point.of(DESIGN.sizes, DESIGN.technology).network_mm2)


def test_the_technology_has_the_figures_of_the_fit() -> None:
    law, network = _start()
    layer, connection, rate = LAW.fit_figure_15(law, network, DESIGN.technology.core.frequency)
    part = DESIGN.technology.layers
    assert part is not None
    fitted = layer, connection, rate
    assert fitted == pytest.approx((part.area_mm2, part.connection_mm2, part.rate), rel=1e-4)


def test_figure_15_comes_back_from_the_technology() -> None:
    _, network = _start()
    usable = [LAW.usable_of(DESIGN.technology, DESIGN.budgets.chip_area_mm2, network, at) for at in range(1, 13)]
    assert usable.index(max(usable)) + 1 == 9
    assert 1 - usable[11] / max(usable) == pytest.approx(0.396226, abs=1e-4)


def test_the_law_meets_the_published_counts() -> None:
    rows = LAW.published()
    areas = LAW.fit_counts(rows)
    assert LAW.met(lambda row: LAW.units_of(areas, row), rows) == (60, 60)
    # A law without the term of each layer does not.
    alone = {**areas, "layer": 0.0}
    assert LAW.met(lambda row: LAW.units_of(alone, row), rows)[0] < 54
