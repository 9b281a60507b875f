"""``dfopt runs``: what stores have, with and without the study's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_turn import InTurn
from study_cases import degrees, study
from typer.testing import CliRunner, Result

from dfopt.cli import app
from dfopt.documents.store import line_of, read_records, write_new
from dfopt.documents.study_columns import ASKED, COLUMNS
from dfopt.errors import DocumentError, PlanError
from dfopt.studies.listing import listing, narrowed
from dfopt.studies.runs import Runs
from dfopt.studies.shard import Shard
from dfopt.studies.sweep import collect, sweep


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, its store, and the shares of it."""
    made = tmp_path_factory.mktemp("listing")
    study(axes=degrees(1, 3, 8)).dump(made / "study.yaml")
    sweep(made / "study.yaml", store=made / "runs.jsonl", executor=InTurn())
    records = read_records(made / "runs.jsonl")
    write_new(made / "half.jsonl", [records[key] for key in sorted(Shard.parse("1/2").share(records))])
    return made


@pytest.fixture(scope="module")
def runs(folder: Path) -> Runs:
    return collect(folder / "study.yaml", folder / "runs.jsonl")


def command(*words: object) -> Result:
    return CliRunner().invoke(app, ["runs", *map(str, words)])


def test_without_the_study_the_records_say_the_same(folder: Path, runs: Runs) -> None:
    alone, whole = listing([folder / "runs.jsonl"]), runs.frame()
    assert len(alone) == 6 and set(alone["study"]) == {"small"}
    alone = alone.set_index("cell").loc[whole["cell"]].reset_index()
    shared = [name for name in whole.columns if name in alone.columns]
    assert {"system", "degree", "tp", "plan", "utilization", "flop_per_s", "note"} <= set(shared)
    for name in shared:
        if name not in ("note", *ASKED):  # the frame adds missing prices, and what was asked where there is no mapping
            assert alone[name].isna().equals(whole[name].isna()), name
            assert alone[name].dropna().tolist() == whole[name].dropna().tolist(), name


def test_with_the_study_the_frame_has_all_columns(folder: Path, runs: Runs) -> None:
    found = listing([folder / "half.jsonl"], str(folder / "study.yaml"))
    assert list(found.columns) == list(runs.study.columns)
    assert len(found) == 3 and "pending" not in set(found["status"])
    assert len(listing([folder / "half.jsonl", folder / "runs.jsonl"], str(folder / "study.yaml"))) == 6


def test_every_column_has_a_unit_or_is_none_of_a_quantity() -> None:
    """Names say the unit, or the text of the column says that there is none."""
    suffixes = ("_s", "_c", "_w", "_j", "_bytes", "_usd", "_per_s", "_per_step", "_per_dollar", "_per_watt", "_share")
    suffixes += ("_per_chip", "_per_sequence")
    plain = {
        *ASKED,
        "status", "gap", "level_gap", "utilization", "tp", "mp", "pp", "dp", "microbatches", "layers_per_stage",
        "interleave",
        "plan", "partitions", "bound_by", "chips", "tiles", "note", "cell", "dfopt", "refresh_rate", "limits_broken",
        "stack_energy_per_step_j", "stack_energy_per_token_j", "calibrated_by",
    }  # fmt: skip
    assert [name for name in COLUMNS if name not in plain and not name.endswith(suffixes)] == []
    assert all(len(text) > 5 for text in COLUMNS.values())


def test_rows_columns_and_order(folder: Path) -> None:
    frame = listing([folder / "runs.jsonl"])
    found = narrowed(frame, "status != 'infeasible' and tp > 1", ["degree", "utilization"], "-utilization")
    assert list(found.columns) == ["degree", "utilization"] and set(found["degree"]) == {8}
    assert found["utilization"].is_monotonic_decreasing
    assert narrowed(frame, sort="tp")["tp"].notna().tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"where": "no_such > 1"}, "--where: .*there is no column 'no_such'"),
        ({"where": "__import__('os')"}, "--where: "),
        ({"where": "tp"}, "--where: "),
        ({"where": "system > 3"}, "cannot be told"),
        (
            {"columns": ["utilisation"]},
            "--columns: found 'utilisation', no column of the frame; did you mean 'utilization'",
        ),
        ({"sort": "-tpp"}, "--sort: found 'tpp'"),
    ],
)
def test_what_cannot_be_asked(folder: Path, words: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        narrowed(listing([folder / "runs.jsonl"]), **words)


def test_records_of_an_earlier_dfopt_have_no_labels(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    with old.open("wb") as file:
        for record in read_records(folder / "runs.jsonl").values():
            kept = {key: value for key, value in record.items() if key not in ("axes", "study", "asked", "mapping")}
            file.write(line_of(kept))
    assert len(listing([old])) == 6 and listing([old])["study"].isna().all()
    assert listing([old], str(folder / "study.yaml"))["degree"].tolist() == [1, 3, 8, 1, 3, 8]


def test_the_command_prints_a_table_json_and_files(folder: Path, tmp_path: Path) -> None:
    store = folder / "runs.jsonl"
    printed = command(store, "--sort", "degree").stdout
    assert printed.startswith("6 records") and "degree" in printed and "torus" in printed
    data = json.loads(command(store, "--json", "--columns", "degree,tp", "--where", "degree == 3").stdout)
    assert data["cells"] == [{"degree": 3, "tp": None}] * 2
    pandas = pytest.importorskip("pandas")
    written = tmp_path / "rows.csv"
    assert command(store, "--csv", written, "--columns", "cell,step_time_s").stdout == ""
    assert list(pandas.read_csv(written).columns) == ["cell", "step_time_s"]
    pytest.importorskip("pyarrow")
    table = tmp_path / "rows.parquet"
    assert command(store, "--parquet", table, "--study", folder / "study.yaml").exit_code == 0
    again = pandas.read_parquet(table)
    assert len(again) == 6 and again["tp"].dropna().tolist() == [1, 8, 1, 8]


def test_stores_can_be_merged(folder: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.jsonl"
    assert command(folder / "half.jsonl", folder / "runs.jsonl", "--merge", both).exit_code == 0
    assert read_records(both).keys() == read_records(folder / "runs.jsonl").keys()
    again = command(folder / "half.jsonl", "--merge", both)
    assert again.exit_code == 3 and "the file exists" in again.stderr


def test_bad_words(folder: Path, tmp_path: Path) -> None:
    missing = command(tmp_path / "none.jsonl")
    assert missing.exit_code == 3 and "cannot be read" in missing.stderr
    wrong = command(folder / "study.yaml")
    assert wrong.exit_code == 3 and "expected a record of schema" in wrong.stderr
    assert command(folder / "runs.jsonl", "--columns", "tp,").exit_code == 2
    assert command(folder / "runs.jsonl", "--csv", tmp_path / "x.pdf").exit_code == 2
    with pytest.raises(DocumentError):
        listing([folder / "study.yaml"])


def test_damaged_lines_are_told(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "runs.jsonl").read_bytes().splitlines(keepends=True)
    whole, cut, torn = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl", tmp_path / "torn.jsonl"
    whole.write_bytes(b"".join(lines))
    cut.write_bytes(b"".join(lines)[:-20])
    torn.write_bytes(lines[0] + lines[1].replace(b"status", b"statsu") + lines[2][:40] + b"\n")
    assert command(whole).stderr == ""
    found = command(cut)
    assert found.exit_code == 0 and f"{len(lines) - 1} records" in found.stdout
    assert found.stderr.count("\n") == 1 and "1 cut or damaged line is left out" in found.stderr
    both = command(whole, cut, torn, "--json")
    assert len(json.loads(both.stdout)["cells"]) == len(lines)
    assert f"3 cut or damaged lines are left out ({cut}: 1, {torn}: 2)" in both.stderr


def test_a_store_without_figures_may_be_asked_for_them(folder: Path, tmp_path: Path) -> None:
    empty, lost = tmp_path / "empty.jsonl", tmp_path / "lost.jsonl"
    empty.touch()
    lost.write_bytes(line_of({"cell": "c0ffee", "status": "infeasible", "axes": {"graph": "a"}}))
    for store in (empty, lost):
        found = command(store, "--where", "gap > 0", "--sort=-gap")
        assert found.exit_code == 0 and "0 records" in found.stdout, found.output
    assert "0 records" in command(empty).stdout
    assert "0 records" in command(empty, "--study", folder / "study.yaml").stdout
    assert "infeasible" in command(lost).stdout and "0 records" not in command(lost).stdout
