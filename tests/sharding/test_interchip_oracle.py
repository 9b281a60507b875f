"""The inter-chip MILP against brute force over all schemes and stages, priced by the judge and by naive sums."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import all_shards, best_shard, priced, stages_legal
from problem_cases import better, close, renamed
from strategies import World, share, sums_meet, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.kernel import Op
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible, PlanError
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.sharding import interchip


def solved(world: World, pins=None) -> interchip.InterChipMapping:
    tables = interchip.build(world.instance, pins)
    return interchip.optimize_interchip(world.instance.setting, tables)


def check_against_brute_force(world: World) -> None:
    best = best_shard(world)
    try:
        found = solved(world)
    except Infeasible:
        assert best is None
        return
    assert best is not None
    assert stages_legal(world.graph, found.stage)
    assert sums_meet(world.graph, world.plan, world.assumptions, found.sharding)
    mine = priced(world, found.sharding, found.stage)
    wanted, reached = best.levels(world.assumptions), mine.levels(world.assumptions)
    said = f"brute force {wanted} {best.sharding} {best.stage}; MILP {reached} {found.sharding} {found.stage}"
    assert close(found.objective, wanted[0]), said
    assert found.solution.termination.value == "optimal"
    for level, (least, value) in enumerate(zip(wanted, reached, strict=True)):
        assert value <= least + 2e-6 * max(abs(least), 1e-6), f"level {level}: {said}"
    if world.assumptions.sharding_objective == "bytes":
        assert found.unit == "bytes"


@share(1)
@pytest.mark.parametrize("stage_time", ["sum", "max"])
@pytest.mark.parametrize("objective", ["seconds", "bytes"])
@given(data=st.data())
def test_sharding_is_brute_force(stage_time: str, objective: str, data: st.DataObject) -> None:
    world = data.draw(worlds(most=4, max_pp=1, stage_time=stage_time, sharding_objective=objective))
    check_against_brute_force(world)


@share(0.6)
@pytest.mark.parametrize("stage_time", ["sum", "max"])
@pytest.mark.parametrize("objective", ["seconds", "bytes"])
@given(data=st.data())
def test_stages_are_brute_force(stage_time: str, objective: str, data: st.DataObject) -> None:
    world = data.draw(
        worlds(most=4, least=2, repeats=(1,), min_pp=2, stage_time=stage_time, sharding_objective=objective)
    )
    check_against_brute_force(world)


@pytest.mark.nightly
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="needs HYPOTHESIS_PROFILE=nightly")
@share(0.5)
@given(worlds(most=5))
def test_interchip_is_brute_force_nightly(world: World) -> None:
    check_against_brute_force(world)


@share(0.5)
@given(worlds(most=4, max_pp=2), st.data())
def test_pinned_shardings_are_kept_and_optimal(world: World, data: st.DataObject) -> None:
    assume(world.plan.tp > 1)
    name = data.draw(st.sampled_from([k.name for k in world.graph.kernels]))
    kernel = world.graph.kernels[world.graph.index()[name]]
    scheme = data.draw(st.sampled_from(ops.SCHEMES))
    if scheme not in ops.legal_schemes(kernel, world.plan.tp, world.assumptions):
        with pytest.raises(PlanError, match=name):
            solved(world, {name: scheme})
        return
    fits = [s for s in all_shards(world) if s.sharding[name] == scheme]
    try:
        found = solved(world, {name: scheme})
    except Infeasible:
        assert not fits
        return
    assert found.sharding[name] == scheme
    assert close(found.objective, min(s.levels(world.assumptions)[0] for s in fits))


@share(0.5)
@given(worlds(most=4, max_pp=3, sharding_objective="seconds"), st.sampled_from(["peak", "links"]))
def test_a_better_machine_is_never_slower(world: World, what: str) -> None:
    try:
        before = solved(world)
    except Infeasible:
        return
    assert solved(better(world, what)).objective <= before.objective * (1 + 1e-9)


@share(0.5)
@given(worlds(most=4, max_pp=3), st.data())
def test_names_and_order_do_not_matter(world: World, data: st.DataObject) -> None:
    graph = world.graph
    given_operands = graph.operands()
    graph = graph.model_copy(
        update={
            "tensors": tuple(
                t.model_copy(update={"operand": o}) for t, o in zip(graph.tensors, given_operands, strict=True)
            )
        }
    )
    names = data.draw(st.permutations([k.name for k in graph.kernels]))
    name_of = dict(zip((k.name for k in graph.kernels), (f"z{n}" for n in names), strict=True))
    orders = (data.draw(st.permutations(range(len(x)))) for x in (graph.kernels, graph.tensors))
    other = replace(world, graph=renamed(graph, name_of, *orders))
    try:
        one = solved(replace(world, graph=graph)).objective
    except Infeasible:
        with pytest.raises(Infeasible):
            solved(other)
        return
    assert close(one, solved(other).objective)


# -- what only some graphs show ----------------------------------------------------------------


def on_two_chips(graph: Graph, chosen: Assumptions) -> World:
    """A graph on a ring of two chips that share every kernel."""
    chip = Chip(name="c", tiles=8, peak=1000.0, sram=Sram(capacity=1e9), dram=Dram(bandwidth=100.0))
    links = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=50.0)
    resolved = resolve(chosen, chip.execution, chip.compute_utilization)
    return World(graph, System(name="s", chip=chip, network=(links,)), Plan(tp=2, tp_dims=("x",)), resolved)


def adding(rules: str = "exact", op: Op = "gemm", host: Op = "gemm") -> World:
    """A kernel that adds to what another gives."""
    kernels = (
        Kernel(name="host", op=host, m=4, k=1 if host == "elementwise" else 6, n=8),
        Kernel(name="adds", op=op, m=4, k=6, n=8, stream="n", accumulates_into="host"),
    )
    return on_two_chips(Graph(name="g", kernels=kernels), Assumptions(sharding_rules=rules, tile_rows=1))


@pytest.mark.parametrize("rules", ["exact", "dfmodel"])
@pytest.mark.parametrize("op", ["gemm", "matmul", "weight_update"])
def test_an_accumulating_kernel_costs_the_same_to_milp_and_judge(op: Op, rules: str) -> None:
    """`accumulates_into` under both rules and on every op: whoever pays the reduction, both must agree."""
    world = adding(rules, op)
    for shard_ in all_shards(world):
        pins = shard_.sharding
        assert close(solved(world, pins).objective, shard_.levels(world.assumptions)[0]), pins


def test_a_host_that_cannot_reduce_leaves_the_split_that_needs_none() -> None:
    assert solved(adding(host="elementwise")).sharding["adds"] == "m"


def test_pins_that_contradict_each_other_are_infeasible() -> None:
    with pytest.raises(Infeasible):
        solved(adding(), {"host": "m", "adds": "k"})


@pytest.mark.parametrize("objective", ["seconds", "bytes"])
@pytest.mark.parametrize("execution", ["dataflow", "library", "kernel_by_kernel"])
def test_later_readers_gather_a_saved_tensor_each_for_themselves_where_none_are_fused(
    execution: str, objective: str
) -> None:
    """Without roles a library fuses none of them; only a dataflow chip may have both in one partition."""
    kernels = (
        Kernel(name="made", op="gemm", m=2, k=1, n=1),
        Kernel(name="one", op="gemm", m=2, k=2, n=1, pass_="backward"),
        Kernel(name="other", op="gemm", m=2, k=2, n=1, pass_="backward"),
    )
    tensors = (Tensor(src="made", dst="one", operand=1), Tensor(src="made", dst="other", operand=1))
    chosen = Assumptions(tile_rows=1, execution=execution, sharding_objective=objective)
    world = on_two_chips(Graph(name="g", kernels=kernels, tensors=tensors), chosen)
    check_against_brute_force(world)
    pins = {"made": "m", "one": "m", "other": "m"}  # an all-gather for both, or one for each
    charged = priced(world, pins, dict.fromkeys(pins, 0)).levels(world.assumptions)[0]
    assert solved(world, pins).objective == pytest.approx(charged)
