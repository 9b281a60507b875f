"""What `dfopt check` says of a store: honest records hold, whoever wrote them; forged ones do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_turn import InTurn
from study_cases import study
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.documents.store import line_of, read_records
from dfopt.errors import DocumentError
from dfopt.studies.cells import expand
from dfopt.studies.checking import check_store

GRAPH = {"graph": "gpt2-small", "parameters": {"microbatch": 1}}
Record = dict[str, Any]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Proven with a degree that is fixed and free, too large for a chip, and asked for what no plan has."""
    path = tmp_path_factory.mktemp("checked") / "runs.jsonl"
    graphs = [
        {**GRAPH, "options": {"tp": 4}}, {**GRAPH, "label": "free"},
        {**GRAPH, "graph": "gpt3-1t", "label": "large", "options": {"tp": 8}},
        {**GRAPH, "label": "odd", "options": {"tp": 7}},
    ]  # fmt: skip
    torus = {"system": "sn10-8-torus", "graphs": ["gpt2-small", "free", "odd"]}
    systems = [torus, {"system": "a100-8", "graphs": ["large"]}]
    df.sweep(df.Study(name="checked", graphs=graphs, systems=systems), executor=InTurn(), store=path)
    return [{key: value for key, value in one.items() if key != "schema"} for one in read_records(path).values()]


def written(path: Path, records: list[Record]) -> Path:
    path.write_bytes(b"".join(map(line_of, records)))
    return path


def test_an_honest_store_holds(records: list[Record], tmp_path: Path) -> None:
    path = written(tmp_path / "runs", records)  # known by how it begins
    done = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    first, *listed = row["verdict"].splitlines()
    assert row["schema"] == "dfopt/run/1" and first.startswith("4 records: ")
    for words in ("2 verified optimal", "1 infeasible again", "1 failed again"):
        assert words in first
    assert [line.partition(": ")[2].partition(": ")[0] for line in listed] == ["$.seconds, $.dfopt", "$.study, $.axes"]


def test_what_is_not_solved_again_is_said(records: list[Record], tmp_path: Path) -> None:
    late = {**records[2], "cell": records[2]["cell"], "status": "no_solution", "message": "no solution found in 1 s"}
    before = {"cell": "c0ffee", "status": "optimal", "figures": records[0]["figures"]}
    path = written(tmp_path / "runs.jsonl", [late, before])
    path.write_bytes(path.read_bytes() + line_of(records[0])[:-9])  # a sweep writes to it
    said = check_store(path)
    assert said.startswith("2 records: 2 not solved again") and "1 cut or damaged line is left out" in said
    assert "$.status, $.message: it was not solved again" in said
    assert "$.cell, $.asked, $.mapping: what was asked is not in the file" in said
    said = check_store(written(path, records), time_limit=1e-9)
    assert "$.figures.gap, $.figures.bound_s, $.figures.level_gap, $.figures.level_bound_s: it was not" in said


def of_other(which: int) -> Callable[[list[Record]], None]:
    """A record that says of its question what another one says of its own."""

    def forge(records: list[Record]) -> None:
        records[which] |= {key: records[1 - which][key] for key in ("mapping", "figures", "status")}

    return forge


FORGED: dict[str, tuple[Callable[[list[Record]], None], str]] = {
    "the cell of a later record": (lambda r: r[0].update(cell=r[1]["cell"]), r"\$.cell"),
    "a faster step": (lambda r: r[0]["figures"].update(step_time_s=1e-3), r"\$.figures.step_time_s"),
    "optimal, consistently": (of_other(1), r"\$.figures.bound_s: the file says .* a mapping takes"),
    "another degree": (of_other(0), r"\$.figures.step_time_s: nothing that was asked for is below"),
    "another option": (lambda r: r[0]["asked"]["options"].update(tp=2), r"\$.cell"),
    "another cell's documents": (lambda r: r[0].update(asked=r[1]["asked"]), r"\$.cell"),
    "infeasible": (
        lambda r: (r[0].pop("figures"), r[0].update(status="infeasible", message="infeasible: ")), r"message: .*optimal"
    ),
    "another reason": (lambda r: r[2].update(message="infeasible: no"), r"solved again it is infeasible: TP8"),
    "a failure": (lambda r: r[2].update(status="failed"), r"\$.status"),
    "nothing asked": (lambda r: r[0].pop("asked"), r"\$.asked: missing"),
    "a line without a status": (lambda r: r[0].pop("status"), "1 cut or damaged line"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_record_is_told(records: list[Record], tmp_path: Path, name: str) -> None:
    forge, said = FORGED[name]
    forged = json.loads(json.dumps(records))
    forge(forged)
    with pytest.raises(DocumentError, match=said):
        check_store(written(tmp_path / "runs.jsonl", forged))


@pytest.mark.parametrize("data", [b"text\n", b"", None])
def test_a_file_that_is_no_store_is_one_error(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "runs.jsonl"
    if data is not None:
        path.write_bytes(data)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert (done.exit_code, done.output.count("\n")) == ((0, 1) if data == b"" else (3, 2)), done.output


def test_the_largest_batch_under_other_microbatches_is_another_cell() -> None:
    graphs = [{"graph": "llama-68m", "parameters": {"phase": "decode", "batch": "max"}}]
    cells = expand(study(graphs=graphs, parameters={"microbatch": [1, 2]}, systems=[{"system": "h100-8"}]))
    keys = {cell.key for cell in cells}
    assert len(keys) == 2
