"""Shares of peak by the size of a kernel's shard, and the time of SRAM traffic, by hand: 1000 FLOP/s."""

from __future__ import annotations

import math
from typing import Any

import pytest
from judge_cases import closed, gemm, judged, machine, ring, simd
from test_judge_hand import ONE, PAIR

from dfopt.documents.graph import Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.system import EfficiencyRow, System
from dfopt.errors import DocumentError

SHARES = (
    EfficiencyRow(unit="matrix", flop=1024.0, extent=4, share=0.8),
    EfficiencyRow(unit="matrix", flop=512.0, share=0.5),
    EfficiencyRow(unit="matrix", share=0.1),
    EfficiencyRow(unit="vector", flop=64.0, share=0.25),
    EfficiencyRow(unit="vector", share=0.05),
)
EFFICIENCY: dict[str, Any] = {"compute_model": "efficiency", "weights_from_dram": False}
GRAPH = closed(
    name="g", kernels=(gemm("a", 4, 8, 16), simd("b", 4, 16), gemm("c", 2, 4, 128)), tensors=(Tensor(src="a", dst="b"),)
)


def test_every_kernel_has_a_share_of_its_own() -> None:
    # a: 1024 FLOP, extents 4, 16, 8; b: 64 FLOP; c: 2048 FLOP but only 2 rows.
    apart = judged(GRAPH, {"a": 0, "b": 1, "c": 2}, system=machine(efficiency=SHARES), **EFFICIENCY)
    assert [p.compute_s for p in apart.partitions] == pytest.approx([1.024 / 0.8, 0.064 / 0.25, 2.048 / 0.5])
    together = judged(GRAPH, dict.fromkeys("abc", 0), system=machine(efficiency=SHARES), **EFFICIENCY)
    seconds = 1.024 / 0.8 + 0.064 / 0.25 + 2.048 / 0.5
    assert together.partitions[0].compute_s == together.step_time_s == pytest.approx(seconds)
    assert together.utilization == pytest.approx((1.024 + 0.064 + 2.048) / seconds)  # of peak, whatever the shares


@pytest.mark.parametrize("scheme, seconds", [("m", 0.512 / 0.5), ("k", 0.512 / 0.5)])
def test_what_counts_is_the_shard_of_one_chip(scheme: str, seconds: float) -> None:
    graph, system = closed(name="g", kernels=(gemm("a", 4, 8, 16),)), machine(ring("x", 2), efficiency=SHARES)
    score = judged(graph, {"a": (scheme, 0)}, Plan(tp=2, tp_dims=("x",)), system, **EFFICIENCY)
    assert score.partitions[0].compute_s == pytest.approx(seconds)


@pytest.mark.parametrize("count, tiles", [(1, 1), (16, 1), (4, 8)])
def test_tiles_change_nothing(count: int, tiles: int) -> None:
    system = machine(tiles=24, efficiency=SHARES)
    score = judged(GRAPH, dict.fromkeys("abc", 0), system=system, tile_count=count, tiles=tiles, **EFFICIENCY)
    assert score.partitions[0].compute_s == pytest.approx(1.024 / 0.8 + 0.064 / 0.25 + 2.048 / 0.5)


def test_a_table_is_nothing_to_the_other_models() -> None:
    places = dict.fromkeys("abc", 0)
    assert judged(GRAPH, places, system=machine(efficiency=SHARES)) == judged(GRAPH, places)


@pytest.mark.parametrize(
    ("overlap", "seconds"), [("perfect", 11.2), ("none", 4.096 + 6.4 + 11.2), ("compute_memory", 11.2)]
)
@pytest.mark.parametrize("parts", [(0, 0), (0, 1)])
def test_by_hand(overlap: str, seconds: float, parts: tuple[int, int]) -> None:
    """a reads 256 B and 64 B of weights and writes 128 B, b reads 128 B and 64 B and writes 256 B, cut or not."""
    places = {"a": parts[0], "b": parts[1]}
    score = judged(PAIR, places, ONE, machine(sram_bandwidth=80.0), overlap=overlap)
    assert math.fsum(part.sram_s or 0.0 for part in score.partitions) == pytest.approx(11.2)
    assert {part.bound_by for part in score.partitions} == {"sram"}
    assert (score.bound_by, score.sram_share) == ("sram", 1.0)
    if parts == (0, 0):
        assert score.layer_time_s == pytest.approx(seconds)


def test_without_a_limit_nothing_is_said_of_it() -> None:
    score = judged(PAIR, {"a": 0, "b": 1}, ONE)
    assert score.sram_share is None and "sram_share" not in score.to_data()
    assert all(part.sram_s is None for part in score.partitions)
    assert machine().chip.sram.model_dump(exclude_none=True) == {"capacity": 1e9}
    assert "bandwidth" not in machine().to_data()["chip"]["sram"]


def test_a_bandwidth_of_nothing_is_refused() -> None:
    data = machine().to_data()
    data["chip"]["sram"]["bandwidth"] = "0 GB/s"
    with pytest.raises(DocumentError, match=r"\$\.chip\.sram\.bandwidth"):
        System.from_data(data)
