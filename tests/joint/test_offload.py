"""What lies in which memory of a chip, of training steps and of serving, against brute force: value, proof, check."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from brute import joint_optimum
from given_plans import least_of
from hypothesis import assume, event, given
from hypothesis import strategies as st
from proven import check_proven
from small_systems import small_system
from strategies import ROWS, Dice, World, footprint, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.placement import SERVED, TRAINED, Placement, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.system import Memory, System
from dfopt.errors import Infeasible, PlanError
from dfopt.judge import evaluate
from dfopt.search.graph_search import GraphSearch
from dfopt.search.state import SearchState
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.placements import offloads
from dfopt.setting.plans import asked_plans
from dfopt.solving.options import Options
from dfopt.terms.bounds import PlanBounds


def tiered(draw: st.DrawFn, world: World) -> System:
    """The machine with a slower memory, of any size, behind one that is often too small for what is kept."""
    dice, size = Dice(draw), footprint(world.graph)
    fast = world.system.chip.fastest
    capacity = dice([None, 6.0, 3.0, 1.5, 0.8])
    memories = [
        Memory(name="A", bandwidth=fast.bandwidth, capacity=capacity and capacity * size),
        Memory(name="B", bandwidth=fast.bandwidth * dice([1.0, 0.3, 0.05]), capacity=dice([None, None, 20.0 * size])),
    ]
    chip = world.system.chip.model_copy(update={"dram": None, "memories": tuple(memories)})
    return world.system.model_copy(update={"chip": chip})


@st.composite
def cases(draw: st.DrawFn, memory: bool = False, **fixed: Any) -> tuple[World, dict[str, str]]:
    """A small training step, and what of it lies in the slower memory."""
    drawn = {"sharding_objective": ["joint"], "gradients": ["exact"], "offload": [None, None, "calculon"]} | {
        "empty_partitions": ["allow"], "optimizer_step": [None, "adam", "adam_once"], "gradient_overlap": [None],
    } | fixed  # fmt: skip
    world = draw(worlds(most=4, least=2, trains=True, repeats=(2, 4), dims=1, tile_rows=ROWS, memory=memory, **drawn))
    graph = world.graph
    assume(graph.trains and any(kernel.pass_ == "forward" for kernel in graph.kernels))
    if world.assumptions.offload == "calculon":
        assume(len(graph.layers.kinds) == 1)
    system = tiered(draw, world)
    away = draw(st.sets(st.sampled_from([item for item in items_of(graph) if item in TRAINED]), min_size=1))
    return replace(world, system=system), dict.fromkeys(sorted(away), "B")


def check(world: World, place: dict[str, str]) -> None:
    """What is found is the best of all that the request allows; its parts add up, and the bound of its plan holds."""
    asked = {"place": place, "zero": (0, 1), "mp": 1}
    if (found := check_proven(world.graph, world.system, world.assumptions, asked)) is None:
        return
    result, best = found
    assert result.plan.placement == Placement(**place)
    parts = result.score.breakdown
    assert parts is not None and parts.total == pytest.approx(result.step_time_s, rel=1e-9)
    event(f"shows: {parts.offload_forward_s + parts.offload_backward_s > 0}")
    bounds = PlanBounds(Setting(world.graph, world.system, world.assumptions))
    assert bounds.seconds(bounds.setting.under(best.plan)) <= best.value * (1 + 1e-9)


@share(0.3)
@given(cases(memory=True, execution="kernel_by_kernel"))
def test_kernels_one_by_one_are_as_brute_force_finds_them(case: tuple[World, dict[str, str]]) -> None:
    check(*case)


FUSED_OR_HIDDEN = {
    "fused kernels": cases(compute_model=["fixed", "efficiency"]),
    "what a layer holds as Calculon counts it": cases(training_memory="calculon"),
    "beside gradients that are added up meanwhile": cases(execution="kernel_by_kernel", gradient_overlap="backward"),
}


@pytest.mark.parametrize("of", FUSED_OR_HIDDEN.values(), ids=FUSED_OR_HIDDEN)
@share(0.2)
@given(st.data())
def test_other_steps_are_as_brute_force_finds_them(
    of: st.SearchStrategy[tuple[World, dict[str, str]]], data: st.DataObject
) -> None:
    check(*data.draw(of))


@share(0.2)
@given(cases(sharding_objective="seconds"), st.booleans())
def test_two_levels_check(case: tuple[World, dict[str, str]], free: bool) -> None:
    """Placements are listed with the plans there; what is claimed of them holds."""
    world, place = case
    asked = {"offload": tuple(place)} if free else {"place": place}
    try:
        result = optimizer.solve(world.graph, world.system, assumptions=world.assumptions, zero=(0, 1), mp=1, **asked)
    except (Infeasible, PlanError):
        return
    found = verify(result)
    assert found.ok, found.problems


@share(0.2)
@given(cases(
    memory=True, execution="kernel_by_kernel", overlap=["none", "compute_memory"], pieces=False,
    gradient_overlap=["calculon", "calculon_or_none"], point_to_point_overlap="exposed",
))  # fmt: skip
def test_beside_exchanges_that_hide_as_calculon_has_it(case: tuple[World, dict[str, str]]) -> None:
    assume(len(case[0].graph.layers.kinds) == 1)
    check(*case)


@share(0.3)
@given(cases())
def test_no_plan_is_bounded_above_its_best_mapping(case: tuple[World, dict[str, str]]) -> None:
    world, place = case
    plans, _ = asked_plans(world.graph, world.system, Request(place=place, zero=(0, 1, 3), mp=1), world.assumptions)
    bounds = PlanBounds(Setting(world.graph, world.system, world.assumptions))
    for plan in plans[:4]:
        instance = bounds.setting.under(plan)
        best = joint_optimum(world.graph, world.system, world.assumptions, Request(place=place, mp=1), [plan])
        if best is not None:
            bounds.check_dram(instance)
            assert bounds.seconds(instance) <= best.value * (1 + 1e-9)


def every(world: World, away: tuple[str, ...]) -> list[Plan]:
    """All plans with everything that is asked for in either memory."""
    plans, _ = asked_plans(world.graph, world.system, Request(zero=(0, 1), mp=1), world.assumptions)
    groups = [(item,) for item in away]
    if world.assumptions.offload == "calculon" and "optimizer" in away:
        groups = [(item,) for item in away if item not in ("gradients", "optimizer")] + [("gradients", "optimizer")]
    found = []
    for some in itertools.product((False, True), repeat=len(groups)):
        lies = {item: "B" for items, one in zip(groups, some, strict=True) if one for item in items}
        found += [plan.model_copy(update={"placement": Placement(**lies) if lies else None}) for plan in plans]
    return found


def check_search(world: World, away: tuple[str, ...] | str, data: st.DataObject) -> None:
    """What is found with placements free is the best of all placements; so is what is said of single plans."""
    graph, chosen = world.graph, world.assumptions
    asked = {"offload": away, "zero": (0, 1), "mp": 1}
    assume(not overtaken(world))
    plans = every(world, tuple(item for item in items_of(graph) if item in TRAINED) if away == "any" else away)
    assume(len(plans) <= 200)
    if (found := check_proven(graph, world.system, chosen, asked, plans)) is None:
        return
    result, _ = found
    event(f"placed: {result.plan.placement is not None}")
    assert result.space is not None and result.space.plans == len(plans)
    told: dict[Plan, list[float]] = {}  # of every tile count what is proven
    for record in result.plans:
        told.setdefault(record.plan, []).append(math.inf if record.bound is None else record.bound)
    usable = [plan for plan in told if plan in plans]  # others cannot be used
    for plan in data.draw(st.lists(st.sampled_from(usable), min_size=1, max_size=3)):
        whole = [one for one in plans if one.model_copy(update={"placement": None}) == plan]
        stands_for = [plan] if len(whole) < 2 or set(whole) & told.keys() != {plan} else whole
        alone = joint_optimum(graph, world.system, chosen, Request(**asked), stands_for)
        assert min(told[plan]) <= (math.inf if alone is None else alone.value * (1 + 1e-9))


def overtaken(world: World) -> bool:
    """Whether the slower memory may sustain more than the other, which a search with placements free refuses."""
    try:
        offloads(world.graph, world.system, world.assumptions, Request(offload="any"))
    except PlanError:
        return True
    return False


@share(0.4)
@given(cases(memory=True, execution="kernel_by_kernel"), st.booleans(), st.data())
def test_what_lies_where_is_as_brute_force_finds_it(
    case: tuple[World, dict[str, str]], free: bool, data: st.DataObject
) -> None:
    world, place = case
    check_search(world, "any" if free else tuple(place), data)


@share(0.3)
@given(cases(gradient_overlap=[None, "backward"]), st.data())
def test_no_placement_is_faster_than_none(case: tuple[World, dict[str, str]], data: st.DataObject) -> None:
    """Of one mapping, in every pass and in the optimizer's step; what it holds in all memories is no less."""
    world, place = case
    plans, _ = asked_plans(world.graph, world.system, Request(zero=(0, 1), mp=1), world.assumptions)
    plan = data.draw(st.sampled_from(plans))
    placed = plan.model_copy(update={"placement": Placement(**place)})
    best = joint_optimum(world.graph, with_dram_of(world.system), world.assumptions, Request(mp=1), [plan])
    assume(best is not None)
    assert best is not None
    there = best.mapping.model_copy(update={"plan": placed})
    score = evaluate(there, world.graph, world.system, world.assumptions)
    assert score.step_time_s >= best.score.step_time_s * (1 - 1e-12)
    lows = least_of(Setting(world.graph, world.system, world.assumptions), [plan, placed])
    assert lows[placed] >= lows[plan] * (1 - 1e-12)
    assert lows[placed] <= score.step_time_s * (1 + 1e-9)


def with_dram_of(system: System) -> System:
    """The same with memories without a limit."""
    chip = system.chip.with_memories(lambda one: one.model_copy(update={"capacity": None}))
    return system.model_copy(update={"chip": chip})


def test_a_plan_that_stands_for_its_placements_is_given_up_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it does not fit where all lies in the fastest memory says nothing of the others, which nobody looked at."""
    system = df.load_system("sn40l-16-ddr")
    small = system.chip.with_memories(lambda m: m.model_copy(update={"capacity": 3e8}) if m.name == "HBM" else m)
    setting = Setting(
        df.load_graph("gpt2-small", phase="training", batch=16),
        system.model_copy(update={"chip": small}),
        df.Assumptions(),
    )
    search = GraphSearch(setting, SearchState(Options(Request(offload=("optimizer",), mp=1, pp=1, zero=0))))
    monkeypatch.setattr(SearchState, "incumbent", property(lambda _: 0.0))
    search.write_records(by_variant=True)
    too_large = {plan for plan, share in search._full.items() if share > 1}
    assert too_large
    assert {record.plan for record in search.records} == {*search.legal} >= too_large
    assert not any(record.status == "infeasible" for record in search.records if record.plan in too_large)


# -- serving: what lies where is chosen with everything else -----------------------------------


def with_memories(draw: st.DrawFn, world: World, tiers: tuple[int, ...] = (2, 2, 3)) -> System:
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


def every_served(graph: Graph, system: System, world: World, request: Request) -> Iterator[Plan]:
    """The plans of the same machine with one memory, with every item anywhere."""
    alone = system.chip.model_copy(update={"dram": system.chip.fastest, "memories": None})
    plans, _ = asked_plans(graph, system.model_copy(update={"chip": alone}), request, world.assumptions)
    for plan, places in itertools.product(plans, itertools.product(system.chip.tiers, repeat=len(SERVED))):
        elsewhere = {
            item: name for item, name in zip(SERVED, places, strict=True) if name != next(iter(system.chip.tiers))
        }
        yield plan.model_copy(update={"placement": Placement(**elsewhere) if elsewhere else None})


@st.composite
def served(draw: st.DrawFn, **fixed: object) -> tuple[World, System]:
    """A small graph, of which something may be an expert, on a machine with several memories."""
    drawn = {"sharding_objective": ["joint"], "empty_partitions": ["allow"]} | fixed
    world = draw(worlds(most=3, trains=False, dims=1, roomy=draw(st.booleans()), **drawn))
    routed = draw(st.sampled_from([None, *(one.name for one in world.graph.kernels if one.op == "gemm")]))
    kernels = [
        one.model_copy(update={"module": "experts"}) if one.name == routed else one for one in world.graph.kernels
    ]
    world = replace(world, graph=world.graph.model_copy(update={"kernels": tuple(kernels)}))
    return world, with_memories(draw, world)


def check_served(world: World, system: System, **asked: object) -> None:
    """A search is brute force over every placement."""
    every = list(every_served(world.graph, system, world, Request(mp=1, **asked)))
    assume(len(every) <= 81 * 5)
    check_proven(world.graph, system, world.assumptions, {"mp": 1, **asked}, every)


@share(0.4)
@given(served())
def test_what_lies_where_is_brute_force(case: tuple[World, System]) -> None:
    check_served(*case)


@share(0.1)
@given(served(execution=["auto", "library"], gradient_overlap=None))
def test_one_milp_is_brute_force(case: tuple[World, System]) -> None:
    check_served(*case, formulation="assignment", p_max=3)


@share(0.2)
@given(served(), st.integers(0, 2), st.sampled_from(["capacity", "bandwidth"]), st.sampled_from([1.1, 2.0, 10.0]))
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
        return df.optimize(graph, small_system(peak=1e15, dram=None, memories=memories))

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
@given(served(), st.data())
def test_what_is_put_somewhere_stays_there_and_the_rest_is_chosen(
    case: tuple[World, System], data: st.DataObject
) -> None:
    """As brute force over the placements that have it so."""
    world, system = case
    assume(items_of(world.graph))
    fixed = {data.draw(st.sampled_from(items_of(world.graph))): data.draw(st.sampled_from(list(system.chip.tiers)))}
    every = [
        plan
        for plan in every_served(world.graph, system, world, Request(mp=1))
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
