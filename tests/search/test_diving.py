"""A first mapping from plans with room to spare: it changes where a search looks first, and nothing that is proven."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.search import racing
from dfopt.search.verify import verify

WAYS = ("none", "attention", "full")


def test_the_answer_is_the_same_with_a_dive_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [df.load_graph("gpt2-small", mode="training", batch=32, microbatch=4, recompute=each) for each in WAYS]
    system, found = df.load_system("a100-8", {"chip.dram.capacity": "1.6 GB"}), []
    dived = []
    for patience in (-1, 10**9):
        monkeypatch.setattr(racing, "_PATIENCE", patience)
        monkeypatch.setattr(racing, "dive", lambda searches, really=racing.dive: dived.append(1) or really(searches))
        found.append(df.optimize(graphs[0], system, variants=graphs[1:], assumptions="ideal", zero=(0, 1), tp=1, pp=2))
    assert len(dived) == 1
    assert found[0].step_time_s == pytest.approx(found[1].step_time_s, rel=1e-9)
    assert (found[0].status, found[0].gap) == (found[1].status, found[1].gap) == ("optimal", 0.0)
    assert verify(found[0]).verdict == "verified optimal"


def test_a_plan_with_room_is_found_where_thousands_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the dive finds is kept before any other plan is mapped."""
    graphs = [df.load_graph("llama-3.1-8b", mode="training", batch=64, recompute=each) for each in WAYS[1:]]
    monkeypatch.setattr(racing, "_PATIENCE", -1)
    found = df.optimize(
        graphs[0], "h100-8", variants=graphs[1:], assumptions="ideal", zero=(0, 1), gap=1.0, time_limit=600
    )
    assert found.score.feasible and found.step_time_s < 7.5  # 5.03 s is the best
