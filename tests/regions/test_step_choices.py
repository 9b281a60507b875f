"""Plans that compose a step in another way: layers computed again, placements, two microbatches in turns, gradients
that hide. The answer is that of brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from brute import joint_optimum, least_capacities
from covered import asked_of, jointly
from hypothesis import assume, given, note
from hypothesis import strategies as st
from proven import check_proven
from strategies import World, share, with_dram, worlds
from test_bounds import BEATEN, NOTHING, SAME, below, check_bounds, drawn, problem, undominated
from test_offload import cases as trained
from test_offload import every, overtaken

from dfopt.bnb import Candidate, Clock, Incumbents
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, PlanError
from dfopt.regions.branching import Probing
from dfopt.regions.facts import FactCache
from dfopt.regions.leaves import Enumeration
from dfopt.regions.reductions import AboveCutoff
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.solving.options import Options
from dfopt.workloads.recompute import recomputed, some_recomputed

PLAIN: dict[str, Any] = {
    "tile_rows": 1,
    "compute_model": ["fixed", "efficiency"],
    "gradient_overlap": None,
    "empty_partitions": "allow",
    "token_blocks": ["none", "none", "allow"],
}


ALONE: dict[str, Any] = {"execution": "kernel_by_kernel", "empty_partitions": "allow", "tile_rows": 1}


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
    check_in_memory(some_again(world, data), {"two_batch_overlap": False}, data)


@share(0.25)
@given(worlds(most=3, least=2, trains=True, pieces=False, gradients="exact", **ALONE), st.data())
def test_groups_of_copies(world: World, data: st.DataObject) -> None:
    check_in_memory(world, {"zero": (0, 1, 2, 3), "zero_replicas": "all"}, data)


def check_in_memory(world: World, asked: dict[str, Any], data: st.DataObject) -> None:
    """With a memory that some plans fit, or none do."""
    try:
        fits = least_capacities(world.graph, with_dram(world.system, None), jointly(world), Request(**asked))
    except PlanError:
        assume(False)
    sizes = sorted({size for size in fits.values() if 0 < size < math.inf})
    system = with_dram(world.system, data.draw(st.sampled_from([None, *sizes])))
    check_proven(world.graph, system, jointly(world), asked)


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
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


WINDOWS = PLAIN | {
    "gradient_overlap": ["calculon", "calculon_or_none"],
    "gradients": "exact",
    "execution": "kernel_by_kernel",
    "point_to_point_overlap": "exposed",
}

MOVED = {name: said for name, said in PLAIN.items() if name != "tile_rows"} | {
    "gradient_overlap": [None, "backward"],
    "parameter_overlap": [None, "forward"],
}


@share(0.5)
@given(trained(**MOVED), st.integers(1, 4))
def test_answers_are_verified(case: tuple[World, dict[str, str]], top: int) -> None:
    """With several mappings, too, of which the first is the best that brute force finds."""
    world, place = case
    asked: dict[str, Any] = {"offload": tuple(place), "zero": (0, 1), "mp": 1}
    assume(not overtaken(world))
    plans = every(world, tuple(place))
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
    memory, cutoff = FactCache(), Incumbents(1, 0.0)
    if memory.of(region).arcs_k is None:
        assert math.isinf(least)
        return
    if math.isfinite(least):
        assert members.least(undominated(region)) == pytest.approx(least, rel=SAME)
        cutoff.offer(Candidate(least * data.draw(st.sampled_from([1 + 1e-6, 1.02, 1.5])), BEATEN))
    smaller = AboveCutoff(memory).reduce(region, NOTHING, cutoff) or region
    answer = Enumeration(memory, Options(Request())).solve(smaller, NOTHING, cutoff, Clock())
    assert bool(answer.candidates) == math.isfinite(least) and below(answer.others, least)
    assert not answer.candidates or answer.candidates[0].value == pytest.approx(least, rel=SAME)
    if region.vectors > 1:
        children = Probing(memory).children(region, NOTHING, cutoff) or ()
        assert all(below(low, members.least(child)) for child, low in children)


GRADIENTS = {
    "layer by layer": worlds(most=4, least=2, trains=True, repeats=(4,), **HIDING),
    "as Calculon has it": worlds(most=4, least=2, trains=True, repeats=(4,), pieces=False, **WINDOWS),
}


@pytest.mark.parametrize("drawn_worlds", GRADIENTS.values(), ids=GRADIENTS)
@share(0.5)
@given(st.data())
def test_bounds_of_gradients_that_hide(drawn_worlds: st.SearchStrategy[World], data: st.DataObject) -> None:
    world = data.draw(drawn_worlds)
    assume(world.graph.folded and world.graph.trains)
    assume(world.assumptions.gradient_overlap == "backward" or len(world.graph.layers.kinds) == 1)
    check_region(world, data)


@share(0.5)
@given(trained(**MOVED), st.data())
def test_bounds_of_what_is_moved(case: tuple[World, dict[str, str]], data: st.DataObject) -> None:
    world, place = case
    check_region(world, data, Request(place=place, zero=(0, 1), mp=1))
