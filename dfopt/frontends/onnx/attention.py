"""Operators that do all of an attention, and those beside them that ONNX has no schema of: shapes and drawing.

An attention is two products within every head of every sample and the softmax between them. K and V of heads that
several queries share are read once. Past keys and values are states: what an evaluation reads and adds, held for every
sequence. The pairs that attend are counted exactly under ``is_causal`` and windows; a mask that is given as a tensor is
taken to leave everything.

Sources: the ONNX operator schemas (opsets 23 and 24) and ONNX Runtime's ``docs/ContribOperators.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dfopt.documents.graph import SequenceState
from dfopt.documents.phase import Segment
from dfopt.frontends.onnx.canvas import Canvas
from dfopt.frontends.onnx.model import OnnxNode, Type
from dfopt.frontends.onnx.ops import OPERATORS, Draw
from dfopt.frontends.onnx.values import Axes, OnnxValue, normalized, one_each

_MS: Final = "com.microsoft"
InputTypes = Sequence[Type | None]
_NORM_FLOP: Final = {"SkipLayerNormalization": 7, "SkipSimplifiedLayerNormalization": 4}


@dataclass(frozen=True)
class _Sizes:
    """An attention: ``new`` tokens of each sequence behind ``cached`` ones, and features of a head of K and of V."""

    sequences: int
    heads: int
    kv_heads: int
    new: int
    keys: int
    k_dim: int
    v_dim: int
    cached: int = 0
    causal: bool = False
    window: int = 0

    @property
    def density(self) -> float | None:
        """Share of the scores that are needed; none where it is all."""
        if not self.causal:
            return None
        if self.window or self.keys == self.cached + self.new:
            pairs = Segment(sequences=1, new=self.new, cached=self.cached).pairs(self.window or None)
        else:  # the first query sees the first key
            rising = min(self.new, self.keys)
            pairs = rising * (rising + 1) // 2 + (self.new - rising) * self.keys
        return pairs / (self.new * self.keys) if pairs < self.new * self.keys else None


def attend(
    canvas: Canvas,
    node: OnnxNode,
    reads: Sequence[OnnxValue],
    sizes: _Sizes,
    masks: Sequence[OnnxValue],
    keeps: bool,
    flop: int = 6,
) -> tuple[str, Axes]:
    """Draw an attention operator with inputs Q, K and V.

    Parameters
    ----------
    canvas, node
        The drawing so far, and the operator.
    reads
        Queries, keys and values.
    sizes
        Sequences, heads, tokens and features.
    masks
        Values that are added to the scores.
    keeps
        Whether keys and values are held for the next evaluation.
    flop
        FLOP of a score for its scale (1) and its softmax (5), without masks.

    Returns
    -------
    (kernel, axes)
        Its last kernel, and axes by sample, head, token and feature.
    """
    if sizes.heads % sizes.kv_heads:
        raise node.refuse(f"{sizes.kv_heads} heads of K and V do not divide {sizes.heads} of Q")
    query, key, value = reads
    density = sizes.density

    def axes(last: int) -> Axes:
        return one_each("shnm", (sizes.sequences, sizes.heads, sizes.new, last))

    def state(name: str, size: int) -> dict[str, Any]:
        if not keeps:
            return {}
        each = round(sizes.kv_heads * size * canvas.word)
        tokens = {"tokens": sizes.keys, "reads": sizes.cached, "writes": sizes.keys - sizes.cached}
        kept = SequenceState(name=name, sequences=sizes.sequences, heads=sizes.kv_heads, bytes_per_token=each, **tokens)
        return {"states": (kept,)}

    def product(part: str, last: int, inner: int, first: OnnxValue, other: OnnxValue, **more: Any) -> str:
        extents = {"outer": sizes.heads, "m": last, "k": inner, "n": sizes.new}
        if sizes.sequences > 1:
            extents["samples"] = sizes.sequences
        return canvas.draw(node, "matmul", extents, (first, 1), (other, 2), part=part, density=density, **more)

    more = state("keys", sizes.k_dim)
    scores = product("scores", sizes.keys, sizes.k_dim, query, key, role="scores", **more)
    about: dict[str, Any] = {"normalizes": True, "role": "softmax", "density": density}
    given = canvas.inner(scores, axes(sizes.keys))
    soft = canvas.pointwise(node, axes(sizes.keys), given, *masks, flop=flop + len(masks), part="softmax", **about)
    more = {"masked": None if density is None else 1, **state("values", sizes.v_dim)}
    weights = canvas.inner(soft, axes(sizes.keys))
    out = product("context", sizes.v_dim, sizes.keys, weights, value, role="context", **more)
    return out, axes(sizes.v_dim)


def _merged(axes: Axes) -> Axes:
    """From sample, head, token, feature to sample, token and features of all heads."""
    sample, head, token, feature = axes
    return sample, token, (*head, *feature)


def _optional(canvas: Canvas, node: OnnxNode, place: int) -> OnnxValue | None:
    name = node.inputs[place] if place < len(node.inputs) else ""
    return canvas.value(name) if name else None


def _present(canvas: Canvas, node: OnnxNode, places: Sequence[int], pasts: Sequence[OnnxValue | None]) -> bool:
    """Whether keys and values are held; what is held goes to DRAM as a state and to no other kernel."""
    if any(past is not None and (past.source or past.constant) for past in pasts):
        raise node.refuse("its past keys and values are computed", "they are read where they are inputs of the model")
    names = [node.outputs[place] for place in places if place < len(node.outputs) and node.outputs[place]]
    canvas.kept.update(names)
    return bool(names) or any(past is not None for past in pasts)


def _attention(canvas: Canvas, node: OnnxNode) -> None:
    """`Attention` of opset 23 on."""
    query, key, value = canvas.inputs(node)[:3]
    pasts = [_optional(canvas, node, place) for place in (4, 5)]
    mask, given = _optional(canvas, node, 3), node.attributes
    by_head = len(query.shape) == 4
    cached = pasts[0].shape[2] if pasts[0] is not None else 0
    if by_head:
        heads, kv_heads = query.shape[1], key.shape[1]
        new, length, k_dim, v_dim = query.shape[2], key.shape[2], query.shape[3], value.shape[3]
    else:
        heads, kv_heads = given["q_num_heads"], given["kv_num_heads"]
        new, length, k_dim, v_dim = query.shape[1], key.shape[1], query.shape[2] // heads, value.shape[2] // kv_heads
    sizes = _Sizes(
        query.shape[0], heads, kv_heads, new, cached + length, k_dim, v_dim, cached, bool(given.get("is_causal"))
    )
    masks = [mask] if mask is not None else []
    flop = 9 if given.get("softcap") else 6
    keeps = _present(canvas, node, (1, 2), pasts)
    kernel, axes = attend(canvas, node, (query, key, value), sizes, masks, keeps, flop)
    canvas.give(node.outputs[0], kernel, axes if by_head else _merged(axes))


def _multi_head(canvas: Canvas, node: OnnxNode) -> None:
    """`MultiHeadAttention`: Q, K and V apart."""
    query, key, value, bias = (_optional(canvas, node, place) for place in range(4))
    if query is None or key is None or value is None or len(query.shape) != 3:
        raise node.refuse("Q, K and V are packed", "export the model with three inputs")
    heads = node.attributes["num_heads"]
    pasts = [_optional(canvas, node, place) for place in (6, 7)]
    masks = [mask for place in (4, 5) if (mask := _optional(canvas, node, place)) is not None]
    length, v_dim = (key.shape[2], value.shape[3]) if len(key.shape) == 4 else (key.shape[1], value.shape[2] // heads)
    cached = pasts[0].shape[2] if pasts[0] is not None else 0
    reads = [query, key, value]
    if bias is not None:
        for place, read in enumerate(reads):
            added = canvas.pointwise(node, read.axes, read, part=f"{'QKV'[place]}_bias", role="bias")
            canvas.hold(added, replace(bias, type=Type(bias.type.kind, (read.shape[-1],)), made_of=frozenset()))
            reads[place] = canvas.inner(added, read.axes)
    sizes = _Sizes(
        query.shape[0], heads, heads, query.shape[1], cached + length, query.shape[2] // heads, v_dim, cached,
        bool(node.attributes.get("unidirectional")),
    )  # fmt: skip
    kernel, axes = attend(canvas, node, reads, sizes, masks, _present(canvas, node, (1, 2), pasts))
    canvas.give(node.outputs[0], kernel, _merged(axes))


def _projected(canvas: Canvas, node: OnnxNode) -> None:
    """`Attention` of ONNX Runtime: its projections are its own, and their weights lie side by side."""
    given, weight = canvas.value(node.inputs[0]), canvas.value(node.inputs[1])
    if not weight.constant:
        raise node.refuse("its weights are computed")
    bias, mask, past = (_optional(canvas, node, place) for place in (2, 3, 4))
    heads, (batch, new, width) = node.attributes["num_heads"], given.shape
    reads, rows = list[OnnxValue](), one_each("nnm", given.shape)[:2]
    for part, size in zip("QKV", _projections(node, weight.type), strict=True):
        kernel = canvas.draw(node, "gemm", {"m": size, "k": width, "n": batch * new}, (given, 1), part=part)
        canvas.weigh(kernel, weight)
        if bias is not None:
            canvas.hold(kernel, replace(bias, type=Type(bias.type.kind, (size,)), made_of=frozenset()))
        reads.append(canvas.inner(kernel, (*rows, (("m", size),))))
    cached, wide = past.shape[3] if past is not None else 0, reads[2].type.size // (batch * new)
    sizes = _Sizes(
        batch, heads, heads, new, cached + new, reads[0].type.size // (batch * new * heads), wide // heads, cached,
        bool(node.attributes.get("unidirectional")),
    )  # fmt: skip
    masks = [m for m in (mask, _optional(canvas, node, 5)) if m is not None]
    kernel, axes = attend(canvas, node, reads, sizes, masks, _present(canvas, node, (1,), [past]))
    canvas.give(node.outputs[0], kernel, _merged(axes))


def _projections(node: OnnxNode, weight: Type) -> list[int]:
    """Features of Q, K and V."""
    return list(node.attributes.get("qkv_hidden_sizes") or [weight.shape[1] // 3] * 3)


def _grouped(canvas: Canvas, node: OnnxNode) -> None:
    """`GroupQueryAttention`, causal: Q, K and V apart or packed, and the past as long as its shape says."""
    query, key, value = (_optional(canvas, node, place) for place in range(3))
    assert query is not None
    given, pasts = node.attributes, [_optional(canvas, node, place) for place in (3, 4)]
    heads, kv_heads = given["num_heads"], given["kv_num_heads"]
    packed = key is None or value is None
    size = query.shape[2] // (heads + 2 * kv_heads if packed else heads)
    rows = query.shape[:2]
    wide = {"Q": heads * size, "K": kv_heads * size, "V": kv_heads * size}
    if packed:
        kinds = {part: Type(query.type.kind, (*rows, count)) for part, count in wide.items()}
        axes = {part: one_each("nnm", kind.shape) for part, kind in kinds.items()}
        reads = [query.seen_as(f"{node.name}.{part}", kinds[part], axes[part]) for part in wide]
    else:
        reads = [read for read in (query, key, value) if read is not None]
    if given.get("do_rotary"):
        for place in (0, 1):
            turned = canvas.pointwise(node, reads[place].axes, reads[place], flop=3, part=f"{'QK'[place]}_rotary")
            for cache in (_optional(canvas, node, 7), _optional(canvas, node, 8)):
                if cache is not None:
                    canvas.hold(turned, cache, min(cache.type.size, rows[0] * rows[1] * cache.shape[-1]))
            reads[place] = canvas.inner(turned, reads[place].axes)
    cached = pasts[0].shape[2] if pasts[0] is not None else 0
    sizes = _Sizes(
        rows[0], heads, kv_heads, rows[1], cached + rows[1], size, size, cached, True,
        max(given.get("local_window_size", -1), 0),
    )  # fmt: skip
    kernel, axes4 = attend(canvas, node, reads, sizes, [], _present(canvas, node, (1, 2), pasts))
    canvas.give(node.outputs[0], kernel, _merged(axes4))


def _rotary(canvas: Canvas, node: OnnxNode) -> None:
    """Two products and a sum for each element; of the caches the rows of its tokens are read."""
    given = canvas.value(node.inputs[0])
    kernel = canvas.pointwise(node, given.axes, given, flop=3)
    for table in canvas.inputs(node)[1:]:
        if table.constant:
            canvas.hold(kernel, table, min(table.type.size, given.type.size))
        else:
            canvas.reads.append((kernel, None, table))
    canvas.give(node.outputs[0], kernel, given.axes)


def _skip_norm(canvas: Canvas, node: OnnxNode) -> None:
    """A residual, with a bias or not, and the norm behind it."""
    given, skip = canvas.inputs(node)[:2]
    simple = node.op == "SkipSimplifiedLayerNormalization"
    bias = _optional(canvas, node, 3 if simple else 4)
    gains = [gain for place in ((2,) if simple else (2, 3)) if (gain := _optional(canvas, node, place)) is not None]
    axes = normalized(given.axes, [len(given.shape) - 1])
    biases = [bias] if bias is not None else []
    added = canvas.pointwise(node, axes, given, skip, *biases, flop=1 + len(biases), part="add", role="residual")
    total = canvas.inner(added, axes)
    if len(node.outputs) > 3 and node.outputs[3]:
        canvas.size_of[added] = 0
        total = canvas.give(node.outputs[3], added, axes)
    norm = canvas.pointwise(node, axes, total, *gains, flop=_NORM_FLOP[node.op], normalizes=True, role="norm")
    canvas.give(node.outputs[0], norm, axes)


def _activation(flop: int) -> Draw:
    """An activation of the first input, behind the addition of the second, if there is one."""

    def draw(canvas: Canvas, node: OnnxNode) -> None:
        values = canvas.inputs(node)
        axes = values[0].axes
        kernel = canvas.pointwise(node, axes, *values, flop=flop + len(values) - 1, role="activation")
        canvas.give(node.outputs[0], kernel, axes)

    return draw


# -- shapes where ONNX has no rule -----------------------------------------------------------------
def _like_first(node: OnnxNode, given: InputTypes) -> list[Type | None]:
    return [given[0]]


def _skip_shapes(node: OnnxNode, given: InputTypes) -> list[Type | None]:
    return [given[0], None, None, given[0]]


def _matmul_shape(node: OnnxNode, given: InputTypes) -> list[Type | None]:
    a, b = given[:2]
    assert a is not None and b is not None
    if any(node.attributes.get(key) for key in ("transBatchA", "transBatchB")) or min(len(a.shape), len(b.shape)) < 2:
        raise node.refuse("its operands are turned in a way that is not understood")
    rows = a.shape[-1 if node.attributes.get("transA") else -2]
    columns = b.shape[-2 if node.attributes.get("transB") else -1]
    rank = max(len(a.shape), len(b.shape)) - 2
    left, right = ([1] * (rank - len(operand.shape) + 2) + list(operand.shape[:-2]) for operand in (a, b))
    return [Type(a.kind, (*map(max, left, right), rows, columns))]


def _attended_shapes(node: OnnxNode, given: InputTypes) -> list[Type | None]:
    """The output of an attention and, where they are stored by head, its present keys and values."""
    query, key, value = given[0], given[1] if len(given) > 1 else None, given[2] if len(given) > 2 else None
    if query is None or len(query.shape) != 3:
        raise node.refuse("its first input is not of sequences, tokens and features")
    batch, new, wide = query.shape
    heads = node.attributes["num_heads"]
    if node.op == "GroupQueryAttention":
        kv_heads = node.attributes["kv_num_heads"]
        size = wide // (heads if key is not None and value is not None else heads + 2 * kv_heads)
        past = given[3] if len(given) > 3 else None
        present = Type(query.kind, (batch, kv_heads, new + (past.shape[2] if past is not None else 0), size))
        return [Type(query.kind, (batch, new, heads * size)), present, present]
    if key is None or value is None:
        raise node.refuse("Q, K and V are packed", "export the model with three inputs")
    past = given[6] if len(given) > 6 else None
    by_head = len(key.shape) == 4
    length = key.shape[2 if by_head else 1] + (past.shape[2] if past is not None else 0)
    v_wide = value.shape[3] * heads if by_head else value.shape[2]
    kept = [Type(query.kind, (batch, heads, length, each // heads)) for each in (wide, v_wide)]
    return [Type(query.kind, (batch, new, v_wide)), *kept]


def _projected_shapes(node: OnnxNode, given: InputTypes) -> list[Type | None]:
    hidden, weight = given[0], given[1]
    if hidden is None or weight is None or len(hidden.shape) != 3 or node.attributes.get("do_rotary"):
        raise node.refuse("only sequences of tokens without a rotary embedding are understood")
    past, heads = given[4] if len(given) > 4 else None, node.attributes["num_heads"]
    length = hidden.shape[1] + (past.shape[3] if past is not None else 0)
    wide, _, last = _projections(node, weight)
    kept = Type(hidden.kind, (2, hidden.shape[0], heads, length, wide // heads))
    return [Type(hidden.kind, (*hidden.shape[:2], last)), kept]


ShapeRule = Callable[[OnnxNode, InputTypes], list[Type | None]]
_FUSED: Final[dict[str, tuple[ShapeRule, Draw]]] = {
    "Attention": (_projected_shapes, _projected),
    "MultiHeadAttention": (_attended_shapes, _multi_head),
    "GroupQueryAttention": (_attended_shapes, _grouped),
    "SkipLayerNormalization": (_skip_shapes, _skip_norm),
    "SkipSimplifiedLayerNormalization": (_skip_shapes, _skip_norm),
    "SimplifiedLayerNormalization": (_like_first, OPERATORS["SimplifiedLayerNormalization"]),
    "RotaryEmbedding": (_like_first, _rotary),
    "FusedMatMul": (_matmul_shape, OPERATORS["MatMul"]),
    "Gelu": (_like_first, _activation(5)),
    "BiasGelu": (_like_first, _activation(5)),
    "FastGelu": (_like_first, _activation(8)),
    "QuickGelu": (_like_first, _activation(3)),
}
SHAPES: Final[dict[tuple[str, str], ShapeRule]] = {
    **{(_MS, op): shape for op, (shape, _) in _FUSED.items()},
    ("", "SimplifiedLayerNormalization"): _like_first,
}
"""Shapes of what operators give that ONNX itself does not know, by domain and name."""
DOMAINS: Final[dict[str, dict[str, Draw]]] = {
    "": {**OPERATORS, "Attention": _attention, "RotaryEmbedding": _rotary},
    _MS: {op: draw for op, (_, draw) in _FUSED.items()},
}
"""All operators that are understood, by domain."""
