"""Layers that repeat, found again: the opposite of drawing them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from strategies import graphs, share

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.physics import ops
from dfopt.search import solve
from dfopt.workloads import load_graph
from dfopt.workloads.fold import Run, find_run, fold, with_entrances
from dfopt.workloads.unroll import unroll


def opened(graph: Graph) -> Graph:
    """A graph whose carried tensors come from DRAM and go there, and which states all of that."""
    reads = [Input(dst=graph.kernels[k].name, operand=None, bytes=size) for k, _, size in graph.reads()]
    writes = [Output(src=graph.kernels[k].name, bytes=size) for k, size in graph.writes()]
    first = [Input(dst=t.dst, operand=t.operand, bytes=graph.bytes_of(t)) for t in graph.carried]
    last = [Output(src=t.src, bytes=graph.bytes_of(t)) for t in graph.carried]
    ends = {"inputs": (*first, *reads), "outputs": (*last, *writes), "carried": (), "repeat": 1}
    return graph.model_copy(update=ends)


def figures(graph: Graph) -> Counter[str]:
    kernels = {kernel.name: repr(kernel.model_dump(exclude={"name", "layer"})) for kernel in graph.kernels}
    return Counter(kernels.values()) + Counter(
        f"{kernels[t.src]} {kernels[t.dst]} {t.operand} {graph.bytes_of(t)}" for t in graph.tensors
    )


@share(0.5)
@given(graphs(repeats=(4,), pieces=False, most=5, trains=False))
def test_what_was_drawn_is_folded_again(graph: Graph) -> None:
    plain = graph.model_copy(
        update={"kernels": tuple(k.model_copy(update={"stage_with": None}) for k in graph.kernels)}
    )
    drawn = opened(unroll(plain))
    run = find_run(drawn)
    if run is None:
        assert not any(k.op == "gemm" for k in graph.kernels) or any(k.accumulates_into for k in graph.kernels)
        return
    joined, run = with_entrances(drawn, run)
    folded = fold(joined, run)
    assert folded.repeat == run.repeat >= 2
    times = [folded.times_of(k) for k in folded.kernels]
    for count in (ops.flop, ops.weight_elements, lambda k: k.dram_bytes, lambda k: k.resident_bytes):
        assert sum(n * count(k) for n, k in zip(times, folded.kernels, strict=True)) == pytest.approx(
            sum(map(count, joined.kernels))
        )


@pytest.mark.parametrize("name", ["gpt2-small", "llama-3.2-1b"])
def test_layers_of_the_zoo_are_found(name: str) -> None:
    graph = load_graph(name)
    drawn = opened(unroll(graph, graph.repeat))
    run = find_run(drawn)
    assert run is not None and run.repeat == graph.repeat and run.period == len(graph.kernels)
    joined, again = with_entrances(drawn, run)
    folded = fold(joined, again)
    assert len(folded.kernels) in (len(graph.kernels), len(graph.kernels) + 1)
    if joined is drawn:
        assert figures(folded) == figures(graph)
        assert [(t.src, t.dst) for t in folded.carried] == [(f"{t.src}.0", f"{t.dst}.0") for t in graph.carried]


def layers(count: int, between: int = 0, skips: bool = False) -> Graph:
    """A chain of an embedding, equal layers of two kernels with a shared mask, and a head."""
    kernels = [Kernel(name="embed", op="elementwise", m=8, n=4), Kernel(name="mask", op="elementwise", m=8, n=4)]
    tensors, last = list[Tensor](), "embed"
    for layer in range(count):
        up, add = (
            Kernel(name=f"up.{layer}", op="gemm", m=8, k=8, n=4),
            Kernel(name=f"add.{layer}", op="elementwise", m=8, n=4),
        )
        if layer == between > 0:
            up = up.model_copy(update={"flop_per_element": 2})
        kernels += [up, add]
        tensors += [Tensor(src=last, dst=up.name), Tensor(src=up.name, dst=add.name)]
        tensors += [Tensor(src=last, dst=add.name), Tensor(src="mask", dst=add.name)]
        last = add.name
    kernels.append(Kernel(name="head", op="gemm", m=16, k=8, n=4))
    tensors.append(Tensor(src=last, dst="head"))
    if skips:
        kernels.append(Kernel(name="more", op="elementwise", m=8, n=4))
        tensors.append(Tensor(src="add.2", dst="more"))
    ends = {"inputs": (Input(dst="embed", bytes=64.0), Input(dst="mask", bytes=64.0)), "outputs": (Output(src="head"),)}
    return Graph(name="chain", kernels=tuple(kernels), tensors=tuple(tensors), **ends)


def test_what_all_layers_read_and_what_stands_around_them() -> None:
    graph = layers(6)
    run = find_run(graph)
    assert run == Run(2, 2, 6)
    joined, run = with_entrances(graph, run)
    assert [k.name for k in joined.kernels][2:5] == ["Layer_In.0", "up.0", "add.0"]
    folded = fold(joined, run)
    assert [(k.name, k.layer) for k in folded.kernels] == [
        ("embed", "first"), ("mask", "first"), ("Layer_In.0", None), ("up.0", None),
        ("add.0", None), ("head", "last"),
    ]  # fmt: skip
    assert [(t.src, t.dst) for t in folded.carried] == [("add.0", "Layer_In.0")]
    assert [(one.dst, one.bytes) for one in folded.inputs or ()] == [
        ("embed", 64), ("mask", 64), ("add.0", 64), ("head", 64),
    ]  # fmt: skip
    assert [(one.src, one.bytes) for one in folded.outputs or ()] == [("head", None), ("embed", 64), ("mask", 64)]


def test_layers_that_differ_or_are_read_later_are_not_folded_over() -> None:
    assert find_run(layers(6, between=3)) in (Run(2, 2, 3), Run(8, 2, 3), Run(10, 2, 2))
    run = find_run(layers(6, skips=True))
    assert run in (Run(2, 2, 3), Run(8, 2, 3))  # the third layer is read further behind
    assert find_run(load_graph("gpt2-small")) is None  # it is folded
    assert find_run(layers(1)) is None


def test_inside_of_the_last_layer_is_not_read_behind() -> None:
    """What is folded writes for others only what it hands on."""
    graph = layers(6)
    more, tensor = Kernel(name="more", op="elementwise", m=8, n=4), Tensor(src="up.5", dst="more")
    graph = graph.model_copy(update={"kernels": (*graph.kernels, more), "tensors": (*graph.tensors, tensor)})
    assert find_run(graph) in (Run(2, 2, 5), Run(3, 2, 5))  # without the last, or layers that end with what is read


def test_parts_of_what_is_handed_on_do_not_enter_as_a_whole() -> None:
    graph = layers(4)
    half = {f"add.{layer}" for layer in range(4)} | {"embed"}
    tensors = tuple(t.model_copy(update={"bytes": 32.0}) if t.src in half else t for t in graph.tensors)
    graph = graph.model_copy(update={"tensors": tensors})
    run = find_run(graph)
    assert run == Run(2, 2, 4)
    assert with_entrances(graph, run) == (graph, run)
    assert [(t.src, t.dst, t.bytes) for t in fold(graph, run).carried] == [
        ("add.0", "up.0", 32),
        ("add.0", "add.0", 32),
    ]


@pytest.mark.parametrize("tp", [1, 8])
def test_a_folded_graph_takes_the_time_of_the_drawn_one(tp: int) -> None:
    """Kernel by kernel there is one fusion: what is read and written is the same."""
    graph = layers(6)
    run = find_run(graph)
    assert run is not None
    joined, run = with_entrances(graph, run)
    chosen = Assumptions(execution="kernel_by_kernel", overlap="none", sequence_parallelism="none")
    found = []
    for one in (fold(joined, run), joined):
        pinned = {kernel.name: "k" if kernel.name == "head" else "m" for kernel in one.kernels} if tp > 1 else {}
        many = one.model_copy(update={"batch": 8 // tp})
        result = solve(many, "sn10-8-ring", tp=tp, pp=1, assumptions=chosen, pin_sharding=pinned)
        found.append(result.step_time_s)
    assert found[0] == pytest.approx(found[1], rel=1e-9)
