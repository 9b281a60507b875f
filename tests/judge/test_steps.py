"""A step from seconds of layers: as the judge has it for a mapping, and no more than any mapping of a domain takes."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from judge_cases import PLAIN, closed, machine, ring, simd
from oracles import judged
from strategies import World, footprint, keeping, share, with_dram, worlds

import dfopt as df
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding
from dfopt.documents.placement import SERVED, TRAINED, Placement, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.system import Memory, System
from dfopt.judge.members import seen_by_a_chip
from dfopt.judge.steps import NotSteps, PlanSteps, SchemeDomain
from dfopt.physics import library, ops
from dfopt.physics.pipeline import resolve
from dfopt.setting.plans import asked_plans

Passes = dict[tuple[int, bool], float]
EXACT = 1 + 1e-12


def seen(world: World) -> Graph:
    return seen_by_a_chip(library.as_computed(world.graph, world.assumptions), world.plan, world.system)


def legal_of(world: World, graph: Graph) -> list[tuple[Sharding, ...]]:
    return [ops.legal_schemes(kernel, world.plan.shards, world.assumptions) for kernel in graph.kernels]


def mapping_of(
    world: World, graph: Graph, scheme_k: list[Sharding], partition_k: list[int], stage_k: list[int] | None = None
) -> Mapping:
    stages = stage_k or list(map(graph.kind_of, graph.kernels))
    places = zip(graph.kernels, scheme_k, stages, partition_k, strict=True)
    kernels = (KernelMapping(name=k.name, sharding=z, stage=s, partition=p) for k, z, s, p in places)
    return Mapping(graph=graph.name, system=world.system.name, plan=world.plan, kernels=tuple(kernels))


def passes_of(graph: Graph, score: Score) -> Passes:
    """Seconds of the partitions of a score, by stage and whether they have something of the forward pass."""
    pass_of = {kernel.name: kernel.pass_ for kernel in graph.kernels}
    found = defaultdict[tuple[int, bool], list[float]](list)
    for one in score.partitions:
        found[one.stage, any(pass_of[name] == "forward" for name in one.kernels)].append(one.time_s)
    return {key: math.fsum(each) for key, each in found.items()}


def steps_of(world: World) -> PlanSteps:
    return PlanSteps(world.graph, world.system, world.assumptions, world.plan)


def overfull(score: Score) -> bool:
    """Whether the memories of a chip lack room."""
    return any(" per chip, the chip has " in one for one in score.violations)


def check(world: World, draw: Any) -> None:
    """All that is claimed, of a random mapping and random domains that hold its schemes."""
    graph = seen(world)
    try:
        steps = steps_of(world)
    except NotSteps:
        assume(False)
        raise
    legal = legal_of(world, graph)
    scheme_k = [draw(st.sampled_from(each)) for each in legal]
    partition_k = [draw(st.integers(0, 3)) for _ in legal]
    score = judged(world, mapping_of(world, graph, scheme_k, partition_k))
    pass_s, step_s = passes_of(graph, score), score.step_time_s
    alone: SchemeDomain = tuple((z,) for z in scheme_k)
    if steps.inexact:
        with pytest.raises(NotSteps, match=steps.inexact):
            steps.seconds(pass_s, scheme_k)
    else:
        assert steps.seconds(pass_s, scheme_k) == pytest.approx(step_s, rel=1e-12)

    some = [draw(st.sets(st.sampled_from(each), min_size=1)) for each in legal]
    fewer: SchemeDomain = tuple(
        tuple(sorted({z, *draw(st.sets(st.sampled_from(sorted(left))))}))
        for z, left in zip(scheme_k, some, strict=True)
    )
    more: SchemeDomain = tuple(tuple(sorted({*a, *b})) for a, b in zip(fewer, some, strict=True))
    quicker = {key: seconds * draw(st.sampled_from([0.0, 0.5, 1.0])) for key, seconds in pass_s.items()}
    most = steps.least(pass_s, fewer)
    assert most <= step_s * EXACT
    assert steps.least(pass_s, more) <= most * EXACT
    assert steps.least(quicker, fewer) <= most * EXACT
    assert steps.may_fit(fewer) or overfull(score)
    assert steps.may_fit(more) or not steps.may_fit(fewer)
    free, low = steps.may_fit(tuple(legal)), steps.least(pass_s, tuple(legal))
    for _ in range(4):
        other_k = [draw(st.sampled_from(each)) for each in legal]
        assert low <= steps.least(pass_s, tuple((z,) for z in other_k)) * EXACT
        assert free or not steps.may_fit(tuple((z,) for z in other_k))
    together = judged(world, mapping_of(world, graph, scheme_k, [0] * len(legal)))  # where nothing waits
    assert steps.may_fit(alone) != overfull(together)
    if world.system.chip.memories is None:
        need, rules = max(stage.dram_bytes for stage in together.stages), world.assumptions.with_(memory_reserve=0.0)
        for room, fits in ((need, True), (0.999 * need, False)) if need else ():
            there = replace(world, system=with_dram(world.system, room), assumptions=rules)
            assert steps_of(there).may_fit(alone) == fits
            assert not fits or (steps_of(there).may_fit(fewer) and steps_of(there).may_fit(tuple(legal)))


@share(2)
@given(worlds(least=2), st.sampled_from([None, "adam", "adam_once"]), st.data())
def test_any_mapping(world: World, optimizer: Any, data: st.DataObject) -> None:
    check(replace(world, assumptions=world.assumptions.with_(optimizer_step=optimizer)), data.draw)


@st.composite
def trained(draw: st.DrawFn, ways: tuple[str | None, ...] = ("backward", "backward", None), **fixed: Any) -> World:
    """A world whose copies of the batch exchange gradients, hidden in one of some ways."""
    chosen = {
        "gradients": "exact",
        "gradient_overlap": draw(st.sampled_from(ways)),
        "optimizer_step": draw(st.sampled_from([None, "adam"])),
        "point_to_point": draw(st.sampled_from(["per_microbatch", "per_step", "per_neighbour"])),
    }
    world = draw(worlds(least=2, trains=True, repeats=(4,), **chosen, **fixed))
    asked = Request(zero=(0, 1, 2, 3), zero_replicas="all")
    plans, _ = asked_plans(world.graph, world.system, asked, world.assumptions)
    plans = [plan for plan in plans if plan.copies > 1]
    several = [plan for plan in plans if plan.stages > 1 or plan.shards > 1]
    assume(plans)
    return replace(world, plan=draw(st.sampled_from(several or plans)))


@share(1)
@given(trained(), st.data())
def test_exchanges(world: World, data: st.DataObject) -> None:
    check(world, data.draw)


@share(1)
@given(keeping(worlds(least=2, trains=True)), st.sampled_from([None, "layer", "kept", "kept_calculon"]), st.data())
def test_what_is_kept(world: World, gathers: Any, data: st.DataObject) -> None:
    check(replace(world, assumptions=world.assumptions.with_(backward_gathers=gathers)), data.draw)


TRAINING = {"mode": "training", "seq": 2048}
REAL: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gpt2-small training": ("gpt2-small", "h100-8", {"mode": "training", "batch": 64}, {}, {}),
    "gpt3 training, pipelines": ("gpt3-175b", "a100-512", {**TRAINING, "batch": 1536}, {}, {"pp": 8}),
    "llama-70b training, computed again": (
        "llama-3.1-70b",
        "h100-256",
        {**TRAINING, "batch": 256, "recompute": "full"},
        {"optimizer_step": "adam", "parameter_overlap": "forward", "memory_reserve": 0.1},
        {},
    ),
    "llama-70b training, nothing hidden": (
        "llama-3.1-70b",
        "h100-256",
        {**TRAINING, "batch": 256},
        {"gradient_overlap": None, "bubble": "stages", "point_to_point": "per_step"},
        {},
    ),
    "deepseek-v3 decode": ("deepseek-v3", "h200-32", {"phase": "decode", "batch": 256, "context": 4096}, {}, {}),
    "llama decode, two memories": (
        "llama-3.1-70b",
        "sn40l-16-ddr",
        {"phase": "decode", "batch": 64, "context": 4096},
        {},
        {},
    ),
}
PLANS: dict[str, tuple[Graph, System, Assumptions, list[Plan]]] = {}


def asked(case: str) -> tuple[Graph, System, Assumptions, list[Plan]]:
    """A workload, its machine, and the plans that there are."""
    if case not in PLANS:
        name, machine, parameters, changes, fixed = REAL[case]
        graph, system = df.load_graph(name, **parameters), df.load_system(machine)
        rules = profile("default").with_(**changes)
        chosen = resolve(rules, system.chip.execution, system.chip.compute_utilization)
        plans, _ = asked_plans(graph, system, Request.of(zero="all", **fixed), chosen)
        PLANS[case] = graph, system, chosen, plans
    return PLANS[case]


@pytest.mark.parametrize("case", REAL)
@share(0.2)
@given(data=st.data())
def test_models_on_machines(case: str, data: st.DataObject) -> None:
    graph, system, chosen, plans = asked(case)
    check(World(graph, system, data.draw(st.sampled_from(plans)), chosen), data.draw)


@st.composite
def tiered(draw: st.DrawFn) -> World:
    """A world with something in the slower of two memories."""
    offload = draw(st.sampled_from([None, None, "calculon"]))
    chosen = {"gradients": "exact", "offload": offload, "optimizer_step": draw(st.sampled_from([None, "adam"]))}
    world = draw(worlds(least=2, repeats=(4,), **chosen))
    graph, fast, size = world.graph, world.system.chip.fastest, footprint(world.graph)
    assume(offload is None or len(graph.layers.kinds) == 1)
    room = draw(st.sampled_from([None, 6.0 * size, size, 0.3 * size]))
    memories = Memory(name="A", bandwidth=fast.bandwidth, capacity=room), Memory(name="B", bandwidth=fast.bandwidth / 3)
    chip = world.system.chip.model_copy(update={"dram": None, "memories": memories})
    items = [item for item in items_of(graph) if item in (TRAINED if graph.trains else SERVED)]
    assume(items)
    placement = Placement(**dict.fromkeys(draw(st.sets(st.sampled_from(items), min_size=1)), "B"))
    assume(not any(placement.issues(graph, chip)))
    plan = world.plan.model_copy(update={"placement": placement})
    return replace(world, system=world.system.model_copy(update={"chip": chip}), plan=plan)


@share(1)
@given(tiered(), st.data())
def test_two_memories(world: World, data: st.DataObject) -> None:
    check(world, data.draw)


@share(1)
@given(worlds(least=2, trains=False, overlap="compute_memory"), st.data())
def test_two_microbatches_that_take_turns(world: World, data: st.DataObject) -> None:
    plan = world.plan.model_copy(update={"two_batch_overlap": True})
    assume(plan.shards == plan.interleave == 1 and plan.microbatches % 2 == 0)
    check(replace(world, plan=plan), data.draw)


@share(0.5)
@given(trained(("calculon", "calculon_or_none"), pieces=False), st.data())
def test_windows(world: World, data: st.DataObject) -> None:
    check(world, data.draw)


def test_what_it_says_nothing_of() -> None:
    graph, system, chosen, plans = asked("llama-70b training, nothing hidden")
    [uneven, *_] = [plan for plan in plans if plan.uneven and plan.interleave > 1]
    with pytest.raises(NotSteps, match="unequal stages"):
        PlanSteps(graph, system, chosen.with_(gradient_overlap="backward"), uneven)
    kernels = (simd("a", 4, 8), simd("b", 4, 8))
    drawn_once = closed(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"),))
    with pytest.raises(NotSteps, match="drawn once on several"):
        PlanSteps(drawn_once, machine(ring("x", 2)), PLAIN, Plan(pp=2, pp_dims=("x",)))
