"""High-performance LINPACK (HPL): LU factorisation of a dense matrix with row pivoting, and the solve behind it.

A matrix of ``n x n`` lies block-cyclic on a grid of chips: the columns of the grid are the first network dim that
carries tensor parallelism (``tp_first``), its rows the others (``tp_rest``). Each of ``n / block`` steps works on
what is left of the matrix, ``s`` rows of which ``r = s - block`` lie below and right of the panel (Golub and Van
Loan, Matrix Computations, block LU; HPL by Petitet et al., netlib.org/benchmark/hpl, "algorithm"):

=======  =====================================  =========================================  =====================
kernel   what it does                           FLOP                                       DRAM, elements
=======  =====================================  =========================================  =====================
Panel    factors the s x block panel            block^2 s - block(block+1)(2 block+1)/6    2 s block
Row      swaps rows, triangular solve with the  block (block - 1) r                        2 r block
         panel's block, for block x r
Update   r x r less panel times row panel       2 block r^2                                2 r^2 + 2 r block
Solve    the two triangular solves, at the end  2 n^2                                      n^2
=======  =====================================  =========================================  =====================

They add up to 2/3 n^3 + 3/2 n^2 - n/6, the usual count of HPL but for the last term. What a step communicates:
a pivot row per column of the panel (all-reduce along a grid column; the latency of one), the swapped rows
(all-to-all along grid columns), the panel (broadcast along grid rows) and the row panel (broadcast along grid
columns). Both broadcasts belong to the update, beside which an HPL with look-ahead runs them.

Tensors hold the pivots only: they keep the order of the steps, while the matrix stays in DRAM, whose traffic every
kernel states; so nothing streams from kernel to kernel. All chips are taken to share the work evenly, in the panel
too, where only a grid column works.

Steps are many, so consecutive ones are merged into ``drawn`` groups whose kernels hold the sums of what theirs
would: FLOP and bytes are exact, and what is lost is that a step's times overlap only within that step.

``encoding: dfmodel`` draws one matrix product per step instead, as DFModel's program does, and ``first`` only the
first so many steps, as its setups do when there are many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.documents.kernel import Op
from dfopt.workloads.checks import NOTHING_FROM_DRAM

_GROUPS = 32  # a choice: 97 kernels
_MOST = 10**15  # what the field of a kernel's shape takes


class HplParameters(Part):
    """Parameters of an HPL (Linpack) run.

    Attributes
    ----------
    n : rows, e.g. 1000000
        Number of rows and columns of the matrix.
    block : columns, e.g. 256
        Number of columns of one panel, a divisor of ``n``.
    drawn : groups, e.g. 32
        Number of groups of consecutive steps that the graph contains. None: 32, or one per step if there are fewer.
    first : steps, e.g. 4
        Number of first steps to which the graph is limited, with ``encoding: dfmodel``. None: all steps.
    encoding : e.g. exact
        Kernels of the graph. ``exact``: those of the algorithm itself. ``dfmodel``: the kernels of DFModel's program.
    word_bytes : B, e.g. 8
        Size of one element of the matrix.

    Examples
    --------
    >>> p = HplParameters(n=4096, block=128)
    >>> p.steps, p.groups
    (32, 32)
    """

    n: int = Field(ge=2, le=10**9)
    block: int = Field(ge=2, le=10**6)
    drawn: int | None = Field(default=None, ge=1, le=5000)
    first: int | None = Field(default=None, ge=1, le=5000)
    encoding: Literal["exact", "dfmodel"] = "exact"
    word_bytes: int = Field(default=8, ge=1, le=16)

    @property
    def steps(self) -> int:
        """Number of panels."""
        return self.n // self.block

    @property
    def groups(self) -> int:
        """Number of drawn groups of panels."""
        if self.encoding == "dfmodel":
            return self.steps if self.first is None else self.first
        return min(_GROUPS, self.steps) if self.drawn is None else self.drawn

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.n % self.block:
            below = max(self.n // self.block, 1) * self.block
            raise problem(
                f"found panels of {self.block} columns in a matrix of {self.n} rows, expected a divisor",
                f"choose a divisor, or n: {below}",
                "$.block",
            )
        if self.encoding == "dfmodel" and self.drawn is not None:
            raise problem("DFModel's encoding draws step by step", "leave drawn out; first limits the steps", "$.drawn")
        if self.encoding == "exact" and self.first is not None:
            raise problem("found only part of the steps, expected all", "leave first out", "$.first")
        if self.groups > min(self.steps, 5000):
            where = "$.first" if self.first is not None else "$.drawn" if self.drawn is not None else "$.block"
            remedy = "enlarge block" if where == "$.block" else "choose fewer"
            raise problem(
                f"found {self.groups} to draw of {self.steps} steps, expected at most {min(self.steps, 5000)}",
                remedy,
                where,
            )
        if self.encoding == "exact" and max(max(_panel_shape(self, *g)) for g in _groups(self)) > _MOST:
            raise problem(
                f"the panels of {self.groups} group(s) have more FLOP than a kernel can state", "draw more", "$.drawn"
            )
        return self


Parameters = HplParameters


def build(p: HplParameters, **about: str) -> Graph:
    """Graph of an HPL run.

    Returns
    -------
    Graph
        A chain: three kernels per group of steps, without Row and Update where the matrix ends, and Solve; or, as in
        DFModel, one kernel per step.

    Examples
    --------
    >>> graph = build(HplParameters(n=1024, block=128, drawn=2), name="hpl")
    >>> [kernel.name for kernel in graph.kernels]
    ['Panel_1', 'Row_1', 'Update_1', 'Panel_2', 'Row_2', 'Update_2', 'Solve']
    >>> graph.kernels[0].resident_bytes == 1024 * 1024 * 8
    True
    """
    kernels, volumes = _dfmodel(p) if p.encoding == "dfmodel" else _exact(p)
    links = zip(pairwise(kernels), volumes, strict=False)
    return Graph(
        **about,
        word_bytes=p.word_bytes,
        kernels=tuple(kernels),
        tensors=tuple(Tensor(src=a.name, dst=b.name, operand=1, bytes=size) for (a, b), size in links),
        **(NOTHING_FROM_DRAM if p.encoding == "dfmodel" else {}),
    )


def _groups(p: HplParameters) -> list[tuple[int, int]]:
    """For every group: blocks left along a side in its last and in its first step."""
    edges = [number * p.steps // p.groups for number in range(p.groups + 1)]
    return [(p.steps - after + 1, p.steps - before) for before, after in pairwise(edges)]


def _sum(low: int, high: int) -> int:
    """``low + ... + high``."""
    return (low + high) * (high - low + 1) // 2


def _sum_of_squares(low: int, high: int) -> int:
    """``low^2 + ... + high^2``."""
    return (high * (high + 1) * (2 * high + 1) - (low - 1) * low * (2 * low - 1)) // 6


def _panel_shape(p: HplParameters, low: int, high: int) -> tuple[int, int]:
    """Elements and FLOP per element whose product is the panels' FLOP, to the last one.

    Column c of an s x b panel takes s - c divisions and 2 (s - c)(b - c) FLOP of update; over c = 1 ... b that is
    b^2 s - b(b+1)(2b+1)/6 = b (6 b s - (b+1)(2b+1)) / 6, so a sixth of the product of two whole numbers.
    """
    b, rows = p.block, p.block * _sum(low, high)
    doubled = 6 * b * rows - (high - low + 1) * (b + 1) * (2 * b + 1)
    # With the common divisor of b and 6 out, b and the rest of 6 have none left: it divides the other factor.
    common = math.gcd(b, 6)
    return doubled // (6 // common), b // common


def _spread(name: str, op: Op, *communications: Communication, **more: Any) -> Kernel:
    """A kernel on blocks that lie in DRAM, spread over the grid of chips."""
    return Kernel(name=name, op=op, stream="none", distributed=True, communications=communications, **more)


def _exact(p: HplParameters) -> tuple[list[Kernel], Iterable[float]]:
    """Kernels, and the bytes that each hands to the next: the pivots."""
    b, word = p.block, p.word_bytes
    matrix_bytes = float(p.n * p.n * word)
    kernels: list[Kernel] = []
    for number, (low, high) in enumerate(_groups(p), start=1):
        panel = float(_sum(low, high) * b * b * word)  # s x b, over the steps
        row = float(_sum(low - 1, high - 1) * b * b * word)  # r x b
        elements, flop = _panel_shape(p, low, high)
        pivot_rows = Communication(kind="all_reduce", bytes=float((high - low + 1) * b * b * word), over="tp_first")
        sizes = {"m": elements, "n": 1, "flop_per_element": flop}
        held = {"dram_bytes": 2 * panel, "resident_bytes": matrix_bytes if number == 1 else 0.0}
        kernels.append(_spread(f"Panel_{number}", "elementwise", pivot_rows, **sizes, **held))
        if not row:  # the last step has nothing right of its panel
            continue
        # b (b - 1) r FLOP as products of blocks: b (b - 1) is even, so half of it is the product of two whole numbers.
        m, k = (b // 2, b - 1) if b % 2 == 0 else (b, (b - 1) // 2)
        swapped = Communication(kind="all_to_all", bytes=row, over="tp_first")
        outer = _sum(low - 1, high - 1)
        kernels.append(_spread(f"Row_{number}", "matmul", swapped, outer=outer, m=m, k=k, n=b, dram_bytes=2 * row))
        sent = [Communication(kind="broadcast", bytes=row, over=over) for over in ("tp_rest", "tp_first")]
        blocks = _sum_of_squares(low - 1, high - 1)
        moved = 2.0 * blocks * b * b * word + 2 * row
        kernels.append(_spread(f"Update_{number}", "matmul", *sent, outer=blocks, m=b, k=b, n=b, dram_bytes=moved))
    solution = Communication(kind="broadcast", bytes=float(p.n * word))
    kernels.append(_spread("Solve", "elementwise", solution, m=p.n, n=p.n, flop_per_element=2, dram_bytes=matrix_bytes))
    return kernels, repeat(float(b * word))


def _dfmodel(p: HplParameters) -> tuple[list[Kernel], Iterable[float]]:
    """Kernels as DFModel's generator draws them, products of ``side x side`` and ``side x block``, and their bytes.

    See github.com/fengqian-ayce/DFModel, commit 04f93d5.
    """
    kernels, volumes = [], []
    for step in range(p.groups):
        side = p.n - step * p.block
        volumes.append(float(side * p.block * p.word_bytes))
        sent = (
            Communication(kind="broadcast", bytes=volumes[-1], over="tp_rest"),
            Communication(kind="point_to_point", bytes=volumes[-1], over="tp_first"),
        )
        held = float(p.n * p.n * p.word_bytes) if step == 0 else 0.0
        sizes = {"m": side, "k": side, "n": p.block, "resident_bytes": held}
        kernels.append(_spread(f"Iteration_{step + 1}", "matmul", *sent, **sizes))
    return kernels, volumes
