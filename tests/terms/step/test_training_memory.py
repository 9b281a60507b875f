"""What a chip holds when it trains: both books where kernels say what they keep, and Korthikanti's formula."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import World, keeping, worlds
from test_ledger import mapped, optimisers, pipelines

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.judge import case as judged
from dfopt.judge import evaluate
from dfopt.judge import ledger as judge
from dfopt.workloads import WORKLOADS
from dfopt.workloads.recompute import RECOMPUTES

WORKLOAD: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder": {
        "vocab": 50, "ends": False, "rotary": False, "gated_mlp": False, "norm": "layernorm", "scores_dropout": True,
    },
}  # fmt: skip
HIDDEN, HEADS, SEQ, LAYERS, MICROBATCH = 64, 8, 16, 6, 2


@given(mapped(keeping(st.one_of(worlds(roomy=True, zero=True, trains=True), pipelines()))))
def test_both_books_are_equal_and_parts_add_up(drawn: tuple[World, Mapping]) -> None:
    world, mapping = drawn
    case = judged.build(mapping, world.graph, world.system, world.assumptions)
    for rank, mine in zip(case.ranks, optimisers(world, mapping), strict=True):
        theirs = judge.held(case, rank)
        assert theirs.get("dram", {}) == pytest.approx(mine["dram"], rel=1e-12, abs=1e-9)
        whole = math.fsum(size for held in theirs.values() for size in held.values())
        parts = judge.memory(judge.entries(case, rank, partial(judge.amounts, case)))
        assert parts.total == pytest.approx(whole, rel=1e-9, abs=1e-9)
        assert min(dict(parts).values()) >= -1e-9 * (1 + whole)


def trained(workload: str, tensor: int, sequence: bool, recompute: str, **assumed: Any) -> tuple[Graph, Score]:
    """A training step on some chips under Megatron's shardings, kernel by kernel."""
    graph = WORKLOADS[workload](
        hidden=HIDDEN, heads=HEADS, head_dim=HIDDEN // HEADS, ffn=4 * HIDDEN, seq=SEQ, layers=LAYERS, mode="training",
        microbatch=MICROBATCH, batch=3 * MICROBATCH, recompute=recompute, **WORKLOAD[workload],
    )  # fmt: skip
    network = [{"name": "x", "topology": "ring", "size": tensor, "link_bandwidth": 100.0}] if tensor > 1 else []
    chip = {"name": "c", "tiles": 8, "peak": 1000.0, "sram": {"capacity": 1e9}, "dram": {"bandwidth": 100.0}}
    system = System.model_validate({"name": "m", "chip": chip, "network": network})
    pins = megatron_shardings(graph, tensor, sequence)
    kernels = tuple(
        KernelMapping(name=one.name, partition=place, sharding=pins.get(one.name, "none"))
        for place, one in enumerate(graph.kernels)
    )
    plan = Plan(tp=tensor, tp_dims=("x",) * (tensor > 1), microbatches=3, layers_per_stage=LAYERS)
    rules = Assumptions(execution="kernel_by_kernel", sequence_parallelism="allow" if sequence else "none", **assumed)
    mapping = Mapping(graph=graph.name, system="m", plan=plan, kernels=kernels, tile_count=SEQ * MICROBATCH)
    return graph, evaluate(mapping, graph, system, rules)


@pytest.mark.parametrize("recompute", RECOMPUTES)
@pytest.mark.parametrize(("tensor", "sequence"), [(1, False), (4, False), (4, True)])
@pytest.mark.parametrize("workload", WORKLOAD)
def test_activations_are_those_of_the_formula(workload: str, tensor: int, sequence: bool, recompute: str) -> None:
    """Korthikanti et al., arXiv:2205.05198, equations 1 to 4 and section 5, with half precision."""
    score = trained(workload, tensor, sequence, recompute)[1]
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


@pytest.mark.parametrize("workload", WORKLOAD)
def test_eighteen_bytes_of_a_parameter(workload: str) -> None:
    """Weights in half precision, gradients, main weights and two moments in single: 2 + 4 + 12 bytes (Megatron-LM)."""
    (held,) = trained(workload, 4, True, "none")[1].memory or ()
    parameters = 12 * LAYERS * HIDDEN**2 / 4
    assert (held.weights_b, held.weight_gradients_b, held.optimizer_b) == (
        pytest.approx(2 * parameters), pytest.approx(4 * parameters), pytest.approx(12 * parameters)
    )  # fmt: skip


def test_what_is_computed_again_is_there_while_a_layer_runs() -> None:
    """When all is computed again, a chip has all of what one layer keeps, once its copies have run."""
    for workload in WORKLOAD:
        kept, again = (trained(workload, 1, False, each)[1].memory or () for each in ("none", "full"))
        assert again[0].working_b >= 0.9 * kept[0].activations_b / LAYERS


def test_a_kernel_keeps_what_nothing_drawn_reads() -> None:
    """Once: where a tensor brings it to the backward pass, or it waits between partitions, it is not counted again."""
    make = {"op": "elementwise", "m": 4, "n": 8}
    forward = Kernel(name="a", output_saved=True, mask_bytes=1.0, **make), Kernel(name="b", **make)
    back = Kernel(name="c", pass_="backward", **make)

    def held(*tensors: Tensor, **changes: Any) -> float:
        kernels = (forward[0].model_copy(update=changes), forward[1], back)
        graph = Graph(name="g", kernels=kernels, tensors=tensors, inputs=(), outputs=())
        places = tuple(KernelMapping(name=one.name, partition=place) for place, one in enumerate(kernels))
        chip = {"name": "c", "tiles": 8, "peak": 1000.0, "sram": {"capacity": 1e9}, "dram": {"bandwidth": 100.0}}
        system = System.model_validate({"name": "m", "chip": chip, "network": []})
        mapping = Mapping(graph="g", system="m", plan=Plan(), kernels=places)
        states = evaluate(mapping, graph, system, Assumptions(execution="kernel_by_kernel")).stages[0].states
        return states.get("dram", {}).get("activations", 0.0)

    ahead, over = Tensor(src="a", dst="b"), Tensor(src="a", dst="c")
    output, mask = 4 * 8 * 2.0, 4 * 8 * 1.0
    assert held(ahead) == held(ahead, over) == held(over) == output + mask
    assert held(ahead, output_saved=None) == output + mask  # it waits between two partitions
    assert held(ahead, output_saved=None, mask_bytes=None) == output
    assert held(over, output_saved=False, mask_bytes=None) == output  # while the layer runs
