"""Errors: exit codes, text, and that they survive the trip between processes."""

from __future__ import annotations

import pickle

import pytest

from dfopt import errors
from dfopt.errors import DocumentError, GraphError, Issue, NotInZoo, SchemaVersionError, UnitError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DocumentError("a", [Issue("$", "m", "r")]), 3),
        (DocumentError(path="a", issues=[]), 3),
        (UnitError("", [Issue("$", "m")]), 3),
        (SchemaVersionError("a", []), 3),
        (NotInZoo("a", ["b"], "graphs"), 3),
        (GraphError("a", [Issue("$", "m")]), 3),
        (errors.SystemSpecError("a", []), 3),
        (errors.PlanError("no"), 2),
        (errors.Infeasible({"short": 3}), 4),
        (errors.NoSolution(0.5, 60), 5),
        (errors.SolverFailure("no"), 6),
        (errors.ScoreMismatch("step_time", 1.0, 2.0), 6),
    ],
)
def test_errors_are_pickled_whole(error: errors.DfoptError, code: int) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error) and str(back) == str(error) and vars(back) == vars(error)
    assert error.exit_code == code and str(error)


def test_a_file_that_is_wrong_everywhere_prints_a_hundred_lines() -> None:
    text = str(DocumentError("a.yaml", [Issue(f"$[{i}]", "no") for i in range(500)]))
    assert text.startswith("a.yaml: 500 problems") and text.endswith("... and 400 more")
    assert len(text.splitlines()) == 102


def test_the_tree() -> None:
    for document in (UnitError, SchemaVersionError, NotInZoo):
        assert issubclass(document, DocumentError)
    for solve in (errors.Infeasible, errors.NoSolution, errors.SolverFailure):
        assert issubclass(solve, errors.SolveError)
    assert issubclass(UnitError, ValueError) and not issubclass(GraphError, DocumentError)
