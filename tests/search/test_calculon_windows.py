"""Exchanges hidden as Calculon counts it, and how products hide collectives beside them: judge, search, brute force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from brute import joint_optimum
from exposed_by_hand import Shown, least_lines
from given_plans import check_agreed, drawn_mapping
from hypothesis import assume, given, note
from hypothesis import strategies as st
from oracles import in_a_row, judged
from problem_cases import close
from proven import check_proven
from small_systems import small_system
from strategies import World, busy, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.graph import Graph
from dfopt.documents.request import Request
from dfopt.documents.system import NetworkDim
from dfopt.errors import Infeasible, PlanError
from dfopt.frontends.calculon.execution import shardings as as_there
from dfopt.frontends.calculon.files import Execution
from dfopt.physics.window import Window
from dfopt.regions.facts import Facts
from dfopt.regions.variants import Variants
from dfopt.search.verify import verify
from dfopt.setting.plans import asked_plans
from dfopt.terms.bounds import PlanBounds
from dfopt.workloads import expand
from dfopt.workloads.recompute import recomputed

SECONDS = st.floats(0.0, 10.0)
MORE = st.lists(st.floats(0.0, 3.0), min_size=6, max_size=6)
FIXED: dict[str, Any] = {
    "execution": "kernel_by_kernel",
    "overlap": ["none", "compute_memory"],
    "gradients": "exact",
    "gradient_overlap": ["calculon", "calculon_or_none"],
    "point_to_point_overlap": "exposed",
    "optimizer_step": [None, "adam_once"],
    "compute_model": ["fixed", "efficiency"],
    "empty_partitions": "allow",
    "pieces": False,
    "repeats": (2, 4),
    "trains": True,
}


@given(
    exchange_s=SECONDS, forward_s=SECONDS, memory_s=SECONDS, rest_s=SECONDS, slowed_s=SECONDS, hop_s=SECONDS, more=MORE,
    usage=st.floats(0.0, 0.9), stages=st.integers(1, 6), chunks=st.integers(1, 4), each=st.integers(1, 4),
    rounds=st.integers(1, 3), in_the_way=st.booleans(),
)  # fmt: skip
def test_a_step_that_is_slower_in_every_figure_takes_no_less(
    exchange_s: float, forward_s: float, memory_s: float, rest_s: float, slowed_s: float, hop_s: float,
    more: list[float], usage: float, stages: int, chunks: int, each: int, rounds: int, in_the_way: bool,
) -> None:  # fmt: skip
    """What is shown of the least figures bounds a step of any others, in plans with microbatches for every stage."""
    layers, microbatches = chunks * each, stages * rounds
    chunks = 1 if stages == 1 else chunks
    least = Window(exchange_s, 0.0, memory_s, slowed_s, hop_s, in_the_way, usage)
    lines = least_lines(least, forward_s, stages, chunks, layers)
    often = microbatches + (stages - 1) / chunks
    low = Shown.of_layers(lines, layers, 2 * chunks * hop_s, 0.0, often, np.inf)
    low_s = layers * (forward_s + memory_s + rest_s) + 2 * chunks * hop_s
    ahead_s, lost_s = forward_s + more[1], memory_s + more[2]
    back_s = lost_s + rest_s + more[3]
    there = Window(exchange_s + more[0], back_s, lost_s, slowed_s + more[4], hop_s + more[5], in_the_way, usage)
    stage_s = layers * (ahead_s + back_s) + 2 * chunks * there.hop_s
    step_s = often * stage_s + there.exposed_s(stages, chunks, layers, microbatches)
    assert often * low_s + low.shows_s(low_s) <= step_s * (1 + 1e-9)


def again(world: World, data: st.DataObject) -> World:
    """Some of the forward pass computed again."""
    forward = [kernel.name for kernel in world.graph.kernels if kernel.pass_ == "forward"]
    if not forward or data.draw(st.booleans()):
        return world
    return replace(world, graph=recomputed(world.graph, data.draw(st.sets(st.sampled_from(forward), min_size=1))))


@share(0.6)
@given(world=worlds(roomy=True, weight_tiling="forbid", **FIXED), data=st.data())
def test_judge_search_and_bound_agree(world: World, data: st.DataObject) -> None:
    assume(world.graph.trains)
    world = again(world, data)
    graph, chosen = world.graph, world.assumptions
    mapping, score = drawn_mapping(world, data, in_a_row(world))
    region = check_agreed(world, mapping, score)
    if all(kernel.pass_ != "recompute" for kernel in graph.kernels):  # else the order counts, and regions have one
        assert Facts(region).by_all <= score.step_time_s * (1 + 1e-9)
    if chosen.gradient_overlap == "calculon_or_none":
        one, none = (judged(replace(world, assumptions=chosen.with_(gradient_overlap=way)), mapping).step_time_s
                     for way in ("calculon", None))  # fmt: skip
        assert score.step_time_s == pytest.approx(min(one, none), rel=1e-9)


@share(0.4)
@given(world=worlds(most=4, max_pp=2, sharding_objective="joint", tile_rows=[1, 4], **FIXED), data=st.data())
def test_the_best_is_that_of_brute_force(world: World, data: st.DataObject) -> None:
    assume(world.graph.trains)
    world = again(world, data)
    check_proven(world.graph, world.system, world.assumptions, {"zero": (0, 1)})


# -- rings, unless another way is better -------------------------------------------------------


WAYS = "ring", "pipe_twice", "none"
IN_WAYS = FIXED | {
    "point_to_point": "per_microbatch",
    "schedule": "one_f_one_b",
    "bubble": "one_f_one_b",
    "backward_gathers": [None, "layer"],
    "collective_work": ["first", "first_adds"],
    "operand_traffic": [None, "own", "own_tiled"],
    "tensor_overlap": "ring",
    "training_memory": [None, "calculon"],
    "repeats": (4, 8),
    "network_dims": "parts",
}
"""Every way is tried where what is in the way of an exchange may be less if a layer takes longer."""


@share(0.6)
@given(
    world=worlds(weight_tiling="forbid", sharding_objective="joint", max_pp=4, **IN_WAYS),
    usage=st.sampled_from([0.0, 0.15, 0.9]),
    data=st.data(),
)
def test_what_is_proven_in_rings_holds_in_every_way(world: World, usage: float, data: st.DataObject) -> None:
    world = busy(world, usage)
    assume(world.plan.shards > 1)
    mapping, ring = drawn_mapping(world, data, in_a_row(world))
    setting = world.instance.setting
    scores = {
        way: judged(world, mapping.model_copy(update={"plan": world.plan.model_copy(update={"tensor_overlap": way})}))
        for way in WAYS
    }
    assert ring == scores["ring"]
    for way in WAYS[1:]:
        other = scores[way]
        assert other.feasible <= ring.feasible
        for one, two in zip(ring.partitions, other.partitions, strict=True):
            assert one.network_s <= two.network_s * (1 + 1e-12) and one.memory_s <= two.memory_s * (1 + 1e-12)
    dominated = not Variants(setting, Request(tensor_overlap="any")).other_ways(world.plan)
    if dominated:
        assert ring.step_time_s <= min(one.step_time_s for one in scores.values()) * (1 + 1e-12)
    low = PlanBounds(setting).seconds(world.instance) if ring.feasible else 0.0  # of rings it bounds the other ways
    note(f"{low} against { {way: one.step_time_s for way, one in scores.items()} }")
    assert low <= min(one.step_time_s for one in scores.values()) * (1 + 1e-9)


@st.composite
def in_chunks(draw: st.DrawFn) -> World:
    """Worlds of which two chips share kernels, two stages have two chunks each, and two copies use their network."""
    world = draw(worlds(most=4, max_pp=4, sharding_objective="joint", tile_rows=[4], roomy=True, **IN_WAYS))
    network = [
        NetworkDim(
            name=name, topology="switch", size=size, link_bandwidth=draw(st.sampled_from([5.0, 20.0, 100.0, 500.0])),
            latency=draw(st.sampled_from([0.0, 0.01, 0.3])), processor_usage=draw(st.sampled_from([None, 0.15])),
        )
        for name, size in (("x", 2), ("y", 4))
    ]  # fmt: skip
    system = world.system.model_copy(update={"network": tuple(network)})
    graph = world.graph.model_copy(update={"batch": draw(st.sampled_from([8, 16])), "microbatch": 1})
    try:
        asked_plans(graph, system, Request(**CHUNKS), world.assumptions)
    except PlanError:
        assume(False)
    return replace(world, system=system, graph=graph)


CHUNKS: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "interleave": 2, "zero": (0, 1)}


@share(0.4)
@given(world=in_chunks())
def test_the_best_way_is_that_of_brute_force(world: World) -> None:
    best = [
        found
        for way in WAYS
        if (found := joint_optimum(world.graph, world.system, world.assumptions.hiding(way), Request(**CHUNKS)))
    ]
    asked = {"assumptions": world.assumptions, "tensor_overlap": "any", **CHUNKS}
    try:
        result = optimizer.solve(world.graph, world.system, **asked)
    except Infeasible:
        assert not best
        return
    value = min(one.value for one in best)
    note(f"{result.value} {result.status} {result.bound} against {[one.value for one in best]}")
    assert result.bound <= value * (1 + 1e-9)
    assert result.status == "optimal" and close(value, result.value)
    found = verify(result)
    assert not found.problems, found.problems


def test_a_pipe_is_better_where_it_takes_a_message_out_of_the_way() -> None:
    """A link that is just so slow that, in rings, a chunk's exchange lasts as long as two chunks' backward pass."""
    sizes = {"hidden": 256, "heads": 8, "head_dim": 32, "ffn": 1024, "seq": 128, "layers": 8, "batch": 8}
    graph = expand(
        {"schema": Graph.SCHEMA, "name": "g", "workload": "calculon",
         "parameters": {**sizes, "mode": "training", "qkv": "joined"}}, "g",
    )  # fmt: skip
    dims = [
        NetworkDim(name=name, topology="switch", size=size, link_bandwidth=rate, latency=0.0)
        for name, size, rate in (("x", 2, 1e12), ("y", 4, 1.2216e9))
    ]
    chosen = df.Assumptions(
        execution="kernel_by_kernel", overlap="none", gradient_overlap="calculon", point_to_point_overlap="exposed",
        collective_work="first_adds", operand_traffic="own", backward_gathers="layer", gradient_traffic="written",
    )  # fmt: skip
    pins = as_there(graph, Execution.model_construct(tensor_par=2, tensor_par_comm_type="rs_ag"))
    dims_of = {"tp_dims": ("x",), "pp_dims": ("y[2]",), "dp_dims": ("y[2@2]",)}
    fixed: dict[str, Any] = {"tp": 2, "pp": 2, "dp": 2, "interleave": 4, "zero": 0, **dims_of, "pin_sharding": pins}
    fixed |= {"assumptions": chosen, "sensitivity": False}
    system = small_system(*dims, peak=1e12, bandwidth=1e11, capacity=1e12, compute_utilization=0.9)
    one = {way: df.optimize(graph, system, tensor_overlap=way, **fixed) for way in ("ring", "pipe", "none", "any")}
    assert one["any"].value == one["pipe"].value < one["ring"].value < one["none"].value
    best = one["any"]
    assert (best.status, best.plan.tensor_overlap, best.assumptions.tensor_overlap) == ("optimal", "pipe_twice", "ring")
    assert "but 2 that were told apart" in best.proof and best.plan.label.endswith("TP overlap pipe_twice")
    assert verify(best).verdict.startswith("verified optimal")
    wrong = best.model_copy(update={"plans": tuple(r for r in best.plans if r.plan.tensor_overlap != "none")}).sealed()
    assert any("TP overlap none" in problem for problem in verify(wrong).problems)
