"""What a chip holds when it trains: Korthikanti's formula, and what kernels say they keep."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import RECOMPUTES
from test_ledger import machine

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.judge import evaluate
from dfopt.workloads import WORKLOADS

WORKLOAD: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder": {
        "vocab": 50, "ends": False, "rotary": False, "gated_mlp": False, "norm": "layernorm", "scores_dropout": True,
    },
}  # fmt: skip
HIDDEN, HEADS, SEQ, LAYERS, MICROBATCH = 64, 8, 16, 6, 2


def trained(workload: str, tensor: int, sequence: bool, recompute: str) -> Score:
    """A training step on some chips under Megatron's shardings, kernel by kernel."""
    graph = WORKLOADS[workload](
        hidden=HIDDEN, heads=HEADS, head_dim=HIDDEN // HEADS, ffn=4 * HIDDEN, seq=SEQ, layers=LAYERS, mode="training",
        microbatch=MICROBATCH, batch=3 * MICROBATCH, recompute=recompute, **WORKLOAD[workload],
    )  # fmt: skip
    pins = megatron_shardings(graph, tensor, sequence)
    kernels = tuple(
        KernelMapping(name=one.name, partition=place, sharding=pins.get(one.name, "none"))
        for place, one in enumerate(graph.kernels)
    )
    plan = Plan(tp=tensor, tp_dims=("x",) * (tensor > 1), microbatches=3, layers_per_stage=LAYERS)
    rules = Assumptions(execution="kernel_by_kernel", sequence_parallelism="allow" if sequence else "none")
    mapping = Mapping(graph=graph.name, system="m", plan=plan, kernels=kernels, tile_count=SEQ * MICROBATCH)
    return evaluate(mapping, graph, machine(*[tensor] if tensor > 1 else []), rules)


@pytest.mark.parametrize("recompute", RECOMPUTES)
@pytest.mark.parametrize(("tensor", "sequence"), [(1, False), (4, False), (4, True)])
@pytest.mark.parametrize("workload", WORKLOAD)
def test_activations_are_those_of_the_formula(workload: str, tensor: int, sequence: bool, recompute: str) -> None:
    """Korthikanti et al., arXiv:2205.05198, equations 1 to 4 and section 5, with half precision."""
    score = trained(workload, tensor, sequence, recompute)
    s, b, h, a, t = SEQ, MICROBATCH, HIDDEN, HEADS, tensor
    scores = 5 * a * s / h * (recompute == "none")
    layer = (34 + scores) / t if sequence else 10 + (24 + scores) / t
    if recompute in ("full", "full+attention"):
        layer = 2 / t if sequence else 2
    (held,) = score.memory
    kept = held.activations_b + held.checkpoints_b
    assert kept == pytest.approx(s * b * h * layer * LAYERS, rel=1e-12)
    assert bool(held.checkpoints_b) == (recompute in ("full", "full+attention"))
    assert bool(held.working_b) == (recompute != "none")
    assert held.total == pytest.approx(score.stages[0].dram_bytes, rel=1e-9)
    # weights in half precision; gradients, main weights and two moments in single (Megatron-LM)
    parameters = 12 * LAYERS * HIDDEN**2 / tensor
    of_each = held.weights_b / parameters, held.weight_gradients_b / parameters, held.optimizer_b / parameters
    assert of_each == pytest.approx((2, 4, 12))


def test_what_is_computed_again_is_there_while_a_layer_runs() -> None:
    """When all is computed again, a chip has all of what one layer keeps, once its copies have run."""
    for workload in WORKLOAD:
        (kept,), (again,) = (trained(workload, 1, False, each).memory for each in ("none", "full"))
        assert again.working_b >= 0.9 * kept.activations_b / LAYERS


def test_a_kernel_keeps_what_nothing_drawn_reads() -> None:
    """Once: where a tensor brings it to the backward pass, or it waits between partitions, it is not counted again."""
    make = {"op": "elementwise", "m": 4, "n": 8}
    forward = Kernel(name="a", output_saved=True, mask_bytes=1.0, **make), Kernel(name="b", **make)
    back = Kernel(name="c", pass_="backward", **make)

    def held(*tensors: Tensor, **changes: Any) -> float:
        kernels = (forward[0].model_copy(update=changes), forward[1], back)
        graph = Graph(name="g", kernels=kernels, tensors=tensors, inputs=(), outputs=())
        places = tuple(KernelMapping(name=one.name, partition=place) for place, one in enumerate(kernels))
        mapping = Mapping(graph="g", system="m", plan=Plan(), kernels=places)
        states = evaluate(mapping, graph, machine(), Assumptions(execution="kernel_by_kernel")).stages[0].states
        return states.get("dram", {}).get("activations", 0.0)

    ahead, over = Tensor(src="a", dst="b"), Tensor(src="a", dst="c")
    output, mask = 4 * 8 * 2.0, 4 * 8 * 1.0
    assert held(ahead) == held(ahead, over) == held(over) == output + mask
    assert held(ahead, output_saved=None) == output + mask  # it waits between two partitions
    assert held(ahead, output_saved=None, mask_bytes=None) == output
    assert held(over, output_saved=False, mask_bytes=None) == output  # while the layer runs
