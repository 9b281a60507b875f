"""What lies in a slower memory while a graph trains: seconds that show and bytes, by hand and as Calculon."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from judge_cases import gemm, place
from strategies import layered

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.placement import Placement
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import Chip, Memory, Sram, System
from dfopt.errors import PlanError
from dfopt.frontends.calculon import load_case
from dfopt.frontends.calculon.files import Execution
from dfopt.physics.beside import optimizer_s

GOLDEN = Path(__file__).parents[1] / "golden" / "calculon"
SLOW = 10.0
CHIP = Chip(
    name="c", tiles=4, peak=1e3, sram=Sram(capacity=1e9), execution="kernel_by_kernel",
    memories=(Memory(name="HBM", bandwidth=100.0), Memory(name="host", bandwidth=SLOW, capacity=1e6)),
)  # fmt: skip
LAYERS = 5


KERNELS = (
    gemm("ahead", 4, 8, 16),
    gemm("back", 8, 4, 16, pass_="backward"),
    Kernel(name="update", op="weight_update", m=4, k=16, n=8, pass_="update"),
)
"""A product, the gradients of its input and of its weight."""
TENSORS = Tensor(src="ahead", dst="update"), Tensor(src="back", dst="update")


def scored(placement: Placement | None, layers: int = LAYERS, drawn: Graph | None = None, **chosen: Any) -> Score:
    rules = Assumptions(overlap="none", optimizer_step="adam", layer_boundary="free", compute_utilization=1.0)
    drawn = drawn or layered(layers, KERNELS, tensors=TENSORS, batch=3)
    plan = Plan(microbatches=3, layers_per_stage=layers, placement=placement)
    places = {one.name: ("none", at, drawn.kind_of(one)) for at, one in enumerate(drawn.kernels)}
    mapping = place(drawn, places, plan, tile_count=16)
    return df.evaluate(mapping, drawn, System(name="s", chip=CHIP), rules.with_(**chosen))


def passes(score: Score) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of work, and of these of the fastest memory, of the forward and of the backward pass of a layer."""
    ahead, *back = score.partitions
    return (ahead.time_s, ahead.memory_s), (sum(one.time_s for one in back), sum(one.memory_s for one in back))


@pytest.mark.parametrize("offload", [None, "calculon"])
def test_what_shows_is_what_is_left_beside_the_work(offload: str | None) -> None:
    """Weights 64 B, saved 128 B, gradients 64 B read and written; in Calculon the 384 B of the optimizer beside."""
    placement = Placement(weights="host", activations="host", gradients="host", optimizer="host")
    score, plain = scored(placement, offload=offload), scored(None)
    assert score.partitions == plain.partitions
    (ahead_s, ahead_memory_s), (back_s, back_memory_s) = passes(plain)
    moved = (64 + 128, 64 + 128 + 2 * 64) if offload is None else (128, 64 + 128 + 12 * 32)
    forward = moved[0] / SLOW + ahead_memory_s - ahead_s
    backward = moved[1] / SLOW + back_memory_s - back_s
    assert min(forward, backward) > 0
    [stage] = score.stages
    assert stage.offload_forward_s == pytest.approx(LAYERS * forward, rel=1e-12)
    assert stage.offload_backward_s == pytest.approx(LAYERS * backward, rel=1e-12)
    assert stage.time_s == pytest.approx(plain.stages[0].time_s + LAYERS * (forward + backward), rel=1e-12)
    parts = score.breakdown
    assert parts is not None and parts.total == pytest.approx(score.step_time_s, rel=1e-12)
    assert parts.offload_forward_s == pytest.approx(3 * LAYERS * forward, rel=1e-12)
    assert parts.offload_backward_s == pytest.approx(3 * LAYERS * backward, rel=1e-12)


def test_the_step_of_the_optimizer_is_at_the_rate_of_its_memory() -> None:
    """32 parameters a layer: state of 12 B read and written there, a gradient and a weight of 2 B each elsewhere."""
    there, here = scored(Placement(optimizer="host")), scored(None)
    compute_s = 32 * 11 / CHIP.peak_flops
    assert here.breakdown.optimizer_s == pytest.approx(LAYERS * (compute_s + 32 * 28 / 100), rel=1e-12)
    assert there.breakdown.optimizer_s == pytest.approx(LAYERS * (compute_s + 32 * (24 / SLOW + 4 / 100)), rel=1e-12)
    assert there.step_time_s - here.step_time_s == pytest.approx(
        there.breakdown.optimizer_s - here.breakdown.optimizer_s, rel=1e-9
    )
    calculon = Assumptions(optimizer_step="adam", offload="calculon", overlap="none")
    plan = Plan(placement=Placement(optimizer="host"))
    assert optimizer_s(32, 2, 2, CHIP, calculon, plan) == optimizer_s(32, 2, 2, CHIP, calculon)


@pytest.mark.parametrize(("layers", "two"), [(5, 2), (1, 1)])
def test_the_fastest_memory_has_two_layers(layers: int, two: int) -> None:
    placement = Placement(weights="host", activations="host", gradients="host", optimizer="host")
    if layers == 1:
        with pytest.raises(df.DfoptError, match="no layers that repeat"):
            scored(placement, layers)
        placement = Placement(optimizer="host")
    [stage], [whole] = scored(placement, layers).stages, scored(None, layers).stages
    away = placement.elsewhere.keys()
    of_a_layer = {"weights": 64.0, "activations": 128.0, "gradients": 64.0, "optimizer": 384.0}
    for name, size in of_a_layer.items():
        waits = whole.states["HBM"][name] - layers * size
        assert waits == (256.0 if name == "activations" else 0.0)  # of the layer at work
        if name in away:
            assert stage.states["host"][name] == layers * size
            assert stage.states["HBM"][name] == two * size + waits


def test_a_forward_pass_has_nothing_to_move() -> None:
    with pytest.raises(df.DfoptError, match="does not train"):
        scored(Placement(optimizer="host"), drawn=layered(LAYERS, KERNELS[:1], batch=3))


def test_an_execution_of_calculon_with_everything_in_its_second_memory(tmp_path: Path) -> None:
    """Turing-NLG 530B on 5128 processors, the example of its README: seconds and bytes as it printed them.

    Its second memory also has what only the layer at work needs of activations; parameters of norms stay in the first
    here. An all-gather for the backward pass counts as a part of the forward pass, which hides 0.02 s more.
    """
    [row] = csv.DictReader((GOLDEN / "offloaded.csv").open(encoding="utf-8"))
    words: dict[str, Any] = {"true": True, "false": False}
    fields = [name for name in Execution.model_fields if name in row]
    told = {n: words.get(row[n], int(row[n]) if row[n].isdigit() else row[n]) for n in fields}
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({**told, "attention_type": "multihead", "training": True}))
    case = load_case(GOLDEN / "turing-530B.json", GOLDEN / "a100_80g.json", path)
    assert case.pins is not None
    plan = Plan(
        **case.pins.on_axes, microbatches=1, layers_per_stage=105, zero=1, placement=Placement(**case.place)
    )  # fmt: skip
    names = [kernel.name for kernel in case.graph.kernels]
    places = {name: (case.pins.sharding.get(name, "none"), partition) for partition, name in enumerate(names)}
    mapping = place(case.graph, places, plan, tile_count=max(one.n for one in case.graph.kernels))
    score = df.evaluate(mapping, case.graph, case.system, case.assumptions)
    parts = score.breakdown
    assert parts is not None and parts.total == pytest.approx(score.step_time_s, rel=1e-9)
    assert score.step_time_s == pytest.approx(float(row["total_time_s"]), rel=5e-4)
    assert parts.offload_forward_s == pytest.approx(float(row["fw_offload_exposed_time_s"]), rel=0.02)
    assert parts.offload_backward_s == float(row["bw_offload_exposed_time_s"]) == 0.0
    assert parts.data_parallel_s == pytest.approx(float(row["dp_comm_exposed_time_s"]), rel=0.004)
    [stage] = score.stages
    assert stage.held_in("memory1") == pytest.approx(float(row["mem_tier1_req_B"]), rel=0.0025)
    assert stage.held_in("memory2") == pytest.approx(float(row["mem_tier2_req_B"]), rel=0.006)


def test_layers_of_several_kinds_are_none_of_calculons() -> None:
    several = layered(LAYERS, (*KERNELS, gemm("head", 4, 8, 16, layer="last")), tensors=TENSORS, batch=3)
    with pytest.raises(PlanError, match="layers that are all of one kind"):
        scored(Placement(weights="host"), drawn=several, offload="calculon")
