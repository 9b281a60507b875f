"""Which kernels of a graph one kernel of a library does at once, on chips that otherwise run kernel by kernel.

An entry is passes and roles: what is known to be done, not that it is for every subset, shape and chip.

Sources: FlashAttention (Dao et al., arXiv:2205.14135, algorithms 1 and 4; arXiv:2307.08691 for causal blocks, which
are skipped): scores never leave the chip, and the backward pass computes them again. xFormers ``fused_dual_gemm`` (A
SwiGLU's two products and their activation) and the epilogues of cuBLASLt (``CUBLASLT_EPILOGUE_GELU``). Dropout,
residual and norm with their backward pass: ``flash_attn.ops.layer_norm`` (``dropout_add_layer_norm``); with a bias:
NVIDIA Apex and TensorRT-LLM. The optimizer: Apex ``FusedAdam``.
"""

from __future__ import annotations

from typing import Final

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.kernel import Role
from dfopt.documents.passes import Pass

_ATTENTION: Final[tuple[Role, ...]] = ("scores", "softmax", "scores_dropout", "context")
_BETWEEN: Final[tuple[Role, ...]] = ("bias", "dropout", "residual", "norm")

SETS: Final[dict[str, tuple[tuple[Pass, ...], tuple[Role, ...]]]] = {
    "attention": (("forward",), _ATTENTION),
    "attention, recomputed": (("recompute",), _ATTENTION),
    "attention, backward": (("recompute", "backward"), _ATTENTION),
    "gate, up and activation": (("forward",), ("gate", "up", "bias", "activation")),
    "gate, up and activation, recomputed": (("recompute",), ("gate", "up", "bias", "activation")),
    "bias, residual and norm": (("forward",), _BETWEEN),
    "bias, residual and norm, recomputed": (("recompute",), _BETWEEN),
    "bias, residual and norm, backward": (("backward",), _BETWEEN),
    "optimizer": (("update",), ("optimizer",)),
}


def sets_of(kernel: Kernel) -> tuple[bool, ...]:
    """Membership of a kernel in each fusion set of :data:`SETS`.

    Examples
    --------
    >>> softmax = Kernel(name="softmax", op="elementwise", m=4, n=4, role="softmax")
    >>> [name for name, inside in zip(SETS, sets_of(softmax)) if inside]
    ['attention']
    """
    return tuple(kernel.pass_ in passes and kernel.role in roles for passes, roles in SETS.values())


def as_computed(graph: Graph, assumptions: Assumptions) -> Graph:
    """The graph with full attention scores where no kernel skips masked ones, under resolved assumptions.

    A library skips it in the kernel that does all of attention, which keeps no scores. So kernels that run one by one
    compute, move and keep whole squares, and so does a layer whose scores are kept for its backward pass. Keys that
    are chosen, of which a kernel that is no part of attention has a share, are no mask.

    Examples
    --------
    >>> scores = Kernel(name="scores", op="matmul", m=8, k=4, n=8, density=9 / 16, role="scores")
    >>> graph = Graph(name="g", kernels=(scores,))
    >>> for execution in ("dataflow", "library", "kernel_by_kernel"):
    ...     print(as_computed(graph, Assumptions(execution=execution)).kernels[0].density)
    0.5625
    0.5625
    None
    """
    masked = [kernel for kernel in graph.kernels if kernel.density is not None]
    always = assumptions.masked_scores == "skipped" or assumptions.execution == "dataflow"
    if always or not masked or any(kernel.role not in _ATTENTION for kernel in masked):
        return graph
    index = graph.index()
    later = {t.src for t in graph.tensors if graph.kernels[index[t.dst]].pass_ != "forward"}
    scores = [kernel for kernel in masked if kernel.pass_ == "forward" and kernel.role != "context"]
    kept = {kernel.layer for kernel in scores if kernel.name in later or kernel.output_saved}
    alone = assumptions.execution == "kernel_by_kernel"
    if not (alone or kept):
        return graph
    fields = {name: getattr(graph, name) for name in Graph.model_fields if name != "schema_"}
    unmasked = {"density": None, "masked": None}
    fields["kernels"] = tuple(k.model_copy(update=unmasked) if alone or k.layer in kept else k for k in graph.kernels)
    return Graph(**fields)
