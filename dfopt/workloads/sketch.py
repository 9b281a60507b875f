"""Drawing a graph: kernels one after the other, each with what it reads."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dfopt.documents.graph import Kernel, Tensor
from dfopt.documents.modules import Module


class Read(NamedTuple):
    """An input of a kernel: source, operand, bytes if not the whole output, and part.

    Operand 1 of a product is its ``k x n`` side, operand 2 its ``m x k`` side.
    """

    src: str
    operand: Literal[1, 2] | None = None
    bytes: float | None = None
    part: str | None = None


class Sketch:
    """Kernels and tensors drawn so far.

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
        """Assign a module to the kernels drawn since position ``since`` that have none.

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
        """Add a kernel with its inputs; return its name."""
        self.kernels.append(kernel)
        for source in inputs:
            read = Read(source) if isinstance(source, str) else source
            part = read.part if read.bytes is not None else None
            self.tensors.append(Tensor(dst=kernel.name, **{**read._asdict(), "part": part}))
        return kernel.name
