"""What a chip holds only while a layer runs, as Calculon counts it: gradients of activations, and buffers.

Source: Isaev et al., SC'23, and its program (github.com/calculon-ai/calculon, commit caa4b11, ``calculon/llm/llm.py``
and ``layers.py``). It takes no lifetimes: of one layer, everything is there at once.
"""

from __future__ import annotations

from typing import Final

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.kernel import needed
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops

MAIN_GRADIENT: Final = 4.0
"""Bytes of a parameter's gradient in the layer that is at work, in Calculon, whatever the type."""
_BYTE: Final = ("dropout", "scores_dropout")


def activation_gradients(
    graph: Graph, kernel: Kernel, scheme: Sharding, degree: int, rules: ops.Rules, *, tiled: bool = False
) -> float:
    """Bytes on one chip of the gradient of a forward kernel's output; 0 for other kernels.

    Gradients of partial sums are whole on every chip. The gradient of a dropout's output has the type of its mask. That
    of an activation computed right after its product takes no memory.

    Parameters
    ----------
    graph, kernel : Graph, Kernel
        A kernel of the graph.
    scheme, degree, rules : str, int, str
        Its sharding scheme, tensor-parallel degree, and sharding rules (``exact`` or ``dfmodel``).
    tiled : bool
        Whether outputs with partial sums are reduced tile by tile, so that a chip stores only its part of them.

    Examples
    --------
    >>> down = Kernel(name="down", op="gemm", m=8, k=32, n=16)
    >>> graph = Graph(name="g", kernels=(down,))
    >>> [activation_gradients(graph, down, scheme, 4, "exact") for scheme in ("m", "k", "k>n")]
    [64.0, 256.0, 256.0]
    """
    if kernel.pass_ != "forward" or kernel.role == "fused_activation":
        return 0.0
    share = 1.0 if scheme == "k" or (scheme == "k>n" and not tiled) else ops.output_share(kernel, scheme, degree, rules)
    word = 1.0 if kernel.role in _BYTE else graph.words.of_output(kernel)
    return float(kernel.matrices * needed(kernel) * word * share)


def collective_buffers(
    graph: Graph, kernel: Kernel, scheme: Sharding, degree: int, rules: ops.Rules, *, tiled: bool = False
) -> tuple[float, float]:
    """Bytes on one chip of collective buffers behind split contractions: (activations, gradients).

    Of an all-reduce its result. Of a reduce-scatter its part, and in the forward pass again that of its gradient; in
    the backward pass also the input of the layer, gathered again for the gradient of its weight.

    Parameters
    ----------
    graph, kernel, scheme
        The workload, which states data types, one of its kernels, and its sharding scheme.
    degree : int
        Chips that share the kernel.
    rules
        Rules of sharding, ``exact`` or those of DFModel's program.
    tiled : bool
        Whether a reduce-scatter overlaps with its product. Then only the gradient's part counts, in the forward pass.

    Examples
    --------
    >>> down = Kernel(name="down", op="gemm", m=8, k=32, n=16)
    >>> graph, back = Graph(name="g", kernels=(down,)), down.model_copy(update={"pass_": "backward"})
    >>> [collective_buffers(graph, one, scheme, 4, "exact") for one in (down, back) for scheme in ("k", "k>n")]
    [(256.0, 0.0), (64.0, 64.0), (0.0, 256.0), (256.0, 64.0)]
    """
    split = kernel.pass_ in ("forward", "backward") and kernel.accumulates_into is None and degree > 1
    if not split or ops.split_axis(scheme) != "k":
        return 0.0, 0.0
    output = float(kernel.matrices * needed(kernel) * graph.words.of_output(kernel))
    if scheme == "k":
        return (output, 0.0) if kernel.pass_ == "forward" else (0.0, output)
    part = output * ops.output_share(kernel, scheme, degree, rules)
    if tiled:
        return 0.0, part if kernel.pass_ == "forward" else 0.0
    return part if kernel.pass_ == "forward" else output, part
