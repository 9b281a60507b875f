"""What a graph reads from DRAM and writes there: the rule, its price by hand, and brute sums on random worlds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_cases import gemm, judged, machine, ring, simd
from oracles import end_bytes, mapping_of
from strategies import World, shardings, with_sram, worlds

import dfopt as df
from dfopt.documents.graph import Graph, Input, Kernel, Output, Tensor
from dfopt.documents.plan import Plan
from dfopt.errors import GraphError
from dfopt.judge import evaluate

ALONE = Graph(name="g", kernels=(gemm("a", 4, 8, 16),))


def ends(graph: Graph) -> tuple[list[tuple[str, int, float]], list[tuple[str, float]]]:
    names = [kernel.name for kernel in graph.kernels]
    return [(names[k], o, size) for k, o, size in graph.reads()], [(names[k], size) for k, size in graph.writes()]


# --- what has no producer is read, what has no consumer is written --------------------------------------------


def update(name: str, m: int, k: int, n: int, **more: Any) -> Kernel:
    return Kernel(name=name, op="weight_update", m=m, k=k, n=n, pass_="update", **more)


@pytest.mark.parametrize(
    ("kernel", "read", "written"),
    [
        (gemm("a", 4, 8, 16), [("a", 1, 256)], [("a", 128)]),
        (gemm("a", 4, 8, 16, outer=3), [("a", 1, 256)], [("a", 384)]),  # heads share what they read
        (Kernel(name="a", op="matmul", outer=3, m=4, k=8, n=16), [("a", 1, 768), ("a", 2, 192)], [("a", 384)]),
        (simd("a", 4, 16), [("a", 1, 128)], [("a", 128)]),
        (update("a", 4, 8, 16), [("a", 1, 256), ("a", 2, 64)], []),  # a gradient has its own accumulator
        (simd("a", 4, 16, dram_bytes=1.0), [], []),  # lookups, what passes between pieces
        (gemm("a", 4, 8, 16, dram_bytes_per_chip=1.0), [], []),  # a cache
    ],
)
def test_the_rule(kernel: Kernel, read: list[Any], written: list[Any]) -> None:
    assert ends(Graph(name="g", kernels=(kernel,))) == (read, written)


def test_what_tensors_and_carried_ones_bring_or_take_is_no_end() -> None:
    product = Kernel(name="b", op="matmul", m=4, k=4, n=16)
    graph = Graph(name="g", kernels=(ALONE.kernels[0], product), tensors=(Tensor(src="a", dst="b", operand=1),))
    assert ends(graph) == ([("a", 1, 256), ("b", 2, 32)], [("b", 128)])
    around = {"carried": (Tensor(src="b", dst="a"), Tensor(src="b", dst="b", operand=2))}
    assert ends(graph.model_copy(update=around)) == ([], [])


def test_what_is_added_to_another_output_is_no_output() -> None:
    kernels = (gemm("a", 4, 8, 16, accumulates_into="b"), gemm("b", 4, 8, 16))
    assert ends(Graph(name="g", kernels=kernels))[1] == [("b", 128)]


def test_stated_ends_take_the_place_of_the_rule() -> None:
    product = Kernel(name="b", op="matmul", m=4, k=8, n=16)
    inputs = (Input(dst="b", operand=2), Input(dst="b"), Input(dst="a", bytes=10.0))
    graph = Graph(
        name="g", kernels=(gemm("a", 4, 8, 16), product), inputs=inputs, outputs=(Output(src="b", bytes=6.0),)
    )
    assert ends(graph) == ([("b", 2, 64), ("b", 1, 256), ("a", 1, 10)], [("b", 6)])
    assert Graph.from_data(graph.to_data()) == graph
    nothing = Graph(name="g", kernels=graph.kernels, inputs=(), outputs=())
    assert ends(nothing) == ([], [])
    assert Graph.from_data(nothing.to_data()) == nothing


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"inputs": (Input(dst="b"),)}, r"\$\.inputs\[0\]\.dst: no kernel is called 'b'"),
        ({"outputs": (Output(src="b"),)}, r"\$\.outputs\[0\]\.src: no kernel is called 'b'"),
        ({"inputs": (Input(dst="a"),) * 2}, r"\$\.inputs\[1\]: gemm kernel 'a' has its 1 operand\(s\) already"),
        ({"outputs": (Output(src="a", bytes=129.0),)}, r"\$\.outputs\[0\]\.bytes: found 129 B, but 'a' produces only"),
    ],
)
def test_bad_ends_are_one_clear_issue(more: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as found:
        Graph(name="g", kernels=ALONE.kernels, **more)
    assert len(found.value.issues) == 1


@pytest.mark.parametrize("name", ["gpt3-175b", "gpt3-1t", "llama-3.1-70b", "gemma-2-9b", "hpl-eos", "fft-1t"])
def test_layers_that_carry_and_kernels_that_state_their_traffic_have_no_ends(name: str) -> None:
    assert ends(df.load_graph(name)) == ([], [])


def test_the_ends_of_models_are_what_comes_from_outside() -> None:
    read, written = ends(df.load_graph("dlrm-v2-mlperf", mode="forward"))
    assert [name for name, _, _ in read] == ["Bottom_1"] and len(written) == 1
    read, written = ends(df.load_graph("dlrm-v2-mlperf", mode="training"))
    assert [name for name, _, _ in read] == ["Bottom_1", "Bottom_1_bwd_weight_update"] and not written
    logits = df.load_graph("llama-3.2-1b", ends=True)
    assert ends(logits) == ([], [("Logits", logits.output_bytes("Logits"))])
    assert ends(df.load_graph("llama-3.2-1b", ends=True, mode="training")) == ([], [])


# --- by hand --------------------------------------------------------------------------------------------------


def test_a_lone_product_waits_for_its_input_and_its_output() -> None:
    (part,) = judged(ALONE, {"a": 0}, tile_count=4).partitions
    assert part.dram_bytes == 64 + 256 + 128  # weight, input, output
    assert part.sram_bytes == 64 + 2 * (256 + 128) / 4  # two of four tiles each
    assert judged(ALONE, {"a": 0}, layer_boundary="free").partitions[0].dram_bytes == 64
    slow = df.System(name="slow", chip={"name": "c", "peak": "10 TFLOP/s", "tiles": 1, "sram": {"capacity": "1 MB"},
                                        "dram": {"bandwidth": "34 GB/s"}})  # fmt: skip
    result = df.optimize(Graph(name="g", kernels=(gemm("a", 16, 16, 128),)), slow)
    assert result.score.step_time_s == pytest.approx((512 + 4096 + 4096) / 34e9)


@pytest.mark.parametrize(
    ("sharding", "moved"),
    [
        ("m", 32 + 256 + 64),  # all of the input on both chips, half of the output
        ("k", 32 + 128 + 128),  # half of the input, and after the all-reduce all of the output
    ],
)
def test_an_input_lies_as_it_is_needed_and_an_output_as_it_is_made(sharding: str, moved: float) -> None:
    (part,) = judged(ALONE, {"a": (sharding, 0)}, Plan(tp=2, tp_dims=("x",)), machine(ring("x", 2))).partitions
    assert part.dram_bytes == moved


def test_an_input_is_read_again_for_every_part_of_a_weight() -> None:
    graph = Graph(name="g", kernels=(gemm("a", 16, 8, 16),))
    (part,) = judged(graph, {"a": 0}, system=machine(sram=150.0), tile_count=16).partitions
    # 32 B of input and 64 B of output are buffered, so 54 B are left for the 256 B of weight: 5 parts
    assert part.dram_bytes == 256 + 5 * 256 + 512
    assert part.sram_bytes == pytest.approx(32 + 64 + 256 / 5)


# --- brute sums -----------------------------------------------------------------------------------------------


@given(world=worlds(), data=st.data())
def test_the_judge_adds_what_a_naive_sum_adds(world: World, data: st.DataObject) -> None:
    names = [kernel.name for kernel in world.graph.kernels]
    sharding = data.draw(shardings(world.graph, world.plan, world.assumptions))
    level = world.graph.levels()
    order = sorted(names, key=lambda name: (level[name], name))
    partition = {name: order.index(name) for name in names}
    roomy = with_sram(world.system, 1e30)
    found = []
    for graph in (world.graph, world.graph.model_copy(update={"inputs": (), "outputs": ()})):
        here = World(graph, roomy, world.plan, world.assumptions.with_(compute_model="fixed", compute_utilization=1.0))
        mapping = mapping_of(here, sharding, dict.fromkeys(names, 0), partition)
        assert mapping is not None
        parts = evaluate(mapping, graph, roomy, here.assumptions).partitions
        found.append({name: part.dram_bytes for part in parts for name in part.kernels})
    due = end_bytes(world, sharding)
    for name in names:
        assert found[0][name] - found[1][name] == pytest.approx(due.get(name, 0.0), abs=1e-6)
