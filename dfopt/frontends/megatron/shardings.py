"""The scheme of every kernel under Megatron-LM's tensor parallelism, told from roles and shapes, not from names.

Sources: Shoeybi et al., arXiv:1909.08053, section 3 (weights split by columns and then by rows, attention by heads);
Korthikanti et al., MLSys 2023, section 4.2.2 (with sequence parallelism what lies between is split along the tokens,
reduce-scatter and all-gather instead of all-reduces).
"""

from __future__ import annotations

from typing import Final

from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding

_BETWEEN: Final = ("norm", "residual", "dropout", "bias")
_FEATURES: Final[tuple[Sharding, ...]] = ("outer", "m")


def megatron_shardings(graph: Graph, tensor: int, sequence_parallel: bool) -> dict[str, Sharding]:
    """Sharding scheme of every kernel under Megatron-LM's tensor parallelism; empty for one chip.

    Parameters
    ----------
    graph
        A model, with or without its backward pass.
    tensor
        Tensor-parallel chips.
    sequence_parallel
        Whether kernels between products have some of the tokens.

    Notes
    -----
    A difference remains: a product with a weight is never split along the tokens here, so that a router processes all
    tokens on every chip, also with sequence parallelism. If the gradient of its input adds up partial sums of the
    experts' gradients, the router's gradient is one of them: the sum is sent once.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> graph = WORKLOADS["decoder"](hidden=64, heads=8, head_dim=8, ffn=192, vocab=1000, seq=32, layers=4)
    >>> found = megatron_shardings(graph, 2, sequence_parallel=True)
    >>> [found[name] for name in ("RMSNorm_1", "Q_Proj", "QK", "O_Proj", "Up_Proj", "Act_Mul", "Down_Proj", "Add_2")]
    ['n', 'outer', 'outer', 'k>n', 'm', 'm', 'k>n', 'n']
    """
    if tensor == 1:
        return {}
    tokens: Sharding = "n" if sequence_parallel else "none"
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    before: dict[str, list[str]] = {name: [] for name in kernels}
    for tensor_read in graph.tensors:
        before[tensor_read.dst].append(tensor_read.src)
    shardings: dict[str, Sharding] = {}
    for name in sorted(graph.levels(), key=lambda name: graph.levels()[name]):
        kernel = kernels[name]
        if kernel.pass_ == "forward":
            shardings[name] = _forward(kernel, [shardings[source] for source in before[name]], tokens)
    reduced = {kernel.accumulates_into for kernel in graph.kernels}
    for name, kernel in kernels.items():
        if name not in shardings:
            of = shardings.get(kernel.stage_with or "", tokens)
            shardings[name] = _later(kernel, of, tokens, name in reduced)
    return shardings


def _forward(kernel: Kernel, sources: list[Sharding], tokens: Sharding) -> Sharding:
    """The scheme of a forward kernel, from the schemes of those that it reads."""
    inside = any(source in _FEATURES for source in sources)
    by_features: Sharding = "outer" if kernel.outer > 1 else "m"
    if kernel.op == "matmul":
        return "outer"
    if kernel.op == "gemm":
        return "none" if kernel.role == "router" else _summed(tokens) if inside else by_features
    if kernel.role in _BETWEEN or not inside:
        return "none" if sources and all(source == "none" for source in sources) else tokens
    return by_features


def _later(kernel: Kernel, of: Sharding, tokens: Sharding, reduced: bool) -> Sharding:
    """The scheme of a recomputed, backward or update kernel, from the scheme of its forward kernel."""
    columns, rows = of in _FEATURES, of in ("k", "k>n")
    if kernel.pass_ == "recompute":
        return of
    if kernel.op == "matmul":
        return "outer"
    if kernel.op == "weight_update":
        return "n" if columns else "m" if rows else "none"
    if kernel.op == "gemm":
        if kernel.accumulates_into is not None:  # its partial sums are reduced with those that they are added to
            return "outer" if kernel.outer > 1 else "k"
        return "m" if rows else _summed(tokens) if columns or reduced else "none"
    if columns:
        return "outer" if kernel.outer > 1 else "m"
    return of if of == "none" else tokens


def _summed(tokens: Sharding) -> Sharding:
    """The scheme of a contraction that is split: its sums are on every chip, or each chip has those of some tokens."""
    return "k>n" if tokens == "n" else "k"
