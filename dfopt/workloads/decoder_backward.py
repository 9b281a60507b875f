"""The backward pass and the weight updates of a decoder layer, see :mod:`dfopt.workloads.decoder`.

Every matrix product of the forward pass has two gradients, each as much work as the product itself, so training
takes three times the matrix FLOP of a forward pass. Nothing is computed again: what the backward pass needs of the
forward one is kept. A backward kernel sits in the pipeline stage of the forward kernel it is named after.

With grouped queries the gradients of K and V come out per query head and are then added up over each group
(``K_Sum_bwd``, ``V_Sum_bwd``), which is how kernels for it work. Not drawn: gradients of the norms' gains.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.graph import Kernel, Tensor
from dfopt.workloads.layer import Layer, Wire, wires

__all__ = ["GRADIENT_OUT", "Shape", "backward_pass", "mirrored"]

# The gradient of a layer's input is that of the output of the layer in front of it.
GRADIENT_OUT = Tensor(src="Residual_In_bwd", dst="Add_2_bwd", direction="backward")


@dataclass(frozen=True)
class Shape:
    """What tells one decoder from another, beside the sizes in `Layer`."""

    groups: int
    rotary: bool
    gated_mlp: bool
    post_norm: bool
    norm: str


def mirrored(name: str) -> str:
    """The forward kernel that a backward or update kernel belongs to.

    Examples
    --------
    >>> mirrored("AV_bwd_values"), mirrored("Up_Proj_bwd_weight_update"), mirrored("K_Sum_bwd")
    ('AV', 'Up_Proj', 'K_Proj')
    """
    forward = name[: name.index("_bwd")]
    return {"K_Sum": "K_Proj", "V_Sum": "V_Proj"}.get(forward, forward)


def backward_pass(layer: Layer, shape: Shape, word_bytes: int) -> tuple[tuple[Kernel, ...], tuple[Tensor, ...]]:
    """What training adds to the forward layer.

    Examples
    --------
    >>> layer = Layer(hidden=8, heads=4, head_dim=2, ffn=32, seq=16, microbatch=1)
    >>> shape = Shape(groups=2, rotary=True, gated_mlp=True, post_norm=False, norm="RMSNorm")
    >>> kernels, tensors = backward_pass(layer, shape, word_bytes=2)
    >>> len(kernels), kernels[0].name, kernels[-1].name, kernels[-1].stage_with
    (30, 'Add_2_bwd', 'Q_Proj_bwd_weight_update', 'Q_Proj')
    """
    kernels = (*_mlp(layer, shape), *_attention(layer, shape), *_updates(layer, shape))
    staged = tuple(kernel.model_copy(update={"stage_with": mirrored(kernel.name)}) for kernel in kernels)
    return staged, _tensors(layer, shape, word_bytes)


def _mlp(layer: Layer, shape: Shape) -> list[Kernel]:
    hidden, ffn, norm = layer.hidden, layer.ffn, shape.norm

    def pointwise(name: str, m: int, normalizes: bool = False) -> Kernel:
        return layer.pointwise(name, m, phase="backward", normalizes=normalizes)

    up = layer.linear("Up_Proj_bwd", hidden, ffn, phase="backward")
    if shape.gated_mlp:
        # Gate and up projection read one activation, so its gradient is the sum of theirs, whose partial sums
        # over tensor-parallel chips need one collective.
        inside = [
            pointwise("Act_Mul_bwd_gate", ffn),
            pointwise("Act_Mul_bwd_up", ffn),
            layer.linear("Gate_Proj_bwd", hidden, ffn, phase="backward"),
            up.model_copy(update={"accumulates_into": "Gate_Proj_bwd"}),
        ]
    else:
        inside = [pointwise("Act_bwd", ffn), up]
    return [
        pointwise("Add_2_bwd", hidden),
        *([pointwise(f"{norm}_2_Post_bwd", hidden, True)] if shape.post_norm else []),
        layer.linear("Down_Proj_bwd", ffn, hidden, phase="backward"),
        *inside,
        pointwise(f"{norm}_2_bwd", hidden, True),
        pointwise("Add_1_bwd", hidden),
        *([pointwise(f"{norm}_1_Post_bwd", hidden, True)] if shape.post_norm else []),
    ]


def _attention(layer: Layer, shape: Shape) -> list[Kernel]:
    hidden, head_dim, seq, groups = layer.hidden, layer.head_dim, layer.seq, shape.groups
    kv_width = groups * head_dim

    def summed(name: str) -> list[Kernel]:
        """The gradients of the query heads that share a K/V head, added up."""
        adds = {"flop_per_element": layer.heads // groups - 1}
        return [layer.by_head(name, groups, phase="backward").model_copy(update=adds)] if groups < layer.heads else []

    def turned(name: str, heads: int) -> list[Kernel]:
        return [layer.by_head(name, heads, phase="backward")] if shape.rotary else []

    def into_q(name: str) -> Kernel:
        # Q, K and V read one activation, so its gradient is the sum of theirs.
        gradient = layer.linear(name, hidden, kv_width, phase="backward")
        return gradient.model_copy(update={"accumulates_into": "Q_Proj_bwd"})

    return [
        layer.linear("O_Proj_bwd", layer.width, hidden, phase="backward"),
        layer.attention("AV_bwd_scores", m=seq, k=head_dim, phase="backward"),
        layer.attention("AV_bwd_values", m=head_dim, k=seq, phase="backward"),
        *summed("V_Sum_bwd"),
        layer.scores("Softmax_bwd", phase="backward", normalizes=True),
        layer.attention("QK_bwd_queries", m=head_dim, k=seq, phase="backward"),
        layer.attention("QK_bwd_keys", m=head_dim, k=seq, phase="backward"),
        *summed("K_Sum_bwd"),
        *turned("Q_RoPE_bwd", layer.heads),
        *turned("K_RoPE_bwd", groups),
        layer.linear("Q_Proj_bwd", hidden, layer.width, phase="backward"),
        into_q("K_Proj_bwd"),
        into_q("V_Proj_bwd"),
        layer.pointwise(f"{shape.norm}_1_bwd", hidden, phase="backward", normalizes=True),
        layer.pointwise("Residual_In_bwd", hidden, phase="backward"),
    ]


@dataclass(frozen=True)
class _Names:
    """Who produces what, which depends on the kernels that a decoder has."""

    q: str
    k: str
    into_attention: str
    into_mlp: str
    act: str
    mlp_gradient: str  # of what the down projection gave
    attention_gradient: str  # of what the output projection gave
    up_gradient: str
    q_gradient: str
    k_gradient: str
    v_gradient: str
    k_summed: str


def _names(layer: Layer, shape: Shape) -> _Names:
    grouped = shape.groups < layer.heads
    k_summed = "K_Sum_bwd" if grouped else "QK_bwd_keys"
    return _Names(
        q="Q_RoPE" if shape.rotary else "Q_Proj",
        k="K_RoPE" if shape.rotary else "K_Proj",
        into_attention=f"{shape.norm}_1",
        into_mlp=f"{shape.norm}_2",
        act="Act_Mul" if shape.gated_mlp else "Act",
        mlp_gradient=f"{shape.norm}_2_Post_bwd" if shape.post_norm else "Add_2_bwd",
        attention_gradient=f"{shape.norm}_1_Post_bwd" if shape.post_norm else "Add_1_bwd",
        up_gradient="Act_Mul_bwd_up" if shape.gated_mlp else "Act_bwd",
        q_gradient="Q_RoPE_bwd" if shape.rotary else "QK_bwd_queries",
        k_gradient="K_RoPE_bwd" if shape.rotary else k_summed,
        v_gradient="V_Sum_bwd" if grouped else "AV_bwd_values",
        k_summed=k_summed,
    )


def _updates(layer: Layer, shape: Shape) -> list[Kernel]:
    kv_width = shape.groups * layer.head_dim
    features = {  # of the forward input and of the output, whose product is the size of the weight
        "Down_Proj": (layer.ffn, layer.hidden),
        "Up_Proj": (layer.hidden, layer.ffn),
        **({"Gate_Proj": (layer.hidden, layer.ffn)} if shape.gated_mlp else {}),
        "O_Proj": (layer.width, layer.hidden),
        "V_Proj": (layer.hidden, kv_width),
        "K_Proj": (layer.hidden, kv_width),
        "Q_Proj": (layer.hidden, layer.width),
    }
    return [layer.update(f"{gemm}_bwd_weight_update", *sizes) for gemm, sizes in features.items()]


def _tensors(layer: Layer, shape: Shape, word_bytes: int) -> tuple[Tensor, ...]:
    """In the order of the consumers. Operands of a product: 1 is its k x n side, 2 its m x k side."""
    has = _names(layer, shape)
    updates = {  # forward GEMM: the gradient of its output, its forward input
        "Down_Proj": (has.mlp_gradient, has.act),
        "Up_Proj": (has.up_gradient, has.into_mlp),
        **({"Gate_Proj": ("Act_Mul_bwd_gate", has.into_mlp)} if shape.gated_mlp else {}),
        "O_Proj": (has.attention_gradient, "AV"),
        "V_Proj": (has.v_gradient, has.into_attention),
        "K_Proj": (has.k_gradient, has.into_attention),
        "Q_Proj": (has.q_gradient, has.into_attention),
    }
    table: list[Wire] = [*_mlp_wires(shape, has), *_attention_wires(layer, shape, has)]
    for gemm, (gradient, activation) in updates.items():
        table += [(gradient, f"{gemm}_bwd_weight_update", 1), (activation, f"{gemm}_bwd_weight_update", 2)]
    # Stated, because a product that counts every query head would expect a K and a V of as many heads.
    kv_bytes = {(has.k, "QK_bwd_queries"), ("V_Proj", "AV_bwd_scores")} if shape.groups < layer.heads else set()
    whole = float(shape.groups * layer.head_dim * layer.tokens * word_bytes)
    return tuple(
        tensor.model_copy(update={"bytes": whole}) if (tensor.src, tensor.dst) in kv_bytes else tensor
        for tensor in wires(table)
    )


def _mlp_wires(shape: Shape, has: _Names) -> list[Wire]:
    found: list[Wire] = []
    if shape.post_norm:
        found += [("Add_2_bwd", has.mlp_gradient), ("Down_Proj", has.mlp_gradient)]
    found += [(has.mlp_gradient, "Down_Proj_bwd")]
    if shape.gated_mlp:
        found += [
            ("Down_Proj_bwd", "Act_Mul_bwd_gate"),
            ("Gate_Proj", "Act_Mul_bwd_gate"),
            ("Up_Proj", "Act_Mul_bwd_gate"),
            ("Down_Proj_bwd", "Act_Mul_bwd_up"),
            ("Gate_Proj", "Act_Mul_bwd_up"),
            ("Act_Mul_bwd_gate", "Gate_Proj_bwd"),
            ("Act_Mul_bwd_up", "Up_Proj_bwd"),
            ("Gate_Proj_bwd", f"{has.into_mlp}_bwd"),
            ("Up_Proj_bwd", f"{has.into_mlp}_bwd"),
        ]
    else:
        found += [
            ("Down_Proj_bwd", "Act_bwd"),
            ("Up_Proj", "Act_bwd"),
            ("Act_bwd", "Up_Proj_bwd"),
            ("Up_Proj_bwd", f"{has.into_mlp}_bwd"),
        ]
    found += [
        ("Add_1", f"{has.into_mlp}_bwd"),
        (f"{has.into_mlp}_bwd", "Add_1_bwd"),
        ("Add_2_bwd", "Add_1_bwd"),  # along the residual stream
    ]
    if shape.post_norm:
        found += [("Add_1_bwd", has.attention_gradient), ("O_Proj", has.attention_gradient)]
    return found


def _attention_wires(layer: Layer, shape: Shape, has: _Names) -> list[Wire]:
    grouped = shape.groups < layer.heads
    found: list[Wire] = [
        (has.attention_gradient, "O_Proj_bwd"),
        ("O_Proj_bwd", "AV_bwd_scores", 1),  # head_dim x queries
        ("V_Proj", "AV_bwd_scores", 2),  # keys x head_dim
        ("Softmax", "AV_bwd_values", 1),  # queries x keys
        ("O_Proj_bwd", "AV_bwd_values", 2),  # head_dim x queries
        *([("AV_bwd_values", "V_Sum_bwd")] if grouped else []),
        ("AV_bwd_scores", "Softmax_bwd"),
        ("Softmax", "Softmax_bwd"),
        ("Softmax_bwd", "QK_bwd_queries", 1),  # keys x queries
        (has.k, "QK_bwd_queries", 2),  # head_dim x keys
        ("Softmax_bwd", "QK_bwd_keys", 1),  # queries x keys
        (has.q, "QK_bwd_keys", 2),  # head_dim x queries
        *([("QK_bwd_keys", "K_Sum_bwd")] if grouped else []),
    ]
    if shape.rotary:
        found += [("QK_bwd_queries", "Q_RoPE_bwd"), (has.k_summed, "K_RoPE_bwd")]
    return [
        *found,
        (has.q_gradient, "Q_Proj_bwd"),
        (has.k_gradient, "K_Proj_bwd"),
        (has.v_gradient, "V_Proj_bwd"),
        ("Q_Proj_bwd", f"{has.into_attention}_bwd"),
        ("K_Proj_bwd", f"{has.into_attention}_bwd"),
        ("V_Proj_bwd", f"{has.into_attention}_bwd"),
        ("Residual_In", f"{has.into_attention}_bwd"),
        (f"{has.into_attention}_bwd", "Residual_In_bwd"),
        ("Add_1_bwd", "Residual_In_bwd"),  # along the residual stream
    ]
