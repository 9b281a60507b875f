"""Interleaved stages whose first or last chunk of layers is smaller, beside an embedding or logits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_layers_at_ends import machine, simd, workload

import dfopt as df
from dfopt.documents.plan import Plan
from dfopt.errors import PlanError
from dfopt.judge import evaluate
from dfopt.physics.pipeline import microbatches_in_flight
from dfopt.physics.schedule import order, passes
from dfopt.search.verify import verify
from dfopt.setting.uneven import uneven_chunks, with_ends
from dfopt.workloads import load_graph


def most_held(plan: Plan, stage: int) -> int:
    """Layers whose activations a stage holds at most, walking through its schedule pass by pass."""
    layers, waits, most = plan.chunk_layers(stage), [0] * plan.interleave, 0
    for kind, chunk, _ in order(plan, "one_f_one_b", True, stage, plan.microbatches):
        waits[chunk] += 1 if kind == "forward" else -1
        most = max(most, sum(held * one for held, one in zip(layers, waits, strict=True)))
    return most


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.data())
@settings(max_examples=60)
def test_what_a_stage_holds_is_what_its_schedule_says(
    stages: int, chunks: int, rounds: int, chunk: int, data: st.DataObject
) -> None:
    fewer = [data.draw(st.integers(0, chunk)) for _ in range(2)]
    most = chunk * chunks
    plan = Plan(
        pp=stages, interleave=chunks, microbatches=rounds * stages, layers_per_stage=most,
        first_layers=most - fewer[0], last_layers=most - fewer[1],
    )  # fmt: skip
    for stage in range(stages):
        held = microbatches_in_flight(plan, True, stage=stage) * sum(plan.chunk_layers(stage))
        assert held == pytest.approx(most_held(plan, stage), rel=1e-12)


@given(st.integers(2, 60), st.integers(2, 8), st.integers(2, 6))
def test_no_other_first_and_last_chunk_is_better(repeat: int, stages: int, chunks: int) -> None:
    """Of all that hold every layer, some that is listed, or all stages full, has no more layers in any stage."""
    most = -(-repeat // stages)
    if stages > repeat or most % chunks:
        return
    graph = workload(simd("head", 100, "last"), repeat=repeat)
    listed = [(one["first_layers"], one["last_layers"]) for one in uneven_chunks(graph, stages, chunks)]
    chunk = most // chunks
    ends = range(most - chunk, most + 1)
    every = [(f, l) for f in ends for l in ends if f + l + (stages - 2) * most >= repeat]
    assert set(listed) <= set(every) and len(listed) == len(set(listed)) and (most, most) not in listed
    for first, last in every:
        assert any(f <= first and l <= last for f, l in [*listed, (most, most)])
    for f, l in listed:  # none is worse than another
        assert not any((a, b) != (f, l) and a <= f and b <= l for a, b in every)


def small(**changes: Any) -> tuple[df.Graph, df.System]:
    """A decoder of six layers with an embedding and logits, and four chips in a row."""
    sizes = {"layers": 6, "hidden": 64, "heads": 4, "ffn": 128, "vocab": 1000, "seq": 32, "batch": 8}
    return load_graph("llama-3.1-8b", **sizes | {"kv_heads": 4, "ends": True, "mode": "training"} | changes), machine(4)


@pytest.fixture(scope="module")
def interleaved() -> df.Result:
    return df.optimize(*small(), pp=4, interleave=2, sensitivity=False)


def test_the_best_plan_may_be_interleaved_with_smaller_ends(interleaved: df.Result) -> None:
    result = interleaved
    assert result.status == "optimal" and result.plan.stage_layers == (1, 2, 1)
    assert verify(result).ok
    full = result.plan.model_copy(update={"first_layers": None, "last_layers": None})
    there = {record.plan for record in result.plans}
    assert full in there and result.plan in there
    # every stage of it is worked through in its chunks
    times = passes(result)
    assert [len(one) for one in times] == [2] * 4
    for stage, score in zip((0, 1, 3), result.score.stages, strict=True):
        assert sum(map(sum, times[stage])) == pytest.approx(score.time_s)


def test_layers_of_the_ends_can_be_asked_for() -> None:
    graph, system = small()
    for ends in ((2, 0), (0, 2), (1, 1)):
        fixed = {"first_layers": ends[0], "last_layers": ends[1]}
        result = df.optimize(graph, system, pp=4, interleave=1, sensitivity=False, **fixed)
        assert result.plan.stage_layers == (ends[0], 2, ends[1]) and verify(result).ok
    with pytest.raises(PlanError, match="its first or last chunk of 2 cannot be 2 layers smaller"):
        df.optimize(graph, system, pp=4, interleave=2, first_layers=2, last_layers=0)


@pytest.mark.parametrize(
    ("stages", "first", "last", "said"),
    [
        (1, 3, None, "1 stages do not hold 12 layers with 3 of them"),
        (2, 3, 3, "2 stages do not hold 12 layers with 3 and 3 of them"),
        (4, 0, 11, "stages of 0, 11 and 11 layers hold 33, of 12"),
    ],
)
def test_ends_that_do_not_add_up_are_refused(stages: int, first: int, last: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        with_ends(workload(simd("head", 100, "last"), repeat=12), stages, first, last)
    with pytest.raises(ValueError, match="all its stages are alike"):
        with_ends(workload(repeat=12), stages, first, last)


def test_the_judge_refuses_chunks_that_are_too_small(interleaved: df.Result) -> None:
    result = interleaved
    wrong = result.plan.model_copy(update={"first_layers": 0, "last_layers": 2})
    with pytest.raises(PlanError, match="may be smaller, by 1 at most"):
        evaluate(result.mapping.model_copy(update={"plan": wrong}), *small(), result.assumptions)
