"""Explorations that are killed go on where they stopped, to the same answer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from design_cases import GPT2, SIZES, chosen

import dfopt as df
from dfopt.documents.exploration import Exploration
from dfopt.documents.store import Store, read_records
from dfopt.exploring import solves
from dfopt.exploring.explore import asked_workload, explore
from dfopt.exploring.problems import workload_of

FEW: dict[str, Any] = {
    **SIZES, "choices__capacity__L2__most": "12 MiB", "choices__rate__between_packages__most": "150 GB/s",
}  # fmt: skip


def told(made: Exploration) -> Any:
    """All that an exploration says, but for seconds and what holds them."""
    data: Any = made.to_data()
    del data["seal"], data["effort"]["seconds"], data["result"]
    return data


def test_an_exploration_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design, store = tmp_path / "design.yaml", tmp_path / "solved.jsonl"
    chosen(**FEW).dump(design)
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
    resumed = explore(GPT2, chosen(**FEW), gap=0.0, sensitivity=False, store=store)
    assert len(anew) == resumed.effort.solves - len(before)
    whole = explore(GPT2, chosen(**FEW), gap=0.0, sensitivity=False)
    assert told(resumed) == told(whole) and resumed.value == whole.value

    anew.clear()
    again = explore(GPT2, chosen(**FEW), gap=0.0, sensitivity=False, store=store)
    assert not anew and told(again) == told(whole)


def test_answers_about_one_plan_of_several_graphs_are_kept_apart(tmp_path: Path) -> None:
    graphs, _ = asked_workload("llama-68m", {"phase": "decode", "batch": 8, "context": 64})
    work = workload_of(graphs, [chosen()])
    system = work.system(work.spaces[0].root.at((0,) * len(work.spaces[0].sizes)))
    assert system is not None
    results = [df.solve(graph, system, tp=2, pp=1, dp=4, mp=1) for graph in graphs if graph.microbatch in (1, 2)]
    with Store(tmp_path / "solved.jsonl") as store:
        work.run.store = store
        for result in [*results, *results]:
            again = work.solver.fixed(system, result)
            assert (again.graph.microbatch, again.graph.variant) == (result.graph.microbatch, result.graph.variant)
            assert again.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)
