"""ONNX models that tests build, in the manner of exporters: no weights but their shapes, data where shapes need it.

A GPT block as torch.onnx writes it (fused QKV, Shape/Gather/Concat/Reshape chains, a causal mask cut out of a buffer,
the tanh form of GELU, decomposed or whole norms), BERT-base (bert-base-uncased: 12 layers of 768 with 12 heads) and
ResNet-50 (He et al., table 1, with the stride in the 3x3 convolution as torchvision has it).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = list[int | str]


class Writer:
    """Writes a model node by node; a method named after an operator adds one and gives its first output."""

    def __init__(self, opset: int = 17, word: int = TensorProto.FLOAT) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.opset, self.word, self.prefix = opset, word, ""

    def node(self, op: str, *reads: str, outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        name = f"{self.prefix}/{op}_{len(self.nodes)}"
        made = [f"{name}_output_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op, reads, made, name=name, domain=domain, **attributes))
        return made

    def __getattr__(self, op: str) -> Any:
        if not op[:1].isupper():
            raise AttributeError(op)
        return lambda *reads, **attributes: self.node(op, *reads, **attributes)[0]

    def input(self, name: str, shape: Shape, kind: int | None = None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, self.word if kind is None else kind, shape))
        return name

    def output(self, *names: str) -> None:
        self.outputs += [helper.make_tensor_value_info(name, self.word, None) for name in names]

    def data(self, value: Any, kind: Any = np.int64) -> str:
        name = f"{self.prefix}const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=kind), name))
        return name

    def number(self, value: float) -> str:
        kinds = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}
        return self.data(value, kinds[self.word])

    def weight(self, *shape: int) -> str:
        """A weight in a file of its own, which is not there."""
        name = f"{self.prefix}weight_{len(self.constants)}"
        tensor = TensorProto(name=name, data_type=self.word, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights.bin")
        self.constants.append(tensor)
        return name

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "model", self.inputs, self.outputs, initializer=self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)

    def save(self, path: Path) -> Path:
        path.write_bytes(self.model().SerializeToString())
        return path

    # -- what exporters write for a layer ------------------------------------------------------
    def linear(self, x: str, inside: int, outside: int) -> str:
        return self.Add(self.MatMul(x, self.weight(inside, outside)), self.weight(outside))

    def norm(self, x: str, width: int, decomposed: bool) -> str:
        gain, bias = self.weight(width), self.weight(width)
        if not decomposed:
            return str(self.LayerNormalization(x, gain, bias, axis=-1))
        centred = self.Sub(x, self.ReduceMean(x, axes=[-1]))
        variance = self.ReduceMean(self.Pow(centred, self.number(2)), axes=[-1])
        scaled = self.Div(centred, self.Sqrt(self.Add(variance, self.number(1e-5))))
        return str(self.Add(self.Mul(scaled, gain), bias))

    def gelu(self, x: str) -> str:
        inner = self.Erf(self.Div(x, self.number(2**0.5)))
        return str(self.Mul(self.Mul(x, self.Add(inner, self.number(1))), self.number(0.5)))

    def gelu_tanh(self, x: str) -> str:
        cube = self.Mul(self.Pow(x, self.number(3)), self.number(0.044715))
        inner = self.Tanh(self.Mul(self.Add(x, cube), self.number(0.7978845608)))
        return str(self.Mul(self.Mul(x, self.number(0.5)), self.Add(inner, self.number(1))))

    def size(self, x: str, axis: int) -> str:
        """A dim as exporters read it from a tensor, as a list of one."""
        return str(self.Unsqueeze(self.Gather(self.Shape(x), self.data(axis), axis=0), self.data([0])))

    def shaped(self, x: str, *rest: int, like: str = "") -> str:
        """A reshape of all but the first two dims, whose sizes are read from the tensor, or from another."""
        sizes = [self.size(like or x, axis) for axis in (0, 1)]
        shape = self.Concat(*sizes, *(self.data([size]) for size in rest), axis=0)
        return str(self.Reshape(x, shape))

    def heads(self, x: str, heads: int, size: int) -> str:
        return str(self.Transpose(self.shaped(x, heads, size), perm=[0, 2, 1, 3]))

    def attention(self, q: str, k: str, v: str, width: int, heads: int, mask: str) -> str:
        size = width // heads
        q, k, v = (self.heads(one, heads, size) for one in (q, k, v))
        scores = self.MatMul(q, self.Transpose(k, perm=[0, 1, 3, 2]))
        scores = self.Add(self.Div(scores, self.number(size**0.5)), mask)
        context = self.MatMul(self.Softmax(scores, axis=-1), v)
        return self.shaped(self.Transpose(context, perm=[0, 2, 1, 3]), width)


def bert(
    layers: int = 12, width: int = 768, heads: int = 12, inside: int = 3072, vocab: int = 30522, decomposed: bool = True
) -> Writer:
    """BERT with its embeddings and pooler, with symbolic batch and sequence."""
    w = Writer()
    ids, mask = (
        w.input("input_ids", ["batch", "sequence"], TensorProto.INT64),
        w.input("attention_mask", ["batch", "sequence"], TensorProto.INT64),
    )
    mask = w.Cast(w.Unsqueeze(w.Unsqueeze(mask, w.data([1])), w.data([2])), to=TensorProto.FLOAT)
    mask = w.Mul(w.Sub(w.number(1), mask), w.number(-3e38))
    end = w.Unsqueeze(w.Gather(w.Shape(ids), w.data(1), axis=0), w.data([0]))
    places = w.Slice(w.data([list(range(512))]), w.data([0]), end, w.data([1]))
    zeros = w.ConstantOfShape(w.Shape(ids), value=numpy_helper.from_array(np.array([0], dtype=np.int64)))
    tables = [w.weight(vocab, width), w.weight(2, width), w.weight(512, width)]
    x = w.Add(w.Gather(tables[0], ids), w.Gather(tables[1], zeros))
    x = w.norm(w.Add(x, w.Gather(tables[2], places)), width, decomposed)
    for layer in range(layers):
        w.prefix = f"/encoder/layer.{layer}"
        q, k, v = (w.linear(x, width, width) for _ in range(3))
        attended = w.attention(q, k, v, width, heads, mask)
        x = w.norm(w.Add(w.linear(attended, width, width), x), width, decomposed)
        up = w.gelu(w.linear(x, width, inside))
        x = w.norm(w.Add(w.linear(up, inside, width), x), width, decomposed)
    w.prefix = "/pooler"
    first = w.Gather(x, w.data(0), axis=1)
    w.output(x, w.Tanh(w.Gemm(first, w.weight(width, width), w.weight(width), transB=1)))
    return w


def gpt(
    layers: int = 1, width: int = 768, heads: int = 12, decomposed: bool = False, word: int = TensorProto.FLOAT16
) -> Writer:
    """Blocks of GPT-2 between hidden states: a fused QKV that is split, and a causal mask cut out of a buffer."""
    w = Writer(word=word)
    x = w.input("hidden_states", ["batch", "sequence", width])
    buffer = w.data(np.tril(np.ones((1, 1, 1024, 1024), dtype=bool)), np.bool_)
    for layer in range(layers):
        w.prefix = f"/h.{layer}"
        normed = w.norm(x, width, decomposed)
        flat = w.Reshape(normed, w.data([-1, width]))
        qkv = w.Gemm(flat, w.weight(width, 3 * width), w.weight(3 * width))
        qkv = w.shaped(qkv, 3 * width, like=x)
        q, k, v = w.node("Split", qkv, w.data([width] * 3), outputs=3, axis=2)
        q, k, v = (w.heads(one, heads, width // heads) for one in (q, k, v))
        scores = w.Div(w.MatMul(q, w.Transpose(k, perm=[0, 1, 3, 2])), w.number((width // heads) ** 0.5))
        length = w.size(q, 2)
        seen = w.Slice(w.Slice(buffer, w.data([0]), length, w.data([2])), w.data([0]), length, w.data([3]))
        weights = w.Softmax(w.Where(seen, scores, w.number(-65504)), axis=-1)
        context = w.shaped(w.Transpose(w.MatMul(weights, v), perm=[0, 2, 1, 3]), width)
        x = w.Add(x, w.linear(context, width, width))
        inner = w.gelu_tanh(w.linear(w.norm(x, width, decomposed), width, 4 * width))
        x = w.Add(x, w.linear(inner, 4 * width, width))
    w.output(x)
    return w


def llama(
    layers: int = 4, width: int = 512, heads: int = 8, kv_heads: int = 2, inside: int = 1408, past: bool = False
) -> Writer:
    """A decoder with grouped queries, rotary embedding, RMSNorm and SwiGLU, in the nodes that PyTorch exports.

    ``past``: with keys and values of earlier tokens as inputs, and of all as outputs.
    """
    w, size = Writer(word=TensorProto.FLOAT16), width // heads
    x, ids = (
        w.input("embeds", ["batch", "sequence", width]),
        w.input("position_ids", [1, "sequence"], TensorProto.INT64),
    )
    angles = w.MatMul(w.weight(1, size // 2, 1), w.Cast(w.Unsqueeze(ids, w.data([1])), to=TensorProto.FLOAT16))
    angles = w.Transpose(angles, perm=[0, 2, 1])
    angles = w.Unsqueeze(w.Concat(angles, angles, axis=-1), w.data([1]))
    cos, sin = w.Cos(angles), w.Sin(angles)

    def norm(y: str) -> str:
        mean = w.ReduceMean(w.Pow(y, w.number(2)), axes=[-1])
        return str(w.Mul(w.weight(width), w.Mul(y, w.Reciprocal(w.Sqrt(w.Add(mean, w.number(1e-5)))))))

    def turned(y: str) -> str:
        half, end = w.data([size // 2]), w.data([2**62])
        first, second = w.Slice(y, w.data([0]), half, w.data([3])), w.Slice(y, half, end, w.data([3]))
        return str(w.Add(w.Mul(y, cos), w.Mul(w.Concat(w.Neg(second), first, axis=-1), sin)))

    def spread(y: str) -> str:
        """K or V for every query head, as repeat_kv writes it: a shape made of shapes, ones where it is -1."""
        batch, length = w.size(y, 0), w.size(y, 2)
        shape = w.Concat(batch, w.data([kv_heads]), w.data([heads // kv_heads]), length, w.data([size]), axis=0)
        ones = w.ConstantOfShape(w.Shape(shape), value=numpy_helper.from_array(np.array([1], dtype=np.int64)))
        shape = w.Where(w.Equal(shape, w.Mul(ones, w.data(-1))), ones, shape)
        spread = w.Expand(w.Unsqueeze(y, w.data([2])), shape)
        return str(w.Reshape(spread, w.Concat(batch, w.data([heads]), length, w.data([size]), axis=0)))

    for layer in range(layers):
        w.prefix = f"/model/layers.{layer}"
        y = norm(x)
        q, k, v = (w.MatMul(y, w.weight(width, count * size)) for count in (heads, kv_heads, kv_heads))
        q, k = turned(w.heads(q, heads, size)), turned(w.heads(k, kv_heads, size))
        v = w.heads(v, kv_heads, size)
        if past:
            shape = ["batch", kv_heads, "past_sequence", size]
            caches = [w.input(f"past_key_values.{layer}.{name}", shape) for name in ("key", "value")]
            k, v = (w.Concat(before, new, axis=-2) for before, new in zip(caches, (k, v), strict=True))
            w.output(k, v)
        k, v = spread(k), spread(v)
        scores = w.Mul(w.MatMul(q, w.Transpose(k, perm=[0, 1, 3, 2])), w.number(size**-0.5))
        context = w.MatMul(w.Softmax(scores, axis=-1), v)
        context = w.shaped(w.Transpose(context, perm=[0, 2, 1, 3]), width)
        x = w.Add(x, w.MatMul(context, w.weight(width, width)))
        y = norm(x)
        gate, up = (w.MatMul(y, w.weight(width, inside)) for _ in range(2))
        x = w.Add(x, w.MatMul(w.Mul(w.Mul(gate, w.Sigmoid(gate)), up), w.weight(inside, width)))
    w.output(x)
    return w


RESNET = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Stages of ResNet-50: channels inside, blocks, stride of the first."""


def resnet50(batch: int | str = "N") -> Writer:
    """ResNet-50 with its batch norms apart."""
    w = Writer()

    def conv(x: str, taken: int, given: int, size: int, stride: int = 1) -> str:
        pad = [size // 2] * 4
        made = w.Conv(x, w.weight(given, taken, size, size), kernel_shape=[size] * 2, strides=[stride] * 2, pads=pad)
        return str(w.BatchNormalization(made, *(w.weight(given) for _ in range(4))))

    x = w.Relu(conv(w.input("image", [batch, 3, 224, 224]), 3, 64, 7, 2))
    x, wide = w.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for stage, (inside, blocks, stride) in enumerate(RESNET):
        for block in range(blocks):
            w.prefix = f"/layer{stage + 1}/layer{stage + 1}.{block}"
            step = stride if block == 0 else 1
            y = w.Relu(conv(x, wide, inside, 1))
            y = w.Relu(conv(y, inside, inside, 3, step))
            y = conv(y, inside, 4 * inside, 1)
            beside = conv(x, wide, 4 * inside, 1, step) if block == 0 else x
            x, wide = w.Relu(w.Add(y, beside)), 4 * inside
    w.prefix = ""
    x = w.Flatten(w.GlobalAveragePool(x), axis=1)
    w.output(w.Gemm(x, w.weight(1000, 2048), w.weight(1000), transB=1))
    return w
