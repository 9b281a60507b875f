"""The backward pass and the weight updates of a transformer layer.

Every backward kernel sits in the pipeline stage of the forward kernel it mirrors, because it needs that
kernel's saved activations or weights; every update in the stage of the GEMM whose weight it updates. As in
DFModel, forward and backward are joined only by saved activations: the last forward kernel does not feed the
first backward one, whose input arrives from the next layer.
"""

from __future__ import annotations

from dfopt.documents.graph import Kernel, Tensor
from dfopt.workloads.layer import Layer, Wire, wires

__all__ = ["GRADIENT_OUT", "backward_pass", "mirrored"]

# V_bwd stands for the sum of all three gradients: Q_bwd and K_bwd accumulate into it.
GRADIENT_OUT = Tensor(src="V_bwd", dst="Loss_bwd", direction="backward")

# In the order of DFModel's list. Operands of a product: 1 is its k x n side, 2 its m x k side.
_BACKWARD: tuple[Wire, ...] = (
    ("Loss_bwd", "DropOut_3_bwd"),
    ("DropOut_3_bwd", "FFN1_bwd"),
    ("FFN1_bwd", "GeLU_bwd"),
    ("GeLU_bwd", "FFN0_bwd"),
    ("FFN0_bwd", "LayerNorm_2_bwd"),
    ("LayerNorm_2_bwd", "DropOut_2_bwd"),
    ("DropOut_2_bwd", "PROJ_GEMM_bwd"),
    ("PROJ_GEMM_bwd", "MHA_GEMM_2_bwd1", 1),  # head_dim x queries
    ("V", "MHA_GEMM_2_bwd1", 2),  # keys x head_dim
    ("PROJ_GEMM_bwd", "MHA_GEMM_2_bwd2", 2),  # head_dim x queries
    ("DropOut_1", "MHA_GEMM_2_bwd2", 1),  # queries x keys
    ("MHA_GEMM_2_bwd1", "DropOut_1_bwd"),
    ("MHA_GEMM_2_bwd2", "V_bwd"),
    ("DropOut_1_bwd", "SOFTMAX_bwd"),
    ("SOFTMAX_bwd", "MHA_GEMM_1_bwd1", 1),  # keys x queries
    ("SOFTMAX_bwd", "MHA_GEMM_1_bwd2", 1),  # queries x keys
    ("K", "MHA_GEMM_1_bwd1", 2),  # head_dim x keys
    ("Q", "MHA_GEMM_1_bwd2", 2),  # head_dim x queries
    ("MHA_GEMM_1_bwd1", "Q_bwd"),
    ("MHA_GEMM_1_bwd2", "K_bwd"),
)

# Forward GEMM, the gradient of its output (operand 1, n features), its forward input (operand 2, m features).
_UPDATES: tuple[tuple[str, str, str], ...] = (
    ("FFN1", "DropOut_3_bwd", "GeLU"),
    ("FFN0", "GeLU_bwd", "LayerNorm_2"),
    ("PROJ_GEMM", "DropOut_2_bwd", "MHA_GEMM_2"),
    ("V", "MHA_GEMM_2_bwd2", "LayerNorm_1"),
    ("K", "MHA_GEMM_1_bwd2", "LayerNorm_1"),
    ("Q", "MHA_GEMM_1_bwd1", "LayerNorm_1"),
)


def mirrored(name: str) -> str:
    """The forward kernel that a backward or update kernel belongs to.

    Examples
    --------
    >>> mirrored("MHA_GEMM_2_bwd1"), mirrored("FFN0_bwd_weight_update"), mirrored("Loss_bwd")
    ('MHA_GEMM_2', 'FFN0', 'Add_2')
    """
    # Loss_bwd receives the gradient of the layer's output, which Add_2 produced.
    return "Add_2" if name == "Loss_bwd" else name[: name.index("_bwd")]


def backward_pass(layer: Layer) -> tuple[tuple[Kernel, ...], tuple[Tensor, ...]]:
    """The 23 kernels and 32 tensors that training adds to the forward layer.

    Examples
    --------
    >>> kernels, tensors = backward_pass(Layer(hidden=8, heads=2, head_dim=4, ffn=32, seq=16, microbatch=1))
    >>> len(kernels), len(tensors), kernels[-1].name, kernels[-1].stage_with
    (23, 32, 'Q_bwd_weight_update', 'Q')
    """
    kernels = (*_gradients(layer), *_updates(layer))
    update_wires: list[Wire] = []
    for gemm, gradient, activation in _UPDATES:
        into = f"{gemm}_bwd_weight_update"
        update_wires += [(gradient, into, 1), (activation, into, 2)]
    staged = tuple(kernel.model_copy(update={"stage_with": mirrored(kernel.name)}) for kernel in kernels)
    return staged, wires((*_BACKWARD, *update_wires))


def _gradients(layer: Layer) -> tuple[Kernel, ...]:
    hidden, width, ffn, seq, head_dim = layer.hidden, layer.width, layer.ffn, layer.seq, layer.head_dim
    # The heads' contributions to the gradient of the layer's input are sums over all heads. DFModel draws
    # them as `heads` GEMMs that each produce an equal share of the hidden features from the gradients of all
    # heads.
    share = hidden // layer.heads
    by_head = (
        layer.linear(name, share, width, outer=layer.heads, phase="backward").model_copy(
            update={"accumulates_into": "V_bwd"}
        )
        for name in ("Q_bwd", "K_bwd")
    )
    return (
        layer.pointwise("Loss_bwd", hidden, phase="backward"),
        layer.pointwise("DropOut_3_bwd", hidden, phase="backward"),
        layer.linear("FFN1_bwd", ffn, hidden, phase="backward"),
        layer.pointwise("GeLU_bwd", ffn, phase="backward"),
        layer.linear("FFN0_bwd", hidden, ffn, phase="backward"),
        layer.pointwise("LayerNorm_2_bwd", hidden, phase="backward", normalizes=True),
        layer.pointwise("DropOut_2_bwd", hidden, phase="backward"),
        layer.linear("PROJ_GEMM_bwd", width, hidden, phase="backward"),
        layer.attention("MHA_GEMM_2_bwd1", m=seq, k=head_dim, phase="backward"),
        layer.attention("MHA_GEMM_2_bwd2", m=head_dim, k=seq, phase="backward"),
        layer.linear("V_bwd", hidden, width, phase="backward"),
        layer.scores("DropOut_1_bwd", phase="backward"),
        layer.scores("SOFTMAX_bwd", phase="backward", normalizes=True),
        layer.attention("MHA_GEMM_1_bwd1", m=head_dim, k=seq, phase="backward"),
        layer.attention("MHA_GEMM_1_bwd2", m=head_dim, k=seq, phase="backward"),
        *by_head,
    )


def _updates(layer: Layer) -> tuple[Kernel, ...]:
    features = {  # of the forward input and of the output, whose product is the size of the weight
        "FFN1": (layer.ffn, layer.hidden),
        "FFN0": (layer.hidden, layer.ffn),
        "PROJ_GEMM": (layer.width, layer.hidden),
        **dict.fromkeys(("V", "K", "Q"), (layer.hidden, layer.width)),
    }
    return tuple(layer.update(f"{gemm}_bwd_weight_update", *features[gemm]) for gemm, _, _ in _UPDATES)
