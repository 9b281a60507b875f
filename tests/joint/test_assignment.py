"""Whole plans as one MILP, against brute force over all shardings, stages, tile counts and partitionings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from block_cases import IN_TOKEN_BLOCKS
from brute import joint_optimum
from given_plans import searched
from hypothesis import assume, given
from hypothesis import strategies as st
from problem_cases import close
from small_systems import rings, small_system
from strategies import ROWS, World, falls, options_of, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.sections import Section
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.milp import Solution, Termination, solve
from dfopt.physics.pipeline import resolve
from dfopt.search.dump import models
from dfopt.search.verify import verify
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.solving.levels import best_sharding
from dfopt.solving.matrices import from_levels
from dfopt.solving.menu import Menu
from dfopt.solving.options import Options
from dfopt.solving.solved import Pruned, Solved
from dfopt.terms.sharded_graph import tile_counts

WHOLE = profile("default").with_(sharding_objective="joint", sequence_parallelism="none")
SQUEEZE = [0.5, 0.7, 0.9, 0.99]


@st.composite
def asked_worlds(draw: st.DrawFn, **fixed) -> tuple[World, dict[str, object]]:
    """A world, mostly with something to choose, and a request with as many partitions as are drawn.

    Matrices add gradients up after the step.
    """
    drawn = {"gradient_overlap": None, "execution": ["auto", "auto", "library", "kernel_by_kernel"], "tile_rows": ROWS}
    world = draw(worlds(least=2, **drawn | fixed))
    assume(world.plan.tp > 1 or draw(st.integers(0, 3)) == 0)
    most = draw(st.sampled_from([1, 2, 3, len(world.graph.kernels)]))
    asked: dict[str, object] = {"p_max": most} if world.assumptions.execution != "kernel_by_kernel" else {}
    if asked and draw(st.integers(0, 5)) == 0:
        name = draw(st.sampled_from([kernel.name for kernel in world.graph.kernels]))
        asked["pin_partition"] = {name: draw(st.integers(0, most - 1))}
    return world, asked


@st.composite
def tight_worlds(
    draw: st.DrawFn, memories: Sequence[str] = ("sram", "dram"), **fixed
) -> tuple[World, dict[str, object]]:
    """Worlds whose best mapping without limits is a little too large for the SRAM or the DRAM."""
    world, asked = draw(asked_worlds(**{"roomy": True, "execution": ["dataflow", "dataflow", "library"]} | fixed))
    free = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked), [world.plan])
    assume(free is not None)
    return squeezed(world, free.score, draw(st.sampled_from(memories)), draw(st.sampled_from(SQUEEZE))), asked


def squeezed(world: World, score: Score, memory: str, share: float) -> World:
    """The same with so much of what a mapping needs of a memory."""
    chip = world.system.chip
    need = {"sram": [p.sram_bytes for p in score.partitions], "dram": [s.dram_bytes for s in score.stages]}
    less = getattr(chip, memory).model_copy(update={"capacity": max(share * max(need[memory]), 1.0)})
    return replace(world, system=world.system.model_copy(update={"chip": chip.model_copy(update={memory: less})}))


def programs(world: World, options: Options) -> list[Solved | Pruned]:
    """The plan as one program for every number of tiles that it may have, but for those with which nothing fits."""
    instance, found = world.instance, list[Solved | Pruned]()
    menu = Menu(instance.shared, options.request.pin_sharding)
    choose = partial(best_sharding, instance, menu.tables, options)
    # also tiles in each of which every chip has rows of its own
    rows = {1, world.plan.shards} if menu.unshared != menu.domain else {1}
    for tiles in {count for least in rows for count in tile_counts(world.graph, world.assumptions, least)}:
        with suppress(Infeasible):
            found.append(from_levels(instance, options, menu, tiles, math.inf, choose))
    return found


def is_proven(one: Solved | Pruned) -> bool:
    """Whether it is a mapping, and no time limit ended a program."""
    return isinstance(one, Solved) and all(not record.termination.endswith("with solution") for record in one.records)


def check(world: World, asked: dict[str, object], solver: str = "highs", *, exactly: bool = True) -> None:
    best = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked), [world.plan])
    options = options_of(formulation="assignment", solver=solver, **asked)
    outcomes = programs(world, options)
    said = f"{best} against {outcomes}"
    assert bool(outcomes) == (best is not None), said
    if best is not None:
        assert all(map(is_proven, outcomes)), said
        if exactly:
            assert close(min(one.value for one in outcomes), best.value), said
        assert min(one.bound for one in outcomes) <= best.value * (1 + 1e-9), said


PLANS = {
    "of any kind": asked_worlds(most=5),
    "that hardly fit": tight_worlds(most=4),
    "in blocks of tokens": tight_worlds(most=4, memories=("sram",), **IN_TOKEN_BLOCKS),
}
LARGE_PLANS = {
    "of any kind": asked_worlds(most=6),
    "in blocks of tokens": tight_worlds(most=5, memories=("sram", "sram", "dram"), **IN_TOKEN_BLOCKS),
}
STAGES = {
    "that hardly fit": tight_worlds(most=4, repeats=(1,), min_pp=2, max_pp=2, trains=True),
    "that are a choice": asked_worlds(most=4, repeats=(1,), min_pp=2, max_pp=2),
}


@pytest.mark.parametrize("cases", PLANS.values(), ids=PLANS)
@share(0.5)
@given(st.data())
def test_plans_are_brute_force(cases, data: st.DataObject) -> None:
    check(*data.draw(cases))


@pytest.mark.nightly
@pytest.mark.parametrize("cases", LARGE_PLANS.values(), ids=LARGE_PLANS)
@share(0.5)
@given(st.data())
def test_plans_are_brute_force_nightly(cases, data: st.DataObject) -> None:
    check(*data.draw(cases))


@pytest.mark.parametrize("cases", STAGES.values(), ids=STAGES)
@share(0.1)
@given(st.data())
def test_stages_are_brute_force(cases, data: st.DataObject) -> None:
    check(*data.draw(cases))


@share(0.2)
@given(asked_worlds(most=4, memory=True, compute_model="efficiency"))
def test_shares_of_bandwidth_are_brute_force(case) -> None:
    """Where shares fall as bytes grow, a limit that is just met may be missed: what is said then is a bound."""
    check(*case, exactly=not falls(case[0].system))


@share(0.2)
@given(tight_worlds(most=4, memories=("sram",), memory=True, **IN_TOKEN_BLOCKS | {"compute_model": "efficiency"}))
def test_blocks_of_tokens_beside_shares_of_bandwidth_are_bounded_by_brute_force(case) -> None:
    """More blocks than are needed may seem faster where shares depend on bytes: what is said then is a bound."""
    check(*case, exactly=False)


BEHIND = {"trains": True, "gradients": "exact", "gradient_overlap": ["backward"], "zero": True}


@share(0.1)
@given(asked_worlds(most=4, execution=["library", "kernel_by_kernel"], **BEHIND))
def test_exchanges_behind_the_backward_pass_are_brute_force(case) -> None:
    """Rows state what listed partitions and equal stages hide; of others there is a mapping, and no bound."""
    world, asked = case
    asked.pop("pin_partition", None)
    best = joint_optimum(world.graph, world.system, world.assumptions, Request(**asked), [world.plan])
    options = options_of(formulation="assignment", **asked)
    outcomes = programs(world, options)
    assert outcomes if best is not None else not any(isinstance(each, Solved) for each in outcomes)
    assume(all(map(is_proven, outcomes)))
    assume(best is not None)
    least, bound = (min(getattr(one, name) for one in outcomes) for name in ("value", "bound"))
    assert max(bound, best.value) <= least * (1 + 1e-9) and bound <= best.value * (1 + 1e-9)
    assert not bound or close(least, best.value)


@share(0.05, nightly=0.05)
@given(asked_worlds(most=4))
def test_another_solver_is_brute_force(case) -> None:
    check(*case, solver="pulp:CBC")


def agree(world: World, asked: dict[str, object], solver: str = "highs") -> None:
    """The search and the matrices, which share prices of kernels only: values to 1e-6, and neither bound wrong."""
    assume(world.plan.stages == 1 or world.graph.repeat > 1)
    together = world.assumptions.with_(sharding_objective="joint")
    search = searched(Setting(world.graph, world.system, together), [world.plan], options_of(**asked))
    outcomes = programs(world, options_of(formulation="assignment", solver=solver, **asked))
    if not outcomes:
        assert not search.state.solutions
        return
    value, bound = search.state.solutions[0].value, min(one.bound for one in search.records if one.bound is not None)
    assert close(min(one.value for one in outcomes if isinstance(one, Solved)), value)
    assert close(bound, value)
    assert min(one.bound for one in outcomes) <= value * (1 + 1e-9)


@pytest.mark.nightly
@share(0.15)
@given(asked_worlds(most=6))
def test_search_and_matrices_agree_nightly(case) -> None:
    agree(*case)


@pytest.mark.nightly
@share(0.05)
@given(asked_worlds(most=4))
def test_search_and_another_solver_agree_nightly(case) -> None:
    agree(*case, solver="pulp:CBC")


@pytest.mark.parametrize("repeat", [1, 4])
@pytest.mark.parametrize("overlap", ["none", "perfect"])
def test_a_step_of_training_is_brute_force(repeat: int, overlap: str) -> None:
    """All three axes, gradients, saved tensors, and tensors that go back from stage to stage where DRAM is short."""
    kernels = (
        Kernel(name="gemm", op="gemm", m=4, k=6, n=8),
        Kernel(name="act", op="elementwise", m=4, n=8),
        Kernel(name="back", op="elementwise", m=4, n=8, pass_="backward", resident_bytes=60.0),
        Kernel(name="update", op="weight_update", m=4, k=8, n=6, pass_="update"),
    )
    ends = [("gemm", "act"), ("act", "back"), ("back", "update")]
    tensors = tuple(Tensor(src=a, dst=b) for a, b in ends)
    carried = (Tensor(src="act", dst="gemm"),) if repeat > 1 else ()
    graph = Graph(name="g", kernels=kernels, tensors=tensors, carried=carried, repeat=repeat, batch=4)
    system = small_system(*rings(2, 2, 2, latency=0.05)).model_copy(update={"collective_overhead": 0.02})
    chosen = resolve(Assumptions(tile_rows=1, overlap=overlap, network_dims="whole"), "dataflow", 0.9)
    asked = Request(tp=2, pp=2, dp=2)
    for plan in asked_plans(graph, system, asked, chosen)[0][:1]:
        world = World(graph, system, plan, chosen)
        free = joint_optimum(graph, system, chosen, Request(p_max=3), [plan])
        assert free is not None
        for share_left in (2.0, *SQUEEZE):
            check(squeezed(world, free.score, "dram", share_left), {"p_max": 3})


@pytest.mark.parametrize("messages", ["per_microbatch", "per_neighbour"])
def test_stages_with_layers_of_several_kinds_are_brute_force(messages: str) -> None:
    """Every stage sends what the slowest kind of layer hands on."""
    sizes = {"m": 4, "n": 8}
    kernels = (
        Kernel(name="gemm", op="gemm", k=6, **sizes),
        Kernel(name="narrow", op="elementwise", layer="other", **sizes),
    )
    carried = tuple(Tensor(src=name, dst=name) for name in ("gemm", "narrow"))
    sections = (Section(layers=("layer", "other"), repeat=2),)
    graph = Graph(name="g", kernels=kernels, carried=carried, sections=sections, batch=4)
    system = small_system(*rings(2, 2, latency=0.05))
    chosen = resolve(Assumptions(tile_rows=1, point_to_point=messages), "dataflow", 0.9)
    plan = Plan(tp=2, tp_dims=("x",), pp=2, pp_dims=("y",), microbatches=4, layers_per_stage=2)
    check(World(graph, system, plan, chosen), {"p_max": 2})


@pytest.mark.parametrize("tensors_left", [2, 3])
def test_what_comes_from_another_stage_waits_in_dram(tensors_left: int) -> None:
    """One kernel per partition: while the second of a stage's kernels has not run, its input from before lies there."""
    kernels = tuple(Kernel(name=name, op="elementwise", m=4, n=8) for name in "abc")
    tensors = tuple(Tensor(src=a, dst=b) for a, b in ("ab", "bc", "ac"))
    graph = Graph(name="g", kernels=kernels, tensors=tensors, inputs=(), outputs=())
    capacity = (tensors_left + 0.5) * 4 * 8 * graph.word_bytes
    chosen = resolve(Assumptions(tile_rows=1, fanout="per_consumer"), "dataflow", 0.9)
    plan = Plan(pp=2, pp_dims=("x",), microbatches=1)
    world = World(graph, small_system(*rings(2), tiles=1, capacity=capacity), plan, chosen)
    check(world, {"p_max": 3})


def test_partial_sums_meet_a_reduction() -> None:
    """Of two GEMMs that are added up either both are split by their contraction, or the added one is not split so."""
    sizes = {"op": "gemm", "m": 4, "k": 6, "n": 8}
    kernels = (Kernel(name="host", **sizes), Kernel(name="adds", **sizes, stream="n", accumulates_into="host"))
    chosen = resolve(Assumptions(tile_rows=1), "dataflow", 0.9)
    world = World(Graph(name="g", kernels=kernels), small_system(*rings(2)), Plan(tp=2, tp_dims=("x",)), chosen)
    for scheme in ("m", "k"):
        check(world, {"p_max": 2, "pin_sharding": {"host": scheme}})


def test_what_two_levels_lose_on_gpt3() -> None:
    """Measured on 2026-11-22 by labels over the lattice of down-sets, which share no code with the MILP: 2177.36."""
    graph, chosen = df.load_graph("gpt3-175b"), WHOLE.with_(overlap="none")
    result = df.optimize(graph, "sn10-8-ring", tp=8, assumptions=chosen, formulation="assignment")
    assert result.status == "optimal"
    assert result.value == pytest.approx(2177.36, abs=0.005)
    apart = df.optimize(graph, "sn10-8-ring", tp=8, assumptions=chosen.with_(sharding_objective="seconds"))
    assert apart.value > result.value * 1.04


def test_the_model_that_is_dumped_is_the_one_that_was_solved() -> None:
    chosen = WHOLE.with_(execution="kernel_by_kernel")
    result = df.optimize(df.load_graph("gpt3-175b"), "h100-8", tp=8, assumptions=chosen, formulation="assignment")
    ((name, model),) = models(result)
    (record,) = result.plans[0].solves
    assert (name, record.problem) == ("joint", "joint")
    assert (record.rows, record.columns) == model.arrays().A.shape
    assert solve(model).objective == pytest.approx(solve(model, solver="pulp:CBC").objective)


def test_matrices_are_solved_also_where_a_start_meets_the_bound() -> None:
    asked = {"tp": 8, "assumptions": WHOLE, "formulation": "assignment"}
    result = df.optimize(df.load_graph("llama-3.1-8b"), "sn10-8-ring", **asked)
    (solve,) = (one for record in result.plans for one in record.solves if one.problem == "joint")
    assert solve.rows > 0 and solve.termination == "optimal"
    assert solve.objective == pytest.approx(result.value) and solve.bound == pytest.approx(result.value)
    assert (result.status, len(result.plans)) == ("optimal", 1)
    assert verify(result).ok


def test_a_claim_of_a_better_bound_is_refused() -> None:
    graph = df.load_graph("gpt3-175b")
    apart = df.optimize(graph, "h100-8", tp=8, assumptions=WHOLE.with_(sharding_objective="seconds"))
    result = df.optimize(graph, "h100-8", tp=8, assumptions=WHOLE, formulation="assignment")
    # the mapping of two levels under the words of the joint optimum
    changes = {name: getattr(apart, name) for name in ("mapping", "score", "value", "matrices", "utilization")}
    bounds = {"bound": apart.value, "level_bound": apart.value}
    plans = tuple(one.model_copy(update={"value": apart.value, **bounds}) for one in result.plans)
    forged = result.model_copy(update={**changes, **bounds, "plans": plans}).sealed()
    found = verify(forged)
    assert not found.ok
    assert any("only" in problem and "could be" in problem for problem in found.problems)


@share(0.1)
@given(asked_worlds(most=4, repeats=(1,), min_pp=2, max_pp=2))
def test_where_stages_are_a_choice_the_search_takes_it_unasked(case) -> None:
    world, asked = case
    assume(world.assumptions.forward_backward != "halves" and world.assumptions.execution == "dataflow")
    together = world.assumptions.with_(sharding_objective="joint")
    best = joint_optimum(world.graph, world.system, together, Request(**asked))
    try:
        result = optimizer.solve(world.graph, world.system, assumptions=together, **asked)
    except Infeasible:
        assert best is None
        return
    assert best is not None
    assert close(result.value, best.value)
    assert result.status == "optimal"
    found = verify(result)
    assert found.ok, found.problems
    assert found.verdict.startswith("verified optimal")


def test_where_a_program_finds_nothing_in_time_its_start_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is shown is what bounds show without the program."""
    late = Solution(Termination.LIMIT_NO_SOLUTION, math.inf, 0.0, math.inf, 0.0, 0, 1, 1, 1, (), None, "")
    asked = {"tp": 8, "time_limit": 20, "sensitivity": False, "assumptions": WHOLE}
    best = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", **asked)
    monkeypatch.setattr("dfopt.solving.matrices.solve", lambda model, **asked: late)
    found = df.optimize(df.load_graph("gpt2-small"), "sn10-8-ring", formulation="assignment", **asked)
    assert found.plans[0].solves[-1].termination == "limit without solution"
    assert 0 < found.bound <= best.value * (1 + 1e-9) <= found.value * (1 + 2e-9)
    assert verify(found).ok


def by_both_forms(graph: Graph, system: System | str, **asked: Any) -> list[df.Result]:
    """The optimum by the search and by matrices, which agree."""
    found = [df.optimize(graph, system, formulation=formulation, **asked) for formulation in ("auto", "assignment")]
    assert [one.status for one in found] == ["optimal", "optimal"]
    assert found[0].value == pytest.approx(found[1].value, rel=1e-6)
    return found


def test_search_and_matrices_agree_on_every_plan() -> None:
    found = by_both_forms(df.load_graph("gpt3-175b"), "sn10-8-ring", tp=4, assumptions=WHOLE)
    assert found[0].value == pytest.approx(762.932, abs=0.0005)


def test_the_kernels_of_a_library_have_matrices() -> None:
    """Attention and the ends of a layer as blocks; the dumped model is the one that was solved."""
    found = by_both_forms(df.load_graph("gpt3-175b"), "h100-8", tp=8, assumptions=WHOLE.with_(execution="library"))
    ((name, model),) = models(found[1])
    assert name == "joint"
    assert found[1].plans[0].solves[0].rows == model.arrays().A.shape[0]


def test_kinds_of_layers_without_a_backward_pass_have_no_halves() -> None:
    """Partitions of every kind are counted from 0: none is empty where none may be."""
    kernels = tuple(
        Kernel(name=name, op="gemm", m=8, k=8, n=8, layer=layer) for name, layer in (("a", "x"), ("b", "y"))
    )
    sections = tuple(Section(layers=(layer,), repeat=2) for layer in "xy")
    system = small_system(tiles=2, peak=1e6, sram=1e6, bandwidth=1e4)
    graph = Graph(name="g", kernels=kernels, sections=sections, batch=2)
    chosen = WHOLE.with_(execution="library", forward_backward="halves", empty_partitions="forbid")
    found = by_both_forms(graph, system, assumptions=chosen, p_max=1)
    assert found[0].value == pytest.approx(found[1].value, rel=1e-9)
