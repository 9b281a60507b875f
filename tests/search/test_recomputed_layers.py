"""Some layers of every stage recomputed: what plans, bounds, search and judge make of it, against every number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from given_plans import least_of
from hypothesis import assume, given
from hypothesis import strategies as st
from small_systems import rings, small_system
from strategies import World, shardings, share, worlds

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import System
from dfopt.errors import DocumentError, GraphError, Infeasible, PlanError
from dfopt.judge import evaluate
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.show.stages import stage_facts
from dfopt.workloads import WORKLOADS
from dfopt.workloads.recompute import recomputed, some_recomputed

SIZES = {
    "hidden": 64, "heads": 8, "head_dim": 8, "ffn": 192, "vocab": 1000, "seq": 64, "mode": "training", "ends": False,
}  # fmt: skip
BY_KERNEL = Assumptions(execution="kernel_by_kernel")


def model(recompute: str, layers: int = 8, **more: Any) -> Graph:
    return WORKLOADS["decoder"](**SIZES, layers=layers, recompute=recompute, batch=8, **more)


def machine(capacity: float | None, chips: int = 2) -> System:
    """A few chips of a memory that one may choose."""
    chip = {"tiles": 4, "peak": 1e12, "sram": 1e7, "execution": "kernel_by_kernel"}
    return small_system(*rings(chips, rate=1e9), bandwidth=1e11, capacity=capacity, **chip)


def held(result: df.Result) -> float:
    return max(stage.dram_bytes for stage in result.score.stages)


def test_each_layer_takes_time_and_saves_memory_so_the_fewest_that_fit_are_the_best() -> None:
    """The lemma, and what the search makes of it: every number of layers of a plan, priced by the judge alone.

    A step is linear in their number; here a layer that is recomputed takes longer, as chips fuse nothing.
    """
    graph, asked = model("full/none"), {"pp": 2, "interleave": 1, "sensitivity": False, "assumptions": BY_KERNEL}
    free = df.optimize(graph, machine(None), **asked)
    assert free.plan.recomputed == 1  # without a limit as few as there can be
    scores = []
    for count in (1, 2, 3):
        mapping = free.mapping.model_copy(update={"plan": free.plan.model_copy(update={"recomputed": count})})
        scores.append(evaluate(mapping, graph, machine(None), free.assumptions))
    times, bytes_ = [s.step_time_s for s in scores], [max(one.dram_bytes for one in s.stages) for s in scores]
    assert times == sorted(times) and len(set(times)) == 3 and times[2] - times[1] == pytest.approx(times[1] - times[0])
    assert bytes_ == sorted(bytes_, reverse=True) and len(set(bytes_)) == 3
    for count in (2, 3):
        roomy = machine((bytes_[count - 1] + bytes_[count - 2]) / 2)
        found = df.optimize(graph, roomy, **asked)
        assert found.plan.recomputed == count and found.status == "optimal" and verify(found).ok
        assert found.value == pytest.approx(times[count - 1], rel=1e-9)
        first, last = found.score.stages[0], found.score.stages[-1]
        assert first.recomputed == count > last.recomputed  # later stages hold fewer microbatches
        assert f"the first stage {count}" in stage_facts(found)[0][1]
        every = [df.optimize(graph, roomy, **asked, recomputed=n).value for n in range(count, 4)]
        assert min(every) == found.value
        with pytest.raises(Infeasible):
            df.optimize(graph, roomy, **asked, recomputed=count - 1)


def test_between_none_and_all() -> None:
    """All ways together: where all that is saved does not fit, some layers take less time than all."""
    asked = {"pp": 2, "interleave": 1, "sensitivity": False, "assumptions": BY_KERNEL}
    none, every = (df.optimize(model(way), machine(None), **asked) for way in ("none", "full"))
    some = model("full/none")
    room = machine((held(none) + held(every)) / 2)
    found = df.optimize(some, room, **asked, variants=[model("none"), model("full")])
    assert found.graph.variant == "recompute: full/none" and none.value < found.value < every.value
    assert found.score.model_flop_utilization < found.score.hardware_flop_utilization
    assert verify(found).ok
    assert sum(found.score.breakdown.parts.values()) == pytest.approx(found.step_time_s, rel=1e-9)
    assert every.score.flop_per_step > found.score.flop_per_step > none.score.flop_per_step


@pytest.mark.parametrize("interleave", [1, 2])
def test_chunks_have_as_many_each(interleave: int) -> None:
    plans, _ = asked_plans(model("full/none"), machine(None), Request(pp=2, interleave=interleave), BY_KERNEL)
    counts = {1: {1, 2, 3}, 2: {2}}[interleave]
    assert {plan.recomputed for plan in plans} == counts and "R2" in next(p.label for p in plans if p.recomputed == 2)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(PlanError, match=r"all layers of decoder are computed alike"):
        df.optimize(model("full"), machine(None), recomputed=1)
    with pytest.raises(PlanError, match=r"9 layers of a stage cannot be computed again where stages have 8 at most"):
        df.optimize(model("full/none"), machine(None), recomputed=9)
    with pytest.raises(DocumentError, match="of a single layer"):
        model("full/none", layers=1)
    graph = model("full/none")
    result = df.optimize(graph, machine(None), pp=2, assumptions=BY_KERNEL, sensitivity=False, interleave=1)
    whole = result.mapping.model_copy(update={"plan": result.plan.model_copy(update={"recomputed": 4})})
    with pytest.raises(PlanError, match=r"found 4 of 4 layers in 1 chunks"):
        evaluate(whole, graph, machine(None), result.assumptions)
    other = model("none")
    data = {**graph.to_data(), "recomputed": {"layer": "layer"}}
    with pytest.raises(GraphError, match="no kind of its own"):
        Graph.from_data(data)
    with pytest.raises(GraphError, match="no section repeats"):
        Graph.from_data({**other.to_data(), "recomputed": {"other": "layer"}})
    less = [kernel for kernel in graph.to_data()["kernels"] if kernel["name"] != "again.Act_Mul"]
    names = {kernel["name"] for kernel in less}
    kept = [one for one in graph.to_data()["tensors"] if {one["src"], one["dst"]} <= names]
    with pytest.raises(GraphError, match="lacks kernels"):
        Graph.from_data({**graph.to_data(), "kernels": less, "tensors": kept})


# -- any graph, any machine -------------------------------------------------------------------------


@st.composite
def some_again(draw: st.DrawFn) -> tuple[World, list[Plan]]:
    """A folded training graph of which any forward kernels may be recomputed, and all its plans."""
    world = draw(worlds(most=5, least=2, trains=True, repeats=(4,), pieces=False))
    graph = world.graph
    assume(len(graph.layers.kinds) == graph.layers.counted == 1)
    forward = [kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"]
    assume(forward)
    names = draw(st.sets(st.sampled_from(forward), min_size=1))
    mixed = some_recomputed(graph, recomputed(graph, names))
    asked = Request(
        **{key: value for share in world.plan.axes for key, value in zip(share.axis.keys, share[1:], strict=True)}
    )
    try:
        plans, _ = asked_plans(mixed, world.system, asked, world.assumptions)
    except PlanError:
        assume(False)
    return replace(world, graph=mixed), plans


@share(0.5)
@given(some_again(), st.data())
def test_no_mapping_beats_the_bound(drawn: tuple[World, list[Plan]], data: st.DataObject) -> None:
    world, plans = drawn
    plan = data.draw(st.sampled_from(plans))
    schemes = data.draw(shardings(world.graph, plan, world.assumptions))
    kernels = [
        KernelMapping(name=k.name, sharding=schemes[k.name], stage=world.graph.kind_of(k), partition=number, tiles=1)
        for number, k in enumerate(world.graph.kernels)
    ]
    mapping = Mapping(graph="g", system="s", plan=plan, kernels=tuple(kernels), tile_count=1)
    bounds = least_of(Setting(world.graph, world.system, world.assumptions), plans)
    score = evaluate(mapping, world.graph, world.system, world.assumptions)
    assert bounds[plan] <= score.step_time_s * (1 + 1e-9)
