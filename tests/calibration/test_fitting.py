"""The fit: it finds what made the data, says what it cannot tell, and keeps to its bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dfopt.calibration.fitting import fit, left_out_errors
from dfopt.calibration.numbers import MOST_NUMBERS, FitParameter, applied, known_numbers, named
from dfopt.documents.assumptions import Assumptions
from dfopt.errors import PlanError
from dfopt.library import load_system

NUMBERS = (FitParameter("matrix", 0.5, 0.01, 1.0), FitParameter("node", 1.0, 0.05, 1.0))
WORK = np.array([[1.0, 0.1], [2.0, 1.5], [0.5, 3.0], [4.0, 0.2], [1.0, 1.0]])
Shares = st.floats(0.06, 0.99)


def times(values: Mapping[str, float]) -> NDArray[np.float64]:
    return WORK @ np.array([1 / values["matrix"], 1 / values["node"]])


@given(Shares, Shares)
def test_shares_that_made_the_times_are_found(matrix: float, node: float) -> None:
    found = fit(NUMBERS, times({"matrix": matrix, "node": node}), times)
    assert found.values["matrix"] == pytest.approx(matrix, rel=1e-4)
    assert found.values["node"] == pytest.approx(node, rel=1e-4)


@given(st.lists(st.floats(0.7, 1.4), min_size=5, max_size=5))
def test_no_share_nearby_is_better(noise: list[float]) -> None:
    """A grid of neighbours, which shares nothing with the solver."""
    measured = times({"matrix": 0.6, "node": 0.4}) * np.array(noise)
    found = fit(NUMBERS, measured, times)

    def loss(matrix: float, node: float) -> float:
        return float(((times({"matrix": matrix, "node": node}) / measured - 1) ** 2).sum())

    best = loss(found.values["matrix"], found.values["node"])
    for matrix in np.linspace(0.05, 1.0, 39):
        for node in np.linspace(0.05, 1.0, 39):
            assert best <= loss(matrix, node) * (1 + 1e-6) + 1e-12


def test_a_share_stays_in_its_bounds_whatever_the_rows_say() -> None:
    found = fit(NUMBERS, times({"matrix": 1.0, "node": 0.5}) * 0.5, times)
    assert found.values["matrix"] == pytest.approx(1.0) and 0.05 <= found.values["node"] <= 1.0


def test_numbers_that_move_all_rows_alike_are_named() -> None:
    def alike(values: Mapping[str, float]) -> NDArray[np.float64]:
        return WORK[:, 0] / values["matrix"] + 2 * WORK[:, 0] / values["node"]

    with pytest.raises(PlanError, match="do not tell matrix and node apart: condition number"):
        fit(NUMBERS, np.ones(5), alike)


def test_a_source_left_out_is_predicted_by_the_others() -> None:
    measured = times({"matrix": 0.6, "node": 0.4})
    measured[4] *= 2.0
    sources = ["a", "a", "a", "a", "b"]
    errors = left_out_errors(NUMBERS, fit(NUMBERS, measured, times), measured, sources)
    assert errors["b"] == pytest.approx(0.5, abs=1e-3)  # the others are exact, and this one took twice as long
    assert errors["a"] is None  # one row tells no two numbers


def test_numbers_change_what_they_say_and_nothing_else() -> None:
    system, assumptions = load_system("a100-512"), Assumptions()
    made, same = applied({"matrix": 0.475, "cluster": 0.5}, system, assumptions)
    shares = [(row.unit, row.share) for row in made.chip.efficiency or ()]
    assert shares[:4] == [("matrix", pytest.approx(share)) for share in (0.475, 0.45, 0.3, 0.05)]
    assert shares[4:] == [(row.unit, row.share) for row in (system.chip.efficiency or ())[4:]]
    assert [dim.efficiency for dim in made.network] == [None, 0.5] and same == assumptions
    for share in (0.0, 1.01):
        with pytest.raises(PlanError, match="expected more than 0 and at most 1"):
            applied({"vector": share}, system, assumptions)


def test_names_are_checked() -> None:
    known = known_numbers(load_system("a100-512"), Assumptions())
    with pytest.raises(PlanError, match="found 'matrx'"):
        named(["matrx"], known)
    with pytest.raises(PlanError, match=f"name 1 to {MOST_NUMBERS} numbers, each once"):
        named(["node", "node"], known)
