"""The model: assembly, validation, verification; no solver involved."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from dfopt.milp import Model


def small() -> Model:
    m = Model("small")
    m.binary("b", (2, 2))
    m.continuous("c", 3, lower=[-1.0, 0.0, 0.0], upper=5.0)
    return m


def test_blocks_are_consecutive_and_shaped() -> None:
    m = small()
    assert m.index("b").tolist() == [[0, 1], [2, 3]]
    assert m.index("c").tolist() == [4, 5, 6]
    assert m.index("c").dtype == np.int64
    assert list(m.column_blocks) == ["b", "c"]
    x = np.arange(7.0)
    assert m.value("b", x).tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_rows_mask_duplicates_and_extra_axes() -> None:
    m = small()
    b, c = m.index("b"), m.index("c")
    mask = np.array([[True, False], [True, True]])
    # NaN where the mask hides it must not matter
    coefs = np.where(mask, 2.0, np.nan)
    m.rows("masked", [(np.where(mask, b, -1), coefs), (c[:2], -1.0)], upper=[1.0, 2.0])
    m.rows("deep", [(np.stack([b, b]), 1.0)], lower=0.0)
    m.rows("twice", [([[4, 4, 5, 6]], [1.0, 2.0, 1.0, 0.0])])
    dense = m.arrays().A.toarray()
    expected = np.zeros((5, 7))
    expected[0, [0, 4]] = 2.0, -1.0
    expected[1, [2, 3, 5]] = 2.0, 2.0, -1.0
    expected[2:4, :4] = 1.0
    expected[4, [4, 5]] = 3.0, 1.0
    assert np.array_equal(dense, expected)
    assert m.arrays().A.nnz == np.count_nonzero(expected)
    assert dict(m.row_blocks) == {"masked": slice(0, 2), "deep": slice(2, 4), "twice": slice(4, 5)}
    assert m.arrays().row_upper[:2].tolist() == [1.0, 2.0]


def test_coefficient_per_row_needs_a_column_shape() -> None:
    m = small()
    m.rows("r", [(m.index("b"), [[2.0], [3.0]])])
    assert m.arrays().A.toarray()[:, :4].tolist() == [[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 3.0]]


def test_assembled_once_and_again_after_a_change() -> None:
    m = small()
    m.rows("r", [(m.index("c"), 1.0)])
    first = m.arrays()
    assert m.arrays() is first
    m.bound(m.index("b"), np.eye(2), np.eye(2))
    second = m.arrays()
    assert first.col_upper[1] == 1.0
    assert second.col_upper[:4].tolist() == second.col_lower[:4].tolist() == [1.0, 0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        second.cost[0] = 1.0


def test_bound_leaves_the_other_side_and_skips_minus_one() -> None:
    m = small()
    m.bound([4, -1, 5], upper=[2.0, 99.0, 3.0])
    assert m.arrays().col_upper[4:].tolist() == [2.0, 3.0, 5.0]
    assert m.arrays().col_lower[4:].tolist() == [-1.0, 0.0, 0.0]


def test_objective_replaces_and_sums() -> None:
    m = small()
    m.minimize([([0], 100.0)])
    m.minimize([(m.index("b"), [[1.0, 2.0], [3.0, 4.0]]), ([4, 4, -1], [1.0, 1.0, np.nan])], offset=10.0)
    assert m.arrays().objective([1.0, 1.0, 1.0, 1.0, 3.0, 0.0, 0.0]) == 10.0 + 10.0 + 6.0


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([0, 0, 0, 0, 0, 0, 0], 0.0),
        ([0.25, 0, 0, 0, 0, 0, 0], 0.25),  # integrality
        ([0, 0, 0, 0, -1.5, 0, 0], 0.5),  # lower bound
        ([0, 0, 0, 0, 0, 5.75, 0], 1.75),  # upper row beats upper bound
        ([1, 1, 1, 1, 0, 0, 0], 3.0),  # row of the binaries
        ([0, 0, 0, 0, np.nan, 0, 0], np.inf),
    ],
)
def test_violation(x: list[float], expected: float) -> None:
    m = small()
    m.rows("c", [(m.index("c"), 1.0)], upper=4.0)
    m.rows("b", [(m.index("b").reshape(1, 4), 1.0)], upper=1.0)
    assert m.arrays().violation(x) == expected


def test_start_fills_fixed_columns() -> None:
    m = small()
    m.bound([6], 2.0, 2.0)
    x = m.start({"b": np.eye(2)})
    assert x[:4].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert np.isnan(x[4:6]).all()
    assert x[6] == 2.0


def test_errors_are_clear() -> None:
    m = small()
    with pytest.raises(ValueError, match="variable block 'b' already exists"):
        m.continuous("b", 1)
    with pytest.raises(ValueError, match="does not broadcast"):
        m.continuous("d", 3, lower=[1.0, 2.0])
    with pytest.raises(ValueError, match="above upper"):
        m.continuous("d", 3, lower=2.0, upper=[3.0, 1.0, 3.0])
    with pytest.raises(ValueError, match="NaN bound"):
        m.continuous("d", 3, lower=np.nan)
    m.rows("r", [(m.index("c"), 1.0)])
    with pytest.raises(ValueError, match="row block 'r' already exists"):
        m.rows("r", [(m.index("c"), 1.0)])
    with pytest.raises(ValueError, match="2 rows where the first term has 3"):
        m.rows("s", [(m.index("c"), 1.0), (m.index("b"), 1.0)])
    with pytest.raises(ValueError, match="out of range"):
        m.rows("s", [([7], 1.0)])
    with pytest.raises(ValueError, match="out of range"):
        m.minimize([([-2], 1.0)])
    with pytest.raises(ValueError, match="must be integers"):
        m.rows("s", [([1.0], 1.0)])
    with pytest.raises(ValueError, match="NaN"):
        m.rows("s", [([0, 1, 2], [1.0, np.nan, 1.0])])
    with pytest.raises(ValueError, match="does not broadcast"):
        m.rows("s", [(m.index("c"), [1.0, 2.0])])
    with pytest.raises(ValueError, match="does not broadcast"):
        m.rows("s", [(m.index("c"), 1.0)], lower=[1.0, 2.0])
    with pytest.raises(ValueError, match="no variable block 'zz'"):
        m.value("zz", np.zeros(7))
    with pytest.raises(ValueError, match="7 columns"):
        m.arrays().violation(np.zeros(3))
    # none of the refused calls left anything behind
    assert m.arrays().A.shape == (3, 7) and m.arrays().A.nnz == 3
    assert list(m.row_blocks) == ["r"]


def test_import_loads_no_solver() -> None:
    code = "import sys, dfopt.milp; sys.exit('highspy' in sys.modules or 'pulp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
