"""Caches in graphs that were taken apart: past keys or values, new ones behind them, and both as an output.

Drawn as it stands such a `Concat` would copy the whole cache in every evaluation. Where its input and its output are
those of the model, and nothing but products reads it, only what is new is written.
"""

from __future__ import annotations

import math
from typing import Final

from dfopt.documents.graph import SequenceState
from dfopt.frontends.onnx.canvas import Canvas
from dfopt.frontends.onnx.model import STANDARD, OnnxNode
from dfopt.frontends.onnx.values import OnnxValue, resized

_VIEWS: Final = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def draw_cache(canvas: Canvas, node: OnnxNode) -> bool:
    """Draw a `Concat` as a growing KV cache; return whether it is one.

    Its dims are sequences, tokens, heads and features of a head, in the order in which the new ones have them.
    """
    if len(node.inputs) != 2 or node.outputs[0] not in canvas.model.outputs:
        return False
    past, new = canvas.inputs(node)
    if node.inputs[0] not in canvas.model.inputs or not new.source or len(new.shape) != 4:
        return False
    axis = node.attributes["axis"] % 4
    letters = ["".join(sorted({letter for letter, count in dim if count > 1})) for dim in new.axes]
    features = [place for place, tag in enumerate(letters) if tag in ("m", "h") and place != axis]
    if len(features) != 2 or letters[axis] not in ("", "n", "?", "s") or not _only_products(canvas, node.outputs[0]):
        return False
    heads, each = new.shape[features[0]], math.prod(new.shape[place] for place in features) * past.type.item_bytes
    name, out = node.outputs[0], canvas.model.types[node.outputs[0]]
    sequences = new.type.size // math.prod(new.shape[place] for place in (axis, *features))
    tokens = {"tokens": out.shape[axis], "reads": past.shape[axis], "writes": new.shape[axis]}
    about = {"name": "cache", "heads": heads, "bytes_per_token": round(each)}
    state = SequenceState(sequences=sequences, **about, **tokens)
    axes = resized(new.axes, out.shape)
    canvas.values[name] = OnnxValue(name, out, axes, new.source, new.elements, new.part, cache=state)
    canvas.kept.add(name)
    return True


def _only_products(canvas: Canvas, name: str) -> bool:
    """Whether what reads a value are products of two activations, perhaps in another shape."""
    for node in canvas.model.readers.get(name, ()):
        standard = node.domain in STANDARD
        views = standard and node.op in _VIEWS and node.inputs[0] == name
        if not (standard and node.op == "MatMul") and not (views and _only_products(canvas, node.outputs[0])):
            return False
    return True
