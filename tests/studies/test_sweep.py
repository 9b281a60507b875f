"""Sweeps: equal to single solves, resumed after a kill, and with failures that stay in their cells."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from child_processes import children, gone
from in_turn import InTurn
from study_cases import SMALL, degrees, limits, study, swept_apart

import dfopt
from dfopt.documents.store import line_of
from dfopt.errors import PlanError
from dfopt.processes import process
from dfopt.processes.executor import Processes
from dfopt.studies.cells import expand
from dfopt.studies.listing import listing
from dfopt.studies.packing import Tasks
from dfopt.studies.sweep import collect, sweep

AXES = degrees(1, 2, 3, 8)  # eight cells, of which two cannot be


def test_a_sweep_is_as_many_single_solves(tmp_path: Path) -> None:
    whole = study(axes=AXES)
    store, results = tmp_path / "runs.jsonl", tmp_path / "results"
    told: list[tuple[int, int]] = []
    runs = sweep(whole, jobs=2, store=store, out_dir=results, progress=lambda done, of, _: told.append((done, of)))
    assert told == [(i, 8) for i in range(9)]
    frame = runs.frame()
    assert len(frame) == 8 and not runs.interrupted
    for i, cell in enumerate(runs.cells):
        line = frame.loc[i]
        if line["degree"] == 3:
            assert line["status"] in ("failed", "infeasible")
            assert "3" in line["note"]
            continue
        alone = dfopt.optimize(cell.graph, cell.system, tp=cell.options.tp, variants=cell.graphs[1:])
        assert line["status"] == alone.status
        assert line["step_time_s"] == alone.step_time_s
        assert line["utilization"] == alone.utilization
        assert line["plan"] == alone.plan.label
        kept = dfopt.Result.load(results / f"{cell.key}.json")
        assert kept.step_time_s == alone.step_time_s
    assert sorted(path.stem for path in results.iterdir()) == sorted(
        cell.key for cell in runs.cells if cell.axes["degree"] != 3
    )
    # nothing is left to do, also for another study that has some of the cells
    again = sweep(whole, store=store, progress=lambda done, of, record: told.append((done, of)))
    assert told[-1] == (8, 8)
    assert again.frame().equals(frame)
    part = sweep(study(name="part", axes={"degree": AXES["degree"][:1]}), store=store, jobs=1)
    assert part.counts() == {"optimal": 2}
    assert collect(whole, store).frame().equals(frame)


def test_failed_cells_are_solved_again_only_when_asked(tmp_path: Path) -> None:
    store = tmp_path / "runs.jsonl"
    whole = study(systems=[{"system": "sn10-8-ring"}])
    (cell,) = expand(whole)
    store.write_bytes(line_of({"cell": cell.key, "status": "failed", "message": "no memory"}))
    kept = sweep(whole, executor=InTurn(), store=store).frame().loc[0]
    assert kept["status"] == "failed" and "no memory" in kept["note"]
    assert sweep(whole, executor=InTurn(), store=store, retry=True).counts() == {"optimal": 1}
    assert collect(whole, store).counts() == {"optimal": 1}


def test_equal_cells_are_solved_once() -> None:
    twice = study(graphs=[*SMALL["graphs"], {**SMALL["graphs"][0], "label": "same"}])
    told: list[int] = []
    runs = sweep(twice, executor=InTurn(), progress=lambda done, of, _: told.append(of))
    assert (len(runs.cells), told[0]) == (4, 2)
    frame = runs.frame()
    assert frame["step_time_s"].tolist() == frame["step_time_s"].tolist()[:2] * 2


def test_a_dead_process_costs_one_cell() -> None:
    """The first cell's process is ended at once, as if it heard no time limit; the others are solved."""
    todo = Tasks(expand(study(axes={"degree": AXES["degree"][:2]})))
    found: dict[str, Any] = {}

    def limit(task: Any) -> float:
        return 0.01 if task["cell"] == todo[0]["cell"] else 60.0

    assert Processes(1, hard_limit=limit).run(todo, lambda record: found.__setitem__(record["cell"], record)) == ""
    statuses = [found[task["cell"]]["status"] for task in todo]
    assert statuses[0] == "failed" and all(status.startswith("optimal") for status in statuses[1:])
    assert "it heard no time limit" in found[todo[0]["cell"]]["message"]


def test_a_process_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(broken))
    runs = sweep(study(), jobs=2)
    assert runs.counts() == {"failed": 2}
    assert "ended with exit code 3: no such library" in runs.frame().loc[0, "note"]


def test_what_a_library_prints_is_no_answer() -> None:
    code = (
        "import os, dfopt.processes.worker as w\n"
        "w.solve = lambda task: (os.write(1, b'noise\\n'), print('noise'), {'cell': task['cell']})[-1]\n"
        "w.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input='{"cell": "a"}\n', capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout in ('{"cell": "a"}\n', "")  # stdin ended, so it may leave before it answers


def test_jobs_below_one_are_refused() -> None:
    with pytest.raises(PlanError, match="jobs: expected 1 or more, found 0"):
        sweep(study(), jobs=0)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Processes that import the script again would start sweeps without end."""
    script = tmp_path / "script.py"
    script.write_text(f"import dfopt\nprint(dfopt.sweep({str(file(tmp_path))!r}, jobs=2))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "Runs(small: 2 cells, 2 optimal)\n", done.stderr


def file(folder: Path, **changes: Any) -> Path:
    path = folder / "study.yaml"
    study(**changes).dump(path)
    return path


MANY = limits(8)  # enough cells to be in the middle of them when two are done


def started(path: Path, store: Path, lines: int) -> subprocess.Popen[str]:
    """A sweep in another process that has solved some cells and is at the next one."""
    child = swept_apart(path, store, "--jobs", "1")
    until = time.perf_counter() + 60
    while not store.exists() or store.read_bytes().count(b"\n") < lines:
        assert child.poll() is None, child.communicate()
        assert time.perf_counter() < until
        time.sleep(0.002)
    return child


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, store = file(tmp_path, axes=MANY), tmp_path / "runs.jsonl"
    child = started(path, store, 2)
    workers = children(child.pid)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    done = store.read_bytes()
    count = done.count(b"\n")
    assert 2 <= count < 16, "the sweep was over before it was killed"
    if Path("/proc").exists():
        assert workers and all(gone(pid) for pid in workers)
    with store.open("ab") as opened:
        opened.write(b'{"schema":"dfopt/run/1","cell":"c0f')  # as if the kill had cut a line
    solved: list[str] = []
    runs = sweep(
        path, jobs=2, store=store, progress=lambda done, of, record: record and solved.append(str(record["cell"]))
    )
    assert runs.counts() == {"optimal": 16}
    first = [json.loads(line)["cell"] for line in done.splitlines()]
    assert len(first) == count and not set(first) & set(solved)
    assert len(solved) == 16 - count
    assert store.read_bytes().startswith(done)
    assert any("had no end" in note for note in runs.notes)


def test_ctrl_c_ends_a_sweep_soon_and_keeps_what_is_done(tmp_path: Path) -> None:
    path, store = file(tmp_path, axes=MANY), tmp_path / "runs.jsonl"
    child = started(path, store, 2)
    workers = children(child.pid)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 5, err
    assert "Traceback" not in err
    assert f"the same command goes on from {store}" in err
    kept = collect(path, store).counts()
    assert kept["optimal"] + kept["pending"] == 16 and kept["optimal"] >= 2
    assert f"{kept['pending']} pending" in out
    if Path("/proc").exists():
        assert all(gone(pid) for pid in workers)


def test_records_say_which_calibration_their_cell_has(tmp_path: Path) -> None:
    small = {"hidden": 64, "heads": 4, "head_dim": 16, "ffn": 256, "layers": 2, "seq": 64, "batch": 8}
    recipe = {"schema": "dfopt/graph/3", "name": "small", "workload": "transformer", "parameters": small}
    (tmp_path / "small.json").write_text(json.dumps(recipe))
    given = {"systems": [{"system": "a100-8"}], "assumptions": [{"profile": "default"}, {"profile": "calibrated"}]}
    document = {**SMALL, **given, "graphs": [{"graph": "small.json"}], "options": {"tp": 1, "pp": 1}}
    (tmp_path / "study.json").write_text(json.dumps(document))
    store, done = tmp_path / "runs.jsonl", list[int]()
    runs = sweep(tmp_path / "study.json", executor=InTurn(), store=store)
    ideal, calibrated = runs.frame().to_dict("records")
    assert calibrated["calibrated_by"] == runs.cells[1].calibration and pd.isna(ideal["calibrated_by"])
    assert calibrated["step_time_s"] > ideal["step_time_s"]
    by_cell = {record["cell"]: record for record in map(json.loads, store.read_text().splitlines())}
    assert by_cell[calibrated["cell"]]["calibrated_by"] == calibrated["calibrated_by"]
    assert "calibrated_by" not in by_cell[ideal["cell"]]
    again = tmp_path / "study.json"
    sweep(again, executor=InTurn(), store=store, progress=lambda before, of, record: done.append(before))
    assert done == [2]
    # and without the study
    assert listing([store])["calibrated_by"].dropna().tolist() == [calibrated["calibrated_by"]]
