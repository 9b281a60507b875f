"""The best mapping by regions, and the answer to a question, against brute force over plans, schemes and partitions."""

from __future__ import annotations

from typing import Any

import pytest
from block_cases import heavy, needing_blocks
from covered import asked_of, covered, in_token_blocks, jointly, optimum_of_some
from hypothesis import assume, given
from hypothesis import strategies as st
from proven import check_proven
from small_systems import rings, small_system
from strategies import World, share

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Limit, Objective
from dfopt.search.verify import verify

WORLDS = {
    "of any kind": covered(),
    "in blocks of tokens": in_token_blocks(),
    "in blocks of tokens that chips share": needing_blocks(heavy()),
    "in any number of tiles": covered(most=4, compute_model="cycle", tile_rows=None),
    "with shares of bandwidth": covered(
        memory=True, compute_model="efficiency", execution=["library", "kernel_by_kernel"]
    ),
}


@pytest.mark.parametrize("worlds", WORLDS.values(), ids=WORLDS)
@share(1, nightly=0.5)
@given(st.data())
def test_nothing_is_better(worlds: st.SearchStrategy[World], data: st.DataObject) -> None:
    world = data.draw(worlds)
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(0.5)
@given(covered(), st.sampled_from([0.9, 1 - 1e-6, 1.0, 1.05, 1.5]), st.data())
def test_an_objective_limit_is_kept(world: World, of_best: float, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    best = optimum_of_some(world, asked)
    assume(best is not None)
    limit = Limit(metric="step_time", at_most=of_best * best.value)
    check_proven(world.graph, world.system, jointly(world), {**asked, "objective": Objective(limits=(limit,))})


@share(0.5)
@given(covered(repeats=(4,), trains=True), st.data())
def test_nothing_is_better_of_what_trains_in_layers(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(0.5)
@given(covered(repeats=(1,), most=4), st.data())
def test_nothing_is_better_of_kernels_in_any_pipeline_stage(world: World, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    assume(asked["pp"] > 1)
    check_proven(world.graph, world.system, jointly(world), asked)


@pytest.mark.parametrize(
    ("graph", "system", "parameters", "seconds"),
    [
        ("gpt2-small", "sn10-8-ring", {}, 0.06643777536),
        ("llama-3.1-70b", "h100-8", {}, 7.2322409102),
        ("gpt3-175b", "sn10-8-torus", {}, 762.8944048128),
        ("llama-3.1-8b", "h100-8", {"mode": "training"}, 3.17093830186),
    ],
)
def test_questions_of_the_zoo_have_their_answers(
    graph: str, system: str, parameters: dict[str, Any], seconds: float
) -> None:
    """As a search that was written apart from this one, plan by plan, has found and proven them."""
    result = df.optimize(df.load_graph(graph, **parameters), system, sensitivity=False, assumptions=df.Assumptions())
    assert result.status == "optimal"
    assert result.value == pytest.approx(seconds, rel=1e-9)
    assert result.bound == pytest.approx(seconds, rel=1e-9)


def test_tiles_are_as_large_as_the_options_of_a_mapping_ask_for() -> None:
    """Tiles of which every chip has rows are for options that share them, where others are as good, too."""
    kernels = Kernel(name="up", op="gemm", m=9, k=4, n=6), Kernel(name="down", op="gemm", m=4, k=9, n=6)
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=(Tensor(src="up", dst="down"),))
    system = small_system(*rings(2, rate=20000), tiles=2, peak=300, sram=1e6)
    result = df.optimize(graph, system, tp=2, pp=1, sensitivity=False)
    shown = verify(result)
    assert shown.ok, shown.problems
