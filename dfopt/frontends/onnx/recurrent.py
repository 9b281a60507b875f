"""Layers of recurrent cells in ONNX: LSTM, GRU and RNN, in one direction or both.

A cell multiplies what enters it and its own output of the token before, side by side, with one matrix for each gate
(``W`` and ``R``: of ``H`` hidden features, ``I`` inputs and ``G`` gates, 2 G H (I + H) FLOP of a token and direction),
adds biases and bends the sum (three for each element of a gate, two more to clip it), and computes its state:
``c = f c + i g`` and ``h = o tanh(c)`` of an LSTM (3 and 2, 6 more with peepholes), ``h = (1 - z) h + z g`` behind
``r h`` of a GRU (5). Each kernel works on all tokens: FLOP are exact. What the order of tokens costs is not drawn:
matrices and state are read once, as where they stay on the chip, see :mod:`dfopt.workloads.lstm` for where they do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dfopt.frontends.onnx.canvas import Canvas
from dfopt.frontends.onnx.model import OnnxNode
from dfopt.frontends.onnx.values import OnnxValue, one_each

CELLS: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Gates of a cell."""


def draw_cells(canvas: Canvas, node: OnnxNode) -> None:
    """Draw a recurrent layer (LSTM, GRU or RNN): products, gates and state.

    Raises
    ------
    DocumentError
        If its weights are computed.
    """
    inputs = [canvas.value(name) if name else None for name in (*node.inputs, *[""] * 8)]
    entering, weight, recurrent, bias, _, hidden, cell, peepholes = inputs[:8]
    if entering is None or weight is None or recurrent is None or not (weight.constant and recurrent.constant):
        raise node.refuse("its weights are computed", "export the model with constant weights")
    (directions, rows, width), features = weight.shape, recurrent.shape[2]
    tokens = entering.type.size // width

    def state(part: str, each: int, flop: int, *reads: OnnxValue | None) -> str:
        axes = one_each("nhm", (tokens, directions, each))
        return canvas.pointwise(node, axes, *filter(None, reads), flop=flop, part=part)

    def of(kernel: str, each: int) -> OnnxValue:
        return canvas.inner(kernel, one_each("nhm", (tokens, directions, each)))

    sizes = {"outer": directions, "m": rows, "k": width + features, "n": tokens}
    product = canvas.draw(node, "gemm", sizes, (entering, 1), part="product")
    canvas.weigh(product, replace(weight, made_of=weight.made_of | recurrent.made_of))
    flop = 2 + (bias is not None) + 2 * ("clip" in node.attributes)
    last = gates = state("gates", rows, flop, of(product, rows), bias, hidden)
    cells = last
    if node.op == "LSTM":
        bent = of(gates, rows)
        cells = state("cell", features, 9 if peepholes else 3, bent, cell, peepholes)
        output = replace(bent, elements=bent.elements // CELLS[node.op], part="output")
        last = state("hidden", features, 2, of(cells, features), output)
    elif node.op == "GRU":
        last = state("hidden", features, 5, of(gates, rows), hidden)
    late = "nhm" if node.attributes.get("layout") else "hnm"
    letters = ("nnhm" if node.attributes.get("layout") else "nhnm", late, late)
    for name, kernel, along in zip(node.outputs, (last, last, cells), letters, strict=False):
        if name in canvas.model.types:
            kind = canvas.model.types[name]
            canvas.values[name] = OnnxValue(name, kind, one_each(along, kind.shape), kernel, kind.size, name)
