"""The transformer layer against the graphs of DFModel's own generator (tests/golden)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graph_parts import by_name
from hypothesis import given, settings
from hypothesis import strategies as st

from dfopt.documents.graph import Graph
from dfopt.physics.ops import flop, weight_elements
from dfopt.workloads import WORKLOADS

build = WORKLOADS["transformer"]

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FORWARD, TRAINING = "transformer_forward_gpt3_175b", "transformer_training_gpt3_1t"
CASES = {FORWARD: "forward", TRAINING: "training"}
OPS = {
    "gemm_input1_weight": "gemm",
    "gemm_input1_input2": "matmul",
    "elementwise_input1": "elementwise",
    "elementwise_input1_input2": "elementwise",
}
SMALL: dict[str, Any] = {"hidden": 24, "heads": 4, "head_dim": 5, "ffn": 50, "seq": 7, "mode": "training"}


def golden(case: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text())
    return data


def built(case: str) -> Graph:
    return build(**golden(case)["parameters"], mode=CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_is_the_reference_kernel(case: str) -> None:
    graph = built(case)
    found = [[k.name, k.op, k.outer, k.m, k.k, k.n, flop(k), graph.output_bytes(k.name)] for k in graph.kernels]
    wanted = [
        [name, "weight_update" if name.endswith("weight_update") else OPS[kind], *rest]
        for name, kind, *rest in golden(case)["kernels"]
    ]
    assert found == wanted


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_the_reference_tensor(case: str) -> None:
    graph = built(case)
    level = graph.levels()
    found = [[t.src, t.dst, graph.bytes_of(t), level[t.dst] - level[t.src] + 1] for t in graph.tensors]
    assert found == golden(case)["tensors"]


def test_operands_are_those_that_sizes_give_where_sizes_differ() -> None:
    graph = build(**SMALL)
    stripped = graph.model_copy(
        update={"tensors": tuple(t.model_copy(update={"operand": None}) for t in graph.tensors)}
    )
    kernels = by_name(graph)
    for tensor, stated, derived in zip(graph.tensors, graph.operands(), stripped.operands(), strict=True):
        if kernels[tensor.dst].m != kernels[tensor.dst].n:
            assert stated == derived, tensor


def test_heads_need_not_fill_hidden() -> None:
    graph = build(**SMALL)  # 4 heads x 5 = 20 features beside 24 hidden
    kernels = by_name(graph)
    word = graph.word_bytes
    assert graph.output_bytes("Q") == 20 * 7 * word
    assert (kernels["PROJ_GEMM"].m, kernels["PROJ_GEMM"].k) == (24, 20)
    for name in ("V_bwd", "Q_bwd", "K_bwd"):  # all three are gradients of the same input, and are summed
        assert graph.output_bytes(name) == 24 * 7 * word
        assert flop(kernels[name]) == 2 * 24 * 20 * 7
    assert graph.output_bytes("PROJ_GEMM_bwd") == 20 * 7 * word


@settings(max_examples=60, deadline=None)
@given(
    share=st.integers(1, 9),
    heads=st.integers(1, 6),
    head_dim=st.integers(1, 9),
    ffn=st.none() | st.integers(1, 80),
    seq=st.integers(1, 30),
    microbatch=st.integers(2, 5),
)
def test_flop_and_activations_scale_with_the_microbatch(
    share: int, heads: int, head_dim: int, ffn: int | None, seq: int, microbatch: int
) -> None:
    sizes: dict[str, Any] = {
        **{"hidden": share * heads, "heads": heads, "head_dim": head_dim},
        **{"ffn": ffn, "seq": seq, "mode": "training"},
    }
    one, many = build(**sizes), build(**sizes, microbatch=microbatch)
    assert (many.microbatch, many.batch, many.evaluation_tokens.processed) == (microbatch, microbatch, microbatch * seq)
    for small, large in zip(one.kernels, many.kernels, strict=True):
        assert flop(large) == microbatch * flop(small), small.name
        assert weight_elements(large) == weight_elements(small)
        grows = 1 if small.op == "weight_update" else microbatch  # a weight's gradient is no larger for more samples
        assert many.output_bytes(large.name) == grows * one.output_bytes(small.name)
    heads_kept = {k.name: k.outer for k in many.kernels if k.op == "gemm" and k.outer > 1}
    assert set(heads_kept.values()) <= {heads}
    assert by_name(many)["SOFTMAX"].outer == heads * microbatch
    assert by_name(many)["SOFTMAX"].n == seq


def test_graph_fields() -> None:
    graph = build("a", "b", "c", **SMALL, layers=9, batch=64, microbatch=4, word_bytes=4)
    assert (graph.name, graph.description, graph.source) == ("a", "b", "c")
    assert (graph.repeat, graph.batch, graph.microbatch, graph.word_bytes) == (9, 64, 4, 4)
    assert graph.output_bytes("LayerNorm_1") == 24 * 7 * 4 * 4
    default = build(hidden=8, heads=2, head_dim=4, seq=3)
    assert by_name(default)["FFN0"].m == 32
    assert not default.trains


def test_heads_that_do_not_divide_hidden_are_fine_forward() -> None:
    graph = build(**{**SMALL, "hidden": 25, "mode": "forward"})
    assert by_name(graph)["PROJ_GEMM"].m == 25
