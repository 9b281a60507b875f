"""Explorations that are killed go on where they stopped, to the same answer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from design_cases import GPT2, SIZES, chosen

from dfopt.documents.exploration import Exploration
from dfopt.documents.store import read_records
from dfopt.exploring import solves
from dfopt.exploring.explore import explore

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
    while not (store.exists() and store.stat().st_size) and running.poll() is None and time.monotonic() < until:
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
