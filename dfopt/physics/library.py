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

from dfopt.documents.graph import Kernel, Role
from dfopt.documents.passes import Pass

__all__ = ["SETS", "sets_of"]

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
    """Whether a kernel is in each of :data:`SETS`.

    Examples
    --------
    >>> softmax = Kernel(name="softmax", op="elementwise", m=4, n=4, role="softmax")
    >>> [name for name, inside in zip(SETS, sets_of(softmax)) if inside]
    ['attention']
    """
    return tuple(kernel.pass_ in passes and kernel.role in roles for passes, roles in SETS.values())
