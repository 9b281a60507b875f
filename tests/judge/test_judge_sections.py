"""Kernels before the first and after the last layer, by hand: times and memory of every pipeline stage."""

from __future__ import annotations

from typing import Any

import judge_cases as cases
import pytest
from judge_cases import gemm, machine, ring, simd
from strategies import layered

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.sections import Section
from dfopt.errors import DocumentError, GraphError, PlanError

# Chips of 1000 FLOP/s at half their peak and 100 B/s of DRAM.
LAYER = simd("layer", 10, 50, flop_per_element=2)  # 1000 FLOP: 2 s
EMBED = simd("embed", 10, 10, layer="first", flop_per_element=4, resident_bytes=600.0)  # 400 FLOP: 0.8 s
HEAD = gemm("head", 10, 10, 10, layer="last")  # 2000 FLOP: 4 s; 200 B of weights: 2 s of DRAM
PLACES = {"layer": ("none", 0, 0), "embed": ("none", 0, 1), "head": ("none", 0, 2)}


def graph(*kernels: Kernel, **more: Any) -> Graph:
    chosen = {"repeat": 10, "batch": 6, "inputs": (), "outputs": (), **more}
    return layered(kernels=kernels or (LAYER, EMBED, HEAD), **chosen)


def judged(plan: Plan, drawn: Graph | None = None, places: Any = None, **changes: Any) -> Score:
    dims = [ring(name, size) for name, size in (("p", plan.pp), ("d", plan.dp)) if size > 1]
    drawn = drawn if drawn is not None else graph()
    system = machine(*dims, dram_capacity=changes.pop("dram", None))
    return cases.judged(drawn, places or {k.name: PLACES[k.name] for k in drawn.kernels}, plan, system, **changes)


def pipelined(pp: int, layers: int, *ends: int, microbatches: int = 6) -> Plan:
    uneven = dict(zip(("first_layers", "last_layers"), ends, strict=False))
    return Plan(pp=pp, pp_dims=("p",), microbatches=microbatches, layers_per_stage=layers, **uneven)


ONE = Plan(microbatches=6, layers_per_stage=10)


@pytest.mark.parametrize(
    ("plan", "stages", "step_s"),
    [
        (ONE, [(0, (0, 1, 2), 10, 10 * 2 + 4.8)], 6 * 24.8),
        (pipelined(2, 5), [(0, (0, 1), 5, 10.8), (1, (0, 2), 5, 14.0)], (6 + 1) * 14.0),  # an end each
        (pipelined(2, 6, 6, 4), [(0, (0, 1), 6, 12.8), (1, (0, 2), 4, 12.0)], 7 * 12.8),  # and fewer beside the head
        # stages in the middle have layers only
        (pipelined(4, 3, 3, 1), [(0, (0, 1), 3, 6.8), (1, (0,), 3, 6.0), (3, (0, 2), 1, 6.0)], (6 + 3) * 6.8),
    ],
)
def test_stages_run_what_they_hold(plan: Plan, stages: list[tuple[Any, ...]], step_s: float) -> None:
    score = judged(plan)
    assert [(stage.stage, stage.holds, stage.layers, pytest.approx(stage.time_s)) for stage in score.stages] == stages
    assert score.step_time_s == pytest.approx(step_s)


def test_one_stage_runs_everything_one_after_another() -> None:
    score = judged(ONE)
    (stage,) = score.stages
    assert stage.layer_time_s == 2.0 and stage.once_time_s == pytest.approx(0.8 + 4)
    assert score.flop_per_step == 6 * (10 * 1000 + 400 + 2000)
    assert score.has_kinds and score.violations == ()


def test_shares_weigh_the_layer_with_its_repeats() -> None:
    """Four layers bound by compute; the head, whose weights are read more slowly here, by memory."""
    heavy = HEAD.model_copy(update={"dram_bytes": 400.0})  # 600 B: 6 s
    score = judged(pipelined(2, 6, 6, 4), graph(LAYER, EMBED, heavy))
    assert score.stages[1].time_s == pytest.approx(4 * 2 + 6)
    assert score.compute_share == pytest.approx(8 / 14)
    assert score.memory_share == pytest.approx(6 / 14)
    assert score.bound_by == "compute"


def test_a_hop_is_the_same_for_every_stage() -> None:
    carried = (Tensor(src="layer", dst="layer", bytes=80.0),)  # 8 s on a link of 10 B/s
    score = judged(pipelined(4, 3, 3, 1), graph(carried=carried), overlap="none", layer_boundary="free")
    assert [stage.point_to_point_s for stage in score.stages] == [8.0, 8.0, 8.0]
    assert [stage.time_s for stage in score.stages] == [pytest.approx(14.8), 14.0, pytest.approx(2 + 4 + 2 + 8.0)]


# -- memory -----------------------------------------------------------------------------------

# A layer, an embedding and a head that train: a weight each, and one activation kept for the backward pass.
TRAIN = tuple(
    kernel
    for name, runs, width in (("l", None, 4), ("e", "first", 3), ("h", "last", 5))
    for kernel in (
        gemm(f"{name}_f", width, 4, 8, layer=runs),
        simd(f"{name}_b", width, 8, layer=runs, pass_="backward"),
        gemm(f"{name}_u", width, 4, 1, layer=runs, pass_="update").model_copy(
            update={"op": "weight_update", "m": width, "k": 8, "n": 4}
        ),
    )
)
TRAIN_TENSORS = tuple(
    Tensor(src=f"{name}_{a}", dst=f"{name}_{b}") for name in "leh" for a, b in (("f", "b"), ("b", "u"))
)
TRAIN_PLACES = {
    f"{name}_{kind}": ("none", partition, stage)
    for stage, name in enumerate("leh")
    for partition, kind in enumerate("fbu")
}


def train(plan: Plan, **changes: Any) -> Score:
    drawn = graph(*TRAIN, tensors=TRAIN_TENSORS, batch=plan.microbatches * plan.dp)
    return judged(plan, drawn, TRAIN_PLACES, **changes)


def bytes_of(layers: int, layers_waiting: int, end: int = 0, waiting: int = 0) -> dict[str, float]:
    """Weights are ``4 x width`` words of 2 B, saved activations ``8 x width``; ``end`` is the width of the end."""
    transit = max(4, end) * 8 * 2  # b -> u, of the wider part
    return {
        "weights": 32 * layers + 8 * end,
        "gradients": 32 * layers + 8 * end,
        "optimizer": 12 * (16 * layers + 4 * end),
        "activations": 64 * layers * layers_waiting + 16 * end * waiting + transit,
    }


def found(score: Score) -> list[dict[str, float]]:
    return [stage.states["dram"] for stage in score.stages]


def test_memory_of_each_stage() -> None:
    """Four microbatches wait in the first of four stages, three in the second, one in the last."""
    assert found(train(pipelined(4, 3, 3, 1))) == [bytes_of(3, 4, 3, 4), bytes_of(3, 3), bytes_of(1, 1, 5, 1)]
    (whole,) = found(train(ONE))
    assert whole["weights"] == whole["gradients"] == 320 + 24 + 40
    assert (whole["optimizer"], whole["activations"]) == (12 * (160 + 12 + 20), 640 + 48 + 80 + 80)


def test_under_gpipe_every_stage_keeps_all_microbatches() -> None:
    wanted = [bytes_of(3, 6, 3, 6), bytes_of(3, 6), bytes_of(1, 6, 5, 6)]
    assert found(train(pipelined(4, 3, 3, 1), schedule="gpipe")) == wanted


def test_interleaved_chunks_wait_longer_but_for_the_head() -> None:
    """Two chunks of 5 on a ring of 2: (2 + 1/2) microbatches of layers in the first stage, 3/2 in the last.

    Of the first chunk alone, and the embedding before it, 3 wait; what follows the last chunk goes straight back.
    """
    drawn = graph(*TRAIN, tensors=TRAIN_TENSORS, repeat=20, batch=6)
    plan = pipelined(2, 10).model_copy(update={"interleave": 2})
    score = judged(plan, drawn, TRAIN_PLACES)
    assert [stage.states["dram"]["activations"] for stage in score.stages] == [
        64 * 10 * 2.5 + 48 * 3 + 64,
        64 * 10 * 1.5 + 80 * 1 + 80,
    ]


def test_the_stage_that_is_too_full_is_named() -> None:
    held = [sum(part.values()) for part in found(train(pipelined(4, 3, 3, 1)))]
    assert max(held) == held[0] > held[1] > held[2]
    (violation,) = train(pipelined(4, 3, 3, 1), dram=(held[0] + held[1]) / 2).violations
    assert violation.startswith("the first stage needs ")
    assert len(train(pipelined(4, 3, 3, 1), dram=held[2] - 1).violations) == 3


def test_tables_are_held_once_and_only_where_they_are_used() -> None:
    score = judged(pipelined(2, 5))
    assert [stage.states for stage in score.stages] == [{"dram": {"tables": 600.0}}, {"dram": {"weights": 200.0}}]


def test_the_slowest_stage_reduces_its_gradients() -> None:
    """Two copies on a ring of 10 B/s: 2 x (1/2) of the bytes, at 10 B/s each way, per evaluation of a part."""
    plan = pipelined(4, 3, 3, 1).model_copy(update={"dp": 2, "dp_dims": ("d",)})
    layer, embed, head = (2 * 16 * width / 4 / 10 for width in (4, 3, 5))
    assert train(plan).gradient_reduction_s == pytest.approx(max(3 * layer + embed, 3 * layer, layer + head))


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (pipelined(2, 5, 5, 4), r"hold 9, the graph has 10"),
        (pipelined(2, 6, 4, 4), r"\$\.plan\.layers_per_stage: found 6, but the first stage has 4 layers"),
        (pipelined(2, 5, 6, 4), r"\$\.plan\.layers_per_stage: found 5, but the first stage has 6 layers"),
        (pipelined(4, 4, 3, 3), r"stages of 3 \+ 2 x 4 \+ 3 layers hold 14"),
        (Plan(microbatches=6, layers_per_stage=10, last_layers=9), r"\$\.plan\.first_layers: found 1 stages"),
    ],
)
def test_uneven_layers_must_add_up(plan: Plan, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        judged(plan)


def test_without_ends_all_stages_are_alike() -> None:
    with pytest.raises(PlanError, match=r"\$\.plan\.first_layers: all stages of this graph are alike"):
        judged(pipelined(2, 6, 6, 4), graph(LAYER))


def test_a_kernel_is_mapped_to_its_piece() -> None:
    with pytest.raises(DocumentError, match=r"found 0, but kernel 'head' belongs to 'last' \(write 2\)"):
        judged(ONE, places=PLACES | {"head": ("none", 0, 0)})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensors": (Tensor(src="layer", dst="head", bytes=8.0),)}, r"\$\.tensors\[0\].*put it in dram_bytes"),
        ({"carried": (Tensor(src="embed", dst="layer"),)}, r"\$\.carried\[0\].*put it in dram_bytes"),
        (
            {"carried": (Tensor(src="embed", dst="embed"),)},
            r"\$\.carried: 'first' hands on 200 B forward, but 'layer' nothing",
        ),
        ({"kernels": (LAYER, HEAD.model_copy(update={"stage_with": "layer"}))}, r"\$\.kernels\[1\]\.stage_with"),
        (
            {"kernels": (LAYER, HEAD, gemm("two", 10, 10, 10, accumulates_into="head"))},
            r"\$\.kernels\[2\]\.accumulates_into",
        ),
        ({"kernels": (EMBED, HEAD)}, r"\$\.sections\[1\]\.layers\[0\]: no kernel belongs to 'layer'"),
    ],
)
def test_pieces_are_apart(changes: dict[str, Any], said: str) -> None:
    fields = {"kernels": (LAYER, EMBED, HEAD), **changes}
    with pytest.raises(GraphError, match=said):
        layered(10, **fields)
    assert not layered(1, **fields).folded  # drawn as a whole they are ordinary kernels


LAYERS = "dense", "sparse"


@pytest.mark.parametrize("names", [LAYERS, LAYERS[::-1]])
def test_layers_of_all_kinds_hand_on_alike(names: tuple[str, str]) -> None:
    """Whichever kind hands on its tensor first in the graph, another layout of one of them is a broken limit."""
    kernels = tuple(Kernel(name=name, op="gemm", m=8, k=8, n=8, layer=name) for name in LAYERS)
    drawn = Graph(
        name="two",
        kernels=kernels,
        batch=2,
        carried=tuple(Tensor(src=name, dst=name) for name in names),
        sections=tuple(Section(layers=(name,), repeat=2) for name in LAYERS),
    )
    plan = Plan(tp=2, tp_dims=("x",), layers_per_stage=4, microbatches=2)
    for schemes, broken in ((("m", "m"), False), (("m", "k"), True)):
        places = {name: (scheme, 0, stage) for stage, (name, scheme) in enumerate(zip(LAYERS, schemes, strict=True))}
        said = cases.judged(drawn, places, plan, machine(ring("x", 2))).violations
        assert any("hands on its output" in sentence for sentence in said) == broken
