"""The model: assembly, validation, verification, without a solver; and files, which other readers solve alike."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest
from random_models import random_model

from dfopt.errors import DocumentError
from dfopt.milp import Model, solve, write_model


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


REFUSED: list[tuple[str, Callable[[Model], object]]] = [
    ("variable block 'b' already exists", lambda m: m.continuous("b", 1)),
    ("does not broadcast", lambda m: m.continuous("d", 3, lower=[1.0, 2.0])),
    ("above upper", lambda m: m.continuous("d", 3, lower=2.0, upper=[3.0, 1.0, 3.0])),
    ("NaN bound", lambda m: m.continuous("d", 3, lower=np.nan)),
    ("row block 'r' already exists", lambda m: m.rows("r", [(m.index("c"), 1.0)])),
    ("2 rows where the first term has 3", lambda m: m.rows("s", [(m.index("c"), 1.0), (m.index("b"), 1.0)])),
    ("out of range", lambda m: m.rows("s", [([7], 1.0)])),
    ("out of range", lambda m: m.minimize([([-2], 1.0)])),
    ("must be integers", lambda m: m.rows("s", [([1.0], 1.0)])),
    ("NaN", lambda m: m.rows("s", [([0, 1, 2], [1.0, np.nan, 1.0])])),
    ("does not broadcast", lambda m: m.rows("s", [(m.index("c"), [1.0, 2.0])])),
    ("does not broadcast", lambda m: m.rows("s", [(m.index("c"), 1.0)], lower=[1.0, 2.0])),
    ("no variable block 'zz'", lambda m: m.value("zz", np.zeros(7))),
    ("7 columns", lambda m: m.arrays().violation(np.zeros(3))),
]


def test_errors_are_clear_and_leave_nothing_behind() -> None:
    m = small()
    m.rows("r", [(m.index("c"), 1.0)])
    for said, call in REFUSED:
        with pytest.raises(ValueError, match=said):
            call(m)
    assert m.arrays().A.shape == (3, 7) and m.arrays().A.nnz == 3
    assert list(m.row_blocks) == ["r"]


def test_import_loads_no_solver() -> None:
    code = "import sys, dfopt.milp; sys.exit('highspy' in sys.modules or 'pulp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- model files -------------------------------------------------------------------------------


def read_with_highs(path: Path) -> Any:
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 0.0)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    return highs


def edges() -> Model:
    """Everything a writer can get wrong."""
    m = Model("edges")
    a, b = m.binary("A", (2, 3)), m.integer("A[0]", 2, -4, [np.inf, 9])
    c, e = m.continuous("free", (), -np.inf), m.continuous("e1 -> x", 2, [-2, -np.inf], [3.5, -1])
    m.integer("unused", 1, 2, 8)
    m.rows("row [x]", [(a, 1.0), (e, 2.0)], lower=[0.5, -np.inf], upper=[0.5, 4.0])
    m.rows("range", [(b[None, :], [1.0, -1.0]), (np.array([int(c)]), 1.0)], lower=-3.25, upper=7.0)
    m.rows("range.lower", [(b, 1.0)], lower=-3.0)
    m.rows("nothing", [([-1], 1.0)], upper=2.0)
    m.minimize([(a, [[-1.0, 2.0, 1 / 3], [0.25, -7.0, 1e-7]]), (b, [1.0, -2.0]), (c, 0.5)], offset=-12.75)
    m.bound(c, lower=-50.0)
    return m


@pytest.mark.parametrize("suffix", ["mps", "lp", "LP"])
def test_names_and_numbers(tmp_path: Path, suffix: str) -> None:
    m, path = edges(), tmp_path / f"edges.{suffix}"
    best = solve(m)
    write_model(m, path)
    if suffix == "LP":
        path = path.rename(path.with_suffix(".lp"))
    highs = read_with_highs(path)
    assert highs.getObjectiveValue() == pytest.approx(best.objective, abs=1e-9) and best.x is not None
    lp = highs.getLp()
    at = {name: i for i, name in enumerate(lp.col_names_)}
    names = [
        "A_0_0",
        "A_0_1",
        "A_0_2",
        "A_1_0",
        "A_1_1",
        "A_1_2",
        "A_0__0",
        "A_0__1",
        "_free",
        "_e1____x_0",
        "_e1____x_1",
    ]
    assert set(names) | {"unused_0", "constant"} == set(at)
    arrays = m.arrays()
    for column, name in enumerate([*names, "unused_0"]):
        i = at[name]
        assert (lp.col_lower_[i], lp.col_upper_[i]) == (arrays.col_lower[column], arrays.col_upper[column])
        assert lp.col_cost_[i] == pytest.approx(arrays.cost[column], rel=1e-11)
        kind = highspy.HighsVarType.kInteger if arrays.integrality[column] else highspy.HighsVarType.kContinuous
        assert lp.integrality_[i] == kind
    rows = {"row__x__0", "row__x__1", "range_0.lower", "range_0.upper", "range_lower_0", "range_lower_1", "nothing_0"}
    assert rows <= set(lp.row_names_) <= rows | {"_dummy"}


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(tmp_path: Path, seed: int) -> None:
    import pulp

    model = random_model(seed)
    best = solve(model)
    for name in ("m.mps", "m.lp"):
        write_model(model, tmp_path / name)
        highs = read_with_highs(tmp_path / name)
        if best.x is None:
            assert highs.getModelStatus().name == "kInfeasible"
        else:
            assert highs.getObjectiveValue() == pytest.approx(best.objective, rel=1e-8, abs=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, problem = pulp.LpProblem.fromMPS(str(tmp_path / "m.mps"))
        problem.solve(pulp.HiGHS(msg=False, gapRel=0.0))
    if best.x is None:
        assert problem.status == pulp.LpStatusInfeasible
    else:
        assert pulp.value(problem.objective) == pytest.approx(best.objective, rel=1e-6, abs=1e-6)


def test_infeasible_constant_row_stays(tmp_path: Path) -> None:
    m = edges()
    m.rows("never", [([-1], 1.0)], lower=1.0)
    for name in ("m.mps", "m.lp"):
        write_model(m, tmp_path / name)
        assert read_with_highs(tmp_path / name).getModelStatus().name == "kInfeasible"


def test_names_are_stable(tmp_path: Path) -> None:
    for name in ("1.lp", "2.lp"):
        write_model(edges(), tmp_path / name)
    assert (tmp_path / "1.lp").read_text() == (tmp_path / "2.lp").read_text()


def test_bad_paths(tmp_path: Path) -> None:
    for name, said in (("m.txt", "found the suffix '.txt', expected .mps or .lp"), ("no/m.lp", "cannot be written")):
        with pytest.raises(DocumentError, match=said) as caught:
            write_model(edges(), tmp_path / name)
        assert str(tmp_path / name) in str(caught.value) and caught.value.issues[0].remedy
    (tmp_path / "folder.lp").mkdir()
    with pytest.raises(DocumentError, match="cannot be written"):
        write_model(edges(), tmp_path / "folder.lp")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.lp"]


def test_a_file_is_replaced_and_a_link_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "m.lp", tmp_path / "link.lp"
    target.write_text("old")
    link.symlink_to(target)
    write_model(edges(), link)
    assert link.is_symlink() and target.read_text().startswith("\\* dfopt")
