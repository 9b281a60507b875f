"""How tensors meet kernels: which operand each tensor is, how large it is, and what comes from DRAM and goes there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.documents.dtypes import Words
from dfopt.documents.kernel import OPERANDS, Kernel, Tensor, needed
from dfopt.units import Bytes


class Input(Part):
    """What a kernel reads from DRAM because no kernel of the graph produces it.

    Attributes
    ----------
    dst : e.g. Q
        Name of the kernel that reads this input.
    bytes : e.g. 50 MB
        Size of the whole operand before any sharding. None: the size that follows from the shape of the kernel.
    operand : e.g. 2
        Input of a matmul or weight_update that this data feeds. ``1``: the k x n side. ``2``: the m x k side. None: the
        first side that no tensor feeds.
    """

    dst: str
    bytes: Bytes | None = Field(default=None, gt=0)
    operand: Literal[1, 2] | None = None


class Output(Part):
    """What a kernel writes to DRAM because no kernel of the graph consumes it.

    Attributes
    ----------
    src : e.g. FFN1
        Name of the kernel that writes this output.
    bytes : e.g. 50 MB
        Amount of data that the kernel writes before any sharding. None: its whole output.
    """

    src: str
    bytes: Bytes | None = Field(default=None, gt=0)


@dataclass(frozen=True, eq=False)
class Wiring:
    """Kernels, the tensors between them, and what they exchange with DRAM.

    ``tensors`` connect kernels of one layer, and ``carried`` ones connect a layer with the next. ``inputs`` and
    ``outputs`` are the DRAM inputs and outputs that the graph states; None: they follow from the rules of :meth:`reads`
    and :meth:`writes`. ``words`` are bytes of an element of every class of data. All sizes are those before any
    sharding.

    Examples
    --------
    >>> from dfopt.documents.dtypes import words_of
    >>> kernels = Kernel(name="a", op="gemm", m=4, k=8, n=16), Kernel(name="b", op="gemm", m=2, k=4, n=16)
    >>> wiring = Wiring(kernels, (Tensor(src="a", dst="b"),), (), None, None, words_of(None, 2))
    >>> wiring.operands, wiring.reads, wiring.writes
    ((1,), [(0, 1, 256.0)], [(1, 64.0)])
    """

    kernels: tuple[Kernel, ...]
    tensors: tuple[Tensor, ...]
    carried: tuple[Tensor, ...]
    inputs: tuple[Input, ...] | None
    outputs: tuple[Output, ...] | None
    words: Words

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each kernel in ``kernels``, by name; do not modify."""
        return {kernel.name: position for position, kernel in enumerate(self.kernels)}

    @cached_property
    def _output_bytes(self) -> list[float]:
        return [float(kernel.matrices * needed(kernel) * self.words.of_output(kernel)) for kernel in self.kernels]

    def output_bytes(self, name_or_position: str | int) -> float:
        """Bytes of a kernel's whole output, or of the part that a mask leaves."""
        position = name_or_position if isinstance(name_or_position, int) else self.index[name_or_position]
        return self._output_bytes[position]

    def bytes_of(self, tensor: Tensor) -> float:
        """Bytes of a tensor: as stated, or the whole output of its source."""
        return tensor.bytes if tensor.bytes is not None else self.output_bytes(tensor.src)

    def elements_of(self, tensor: Tensor) -> float:
        """Number of elements of a tensor."""
        return self.bytes_of(tensor) / self.words.of_output(self.kernels[self.index[tensor.src]])

    @cached_property
    def operands(self) -> tuple[int, ...]:
        """For each of ``tensors``, which operand of its consumer it is: 1 (``k x n``) or 2 (``m x k``).

        As stated in the tensor, else by size; when both sides are the same size, by order of the tensors.
        """
        operands = [tensor.operand or self._by_size(tensor) for tensor in self.tensors]
        taken = self._taken(operands)
        for position, tensor in enumerate(self.tensors):
            if not operands[position]:
                operands[position] = 2 if 1 in taken[tensor.dst] else 1
                taken[tensor.dst].add(operands[position])
        return tuple(operands)

    def _by_size(self, tensor: Tensor) -> int:
        """The operand that a tensor is by its size; 0 where both are of one size."""
        kernel = self.kernels[self.index[tensor.dst]]
        if kernel.op in ("gemm", "elementwise"):
            return 1
        first, second = (float(kernel.matrices * needed(kernel, operand)) for operand in (1, 2))
        elements = self.elements_of(tensor)
        return 0 if first == second else 1 if abs(elements - first) <= abs(elements - second) else 2

    def _taken(self, operands: Iterable[int]) -> defaultdict[str, set[int]]:
        """The operands that tensors bring, by kernel."""
        taken: defaultdict[str, set[int]] = defaultdict(set)
        for tensor, operand in zip(self.tensors, operands, strict=True):
            taken[tensor.dst].add(operand)
        return taken

    @cached_property
    def reads(self) -> list[tuple[int, int, float]]:
        """Inputs from DRAM: (kernel position, operand, bytes) of each; do not modify.

        As stated by ``inputs``, else all operands that no tensor brings, except for kernels that state their own
        traffic.
        """
        taken = self._taken(self.operands)
        free = {
            kernel.name: [side for side in range(1, OPERANDS[kernel.op] + 1) if side not in taken[kernel.name]]
            for kernel in self.kernels
        }

        def brought(name: str, operand: int | None) -> int:
            left = free[name]
            side = operand or (left[0] if left else 1)
            if side in left:
                left.remove(side)
            return side

        for tensor in self.carried:
            brought(tensor.dst, tensor.operand)
        if self.inputs is not None:
            stated = [(self.index[end.dst], brought(end.dst, end.operand), end.bytes) for end in self.inputs]
            return [(k, side, self._operand_bytes(k, side) if size is None else size) for k, side, size in stated]
        return [
            (position, operand, self._operand_bytes(position, operand))
            for position, kernel in enumerate(self.kernels)
            if not (kernel.dram_bytes or kernel.dram_bytes_per_chip)
            for operand in free[kernel.name]
        ]

    def _operand_bytes(self, position: int, operand: int) -> float:
        """Bytes of one operand of a kernel; heads of a GEMM share their operand."""
        kernel = self.kernels[position]
        matrices = 1 if kernel.op == "gemm" else kernel.matrices
        return float(matrices * needed(kernel, operand) * self.words.activations)

    @cached_property
    def writes(self) -> list[tuple[int, float]]:
        """Outputs to DRAM: (kernel position, bytes) of each; do not modify.

        As stated by ``outputs``, else all outputs that no tensor takes, except for weight updates, accumulating
        kernels and kernels that state their own traffic.
        """
        if self.outputs is not None:
            positions = [self.index[end.src] for end in self.outputs]
            return [(k, end.bytes or self.output_bytes(k)) for k, end in zip(positions, self.outputs, strict=True)]
        taken = {tensor.src for tensor in (*self.tensors, *self.carried)}
        return [
            (position, self.output_bytes(position))
            for position, kernel in enumerate(self.kernels)
            if kernel.name not in taken
            and kernel.op != "weight_update"
            and kernel.accumulates_into is None
            # what a kernel says that it moves holds its ends
            and not (kernel.dram_bytes or kernel.dram_bytes_per_chip)
        ]
