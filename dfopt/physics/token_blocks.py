"""Blocks of tokens: which kernels can take a block of tokens after another, and what of a kernel a block has.

A partition of a dataflow chip may take its tokens in blocks. Its kernels work through a block one after another, each
with the whole chip. Tensors are in SRAM for two blocks at a time: one is worked on, while the other is read, written,
sent, or waits for what is sent. Weights pass by in slices, for every block again, and so does every operand that has
no tokens of its own, such as the keys and values of attention.

Every function is pure and of a single kernel.
"""

from __future__ import annotations

from typing import Final

from dfopt.documents.kernel import Kernel, needed, operand_shape
from dfopt.documents.mapping import Sharding
from dfopt.physics.ops import Rules, split_axis, split_share

AT_ONCE: Final = 2.0
"""Blocks of a tensor, or slices of a weight, that are in SRAM at a time: one moves while the other is worked on."""


def takes_blocks(kernel: Kernel) -> bool:
    """Whether a kernel can process its tokens in blocks, one after another.

    Its tokens are its streamed axis. A weight update adds up over them, and its sum is in SRAM all the time. Any other
    kernel has to make an output of as many tokens. Products of the backward pass without a weight are left out: the
    gradient of keys and values adds up over the tokens of the queries, and a kernel does not say which one it is.

    Examples
    --------
    >>> takes_blocks(Kernel(name="a", op="gemm", m=4, k=8, n=16))
    True
    >>> takes_blocks(Kernel(name="a_bwd2", op="matmul", m=4, k=8, n=16, pass_="backward"))
    False
    """
    if kernel.op == "weight_update":
        return kernel.streamed == "k"
    return kernel.streamed == "n" and (kernel.op != "matmul" or kernel.pass_ in ("forward", "recompute"))


def tokens(kernel: Kernel) -> int:
    """Number of tokens of a kernel over all samples: the length of its streamed axis; 0 without one.

    Examples
    --------
    >>> tokens(Kernel(name="scores", op="matmul", m=8, k=4, n=8, samples=2))
    16
    """
    length = {"n": kernel.n, "k": kernel.k, "none": 0}[kernel.streamed]
    return length * (kernel.samples or 1)


def reads_whole(kernel: Kernel, operand: int) -> bool:
    """Whether every token of a kernel needs all of an operand, as every query needs all keys.

    That is the second operand (``m x k``) of a product without a weight.

    Examples
    --------
    >>> scores = Kernel(name="scores", op="matmul", m=8, k=4, n=8)
    >>> reads_whole(scores, 1), reads_whole(scores, 2)
    (False, True)
    """
    return kernel.op == "matmul" and operand == 2


def unmasked(kernel: Kernel, operand: int) -> float:
    """Elements of an operand relative to those that a mask leaves, at least 1.

    ``operand``: 0 for the output. At least 1, and 1 without a mask.

    Examples
    --------
    >>> unmasked(Kernel(name="context", op="matmul", m=4, k=8, n=8, density=0.5, masked=1), 1)
    2.0
    """
    rows, columns = operand_shape(kernel, operand) if operand else (kernel.m, kernel.n)
    return rows * columns / needed(kernel, operand)


def row_share(kernel: Kernel) -> float:
    """Share of a kernel's output in the row of one token, which is as long as without a mask.

    Examples
    --------
    >>> row_share(Kernel(name="keys", op="gemm", m=4, k=8, n=16))
    0.0625
    """
    return unmasked(kernel, 0) / kernel.n


def slice_share(kernel: Kernel) -> float:
    """Share of an operand in one slice, if it comes from outside the graph and every token needs all of it.

    Slices are the rows or the columns, whichever are more; for keys and values these are the attended tokens.

    Examples
    --------
    >>> slice_share(Kernel(name="scores", op="matmul", m=8, k=4, n=8))
    0.125
    """
    return 1.0 / max(kernel.m, kernel.k)


def slice_elements(kernel: Kernel, scheme: Sharding, degree: int, rules: Rules) -> float:
    """Elements of one slice of a GEMM's weight on one chip: one row, for an output feature, of each matrix.

    Parameters
    ----------
    kernel, scheme
        The GEMM and its sharding scheme.
    degree : int
        Chips that share it.
    rules
        Rules of sharding, ``exact`` or those of DFModel's program.

    Examples
    --------
    >>> gemm = Kernel(name="a", op="gemm", m=4, k=8, n=16)
    >>> [slice_elements(gemm, scheme, 2, "exact") for scheme in ("m", "k")]
    [8.0, 4.0]
    """
    share = split_share(kernel, scheme, degree, rules) if split_axis(scheme) in ("outer", "k") else 1.0
    return kernel.outer * kernel.k * share


def block_share(rows: int, blocks: int) -> float:
    """Share of all tokens in the largest of ``blocks`` blocks of whole rows.

    ``rows``: length of the shortest streamed axis of the graph. All axes are cut alike.

    Examples
    --------
    >>> block_share(10, 4)
    0.3
    """
    return -(-rows // blocks) / rows


def most_blocks(rows: int, least: int) -> int:
    """Largest number of blocks of tokens whose largest block has ``least`` rows, or all rows if there are fewer.

    Examples
    --------
    >>> most_blocks(10, 4), most_blocks(3, 4)
    (3, 1)
    """
    return -(-rows // least)
