"""The committed answers to figure 16 of DeepStack keep what is said of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "stacked"))

import figures  # type: ignore[import-not-found]


def test_curves_have_their_peak_near_the_published_one() -> None:
    curves = figures.curves_16()
    assert len(curves) >= 4
    for layers, theirs, ours in curves.values():
        assert abs(layers[theirs.index(max(theirs))] - layers[ours.index(max(ours))]) <= 2
        assert spearmanr(theirs, ours).statistic >= 0.8


def test_no_answer_is_above_its_bound() -> None:
    for record in figures.answers("16").values():
        assert record["tokens_per_s"] <= record["at_most"] * (1 + 1e-9)
        assert record["at_most"] * (1 - record["gap"]) == pytest.approx(record["tokens_per_s"], rel=1e-3)
