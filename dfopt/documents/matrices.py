"""The paper's matrices of a mapping, as a file has them."""

from __future__ import annotations

from dfopt.documents.base import Part

__all__ = ["Matrices"]


class Matrices(Part):
    """The paper's matrices of one stage as sparse (row, column) lists of the ones.

    A kernel in partition; B tensor inside a partition; D tensor cut, at both ends; L lifetime of a
    cut tensor; H source partition of every tensor. Rows of A are kernels of the stage in graph
    order; rows of the others are ``tensors``, positions in the graph's tensor list.
    """

    stage: int
    partitions: int
    kernels: tuple[str, ...]
    tensors: tuple[int, ...]
    A: tuple[tuple[int, int], ...]
    B: tuple[tuple[int, int], ...]
    D: tuple[tuple[int, int], ...]
    L: tuple[tuple[int, int], ...]
    H: tuple[tuple[int, int], ...]
