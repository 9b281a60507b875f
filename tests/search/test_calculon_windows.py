"""Exchanges hidden as Calculon counts it: judge, search, bounds and brute force agree, and what dominates what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exposed_by_hand import Shown, least_lines
from given_plans import by_arrays, region_of
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import in_a_row, judged, kinds, mapping_of
from proven import check_proven
from strategies import World, shardings, share, worlds

import dfopt as df
from dfopt.errors import PlanError
from dfopt.physics.window import Window
from dfopt.regions.facts import Facts
from dfopt.terms.bounds import PlanBounds
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
    sharding, places = data.draw(shardings(graph, world.plan, chosen)), in_a_row(world)
    stage = {k.name: kinds(graph).index(k.layer or "layer") for k in graph.kernels}
    mapping = mapping_of(world, sharding, stage, places)
    assert mapping is not None
    score = judged(world, mapping)
    region = region_of(world.instance.setting, mapping)
    assume(region is not None)
    priced = by_arrays(region, mapping)
    assume(priced is not None)
    assert priced.step_s == pytest.approx(score.step_time_s, rel=1e-9)
    if all(kernel.pass_ != "recompute" for kernel in graph.kernels):  # else the order counts, and regions have one
        assert Facts(region).by_all <= score.step_time_s * (1 + 1e-9)
    if not score.violations:
        assert PlanBounds(world.instance.setting).seconds(world.instance) <= score.step_time_s * (1 + 1e-9)
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"execution": "library"}, "kernels that share partitions; use execution: kernel_by_kernel"),
        ({"point_to_point_overlap": "hidden"}, "messages to other stages that are hidden"),
        ({"gradients": "dfmodel"}, "gradients: dfmodel spreads them"),
    ],
)
def test_what_it_is_refused_beside(change: dict[str, str], words: str) -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    chosen = df.Assumptions(**{"execution": "kernel_by_kernel", "gradient_overlap": "calculon", **change})
    with pytest.raises(PlanError, match=words):
        df.optimize(graph, "a100-8", assumptions=chosen)
