"""The shapes that kernels of a transformer layer come in.

Matrices are held with features along ``m`` and tokens along ``n``, see :mod:`dfopt.documents.graph`. A method
here is a *shape* of kernel; the workloads are tables that say which kernel has which shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dfopt.documents.graph import Kernel, Tensor

__all__ = ["Layer", "Wire", "wires"]

Wire = tuple[str, str] | tuple[str, str, Literal[1, 2]]


@dataclass(frozen=True)
class Layer:
    """Sizes of one layer for one microbatch, and makers of kernels with those sizes.

    Parameters
    ----------
    hidden, heads, head_dim, ffn
        Features of the residual stream, attention heads, features of a head, features inside the MLP.
    seq, microbatch
        Tokens in a sample, samples in one evaluation.

    Examples
    --------
    >>> layer = Layer(hidden=8, heads=2, head_dim=4, ffn=32, seq=16, microbatch=3)
    >>> layer.tokens, layer.attention("MHA_GEMM_1", m=16, k=4).outer
    (48, 6)
    """

    hidden: int
    heads: int
    head_dim: int
    ffn: int
    seq: int
    microbatch: int

    @property
    def tokens(self) -> int:
        """Tokens of one evaluation."""
        return self.seq * self.microbatch

    @property
    def width(self) -> int:
        """Features of Q, K and V over all heads; need not be ``hidden``."""
        return self.heads * self.head_dim

    @property
    def attentions(self) -> int:
        """Independent attention matrices.

        Tokens attend within their own sample, so each head of each sample is a matrix of its own. A
        tensor-parallel split by ``outer`` then splits heads x samples, which is as good as a split by heads:
        neither communicates.
        """
        return self.heads * self.microbatch

    def pointwise(self, name: str, m: int, *, normalizes: bool = False) -> Kernel:
        """An elementwise kernel over ``m`` features of every token."""
        return Kernel(name=name, op="elementwise", m=m, n=self.tokens, normalizes=normalizes)

    def scores(self, name: str, *, normalizes: bool = False) -> Kernel:
        """An elementwise kernel over the attention scores: keys along ``m``, queries along ``n``."""
        return Kernel(name=name, op="elementwise", outer=self.attentions, m=self.seq, n=self.seq, normalizes=normalizes)

    def by_head(self, name: str, heads: int) -> Kernel:
        """An elementwise kernel over ``heads`` heads of every token, which may be fewer than those of Q."""
        return Kernel(name=name, op="elementwise", outer=heads, m=self.head_dim, n=self.tokens)

    def linear(self, name: str, m: int, k: int, *, outer: int = 1) -> Kernel:
        """A weighted GEMM on every token; ``outer`` = heads if each head has a weight of its own."""
        return Kernel(name=name, op="gemm", outer=outer, m=m, k=k, n=self.tokens)

    def attention(self, name: str, m: int, k: int) -> Kernel:
        """A product of two activations within every head of every sample."""
        return Kernel(name=name, op="matmul", outer=self.attentions, m=m, k=k, n=self.seq)


def wires(table: Iterable[Wire]) -> tuple[Tensor, ...]:
    """Tensors from rows of ``(src, dst)`` or ``(src, dst, operand)``.

    Examples
    --------
    >>> [(t.src, t.dst, t.operand) for t in wires([("Q", "S", 1), ("S", "P")])]
    [('Q', 'S', 1), ('S', 'P', None)]
    """
    return tuple(Tensor(src=row[0], dst=row[1], operand=row[2] if len(row) == 3 else None) for row in table)
