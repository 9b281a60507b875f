"""Model files: what is written is what other readers solve."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest
from random_models import random_model

from dfopt.errors import DocumentError
from dfopt.milp import Model, solve, write_model


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
