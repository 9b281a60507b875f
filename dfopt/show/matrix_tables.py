"""The paper's matrices of an answer: which partition each kernel runs in, and where each tensor is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType

from dfopt.documents.graph import Graph
from dfopt.documents.matrices import Matrices
from dfopt.show.grid import FactList, Grid

MARKS: Final = {
    "A": "the kernel runs here",
    "B": "the tensor is made and read here: it stays on the chip (in B and H)",
    "H": "made here, read elsewhere: stored to DRAM (in D, L and H)",
    "D": "read here, made elsewhere: from DRAM (in D and L)",
    "L": "waits in DRAM meanwhile (in L)",
}
"""Letters of the matrices that are 1 for a kernel or a tensor in a partition, and what they mean."""
_NONE: Final = "."
_WIDE: Final = 40  # partitions side by side


@dataclass(frozen=True)
class Marks:
    """The assignment matrices of a stage: for each kernel and tensor one letter of `MARKS` or a dot by partition."""

    stage: int
    partitions: int
    kernels: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, str], ...]


def marks_of(matrices: Matrices, graph: Graph) -> Marks:
    """Assignment matrices as rows of letters.

    Examples
    --------
    >>> from dfopt.documents.graph import Kernel, Tensor
    >>> kernels = [Kernel(name=name, op="elementwise", m=1, n=1) for name in "abc"]
    >>> graph = Graph(name="g", kernels=kernels, tensors=[Tensor(src="a", dst="b"), Tensor(src="a", dst="c")])
    >>> found = Matrices(
    ...     stage=0, partitions=2, kernels=("a", "b", "c"), tensors=(0, 1), A=((0, 0), (1, 0), (2, 1)), B=((0, 0),),
    ...     D=((1, 0), (1, 1)), L=((1, 0), (1, 1)), H=((0, 0), (1, 0)),
    ... )
    >>> marks_of(found, graph).tensors
    (('a > b', 'B.'), ('a > c', 'HD'))
    """
    count = matrices.partitions
    taken, inside, cut, alive, written = map(set, (matrices.A, matrices.B, matrices.D, matrices.L, matrices.H))

    def letter(row: int, p: int) -> str:
        if (row, p) in inside:
            return "B"
        if (row, p) in cut:
            return "H" if (row, p) in written else "D"
        return "L" if (row, p) in alive else _NONE

    kernels = tuple(
        (name, "".join("A" if (row, p) in taken else _NONE for p in range(count)))
        for row, name in enumerate(matrices.kernels)
    )
    tensors = [graph.tensors[t] for t in matrices.tensors]
    listed = tuple(
        (f"{tensor.src} > {tensor.dst}", "".join(letter(row, p) for p in range(count)))
        for row, tensor in enumerate(tensors)
    )
    return Marks(matrices.stage, count, kernels, listed)


def grids(all_stages: Sequence[Matrices], graph: Graph) -> Iterator[RenderableType]:
    """Tables of the assignment matrices of every stage: one row for each kernel and tensor."""
    yield FactList([*MARKS.items()])
    kinds = graph.layers.kinds if graph.folded else ()
    for matrices in all_stages:
        marks = marks_of(matrices, graph)
        named = f" of {kinds[marks.stage]}" if len(kinds) > 1 else f" of stage {marks.stage}" * (len(all_stages) > 1)
        for what, rows in (("kernel", marks.kernels), ("tensor", marks.tensors)):
            for first in range(0, marks.partitions, _WIDE):
                last = min(first + _WIDE, marks.partitions)
                here = f"{first} to {last - 1}" if last - first > 1 else f"{first}"
                cut = [(name, letters[first:last]) for name, letters in rows]
                if first == 0 or any(line.strip(_NONE) for _, line in cut):
                    yield ""
                    yield Grid(f"Each {what}{named} by partition", {what: "word", here: "word"}, cut)
