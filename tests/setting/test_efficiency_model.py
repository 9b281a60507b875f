"""The efficiency model in the problems: what must hold between tables of shares, and beside the fixed model.

That MILP, brute force and judge agree under it, the other property tests show: their worlds draw tables too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import all_shards, judged, mapping_of
from problem_cases import close, fused, fusion_cases, stage_of, tables_of
from sharded_cases import shard
from strategies import World, share, worlds

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, EfficiencyRow, NetworkDim, Sram, System
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import tiles_of
from dfopt.physics.ops import streamed_rows
from dfopt.sharding import interchip
from dfopt.terms.bounds import PlanBounds
from dfopt.terms.sharded_graph import tile_counts


def with_table(world: World, rows: tuple[EfficiencyRow, ...]) -> World:
    chip = world.system.chip.model_copy(update={"efficiency": rows})
    return replace(world, system=world.system.model_copy(update={"chip": chip}))


@share(1)
@given(worlds(most=4, compute_model="efficiency", tile_rows=[None, 1, 2]), st.sampled_from([0.3, 0.9, 1.0]))
def test_one_share_is_the_fixed_model(world: World, part: float) -> None:
    """To the last digit: the same mapping, the same score."""
    one_share = tuple(EfficiencyRow(unit=unit, share=part) for unit in ("matrix", "vector"))
    fixed = world.assumptions.with_(compute_model="fixed", compute_utilization=part)
    p_max = None if world.assumptions.execution == "kernel_by_kernel" else 2

    def solved(one: World):
        try:
            return optimizer.solve(one.graph, one.system, assumptions=one.assumptions, p_max=p_max)
        except Infeasible:
            return None

    table, plain = solved(with_table(world, one_share)), solved(replace(world, assumptions=fixed))
    assert (table is None) == (plain is None)
    if table is not None and plain is not None:
        assert (table.mapping, table.score) == (plain.mapping, plain.score)
        assert table.level_bound == plain.level_bound


@share(1)
@given(fusion_cases(most=4, compute_model="efficiency"), st.data())
def test_a_higher_share_never_hurts(case, data: st.DataObject) -> None:
    world, sharding, p_max = case
    rows = list(world.system.chip.efficiency)
    raised = data.draw(st.integers(0, len(rows) - 1))
    rows[raised] = rows[raised].model_copy(update={"share": (rows[raised].share + 1) / 2})
    other = with_table(world, tuple(rows))
    bounds = [PlanBounds(w.instance.setting).seconds(w.instance) for w in (world, other)]
    assert bounds[1] <= bounds[0] * (1 + 1e-12)
    before, after = (fused(w, sharding, p_max) for w in (world, other))
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.objective <= before.objective * (1 + 1e-9)
    mapping = mapping_of(world, sharding, stage_of(world), {k.name: 0 for k in world.graph.kernels})
    if mapping is not None:
        assert judged(other, mapping).step_time_s <= judged(world, mapping).step_time_s * (1 + 1e-12)


@share(1)
@given(fusion_cases(most=5, compute_model="efficiency"), st.integers(1, 8))
def test_tile_counts_and_tiles(case, tiles: int) -> None:
    """The number of tiles changes no time; compute tiles are shared out in proportion to the times."""
    world, sharding, _ = case
    sharded = shard(world.instance, sharding)
    other = shard(world.instance, sharding, tiles)
    assert np.array_equal(other.compute_k, sharded.compute_k) and other.menus == sharded.menus == ()
    assert tile_counts(world.graph, world.assumptions.with_(tile_rows=None)) == [streamed_rows(world.graph)]
    try:
        tables = tables_of(world, sharding)
    except Infeasible:
        return
    block = np.arange(min(tables.kernels, tables.chip.tiles))
    found = tiles_of(tables, np.arange(tables.kernels)[None] < len(block))[0, block]
    spare = tables.chip.tiles - len(block)
    even = spare * tables.sharded.compute_k[block] / tables.sharded.compute_k[block].sum()
    assert found.sum() == tables.chip.tiles and (abs(found - 1 - even) < 1).all()


def two_chips(*rows: EfficiencyRow) -> World:
    """One product of 1024 FLOP on two chips of 1000 FLOP/s with fast links; unsharded or split in halves."""
    graph = Graph(name="g", kernels=(Kernel(name="a", op="matmul", m=4, k=8, n=16),))
    table = (*rows, EfficiencyRow(unit="vector", share=1.0))
    machine = Chip(name="c", tiles=8, peak=1e3, sram=Sram(capacity=1e9), dram=Dram(bandwidth=1e9), efficiency=table)
    dim = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=1e9)
    system = System(name="s", chip=machine, network=(dim,))
    assumptions = Assumptions(compute_model="efficiency", overlap="perfect", execution="dataflow", tile_rows=1)
    return World(graph, system, Plan(tp=2, tp_dims=("x",)), assumptions)


@pytest.mark.parametrize("large, scheme, seconds", [(0.9, "none", 1.024 / 0.9), (0.5, "m", 0.512 / 0.3)])
def test_a_kernel_stays_whole_where_its_halves_are_too_small(large: float, scheme: str, seconds: float) -> None:
    """1024 FLOP at 0.9 are faster than 512 at 0.3; at 0.5 they are not. Nothing here looks at the finest split only."""
    world = two_chips(
        EfficiencyRow(unit="matrix", flop=1024.0, share=large), EfficiencyRow(unit="matrix", flop=512.0, share=0.3),
        EfficiencyRow(unit="matrix", share=0.1),
    )  # fmt: skip
    assert {s.sharding["a"] for s in all_shards(world)} == {"m", "k", "none"}
    tables = interchip.build(world.instance)
    assert interchip.optimize_interchip(world.instance.setting, tables).sharding == {"a": scheme}
    assert close(PlanBounds(world.instance.setting).seconds(world.instance), seconds)
    result = optimizer.solve(
        world.graph, world.system, assumptions=world.assumptions, tp=2, sensitivity=True, time_limit=20
    )
    assert result.level_gap == 0.0 and close(result.step_time_s, seconds)
    assert close(result.utilization, 1.024 / seconds / 2)
    more = {one.resource: one.speedup for one in result.sensitivity}
    assert close(more["compute"], 1.1) and close(more["sram"], 1.0)
