"""Every term of the judge against arithmetic done by hand, on machines whose seconds are round numbers.

The chip does 500 FLOP/s (half of its peak of 1000) and moves 100 B/s to DRAM; links carry 10 B/s.
"""

from __future__ import annotations

from typing import Any

import pytest
from judge_cases import arrows, closed, gemm, judged, machine, place, ring, simd

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.tokens import Tokens
from dfopt.judge import evaluate

# a: 2*4*8*16 = 1024 FLOP, weight 4*8 = 64 B, output 4*16 = 128 B
# b: 2*8*4*16 = 1024 FLOP, weight 8*4 = 64 B, output 8*16 = 256 B
PAIR = closed(
    name="pair",
    repeat=3,
    microbatch=2,
    batch=10,
    tokens=Tokens(processed=14),
    kernels=(gemm("a", 4, 8, 16), gemm("b", 8, 4, 16)),
    tensors=arrows("ab"),
    carried=arrows("ba"),
)
ONE = Plan(microbatches=5, layers_per_stage=3)
TP2 = Plan(tp=2, tp_dims=("x",), microbatches=5, layers_per_stage=3)


def test_fused_pair() -> None:
    score = judged(PAIR, {"a": 0, "b": 0}, ONE, tile_count=4)
    (part,) = score.partitions
    assert part.compute_s == pytest.approx(2048 / 500)
    assert part.dram_bytes == 64 + 64 + 256 + 256  # weights, carried read, carried write
    assert (part.memory_s, part.network_s, part.time_s) == (6.4, 0.0, 6.4)
    # a -> b: two tiles of 128/4; carried: two tiles of 256/4 at each end; weights
    assert part.sram_bytes == 2 * 32 + 2 * 64 + 2 * 64 + 64 + 64
    assert (part.flop, part.bound_by, part.tiles) == (2048, "memory", (1, 1))
    assert score.layer_time_s == 6.4
    assert score.step_time_s == pytest.approx(6.4 * 3 * 5)
    assert score.flop_per_step == 2048 * 3 * 5
    assert score.utilization == pytest.approx(2048 * 15 / (96 * 1000))
    assert score.samples_per_s == pytest.approx(10 / 96)
    assert score.tokens_per_s == pytest.approx(70 / 96)
    assert (score.bound_by, score.memory_share, score.compute_share) == ("memory", 1.0, 0.0)
    assert score.violations == () and score.collectives == {}


def test_cut_pair() -> None:
    score = judged(PAIR, {"a": 0, "b": 1}, ONE, tile_count=4)
    assert [p.dram_bytes for p in score.partitions] == [64 + 256 + 128, 64 + 128 + 256]
    assert [p.sram_bytes for p in score.partitions] == [64 + 2 * 64 + 2 * 32] * 2
    assert [p.compute_s for p in score.partitions] == pytest.approx([2.048, 2.048])
    assert score.layer_time_s == pytest.approx(8.96)


@pytest.mark.parametrize(
    ("changes", "fused_bytes", "seconds"),
    [
        ({"overlap": "none"}, 640, 4.096 + 6.4),
        ({"overlap": "compute_memory"}, 640, 6.4),
        ({"weights_from_dram": False}, 512, 5.12),
        ({"layer_boundary": "free"}, 128, 4.096),
        ({"layer_boundary": "free", "weights_from_dram": False}, 0, 4.096),
    ],
)
def test_what_dram_is_charged_for_and_overlaps(changes: dict[str, Any], fused_bytes: float, seconds: float) -> None:
    score = judged(PAIR, {"a": 0, "b": 0}, ONE, **changes)
    assert score.partitions[0].dram_bytes == fused_bytes
    assert score.layer_time_s == pytest.approx(seconds)


def test_extra_dram_traffic_is_charged() -> None:
    graph = closed(name="g", kernels=(simd("a", 4, 4, dram_bytes_per_chip=50.0),))
    score = judged(graph, {"a": 0})
    assert score.partitions[0].memory_s == 0.5


@pytest.mark.parametrize(
    ("a", "b", "boundary", "network_s", "counts"),
    [
        # The dfmodel ring of 2 at 10 B/s: all-gather V/20 s, all-reduce two of them, all-to-all V/80 s.
        # m gives SR, and k wants SR: only b's own all-reduce of 256 B. b's output is whole: carried for free.
        ("m", "k", "dram", [0.0, 25.6], {"all_reduce.forward": 1}),
        # m wants everything: gather a -> b (128 B); carried, gather b -> a (256 B), unless the boundary is free.
        ("m", "m", "dram", [6.4, 12.8], {"all_gather.forward": 2}),
        ("m", "m", "free", [6.4, 0.0], {"all_gather.forward": 1}),
        ("k", "k", "dram", [12.8, 25.6], {"all_reduce.forward": 2}),
        # b's output is split and k wants it split.
        ("k", "m", "dram", [12.8, 0.0], {"all_reduce.forward": 1}),
    ],
)
def test_collectives(a: str, b: str, boundary: str, network_s: list[float], counts: dict[str, int]) -> None:
    score = judged(PAIR, {"a": (a, 0), "b": (b, 1)}, TP2, machine(ring("x", 2)), layer_boundary=boundary)
    assert [p.network_s for p in score.partitions] == pytest.approx(network_s)
    assert score.collectives == counts


def test_sharding_splits_work_weights_and_tensors() -> None:
    score = judged(PAIR, {"a": ("m", 0), "b": ("k", 1)}, TP2, machine(ring("x", 2)))
    first, second = score.partitions
    assert [first.flop, second.flop] == [512, 512]
    # a's output is split (64 B), b's is whole (256 B); weights are halved.
    assert first.dram_bytes == 32 + 64 + 256
    assert second.dram_bytes == 32 + 64 + 256
    assert score.utilization == pytest.approx(2048 * 15 / (score.step_time_s * 2 * 1000))


# x feeds three kernels of three partitions, and through u also v: levels x 0, u 1, v 2, w 1.
FAN = closed(name="fan", kernels=[simd(name, 10, 10) for name in "xuvw"], tensors=arrows("xu", "xv", "xw", "uv"))
INSIDE, ACROSS = {"x": 0, "u": 0, "v": 0, "w": 1}, {"x": 0, "u": 1, "v": 1, "w": 2}


@pytest.mark.parametrize(
    ("places", "changes", "dram", "sram"),
    [
        # 200 B each. Shared: x is written once and read once; x waits three tiles for v, and two more leave.
        (INSIDE, {}, [200, 200], [3 * 20 + 2 * 20 + 2 * 20, 2 * 20]),
        (INSIDE, {"skew_buffers": "double"}, [200, 200], [2 * 20 + 2 * 20 + 2 * 20, 2 * 20]),
        (INSIDE, {"fanout": "per_consumer"}, [200, 200], [2 * 20 + 3 * 20 + 2 * 20 + 2 * 20, 2 * 20]),
        (ACROSS, {"fanout": "shared"}, [200, 200 + 0, 200], [40, 40 + 40, 40]),
        (ACROSS, {"fanout": "per_consumer"}, [600, 400, 200], [120, 40 + 40 + 40, 40]),
    ],
)
def test_fan_out(places: dict[str, int], changes: dict[str, Any], dram: list[float], sram: list[float]) -> None:
    score = judged(FAN, places, tile_count=10, **changes)
    assert [p.dram_bytes for p in score.partitions] == dram
    assert [p.sram_bytes for p in score.partitions] == sram


@pytest.mark.parametrize(
    ("parts", "bytes_", "dram", "sram"),
    [
        # halves of x, 100 B: the same one, two of them, and, for want of names, one
        (("left", "left"), 100, [100, 100], [20, 20]),
        (("left", "right"), 100, [200, 200], [40, 40]),
        ((None, None), 100, [100, 100], [20, 20]),
        # all of x is the same, whatever it is called
        (("left", "right"), 200, [200, 200], [40, 40]),
    ],
)
def test_parts_of_one_size(
    parts: tuple[str | None, str | None], bytes_: float, dram: list[float], sram: list[float]
) -> None:
    tensors = tuple(Tensor(src="x", dst=dst, bytes=bytes_, part=part) for dst, part in zip("uv", parts, strict=True))
    graph = closed(name="parts", kernels=(simd("x", 10, 10), simd("u", 10, 10), simd("v", 10, 10)), tensors=tensors)
    score = judged(graph, {"x": 0, "u": 1, "v": 1}, tile_count=10)
    assert [p.dram_bytes for p in score.partitions] == dram
    assert [p.sram_bytes for p in score.partitions] == sram


def test_a_shared_fan_converts_once_per_layout() -> None:
    """x is split by m; u (none) and w (none) want it whole, v (m) takes it as it is."""
    places = {"x": ("m", 0), "u": ("none", 0), "v": ("m", 0), "w": ("none", 0)}
    for fanout, times in (("shared", 1), ("per_consumer", 2)):
        score = judged(FAN, places, Plan(tp=2, tp_dims=("x",)), machine(ring("x", 2)), fanout=fanout)
        assert score.collectives == {"all_gather.forward": times}
        assert score.partitions[0].network_s == pytest.approx(times * 200 / 20)


def test_tensors_of_other_size_are_another_fan() -> None:
    """Two consumers read 200 B, one only 100 B of them: two things are stored."""
    part = FAN.model_copy(update={"tensors": (*FAN.tensors[:2], Tensor(src="x", dst="w", bytes=100.0))})
    score = judged(part, {"x": 0, "u": 1, "v": 1, "w": 1})
    assert [p.dram_bytes for p in score.partitions] == [300, 300]


# A layer that trains: forward f, backward g (same weight), update d of f's weight (8 x 4).
TRAIN = closed(
    name="train",
    repeat=4,
    batch=8,
    kernels=(
        gemm("f", 8, 4, 16),
        gemm("g", 4, 8, 16, pass_="backward"),
        Kernel(name="d", op="weight_update", m=8, k=16, n=4, pass_="update"),
    ),
    tensors=(
        Tensor(src="f", dst="g"),  # 8*16 = 256 B, saved for the backward pass
        Tensor(src="f", dst="d", operand=2),
        Tensor(src="g", dst="d", operand=1),  # 4*16 = 128 B
    ),
    carried=(Tensor(src="g", dst="g", direction="backward", bytes=64.0),),
)
TRAIN_PLACES = {"f": ("none", 0), "g": ("none", 1), "d": ("none", 2)}
PP2 = Plan(pp=2, dp=2, pp_dims=("p",), dp_dims=("d",), microbatches=4, layers_per_stage=2)


def train(plan: Plan = PP2, **changes: Any) -> Score:
    return judged(TRAIN, TRAIN_PLACES, plan, machine(ring("p", 2), ring("d", 2)), **changes)


def test_training_exact() -> None:
    score = train()
    f, g, d = score.partitions
    # f: weight 64, output 256. g: weight 64, input 256, output 128, carried 64 in and out. d: both inputs,
    # and its gradient (8*4 words) is read and written.
    assert [p.dram_bytes for p in (f, g, d)] == [64 + 256, 64 + 256 + 128 + 128, 256 + 128 + 2 * 64]
    # One tile: two whole buffers each, weights, and the gradient in d.
    assert [p.sram_bytes for p in (f, g, d)] == [64 + 512, 64 + 512 + 256 + 256, 512 + 256 + 64]
    layer = 3.2 + 5.76 + 5.12
    assert score.layer_time_s == pytest.approx(layer)
    # The hop of 64 B takes 6.4 s, hidden behind two layers.
    assert score.stages[0].point_to_point_s == pytest.approx(6.4)
    assert score.stages[0].time_s == pytest.approx(2 * layer)
    assert score.pipeline_fill_s == pytest.approx(2 * layer)
    # All-reduce of 64 B over 2 copies: 6.4 s for each of two layers.
    assert score.gradient_reduction_s == pytest.approx(12.8)
    assert score.step_time_s == pytest.approx(2 * layer * 5 + 12.8)
    stage = score.stages[0]
    # f's weight only, two layers; Adam's 12 B on 64 parameters.
    assert (stage.states["dram"]["weights"], stage.states["dram"]["gradients"]) == (128, 128)
    assert stage.states["dram"]["optimizer"] == 64 * 12
    # Saved: 256 B once (shared), two layers, two microbatches in flight. In transit: only g -> d.
    assert stage.states["dram"]["activations"] == 256 * 2 * 2 + 128
    assert score.violations == ()


def test_training_hop_is_added_without_overlap() -> None:
    score = train(overlap="none")
    layer = (1024 + 1024 + 1024) / 500 + (320 + 576 + 512) / 100
    assert score.stages[0].time_s == pytest.approx(2 * layer + 6.4)
    assert score.layer_time_s == pytest.approx(layer)


def test_training_dfmodel() -> None:
    score = train(gradients="dfmodel", point_to_point="per_step", bubble="interleaved", fanout="per_consumer")
    f, g, d = score.partitions
    assert [p.dram_bytes for p in (f, g, d)] == [64 + 512, 64 + 256 + 128 + 128, 256 + 128]
    assert d.network_s == pytest.approx(6.4 / 4)  # spread over four microbatches
    assert d.sram_bytes == 512 + 256
    layer = 5.76 + 5.76 + 3.84
    assert score.layer_time_s == pytest.approx(layer)
    assert score.pipeline_fill_s == pytest.approx(2 * layer / 1)  # (pp - 1) / (2 layers - 1)
    assert score.point_to_point_s == pytest.approx(4 * 64 / 10)  # four repeats of 64 B, once per step
    assert score.stages[0].point_to_point_s == 0.0
    assert score.gradient_reduction_s == 0.0
    assert score.step_time_s == pytest.approx(2 * layer * 5 + 25.6)
    # Weights only, and tensors in transit: f -> d waits from 0 to 2, f -> g from 0 to 1, g -> d from 1 to 2.
    assert "gradients" not in score.stages[0].states["dram"]
    assert score.stages[0].states["dram"]["activations"] == 256 + 256 + 128
    assert score.collectives == {}


KERNELS = simd("a", 10, 10), simd("b", 10, 10), simd("c", 5, 10)
CHAIN = closed(name="chain", batch=4, kernels=KERNELS, tensors=arrows("ab", "ac", "bc"))
PP3 = Plan(pp=3, pp_dims=("p",), microbatches=4)


@pytest.mark.parametrize(("fanout", "sent"), [("shared", [20, 40, 0]), ("per_consumer", [40, 40, 0])])
def test_drawn_stages_relay(fanout: str, sent: list[float]) -> None:
    """a -> c (200 B, 20 s a hop) passes through b's stage, and shared it is the tensor that b reads."""
    places = {"a": ("none", 0, 0), "b": ("none", 0, 1), "c": ("none", 0, 2)}
    score = judged(CHAIN, places, PP3, machine(ring("p", 3)), fanout=fanout, overlap="none")
    assert [s.point_to_point_s for s in score.stages] == pytest.approx(sent)
    write = {"shared": 200, "per_consumer": 400}[fanout]
    compute_memory = [100 / 500 + write / 100, 100 / 500 + 400 / 100, 50 / 500 + 400 / 100]
    times = [x + y for x, y in zip(compute_memory, sent, strict=True)]
    assert [s.time_s for s in score.stages] == pytest.approx(times)
    assert score.step_time_s == pytest.approx(max(times) * (4 + 2))
    assert score.layer_time_s == pytest.approx(compute_memory[1])
    assert score.violations == ()


def test_backward_tensors_are_sent_down() -> None:
    back = tuple(kernel.model_copy(update={"pass_": "backward"}) for kernel in KERNELS)
    graph = CHAIN.model_copy(update={"kernels": back})
    score = judged(graph, {"a": ("none", 0, 2), "b": ("none", 0, 1), "c": ("none", 0, 0)}, PP3, machine(ring("p", 3)))
    assert [s.point_to_point_s for s in score.stages] == pytest.approx([0, 40, 20])
    assert score.violations == ()


def test_a_stage_without_kernels_still_relays() -> None:
    score = judged(CHAIN, {"a": ("none", 0, 0), "b": ("none", 1, 0), "c": ("none", 0, 2)}, PP3, machine(ring("p", 3)))
    assert [s.layer_time_s for s in score.stages][1] == 0.0
    assert [s.time_s for s in score.stages] == pytest.approx([40, 40, 4])  # hops hide the layers, or are alone
    assert score.stages[0].states["dram"]["activations"] == 200 + 200  # to another stage: until the last partition
    assert score.stages[2].states["dram"]["activations"] == 400  # from another stage: from partition 0


def test_a_stage_that_only_relays_can_be_the_slowest() -> None:
    """200 B go up from stage 0 to 2 and 200 B come down: the empty stage 1 sends both, 40 s."""
    back = (simd(name, 10, 10, pass_="backward") for name in "yz")
    kernels = simd("a", 10, 10), simd("b", 10, 10), *back
    graph = closed(name="g", kernels=kernels, tensors=arrows("ab", "yz"))
    places = {"a": ("none", 0, 0), "b": ("none", 0, 2), "y": ("none", 1, 2), "z": ("none", 1, 0)}
    score = judged(graph, places, Plan(pp=3, pp_dims=("p",)), machine(ring("p", 3)))
    assert [s.time_s for s in score.stages] == pytest.approx([20, 40, 20])
    assert (score.layer_time_s, score.bound_by) == (0.0, "network")
    assert (score.compute_share, score.memory_share, score.network_share) == (0.0, 0.0, 0.0)
    # Of two stages that are equally slow because of their hops, the one with more to do counts.
    score = judged(CHAIN, {"a": ("none", 0, 2), "b": ("none", 0, 2), "c": ("none", 0, 0)}, PP3, machine(ring("p", 3)))
    assert [s.time_s for s in score.stages] == pytest.approx([4, 40, 40])
    assert score.layer_time_s == score.stages[2].layer_time_s > 0


def test_weight_tiling() -> None:
    """Both need 832 B on 800 B: a weight of 64 B and twice buffered 256 B and 128 B.

    A weight is cut along its output, a tensor between layers is not: a has 512 B of carried input, and 64 + 256 B
    in two parts; b has 256 B of input, 512 B of carried output, and 64 B in two parts.
    """
    fits = {"a": 0, "b": 1}
    graph = PAIR.model_copy(update={"carried": (Tensor(src="b", dst="a"),)})
    for rule, extra in (("reread", 256), ("free", 0)):
        score = judged(graph, fits, ONE, machine(sram=800.0), weight_tiling=rule)
        assert [p.sram_bytes for p in score.partitions] == [512 + 160, 768 + 32]
        # reread: a reads its carried input of 256 B again, b its input of 128 B.
        assert [p.dram_bytes for p in score.partitions] == [448 + extra, 448 + extra / 2]
        assert score.violations == ()
    score = judged(graph, fits, ONE, machine(sram=800.0), weight_tiling="forbid")
    assert score.violations == (
        "partition 0 of stage 0 needs 832 B of SRAM, the chip has 800 B",
        "partition 1 of stage 0 needs 832 B of SRAM, the chip has 800 B",
    )
    score = judged(graph, {"a": 0, "b": 0}, ONE, machine(sram=800.0))
    assert any("'a' needs 832 B" in v and "2 weight parts" in v and "alone" in v for v in score.violations)
    score = judged(graph, fits, ONE, machine(sram=768.0))
    assert any("leaves no room for its weights" in v for v in score.violations)


def test_a_kernel_that_just_fits_is_not_tiled() -> None:
    score = judged(PAIR, {"a": 0, "b": 1}, ONE, machine(sram=832.0))
    assert [p.dram_bytes for p in score.partitions] == [448, 448] and score.violations == ()


LANES = closed(name="lanes", kernels=(simd("a", 10, 6),))
HEADS = closed(name="heads", kernels=(Kernel(name="a", op="matmul", outer=4, m=4, k=8, n=16),))
UPDATE = closed(name="update", kernels=(Kernel(name="a", op="weight_update", m=4, k=20, n=16),))


@pytest.mark.parametrize(
    ("graph", "places", "tp", "tiles", "tile_count", "seconds"),
    [
        # a: 4 rows on 2 lanes, 16 columns on 4 stages, k 8: 2*4*8 = 64 cycles; b: 4*4*4 = 64 cycles; at 10 Hz.
        (PAIR, {"a": 0, "b": 0}, 1, 1, 1, 6.4),
        # Two tiles halve both. Three tiles: a halves, b 16 blocks over 3 rows or columns: 2*4*4 = 32 still.
        (PAIR, {"a": 0, "b": 0}, 1, 2, 1, 3.2),
        (PAIR, {"a": 0, "b": 0}, 1, 3, 1, 3.2),
        (PAIR, {"a": 0, "b": 0}, 1, 4, 1, 1.6),
        # 16 columns in 8 tiles of 2: one (half used) block of columns each. a: 2*1*8 = 16 cycles, 8 times.
        (PAIR, {"a": 0, "b": 0}, 1, 1, 8, 12.8),
        # a: 2 rows: 1*4*8 = 32; b: k 2: 4*4*2 = 32.
        (PAIR, {"a": ("m", 0), "b": ("k", 0)}, 2, 1, 1, 3.2),
        (LANES, {"a": 0}, 1, 1, 1, 5 * 6 / 10),  # an elementwise kernel uses lanes only
        (HEADS, {"a": ("outer", 0)}, 2, 1, 1, 4 * 4 * 8 / 10),  # 8 rows: 4 lane blocks
        # k is streamed: ceil(20 / 3) = 7, three times; n is split: 8 columns, two stage blocks.
        (UPDATE, {"a": ("n", 0)}, 2, 1, 3, 2 * 2 * 7 * 3 / 10),
        (UPDATE, {"a": ("m", 0)}, 2, 1, 1, 1 * 4 * 20 / 10),
    ],
)
def test_cycles(graph: Graph, places: dict[str, Any], tp: int, tiles: int, tile_count: int, seconds: float) -> None:
    """With 2 lanes and 4 stages at 10 Hz."""
    plan = (TP2 if tp == 2 else ONE) if graph is PAIR else Plan(tp=tp, tp_dims=("x",) * (tp > 1))
    system = machine(*[ring("x", 2)] * (tp > 1), lanes=2, stages=4, frequency=10.0, tiles=8)
    changes: dict[str, Any] = {"compute_model": "cycle", "compute_utilization": None}
    score = judged(graph, places, plan, system, tiles=tiles, tile_count=tile_count, **changes)
    assert score.partitions[0].compute_s == pytest.approx(seconds)


def test_an_accumulating_gemm_leaves_its_sum_to_another() -> None:
    kernels = (gemm("p", 4, 8, 16), gemm("q", 4, 8, 16, accumulates_into="p"))
    graph = closed(name="g", kernels=kernels)
    plan, system = Plan(tp=2, tp_dims=("x",)), machine(ring("x", 2))
    good = judged(graph, {"p": ("k", 0), "q": ("k", 0)}, plan, system)
    assert good.collectives == {"all_reduce.forward": 1} and good.violations == ()
    bad = judged(graph, {"p": ("m", 0), "q": ("k", 0)}, plan, system)
    assert bad.collectives == {} and len(bad.violations) == 1 and "'q'" in bad.violations[0]
    loose = judged(graph, {"p": ("m", 0), "q": ("k", 0)}, plan, system, sharding_rules="dfmodel")
    assert loose.violations == ()


def test_shares_of_the_layer_time() -> None:
    """One partition bound by compute for 20 s, one by memory for 4 s."""
    kernels = simd("a", 100, 1, flop_per_element=100), simd("b", 100, 1)
    score = judged(closed(name="g", kernels=kernels, tensors=arrows("ab")), {"a": 0, "b": 1})
    assert score.layer_time_s == pytest.approx(22.0)
    assert (score.compute_share, score.memory_share) == pytest.approx((20 / 22, 2 / 22))
    assert (score.bound_by, score.network_share) == ("compute", 0.0)


def test_kernel_by_kernel_chip() -> None:
    score = judged(PAIR, {"a": 0, "b": 0}, ONE, machine(execution="kernel_by_kernel"))
    assert score.violations == ("partition 0 of stage 0 holds 2 kernels, execution kernel by kernel allows 1",)


def test_defaults_are_used_without_assumptions() -> None:
    score = evaluate(place(PAIR, {"a": 0, "b": 0}, ONE), PAIR, machine(compute_utilization=0.1))
    assert score.partitions[0].compute_s == pytest.approx(2048 / 100)


def test_tensors_that_leave_a_stage_wait_until_its_last_partition() -> None:
    """a -> c leaves from partition 0 of two, and in the next stage c reads it in partition 1 of two."""
    kernels = [simd(name, m, 10) for name, m in zip("abedc", (10, 8, 7, 6, 5), strict=True)]
    graph = closed(name="g", kernels=kernels, tensors=arrows("ac", "be", "dc"))

    def activations(drawn: Graph, **where: tuple[int, int]) -> list[float]:
        places = {name: ("none", *at) for name, at in where.items()}
        score = judged(drawn, places, Plan(pp=2, pp_dims=("p",)), machine(ring("p", 2)))
        return [stage.states["dram"]["activations"] for stage in score.stages]

    assert activations(graph, a=(0, 0), b=(1, 0), e=(2, 0), d=(0, 1), c=(1, 1)) == [200 + 160, 200 + 120]
    # A chain inside the second stage that ends before c reads: a's tensor waits there already.
    chained = graph.model_copy(update={"tensors": arrows("ac", "de", "ab")})
    assert activations(chained, a=(0, 0), b=(0, 0), d=(0, 1), e=(1, 1), c=(2, 1))[1] == 200 + 120


def test_a_fan_pays_every_layout_that_it_needs() -> None:
    """x is split by rows: u wants it whole (gather, V/20), v split by tokens (all-to-all, V/80)."""
    kernels = (simd("x", 10, 10), simd("u", 10, 10), simd("v", 10, 10, stream="none"))
    graph = closed(name="g", kernels=kernels, tensors=arrows("xu", "xv"))
    on = {"x": ("m", 0), "u": ("none", 0), "v": ("n", 0)}, Plan(tp=2, tp_dims=("x",)), machine(ring("x", 2))
    score = judged(graph, *on)
    assert score.collectives == {"all_gather.forward": 1, "all_to_all.forward": 1}
    assert score.partitions[0].network_s == pytest.approx(200 / 20 + 200 / 80)
    score = judged(graph, *on, sequence_parallelism="allow")
    assert score.collectives == {"all_gather.forward": 1}, "v cuts its part out of what u gathered"
    assert score.partitions[0].network_s == pytest.approx(200 / 20)


def test_stages_send_what_a_chip_holds() -> None:
    """Under tensor parallelism each chip hands on its own half; folded and drawn alike."""
    system = machine(ring("x", 2), ring("p", 2))
    plan = Plan(tp=2, pp=2, tp_dims=("x",), pp_dims=("p",))
    kernels = simd("a", 10, 10), simd("b", 10, 10)
    drawn = closed(name="g", kernels=kernels, tensors=arrows("ab"))
    score = judged(drawn, {"a": ("m", 0, 0), "b": ("m", 0, 1)}, plan, system)
    assert score.stages[0].point_to_point_s == pytest.approx(100 / 10)
    folded = closed(name="g", repeat=2, kernels=kernels, tensors=arrows("ab"), carried=arrows("ba"))
    on = {"a": ("m", 0), "b": ("m", 0)}, plan, system
    assert judged(folded, *on).stages[0].point_to_point_s == pytest.approx(100 / 10)
    # Inference pays no hop per step.
    assert judged(folded, *on, point_to_point="per_step").point_to_point_s == 0.0


def test_only_a_producer_that_streams_tokens_is_buffered_in_tiles() -> None:
    kernels = simd("a", 10, 10, stream="none"), simd("b", 10, 10)
    score = judged(closed(name="g", kernels=kernels, tensors=arrows("ab")), {"a": 0, "b": 0}, tile_count=10)
    assert score.partitions[0].sram_bytes == 2 * 200


def test_a_split_gradient_is_accumulated_and_reduced_in_shares() -> None:
    """d's gradient of 64 B is split by m over two chips; the other stage's of 16 B is the smaller one."""
    kernels = (
        Kernel(name="d", op="weight_update", m=8, k=16, n=4, pass_="update"),
        Kernel(name="e", op="weight_update", m=4, k=16, n=2, pass_="update"),
    )
    graph = closed(name="g", batch=2, kernels=kernels)
    plan = Plan(tp=2, pp=2, dp=2, tp_dims=("x",), pp_dims=("p",), dp_dims=("d",))
    system = machine(ring("x", 2), ring("p", 2), ring("d", 2))
    for d, e in ((0, 1), (1, 0)):
        score = judged(graph, {"d": ("m", 0, d), "e": ("m", 0, e)}, plan, system)
        assert sorted(p.sram_bytes for p in score.partitions) == [8, 32]
        assert sorted(p.dram_bytes for p in score.partitions) == [16, 64]
        assert score.gradient_reduction_s == pytest.approx(32 / 10)


def test_what_all_chips_hold_goes_on_in_parts() -> None:
    """Each of 8 chips holds 800 B: 80 s at 10 B/s, or a part of 100 B each, gathered on a ring.

    Gathering 800 B passes 7/8 of them over every link: 35 s at 20 B/s.
    """
    system = machine(ring("x", 8, bandwidth=20), ring("p", 2))
    plan = Plan(tp=8, pp=2, tp_dims=("x",), pp_dims=("p",))
    kernels, tensors = (simd("a", 40, 10), simd("b", 40, 10)), (Tensor(src="a", dst="b"),)
    folded = closed(name="g", repeat=2, kernels=kernels, tensors=tensors, carried=(Tensor(src="b", dst="a"),))
    for scheme, parts, seconds in (("none", None, 80.0), ("none", "scattered", 10.0 + 35.0),
                                   ("m", None, 10.0), ("m", "scattered", 10.0)):  # fmt: skip
        score = judged(folded, dict.fromkeys("ab", (scheme, 0)), plan, system, point_to_point_parts=parts)
        assert score.stages[0].point_to_point_s == pytest.approx(seconds)
