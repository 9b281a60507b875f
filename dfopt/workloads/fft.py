"""A one-dimensional FFT over all chips, by the six-step method.

The points are a ``rows x columns`` matrix. Every chip holds whole columns, transforms them, multiplies them by the
twiddle factors, exchanges them so that it holds whole rows, and transforms those (Bailey, FFTs in External or
Hierarchical Memory, J. Supercomputing 4, 1990). The exchange is an all-to-all; one is unavoidable, the second and the
third bring the result and the input into natural order, and ``transposes`` says how many are done.

An element is a complex number, of ``word_bytes``. FLOP per point are real operations:

* ``radix`` left out: 5 log2(length) for butterflies (the usual count, benchFFT), on the vector units;
* ``radix: r``: 8 r log_r(length), a product with an r x r matrix in each of the log_r stages, 4 real
  multiply-adds per complex one, on the matrix units;
* and 6 for the complex product with a twiddle factor.

Input and result lie in DRAM, and what arrives from an exchange is written there and read again, because a transform
of rows starts when all columns have been sent. A column or a row that does not fit the SRAM of a chip would need
more passes over DRAM, which are not counted.

``encoding: dfmodel`` draws the two matrix products of DFModel's program instead, which holds 4 r log_r(side)
elements of weights for each row.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.documents.graph import Communication, Graph, Kernel, Tensor
from dfopt.workloads.checks import NOTHING_FROM_DRAM


class FftParameters(Part):
    """Parameters of an FFT.

    Attributes
    ----------
    length : points, e.g. 1048576
        Number of points of the transform. With ``encoding: exact`` it is a power of two.
    radix : points, e.g. 32
        Size of the small transforms that run as matrix products. None: the transform uses vector operations.
    transposes : transposes, e.g. 1
        Number of exchanges of data between chips. With 2 and 3, result and input are also in natural order.
    encoding : e.g. exact
        Kernels of the graph. ``exact``: those of the algorithm itself. ``dfmodel``: the kernels of DFModel's program.
    word_bytes : B, e.g. 8
        Size of one complex number.

    Examples
    --------
    >>> FftParameters(length=2**21).sides
    (2048, 1024)
    """

    length: int = Field(ge=4, le=10**24)
    radix: int | None = Field(default=None, ge=2, le=2**20)
    transposes: int = Field(default=1, ge=1, le=3)
    encoding: Literal["exact", "dfmodel"] = "exact"
    word_bytes: int = Field(default=8, ge=1, le=32)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows (points of a column) and columns (points of a row) of the FFT as a matrix."""
        if self.encoding == "dfmodel":
            return (math.isqrt(self.length),) * 2
        power = self.length.bit_length() - 1
        return 2 ** (power - power // 2), 2 ** (power // 2)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.encoding == "dfmodel":
            if self.radix is None:
                raise problem("DFModel's encoding needs a radix", "add radix, such as 2 or 32", "$.radix")
            if self.transposes != 1:
                raise problem(
                    f"found {self.transposes} transposes, but DFModel's encoding has 1", "leave it out", "$.transposes"
                )
            return self
        power = self.length.bit_length() - 1
        if self.length != 2**power:
            raise problem(
                f"found {self.length} points, expected a power of two",
                f"choose {2**power} or {2 ** (power + 1)}, or encoding: dfmodel",
                "$.length",
            )
        if self.radix is not None:
            log = self.radix.bit_length() - 1
            wrong = [side for side in self.sides if self.radix != 2**log or (side.bit_length() - 1) % log]
            if wrong:
                raise problem(
                    f"found radix {self.radix} for transforms of {wrong[0]} points, which is not a power of it",
                    f"choose a radix of which {self.sides[0]} and {self.sides[1]} are powers",
                    "$.radix",
                )
        return self


Parameters = FftParameters


def build(p: FftParameters, **about: str) -> Graph:
    """Graph of an FFT: columns, twiddle factors, rows; or DFModel's two kernels.

    Examples
    --------
    >>> graph = build(FftParameters(length=2**20), name="fft")
    >>> [(kernel.name, kernel.flop_per_element, len(kernel.communications)) for kernel in graph.kernels]
    [('Column_FFT', 50, 0), ('Twiddle', 6, 0), ('Row_FFT', 50, 1)]
    """
    kernels, tensors = _dfmodel(p) if p.encoding == "dfmodel" else _exact(p)
    return Graph(
        **about,
        word_bytes=p.word_bytes,
        kernels=kernels,
        tensors=tensors,
        **(NOTHING_FROM_DRAM if p.encoding == "dfmodel" else {}),
    )


def _exact(p: FftParameters) -> tuple[tuple[Kernel, ...], tuple[Tensor, ...]]:
    rows, columns = p.sides
    size = float(p.length * p.word_bytes)
    exchange = Communication(kind="all_to_all", bytes=size, over="tp")

    def transforms(name: str, points: int, count: int, exchanges: int, dram_bytes: float) -> Kernel:
        """So many transforms of so many points; one of them is a column of ``n``, so they stream one by one."""
        common: dict[str, Any] = {
            "name": name, "m": points, "n": count, "distributed": True,
            "communications": (exchange,) * exchanges, "dram_bytes": dram_bytes,
        }  # fmt: skip
        log = points.bit_length() - 1
        if p.radix is None:
            return Kernel(op="elementwise", flop_per_element=5 * log, **common)
        stages = log // (p.radix.bit_length() - 1)
        return Kernel(op="matmul", k=4 * p.radix * stages, **common)

    arriving = 2 * size  # written where it arrives, and read again
    kernels = (
        # reads the input, which the third exchange has brought
        transforms("Column_FFT", rows, columns, *((1, size + arriving) if p.transposes == 3 else (0, size))),
        Kernel(name="Twiddle", op="elementwise", m=rows, n=columns, flop_per_element=6, distributed=True),
        # writes the result, here or, by the second exchange, there
        transforms("Row_FFT", columns, rows, min(p.transposes, 2), arriving + size),
    )
    tensors = (Tensor(src="Column_FFT", dst="Twiddle"), Tensor(src="Twiddle", dst="Row_FFT", operand=1, bytes=size))
    return kernels, tensors


def _dfmodel(p: FftParameters) -> tuple[tuple[Kernel, ...], tuple[Tensor, ...]]:
    """Kernels and tensors as DFModel's generator draws them (github.com/fengqian-ayce/DFModel, commit 04f93d5)."""
    side = p.sides[0]
    radix = p.radix or 2  # the validator has seen to it
    depth = int(4 * math.log2(side) / math.log2(radix) * radix)
    size = float(side * side * p.word_bytes)
    first = Kernel(name="Step_1", op="gemm", m=side, k=depth, n=side, stream="none", distributed=True)
    exchange = Communication(kind="all_to_all", bytes=size, over="tp")
    second = first.model_copy(update={"name": "Step_2", "communications": (exchange,)})
    return (first, second), (Tensor(src="Step_1", dst="Step_2", operand=1, bytes=size),)
