"""What is only read in parts is computed in parts: a fused QKV is three products, as its readers are three.

Kernels of their own may each be sharded, and put into partitions, as what reads them is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dfopt.frontends.onnx.canvas import Canvas
from dfopt.frontends.onnx.values import OnnxValue, extents


def draw_parts(canvas: Canvas) -> None:
    """Split kernels whose output features are read in disjoint parts only.

    These are products with a weight, and elementwise kernels after them, such as a bias.
    """
    shown = {canvas.values[name].source for name in canvas.model.outputs if name in canvas.values}
    cut = {value.source for _, _, value in canvas.reads if value.part} - shown
    for name in reversed(list(canvas.kernels)):
        parts = _parts(canvas, name) if name in cut else {}
        if parts:
            cut |= {value.source for dst, _, value in canvas.reads if dst == name} - shown
            _split(canvas, name, parts)


def _parts(canvas: Canvas, name: str) -> dict[str, int]:
    """Features of each part; nothing if the kernel is to stay whole."""
    fields = canvas.kernels[name]
    pointwise = fields["op"] == "elementwise" and not fields.get("normalizes") and canvas.size_of[name] == _size(fields)
    if not (pointwise or fields["op"] == "gemm") or fields.get("outer", 1) > 1 or fields.get("samples", 1) > 1:
        return {}
    parts: dict[str, int] = {}
    for _, _, value in canvas.reads:
        if value.source == name:
            size = extents(value.axes)
            tokens = size["n"] * size.get("samples", 1)
            if tokens != fields["n"] or value.elements != value.type.size:
                return {}
            parts[value.part] = value.elements // tokens
    return parts if len(parts) > 1 and sum(parts.values()) == fields["m"] else {}


def _size(fields: dict[str, Any]) -> int:
    return int(fields["m"] * fields["n"])


def _split(canvas: Canvas, name: str, parts: dict[str, int]) -> None:
    fields, named = canvas.kernels[name], {part: canvas.unused(f"{name}.{place}") for place, part in enumerate(parts)}
    before = [(operand, value) for dst, operand, value in canvas.reads if dst == name]
    reads = []
    for dst, operand, value in canvas.reads:
        if value.source == name:
            reads.append((dst, operand, replace(value, source=named[value.part], part="")))
        elif dst != name:
            reads.append((dst, operand, value))
    total = fields["m"]
    for part, features in parts.items():
        for operand, value in before:
            reads.append((named[part], operand, _part(value, part, features, fields)))
        canvas.size_of[named[part]] = features * fields["n"]
        if name in canvas.weights:
            canvas.weights[named[part]] = canvas.weights[name]
    canvas.reads = reads
    canvas.weights.pop(name, None)
    canvas.share_constants(name, {named[part]: features / total for part, features in parts.items()})
    drawn: dict[str, dict[str, Any]] = {}
    for other, own in canvas.kernels.items():
        pieces = parts.items() if other == name else ()
        drawn |= {named[part]: {**own, "name": named[part], "m": features} for part, features in pieces}
        if other != name:
            drawn[other] = own
    canvas.kernels = drawn


def _part(value: OnnxValue, part: str, features: int, fields: dict[str, Any]) -> OnnxValue:
    """What a part of a kernel reads: of what has all of its features, if it is elementwise, the same part."""
    if fields["op"] == "gemm" or value.elements != _size(fields):
        return value
    kind = replace(value.type, shape=(fields["n"], features))
    axes = ((("n", fields["n"]),), (("m", features),))
    return replace(value, type=kind, axes=axes, elements=features * fields["n"], part=f"{value.part}{part}")
