"""The paper's matrices of a mapping, as a file has them."""

from __future__ import annotations

from dfopt.documents.base import Part


class Matrices(Part):
    """DFModel's assignment matrices of one stage as sparse (row, column) lists of ones.

    A kernel in partition; B tensor inside a partition; D tensor cut, at both ends; L lifetime of a
    cut tensor; H source partition of every tensor. Rows of A are kernels of the stage in graph
    order; rows of the others are ``tensors``, positions in the graph's tensor list.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage that the matrices describe.
    partitions : partitions, e.g. 4
        Number of on-chip partitions of the stage: the columns of the matrices.
    kernels : e.g. [Q, K, QK]
        Names of the kernels of the stage in graph order: the rows of matrix A.
    tensors : no unit, e.g. [0, 1, 2]
        Positions in the graph's list of tensors: the rows of matrices B, D, L and H.
    A : no unit, e.g. [[0, 0], [1, 0]]
        Assignment matrix of the paper: pairs of a kernel row and the partition that contains the kernel.
    B : no unit, e.g. [[0, 0]]
        Inner tensors of the paper: pairs of a tensor row and the partition that produces and consumes it.
    D : no unit, e.g. [[1, 0], [1, 1]]
        Cut tensors of the paper: pairs of a tensor row and each partition at one of its two ends.
    L : no unit, e.g. [[1, 0], [1, 1]]
        Lifetimes of the paper: pairs of a cut tensor's row and each partition through which it waits.
    H : no unit, e.g. [[1, 0]]
        Sources of the paper: pairs of a tensor row and the partition that produces it.
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
