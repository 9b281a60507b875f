"""The next best: of different plans or shardings, exactly those that solving each by itself finds."""

from __future__ import annotations

from collections import Counter

import pytest
from small_systems import rings, small_system

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
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


def test_a_better_sharding_that_is_left_out_is_found_by_a_check() -> None:
    """Shardings of one plan, named as different in the proof; with the best and a worse one alone it is refused."""
    kernels = Kernel(name="up", op="gemm", m=8, k=4, n=6), Kernel(name="down", op="gemm", m=4, k=8, n=6)
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=(Tensor(src="up", dst="down"),))
    system = small_system(*rings(2, rate=20), tiles=2, peak=300, sram=1e6)
    result = df.optimize(graph, system, tp=2, pp=1, top=4, distinct="sharding", sensitivity=False)
    others = result.alternatives or ()
    assert result.status == "optimal" and len(others) == 3
    assert {one.mapping.plan for one in others} == {result.plan}
    assert result.proof.endswith("of different plans, microbatches, ways to compute again or shardings")
    assert verify(result).ok
    worse = next(one for one in others if one.value > others[0].value * 1.01)
    fields = {"request": result.request.model_copy(update={"top": 2}), "alternatives": (worse,), "question": None}
    forged = result.model_copy(update=fields).sealed()
    assert any("could be shown" in problem for problem in verify(forged).problems)


@pytest.mark.parametrize(
    ("asked", "beside"),
    [
        ({"set": {"sharding_objective": "seconds"}}, "sharding_objective: seconds; use joint"),
        ({"formulation": "assignment"}, "formulation: assignment; use auto"),
    ],
)
def test_where_only_one_sharding_of_a_plan_is_looked_for_several_are_refused(
    asked: dict[str, object], beside: str
) -> None:
    """By name, with what to ask for instead."""
    with pytest.raises(PlanError, match=f"distinct: found sharding, expected plan beside {beside}"):
        df.optimize("gpt2-small", "sn10-8-ring", top=2, distinct="sharding", **asked)
