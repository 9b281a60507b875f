"""Prices of all intervals of an order, and the cheapest cut of it, against the prices of blocks one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from problem_cases import all_blocks, close, partitionings, stages, tables_of, tight_stages
from sharded_cases import shard
from strategies import World, plans_on, share

from dfopt.arrays import Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.fusion import intervals
from dfopt.fusion.blocks import StageTables, part_of, price_blocks, stage_tables
from dfopt.fusion.intervals import price_intervals
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.machines.compose import load_system
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
from dfopt.terms.chip import chip_of
from dfopt.workloads import load_graph


def orders(tables: StageTables, forward_first: bool = False) -> list[Ints]:
    """All topological orders of a stage."""
    sharded, n = tables.sharded, tables.kernels
    drawn = nx.DiGraph((a, b) for a, b in zip(sharded.src_t.tolist(), sharded.dst_t.tolist(), strict=True) if b < n > a)
    drawn.add_nodes_from(range(n))
    if forward_first:
        ahead = sharded.forward_k
        drawn.add_edges_from(itertools.product(np.flatnonzero(ahead).tolist(), np.flatnonzero(~ahead).tolist()))
    return [np.array(order, dtype=np.int64) for order in nx.all_topological_sorts(drawn)]


@given(st.one_of(stages(), tight_stages()), st.sampled_from([1, 2, 3, 512]), st.integers(1, 6))
def test_an_interval_costs_what_its_block_costs(stage, rows: int, longest: int) -> None:
    tables, limits = stage
    rule, n = limits.forward_backward, tables.kernels
    blocks = all_blocks(tables, rule)
    for order in orders(tables):
        found = np.full((n, n + 1), np.inf)
        with patch.object(intervals, "_ROWS", rows):
            for band in price_intervals(tables, order, rule, longest):
                height, width = band.time.shape
                found[band.first : band.first + height, band.first + 1 : band.first + 1 + width] = band.time
        for i in range(n):
            for j in range(n + 1):
                seconds = blocks.seconds[(2 ** order[i:j]).sum()] if i < j <= i + longest else np.inf
                assert np.isfinite(found[i, j]) == np.isfinite(seconds), (order, i, j)
                assert not np.isfinite(seconds) or close(found[i, j], seconds, 1e-9), (order, i, j)


@share(0.4)
@pytest.mark.parametrize("rule", ["separate", "halves", "shared"])
@given(rows=st.sampled_from([1, 2, 512]), data=st.data())
def test_no_cut_of_an_order_is_cheaper_than_the_best(rule: str, rows: int, data: st.DataObject) -> None:
    tables, limits = data.draw(stages(forward_backward=rule, trains=None if rule == "shared" else True))
    skips = limits.forward_backward == "halves" and not limits.exactly and limits.p_max > 3
    assume(not skips)  # see test_under_halves_a_partition_in_the_middle_may_stay_empty
    order = data.draw(st.sampled_from(orders(tables, limits.forward_backward == "separate")))
    partition_k, seconds = partitionings(tables, replace(limits, dram_left=np.inf))
    cuts = (np.diff(partition_k[:, order], axis=1) >= 0).all(axis=1)
    with patch.object(intervals, "_ROWS", rows):
        found = best_segmentation(tables, order, limits.p_max, limits.exactly, limits.forward_backward)
    note(f"found {found}")
    assert (found is None) == (not cuts.any())
    if found is not None:
        assert close(found[0], seconds[cuts].min())
        assert close(found[0], objective(tables, found[1]))
        assert (found[1] == partition_k[cuts]).all(axis=1).any()


@pytest.mark.parametrize("rows", [2, 7])
def test_bands_of_a_large_graph_fit_together(rows: int) -> None:
    tables = large()
    for order in topological_orders(tables):
        whole = list(price_intervals(tables, order, "separate", 9))
        assert len(whole) == 1
        with patch.object(intervals, "_ROWS", rows):
            bands = list(price_intervals(tables, order, "separate", 9))
        assert [band.first for band in bands] == list(range(0, tables.kernels, rows))
        for band in bands:
            height, width = band.time.shape
            same = whole[0].time[band.first : band.first + height, band.first : band.first + width]
            np.testing.assert_allclose(band.time, same, rtol=1e-9)
            beyond = whole[0].time[band.first : band.first + height, band.first + width :]
            assert np.isinf(beyond).all()


def test_an_interval_fits_the_chip_when_its_block_does() -> None:
    tables = large()
    n = tables.kernels
    for order in topological_orders(tables):
        i, j = np.nonzero(np.tri(n, dtype=bool).T)
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        member = (i[:, None] <= place) & (place <= j[:, None])
        needed = price_blocks(tables, member).sram_bytes
        for room in np.quantile(needed, [0.1, 0.3, 0.5, 0.7, 0.9]) * (1 + 1e-6):
            smaller = replace(tables, chip=replace(tables.chip, sram=float(room)))
            (band,) = price_intervals(smaller, order, "shared", n)
            prices = price_blocks(smaller, member)
            expected = np.where(prices.legal, prices.time, np.inf)
            np.testing.assert_allclose(band.time[i, j], expected, rtol=1e-9)


def large() -> StageTables:
    """A GPT layer with its backward pass: 41 kernels, fan-out and skips over many levels."""
    graph, system = load_graph("gpt3-175b", mode="training"), load_system("sn10-8-ring")
    chosen = resolve(Assumptions(), system.chip.execution, system.chip.compute_utilization)
    plan = plans_on(graph, system, pp=8)[0][0]
    sharded = shard(Setting(graph, system, chosen).under(plan), {k.name: "none" for k in graph.kernels})
    return stage_tables(sharded, chip_of(system, chosen))


@given(stages(most=6), st.data())
def test_a_block_costs_the_same_in_any_part_of_its_stage(stage, data: st.DataObject) -> None:
    tables, _ = stage
    kernels = st.sets(st.integers(0, tables.kernels - 1), min_size=1)
    members = np.array(sorted(data.draw(kernels)), dtype=np.int64)
    partition_k = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(members), max_size=len(members))))
    inside = partition_k == np.arange(3)[:, None]
    whole = np.zeros((3, tables.kernels), dtype=bool)
    whole[:, members] = inside
    same_prices(price_blocks(part_of(tables, members), inside), price_blocks(tables, whole))


def same_prices(one, other) -> None:
    np.testing.assert_array_equal(one.legal, other.legal)
    for name in ("seconds", "time", "dram_bytes", "sram_bytes"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, err_msg=name)


def elementwise(ends: list[tuple[str, str]], passes: dict[str, str] | None = None, **assumptions) -> StageTables:
    """Elementwise kernels in the order of their names, each larger than the next, on a roomy chip."""
    names = sorted({name for pair in ends for name in pair})
    kernels = tuple(
        Kernel(name=name, op="elementwise", m=2 * (len(names) - i), n=4, pass_=(passes or {}).get(name, "forward"))
        for i, name in enumerate(names)
    )
    graph = Graph(name="g", kernels=kernels, tensors=tuple(Tensor(src=a, dst=b) for a, b in ends))
    chosen = Assumptions(overlap="none", execution="dataflow", compute_utilization=1.0, **assumptions)
    return tables_of(World(graph, load_system("sn10-8-ring"), Plan(), chosen), {name: "none" for name in names})


def test_groups_of_a_part_are_numbered_as_their_tensors_come_up() -> None:
    """Else, where one tensor of each group is left, pricing would take a group for another one's tensor."""
    tables = elementwise([("a", "b"), ("c", "d"), ("a", "e")], fanout="shared")
    assert tables.sharded.group_t.tolist() == [0, 1, 0]
    members = np.array([2, 3, 4])  # without a and b: groups 1 and 0
    part = part_of(tables, members)
    assert part.sharded.group_t.tolist() == [0, 1]
    same_prices(price_blocks(part, np.eye(3, dtype=bool)), price_blocks(tables, np.eye(5, dtype=bool)[members]))


def test_under_halves_a_partition_in_the_middle_may_stay_empty() -> None:
    """Of four partitions two are for each pass, and one block of each is enough."""
    tables = elementwise([("a", "b"), ("b", "c")], {"c": "backward"})
    limits = IntraChipLimits(p_max=4, forward_backward="halves")
    found = best_segmentation(tables, np.arange(3), limits.p_max, limits.exactly, limits.forward_backward)
    assert found is not None
    assert close(found[0], partitionings(tables, limits)[1].min())
