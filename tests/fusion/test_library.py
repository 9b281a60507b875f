"""Blocks of a library's kernels: which there are, and that every form finds the best order of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import at_once, best_fusion
from problem_cases import close, fused, fusion_cases, stage_of
from small_systems import small_system
from stage_cases import fitting, lattice_of
from strategies import World, share

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.fusion.library import allowed, several
from dfopt.judge import evaluate
from dfopt.physics import ops
from dfopt.search import solve
from dfopt.workloads import WORKLOADS

Case = tuple[World, dict[str, Sharding], int]


@st.composite
def library_cases(draw: st.DrawFn, most: int = 4) -> Case:
    """A stage on a chip with a library, most of whose kernels are in one of its sets."""
    world, sharding, _ = draw(fusion_cases(most=most, execution="library"))
    graph, p_max = world.graph, draw(st.integers(1, most))
    roles = draw(st.lists(st.sampled_from(["norm", "residual", "bias", "scores", None]), min_size=most, max_size=most))
    kernels = tuple(k.model_copy(update={"role": role}) for k, role in zip(graph.kernels, roles, strict=False))
    return replace(world, graph=graph.model_copy(update={"kernels": kernels})), sharding, p_max


@share(1)
@given(library_cases())
def test_every_form_finds_the_best_of_all_legal_partitionings(case: Case) -> None:
    """Brute force over all assignments of kernels to partitions, with the judge as the price list and the law."""
    world, sharding, p_max = case
    best = best_fusion(world, sharding, stage_of(world), p_max)
    for formulation, lattice in (("columns", True), ("auto", False), ("assignment", False)):
        found = fused(*case, formulation, lattice=lattice)
        assert (found is None) == (best is None), formulation
        if found is not None and best is not None:
            assert close(found.objective, best.score.stages[0].layer_time_s), formulation
            assert found.bound <= found.objective * (1 + 1e-9)
            if not (formulation == "auto" and found.solution.gap > 0):
                assert close(found.bound, found.objective), formulation


@share(1)
@given(library_cases(most=6))
def test_all_blocks_are_listed(case: Case) -> None:
    """Against all sets of kernels: one set of the library, joined, and no way out and in again."""
    world, sharding, _ = case
    tables = fitting(world, sharding)
    kernels, drawn = world.graph.kernels, world.graph.networkx()
    way = {k.name: nx.descendants(drawn, k.name) for k in kernels}

    def convex(names: set[str]) -> bool:
        return all(not (way[b] & names and any(b in way[a] for a in names)) for b in way.keys() - names)

    wanted = {
        frozenset(some)
        for size in range(2, len(kernels) + 1)
        for some in itertools.combinations(range(len(kernels)), size)
        if at_once(world, [kernels[k] for k in some]) and convex({kernels[k].name for k in some})
    }
    found = [frozenset(block.tolist()) for block in several(tables.sharded)]
    assert set(found) == wanted and len(found) == len(wanted)


def machine(sram: float = 1e9) -> System:
    return small_system(execution="kernel_by_kernel", compute_utilization=1.0, sram=sram)


LIBRARY = Assumptions(execution="library")
LAYER = {"hidden": 64, "heads": 8, "kv_heads": 2, "head_dim": 8, "ffn": 96, "vocab": 500, "seq": 64, "causal": True}


def partitions(result: Result) -> list[set[str]]:
    return [set(part.kernels) for part in result.score.partitions]


def test_a_layer_runs_the_kernels_that_libraries_have() -> None:
    graph = WORKLOADS["decoder"](**LAYER)
    found = partitions(solve(graph, machine(), assumptions=LIBRARY))
    fused = [part for part in found if len(part) > 1]
    assert fused == [
        {"Residual_In", "RMSNorm_1"},
        {"QK", "Softmax", "AV"},
        {"Add_1", "RMSNorm_2"},
        {"Gate_Proj", "Up_Proj", "Act_Mul"},
    ]
    free = solve(graph, machine(), assumptions=Assumptions(execution="dataflow", overlap="compute_memory"))
    alone = solve(graph, machine(), assumptions=Assumptions(execution="kernel_by_kernel"))
    library = solve(graph, machine(), assumptions=LIBRARY)
    assert free.step_time_s < library.step_time_s < alone.step_time_s
    assert library.step_time_s == solve(graph, machine()).step_time_s  # as auto says of such a chip
    assert alone.step_time_s == solve(graph, machine(), assumptions=Assumptions(execution="chip")).step_time_s


def test_scores_take_no_sram_and_no_traffic_inside_attention() -> None:
    """Whatever the batch: a kernel of a library keeps them in tiles of its own size."""
    small, large = (
        solve(WORKLOADS["decoder"](**LAYER, microbatch=size), machine(), assumptions=LIBRARY) for size in (1, 16)
    )
    for result, size in ((small, 1), (large, 16)):
        attention = next(part for part in result.score.partitions if "QK" in part.kernels)
        heads, word, tile = 8 * 8, 2, size * 64 / result.mapping.tile_count
        q_and_out, k_and_v = 2 * heads, 2 * 2 * 8
        assert attention.dram_bytes == word * size * 64 * (q_and_out + k_and_v)
        assert attention.sram_bytes == 2 * word * tile * (q_and_out + k_and_v)


def test_scores_that_fit_no_sram_are_done_by_a_library() -> None:
    graph = WORKLOADS["decoder"](**LAYER, microbatch=256)
    with pytest.raises(Infeasible, match="'Softmax' alone needs"):
        solve(graph, machine(sram=5e5), assumptions=Assumptions(execution="kernel_by_kernel"))
    assert {"QK", "Softmax", "AV"} in partitions(solve(graph, machine(sram=5e5), assumptions=LIBRARY))
    with pytest.raises(Infeasible, match="of SRAM"):
        solve(graph, machine(sram=5e4), assumptions=LIBRARY)


def test_the_backward_pass_of_attention_is_one_kernel_that_computes_the_scores_again() -> None:
    kept, again = (WORKLOADS["decoder"](**LAYER, mode="training", recompute=each) for each in ("none", "attention"))
    Graph.from_data(again.to_data())  # it is a graph like any other
    rules = LIBRARY.with_(masked_scores="skipped")  # half a square, kept or not
    with_scores, without = (solve(graph, machine(), assumptions=rules) for graph in (kept, again))
    assert {
        "QK_again", "Softmax_again", "AV_bwd_scores", "AV_bwd_values", "Softmax_bwd", "QK_bwd_queries", "QK_bwd_keys"
    } in partitions(without)  # fmt: skip
    flop = {kernel.name: ops.flop(kernel) for kernel in again.kernels}
    more = without.score.flop_per_step - with_scores.score.flop_per_step
    assert more == flop["QK"] + flop["Softmax"] == flop["QK_again"] + flop["Softmax_again"]
    scores = kept.output_bytes("Softmax")
    states = [result.score.stages[0].states["dram"]["activations"] for result in (with_scores, without)]
    assert states[0] - states[1] == scores
    traffic = [sum(part.dram_bytes for part in result.score.partitions) for result in (with_scores, without)]
    assert traffic[0] - traffic[1] >= 2 * scores  # written once, read once at least


def test_what_no_kernel_of_a_library_does_is_a_broken_limit() -> None:
    kernels = tuple(Kernel(name=name, op="elementwise", m=4, n=4, role="norm") for name in "abc")
    graph = Graph(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"),))

    def said(**partition: int) -> tuple[str, ...]:
        places = tuple(KernelMapping(name=name, partition=place) for name, place in partition.items())
        mapping = Mapping(graph="g", system="s", plan=Plan(), kernels=places, tile_count=4)
        return evaluate(mapping, graph, machine(), LIBRARY).violations

    assert said(a=0, b=0, c=1) == ()
    apart = "partition 0 of stage 0 holds 3 kernels that no kernel of a library does at once"
    assert said(a=0, b=0, c=0) == (apart,)  # one set, but nothing joins the third
    mixed = graph.model_copy(update={"kernels": (kernels[0], kernels[1].model_copy(update={"role": "up"}), kernels[2])})
    graph = mixed
    assert said(a=0, b=0, c=1) == (apart.replace("3", "2"),)


def test_how_many_mappings_there_are_is_not_counted() -> None:
    space = solve(WORKLOADS["decoder"](**LAYER), machine(), assumptions=LIBRARY).space
    assert not space.exact and space.log10_fusions == 0.0


def test_the_joint_search_finds_what_two_levels_find_or_better() -> None:
    graph, together = WORKLOADS["decoder"](**LAYER), LIBRARY.with_(sharding_objective="joint")
    best = solve(graph, machine(), assumptions=together)
    assert best.status == "optimal"
    assert best.value <= solve(graph, machine(), assumptions=LIBRARY).value
    assert {"QK", "Softmax", "AV"} in partitions(best)


@share(1)
@given(library_cases(most=6))
def test_steps_of_a_lattice_are_all_pairs_with_a_block_of_the_library_between_them(case: Case) -> None:
    world, sharding, _ = case
    tables = fitting(world, sharding)
    sets = lattice_of(tables, "separate")
    steps = sets.steps(tables)
    assert (sets.member[steps.after] & ~sets.member[steps.before] == steps.member[steps.block]).all()
    assert (steps.of(steps.before, steps.after) == steps.block).all()
    pairs = list(itertools.product(range(len(sets.size)), repeat=2))
    inside = [(i, j) for i, j in pairs if i != j and not (sets.member[i] & ~sets.member[j]).any()]
    blocks = sets.member[[j for _, j in inside]] & ~sets.member[[i for i, _ in inside]]
    legal = allowed(tables.sharded, blocks)
    wanted = [pair for pair, one in zip(inside, legal.tolist(), strict=True) if one]
    assert list(zip(steps.before.tolist(), steps.after.tolist(), strict=True)) == wanted
