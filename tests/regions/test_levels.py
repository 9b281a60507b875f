"""The sharding first, stages that are open, and programs over assignment matrices: brute force, on record, verified."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import pytest
from brute import joint_optimum
from covered import asked_of, check_honest, covered, in_token_blocks, jointly, optimum, setting_of, space_of, stages_of
from hypothesis import assume, event, given, note
from hypothesis import strategies as st
from small_systems import small_system
from strategies import World, share

from dfopt.bnb import Clock, OutOfTime
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.errors import Infeasible, NoSolution, PlanError
from dfopt.physics.ops import streamed_rows
from dfopt.regions.open_stages import BlocksOfStages
from dfopt.regions.region import Unsharded
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.sharding import interchip
from dfopt.sharding.tables import build
from dfopt.solving.levels import best_sharding, by_levels
from dfopt.solving.options import Options


def least_of_levels(world: World, asked: dict[str, Any], objective: str) -> float | None:
    """Seconds of the best fusion for the sharding that is best by itself, over all plans; none if nothing fits."""
    request, found = Request(**asked), list[float]()
    setting = Setting.resolved(world.graph, world.system, world.assumptions.with_(sharding_objective=objective))
    plans, _ = asked_plans(setting.graph, setting.system, request, setting.assumptions)
    for plan in plans:
        try:
            tables = interchip.build(setting.under(plan).shared, request.pin_sharding)
            sharding = interchip.optimize_interchip(setting, tables, gap=0.0).sharding
        except Infeasible:  # the schemes of some kernels contradict each other
            continue
        pinned = Request(**asked | {"pin_sharding": sharding})
        best = joint_optimum(world.graph, world.system, jointly(world), pinned, [plan])
        found += [] if best is None else [best.value]
    return min(found, default=None)


def check_levels(world: World, asked: dict[str, Any], objective: str) -> None:
    given = {"assumptions": world.assumptions.with_(sharding_objective=objective), **asked}
    try:
        expected = least_of_levels(world, asked, objective)
    except PlanError:
        with pytest.raises(PlanError):
            solve(world.graph, world.system, **given)
        return
    if expected is None:
        with pytest.raises((Infeasible, PlanError)):
            solve(world.graph, world.system, **given)
        return
    found = solve(world.graph, world.system, **given)
    note(f"{found.value} {found.status} {found.plan.label} against {expected}")
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.status in ("optimal", "optimal_per_level")
    assert found.level_bound == pytest.approx(expected, rel=1e-9)
    shown = verify(found)
    assert not shown.problems, shown.problems
    assert shown.ok


@share(1)
@given(covered(most=4), st.sampled_from(["seconds", "bytes"]), st.data())
def test_nothing_is_better_with_the_best_sharding_of_a_plan(world: World, objective: str, data: st.DataObject) -> None:
    check_levels(world, asked_of(world, data.draw, ways=1), objective)


@share(0.5)
@given(covered(most=4, repeats=(4,), trains=True), st.sampled_from(["seconds", "bytes"]), st.data())
def test_nothing_is_better_with_it_of_what_trains_in_layers(world: World, objective: str, data: st.DataObject) -> None:
    check_levels(world, asked_of(world, data.draw, ways=1), objective)


# -- plans whose pipeline stages are open, and no arcs -----------------------------------------


CUT: dict[str, Any] = {"repeats": (1,), "most": 4, "token_blocks": ["none", "allow"], "gradient_overlap": None}
"""Kernels drawn once, so that several pipeline stages leave their places open."""


def drawn(world: World, data: st.DataObject) -> dict[str, Any]:
    """What is asked of plans with several pipeline stages."""
    several = [one for one in stages_of(world) if one > 1]
    assume(several)
    return asked_of(world, data.draw, ways=1) | {"pp": data.draw(st.sampled_from(several))}


def best_of_levels(setting: Setting, plan: Plan, asked: Request) -> float:
    """The best fusion with the sharding and the stages that are best by themselves, in any number of tiles."""
    instance, options = setting.under(plan), Options(asked)
    try:
        chosen = best_sharding(instance, build(instance.shared, asked.pin_sharding), options)
    except Infeasible:
        return math.inf
    found = [
        by_levels(instance, lambda: chosen, options, tiles) for tiles in range(1, 1 + streamed_rows(setting.graph))
    ]
    return min((one.value for one in found if one is not None), default=math.inf)


@share(0.5)
@given(covered(**CUT), st.sampled_from(["seconds", "bytes"]), st.data())
def test_stages_that_come_first_are_the_best_of_their_level(world: World, objective: str, data: st.DataObject) -> None:
    asked, chosen = drawn(world, data), world.assumptions.with_(sharding_objective=objective)
    setting = Setting.resolved(world.graph, world.system, chosen)
    try:
        legal, _ = asked_plans(setting.graph, setting.system, Request(**asked), setting.assumptions)
        best = min(best_of_levels(setting, plan, Request(**asked)) for plan in legal)
    except PlanError:
        assume(False)
    if math.isinf(best):
        with pytest.raises(Infeasible):
            solve(world.graph, world.system, assumptions=chosen, **asked)
        return
    found = solve(world.graph, world.system, assumptions=chosen, **asked)
    note(f"{found.value} {found.status} {found.plan.label} against {best}")
    assert found.value == pytest.approx(best, rel=1e-9)
    assert found.level_bound == pytest.approx(best, rel=1e-9)
    every = optimum(world, asked)
    assert every is not None
    assert found.bound <= every.value * (1 + 1e-9)
    shown = verify(found)
    assert not shown.problems, shown.problems


@share(0.5)
@given(covered(**CUT), st.sampled_from(["assignment", "auto"]), st.data())
def test_a_program_finds_the_best_stages(world: World, formulation: str, data: st.DataObject) -> None:
    """Where it was asked for, or there are more cuts than are listed."""
    asked = drawn(world, data)
    given = {"assumptions": jointly(world), **asked, "formulation": formulation}
    try:
        best = optimum(world, asked)
    except PlanError:
        with pytest.raises(PlanError):
            solve(world.graph, world.system, **given)
        return
    with patch("dfopt.regions.cuts._MOST_CUTS", 1):
        if best is None:
            with pytest.raises(Infeasible):
                solve(world.graph, world.system, **given)
            return
        check_honest(solve(world.graph, world.system, **given), best.value)


@share(1)
@given(covered(**CUT), st.data())
def test_no_mapping_of_open_stages_is_below_their_bounds(world: World, data: st.DataObject) -> None:
    """Of each plan alone, in any number of tiles."""
    asked = drawn(world, data)
    try:
        with patch("dfopt.regions.cuts._MOST_CUTS", 1):
            space = space_of(setting_of(world), Request(**asked))
            roots = space.roots
    except PlanError:
        assume(False)
    for plan in (plan for root in roots if isinstance(root, Unsharded) for plan in root.plans.plans):
        best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked), [plan])
        with patch("dfopt.regions.cuts._MOST_CUTS", 1):
            parts = space.of_plan(space.bounds.tables([plan])[0])
        lows = [math.inf]
        for part in parts:
            relaxation = BlocksOfStages()
            assert relaxation.applies(part)
            [answer] = relaxation.answers([part], math.inf, Clock())
            lows.append(relaxation.bound(part, answer).value)
        note(f"{plan.label}: {lows} of {best}")
        assert best is None or min(lows) <= best.value * (1 + 1e-9)


# -- one program over assignment matrices for each plan ----------------------------------------


@share(0.5)
@given(covered(most=4, gradient_overlap=None), st.sampled_from(["joint", "joint", "seconds", "bytes"]), st.data())
def test_programs_find_the_best_mapping(world: World, objective: str, data: st.DataObject) -> None:
    """So few kernels are in as many partitions as they like."""
    check_program(world, objective, data)


@share(0.5)
@given(in_token_blocks(gradient_overlap=None), st.sampled_from(["joint", "seconds", "bytes"]), st.data())
def test_programs_know_blocks_of_tokens(world: World, objective: str, data: st.DataObject) -> None:
    check_program(world, objective, data)


@share(0.3)
@given(covered(most=4, gradient_overlap=None), st.data())
def test_a_program_that_there_is_no_time_for_shows_nothing(world: World, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw, ways=1) | {"assumptions": jointly(world)}
    with patch("dfopt.solving.matrices.assignment_of", side_effect=OutOfTime):
        try:
            found = solve(world.graph, world.system, formulation="assignment", **asked)
        except (Infeasible, PlanError, NoSolution):
            return
    best = solve(world.graph, world.system, **asked)
    assert found.bound <= best.value * (1 + 1e-9)


def check_program(world: World, objective: str, data: st.DataObject) -> None:
    """A program is as good as the search, and its bound holds for brute force."""
    asked, chosen = asked_of(world, data.draw, ways=1), world.assumptions.with_(sharding_objective=objective)
    given = {"assumptions": chosen, **asked}
    try:
        best = optimum(world, asked)
        expected = solve(world.graph, world.system, **given)
    except (Infeasible, PlanError) as error:
        with pytest.raises(type(error)):
            solve(world.graph, world.system, formulation="assignment", **given)
        return
    found = solve(world.graph, world.system, formulation="assignment", **given)
    event(f"blocks of tokens: {found.mapping.token_blocks is not None}")
    note(f"{found.value} {found.status} {found.plan.label} against {best} and {expected.value}")
    assert found.value == pytest.approx(expected.value, rel=1e-6)
    assert found.status == expected.status
    assert best is not None and found.bound <= best.value * (1 + 1e-9)
    [record] = [one for one in found.plans if one.plan == found.plan and one.value == found.value]
    last = record.solves[-1]
    assert last.problem == ("joint" if objective == "joint" else "intrachip")
    assert last.formulation in ("assignment", "kernel_by_kernel")
    assert last.bound <= (last.objective or 0.0) * (1 + 1e-6)
    shown = verify(found)
    assert not shown.problems, shown.problems


def test_partitions_are_as_many_as_prices_ask_for() -> None:
    """How many a program has by default follows from prices: here few kernels fit the chip together."""
    kernels = tuple(Kernel(name=f"k{i}", op="gemm", m=8, k=8, n=8) for i in range(8))
    tensors = tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}") for i in range(7))
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=tensors)
    system = small_system(peak=300, sram=360)
    asked = Assumptions(compute_model="fixed", tile_rows=1, weight_tiling="forbid")
    for objective in ("joint", "seconds"):
        chosen = asked.with_(sharding_objective=objective)
        paths, programs = (
            solve(graph, system, assumptions=chosen, formulation=form) for form in ("auto", "assignment")
        )
        assert len(paths.score.partitions) > 3
        assert programs.value == pytest.approx(paths.value, rel=1e-9)
