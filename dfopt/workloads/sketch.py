"""Drawing a graph: kernels one after the other, each with what it reads."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dfopt.documents.graph import Kernel, Tensor
from dfopt.documents.modules import Module


class Read(NamedTuple):
    """What a kernel reads: of whom, as which operand of a product, how much of it if not the whole output, and what.

    Operand 1 of a product is its ``k x n`` side, operand 2 its ``m x k`` side.
    """

    src: str
    operand: Literal[1, 2] | None = None
    bytes: float | None = None
    part: str | None = None


class Sketch:
    """Kernels and tensors drawn so far, the tensors in the order of their consumers.

    Examples
    --------
    >>> sketch = Sketch()
    >>> q, k = (sketch.draw(Kernel(name=name, op="gemm", m=4, k=8, n=16)) for name in "QK")
    >>> sketch.draw(Kernel(name="S", op="matmul", m=16, k=4, n=16), Read(q, 1), Read(k, 2))
    'S'
    >>> [(tensor.src, tensor.dst, tensor.operand) for tensor in sketch.tensors]
    [('Q', 'S', 1), ('K', 'S', 2)]
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.tensors: list[Tensor] = []

    def of_module(self, module: Module, since: int) -> None:
        """Say which module the kernels belong to that were drawn since there were so many, as far as nothing is said.

        Examples
        --------
        >>> sketch = Sketch()
        >>> _ = sketch.draw(Kernel(name="up", op="gemm", m=16, k=4, n=16))
        >>> sketch.of_module("dense", 0)
        >>> sketch.kernels[0].module
        'dense'
        """
        for place, kernel in enumerate(self.kernels[since:], start=since):
            if kernel.module is None:
                self.kernels[place] = kernel.model_copy(update={"module": module})

    def draw(self, kernel: Kernel, *inputs: str | Read) -> str:
        """Add a kernel and its inputs; gives its name, for the kernels that read it."""
        self.kernels.append(kernel)
        for source in inputs:
            read = Read(source) if isinstance(source, str) else source
            part = read.part if read.bytes is not None else None
            self.tensors.append(Tensor(dst=kernel.name, **{**read._asdict(), "part": part}))
        return kernel.name
