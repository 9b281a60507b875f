"""What a training step computes again instead of keeping it: kernels, FLOP, bytes that wait, the best of all ways."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import RECOMPUTES
from pydantic import ValidationError
from strategies import LEVELS

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.errors import PlanError
from dfopt.physics.ops import flop
from dfopt.search.verify import verify
from dfopt.workloads import WORKLOADS, expand
from dfopt.workloads.recompute import recompute_of

SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"hidden": 32, "heads": 4, "head_dim": 8, "seq": 16, "layers": 4},
    "decoder": {"hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 40, "vocab": 50, "seq": 16, "layers": 4},
    "moe": {
        "hidden": 32, "heads": 4, "head_dim": 8, "ffn": 40, "vocab": 50, "seq": 16, "layers": 4, "experts": 4,
        "chosen": 2,
    },
}  # fmt: skip
SCORES = ("scores", "softmax", "scores_dropout")


def layer(workload: str, recompute: str, **more: Any) -> Graph:
    fields = SIZES[workload] | {"mode": "training", "recompute": recompute, "batch": 8, **more}
    return WORKLOADS["decoder" if workload == "moe" else workload](**fields)


def kept(graph: Graph) -> set[str]:
    """Forward kernels whose outputs wait for what runs after the forward pass."""
    of = {kernel.name: kernel for kernel in graph.kernels}
    return {t.src for t in graph.tensors if of[t.src].pass_ == "forward" and of[t.dst].pass_ != "forward"}


@pytest.mark.parametrize("workload", SIZES)
def test_what_is_kept_and_what_runs_again(workload: str) -> None:
    drawn = {each: layer(workload, each) for each in RECOMPUTES}
    of = {kernel.name: kernel for kernel in drawn["none"].kernels}
    ends = {kernel.name for kernel in drawn["none"].kernels if kernel.layer not in (None, "layer")}
    first = {t.dst for t in drawn["none"].carried if t.direction == "forward"}
    scores = {kernel.name for kernel in drawn["none"].kernels if kernel.role in SCORES}
    whole = kept(drawn["none"])
    reads = {t.src for t in drawn["none"].tensors if t.dst in scores and of[t.dst].pass_ == "forward"}
    assert kept(drawn["attention"]) == whole - scores | reads - scores
    for each in ("full", "full+attention"):
        assert kept(drawn[each]) - ends <= first and kept(drawn[each]) & ends == whole & ends
    for each, graph in drawn.items():
        again = [kernel for kernel in graph.kernels if kernel.pass_ == "recompute"]
        assert Graph.from_data(graph.to_data()) == graph
        assert len({kernel.name for kernel in graph.kernels}) == len(drawn["none"].kernels) + len(again)
        for kernel in again:  # of the same work as the first time, and where that is
            own = of[str(kernel.stage_with)]
            assert (own.pass_, flop(own)) == ("forward", flop(kernel))
        plain = {"output_saved": None, "mask_bytes": None}  # kept by the copies, if there are any
        once = [k.model_copy(update=plain) for k in graph.kernels if k.pass_ != "recompute"]
        assert once == [k.model_copy(update=plain) for k in drawn["none"].kernels]
        assert bool(again) == (each != "none") and (graph.variant is None) == (each == "none")


@pytest.mark.parametrize("workload", SIZES)
def test_a_copy_reads_copies_of_what_is_not_kept(workload: str) -> None:
    """Every operand of a copy is that of the original, or its copy if the original's output is gone by then."""
    for each in RECOMPUTES[1:]:
        graph = layer(workload, each)
        of = {kernel.name: kernel for kernel in graph.kernels}
        inputs: dict[str, list[str]] = {}
        for tensor in graph.tensors:
            inputs.setdefault(tensor.dst, []).append(tensor.src)
        waits = kept(graph)
        for kernel in graph.kernels:
            if kernel.pass_ == "recompute":
                read = [of[name].stage_with if of[name].pass_ == "recompute" else name for name in inputs[kernel.name]]
                assert read == inputs[str(kernel.stage_with)]
            if kernel.pass_ != "forward":
                assert all(of[name].pass_ != "forward" or name in waits for name in inputs.get(kernel.name, ()))


@pytest.mark.parametrize("workload", SIZES)
def test_less_waits_and_more_is_done(workload: str) -> None:
    found = []
    for each in RECOMPUTES:
        result = df.optimize(layer(workload, each), "a100-8", assumptions=LEVELS, pp=1, tp=1)
        found.append(
            (result.score.stages[0].states["dram"]["activations"], result.score.flop_per_step, result.utilization)
        )
    waits, work, share = zip(*found, strict=True)
    assert waits[0] > waits[1] > waits[2] >= waits[3] and work[0] < work[1] < work[2] < work[3]
    assert share[0] > share[2]  # nothing done twice is of use twice


def test_the_best_way_is_found_and_proven() -> None:
    ways = [df.load_graph("gpt2-small", mode="training", batch=64, microbatch=8, recompute=each) for each in RECOMPUTES]
    system = df.load_system("a100-8", {"chip.dram.capacity": "3.5 GB"})
    alone = {}
    for graph in ways:
        try:
            alone[graph.variant] = df.optimize(graph, system, assumptions="ideal", zero=0, tp=1, pp=2).step_time_s
        except df.Infeasible:
            alone[graph.variant] = float("inf")
    found = df.optimize(ways[0], system, variants=ways[1:], assumptions="ideal", zero=0, tp=1, pp=2)
    assert found.step_time_s == pytest.approx(min(alone.values()), rel=1e-9)
    assert alone[None] == float("inf") and alone[found.graph.variant] == min(alone.values())
    assert verify(found).verdict == "verified optimal"


def test_files_of_before_say_whether_scores_are_kept() -> None:
    about = {"schema": "dfopt/graph/3", "name": "g", "workload": "transformer"}
    sizes = SIZES["transformer"] | {"mode": "training"}
    for said, each in ((True, "none"), (False, "attention")):
        old = expand({**about, "parameters": {**sizes, "scores_kept": said}})
        assert old == expand({**about, "parameters": {**sizes, "recompute": each}})
    with pytest.raises(df.DocumentError, match="scores_kept"):
        expand({**about, "parameters": {**sizes, "scores_kept": False, "recompute": "none"}})


def test_a_forward_pass_computes_nothing_again() -> None:
    assert layer("decoder", "full", mode="forward") == layer("decoder", "none", mode="forward")
    with pytest.raises(PlanError, match="a microbatch of 1 is there twice"):
        df.optimize(layer("decoder", "none"), "a100-8", assumptions="ideal", variants=[layer("decoder", "none")])


def test_a_step_is_told_by_its_parts() -> None:
    """With nothing hidden, work that is done again is the forward pass but for what hands the layer's input on."""
    chosen = Assumptions(overlap="none", execution="kernel_by_kernel", sequence_parallelism="none")
    whole, again = (
        df.optimize(layer("transformer", each), "a100-8", assumptions=chosen, tp=8) for each in ("none", "full")
    )
    before, after = whole.score.breakdown, again.score.breakdown
    assert before is not None and after is not None
    assert before.recompute_s == before.recomputed_communication_s == 0
    assert 0.5 * after.forward_s < after.recompute_s < after.forward_s
    assert 0 < after.recomputed_communication_s < after.tensor_parallel_s
    assert after.total == pytest.approx(again.step_time_s, rel=1e-9)
    matrices = sum(
        flop(k) for k in layer("transformer", "full").kernels if k.op != "elementwise" and k.pass_ == "forward"
    )
    peak = 8 * df.load_system("a100-8").chip.peak_flops * again.step_time_s
    assert again.score.model_flop_utilization == pytest.approx(3 * 4 * 8 * matrices / peak, rel=1e-9)
    assert again.score.hardware_flop_utilization == pytest.approx(4 * 4 * 8 * matrices / peak, rel=0.1)


@pytest.mark.parametrize(
    ("workload", "which", "left"),
    [
        ("moe", "moe_act", {"Act_Mul"}),
        ("moe", "moe", {"Top_K", "Gate_Proj", "Up_Proj", "Act_Mul"}),
        ("decoder", "mlp", {"Gate_Proj", "Up_Proj", "Act_Mul"}),
        ("transformer", "layernorm", {"LayerNorm_1", "LayerNorm_2"}),
        ("moe", "layernorm+moe_act", {"RMSNorm_1", "RMSNorm_2", "Act_Mul"}),
    ],
)
def test_modules_are_not_kept(workload: str, which: str, left: set[str]) -> None:
    whole, graph = layer(workload, "none"), layer(workload, which)
    assert kept(whole) - kept(graph) == left and graph.variant == f"recompute: {recompute_of(which)}"
    again = {kernel.stage_with for kernel in graph.kernels if kernel.pass_ == "recompute"}
    assert again == left | ({"Router"} if which == "moe" else set())  # what the router's choice is made from


@pytest.mark.parametrize("which", ["halves", "full/none/attention", "full/full", "mlp+mlp", "", "layernorm+none"])
def test_what_is_no_name_is_told(which: str) -> None:
    with pytest.raises(ValidationError, match="found"):
        layer("decoder", which)


@pytest.mark.parametrize(("workload", "which"), [("decoder", "moe"), ("moe", "mlp"), ("decoder", "mla_up_proj/none")])
def test_names_of_what_a_layer_lacks_are_told(workload: str, which: str) -> None:
    with pytest.raises(df.DocumentError, match=f"no kernel of decoder is {which.partition('/')[0]}"):
        layer(workload, which)
    assert not any(kernel.pass_ == "recompute" for kernel in layer(workload, which, mode="forward").kernels)
