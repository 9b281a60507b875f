"""Layers drawn one after another: the same work, and fusion across layers can only help."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import LEVELS, World, graphs, shardings, share, worlds

from dfopt.documents.graph import Graph, Input, Output
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.errors import GraphError
from dfopt.judge import evaluate
from dfopt.machines.compose import load_system
from dfopt.physics import ops
from dfopt.search import solve
from dfopt.workloads import load_graph
from dfopt.workloads.unroll import unroll


def bare(name: str) -> tuple[str, int]:
    """Name of a kernel in its layer, and the copy that it is in."""
    kernel, _, copy = name.rpartition(".")
    return kernel, int(copy)


@given(graphs(repeats=(1, 4, 6, 12), pieces=False), st.data())
def test_every_copy_is_the_layer(graph: Graph, data: st.DataObject) -> None:
    copies = data.draw(st.sampled_from([n for n in range(1, graph.repeat + 1) if graph.repeat % n == 0]))
    drawn = unroll(graph, copies)
    assert drawn.repeat * copies == graph.repeat
    assert [bare(k.name) for k in drawn.kernels] == [(k.name, c) for c in range(copies) for k in graph.kernels]
    assert len(drawn.tensors) == copies * len(graph.tensors) + (copies - 1) * len(graph.carried)
    assert sum(map(ops.flop, drawn.kernels)) == copies * sum(map(ops.flop, graph.kernels))
    for number, kernel in enumerate(drawn.kernels):
        layer = graph.kernels[number % len(graph.kernels)]
        references = [("accumulates_into", kernel.accumulates_into), ("stage_with", kernel.stage_with)]
        for field, name in references:
            assert name is None or bare(name) == (getattr(layer, field), bare(kernel.name)[1])
        same = {"name": layer.name, "accumulates_into": layer.accumulates_into, "stage_with": layer.stage_with}
        assert kernel.model_copy(update=same) == layer
    inner = [t for t in drawn.tensors if bare(t.src)[1] == bare(t.dst)[1]]
    assert [(bare(t.src)[0], bare(t.dst)[0], t.bytes) for t in inner] == [
        (t.src, t.dst, t.bytes) for _ in range(copies) for t in graph.tensors
    ]


@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_carried_tensors_join_the_copies_and_leave_the_ends(mode: str, copies: int) -> None:
    layer = load_graph("gpt2-small", mode=mode)
    drawn = unroll(layer, copies)
    between = [t for t in drawn.tensors if bare(t.src)[1] != bare(t.dst)[1]]
    assert len(between) == (copies - 1) * len(layer.carried)
    for tensor in between:
        step = bare(tensor.dst)[1] - bare(tensor.src)[1]
        (carried,) = [t for t in layer.carried if (t.src, t.dst) == (bare(tensor.src)[0], bare(tensor.dst)[0])]
        assert step == (1 if carried.direction == "forward" else -1)
        assert tensor.bytes == carried.bytes and tensor.direction == "forward"
    for carried, end in zip(layer.carried, drawn.carried, strict=True):
        ahead = carried.direction == "forward"
        assert bare(end.src) == (carried.src, copies - 1 if ahead else 0)
        assert bare(end.dst) == (carried.dst, 0 if ahead else copies - 1)
        assert end.direction == carried.direction
    assert Graph.from_data(drawn.to_data()) == drawn  # what was drawn is a graph like any other


def test_all_repeats_are_drawn_unless_said_otherwise() -> None:
    layer = load_graph("gpt2-small")
    drawn = unroll(layer)
    assert drawn.repeat == 1
    assert len(drawn.kernels) == layer.repeat * len(layer.kernels)


@pytest.mark.parametrize("copies", [0, -2, 5, 24])
def test_copies_that_do_not_divide_the_repeats_are_refused(copies: int) -> None:
    with pytest.raises(GraphError, match=rf"\$\.repeat: {copies} copies do not divide 12 repeats"):
        unroll(load_graph("gpt2-small"), copies)


@share(0.2)
@given(graphs(repeats=(6,), pieces=False))
def test_drawing_twice_is_drawing_at_once(graph: Graph) -> None:
    def plain(drawn: Graph) -> list[tuple[str, ...]]:
        return sorted((t.src.split(".")[0], t.dst.split(".")[0], str(t.bytes)) for t in drawn.tensors)

    assert plain(unroll(unroll(graph, 2), 3)) == plain(unroll(graph, 6))


@pytest.mark.parametrize("graph", ["gpt2-small", "gpt3-175b"])
def test_fusing_across_layers_is_never_slower(graph: str) -> None:
    layer, system = load_graph(graph), load_system("sn10-8-ring")
    one, two = (solve(g, system, tp=8, assumptions=LEVELS) for g in (layer, unroll(layer, 2)))
    assert one.level_gap == two.level_gap == 0.0
    assert two.step_time_s <= one.step_time_s * (1 + 1e-9)


def test_stated_ends_are_those_of_every_copy() -> None:
    graph = load_graph("gpt2-small", layers=2)
    drawn = unroll(graph.model_copy(update={"inputs": (Input(dst="Q", bytes=8.0),), "outputs": (Output(src="Q"),)}))
    assert [(one.dst, one.bytes) for one in drawn.inputs or ()] == [("Q.0", 8.0), ("Q.1", 8.0)]
    assert [one.src for one in drawn.outputs or ()] == ["Q.0", "Q.1"]


@share(1)
@given(
    worlds(
        most=5, max_pp=1, repeats=(4,), trains=False, fanout="per_consumer", layer_boundary="dram",
        empty_partitions="allow", execution="dataflow", sequence_parallelism="none",
    ),
    st.data(),
)  # fmt: skip
def test_sections_are_their_layers_drawn_one_by_one(world: World, data: st.DataObject) -> None:
    """The judge has the same figures for layers that stand for others as for all of them in partitions of their own."""
    graph, plan, rules = world.graph, world.plan, world.assumptions
    # which operand of a product it is depends on sizes, and gradients come with a backward pass
    carried = [(graph.kernels[graph.index()[t.dst]].op, t.direction) for t in graph.carried]
    assume(all(op != "matmul" and direction == "forward" for op, direction in carried))
    try:  # what comes from the layer before may be one operand too many
        drawn = Graph.from_data(unroll(graph).to_data())
    except GraphError:
        return
    chosen = data.draw(shardings(graph, plan, rules))
    level, depth = graph.levels(), max(graph.levels().values()) + 1
    folded = [
        KernelMapping(name=k.name, sharding=chosen[k.name], stage=graph.kind_of(k), partition=level[k.name])
        for k in graph.kernels
    ]
    listed, layer, before = [], -1, ""
    for kernel in drawn.kernels:
        name, _, copy = (kernel.name, "", kernel.name) if kernel.name in level else kernel.name.rpartition(".")
        copy = f"{graph.kernels[graph.index()[name]].layer} {copy if copy != name else ''}"
        layer, before = layer + (copy != before), copy
        listed.append(KernelMapping(name=kernel.name, sharding=chosen[name], partition=layer * depth + level[name]))
    one, all_ = (
        evaluate(Mapping(graph=g.name, system=world.system.name, plan=p, kernels=tuple(k)), g, world.system, rules)
        for g, p, k in ((graph, plan, folded), (drawn, plan.model_copy(update={"layers_per_stage": 1}), listed))
    )
    assert all_.flop_per_step == pytest.approx(one.flop_per_step, rel=1e-12)
    # Into how many parts weights are cut that have no room at all is no figure of a mapping: the ends of a layer need
    # more buffers than tensors between drawn layers, and only who has room is cut. Both say that the limit is broken.
    if any("leaves no room for its weights" in said for said in one.violations):
        assert not all_.feasible
        return
    assert all_.step_time_s == pytest.approx(one.step_time_s, rel=1e-9)
    held = [stage.states.get("dram", {}) for score in (one, all_) for stage in score.stages]
    for name in ("weights", "caches"):  # what waits between partitions also waits for later layers
        assert held[1].get(name) == pytest.approx(held[0].get(name)), name
