"""The best mapping by regions, and the answer to a question, against brute force over plans, schemes and partitions."""

from __future__ import annotations

from typing import Any

import pytest
from block_cases import heavy, needing_blocks
from brute import joint_optimum
from covered import asked_of, covered, in_token_blocks, jointly
from hypothesis import assume, given
from hypothesis import strategies as st
from proven import check_proven
from strategies import World, share

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Limit, Objective, Request
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import PlanError
from dfopt.search.verify import verify


@share(1)
@given(covered(), st.data())
def test_nothing_is_better(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(0.5)
@given(covered(), st.sampled_from([0.9, 1 - 1e-6, 1.0, 1.05, 1.5]), st.data())
def test_an_objective_limit_is_kept(world: World, of_best: float, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    try:
        best = joint_optimum(world.graph, world.system, jointly(world), Request(**asked))
    except PlanError:
        assume(False)
    assume(best is not None)
    limit = Limit(metric="step_time", at_most=of_best * best.value)
    check_proven(world.graph, world.system, jointly(world), {**asked, "objective": Objective(limits=(limit,))})


@share(0.5)
@given(covered(repeats=(4,), trains=True), st.data())
def test_nothing_is_better_of_what_trains_in_layers(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(1)
@given(in_token_blocks(), st.data())
def test_nothing_is_better_in_blocks_of_tokens(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(1)
@given(needing_blocks(heavy()), st.data())
def test_nothing_is_better_in_blocks_of_tokens_that_chips_share(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(1)
@given(covered(most=4, compute_model="cycle", tile_rows=None), st.data())
def test_nothing_is_better_in_any_number_of_tiles(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(1)
@given(covered(memory=True, compute_model="efficiency", execution=["library", "kernel_by_kernel"]), st.data())
def test_nothing_is_better_with_shares_of_bandwidth(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


@share(0.5)
@given(covered(repeats=(1,), most=4), st.data())
def test_nothing_is_better_of_kernels_in_any_pipeline_stage(world: World, data: st.DataObject) -> None:
    asked = asked_of(world, data.draw)
    assume(asked["pp"] > 1)
    check_proven(world.graph, world.system, jointly(world), asked)


@pytest.mark.nightly
@given(covered(), st.data())
def test_nothing_is_better_nightly(world: World, data: st.DataObject) -> None:
    check_proven(world.graph, world.system, jointly(world), asked_of(world, data.draw))


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
    chip = Chip(name="c", tiles=2, peak=300, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100))
    pair = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=20000)
    system = System(name="s", chip=chip, network=(pair,))
    result = df.optimize(graph, system, tp=2, pp=1, sensitivity=False)
    shown = verify(result)
    assert shown.ok, shown.problems
