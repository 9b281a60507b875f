"""What a kernel that runs alone moves of the tensors that it makes and takes, under its own scheme.

Elsewhere a tensor that crosses DRAM counts as large as its source holds it. A chip that is brought a whole tensor has
to read all of it, though, and one whose partial sums are scattered behind it writes all of these first: kernel by
kernel, as libraries run and Calculon counts (Isaev et al., SC23; `calculon/llm/layers.py` at commit caa4b11).
"""

from __future__ import annotations

from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.physics import ops

__all__ = ["read_share", "written_share"]


def written_share(kernel: Kernel, scheme: Sharding, degree: int, rules: ops.Rules, tiled: bool = False) -> float:
    """Share of its output that one chip writes, before any collective.

    ``tiled``: of a product of the backward pass that is reduced, a tile.

    Examples
    --------
    >>> down = Kernel(name="Down", op="gemm", m=64, k=256, n=32)
    >>> [written_share(down, scheme, 4, "exact") for scheme in ("m", "k", "k>n")]
    [0.25, 1.0, 1.0]
    """
    if ops.split_axis(scheme) == "k":
        return 1.0 / degree if tiled and _late(kernel) else 1.0
    return ops.output_share(kernel, scheme, degree, rules)


def read_share(
    kernel: Kernel, operand: int, scheme: Sharding, degree: int, rules: ops.Rules, elements: float, tiled: bool = False
) -> float:
    """Share of one of its inputs, of so many elements, that one chip reads; ``tiled``: of what is gathered, a tile.

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
