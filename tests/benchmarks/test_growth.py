"""The page on larger questions is what the table of the benchmark says."""

from __future__ import annotations

from pathlib import Path

from by_path import module_at

GROWTH = module_at(Path(__file__).resolve().parents[2] / "benchmarks" / "speed" / "growth.py")


def test_the_page_has_what_was_measured() -> None:
    points_of = GROWTH.known()
    assert points_of.keys() <= {axis.name for axis in GROWTH.AXES}
    assert GROWTH.page(points_of) == (GROWTH.GUIDE / "growth.md").read_text(encoding="utf-8")


def test_an_exponent_is_the_slope_of_both_logarithms() -> None:
    points = [GROWTH.Point("chips", n, 3 * n**0.5, "optimal", 1.0, "-", "2026-11-30") for n in (1, 4, 64)]
    late = GROWTH.Point("chips", 512, 9.0, "limit_with_solution", 1.0, "-", "2026-11-30")
    assert abs(GROWTH.exponent([*points, late]) - 0.5) < 1e-12
