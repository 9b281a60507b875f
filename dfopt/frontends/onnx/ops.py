"""What the operators of ONNX are as kernels: a table from their names to functions that draw a node.

Costs are those of the definitions. A product counts ``2 m k n``, which holds the addition of a bias; a convolution is
the product of its unfolded input (im2col), padding included, one for each group. Element by element each operation
counts one, so that a norm or a GELU counts as much whether it is exported as one node or as several. Data that is only
looked at in another shape, order or part costs nothing: what reads it reads where it lies. `Concat` and indices that
are computed copy, and so are kernels. Where a transposition makes tokens of features, what it costs to exchange them
between chips is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dfopt.documents.kernel import Role
from dfopt.documents.strict_yaml import load_strict
from dfopt.frontends.onnx.cache import draw_cache
from dfopt.frontends.onnx.canvas import Canvas
from dfopt.frontends.onnx.model import OnnxNode
from dfopt.frontends.onnx.recurrent import draw_cells
from dfopt.frontends.onnx.values import Axes, OnnxValue, broadcast, normalized, one_each, regrouped, resized

Draw = Callable[[Canvas, OnnxNode], None]
_MOST_FLOP: Final = 10**6  # of an element, as a kernel says it


# -- nothing to compute ----------------------------------------------------------------------------
def _view(axes_of: Callable[[Canvas, OnnxNode, OnnxValue, tuple[int, ...]], Axes]) -> Draw:
    """An operator that only looks at its first input in another way."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        given = canvas.value(node.inputs[0])
        for name in filter(None, node.outputs):
            if name in canvas.model.types:
                kind = canvas.model.types[name]
                canvas.values[name] = given.seen_as(name, kind, axes_of(canvas, node, given, kind.shape))

    return draw


def _transposed(canvas: Canvas, node: OnnxNode, given: OnnxValue, shape: tuple[int, ...]) -> Axes:
    order = node.attributes.get("perm") or range(len(shape))[::-1]
    return tuple(given.axes[place] for place in order)


def _blocks(canvas: Canvas, node: OnnxNode, given: OnnxValue, shape: tuple[int, ...]) -> Axes:
    return one_each("nm" + "n" * (len(shape) - 2), shape)


def _dropout(canvas: Canvas, node: OnnxNode) -> None:
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if training and (training not in canvas.model.values or bool(canvas.model.values[training])):
        raise node.refuse("it is drawn for training", "export the model for inference")
    _RESHAPED(canvas, node)


def _gather(canvas: Canvas, node: OnnxNode) -> None:
    data, index = canvas.inputs(node)
    out, axis = canvas.model.types[node.outputs[0]], node.attributes.get("axis", 0) % len(data.shape)
    before, behind = data.axes[:axis], data.axes[axis + 1 :]
    if index.constant:  # a part of what is there
        letter = data.axes[axis][0][0]
        taken = one_each(letter * len(index.shape), index.shape)
        canvas.values[node.outputs[0]] = data.seen_as(node.outputs[0], out, (*before, *taken, *behind))
        return
    if data.constant:
        row = data.shape[axis + 1 :]
        axes = one_each("n" * (len(out.shape) - len(row)) + "m" * len(row), out.shape)
        kernel = canvas.pointwise(node, axes, index)
        canvas.hold(kernel, data, out.size)  # a row for each index, of a table that is held
    else:
        axes = (*before, *one_each("n" * len(index.shape), index.shape), *behind)
        kernel = canvas.pointwise(node, axes, data, index)
    canvas.give(node.outputs[0], kernel, axes)


# -- element by element ----------------------------------------------------------------------------
def _each(flop: int | Callable[[OnnxNode, list[OnnxValue]], int], role: Role | None = None) -> Draw:
    """An operator that computes each element of its output from one of every input."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        values = canvas.inputs(node)
        axes = broadcast(canvas.model.types[node.outputs[0]].shape, values)
        each = flop if isinstance(flop, int) else flop(node, values)
        about: dict[str, Any] = {"role": role} if role else _bias(node, values)
        kernel = canvas.pointwise(node, axes, *values, flop=each, **about)
        for name in filter(None, node.outputs):
            canvas.give(name, kernel, axes)

    return draw


def _bias(node: OnnxNode, values: Sequence[OnnxValue]) -> dict[str, Any]:
    """The role of a sum with a constant of features, which is a bias; none of other sums."""
    added = [len(value.shape) for value in values if value.constant]
    return {"role": "bias"} if node.op == "Add" and added == [1] else {}


def _operands(node: OnnxNode, values: list[OnnxValue]) -> int:
    return max(len(values) - 1, 1)


def _gelu(node: OnnxNode, values: list[OnnxValue]) -> int:
    return 8 if node.attributes.get("approximate") == "tanh" else 5


def _clip(node: OnnxNode, values: list[OnnxValue]) -> int:
    return max(len(values) - 1, 1) if node.opset >= 11 else 2


def _resize(node: OnnxNode, values: list[OnnxValue]) -> int:
    """A sum over the points that an element is interpolated from, each with a factor."""
    points = {"nearest": 1, "linear": 2, "cubic": 4}[node.attributes.get("mode", "nearest")]
    return 2 * points ** (len(values[0].shape) - 2) - 1 if points > 1 else 1


def _concat(canvas: Canvas, node: OnnxNode) -> None:
    if draw_cache(canvas, node):
        return
    values = [value for value in canvas.inputs(node) if value.type.size]
    out = canvas.model.types[node.outputs[0]]
    if len(values) == 1:
        canvas.values[node.outputs[0]] = values[0].seen_as(node.outputs[0], out, values[0].axes)
        return
    first = next(value for value in values if not value.constant)
    axes = resized(first.axes, out.shape)
    canvas.give(node.outputs[0], canvas.pointwise(node, axes, *values), axes)


def _copied(canvas: Canvas, node: OnnxNode) -> None:
    """Elements chosen or placed by computed indices: one copy of each, and all inputs are read."""
    out = canvas.model.types[node.outputs[0]]
    values = canvas.inputs(node)
    axes = broadcast(out.shape, values)
    kernel = canvas.pointwise(node, axes, *values)
    for name in filter(None, node.outputs):
        canvas.give(name, kernel, axes if canvas.model.types[name].shape == out.shape else _plain(canvas, name))


def _plain(canvas: Canvas, name: str) -> Axes:
    shape = canvas.model.types[name].shape
    return one_each("n" * (len(shape) - 1) + "m" * min(len(shape), 1), shape)


# -- norms and softmax -----------------------------------------------------------------------------
def _dims(node: OnnxNode, rank: int) -> list[int]:
    """The dims that a norm or a softmax runs over, by its attributes and its opset."""
    if node.op in ("Softmax", "LogSoftmax", "Hardmax"):
        axis = node.attributes.get("axis", -1 if node.opset >= 13 else 1) % rank
        return [axis] if node.opset >= 13 else list(range(axis, rank))
    if node.op == "LpNormalization":
        return [node.attributes.get("axis", -1) % rank]
    return list(range(node.attributes.get("axis", -1) % rank, rank))


def _normalizes(flop: int, role: Role = "norm", bias: int = 1) -> Draw:
    """A norm or softmax along the last dims or an axis; ``bias`` more where it has one (a third input)."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        values = canvas.inputs(node)
        axes = normalized(values[0].axes, _dims(node, len(values[0].shape)))
        each = flop + (bias if len(values) > 2 else 0)
        kernel = canvas.pointwise(node, axes, *values, flop=each, normalizes=True, role=role)
        canvas.give(node.outputs[0], kernel, axes)

    return draw


def _batch_norm(canvas: Canvas, node: OnnxNode) -> None:
    if node.attributes.get("training_mode") or len([name for name in node.outputs if name]) > 1:
        raise node.refuse("it is drawn for training", "export the model for inference")
    values = canvas.inputs(node)
    axes = _channels(values[0])
    canvas.give(node.outputs[0], canvas.pointwise(node, axes, *values, flop=2, role="norm"), axes)


def _whole_norm(flop: int) -> Draw:
    """A norm over the whole image of a channel, or of a group of them: no tile is done before all have come."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        values = canvas.inputs(node)
        axes = _channels(values[0])
        alone = node.op != "GroupNormalization" or node.attributes["num_groups"] == values[0].shape[1]
        more: dict[str, Any] = {"stream": "none", "normalizes": not alone, "role": "norm"}
        canvas.give(node.outputs[0], canvas.pointwise(node, axes, *values, flop=flop, **more), axes)

    return draw


def _channels(value: OnnxValue) -> Axes:
    """The axes of an image: channels are features, everything else are tokens."""
    return one_each("nm" + "n" * (len(value.shape) - 2), value.shape)


# -- reductions and pooling ------------------------------------------------------------------------
def _reduces(flop: int) -> Draw:
    """A reduction over some dims, ``flop`` for each element that it takes in."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        given, rank = canvas.value(node.inputs[0]), len(canvas.value(node.inputs[0]).shape)
        dims = node.attributes.get("axes")
        if node.op in ("ArgMax", "ArgMin"):
            dims = [node.attributes.get("axis", 0)]
        elif len(node.inputs) > 1 and node.inputs[1]:
            if node.inputs[1] not in canvas.model.values:
                raise node.refuse("its axes are computed", "export the model with constant axes")
            dims = canvas.model.values[node.inputs[1]].tolist()
        if not dims and node.attributes.get("noop_with_empty_axes"):
            return _RESHAPED(canvas, node)
        over = {dim % rank for dim in dims} if dims else set(range(rank))
        return _reduced(canvas, node, given, over, flop)

    return draw


def _reduced(canvas: Canvas, node: OnnxNode, given: OnnxValue, over: set[int], flop: int) -> None:
    """Over features a kernel has the extents of its input, as it needs all of them; over tokens those of its output."""
    size = math.prod(given.shape[dim] for dim in over)
    left = [dim for place, dim in enumerate(given.axes) if place not in over]
    out = canvas.model.types[node.outputs[0]]
    if all(letter in "n?s" for dim in over for letter, _ in given.axes[dim]) and flop * size <= _MOST_FLOP:
        kernel = canvas.pointwise(node, tuple(left), given, flop=max(flop * size, 1))
    else:
        axes = normalized(given.axes, over)
        left = [dim for place, dim in enumerate(axes) if place not in over]
        kernel = canvas.pointwise(node, axes, given, flop=flop, normalizes=True)
    canvas.give(node.outputs[0], kernel, regrouped(tuple(left), out.shape))


def _pools(canvas: Canvas, node: OnnxNode) -> None:
    given, out = canvas.value(node.inputs[0]), canvas.model.types[node.outputs[0]]
    axes = one_each("nm" + "n" * (len(out.shape) - 2), out.shape)
    kernel = canvas.pointwise(node, axes, given, flop=math.prod(node.attributes["kernel_shape"]))
    for name in filter(None, node.outputs):
        canvas.give(name, kernel, axes)


def _pools_all(canvas: Canvas, node: OnnxNode) -> None:
    given = canvas.value(node.inputs[0])
    _reduced(canvas, node, OnnxValue(**{**vars(given), "axes": _channels(given)}), set(range(2, len(given.shape))), 1)


# -- products --------------------------------------------------------------------------------------
def _matmul(canvas: Canvas, node: OnnxNode) -> None:
    a, b = canvas.inputs(node)[:2]
    batch = [f"b{place}" for place in range(max(len(a.shape), len(b.shape)) - 2)]

    def labels(value: OnnxValue, own: str, turned: bool) -> list[str]:
        rank = len(value.shape)
        inner = [own, "k"] if turned else ["k", own]
        return ["k"] if rank == 1 else [*batch[len(batch) - rank + 2 :], *inner]

    of_a = labels(a, "r", not node.attributes.get("transA"))
    of_b = labels(b, "c", bool(node.attributes.get("transB")))
    out = [*batch, *(own for own, value in (("r", a), ("c", b)) if len(value.shape) > 1)]
    kernel, axes = canvas.product(node, (a, of_a), (b, of_b), out)
    canvas.give(node.outputs[0], kernel, axes)


def _gemm(canvas: Canvas, node: OnnxNode) -> None:
    values = canvas.inputs(node)
    a, b = values[:2]
    labels = ["kr" if node.attributes.get("transA") else "rk", "ck" if node.attributes.get("transB") else "kc"]
    bias = [value for value in values[2:] if value.constant]
    kernel, axes = canvas.product(node, (a, labels[0]), (b, labels[1]), "rc", *bias)
    total = canvas.give(node.outputs[0], kernel, axes)
    for value in values[2:]:
        if not value.constant:
            added = canvas.pointwise(node, axes, total, value, part="add")
            canvas.give(node.outputs[0], added, axes)


def _einsum(canvas: Canvas, node: OnnxNode) -> None:
    values = canvas.inputs(node)
    terms, arrow, out = node.attributes["equation"].replace(" ", "").partition("->")
    of = terms.split(",")
    if not arrow or "." in terms or len(of) > 2 or any(len({*term}) < len(term) for term in (*of, out)):
        message = f"the equation {node.attributes['equation']!r} is not a product of two tensors or a transposition"
        raise node.refuse(message, "write it as MatMul and Transpose")
    if len(of) == 1:
        if {*out} != {*of[0]}:
            raise node.refuse("sums over a dim of its one operand", "write it as ReduceSum")
        kind = canvas.model.types[node.outputs[0]]
        axes = tuple(values[0].axes[of[0].index(label)] for label in out)
        canvas.values[node.outputs[0]] = values[0].seen_as(node.outputs[0], kind, axes)
        return
    kernel, axes = canvas.product(node, (values[0], of[0]), (values[1], of[1]), out)
    canvas.give(node.outputs[0], kernel, axes)


def _conv(canvas: Canvas, node: OnnxNode) -> None:
    values = canvas.inputs(node)
    image, weight, out = values[0], values[1], canvas.model.types[node.outputs[0]]
    if not weight.constant:
        raise node.refuse("its weights are computed", "a product of two activations is drawn for MatMul alone")
    groups = node.attributes.get("group", 1)
    sizes: dict[str, Any] = {"outer": groups}
    if node.op == "ConvTranspose":  # a product of every input pixel, whose results are added up where they overlap
        channels, inside = weight.shape[0] // groups, math.prod(weight.shape[1:])
        sizes |= {"m": inside, "k": channels, "n": image.shape[0] * math.prod(image.shape[2:])}
    else:
        inside = math.prod(weight.shape[1:])
        sizes |= {"m": weight.shape[0] // groups, "k": inside, "n": out.shape[0] * math.prod(out.shape[2:])}
    kernel = canvas.draw(node, "gemm", sizes, (image, 1), *values[2:])
    canvas.weigh(kernel, weight)
    canvas.give(node.outputs[0], kernel, one_each("nm" + "n" * (len(out.shape) - 2), out.shape))


_RESHAPED: Final = _view(lambda canvas, node, given, shape: regrouped(given.axes, shape))
_RESIZED: Final = _view(lambda canvas, node, given, shape: resized(given.axes, shape))
_BY_FLOP: Final[Mapping[str, Callable[[int], Draw]]] = {
    "element": _each, "activation": partial(_each, role="activation"), "softmax": partial(_normalizes, role="softmax"),
    "norm": _normalizes, "norm of images": _whole_norm, "reduction": _reduces,
}  # fmt: skip
_DRAWN: Final[Mapping[str, Draw]] = {
    "reshaped": _RESHAPED, "resized": _RESIZED, "transposed": _view(_transposed), "blocks": _view(_blocks),
    "dropout": _dropout, "gather": _gather, "concat": _concat, "copied": _copied, "operands": _each(_operands),
    "gelu": _each(_gelu, "activation"), "clip": _each(_clip, "activation"), "resize": _each(_resize),
    "lrn": _each(lambda node, values: node.attributes["size"] + 5), "batch norm": _batch_norm, "pools": _pools,
    "pools all": _pools_all, "matmul": _matmul, "gemm": _gemm, "einsum": _einsum, "conv": _conv, "cells": draw_cells,
}  # fmt: skip
_TABLE: Final = load_strict(Path(__file__).with_name("operators.yaml"))
OPERATORS: Final[dict[str, Draw]] = {
    **{op: _BY_FLOP[kind](int(flop))
       for kind, by_flop in _TABLE["of elements"].items() for flop, names in by_flop.items() for op in names.split()},
    **{op: _DRAWN[kind] for kind, names in _TABLE["drawn"].items() for op in names.split()},
}  # fmt: skip
