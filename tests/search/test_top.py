"""``top``: the next best plans are exactly those that solving every plan by itself finds."""

from __future__ import annotations

from collections import Counter

import pytest

import dfopt as df
from dfopt.documents.result import Result
from dfopt.errors import PlanError
from dfopt.judge import evaluate
from dfopt.search.verify import verify


def test_alternatives_are_judged_mappings_and_survive_a_round_trip() -> None:
    """Each can be judged again; the result still verifies and loads."""
    workload, machine = df.load_graph("gpt2-small"), df.load_system("sn10-8-ring")
    result = df.optimize(workload, machine, top=3)
    assert result.alternatives is not None and len(result.alternatives) == 2
    for one in result.alternatives:
        score = evaluate(one.mapping, workload, machine, result.assumptions)
        assert score.step_time_s == pytest.approx(one.value, rel=1e-12) and score.feasible
    assert Result.from_data(result.to_data()) == result
    assert verify(result).ok
    faster = result.alternatives[0].model_copy(update={"value": result.value / 2})
    forged = result.model_copy(update={"alternatives": (faster,)})
    assert any("alternatives[0].value" in problem for problem in verify(forged).problems)


def test_without_top_nothing_changes_in_a_result() -> None:
    """A result with one mapping has no such key."""
    result = df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"))
    assert result.alternatives is None and "alternatives" not in result.to_data()


def test_top_zero_is_refused() -> None:
    """One clear error."""
    with pytest.raises(PlanError, match="top: found 0, expected a number of 1 or more"):
        df.optimize(df.load_graph("gpt2-small"), df.load_system("sn10-8-ring"), top=0)


def test_the_best_few_are_of_different_plans() -> None:
    """Also where one plan would be among them twice, with other tiles; the proof says what is counted."""
    graph = df.load_graph("gpt2-small", seq=8, microbatch=1)
    for how in ("joint", "seconds"):
        chosen = df.Assumptions(sharding_objective=how, compute_model="cycle", tile_rows=None)  # many tile counts
        result = df.optimize(graph, "sn10-8-torus", top=3, pp=1, assumptions=chosen)
        assert max(Counter(record.plan for record in result.plans).values()) > 1
        plans = [result.plan, *(one.mapping.plan for one in result.alternatives or ())]
        assert len(plans) == len(set(plans)) == 3
        assert result.proof.endswith(
            "; the best mappings are of different plans, microbatches or ways to compute again"
        )
        values = [result.value, *(one.value for one in result.alternatives or ())]
        best = {one.plan: one.value for one in reversed(result.plans) if one.value is not None}
        assert sorted(best.values())[:3] == pytest.approx(values, rel=1e-9)
        assert verify(result).ok, verify(result).problems


def test_mappings_as_fast_as_each_other_are_proven_within_a_gap_too() -> None:
    """Where the best ones are equal, they are all shown to be optimal; a check once showed no more than the gap."""
    workload = df.load_graph("llama-3.2-1b", phase="decode", batch=4, context=512)
    pins = {"shard": {"Q_Proj": "outer"}, "module": {"mixer": "n"}}
    result = df.optimize(workload, df.load_system("a100-8"), top=2, distinct="sharding", gap=0.01, **pins)
    assert result.alternatives is not None and result.alternatives[0].value == pytest.approx(result.value, rel=1e-9)
    assert result.status == "optimal" and verify(result).gap == 0.0
