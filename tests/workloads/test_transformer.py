"""The transformer layer against the graphs of DFModel's own generator (tests/golden)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graph_parts import by_name
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

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


@pytest.mark.parametrize(
    ("case", "kernels", "tensors", "total"),
    [
        # flop_total of the logs of github.com/fengqian-ayce/DFModel at 04f93d5, per evaluation of one layer:
        (FORWARD, 18, 21, 7628944048128),  # LLM/dataflow_mapping/dfmodel_8x1
        (TRAINING, 41, 53, 97928934850560),  # LLM/DSE/system/nonoverlap/sn30/2d_torus_ddr_pcie
    ],
)
def test_counts_and_total_flop(case: str, kernels: int, tensors: int, total: int) -> None:
    graph = built(case)
    assert (len(graph.kernels), len(graph.tensors)) == (kernels, tensors)
    assert sum(flop(kernel) for kernel in graph.kernels) == total
    assert golden(case)["flop_per_evaluation"] == total


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


def test_passes_and_stages() -> None:
    kernels = build(**SMALL).kernels
    assert [k.pass_ for k in kernels] == ["forward"] * 18 + ["backward"] * 17 + ["update"] * 6
    assert all(k.stage_with is None for k in kernels[:18])
    assert {k.name: k.stage_with for k in kernels[18:]} == {
        "Loss_bwd": "Add_2",
        "DropOut_3_bwd": "DropOut_3",
        "FFN1_bwd": "FFN1",
        "GeLU_bwd": "GeLU",
        "FFN0_bwd": "FFN0",
        "LayerNorm_2_bwd": "LayerNorm_2",
        "DropOut_2_bwd": "DropOut_2",
        "PROJ_GEMM_bwd": "PROJ_GEMM",
        "MHA_GEMM_2_bwd1": "MHA_GEMM_2",
        "MHA_GEMM_2_bwd2": "MHA_GEMM_2",
        "V_bwd": "V",
        "DropOut_1_bwd": "DropOut_1",
        "SOFTMAX_bwd": "SOFTMAX",
        "MHA_GEMM_1_bwd1": "MHA_GEMM_1",
        "MHA_GEMM_1_bwd2": "MHA_GEMM_1",
        "Q_bwd": "Q",
        "K_bwd": "K",
        "FFN1_bwd_weight_update": "FFN1",
        "FFN0_bwd_weight_update": "FFN0",
        "PROJ_GEMM_bwd_weight_update": "PROJ_GEMM",
        "V_bwd_weight_update": "V",
        "K_bwd_weight_update": "K",
        "Q_bwd_weight_update": "Q",
    }


def test_normalizations_and_accumulation() -> None:
    kernels = build(**SMALL).kernels
    assert [k.name for k in kernels if k.normalizes] == [
        "LayerNorm_1",
        "SOFTMAX",
        "LayerNorm_2",
        "LayerNorm_2_bwd",
        "SOFTMAX_bwd",
    ]
    assert {k.name: k.accumulates_into for k in kernels if k.accumulates_into} == {"Q_bwd": "V_bwd", "K_bwd": "V_bwd"}
    assert {k.name for k in kernels if k.streamed == "k"} == {k.name for k in kernels if k.op == "weight_update"}


def test_carried() -> None:
    def ends(mode: str) -> list[tuple[str, str, str]]:
        graph = build(**{**SMALL, "mode": mode})
        return [(t.src, t.dst, t.direction) for t in graph.carried]

    assert ends("forward") == [("Add_2", "Add_Prev_Layer", "forward")]
    assert ends("training") == [("Add_2", "Add_Prev_Layer", "forward"), ("V_bwd", "Loss_bwd", "backward")]


# The meaning of each axis: of a kernel's output (m, n) and of its contraction (k). Written down from the
# mathematics of attention with K and V as head_dim x keys, Q as head_dim x queries and scores as keys x
# queries.
FEATURES, HEAD, FFN, TOKENS, KEYS, QUERIES = "hidden", "head", "ffn", "tokens", "keys", "queries"
AXES = {  # name: (m, k, n)
    "MHA_GEMM_1": (KEYS, HEAD, QUERIES),
    "MHA_GEMM_2": (HEAD, KEYS, QUERIES),
    "MHA_GEMM_2_bwd1": (KEYS, HEAD, QUERIES),
    "MHA_GEMM_2_bwd2": (HEAD, QUERIES, KEYS),
    "MHA_GEMM_1_bwd1": (HEAD, KEYS, QUERIES),
    "MHA_GEMM_1_bwd2": (HEAD, QUERIES, KEYS),
    "FFN1_bwd_weight_update": (FFN, TOKENS, FEATURES),
    "FFN0_bwd_weight_update": (FEATURES, TOKENS, FFN),
    "PROJ_GEMM_bwd_weight_update": ("width", TOKENS, FEATURES),
    "V_bwd_weight_update": (FEATURES, TOKENS, "width"),
    "K_bwd_weight_update": (FEATURES, TOKENS, "width"),
    "Q_bwd_weight_update": (FEATURES, TOKENS, "width"),
}
HOLDS = {  # what a tensor's two axes are, by its source; the attention kernels' own outputs follow from AXES
    "Q": {HEAD, QUERIES},
    "PROJ_GEMM_bwd": {HEAD, QUERIES},
    "K": {HEAD, KEYS},
    "V": {HEAD, KEYS},
    "DropOut_1": {KEYS, QUERIES},
    "SOFTMAX_bwd": {KEYS, QUERIES},
}
TOKEN_MATRICES = {
    "DropOut_3_bwd": FEATURES,
    "GeLU": FFN,
    "GeLU_bwd": FFN,
    "LayerNorm_2": FEATURES,
    "DropOut_2_bwd": FEATURES,
    "MHA_GEMM_2": "width",
    "MHA_GEMM_2_bwd2": "width",
    "LayerNorm_1": FEATURES,
    "MHA_GEMM_1_bwd2": "width",
    "MHA_GEMM_1_bwd1": "width",
}


def test_every_operand_has_the_axes_of_its_side() -> None:
    graph = build(**SMALL)
    sides: dict[str, set[int]] = {name: set() for name in AXES}
    for tensor in graph.tensors:
        if tensor.dst not in AXES:
            assert tensor.operand is None
            continue
        assert tensor.operand is not None
        m, k, n = AXES[tensor.dst]
        update = tensor.dst.endswith("update")
        holds = {TOKEN_MATRICES[tensor.src], TOKENS} if update else HOLDS[tensor.src]
        assert holds == ({k, n} if tensor.operand == 1 else {m, k}), tensor
        sides[tensor.dst].add(tensor.operand)
    assert all(found == {1, 2} for found in sides.values())


def test_operands_are_those_that_sizes_give_where_sizes_differ() -> None:
    graph = build(**SMALL)
    stripped = graph.model_copy(
        update={"tensors": tuple(t.model_copy(update={"operand": None}) for t in graph.tensors)}
    )
    kernels = by_name(graph)
    for tensor, stated, derived in zip(graph.tensors, graph.operands(), stripped.operands(), strict=True):
        if kernels[tensor.dst].m != kernels[tensor.dst].n:
            assert stated == derived, tensor


def test_updates_produce_the_gradient_of_a_weight() -> None:
    graph = build(**{**SMALL, "microbatch": 3})
    kernels = by_name(graph)
    for kernel in graph.kernels:
        if kernel.op == "weight_update":
            assert kernel.outer * kernel.m * kernel.n == weight_elements(kernels[str(kernel.stage_with)])


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": 0}, "greater_than_equal"),
        ({"hidden": "24"}, "int_type"),
        ({"seq": True}, "int_type"),
        ({"mode": "train"}, "literal_error"),
        ({"word_bytes": 17}, "less_than_equal"),
        ({"hiden": 24}, "extra_forbidden"),
        ({"microbatch": 4, "batch": 3}, "dfopt"),
        ({"hidden": 25}, "dfopt"),
    ],
)
def test_bad_parameters_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        build(**{**SMALL, **change})
    assert [error["type"] for error in caught.value.errors()] == [says]


def test_heads_that_do_not_divide_hidden_are_fine_forward() -> None:
    graph = build(**{**SMALL, "hidden": 25, "mode": "forward"})
    assert by_name(graph)["PROJ_GEMM"].m == 25
