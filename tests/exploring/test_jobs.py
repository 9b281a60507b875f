"""Explorations in several processes, killed or not: the same answer and records, and no process left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from child_processes import children, gone
from design_cases import GPT2, SIZES, chosen
from exploration_cases import FEW, answer_of, decoding

import dfopt as df
from dfopt.documents.store import Store, read_records
from dfopt.documents.technology import Technology
from dfopt.errors import PlanError
from dfopt.exploring import solves
from dfopt.exploring.explore import explore
from dfopt.processes.executor import Processes

WAIT = 120.0  # seconds, however busy the machine is


def technologies(least: float) -> list[Technology]:
    """Three, of which the first search is for each: so there is something to do beside one another."""
    made, core = chosen(**FEW).technology, chosen(**FEW).technology.core
    of = [core.model_copy(update={"power": core.power * share}) for share in (1.0, (1 + least) / 2, least)]
    return [made.model_copy(update={"name": f"t{number}", "core": one}) for number, one in enumerate(of)]


def test_any_number_of_processes_says_the_same() -> None:
    jobs, least, said = 2, 0.9, []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        ran: list[int] = []
        run = Processes.run
        patch.setattr(Processes, "run", lambda self, tasks, take: (ran.append(len(tasks)), run(self, tasks, take))[1])
        for number in (1, jobs):
            assert not ran
            store = Path(folder) / f"{number}.jsonl"
            asked: dict[str, Any] = {"technologies": technologies(least), "gap": 0.0, "sensitivity": False}
            made = explore(GPT2, chosen(**FEW), **asked, jobs=number, store=store)
            records = [(key, one["status"], one["bound"]) for key, one in read_records(store).items()]
            said.append((answer_of(made), made.result.mapping, made.result.bound, records))
        assert ran and ran[0] == 3  # side by side, not one after the other
    assert said[0] == said[1]


def workers(parent: int) -> list[int]:
    """The processes that a process has started to solve."""
    found = []
    for number in children(parent):
        with suppress(OSError):  # it may have ended
            if b"dfopt.processes.worker" in Path(f"/proc/{number}/cmdline").read_bytes():
                found.append(number)
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads who runs from /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_an_exploration(how: signal.Signals, tmp_path: Path) -> None:
    design, store = tmp_path / "design.yaml", tmp_path / "solved.jsonl"
    chosen(**FEW).dump(design)
    for one in technologies(0.9):
        one.dump(tmp_path / f"{one.name}.yaml")
    among = ",".join(str(tmp_path / f"t{number}.yaml") for number in range(3))
    GPT2.dump(graph := tmp_path / "graph.yaml")
    words = ["explore", str(graph), str(design), "--gap", "0", "--no-sensitivity", "--store", str(store), "--json"]
    asked = [sys.executable, "-m", "dfopt", *words, "--jobs", "2", "--technologies", among]
    running = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until, solving = time.monotonic() + WAIT, list[int]()
    while len(solving) < 2 and running.poll() is None and time.monotonic() < until:
        solving = workers(running.pid)
        time.sleep(0.01)
    running.send_signal(how)
    out, err = running.communicate(timeout=WAIT)
    assert len(solving) == 2, err
    assert all(gone(number, WAIT) for number in solving)
    if how == signal.SIGINT:
        assert "Traceback" not in err
        assert running.returncode == 130 or json.loads(out)["status"] in ("interrupted", "optimal")
    with Store(store):  # nobody holds its lock, and no line is damaged
        pass


def test_jobs_below_one_are_refused() -> None:
    with pytest.raises(PlanError, match="jobs: expected 1 or more, found 0"):
        explore(GPT2, chosen(**FEW), jobs=0)


SOME: dict[str, Any] = {
    **SIZES, "choices__capacity__L2__most": "12 MiB", "choices__rate__between_packages__most": "150 GB/s",
}  # fmt: skip


def test_an_exploration_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design, store = tmp_path / "design.yaml", tmp_path / "solved.jsonl"
    chosen(**SOME).dump(design)
    GPT2.dump(graph := tmp_path / "graph.yaml")
    asked = ["explore", str(graph), str(design), "--gap", "0", "--no-sensitivity", "--store", str(store)]
    running = subprocess.Popen([sys.executable, "-m", "dfopt", *asked], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (store.exists() and read_records(store)) and running.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    running.kill()
    running.wait()
    before = read_records(store)
    assert before

    anew: list[Any] = []
    solve = solves.bounded

    def counted(*args: Any, **more: Any) -> Any:
        anew.append(args)
        return solve(*args, **more)

    monkeypatch.setattr(solves, "bounded", counted)
    resumed = explore(GPT2, chosen(**SOME), gap=0.0, sensitivity=False, store=store)
    assert len(anew) == resumed.effort.solves - len(before)
    whole = explore(GPT2, chosen(**SOME), gap=0.0, sensitivity=False)
    assert answer_of(resumed) == answer_of(whole) and resumed.value == whole.value

    anew.clear()
    again = explore(GPT2, chosen(**SOME), gap=0.0, sensitivity=False, store=store)
    assert not anew and answer_of(again) == answer_of(whole)


def test_answers_about_one_plan_of_several_graphs_are_kept_apart(tmp_path: Path) -> None:
    work = decoding([chosen()])
    system = work.system(work.spaces[0].root.at((0,) * len(work.spaces[0].sizes)))
    assert system is not None
    results = [df.solve(graph, system, tp=2, pp=1, dp=4, mp=1) for graph in work.graphs if graph.microbatch in (1, 2)]
    with Store(tmp_path / "solved.jsonl") as store:
        work.run.store = store
        for result in [*results, *results]:
            again = work.solver.fixed(system, result)
            assert (again.graph.microbatch, again.graph.variant) == (result.graph.microbatch, result.graph.variant)
            assert again.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)
