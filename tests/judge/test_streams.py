"""The DRAM streams of a mapping: their bytes, their contiguous runs, and how fast they are served."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_cases import PLAIN, gemm, machine, place, ring, simd
from stack_cases import memory, stack
from test_judge_properties import World, worlds

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Tensor
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.stack_dram import DramBuffers
from dfopt.documents.system import System
from dfopt.judge import case, streams, traffic

FLOW = streams.Flow((0, 0), "tensors", 64.0, 64.0, write=False)


def flows_of(
    mapping: Mapping, graph: Graph, system: System | None = None, assumptions: Assumptions = PLAIN
) -> list[streams.Flow]:
    looked_up = case.build(mapping, graph, system or machine(), assumptions)
    return streams.flows(looked_up, traffic.weight_parts(looked_up))


def serve(memory_of: streams.Memory, flows: list[streams.Flow], rate: float = 1.0) -> streams.Served:
    found = memory_of.serve(flows, rate)
    assert found == memory_of.serve_prepared(memory_of.prepared(flows), rate)
    return found


@given(worlds(), st.sampled_from(["reread", "reread_all", "free"]))
def test_streams_carry_the_bytes_of_the_traffic(world: World, tiling: str) -> None:
    looked_up = case.build(world.mapping, world.graph, world.system, world.assumptions.with_(weight_tiling=tiling))
    parts = traffic.weight_parts(looked_up)
    wanted = {place: count for place, count in traffic.dram_traffic(looked_up, parts).items() if count > 0}
    found = streams.flows(looked_up, parts)
    sums = case.totals((flow.place, flow.bytes) for flow in found)
    assert sums == pytest.approx(wanted, rel=1e-12)
    assert all(0 < flow.run <= flow.bytes * (1 + 1e-12) or flow.what == "tensors" for flow in found)
    assert all(flow.run > 0 for flow in found)


def test_runs_of_tensors_weights_and_lookups() -> None:
    kernels = (
        gemm("a", 8, 4, 16),
        simd("b", 8, 16, dram_bytes=640.0),
        simd("c", 8, 16, phase="backward", dram_bytes=64.0),
    )
    graph = Graph(name="g", kernels=kernels, tensors=(Tensor(src="a", dst="b"), Tensor(src="b", dst="c")))
    found = flows_of(place(graph, {"a": 0, "b": 1, "c": 1}, tile_count=4), graph)
    listed = sorted((flow.place[1], flow.what, flow.bytes, flow.run, flow.write) for flow in found)
    assert listed == [
        (0, "tensors", 256.0, 64.0, True),  # 4 of 16 tokens of 8 elements of 2 bytes
        (0, "weights", 64.0, 64.0, False),
        (1, "lookups", 32.0, 16.0, False),  # a row of 8 elements; the backward pass writes half
        (1, "lookups", 32.0, 16.0, True),
        (1, "lookups", 640.0, 16.0, False),
        (1, "tensors", 256.0, 64.0, False),
    ]


def test_a_tensor_split_by_features_is_stored_in_short_runs() -> None:
    graph = Graph(name="g", kernels=(gemm("a", 8, 4, 16), gemm("b", 2, 8, 16)), tensors=(Tensor(src="a", dst="b"),))
    plan = Plan(tp=4, tp_dims=("x",))
    found = flows_of(place(graph, {"a": ("m", 0), "b": ("k", 1)}, plan), graph, machine(ring("x", 4)))
    assert {(flow.bytes, flow.run) for flow in found if flow.what == "tensors"} == {(64.0, 4.0)}
    whole = flows_of(place(graph, {"a": 0, "b": 1}), graph)
    assert {(flow.bytes, flow.run) for flow in whole if flow.what == "tensors"} == {(256.0, 256.0)}


@pytest.mark.parametrize(
    ("run", "interleave", "channels", "wanted"),
    [
        (1.0, 4.0, 1, 1.0),  # less than a burst
        (6.0, 32.0, 1, 3.0),  # all of it in one channel
        (64.0, 4.0, 8, 4.0),  # 8 bytes of it in each channel
        (64.0, 4.0, 64, 2.0),  # one piece of 4 bytes here and there
        (1e6, 4.0, 8, 8.0),  # whole rows of 16 bytes
    ],
)
def test_bursts_per_activate(run: float, interleave: float, channels: int, wanted: float) -> None:
    served = streams.Memory(stack(dram=memory(channels, interleave=interleave)))
    flow = streams.Flow((0, 0), "tensors", 1e6, run, write=False)
    assert served.bursts_per_activate(flow) == wanted


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_streams_share_the_time(parts: list[tuple[float, float, bool, bool]]) -> None:
    memory_of = streams.Memory(stack(dram=memory(4, refresh=())))
    found = [streams.Flow((0, 0), "tensors", max(b, run), run, w, s) for b, run, w, s in parts]
    whole = math.fsum(flow.bytes for flow in found)
    together, alone = serve(memory_of, found), [serve(memory_of, [flow]) for flow in found]
    # Turning the bus round costs something as soon as there are reads and writes.
    assert together.seconds >= math.fsum(one.seconds for one in alone) * (1 - 1e-12)
    if len({flow.write for flow in found}) == 1:
        assert together.seconds == pytest.approx(math.fsum(one.seconds for one in alone), rel=1e-12)
    assert together.bandwidth == pytest.approx(whole / together.seconds, rel=1e-12)
    assert together.bandwidth <= 400.0
    assert together.binding in {one.binding for one in alone}
    commands = memory_of.commands(found)
    assert (commands.reads + commands.writes) * 2.0 == pytest.approx(whole, rel=1e-12)
    assert commands.activates <= commands.reads + commands.writes
    assert commands.bursts_per_activate >= 1 - 1e-12


@given(st.floats(1, 1e4), st.floats(1, 4), st.booleans(), st.booleans())
def test_longer_runs_and_fewer_refreshes_are_never_slower(run: float, more: float, write: bool, far: bool) -> None:
    memory_of = streams.Memory(stack(dram=memory(4)))
    short, long = (streams.Flow((0, 0), "tensors", 1e6, length, write, far) for length in (run, run * more))
    assert serve(memory_of, [long], 1.0).seconds <= serve(memory_of, [short], 1.0).seconds * (1 + 1e-9)
    assert serve(memory_of, [short], 1.0).seconds <= serve(memory_of, [short], 2.0).seconds


def test_what_binds_is_named() -> None:
    def binding(flow: streams.Flow, **changes: object) -> str:
        return serve(streams.Memory(stack(dram=memory(**changes))), [flow]).binding

    assert binding(FLOW) == "port"
    short = streams.Flow((0, 0), "tensors", 64.0, 2.0, write=False)
    assert binding(short) == "activation" or binding(short) == "four_activate"
    assert binding(FLOW, buffers=DramBuffers(requests=1, round_trip=10.0)) == "buffering"


def test_no_traffic_takes_no_time() -> None:
    found = serve(streams.Memory(stack()), [])
    assert (found.seconds, found.binding) == (0.0, "none")
