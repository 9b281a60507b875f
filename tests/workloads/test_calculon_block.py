"""The block of Calculon against what that program counts, layer by layer, and against closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.saved import kept_beside
from dfopt.physics.ops import flop
from dfopt.workloads import WORKLOADS

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/calculon/layers.json").read_text(encoding="utf-8"))
PASSES = {"fw": "forward", "agrad": "backward", "wgrad": "update"}
# Calculon's layers, and the forward kernel that each is; of a fork the sum of gradients.
LAYERS = {
    "AttnBlock_Fork": "Attention_Fork", "AttnBlock_LayerNorm": "Attention_Norm",
    "AttnBlock_Multihead_Fork": "Heads_Fork", "AttnBlock_Query": "Query", "AttnBlock_Key": "Key",
    "AttnBlock_Value": "Value", "AttnBlock_Multihead_Key_Query": "Scores", "AttnBlock_Multihead_SoftMax": "Softmax",
    "AttnBlock_Multihead_DropOut": "Scores_Dropout", "AttnBlock_Multihead_Attn": "Context",
    "AttnBlock_MLP": "Projection", "AttnBlock_DropOut": "Attention_Dropout", "AttnBlock_Residual": "Attention_Residual",
    "MlpBlock_Fork": "MLP_Fork", "MlpBlock_LayerNorm": "MLP_Norm", "MlpBlock_Mlp1": "MLP_Up",
    "MlpBlock_GeLU": "GeLU", "MlpBlock_Mlp2": "MLP_Down", "MlpBlock_DropOut": "MLP_Dropout",
    "MlpBlock_Residual": "MLP_Residual",
}  # fmt: skip
SUFFIX = {"fw": "", "agrad": "_bwd", "wgrad": "_bwd_weight_update"}
GPT3 = {"hidden": 12288, "heads": 96, "head_dim": 128, "seq": 2048, "layers": 96}


def drawn(**sizes: Any) -> Graph:
    return WORKLOADS["calculon"](**{"mode": "training", **sizes})


def moved(graph: Graph, kernel: Kernel) -> float:
    """Bytes of what a kernel reads, each output or part of one once, and writes, with its weights or their gradient."""
    every = (*graph.tensors, *graph.carried)
    read = {graph.taken(one): graph.bytes_of(one) for one in every if one.dst == kernel.name}
    written = {graph.taken(one): graph.bytes_of(one) for one in every if one.src == kernel.name}
    given_again = sum(one.bytes or 0.0 for one in graph.inputs or () if one.dst == kernel.name)
    sides = {"gemm": kernel.m * kernel.k, "weight_update": kernel.m * kernel.n}.get(kernel.op, 0)
    weight = kernel.outer * sides * graph.words.weights
    return sum(read.values()) + given_again + sum(written.values()) + weight + kernel.dram_bytes_per_chip


@pytest.mark.parametrize("what", PASSES)
def test_every_layer_has_the_flop_and_the_bytes_of_the_program(what: str) -> None:
    graph, case = drawn(**GPT3), GOLDEN["cases"]["gpt3-175B_tp1_none_ar"]
    by_name = {kernel.name: kernel for kernel in graph.kernels}
    seen = 0
    for row in case["layers"]:
        layer = dict(zip(GOLDEN["columns"], row, strict=True))
        told = layer[f"{what}_flops"], layer[f"{what}_mem_accessed"]
        name = LAYERS.get(layer["name"], layer["name"]) + SUFFIX[what]
        if name not in by_name:  # communication, and what a pass does not do
            assert told == (0, 0), layer["name"]
            continue
        kernel = by_name[name]
        assert kernel.pass_ == PASSES[what]
        assert (flop(kernel), moved(graph, kernel)) == told, layer["name"]
        seen += 1
    assert seen == sum(kernel.pass_ == PASSES[what] for kernel in graph.kernels)


SIZES = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 4),
        "head_dim": st.integers(1, 5),
        "hidden": st.integers(1, 24),
        "ffn": st.integers(1, 40),
        "seq": st.integers(1, 9),
        "microbatch": st.integers(1, 3),
    }
)


@given(SIZES)
def test_the_flop_of_any_block(sizes: dict[str, int]) -> None:
    """Closed forms of the table in the paper's layers: products, and so many FLOP for each element."""
    heads, dim, h, ffn, s, b = (sizes[key] for key in ("heads", "head_dim", "hidden", "ffn", "seq", "microbatch"))
    tokens, width, scores = b * s, heads * dim, b * heads * s * s
    linear = 2 * tokens * h * (4 * width + 2 * ffn)
    batched = 2 * 2 * scores * dim
    forward = linear + batched + tokens * h * (2 * 9 + 2 * 1 + 2 * 1) + scores * (5 + 1) + tokens * ffn * 8
    backward = linear + 2 * batched + tokens * h * (2 * 14 + 2 * 1 + 2 * 2 + 2 + 2 + 3) + scores * (8 + 1)
    backward += tokens * ffn * 13
    graph = drawn(**sizes)
    found = {which: sum(flop(k) for k in graph.kernels if k.pass_ == which) for which in PASSES.values()}
    assert found == {"forward": forward, "backward": backward, "update": linear + tokens * h * 2 * 7}
    # a batched product moves the same bytes both ways, also where heads have more features than there are tokens
    of = {kernel.name: moved(graph, kernel) for kernel in graph.kernels}
    assert of["Context"] == of["Context_bwd"] == of["Scores"] == of["Scores_bwd"]
    assert of["Scores"] == 2 * (2 * tokens * width + scores)


@given(SIZES, st.sampled_from([1, 2, 4]))
def test_a_drawing_of_several_blocks_is_as_many_times_one(sizes: dict[str, int], word: int) -> None:
    one = drawn(**sizes, layers=4, word_bytes=word)
    two = drawn(**sizes, layers=4, word_bytes=word, drawn=2)
    assert (len(two.kernels), two.repeat) == (2 * len(one.kernels), 2)
    assert sum(map(flop, two.kernels)) == 2 * sum(map(flop, one.kernels))


def test_the_forward_pass_alone() -> None:
    trained, forward = drawn(**GPT3), drawn(**GPT3, mode="forward")
    drawn_forward = (k.model_copy(update={"output_saved": None}) for k in trained.kernels if k.pass_ == "forward")
    assert forward.kernels == tuple(drawn_forward)  # which keeps nothing
    assert len(forward.kernels) == 17
    assert [(t.src, t.dst) for t in forward.carried] == [("MLP_Residual", "Attention_Norm")]


def test_what_waits_for_the_backward_pass() -> None:
    """Inputs of products with weights and of the second norm, and masks, by tensors; the rest kernels say."""
    graph = drawn(**GPT3)
    passes = {kernel.name: kernel.pass_ for kernel in graph.kernels}
    crossing = {graph.taken(t) for t in graph.tensors if passes[t.src] == "forward" != passes[t.dst]}
    stream, scores = 12288 * 2048, 96 * 2048 * 2048
    assert {(src, size) for src, size, _ in crossing} == {
        ("Attention_Norm", 2 * stream), ("Scores_Dropout", scores), ("Context", 2 * stream),
        ("Attention_Dropout", stream), ("Attention_Residual", 2 * stream), ("MLP_Norm", 2 * stream),
        ("GeLU", 8 * stream), ("MLP_Dropout", stream),
    }  # fmt: skip
    beside = {
        **dict.fromkeys(("Query", "Key", "Value", "MLP_Residual"), 2 * stream), "MLP_Up": 8 * stream,
        **dict.fromkeys(("Scores", "Scores_Dropout"), 2 * scores),
    }  # fmt: skip
    assert kept_beside(graph) == (beside, {})
    # Korthikanti et al., arXiv:2205.05198, equation 1: s b h (34 + 5 a s / h)
    assert sum(size for _, size, _ in crossing) + sum(beside.values()) == 34 * stream + 5 * scores


def test_scores_that_are_computed_again() -> None:
    kept, again = drawn(**GPT3), drawn(**GPT3, recompute="attention")
    names = {kernel.name for kernel in kept.kernels}
    more = [kernel for kernel in again.kernels if kernel.name not in names]
    assert [kernel.name for kernel in more] == ["Scores_again", "Softmax_again", "Scores_Dropout_again"]
    assert {kernel.pass_ for kernel in more} == {"recompute"}
    assert set(kept_beside(again)[0]) == {"Query", "Key", "Value", "MLP_Residual", "MLP_Up"}
    assert set(kept_beside(again)[1]) == {"Scores_again", "Scores_Dropout_again"}
    stream, scores = 12288 * 2048, 96 * 2048 * 2048
    assert sum(map(flop, more)) == 2 * stream * 2048 + scores * (5 + 1)


def test_one_collective_for_the_sum_of_three_gradients() -> None:
    into = {kernel.name: kernel.accumulates_into for kernel in drawn(**GPT3).kernels if kernel.accumulates_into}
    assert into == {"Key_bwd": "Query_bwd", "Value_bwd": "Query_bwd"}


def test_scores_under_a_mask_are_refused() -> None:
    with pytest.raises(ValidationError, match="Calculon computes all scores"):
        drawn(**GPT3, causal=True)


def test_parameters_are_counted() -> None:
    from dfopt.workloads.calculon import CalculonParameters, counts

    # Calculon's num_parameters, without biases and embeddings
    found = counts(CalculonParameters(**GPT3))
    assert found.parameters == 96 * (2 * 12288 * 49152 + 4 * 12288 * 12288 + 4 * 12288)
    assert math.isclose(found.parameters, 174e9, rel_tol=0.01)
