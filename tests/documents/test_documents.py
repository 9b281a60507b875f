"""Documents and errors as a whole: kinds, how many records are written, and what they are in other processes."""

from __future__ import annotations

import json
import os
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dfopt as df
import dfopt.documents
from dfopt import errors
from dfopt.documents import records
from dfopt.documents.base import Document, digest_of
from dfopt.documents.kinds import KINDS
from dfopt.documents.modules import Modules
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.plan import Plan
from dfopt.errors import DocumentError, GraphError, Issue, NotInZoo, SchemaVersionError, UnitError


def subclasses(kind: type[Document]) -> Iterator[type[Document]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_document_with_a_schema_is_a_kind() -> None:
    for module in pkgutil.iter_modules(dfopt.documents.__path__, "dfopt.documents."):
        import_module(module.name)
    saved = {each for each in subclasses(Document) if each.SCHEMA and each.__module__.startswith("dfopt.documents.")}
    assert saved == set(KINDS.values())


def test_a_kind_is_called_as_in_its_schema() -> None:
    for kind, document in KINDS.items():
        package, name, version = document.SCHEMA.split("/")
        assert (package, name) == ("dfopt", kind)
        assert version.isdecimal()


@pytest.fixture(scope="module")
def result() -> df.Result:
    return df.optimize("gpt2-small", "sn10-8-ring", tp=8, sensitivity=False)


def written(document: Document) -> dict[str, Any]:
    return {key: document.written(key, value) for key, value in document.to_data().items()}


@pytest.mark.parametrize("times", [1, 1001])
def test_the_digest_and_the_text_of_many_records_are_those_of_the_data(result: df.Result, times: int) -> None:
    many = result.model_copy(update={"plans": result.plans[:1] * times})
    assert records.digest(many) == digest_of(many.to_data())
    assert json.loads("".join(records.json_text(many))) == json.loads(json.dumps(written(many)))


def test_a_short_document_has_an_entry_a_line(result: df.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MANY", 1000)
    documents: list[Document] = [result, result.graph, result.system]
    for document in documents:
        data = written(document)
        assert "".join(records.json_text(document)) == json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        assert "".join(records.json_text(document, ascii_only=True)) == json.dumps(data, indent=1) + "\n"


ASKS = """
import pathlib, pickle, sys
from dfopt.documents.modules import Modules
from dfopt.documents.plan import Plan
known = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
assert known == {one: str(one) for one in known}
assert Plan(tp=4, tp_dims=("x",)) in known
assert Plan(mp=2, mp_dims=("x",), modules=Modules(stream="n", mixer="context")) in known
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_plans_are_found_again_in_another_process(tmp_path: Path, seed: str) -> None:
    """Words hash differently in every process: nothing that was worked out from their hashes may travel."""
    plans = [Plan(tp=4, tp_dims=("x",)), Plan(mp=2, mp_dims=("x",), modules=Modules(stream="n", mixer="context"))]
    assert all(isinstance(one, OnAxes) and hash(one) and one.shards for one in plans)
    sent = tmp_path / "plans.pickle"
    sent.write_bytes(pickle.dumps({one: str(one) for one in plans}))
    inherited = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run([sys.executable, "-c", ASKS, str(sent)], check=True, env=inherited, timeout=60)


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
