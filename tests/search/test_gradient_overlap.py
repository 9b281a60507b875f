"""Gradients behind the backward pass: judge, search and bounds agree."""

from __future__ import annotations

import json
from dataclasses import replace

import networkx as nx
import pytest
from given_plans import by_arrays, region_of
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, kinds, mapping_of
from strategies import World, shardings, share, worlds
from typer.testing import CliRunner

import dfopt as df
from dfopt.cli import app
from dfopt.errors import PlanError
from dfopt.regions.facts import Facts
from dfopt.search.verify import verify
from dfopt.show.omissions import left_out
from dfopt.terms.bounds import PlanBounds

BEHIND = df.Assumptions(gradient_overlap="backward")
FIXED = {
    "gradient_overlap": None,
    "gradients": "exact",
    "empty_partitions": "allow",
    "weight_tiling": "forbid",
    "compute_model": "fixed",
}


def behind(world: World) -> World:
    return replace(world, assumptions=world.assumptions.with_(gradient_overlap="backward"))


def stage_of(world: World) -> dict[str, int]:
    return {k.name: kinds(world.graph).index(k.layer or "layer") for k in world.graph.kernels}


def in_a_row(world: World, data: st.DataObject) -> dict[str, int]:
    """Partitions of kernels that follow one another, the forward pass first."""
    graph = world.graph
    drawn = nx.DiGraph((t.src, t.dst) for t in graph.tensors)
    drawn.add_nodes_from(kernel.name for kernel in graph.kernels)
    ahead = {kernel.name: kernel.pass_ == "forward" for kernel in graph.kernels}
    order = list(nx.lexicographical_topological_sort(drawn, key=lambda name: (not ahead[name], name)))
    alone, number, places = world.assumptions.execution == "kernel_by_kernel", 0, dict[str, int]()
    for before, name in zip([order[0], *order], order, strict=False):
        number += alone or ahead[before] != ahead[name] or data.draw(st.integers(0, 1))
        places[name] = number
    return places


@share(0.4)
@given(world=worlds(trains=True, repeats=(2, 4), roomy=True, **FIXED), data=st.data())
def test_judge_search_and_bound_agree(world: World, data: st.DataObject) -> None:
    """Of any mapping: the search says what the judge does, which no bound exceeds, and hiding never costs."""
    graph, hidden = world.graph, behind(world)
    assume(graph.trains and world.plan.copies > 1)
    sharding = data.draw(shardings(graph, world.plan, world.assumptions))
    places = in_a_row(world, data)
    mapping = mapping_of(world, sharding, stage_of(world), places)
    assert mapping is not None
    after, score = judged(world, mapping), judged(hidden, mapping)
    assert score.step_time_s <= after.step_time_s * (1 + 1e-12)
    assert score.gradient_link_s == after.gradient_reduction_s
    assert score.breakdown.data_parallel_s == score.gradient_reduction_s
    region = region_of(hidden.instance.setting, mapping)
    assume(region is not None)
    priced = by_arrays(region, mapping)
    assume(priced is not None)
    assert priced.step_s == pytest.approx(score.step_time_s, rel=1e-9)
    if score.violations:  # nothing is said of what is not legal
        return
    assert Facts(region).by_all <= score.step_time_s * (1 + 1e-9)
    assert PlanBounds(hidden.instance.setting).seconds(hidden.instance) <= score.step_time_s * (1 + 1e-9)


def waits_as_by_hand(result: df.Result) -> bool:
    """Of 12 layers the first waits; of the others what takes longer than the backward pass of a layer, if it does."""
    score, passes = result.score, {k.name: k.pass_ for k in result.graph.kernels}
    assert score.gradient_link_s is not None
    back = sum(p.time_s for p in score.partitions if all(passes[name] != "forward" for name in p.kernels))
    added = score.gradient_link_s / 12
    assert score.gradient_reduction_s == pytest.approx(added + 11 * max(added - back, 0.0), rel=1e-9)
    assert verify(result).ok
    return added > back


def test_slow_links_by_hand() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    system = df.load_system("a100-8", {"network.nvlink.link_bandwidth": "5 GB/s"})
    result = df.optimize(graph, system, assumptions=BEHIND, tp=1, pp=1)
    assert waits_as_by_hand(result) and result.gap < 1e-3
    assert "gradients reduced" not in left_out(result)


def test_what_it_is_refused_beside() -> None:
    graph = df.load_graph("gpt2-small", mode="training", batch=16)
    with pytest.raises(PlanError, match="gradient_overlap: found backward beside formulation: assignment"):
        df.optimize(graph, "sn10-8-ring", assumptions=BEHIND, formulation="assignment")
    with pytest.raises(PlanError, match="beside gradients: dfmodel spreads them"):
        df.optimize(graph, "a100-8", assumptions=BEHIND.with_(gradients="dfmodel"))


def test_command_line_and_fast_links_by_hand() -> None:
    asked = [
        "solve",
        "gpt2-small",
        "a100-8",
        "--param",
        "mode=training",
        "--param",
        "batch=16",
        "--tp",
        "1",
        "--assume",
        "ideal",
    ]
    found = CliRunner().invoke(app, [*asked, "--pp", "1", "--set", "gradient_overlap=backward", "--json"])
    assert found.exit_code == 0
    assert not waits_as_by_hand(df.Result.from_data(json.loads(found.stdout)))
    found = CliRunner().invoke(app, [*asked, "--set", "gradient_overlap=forward"])
    assert found.exit_code == 3 and "gradient_overlap" in found.stderr
