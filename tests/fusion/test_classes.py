"""Classes of interchangeable kernels: alike in every price, equitable, and closed under symmetry."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_cases import stages, tables_of
from strategies import World, share

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.classes import KernelClasses, interchangeable


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
    graph = Graph(name="squares", kernels=kernels, tensors=[t.model_copy(update={"bytes": 32.0}) for t in tensors])
    chip = Chip(name="c", tiles=2, peak=1e6, sram=Sram(capacity=sram), dram=Dram(bandwidth=100.0))
    chosen = Assumptions(
        overlap="none", execution="dataflow", compute_utilization=1.0, fanout="shared", tile_rows=1,
        weight_tiling="free", forward_backward="shared",
    )  # fmt: skip
    return tables_of(World(graph, System(name="s", chip=chip), Plan(), chosen), {k.name: "none" for k in kernels})


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
    graph = Graph(name="g", kernels=kernels, tensors=[Tensor(src=n, dst="sink") for n in "abc"])
    chip = Chip(name="c", tiles=8, peak=1e6, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100.0))
    world = World(
        graph, System(name="s", chip=chip), Plan(), Assumptions(execution="dataflow", compute_utilization=1.0)
    )
    classes = interchangeable(tables_of(world, {k.name: "none" for k in kernels}))
    assert classes.class_k.tolist() == [0, 1, 1, 2]
    one, *others = classes.group_g.tolist()
    assert others[0] == others[1] != one
