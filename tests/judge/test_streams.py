"""The DRAM streams of a mapping: their bytes and their contiguous runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from judge_cases import PLAIN, closed, gemm, machine, place, ring, simd
from test_judge_properties import World, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import System
from dfopt.judge import case, streams, traffic
from dfopt.judge.case import Place
from dfopt.technology.streams import Flow


def flows_of(
    mapping: Mapping, graph: Graph, system: System | None = None, assumptions: Assumptions = PLAIN
) -> list[tuple[Place, Flow]]:
    looked_up = case.build(mapping, graph, system or machine(), assumptions)
    return list(streams.flows(looked_up, traffic.weight_parts(looked_up)))


@given(worlds(), st.sampled_from(["reread", "reread_all", "free"]))
def test_streams_carry_the_bytes_of_the_traffic(world: World, tiling: str) -> None:
    looked_up = case.build(world.mapping, world.graph, world.system, world.assumptions.with_(weight_tiling=tiling))
    parts = traffic.weight_parts(looked_up)
    moved = case.totals((one.place, one.bytes) for one in traffic.moves(looked_up, parts))
    found = list(streams.flows(looked_up, parts))
    assert case.totals((place, flow.bytes) for place, flow in found) == {p: b for p, b in moved.items() if b > 0}
    assert all(flow.run > 0 for _, flow in found)


def test_runs_of_tensors_weights_and_lookups() -> None:
    kernels = (
        gemm("a", 8, 4, 16),
        simd("b", 8, 16, dram_bytes=640.0),
        simd("c", 8, 16, pass_="backward", dram_bytes=64.0),
    )
    graph = closed(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"), Tensor(src="b", dst="c")))
    found = flows_of(place(graph, {"a": 0, "b": 1, "c": 1}, tile_count=4), graph)
    listed = sorted((place[1], *flow) for place, flow in found)
    assert listed == [
        (0, 64.0, 64.0, False, False),  # weights
        (0, 256.0, 64.0, True, False),  # a tensor, 4 of 16 tokens of 8 elements of 2 bytes
        (1, 32.0, 16.0, False, True),  # lookups, a row of 8 elements; the backward pass writes half
        (1, 32.0, 16.0, True, True),
        (1, 256.0, 64.0, False, False),
        (1, 640.0, 16.0, False, True),
    ]


def test_a_tensor_split_by_features_is_stored_in_short_runs() -> None:
    graph = closed(name="g", kernels=(gemm("a", 8, 4, 16), gemm("b", 2, 8, 16)), tensors=(Tensor(src="a", dst="b"),))
    plan = Plan(tp=4, tp_dims=("x",))
    found = flows_of(place(graph, {"a": ("m", 0), "b": ("k", 1)}, plan), graph, machine(ring("x", 4)))
    assert {flow[:2] for _, flow in found if flow.run != flow.bytes} == {(64.0, 4.0)}
    whole = flows_of(place(graph, {"a": 0, "b": 1}), graph)
    assert (256.0, 256.0) in {flow[:2] for _, flow in whole}
