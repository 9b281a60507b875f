"""Kernels that are alike in every price, and prices of all intervals of an order against those of blocks one by one."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from problem_cases import all_blocks, close, partitionings, stages, tight_stages
from stage_cases import on_eight_chips, on_one_chip, unsharded
from strategies import share

from dfopt.arrays import Ints
from dfopt.documents.graph import Kernel, Tensor
from dfopt.fusion import intervals
from dfopt.fusion.blocks import StageTables, part_of, price_blocks
from dfopt.fusion.classes import KernelClasses, interchangeable
from dfopt.fusion.intervals import price_intervals
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.fusion.segments import best_segmentation, topological_orders
from dfopt.workloads import load_graph


def neighbours(tables: StageTables, classes: KernelClasses, kernel: int) -> Counter[tuple[object, ...]]:
    """Tensors of a kernel by what they are: in or out, class of the group, depth, class of the other end."""
    sharded = tables.sharded
    class_k = [*classes.class_k.tolist(), "outside"]
    found: Counter[tuple[object, ...]] = Counter()
    for a, b, g, depth in zip(sharded.src_t, sharded.dst_t, sharded.group_t, sharded.depth_t, strict=True):
        if a == kernel:
            found["out", classes.group_g[g], depth, class_k[b]] += 1
        if b == kernel:
            found["in", classes.group_g[g], depth, class_k[a]] += 1
    return found


def consumers(tables: StageTables, classes: KernelClasses, group: int) -> Counter[tuple[object, ...]]:
    """Tensors of a fan-out group by depth and class of the consumer, with the group's own figures."""
    sharded = tables.sharded
    class_k = [*classes.class_k.tolist(), "outside"]
    mine = np.flatnonzero(sharded.group_t == group)
    found: Counter[tuple[object, ...]] = Counter((sharded.depth_t[t], class_k[sharded.dst_t[t]]) for t in mine)
    found["source", class_k[tables.src_g[group]], tables.bytes_g[group], tables.tile_g[group]] += 1
    return found


@given(stages(most=4, copies=(1, 2, 2, 3)))
def test_kernels_of_a_class_are_alike(stage) -> None:
    tables, _ = stage
    sharded = tables.sharded
    classes = interchangeable(tables)
    alone = price_blocks(tables, np.eye(tables.kernels, dtype=bool))
    for k, c in enumerate(classes.class_k.tolist()):
        first = int(classes.first_c[c])
        assert classes.class_k[first] == c
        for per_k in (sharded.forward_k, sharded.compute_k, tables.sram_k, tables.mem_k, sharded.net_k, tables.parts_k):
            assert per_k[k] == per_k[first]
        if sharded.menus:
            assert (tables.tiles_kl[k] == tables.tiles_kl[first]).all()
        assert neighbours(tables, classes, k) == neighbours(tables, classes, first)
        np.testing.assert_allclose(alone.time[k], alone.time[first], rtol=1e-12)
        np.testing.assert_allclose(alone.sram_bytes[k], alone.sram_bytes[first], rtol=1e-12)
    for g, kind in enumerate(classes.group_g.tolist()):
        first = int(np.flatnonzero(classes.group_g == kind)[0])
        assert consumers(tables, classes, g) == consumers(tables, classes, first)


@share(0.2)
@given(stages(most=5))
def test_classes_are_numbered_and_counted(stage) -> None:
    tables, _ = stage
    classes = interchangeable(tables)
    assert (np.bincount(classes.class_k) == classes.size_c).all()
    assert (np.diff(classes.first_c) > 0).all()
    assert [classes.class_k.tolist().index(c) for c in range(len(classes.size_c))] == classes.first_c.tolist()
    everyone = np.arange(tables.kernels)
    assert (classes.counts(everyone) == classes.size_c).all()


@share(0.4)
@given(stages(most=3, copies=(2, 3)))
def test_kernels_that_a_symmetry_exchanges_share_a_class(stage) -> None:
    tables, _ = stage
    sharded = tables.sharded  # without tolls: a toll names its payers, which tells twins apart
    none = {name: getattr(sharded, name)[:0] for name in ("toll_x", "sent_x", "payers_xk")}
    sharded = replace(sharded, **none)
    classes = interchangeable(replace(tables, sharded=sharded))
    kind = dict(zip(tables.sharded.names, classes.class_k.tolist(), strict=True))
    for name, c in kind.items():
        assert name in ("source", "sink") or c == kind[name.split(".")[0] + ".0"]
    assert kind["source"] != kind["sink"]


@share(0.2)
@given(stages(most=3, copies=(2,)), st.data())
def test_one_different_figure_parts_a_kernel_from_its_twin(stage, data: st.DataObject) -> None:
    tables, _ = stage
    names = tables.sharded.names
    k = data.draw(st.sampled_from([i for i, name in enumerate(names) if name.endswith(".1")]))
    changed = tables.mem_k.copy()
    changed[k] += 1.0
    class_k = interchangeable(replace(tables, mem_k=changed)).class_k
    assert class_k[k] != class_k[names.index(names[k].replace(".1", ".0"))]


def squares(order: str, sram: float) -> StageTables:
    """Three products of two tensors each: ``x`` of one tensor with itself, ``y`` and ``z`` both of the same two."""
    kernels = [Kernel(name=f"s{i}", op="elementwise", m=4, n=4, pass_="backward") for i in range(3)]
    kernels += [Kernel(name=name, op="weight_update", m=8, k=4, n=8, pass_="update") for name in order]
    ends = {"x": ("s0", "s0"), "y": ("s1", "s2"), "z": ("s1", "s2")}
    tensors = [Tensor(src=s, dst=d, operand=i + 1) for d in "xyz" for i, s in enumerate(ends[d])]
    tensors = [tensor.model_copy(update={"bytes": 32.0}) for tensor in tensors]
    assumed = {"overlap": "none", "fanout": "shared", "weight_tiling": "free", "forward_backward": "shared"}
    return unsharded(on_one_chip(kernels, tensors, sram=sram, tiles=2, tile_rows=1, **assumed))


@pytest.mark.parametrize("order", ["xyz", "yxz"])
@pytest.mark.parametrize("sram", [112.0, 1e6])
def test_reading_one_tensor_twice_is_not_reading_two(order: str, sram: float) -> None:
    """Each of the products has two tensors of one kind, but ``x`` reads half as much."""
    tables = squares(order, sram)
    kind = dict(zip(tables.sharded.names, interchangeable(tables).class_k.tolist(), strict=True))
    assert (tables.parts_k[-3:] == (2 if sram < 1e6 else 1)).all()
    assert kind["y"] == kind["z"] != kind["x"]


def test_tensors_of_unlike_sources_are_of_two_kinds() -> None:
    kernels = [Kernel(name="a", op="gemm", m=4, k=4, n=4), *(Kernel(name=n, op="elementwise", m=4, n=4) for n in "bc")]
    kernels.append(Kernel(name="sink", op="elementwise", m=4, n=4))
    classes = interchangeable(unsharded(on_one_chip(kernels, [Tensor(src=n, dst="sink") for n in "abc"])))
    assert classes.class_k.tolist() == [0, 1, 1, 2]
    one, *others = classes.group_g.tolist()
    assert others[0] == others[1] != one


# -- intervals of an order, and the cheapest cut of it -----------------------------------------


LAYER = load_graph("gpt3-175b", mode="training")
"""41 kernels, fan-out and skips over many levels."""


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


def test_an_interval_fits_the_chip_when_its_block_does() -> None:
    tables = on_eight_chips(LAYER)
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
    tensors = [Tensor(src=a, dst=b) for a, b in ends]
    return unsharded(on_one_chip(kernels, tensors, sram=1e9, tiles=1000, overlap="none", **assumptions))


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
