"""Prefill on a GPU against measured kernels: attention by a library keeps its share at every length."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from dfopt.documents.assumptions import Assumptions
from dfopt.machines.compose import load_system
from dfopt.search import solve
from dfopt.workloads import load_graph

# tensor parallelism, prompts at once, tokens of each, milliseconds to the first token; the file says where from
ROWS = json.loads((Path(__file__).resolve().parents[1] / "golden" / "prefill-h100.json").read_text())["rows"]


def ratios(chosen: Assumptions, overhead: bool, lengths: set[int]) -> dict[int, list[float]]:
    """Predicted over measured time, by tokens. Eight chips hold copies of what one prompt or batch runs on."""
    machine = load_system("h100-8")
    machine = machine if overhead else machine.model_copy(update={"collective_overhead": 0.0})
    found = defaultdict(list)
    for tp, batch, tokens, measured_ms in ROWS:
        if tokens in lengths:
            copies = 8 // tp
            graph = load_graph("llama-3.1-8b", seq=tokens, microbatch=batch, batch=batch * copies, causal=True)
            result = solve(graph, machine, assumptions=chosen, tp=tp, pp=1, dp=copies)
            found[tokens].append(result.step_time_s * 1e3 / measured_ms)
    return found


def test_the_ratio_does_not_grow_with_the_prompt() -> None:
    found = ratios(Assumptions(execution="library", sharding_objective="seconds"), overhead=True, lengths={2048, 32768})
    assert {tokens: len(each) for tokens, each in found.items()} == {2048: 16, 32768: 11}
    assert 0.9 < median(found[32768]) / median(found[2048]) < 1.1


def test_a_chip_that_fuses_freely_at_peak_is_a_bound_on_what_is_measured() -> None:
    ideal = Assumptions(execution="dataflow", compute_utilization=1.0)
    found = ratios(ideal, overhead=False, lengths={2048, 8192, 32768})
    assert sum(map(len, found.values())) == len(ROWS)
    assert max(max(each) for each in found.values()) <= 1.0
