"""Operators of ONNX one by one: extents and FLOP by hand, views that cost nothing, attentions in every spelling."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import Writer

import dfopt as df
from dfopt.documents.assumptions import profile
from dfopt.documents.graph import Graph, Kernel
from dfopt.errors import DocumentError
from dfopt.frontends.onnx import read
from dfopt.physics.ops import flop, weight_elements

Build = Callable[[Writer], str]


def graph_of(tmp_path: Path, build: Build, opset: int = 17, domain: str = "") -> Graph:
    w = Writer(opset)
    w.output(build(w))
    model = w.model()
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    return read(tmp_path / "model.onnx", folded=False)


def extents(kernel: Kernel) -> tuple[Any, ...]:
    return (kernel.op, kernel.outer, kernel.samples, kernel.m, kernel.k, kernel.n)


def x(w: Writer, *shape: int, name: str = "x") -> str:
    return w.input(name, list(shape))


def image(w: Writer) -> str:
    return x(w, 2, 16, 10, 12)


def conv(w: Writer, source: str, *weight: int, **more: Any) -> str:
    return str(w.Conv(source, w.weight(*weight), **more))


def heads(w: Writer, source: str, *shape: int) -> str:
    return str(w.Transpose(w.Reshape(source, w.data(list(shape))), perm=[0, 2, 1, 3]))


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda w: w.MatMul(x(w, 2, 5, 8), w.weight(8, 6)), ("gemm", 1, None, 6, 8, 10)),
        (lambda w: w.MatMul(w.weight(6, 8), x(w, 8, 5)), ("gemm", 1, None, 6, 8, 5)),
        (lambda w: w.MatMul(x(w, 8), w.weight(8, 6)), ("gemm", 1, None, 6, 8, 1)),
        (lambda w: w.MatMul(x(w, 4, 5, 8), w.weight(4, 8, 6)), ("gemm", 4, None, 6, 8, 5)),
        (lambda w: w.MatMul(x(w, 1, 5, 8), w.weight(4, 8, 6)), ("gemm", 1, None, 24, 8, 5)),
        (lambda w: w.MatMul(x(w, 3, 5, 8), w.Transpose(w.weight(6, 8), perm=[1, 0])), ("gemm", 1, None, 6, 8, 15)),
        (lambda w: w.MatMul(x(w, 3, 5, 8), x(w, 3, 8, 6, name="y")), ("matmul", 1, 3, 6, 8, 5)),
        (lambda w: w.MatMul(x(w, 3, 5, 8), x(w, 8, 6, name="y")), ("matmul", 1, None, 6, 8, 15)),
        (lambda w: w.Gemm(x(w, 5, 8), w.weight(6, 8), w.weight(6), transB=1), ("gemm", 1, None, 6, 8, 5)),
        (lambda w: w.Gemm(x(w, 8, 5), w.weight(8, 6), transA=1), ("gemm", 1, None, 6, 8, 5)),
        (lambda w: w.Einsum(x(w, 2, 5, 8), w.weight(8, 4, 3), equation="bsh,hnd->bnsd"), ("gemm", 1, None, 12, 8, 10)),
        (
            lambda w: w.Einsum(x(w, 2, 5, 4, 8), x(w, 2, 7, 4, 8, name="y"), equation="bqhd,bkhd->bhqk"),
            ("matmul", 1, 8, 7, 8, 5),
        ),
        (lambda w: conv(w, image(w), 32, 16, 3, 3, pads=[1] * 4), ("gemm", 1, None, 32, 144, 240)),
        (lambda w: conv(w, image(w), 32, 16, 3, 3, strides=[2, 2], pads=[1] * 4), ("gemm", 1, None, 32, 144, 60)),
        (lambda w: conv(w, image(w), 32, 4, 3, 3, group=4), ("gemm", 4, None, 8, 36, 160)),
        (lambda w: conv(w, image(w), 16, 1, 3, 3, group=16), ("gemm", 16, None, 1, 9, 160)),
        (lambda w: conv(w, x(w, 2, 16, 10), 8, 16, 3), ("gemm", 1, None, 8, 48, 16)),
        (lambda w: conv(w, x(w, 2, 4, 6, 6, 6), 8, 4, 3, 3, 3), ("gemm", 1, None, 8, 108, 128)),
        (lambda w: w.ConvTranspose(image(w), w.weight(16, 8, 2, 2), strides=[2, 2]), ("gemm", 1, None, 32, 16, 240)),
        (lambda w: w.Relu(x(w, 2, 5, 8)), ("elementwise", 1, None, 8, 1, 10)),
        (lambda w: w.Softmax(x(w, 2, 5, 8), axis=-1), ("elementwise", 1, None, 8, 1, 10)),
        (lambda w: w.Softmax(x(w, 2, 5, 8), axis=1), ("elementwise", 8, None, 5, 1, 2)),
        (lambda w: w.MaxPool(image(w), kernel_shape=[2, 2], strides=[2, 2]), ("elementwise", 1, None, 16, 1, 60)),
        (lambda w: w.GlobalAveragePool(image(w)), ("elementwise", 1, None, 16, 1, 2)),
        (lambda w: w.ReduceMean(x(w, 2, 5, 8), axes=[1]), ("elementwise", 1, None, 8, 1, 2)),
        (lambda w: w.ReduceMean(x(w, 2, 5, 8), axes=[2]), ("elementwise", 1, None, 8, 1, 10)),
        (lambda w: w.Gather(w.weight(100, 8), w.input("i", [2, 5], 7)), ("elementwise", 1, None, 8, 1, 10)),
        (
            lambda w: w.LayerNormalization(heads(w, x(w, 2, 5, 8), 2, 5, 4, 2), w.weight(2), axis=-1),
            ("elementwise", 4, None, 2, 1, 10),
        ),
    ],
)
def test_extents(tmp_path: Path, build: Build, wanted: tuple[Any, ...]) -> None:
    (kernel,) = graph_of(tmp_path, build).kernels
    assert extents(kernel) == wanted


def test_reductions_over_features_need_all_of_them(tmp_path: Path) -> None:
    over = {
        axis: graph_of(tmp_path, lambda w, a=axis: w.ReduceMean(x(w, 5, 8), axes=[a])).kernels[0] for axis in (0, 1)
    }
    assert (over[0].normalizes, over[1].normalizes) == (False, True)


def test_constants_that_are_filled_are_held(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        one = numpy_helper.from_array(np.array([1], dtype=np.float32))
        shape = w.data([64])  # of both
        return str(w.Mul(w.Mul(x(w, 5, 64), w.ConstantOfShape(shape, value=one)), w.ConstantOfShape(shape, value=one)))

    assert [kernel.resident_bytes for kernel in graph_of(tmp_path, build).kernels] == [4 * 64] * 2


@pytest.mark.parametrize(
    ("build", "each"),
    [
        (lambda w: w.Add(x(w, 2, 80), w.weight(80)), 1),
        (lambda w: w.Sum(*(x(w, 2, 80, name=n) for n in "abc")), 2),
        (lambda w: w.gelu(x(w, 2, 80)), 5),
        (lambda w: w.gelu_tanh(x(w, 2, 80)), 8),
        (lambda w: w.Softmax(x(w, 2, 80)), 5),
        (lambda w: w.LayerNormalization(x(w, 2, 80), w.weight(80), w.weight(80)), 7),
        (lambda w: w.LayerNormalization(x(w, 2, 80), w.weight(80)), 6),
        (lambda w: w.ReduceMean(x(w, 2, 80), axes=[0, 1]), 1),
        (lambda w: w.ReduceSumSquare(x(w, 2, 80), axes=[0]), 2),
        (lambda w: w.ReduceMax(x(w, 2, 80), keepdims=0), 1),
        (lambda w: w.Where(w.data([[True]] * 2, bool), x(w, 2, 80), w.number(0)), 1),
        (lambda w: w.Concat(x(w, 2, 40), x(w, 2, 40, name="y"), axis=1), 1),
        (lambda w: w.HardSwish(x(w, 2, 80)), 4),
        (lambda w: w.Clip(x(w, 2, 80), w.number(0), w.number(6)), 2),
    ],
)
def test_elements_count_each_operation(tmp_path: Path, build: Build, each: int) -> None:
    graph = graph_of(tmp_path, build)
    assert sum(map(flop, graph.kernels)) == each * 160


@pytest.mark.parametrize(
    "view",
    [
        lambda w, y: w.Reshape(y, w.data([4, 20])),
        lambda w, y: w.Transpose(y),
        lambda w, y: w.Unsqueeze(w.Squeeze(y, w.data([0])), w.data([1])),
        lambda w, y: w.Slice(y, w.data([1]), w.data([5]), w.data([1])),
        lambda w, y: w.node("Split", y, w.data([3, 5]), outputs=2, axis=1)[1],
        lambda w, y: w.Expand(y, w.data([3, 8, 10])),
        lambda w, y: w.Cast(y, to=TensorProto.FLOAT16),
        lambda w, y: w.Identity(w.Dropout(y)),
        lambda w, y: w.Gather(y, w.data([0, 3]), axis=1),
        lambda w, y: w.Flatten(w.Pad(y, w.data([0, 1, 0, 0, 1, 0]))),
        lambda w, y: w.Concat(y, axis=0),
    ],
)
def test_what_only_looks_costs_nothing(tmp_path: Path, view: Callable[[Writer, str], str]) -> None:
    graph = graph_of(tmp_path, lambda w: w.Relu(view(w, w.Relu(x(w, 1, 8, 10)))))
    assert [kernel.op for kernel in graph.kernels] == ["elementwise"] * 2
    (tensor,) = graph.tensors
    assert tensor.bytes == graph.words.activations * min(flop(graph.kernels[0]), flop(graph.kernels[1]))


def test_weights_are_weights_through_views_and_types(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        stored = w.data(np.zeros((64, 96)), np.int8)
        real = w.DequantizeLinear(stored, w.number(0.1))
        return str(w.MatMul(x(w, 5, 64), w.Cast(w.Transpose(w.Transpose(real)), to=TensorProto.FLOAT)))

    graph = graph_of(tmp_path, build)
    assert [extents(kernel) for kernel in graph.kernels] == [("gemm", 1, None, 96, 64, 5)]
    assert graph.dtypes is not None and (graph.dtypes.activations, graph.dtypes.weights) == ("fp32", "int8")


def test_doubles_have_a_size_and_mixed_weights_are_said(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        real = w.DequantizeLinear(w.data(np.zeros((64, 96)), np.int8), w.number(0.1))
        return str(w.MatMul(w.MatMul(x(w, 5, 64), real), w.weight(96, 8)))

    assert "weights of type float count as int8" in graph_of(tmp_path, build).description
    w = Writer(word=TensorProto.DOUBLE)
    w.output(w.MatMul(x(w, 5, 64), w.weight(64, 8)))
    graph = read(w.save(tmp_path / "double.onnx"))
    assert graph.dtypes is None and graph.word_bytes == 8


def test_a_tied_table_is_held_once_and_read_by_rows(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        table = w.weight(1000, 64)
        hidden = w.Relu(w.Gather(table, w.input("ids", [2, 5], TensorProto.INT64)))
        return str(w.MatMul(hidden, w.Transpose(table)))

    graph = graph_of(tmp_path, build)
    lookup, _, logits = graph.kernels
    assert (lookup.dram_bytes, lookup.resident_bytes) == (4 * 2 * 5 * 64, 0)
    assert weight_elements(logits) == 64_000 and "0.064 million parameters" in graph.description


def test_a_constant_that_several_read_is_held_once(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        mask = w.weight(80)
        return str(w.Mul(w.Relu(w.Mul(x(w, 2, 80), mask)), mask))

    graph = graph_of(tmp_path, build)
    assert sum(kernel.resident_bytes for kernel in graph.kernels) == 4 * 80
    assert sum(kernel.dram_bytes for kernel in graph.kernels) == 2 * 4 * 80


def test_parts_of_one_size_are_told_apart(tmp_path: Path) -> None:
    """Tensors of one source and one size are one tensor to a graph, unless they say which part they are."""

    def build(w: Writer, sizes: list[int]) -> str:
        y = w.Relu(x(w, 2, 80))
        a, b = w.node("Split", y, w.data(sizes), outputs=2, axis=1)
        return str(w.Add(y, w.Concat(w.Tanh(a), w.Tanh(b), axis=1)))

    equal = graph_of(tmp_path, lambda w: build(w, [40, 40]))
    taken = [(t.bytes, t.part) for t in equal.tensors if t.src == equal.kernels[0].name]
    assert taken == [(320, "1"), (320, "2"), (640, None)]
    apart = graph_of(tmp_path, lambda w: build(w, [30, 50]))
    taken = [(t.bytes, t.part) for t in apart.tensors if t.src == apart.kernels[0].name]
    assert taken == [(240, None), (400, None), (640, None)]


@pytest.mark.parametrize(
    ("partitions", "moved"),
    [
        ((0, 1, 2, 3), [640 + 640, 320 + 320, 320 + 320, 640 + 320]),
        ((0, 0, 1, 1), [640 + 320 + 320, 320 + 320 + 320]),  # one half is handed on within a partition
        ((0, 0, 0, 0), [640 + 320]),
    ],
)
@pytest.mark.parametrize("fanout", ["shared", "per_consumer"])
def test_search_and_judge_cut_between_parts_alike(
    tmp_path: Path, fanout: str, partitions: tuple[int, ...], moved: list[int]
) -> None:
    """Bytes of DRAM by hand: each half is written once and read once, whichever way outputs with more readers go."""

    def build(w: Writer) -> str:
        a, b = w.node("Split", w.Softmax(x(w, 2, 80)), w.data([40, 40]), outputs=2, axis=1)
        return str(w.Mul(w.Tanh(a), w.Tanh(b)))

    graph, system = graph_of(tmp_path, build), df.load_system("sn50-1")
    pins = {kernel.name: partition for kernel, partition in zip(graph.kernels, partitions, strict=True)}
    rules = profile("default").with_(fanout=fanout, execution="dataflow")
    result = df.optimize(graph, system, pin_partition=pins, assumptions=rules)
    score = df.evaluate(result.mapping, graph, system, assumptions=rules)
    assert result.value == pytest.approx(score.step_time_s, rel=1e-9)
    assert [one.dram_bytes for one in score.partitions] == moved


@pytest.mark.parametrize("exported", ["Gemm", "MatMul and Add", "slices", "one dim for the three"])
def test_what_is_only_read_in_parts_is_computed_in_parts(tmp_path: Path, exported: str) -> None:
    def build(w: Writer) -> str:
        weight, bias, given = w.weight(64, 192), w.weight(192), x(w, 10, 64)
        if exported == "Gemm":
            parts = w.node("Split", w.Gemm(given, weight, bias), w.data([64] * 3), outputs=3, axis=1)
        elif exported == "one dim for the three":
            qkv = w.Transpose(w.Reshape(w.Add(w.MatMul(given, weight), bias), w.data([10, 3, 64])), perm=[1, 0, 2])
            parts = [w.Gather(qkv, w.data(one), axis=0) for one in range(3)]
        else:
            qkv = w.Add(w.MatMul(given, weight), bias)
            ends = [(w.data([64 * one]), w.data([64 * one + 64])) for one in range(3)]
            parts = [w.Slice(qkv, *end, w.data([1])) for end in ends]
            if exported != "slices":
                parts = w.node("Split", qkv, w.data([64] * 3), outputs=3, axis=1)
        w.output(*(w.Tanh(part) for part in parts[1:]))
        return str(w.Tanh(parts[0]))

    graph = graph_of(tmp_path, build)
    products = [kernel for kernel in graph.kernels if kernel.op == "gemm"]
    assert [extents(one) for one in products] == [("gemm", 1, None, 64, 64, 10)] * 3
    assert sum(kernel.resident_bytes for kernel in graph.kernels) == 4 * 192
    assert {tensor.bytes for tensor in graph.tensors} == {4 * 10 * 64}
    assert sum(given.bytes or 0 for given in graph.inputs or ()) == 3 * 4 * 10 * 64
    assert "0.01248 million parameters" in graph.description and "again" not in graph.description


# -- attention ------------------------------------------------------------------------------------
B, H, KV, S, D = 2, 8, 2, 16, 32


def attention(w: Writer, fused: str, groups: int = H, causal: bool = False) -> str:
    """An attention behind its projections: as an operator, or taken apart."""
    hidden = x(w, B, S, H * D)
    q, k, v = (w.MatMul(hidden, w.weight(H * D, count * D)) for count in (H, groups, groups))
    if fused == "onnx":
        more = {"q_num_heads": H, "kv_num_heads": groups, "is_causal": int(causal)}
        return str(w.Attention(q, k, v, **more))
    if fused == "MultiHeadAttention":
        return str(w.MultiHeadAttention(q, k, v, domain="com.microsoft", num_heads=H, unidirectional=int(causal)))
    if fused == "GroupQueryAttention":
        lengths = w.data([S] * B, np.int32), w.data(S, np.int32)
        more = {"domain": "com.microsoft", "num_heads": H, "kv_num_heads": groups}
        return str(w.GroupQueryAttention(q, k, v, "", "", *lengths, **more))
    q, k, v = (heads(w, one, B, S, count, D) for one, count in ((q, H), (k, groups), (v, groups)))
    if groups < H:
        each = [B, groups, H // groups, S, D]
        k, v = (
            w.Reshape(w.Expand(w.Unsqueeze(one, w.data([2])), w.data(each)), w.data([B, H, S, D])) for one in (k, v)
        )
    scores = w.Mul(w.MatMul(q, w.Transpose(k, perm=[0, 1, 3, 2])), w.number(D**-0.5))
    out = w.MatMul(w.Softmax(scores, axis=-1), v)
    return str(w.Reshape(w.Transpose(out, perm=[0, 2, 1, 3]), w.data([B, S, H * D])))


def behind(w: Writer, attended: str) -> str:
    return str(w.MatMul(attended, w.weight(H * D, H * D)))


@pytest.mark.parametrize("groups", [H, KV])
def test_an_attention_is_the_same_in_every_spelling(tmp_path: Path, groups: int) -> None:
    apart = graph_of(tmp_path, lambda w: behind(w, attention(w, "", groups)), 23)
    whole = graph_of(tmp_path, lambda w: behind(w, attention(w, "onnx", groups)), 23)
    scores = B * H * S * S
    by_hand = 2 * B * S * D * H * D * (2 * H + 2 * groups) + 2 * 2 * scores * D + 6 * scores
    assert sum(map(flop, apart.kernels)) == sum(map(flop, whole.kernels)) == by_hand
    for graph in (apart, whole):
        matmuls = [kernel for kernel in graph.kernels if kernel.op == "matmul"]
        assert [extents(one) for one in matmuls] == [("matmul", H, B, S, D, S), ("matmul", H, B, D, S, S)]
        assert [one.role for one in matmuls] == ["scores", "context"]
        k = next(t for t in graph.tensors if t.dst == matmuls[0].name and t.operand == 2)
        assert k.bytes == 4 * B * groups * S * D


def test_projections_of_an_attention_are_products(tmp_path: Path) -> None:
    def build(w: Writer) -> str:
        weight, bias = w.weight(H * D, 3 * H * D), w.weight(3 * H * D)
        return str(w.Attention(x(w, B, S, H * D), weight, bias, domain=MS, num_heads=H, unidirectional=1))

    graph = graph_of(tmp_path, build, domain=MS)
    assert [extents(one) for one in graph.kernels[:3]] == [("gemm", 1, None, H * D, H * D, B * S)] * 3
    assert sum(one.resident_bytes for one in graph.kernels) == 4 * 3 * H * D and "again" not in graph.description
    assert flop(graph.kernels[-1]) == 2 * B * H * D * S * (S + 1) // 2


def test_a_causal_attention_counts_the_pairs_that_attend(tmp_path: Path) -> None:
    pairs = S * (S + 1) // 2
    for graph in (
        graph_of(tmp_path, lambda w: attention(w, "onnx", KV, causal=True), 23),
        graph_of(tmp_path, lambda w: attention(w, "GroupQueryAttention", KV), domain="com.microsoft"),
        graph_of(tmp_path, lambda w: attention(w, "MultiHeadAttention", causal=True), domain="com.microsoft"),
    ):
        products = [flop(kernel) for kernel in graph.kernels if kernel.op == "matmul"]
        assert products == [2 * B * H * pairs * D] * 2


def test_windows_and_top_left_masks_are_counted(tmp_path: Path) -> None:
    def windowed(w: Writer) -> str:
        q, k, v = (x(w, B, S, count * D, name=name) for name, count in zip("qkv", (H, KV, KV), strict=True))
        lengths = w.data([S] * B, np.int32), w.data(S, np.int32)
        more = {"domain": MS, "num_heads": H, "kv_num_heads": KV, "local_window_size": 4}
        return str(w.GroupQueryAttention(q, k, v, "", "", *lengths, **more))

    def crossed(w: Writer) -> str:
        q, k, v = (x(w, B, H, length, D, name=name) for name, length in zip("qkv", (S, 6, 6), strict=True))
        return str(w.Attention(q, k, v, is_causal=1))

    near = graph_of(tmp_path, windowed, domain=MS).kernels[-1]
    assert flop(near) == 2 * B * H * D * sum(min(row + 1, 4) for row in range(S))
    cross = graph_of(tmp_path, crossed, 23).kernels[-1]
    assert flop(cross) == 2 * B * H * D * sum(min(row + 1, 6) for row in range(S))


def test_past_keys_and_values_are_states(tmp_path: Path) -> None:
    past = 100

    def build(w: Writer) -> str:
        q, k, v = (x(w, B, 1, count * D, name=name) for name, count in zip("qkv", (H, KV, KV), strict=True))
        pasts = [x(w, B, KV, past, D, name=f"past_{name}") for name in "kv"]
        lengths = w.data([past] * B, np.int32), w.data(past + 1, np.int32)
        more = {"domain": "com.microsoft", "num_heads": H, "kv_num_heads": KV, "outputs": 3}
        out, *present = w.node("GroupQueryAttention", q, k, v, *pasts, *lengths, **more)
        w.output(*present)
        return out

    graph = graph_of(tmp_path, build, domain="com.microsoft")
    states = [state for kernel in graph.kernels for state in kernel.states or ()]
    assert [(one.sequences, one.heads, one.tokens, one.reads, one.writes) for one in states] == [
        (B, KV, past + 1, past, 1)
    ] * 2
    assert sum(one.read_bytes for one in states) == 2 * 4 * B * KV * past * D
    assert [out.src for out in graph.outputs or ()] == [graph.kernels[-1].name]
    assert {given.dst for given in graph.inputs or ()} <= {kernel.name for kernel in graph.kernels}
    assert sum(given.bytes or 0 for given in graph.inputs or ()) == 4 * B * (H + 2 * KV) * D


def test_operators_of_the_runtime_cost_what_they_are_made_of(tmp_path: Path) -> None:
    def fused(w: Writer) -> str:
        y = w.node("SkipLayerNormalization", x(w, 2, 80), x(w, 2, 80, name="y"), w.weight(80), w.weight(80), domain=MS)[
            0
        ]
        return str(w.FusedMatMul(w.BiasGelu(y, w.weight(80), domain=MS), w.weight(40, 80), transB=1, domain=MS))

    graph = graph_of(tmp_path, fused, domain="com.microsoft")
    assert sum(map(flop, graph.kernels)) == 160 * (1 + 7) + 160 * 6 + 2 * 2 * 80 * 40


MS = "com.microsoft"


# -- what exporters have written --------------------------------------------------------------------
PARAMETERS = {  # millions, as published with the models; without running means and variances
    "bvlc_alexnet": 60.97, "vgg19": 143.67, "squeezenet": 1.235, "resnet50": 25.557 + 0.053,
}  # fmt: skip
GIGA_PRODUCTS = {"bvlc_alexnet": 0.655, "vgg19": 19.63, "squeezenet": 0.352, "resnet50": 4.089}
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_that_come_with_onnx(name: str) -> None:
    path = LIGHT / f"light_{name}.onnx"
    if not path.exists():
        pytest.skip("this version of onnx has no such file")
    graph = read(path, folded=False)
    found = sum(weight_elements(one) + one.resident_bytes / graph.words.weights for one in graph.kernels)
    assert found / 1e6 == pytest.approx(PARAMETERS[name], rel=0.01)
    products = sum(flop(kernel) for kernel in graph.kernels if kernel.op == "gemm") / 2e9
    assert products == pytest.approx(GIGA_PRODUCTS[name], rel=0.01)


@pytest.mark.parametrize("path", sorted(LIGHT.parent.glob("*/*/model.onnx")), ids=lambda path: path.parent.name)
def test_every_file_is_read_or_refused(path: Path) -> None:
    said = ""
    try:
        graph = read(path)
    except DocumentError as error:
        said = str(error)
    assert said.startswith(f"{path}: 1 problem") if said else math.fsum(map(flop, graph.kernels)) > 0
