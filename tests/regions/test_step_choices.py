"""Plans that compose a step in another way: layers computed again, placements, two microbatches in turns, gradients
that hide. The answer is that of brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from brute import joint_optimum, least_capacities
from covered import asked_of, jointly, setting_of
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import World, assumptions, share, systems, with_dram, worlds
from test_best_mapping import check
from test_bounds import BEATEN, NOTHING, SAME, below, check_bounds, drawn, problem
from test_modules import machine, models
from test_offload import cases as trained
from test_placed import cases as served
from test_placed import every_plan
from test_two_batch import SECTIONS, in_sections

from dfopt.bnb import Candidate, Clock, Incumbents
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.sections import Section
from dfopt.documents.system import System
from dfopt.errors import Infeasible, PlanError
from dfopt.physics.pipeline import resolve
from dfopt.regions.branching import Probing
from dfopt.regions.facts import Memory
from dfopt.regions.leaves import Enumeration
from dfopt.regions.reductions import AboveCutoff, Dominated
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.setting.placements import offloads
from dfopt.setting.plans import asked_plans
from dfopt.solving.options import Options
from dfopt.workloads.recompute import recomputed, some_recomputed

PLAIN: dict[str, Any] = {
    "tile_rows": 1,
    "compute_model": ["fixed", "efficiency"],
    "gradient_overlap": None,
    "empty_partitions": "allow",
    "token_blocks": ["none", "none", "allow"],
}


def some_again(world: World, data: st.DataObject, most: int = 8) -> World:
    """The world with layers of both kinds: computed again, and kept."""
    graph = world.graph
    assume(graph.folded and len(graph.layers.kinds) == graph.layers.counted == 1)
    forward = [kernel.name for kernel in graph.kernels if kernel.pass_ == "forward"]
    assume(forward)
    mixed = some_recomputed(graph, recomputed(graph, data.draw(st.sets(st.sampled_from(forward), min_size=1))))
    assume(len(mixed.kernels) <= most)
    return replace(world, graph=mixed)


@share(0.5)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), max_pp=2, **PLAIN), st.data())
def test_layers_of_which_some_are_computed_again(world: World, data: st.DataObject) -> None:
    world, asked = some_again(world, data), {"two_batch_overlap": False}
    try:
        fits = least_capacities(world.graph, with_dram(world.system, None), jointly(world), Request(**asked))
    except PlanError:
        assume(False)
    sizes = sorted({size for size in fits.values() if 0 < size < float("inf")})
    check(replace(world, system=with_dram(world.system, data.draw(st.sampled_from([None, *sizes])))), asked)


@share(0.5)
@given(served(**PLAIN))
def test_what_lies_where_of_what_does_not_train(case: tuple[World, System]) -> None:
    world, system = case
    asked = {"mp": 1, "two_batch_overlap": False, **({} if world.graph.folded else {"pp": 1})}
    request = Request(**asked)
    plans = list(every_plan(world.graph, system, world, request))
    assume(len(plans) <= 81 * 5)
    check(replace(world, system=system), asked, plans)


HIDING = PLAIN | {
    "gradient_overlap": "backward",
    "gradients": "exact",
    "parameter_overlap": [None, "forward"],
    "empty_partitions": ["allow", "allow", "forbid"],
}


@share(0.5)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), **HIDING), st.data())
def test_gradients_that_hide_layer_by_layer(world: World, data: st.DataObject) -> None:
    assume(world.graph.folded and world.graph.trains)
    check(world, asked_of(world, data.draw))


WINDOWS = PLAIN | {
    "gradient_overlap": ["calculon", "calculon_or_none"],
    "gradients": "exact",
    "execution": "kernel_by_kernel",
    "point_to_point_overlap": "exposed",
}


@share(0.5)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), pieces=False, **WINDOWS), st.data())
def test_gradients_that_hide_as_calculon_has_it(world: World, data: st.DataObject) -> None:
    assume(world.graph.folded and world.graph.trains and len(world.graph.layers.kinds) == 1)
    check(world, asked_of(world, data.draw))


MOVED = {name: said for name, said in PLAIN.items() if name != "tile_rows"}
WINDOWS = {name: said for name, said in WINDOWS.items() if name != "tile_rows"}


@share(0.5)
@given(trained(**MOVED))
def test_what_lies_where_of_what_trains(case: tuple[World, dict[str, str]]) -> None:
    world, place = case
    check(world, {"place": place, "zero": (0, 1), "mp": 1})


@share(0.5)
@given(trained(**(MOVED | {"gradient_overlap": "backward", "parameter_overlap": [None, "forward"]})))
def test_what_lies_where_beside_gradients_that_hide(case: tuple[World, dict[str, str]]) -> None:
    world, place = case
    check(world, {"place": place, "zero": (0, 1), "mp": 1})


@share(0.5)
@given(trained(**(MOVED | WINDOWS | {"overlap": ["none", "compute_memory"]})))
def test_what_lies_where_beside_gradients_that_hide_as_calculon_has_it(case: tuple[World, dict[str, str]]) -> None:
    world, place = case
    assume(len(world.graph.layers.kinds) == 1)
    check(world, {"place": place, "zero": (0, 1), "mp": 1})


def placed(world: World, asked: dict[str, Any]) -> list[Plan]:
    """All plans with all placements that are asked for."""
    setting = setting_of(world)
    try:
        placements = offloads(world.graph, world.system, setting.assumptions, Request(**asked))
        plans, _ = asked_plans(world.graph, world.system, Request(zero=(0, 1), mp=1), setting.assumptions)
    except PlanError:
        assume(False)
    return [plan.model_copy(update={"placement": each}) for plan in plans for each in placements]


@share(0.5)
@given(trained(**MOVED), st.booleans())
def test_placements_that_are_free(case: tuple[World, dict[str, str]], free: bool) -> None:
    world, place = case
    asked: dict[str, Any] = {"offload": "any" if free else tuple(place), "zero": (0, 1), "mp": 1}
    check(world, asked, placed(world, asked))


@share(0.5)
@given(
    trained(**(MOVED | {"gradient_overlap": [None, "backward"], "parameter_overlap": [None, "forward"]})),
    st.integers(1, 4),
)
def test_answers_are_verified(case: tuple[World, dict[str, str]], top: int) -> None:
    """With several mappings, too, of which the first is the best that brute force finds."""
    world, place = case
    asked: dict[str, Any] = {"offload": tuple(place), "zero": (0, 1), "mp": 1}
    plans = placed(world, asked)
    best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked), plans)
    given = {"assumptions": jointly(world), **asked, "top": top}
    if best is None:
        with pytest.raises(Infeasible):
            solve(world.graph, world.system, **given)
        return
    found = solve(world.graph, world.system, **given)
    values = [found.value, *(each.value for each in found.alternatives or ())]
    note(f"{values} {found.status} {found.plan.label} against {best}")
    assert found.value == pytest.approx(best.value, rel=1e-9)
    assert found.status == "optimal"
    assert values == sorted(values)
    shown = verify(found)
    assert not shown.problems, shown.problems


def check_region(world: World, data: st.DataObject, asked: Request | None = None) -> None:
    """Bounds of a random region, what it leaves out, what its children and its leaf say, against all members."""
    members, region = drawn(world, data, asked)
    least = members.least(region)
    check_bounds(problem(members).relaxations, region, least)
    memory, cutoff = Memory(), Incumbents(1, 0.0)
    if memory.of(region).arcs_k is None:
        assert math.isinf(least)
        return
    if math.isfinite(least):
        assert members.least(Dominated().reduce(region, NOTHING, cutoff) or region) == pytest.approx(least, rel=SAME)
        cutoff.offer(Candidate(least * data.draw(st.sampled_from([1 + 1e-6, 1.02, 1.5])), BEATEN))
    smaller = AboveCutoff(memory).reduce(region, NOTHING, cutoff) or region
    answer = Enumeration(memory, Options(Request())).solve(smaller, NOTHING, cutoff, Clock())
    assert bool(answer.candidates) == math.isfinite(least) and below(answer.others, least)
    assert not answer.candidates or answer.candidates[0].value == pytest.approx(least, rel=SAME)
    if region.vectors > 1:
        children = Probing(memory).children(region, NOTHING, cutoff) or ()
        assert all(below(low, members.least(child)) for child, low in children)


@share(0.5)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), **HIDING), st.data())
def test_bounds_of_gradients_that_hide(world: World, data: st.DataObject) -> None:
    assume(world.graph.folded and world.graph.trains)
    check_region(world, data)


@share(0.5)
@given(worlds(most=4, least=2, trains=True, repeats=(4,), pieces=False, **(WINDOWS | {"tile_rows": 1})), st.data())
def test_bounds_of_gradients_that_hide_as_calculon_has_it(world: World, data: st.DataObject) -> None:
    assume(world.graph.folded and world.graph.trains and len(world.graph.layers.kinds) == 1)
    check_region(world, data)


@share(0.5)
@given(trained(**(MOVED | {"gradient_overlap": [None, "backward"], "parameter_overlap": [None, "forward"]})), st.data())
def test_bounds_of_what_is_moved(case: tuple[World, dict[str, str]], data: st.DataObject) -> None:
    world, place = case
    check_region(world, data, Request(place=place, zero=(0, 1), mp=1))


HALVES = PLAIN | {"sharding_objective": "joint", "overlap": ["compute_memory", "none"]}


@share(0.5)
@given(models(most=4), assumptions(**HALVES), st.data())
def test_two_microbatches_that_take_turns(graph: Graph, chosen: Assumptions, data: st.DataObject) -> None:
    system = data.draw(systems(graph, cycle=False, efficiency=chosen.compute_model == "efficiency"))
    assume(len(graph.kernels) <= 5 and system.chips > 1)
    asked: dict[str, Any] = {"mp": system.chips, "two_batch_overlap": data.draw(st.sampled_from([None, True]))}
    resolved = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    try:
        legal, _ = asked_plans(graph, system, Request(**asked), resolved)
    except PlanError:
        assume(False)
    assume(any(plan.two_batch_overlap for plan in legal))
    check(World(graph, system, legal[0], resolved), asked)


@share(0.3)
@given(st.sampled_from(SECTIONS), st.sampled_from(["compute_memory", "none"]), st.sampled_from([20.0, 1e2, 1e3]))
def test_layers_of_several_kinds_that_take_turns(sections: tuple[Section, ...], overlap: str, link: float) -> None:
    system, graph = machine(link=link), in_sections(sections)
    chosen = resolve(Assumptions(overlap=overlap, tile_rows=1), system.chip.execution, system.chip.compute_utilization)
    check(World(graph, system, Plan(), chosen), {"ep": 4, "two_batch_overlap": True})


@share(0.2)
@given(
    st.sampled_from([SECTIONS[0], SECTIONS[2]]),
    st.sampled_from([20.0, 1e2, 1e3]),
    st.sampled_from(["exposed", "hidden"]),
)
def test_turns_over_pipeline_stages(sections: tuple[Section, ...], link: float, sent: str) -> None:
    system, graph = machine(link=link), in_sections(sections, batch=32)
    chosen = Assumptions(overlap="compute_memory", tile_rows=1, point_to_point_overlap=sent)
    chosen = resolve(chosen, system.chip.execution, system.chip.compute_utilization)
    check(World(graph, system, Plan(), chosen), {"ep": 2, "pp": 2, "two_batch_overlap": True})
