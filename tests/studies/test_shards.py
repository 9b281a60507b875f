"""Shares of a study, tasks as they are sent, and results that are written beside the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_turn import InTurn, in_turn
from study_cases import degrees, figures, study
from typer.testing import CliRunner

from dfopt.cli import app
from dfopt.documents.graph import Graph
from dfopt.documents.system import System
from dfopt.errors import DocumentError, PlanError
from dfopt.processes.packing import pack, unpack
from dfopt.studies.cells import expand
from dfopt.studies.packing import Tasks
from dfopt.studies.shard import Shard
from dfopt.studies.sweep import _at_most, collect, sweep

AXES = degrees(1, 2, 3, 8)


@given(keys=st.sets(st.text("0123456789abcdef", min_size=4, max_size=4)), of=st.integers(1, 9))
def test_shares_are_even_and_lose_nothing(keys: set[str], of: int) -> None:
    shares = [Shard(number, of).share(keys) for number in range(1, of + 1)]
    assert sorted(key for share in shares for key in share) == sorted(keys)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert shares == [Shard(number, of).share(sorted(keys)) for number in range(1, of + 1)]


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1.0/4", " 1/4"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(PlanError, match="expected i/n with i from 1 to n"):
        sweep(study(), shard=text)


def test_shards_together_are_the_whole_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = study(axes=AXES)
    whole.dump("mine.yaml")
    for number in (1, 2, 3):
        with in_turn():
            assert CliRunner().invoke(app, ["sweep", "mine.yaml", "--shard", f"{number}/3"]).exit_code == 0
    stores = [f"mine.runs.{number}-of-3.jsonl" for number in (1, 2, 3)]
    counts = [Path(name).read_bytes().count(b"\n") for name in stores]
    assert sorted(counts) == [2, 3, 3]
    assert figures(collect("mine.yaml", *stores).frame()).equals(figures(sweep(whole, jobs=2).frame()))
    assert collect("mine.yaml", stores[0]).counts()["pending"] == 8 - counts[0]


def test_a_task_is_small_and_says_everything() -> None:
    cells = expand(study(axes=AXES))
    tasks = Tasks(cells)
    assert len(tasks) == len(cells) == 8 and [task["cell"] for task in tasks] == [cell.key for cell in cells]
    for task, cell in zip(tasks, cells, strict=True):
        text, graph, system = (json.dumps(each) for each in (task, cell.graph.to_data(), cell.system.to_data()))
        assert len(text) < 7000 < len(cell.graphs) * len(graph) + len(system)
        sent = json.loads(text)["asked"]
        assert unpack(Graph, sent["graphs"]) == tuple(cell.graphs) and unpack(System, sent["system"]) == (cell.system,)
    assert tasks[0]["asked"]["graphs"] is tasks[7]["asked"]["graphs"]  # packed once


def test_a_document_is_parsed_once_and_no_more_are_kept_than_needed() -> None:
    from dfopt.processes import packing

    (cell, *_) = expand(study())
    sent = pack(cell.graph)
    assert unpack(Graph, sent) is unpack(Graph, json.loads(json.dumps(sent)))
    for number in range(130):
        assert unpack(Graph, pack(cell.graph.model_copy(update={"name": f"g{number}"})))[0].name == f"g{number}"
    assert packing._parsed.cache_info().currsize == 64
    with pytest.raises(DocumentError):
        unpack(System, pack(cell.graph))


def test_cells_whose_result_is_missing_are_solved_again(tmp_path: Path) -> None:
    store, results = tmp_path / "runs.jsonl", tmp_path / "results"
    whole = study()
    sweep(whole, executor=InTurn(), store=store)
    told: list[int] = []
    sweep(whole, executor=InTurn(), store=store, out_dir=results, progress=lambda done, of, _: told.append(done))
    assert told == [0, 1, 2] and len(list(results.iterdir())) == 2
    next(results.iterdir()).unlink()
    told.clear()
    sweep(whole, executor=InTurn(), store=store, out_dir=results, progress=lambda done, of, _: told.append(done))
    assert told == [1, 2] and len(list(results.iterdir())) == 2
    assert "result" not in store.read_text()


def test_no_study_has_more_cells_than_foretold() -> None:
    for whole in (study(), study(axes=AXES), study(assumptions=[{"profile": "default"}, {"profile": "dfmodel"}])):
        assert _at_most(whole) == len(expand(whole))
