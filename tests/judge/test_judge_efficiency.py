"""The efficiency model of the judge, by hand: 1000 FLOP/s, and shares of it by the size of a kernel's shard."""

from __future__ import annotations

import pytest
from judge_cases import PLAIN, closed, gemm, machine, place, ring, simd

from dfopt.documents.graph import Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import EfficiencyRow
from dfopt.judge import evaluate

SHARES = (
    EfficiencyRow(unit="matrix", flop=1024.0, extent=4, share=0.8),
    EfficiencyRow(unit="matrix", flop=512.0, share=0.5),
    EfficiencyRow(unit="matrix", share=0.1),
    EfficiencyRow(unit="vector", flop=64.0, share=0.25),
    EfficiencyRow(unit="vector", share=0.05),
)
ASSUME = PLAIN.with_(compute_model="efficiency", weights_from_dram=False)
GRAPH = closed(
    name="g", kernels=(gemm("a", 4, 8, 16), simd("b", 4, 16), gemm("c", 2, 4, 128)), tensors=(Tensor(src="a", dst="b"),)
)


def test_every_kernel_has_a_share_of_its_own() -> None:
    # a: 1024 FLOP, extents 4, 16, 8; b: 64 FLOP; c: 2048 FLOP but only 2 rows.
    apart = evaluate(place(GRAPH, {"a": 0, "b": 1, "c": 2}), GRAPH, machine(efficiency=SHARES), ASSUME)
    assert [p.compute_s for p in apart.partitions] == pytest.approx([1.024 / 0.8, 0.064 / 0.25, 2.048 / 0.5])
    together = evaluate(place(GRAPH, dict.fromkeys("abc", 0)), GRAPH, machine(efficiency=SHARES), ASSUME)
    seconds = 1.024 / 0.8 + 0.064 / 0.25 + 2.048 / 0.5
    assert together.partitions[0].compute_s == together.step_time_s == pytest.approx(seconds)
    assert together.utilization == pytest.approx((1.024 + 0.064 + 2.048) / seconds)  # of peak, whatever the shares


@pytest.mark.parametrize("scheme, seconds", [("m", 0.512 / 0.5), ("k", 0.512 / 0.5)])
def test_what_counts_is_the_shard_of_one_chip(scheme: str, seconds: float) -> None:
    graph, plan = closed(name="g", kernels=(gemm("a", 4, 8, 16),)), Plan(tp=2, tp_dims=("x",))
    system = machine(ring("x", 2), efficiency=SHARES)
    score = evaluate(place(graph, {"a": (scheme, 0)}, plan), graph, system, ASSUME)
    assert score.partitions[0].compute_s == pytest.approx(seconds)


@pytest.mark.parametrize("count, tiles", [(1, 1), (16, 1), (4, 8)])
def test_tiles_change_nothing(count: int, tiles: int) -> None:
    mapping = place(GRAPH, dict.fromkeys("abc", 0), tile_count=count, tiles=tiles)
    score = evaluate(mapping, GRAPH, machine(tiles=24, efficiency=SHARES), ASSUME)
    assert score.partitions[0].compute_s == pytest.approx(1.024 / 0.8 + 0.064 / 0.25 + 2.048 / 0.5)


def test_a_table_is_nothing_to_the_other_models() -> None:
    places = place(GRAPH, dict.fromkeys("abc", 0))
    assert evaluate(places, GRAPH, machine(efficiency=SHARES), PLAIN) == evaluate(places, GRAPH, machine(), PLAIN)
