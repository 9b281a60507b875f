"""Which schedule a pipeline has: fixed by a request, and why GPipe is never searched beside 1F1B."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, shardings, share, worlds

import dfopt as df
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.errors import PlanError
from dfopt.judge import evaluate
from dfopt.search.verify import verify
from dfopt.show.stages import stage_facts

BY_KERNEL = df.Assumptions(execution="kernel_by_kernel")


def solved(**asked: Any) -> df.Result:
    graph = df.load_graph("gpt2-small", mode="training", batch=16, microbatch=1)
    return df.optimize(graph, "a100-8", assumptions=BY_KERNEL, tp=1, pp=4, dp=2, sensitivity=False, **asked)


def test_each_is_what_it_says() -> None:
    free = solved()
    found = {name: solved(schedule=name) for name in ("1f1b", "interleaved", "gpipe")}
    assert {name: one.plan.interleave > 1 for name, one in found.items()} == {
        "1f1b": False, "interleaved": True, "gpipe": False,
    }  # fmt: skip
    assert free.value == min(one.value for one in found.values()) == found["interleaved"].value
    assert found["gpipe"].value == pytest.approx(found["1f1b"].value, rel=1e-12)
    assert found["gpipe"].assumptions.schedule == "gpipe" and all(verify(one).ok for one in found.values())
    told = [dict(stage_facts(one))["schedule"] for one in found.values()]
    assert told == ["1F1B", "1F1B, interleaved over 3 chunks", "GPipe"] and stage_facts(free) == []


@share(0.25)
@given(worlds(most=4, trains=True, min_pp=2, schedule="one_f_one_b"), st.data())
def test_gpipe_is_dominated(world: World, data: st.DataObject) -> None:
    """Under any mapping its step takes no less than that of 1F1B, and no stage holds less."""
    schemes = data.draw(shardings(world.graph, world.plan, world.assumptions))
    stages = 1 if world.graph.folded else world.plan.pp
    kernels = [
        KernelMapping(name=k.name, sharding=schemes[k.name], stage=min(number, stages - 1), partition=number, tiles=1)
        for number, k in enumerate(world.graph.kernels)
    ]
    if world.graph.folded:
        kernels = [
            one.model_copy(update={"stage": world.graph.kind_of(kernel)})
            for one, kernel in zip(kernels, world.graph.kernels, strict=True)
        ]
    plan = world.plan.model_copy(update={"interleave": 1})
    mapping = Mapping(graph="g", system="s", plan=plan, kernels=tuple(kernels), tile_count=1)
    first, other = (
        evaluate(mapping, world.graph, world.system, world.assumptions.with_(schedule=order))
        for order in ("one_f_one_b", "gpipe")
    )
    if world.assumptions.bubble == "stages":
        assert other.step_time_s >= first.step_time_s * (1 - 1e-12)
    else:
        assert other.step_time_s == first.step_time_s
    for mine, theirs in zip(other.stages, first.stages, strict=True):
        assert all(mine.held_in(memory) >= theirs.held_in(memory) * (1 - 1e-12) for memory in theirs.states)


def test_what_cannot_be() -> None:
    with pytest.raises(PlanError, match=r"schedule: found gpipe, but gpt2-small has no backward pass"):
        df.optimize(df.load_graph("gpt2-small"), "a100-8", schedule="gpipe")
    with pytest.raises(PlanError, match=r"schedule: found interleaved, but no plan of gpt2-small"):
        df.optimize(
            df.load_graph("gpt2-small", mode="training", batch=8),
            "a100-8",
            assumptions="ideal",
            pp=1,
            schedule="interleaved",
        )
    with pytest.raises(PlanError, match=r"found 1f1b beside interleave: 3"):
        solved(schedule="1f1b", interleave=3)
    with pytest.raises(PlanError, match="schedule: found 'dualpipe'"):
        df.Request.of(schedule="dualpipe")
