"""Prices, bounds and starts of one fusion against the judge, and what must hold between instances of its MILP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import at_once, fusions, judged, mapping_of, pieces
from problem_cases import better, close, fused, fusion_cases, limits_of, renamed, stage_of, tables_of
from stage_cases import fitting, limited, on_one_chip, unsharded
from strategies import CHOICES, share
from test_lattice import check_all_forms

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.errors import Infeasible
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, price_blocks, tiles_of
from dfopt.fusion.partitioning import IntraChipLimits, lower_bound, objective
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.milp import Termination
from dfopt.terms.sharded_graph import tile_counts

# -- prices -----------------------------------------------------------------------------------


@share(2)
@given(fusion_cases(most=6), st.data())
def test_price_of_a_block_is_the_judges_partition(case, data: st.DataObject) -> None:
    world, sharding, _ = case
    tables = fitting(world, sharding)
    names = [k.name for k in world.graph.kernels]
    level = world.graph.levels()
    cuts = data.draw(st.lists(st.integers(0, 5), max_size=3))
    partition = {n: sum(level[n] > cut for cut in cuts) for n in names}
    mapping = mapping_of(world, sharding, stage_of(world), partition)
    assume(mapping is not None)
    score = judged(world, mapping)
    member = np.array([[partition[n] == part.partition for n in names] for part in score.partitions])
    prices = price_blocks(tables, member)
    for row, part in enumerate(score.partitions):
        assert close(prices.seconds[1, row], part.memory_s)
        assert close(prices.seconds[2, row], part.network_s)
        assert close(prices.dram_bytes[row], part.dram_bytes)
        assert close(prices.seconds[0, row], part.compute_s)
        assert close(prices.time[row], part.time_s)
        count = int(member[row].sum())
        fits = part.sram_bytes <= world.system.chip.sram.capacity * (1 + 1e-6) and count <= world.system.chip.tiles
        tiled = bool((tables.parts_k[member[row]] > 1).any())
        if not (tiled and count > 1):  # such a block is illegal whatever it needs
            assert close(prices.sram_bytes[row], part.sram_bytes)
        members = [kernel for kernel in world.graph.kernels if kernel.name in part.kernels]
        assert bool(prices.legal[row]) == (fits and not (tiled and count > 1) and at_once(world, members))
        said = f"partition {part.partition} of stage 0 holds {count} kernels that no kernel of a library does at once"
        assert at_once(world, members) == (said not in score.violations)


@share(0.5)
@given(fusion_cases(most=5), st.data())
def test_compute_tiles_fit_the_chip_and_reach_the_price(case, data: st.DataObject) -> None:
    world, sharding, _ = case
    tables = fitting(world, sharding)
    block = np.array(sorted(data.draw(st.sets(st.integers(0, tables.kernels - 1), min_size=1))), dtype=np.int64)
    assume(len(block) <= world.system.chip.tiles)
    member = np.zeros((1, tables.kernels), dtype=bool)
    member[0, block] = True
    given_tiles = tiles_of(tables, member)[0, block]
    assert (given_tiles >= 1).all() and given_tiles.sum() <= world.system.chip.tiles
    if world.assumptions.compute_model != "cycle":
        assert given_tiles.sum() == world.system.chip.tiles
        return
    slowest = max(
        float(seconds[used <= given_].min())
        for (used, seconds), given_ in zip((tables.sharded.menus[k] for k in block), given_tiles, strict=True)
    )
    assert close(slowest, float(price_blocks(tables, member).seconds[0, 0]))


@share(1)
@given(fusion_cases(most=5, compute_utilization=None))
def test_lower_bound_and_start_keep_their_word(case) -> None:
    """The bound is below every legal fusion; the greedy start and every cut are legal and never beat the MILP."""
    world, sharding, p_max = case
    tables, limits = limited(*case)
    start = intrachip.greedy(tables, limits)
    found = fused(world, sharding, p_max)
    if start is not None:
        assert found is not None, "a legal start, but no solution"
        mapping = mapping_of(
            world, sharding, stage_of(world), {n: int(p) for n, p in zip(tables.sharded.names, start, strict=True)}
        )
        score = judged(world, mapping)
        legal = {f.score.layer_time_s for f in fusions(world, sharding, stage_of(world), p_max, shrink=False)}
        assert not score.violations
        assert any(close(score.layer_time_s, time) for time in legal)
        assert score.layer_time_s >= found.objective * (1 - 1e-9)
        assert close(score.layer_time_s, objective(tables, start))
    if found is not None:
        assert lower_bound(tables, limits) <= found.objective * (1 + 1e-9)
    free = replace(limits, dram_left=np.inf)
    for order in topological_orders(tables):
        cut = best_segmentation(tables, order, p_max, limits.exactly, limits.forward_backward)
        if cut is not None:
            best = intrachip.optimize_intrachip(tables, free)
            assert best.objective <= cut[0] * (1 + 1e-9)
            assert close(cut[0], objective(tables, cut[1]))


# -- between instances ------------------------------------------------------------------------


@share(1)
@given(fusion_cases(), st.sampled_from(["sram", "dram_bandwidth", "dram_capacity", "peak", "links"]))
def test_a_better_chip_is_never_slower(case, what: str) -> None:
    world, sharding, p_max = case
    before, after = fused(world, sharding, p_max), fused(better(world, what), sharding, p_max)
    if before is not None:
        assert after is not None
        assert after.objective <= before.objective * (1 + 1e-9)


@share(1)
@given(fusion_cases(), st.data())
def test_names_and_order_do_not_matter(case, data: st.DataObject) -> None:
    world, sharding, p_max = case
    graph = world.graph
    graph = graph.model_copy(  # which operand a tensor is may depend on the order of the tensors: say it
        update={"tensors": tuple(t.model_copy(update={"operand": t.operand or 1}) for t in graph.tensors)}
    )
    world = replace(world, graph=graph)
    names = data.draw(st.permutations([k.name for k in graph.kernels]))
    name_of = dict(zip((k.name for k in graph.kernels), (f"z{n}" for n in names), strict=True))
    kernel_order = data.draw(st.permutations(range(len(graph.kernels))))
    tensor_order = data.draw(st.permutations(range(len(graph.tensors))))
    other = replace(world, graph=renamed(graph, name_of, kernel_order, tensor_order))
    one = fused(world, sharding, p_max)
    two = fused(other, {name_of[n]: z for n, z in sharding.items()}, p_max)
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert close(one.objective, two.objective)


@share(1)
@given(fusion_cases(forward_backward=["separate", "shared"], empty_partitions="allow"), st.data())
def test_pins_are_kept_and_optimal(case, data: st.DataObject) -> None:
    world, sharding, p_max = case
    kernel = data.draw(st.integers(0, len(world.graph.kernels) - 1))
    partition = data.draw(st.integers(0, p_max - 1))
    name = world.graph.kernels[kernel].name
    fits = [f for f in fusions(world, sharding, stage_of(world), p_max) if f.partition[name] == partition]
    try:
        tables = tables_of(world, sharding)
        found = intrachip.optimize_intrachip(
            tables, replace(limits_of(world, tables, p_max), pins=((kernel, partition),))
        )
    except Infeasible:
        found = None
    assert (found is None) == (not fits)
    if found is not None:
        assert found.partition_k[kernel] == partition
        assert close(found.objective, min(f.score.layer_time_s for f in fits))


@pytest.mark.parametrize("fanout", ["shared", "per_consumer"])
@pytest.mark.parametrize("tiles_short", [0, 1])
def test_a_deep_buffer_cannot_be_passed_off_as_a_cut(fanout: str, tiles_short: int) -> None:
    """Inside, a long skip needs more SRAM (6 tiles) than cut (2 + 2): the model must not choose which one it is.

    Random graphs are too shallow for this: it takes a skip over more than two levels beyond a double buffer.
    """
    kernels = [Kernel(name=f"k{i}", op="elementwise", m=4, n=4) for i in range(6)]
    ends = [*((i, i + 1) for i in range(5)), (0, 5)]
    tensors = [Tensor(src=f"k{a}", dst=f"k{b}") for a, b in ends]
    tile = 4 * 4 * 2 / 4
    # all in one partition: the skip in six tiles, every other tensor in two; k0 -> k1 lies in the skip's when shared
    need = tile * (6 + 2 * (4 if fanout == "shared" else 5))
    for assumed in ({"overlap": "perfect", "compute_utilization": 1e-3}, {"overlap": "none"}):
        room = {"sram": need - tiles_short * tile, "peak": 1.0}
        world = on_one_chip(kernels, tensors, ends=False, fanout=fanout, tile_rows=1, **room, **assumed)
        case = (world, {kernel.name: "none" for kernel in kernels}, 1)
        check_all_forms(case)
        assert (fused(*case) is None) == bool(tiles_short)


def pair(bytes_left: float) -> tuple[StageTables, IntraChipLimits]:
    """Two kernels and a tensor between them, on a chip with some DRAM left for what waits between partitions."""
    kernels = [Kernel(name=name, op="elementwise", m=4, n=4) for name in "ab"]
    tables = unsharded(on_one_chip(kernels, [Tensor(src="a", dst="b")], ends=False, overlap="none"))
    return tables, IntraChipLimits(p_max=2, dram_left=bytes_left)


def test_no_dram_left_at_all_is_a_limit_like_any_other() -> None:
    tables, limits = pair(0.0)
    found = intrachip.optimize_intrachip(tables, limits, formulation="assignment")
    assert found.partition_k[0] == found.partition_k[1]


def test_a_time_that_a_stopped_solver_left_too_large_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are columns above what partitions take; only at the optimum they meet it."""
    real = intrachip.solve

    def stopped(*given: Any, **more: Any) -> Any:
        solution = real(*given, **more)
        ended = {"termination": Termination.LIMIT_WITH_SOLUTION, "objective": solution.objective * 1.3}
        return replace(solution, **ended, bound=solution.bound / 2)

    monkeypatch.setattr(intrachip, "solve", stopped)
    tables, limits = pair(np.inf)
    found = intrachip.optimize_intrachip(tables, limits, formulation="assignment")
    assert found.objective == objective(tables, found.partition_k)


def test_tile_count_is_the_naive_one() -> None:
    """`pieces` of the oracle is written apart from the tables; here on one graph that has all three streams."""
    kernels = (
        Kernel(name="a", op="gemm", m=2, k=2, n=12),
        Kernel(name="b", op="weight_update", m=2, k=9, n=2),
        Kernel(name="c", op="gemm", m=2, k=2, n=1, stream="none"),
    )
    graph = Graph(name="g", kernels=kernels)
    for rows, expected in ((1, 9), (2, 5), (100, 1)):
        assert pieces(graph, Assumptions(tile_rows=rows)) == expected
        assert tile_counts(graph, Assumptions(tile_rows=rows)) == [expected]


def test_strategies_draw_every_assumption() -> None:
    assert set(CHOICES) == set(Assumptions.model_fields) - {"profile", "schema_"}
