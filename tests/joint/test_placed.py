"""Chips with several memories: what lies where is chosen with everything else, against brute force over all of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from proven import check_proven
from strategies import Dice, World, footprint, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.placement import SERVED, Placement, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Memory, Sram, System
from dfopt.errors import Infeasible, PlanError
from dfopt.setting.plans import asked_plans


def tiered(draw: st.DrawFn, world: World, tiers: tuple[int, ...] = (2, 2, 3)) -> System:
    """The machine of a world with several memories, often too small for all that the graph keeps."""
    dice, size = Dice(draw), footprint(world.graph)
    kept = sum(one.held_bytes for kernel in world.graph.kernels for one in kernel.states or ())
    size += kept + sum(kernel.resident_bytes for kernel in world.graph.kernels)
    rate, memories = world.system.chip.fastest.bandwidth, []
    for number in range(dice(tiers)):
        capacity = dice([None, 20.0, 3.0, 1.0, 0.5, 0.2] if number else [3.0, 1.0, 0.5, 0.2, 0.1])
        memories.append(Memory(name="ABC"[number], bandwidth=rate, capacity=capacity and capacity * size))
        rate *= dice([1.0, 0.5, 0.1])
    chip = world.system.chip.model_copy(update={"dram": None, "memories": tuple(memories)})
    return world.system.model_copy(update={"chip": chip})


def every_plan(graph: Graph, system: System, world: World, request: Request) -> Iterator[Plan]:
    """The plans of the same machine with one memory, with every item anywhere."""
    alone = system.chip.model_copy(update={"dram": system.chip.fastest, "memories": None})
    plans, _ = asked_plans(graph, system.model_copy(update={"chip": alone}), request, world.assumptions)
    for plan, places in itertools.product(plans, itertools.product(system.chip.tiers, repeat=len(SERVED))):
        elsewhere = {
            item: name for item, name in zip(SERVED, places, strict=True) if name != next(iter(system.chip.tiers))
        }
        yield plan.model_copy(update={"placement": Placement(**elsewhere) if elsewhere else None})


@st.composite
def cases(draw: st.DrawFn, **fixed: object) -> tuple[World, System]:
    """A small graph, of which something may be an expert, on a machine with several memories."""
    drawn = {"sharding_objective": ["joint"], "empty_partitions": ["allow"]} | fixed
    world = draw(worlds(most=3, trains=False, dims=1, roomy=draw(st.booleans()), **drawn))
    routed = draw(st.sampled_from([None, *(one.name for one in world.graph.kernels if one.op == "gemm")]))
    kernels = [
        one.model_copy(update={"module": "experts"}) if one.name == routed else one for one in world.graph.kernels
    ]
    world = replace(world, graph=world.graph.model_copy(update={"kernels": tuple(kernels)}))
    return world, tiered(draw, world)


def check(world: World, system: System, **asked: object) -> None:
    """A search is brute force over every placement."""
    every = list(every_plan(world.graph, system, world, Request(mp=1, **asked)))
    assume(len(every) <= 81 * 5)
    check_proven(world.graph, system, world.assumptions, {"mp": 1, **asked}, every)


@share(0.4)
@given(cases())
def test_what_lies_where_is_brute_force(case: tuple[World, System]) -> None:
    check(*case)


@share(0.1)
@given(cases(execution=["auto", "library"], gradient_overlap=None))
def test_one_milp_is_brute_force(case: tuple[World, System]) -> None:
    check(*case, formulation="assignment", p_max=3)


@share(0.2)
@given(cases(), st.integers(0, 2), st.sampled_from(["capacity", "bandwidth"]), st.sampled_from([1.1, 2.0, 10.0]))
def test_more_of_a_memory_never_hurts(case: tuple[World, System], tier: int, of: str, factor: float) -> None:
    world, system = case
    memories = list(system.chip.memories or ())
    tier = min(tier, len(memories) - 1)
    had = getattr(memories[tier], of)
    assume(had is not None)
    memories[tier] = memories[tier].model_copy(update={of: had * factor})
    assume(tier == 0 or memories[tier].bandwidth <= memories[tier - 1].bandwidth)
    chip = system.chip.model_copy(update={"memories": tuple(memories)})

    def seconds(one: System) -> float:
        try:
            return optimizer.solve(world.graph, one, assumptions=world.assumptions, mp=1).value
        except Infeasible:
            return math.inf

    assert seconds(system.model_copy(update={"chip": chip})) <= seconds(system) * (1 + 1e-9)


def test_what_does_not_fit_goes_where_it_costs_least() -> None:
    """Weights of 128 B, read whole, beside 512 B of experts of which half are read: those cost twice as much there."""
    kernels = (
        Kernel(name="a", op="gemm", m=8, k=8, n=10),
        Kernel(name="b", op="gemm", m=8, k=8, n=10, experts=Experts(count=4, chosen=1, touched=2.0), module="experts"),
    )
    graph = Graph(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"),))

    def found(hbm: float, ddr: float | None = None) -> df.Result:
        memories = (Memory(name="HBM", bandwidth=1e9, capacity=hbm), Memory(name="DDR", bandwidth=1e8, capacity=ddr))
        chip = Chip(name="c", tiles=8, peak=1e15, sram=Sram(capacity=1e9), memories=memories)
        return df.optimize(graph, System(name="s", chip=chip))

    assert found(640.0).plan.placement is None
    assert found(639.0).plan.placement == Placement(weights="DDR")
    assert found(511.0).plan.placement == Placement(experts="DDR")
    both = found(127.0)
    assert both.plan.placement == Placement(weights="DDR", experts="DDR")
    more = (128 + 256) * (1 / 1e8 - 1 / 1e9)
    assert both.value == pytest.approx(found(640.0).value + more, rel=1e-12)
    assert both.status == "optimal"
    with pytest.raises(Infeasible, match="DDR") as caught:
        found(127.0, 639.0)
    assert "short by" in str(caught.value)


@share(0.3)
@given(cases(), st.data())
def test_what_is_put_somewhere_stays_there_and_the_rest_is_chosen(
    case: tuple[World, System], data: st.DataObject
) -> None:
    """As brute force over the placements that have it so."""
    world, system = case
    assume(items_of(world.graph))
    fixed = {data.draw(st.sampled_from(items_of(world.graph))): data.draw(st.sampled_from(list(system.chip.tiers)))}
    every = [
        plan
        for plan in every_plan(world.graph, system, world, Request(mp=1))
        if all(plan.tier_of(item, system.chip) == name for item, name in fixed.items())
    ]
    assume(every)
    assume(len(every) <= 81 * 5)
    found = check_proven(world.graph, system, world.assumptions, {"mp": 1, "place": fixed}, every)
    assert found is None or all(found[0].plan.tier_of(item, system.chip) == name for item, name in fixed.items())


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ({"experts": "DDR"}, "place: llama-3.1-8b has no experts to put anywhere, only weights, caches, tables"),
        ({"weights": "DDX"}, "place: the chip has no memory 'DDX' (did you mean 'DDR'?)"),
    ],
)
def test_what_cannot_lie_there_is_refused(fixed: dict[str, str], said: str) -> None:
    graph = df.load_graph("llama-3.1-8b", phase="decode", context=64, batch=4, microbatch=4)
    with pytest.raises(PlanError) as refused:
        df.optimize(graph, "sn40l-16-ddr", place=fixed)
    assert str(refused.value) == said
