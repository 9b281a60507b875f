"""What a kernel that runs alone moves of the tensors that it makes and takes, under its own scheme.

Elsewhere a tensor that crosses DRAM counts as large as its source holds it. A chip that is brought a whole tensor has
to read all of it, though, and one whose partial sums are scattered behind it writes all of these first: kernel by
kernel, as libraries run and Calculon counts (Isaev et al., SC23; `calculon/llm/layers.py` at commit caa4b11).

An elementwise kernel that reads what accumulates into another kernel's output adds partial sums, and does so before
these are reduced: of all tokens, whatever part of them its chip goes on with.
"""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops


def adding(graph: Graph) -> frozenset[str]:
    """Names of the elementwise kernels that add up partial results accumulated into another kernel's output.

    Examples
    --------
    >>> from dfopt.workloads import WORKLOADS
    >>> sizes = {"hidden": 64, "heads": 8, "head_dim": 8, "seq": 32, "layers": 4}
    >>> sorted(adding(WORKLOADS["calculon"](**sizes, mode="training")))
    ['Heads_Fork_bwd']
    """
    of = {kernel.name: kernel for kernel in graph.kernels}
    readers = (tensor.dst for tensor in graph.tensors if of[tensor.src].accumulates_into is not None)
    return frozenset(name for name in readers if of[name].op == "elementwise")


def splits_features(scheme: Sharding) -> bool:
    """Whether a scheme gives chips different features of the output, all of them for every token.

    Examples
    --------
    >>> splits_features("m"), splits_features("n"), splits_features("outer")
    (True, False, False)
    """
    return ops.split_axis(scheme) == "m"


def work_whole(kernel: Kernel, scheme: Sharding, adders: frozenset[str], assumptions: Assumptions) -> bool:
    """Whether a kernel split along tokens still does all its work on every chip.

    It is so for kernels that add up partial results under ``operand_traffic``.

    Parameters
    ----------
    kernel, scheme
        The kernel and its sharding scheme.
    adders : frozenset of str
        Names of the kernels that add up partial results, see :func:`adding`.
    assumptions
        Resolved assumptions.
    """
    return scheme == "n" and assumptions.operand_traffic is not None and kernel.name in adders


def shard_flop(
    kernel: Kernel, scheme: Sharding, degree: int, adders: frozenset[str], assumptions: Assumptions
) -> float:
    """FLOP of the largest shard of a kernel over ``degree`` chips.

    Parameters
    ----------
    kernel, scheme
        The kernel and its sharding scheme.
    degree : int
        Chips that share the kernel.
    adders : frozenset of str
        Names of the kernels that add up partial results, see :func:`adding`.
    assumptions
        Resolved assumptions.

    Examples
    --------
    >>> gemm = Kernel(name="up", op="gemm", m=64, k=256, n=32)
    >>> [shard_flop(gemm, scheme, 4, frozenset(), Assumptions()) for scheme in ("none", "m")]
    [1048576.0, 262144.0]
    """
    if work_whole(kernel, scheme, adders, assumptions):
        return ops.flop(kernel)
    return ops.flop(kernel) * ops.split_share(kernel, scheme, degree, assumptions.sharding_rules)


def written_share(kernel: Kernel, scheme: Sharding, degree: int, rules: ops.Rules, tiled: bool = False) -> float:
    """Share of a kernel's output that one chip writes, before any collective.

    Parameters
    ----------
    kernel, scheme, degree, rules : Kernel, str, int, str
        Kernel, its sharding scheme, tensor-parallel degree, and sharding rules (``exact`` or ``dfmodel``).
    tiled : bool
        Whether a reduced product of the backward pass counts with one chip's tile only.

    Examples
    --------
    >>> down = Kernel(name="Down", op="gemm", m=64, k=256, n=32)
    >>> [written_share(down, scheme, 4, "exact") for scheme in ("m", "k", "k>n")]
    [0.25, 1.0, 1.0]
    """
    if ops.split_axis(scheme) == "k":
        return 1.0 / degree if tiled and _late(kernel) else 1.0
    return ops.output_share(kernel, ops.split_axis(scheme), degree, rules)


def read_share(
    kernel: Kernel, operand: int, scheme: Sharding, degree: int, rules: ops.Rules, elements: float, tiled: bool = False
) -> float:
    """Share of an input of ``elements`` elements that one chip reads.

    Parameters
    ----------
    kernel, scheme, degree, rules : Kernel, str, int, str
        Kernel, its sharding scheme, tensor-parallel degree, and sharding rules (``exact`` or ``dfmodel``).
    operand, elements : int, float
        Number of the input (1 or 2), and elements of the whole.
    tiled : bool
        Whether a gathered input counts with one chip's tile only.

    Examples
    --------
    >>> up = Kernel(name="Up", op="gemm", m=256, k=64, n=32)
    >>> [read_share(up, 1, scheme, 4, "exact", 2048) for scheme in ("m", "k", "n")]
    [1.0, 0.25, 0.25]
    """
    layout = ops.required_layout(kernel, operand, scheme, rules, elements)
    if tiled and layout == "RR" and _late(kernel):
        return 1.0 / degree
    return ops.input_share(kernel, layout, scheme, degree, rules)


def _late(kernel: Kernel) -> bool:
    return kernel.pass_ in ("backward", "update") and kernel.op in ("gemm", "weight_update")
