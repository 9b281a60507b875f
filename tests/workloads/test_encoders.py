"""Encoders, which keep nothing of tokens that all see each other, and diffusion transformers, which are conditioned."""

from __future__ import annotations

from typing import Any

import pytest
from graph_parts import by_name, product_flop

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph
from dfopt.errors import DocumentError
from dfopt.judge import evaluate
from dfopt.machines.compose import load_system
from dfopt.physics.ops import weight_elements
from dfopt.search import solve
from dfopt.workloads import expand, load_graph
from dfopt.workloads.stack import StackParameters, counts

HIDDEN, TOKENS = 24, 16
LAYER: dict[str, Any] = {
    "mixer": {"kind": "attention", "heads": 4, "head_dim": 6, "rotary_dim": 0, "bias": "all", "sees": "full"},
    "feed_forward": {"kind": "mlp", "ffn": 96, "gated": False, "bias": True},
    "modulated": True,
}
MODEL: dict[str, Any] = {
    "hidden": HIDDEN,
    "norm": "layernorm",
    "input": [{"inputs": 16, "outputs": HIDDEN}],
    "condition": {"inputs": 10, "classes": 7},
    "head": {"kind": "linear", "classes": 8, "bias": True},
    "layers": {"layer": LAYER},
    "sections": [{"layers": ["layer"], "repeat": 3}],
    "seq": TOKENS,
    "microbatch": 2,
    "batch": 4,
    "ends": True,
}


def drawn(**change: Any) -> Graph:
    return expand({"schema": "dfopt/graph/3", "name": "x", "workload": "stack", "parameters": MODEL | change})


@pytest.mark.parametrize(
    ("name", "published"), [("dit-s-2", 6.06), ("dit-b-2", 23.01), ("dit-l-2", 80.71), ("dit-xl-2", 118.64)]
)
def test_a_step_of_denoising_is_the_work_that_is_published(name: str, published: float) -> None:
    """Gflops of Peebles and Xie, arXiv 2212.09748, table 4, which are multiply-adds of one image."""
    graph = load_graph(name)
    assert product_flop(graph, "forward") / 2e9 == pytest.approx(published, rel=0.01)


def test_a_condition_is_products_for_one_token_of_each_sample() -> None:
    kernels = by_name(drawn())
    sizes = {name: (kernels[name].m, kernels[name].k, kernels[name].n) for name in kernels if "odulation" in name}
    assert sizes == {"Modulation": (6 * HIDDEN, HIDDEN, 2), "Modulation_Final": (2 * HIDDEN, HIDDEN, 2)}
    assert (kernels["Condition_1"].k, kernels["Condition_2"].k, kernels["Linear"].n) == (10, HIDDEN, 2 * TOKENS)
    read = {t.dst: t.bytes for t in drawn().tensors if t.src == "Modulation"}
    one = 2 * HIDDEN * 2  # of two samples, in two bytes
    assert read == {"LayerNorm_1": 2 * one, "LayerNorm_2": 2 * one, "Add_1": one, "Add_2": one}


def test_all_weights_are_drawn_and_counted_once() -> None:
    graph, found = drawn(), counts(StackParameters(**MODEL))
    weights = sum(weight_elements(kernel) * graph.times_of(kernel) for kernel in graph.kernels)
    table = by_name(graph)["Embedding"].resident_bytes / 2
    assert table == 7 * HIDDEN == found.looked_up
    biases = 3 * (4 * HIDDEN + 96 + HIDDEN + 6 * HIDDEN) + HIDDEN + 8 + 4 * HIDDEN  # layers; input, head, condition
    assert found.parameters == weights + table + biases
    assert found.bytes_per_token == 0


@pytest.mark.parametrize("change", [{}, {"phase": "prefill"}, {"ends": False}])
def test_an_encoder_keeps_nothing_and_solves(change: dict[str, Any]) -> None:
    graph, system = drawn(**change), load_system("sn10-8-ring")
    assert not [kernel for kernel in graph.kernels if kernel.states]
    for chosen in (Assumptions(sequence_parallelism="none"), Assumptions()):
        result = solve(graph, system, assumptions=chosen, tp=2, pp=2, dp=2, sensitivity=False)
        assert result.gap == 0
        again = evaluate(result.mapping, graph, system, result.assumptions)
        assert again.step_time_s == pytest.approx(result.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"phase": "decode"}, r"layer\.mixer: found 16 cached tokens, but all tokens see each other"),
        ({"condition": None}, r"layers\.layer\.modulated: found it of a model without a condition"),
        ({"mode": "training"}, r"\$\.parameters\.condition: found one in a training step"),
        ({"final_norm": False}, r"\$\.parameters\.condition: found one in a training step, .* or without a final norm"),
        ({"layers": {"layer": LAYER | {"norms": "after"}}}, r"layer\.modulated: found it of other norms than pre"),
        ({"head": {"kind": "linear"}}, r"head\.classes: missing"),
    ],
)
def test_what_is_not_drawn_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        drawn(**change)
