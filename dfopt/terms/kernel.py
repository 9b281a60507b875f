"""What rules of single kernels read: a kernel of a layer, and the little that graph, chip and plan have to do with it.

Layers of many plans, and of what chips of a second axis see, have most of their kernels in common. What a rule says of
a kernel is remembered by what it reads here, so every attribute is a value that may be compared, and no array.

Suffix: o option of the kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import Words
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import added_bytes, reduced_bytes
from dfopt.documents.system import Chip
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.setting.placements import Counted
from dfopt.terms.by_kernel import end_share
from dfopt.terms.layer import Layer

__all__ = ["LayerKernel", "by_option", "end_bytes", "output_share", "schemes", "weight_bytes"]

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)  # not frozen: there are tens of thousands
class LayerKernel:
    """A kernel of a layer.

    Attributes
    ----------
    instance
        Setting and plan.
    tiles : no unit
        Tiles that the streamed axis of the layer is cut into.
    number : no unit
        Which kernel of the layer it is.
    kernel
        The kernel itself.
    degree
        Chips that share its work.
    assumptions
        The conventions of the setting.
    words : B
        Bytes of the elements of what the layer has.
    counted : no unit
        How bytes of what lies in slower memories count.
    ends
        Inputs and outputs of the graph that it reads and writes: which operand (0: its output), and whole bytes.
    saved : B
        Each of its outputs, whole, that the forward pass leaves for a later one.
    """

    instance: Instance
    tiles: int
    number: int
    kernel: Kernel
    degree: int
    assumptions: Assumptions
    words: Words
    counted: Counted
    ends: tuple[tuple[int, float], ...]
    saved: tuple[float, ...]

    @classmethod
    def all_of(cls, layer: Layer) -> tuple[LayerKernel, ...]:
        """The kernels of a layer, which are worked out once."""
        if (found := layer.memo.get("kernels")) is None:
            shared = layer.degree, layer.assumptions, layer.graph.words, layer.instance.counted
            each = enumerate(zip(layer.kernels, layer.ends_k, layer.saved_k, strict=True))
            found = tuple(
                cls(layer.instance, layer.tiles, k, kernel, *shared, ends, saved) for k, (kernel, ends, saved) in each
            )
            layer.memo["kernels"] = found
        return found

    def answer(self, question: Hashable, work: Callable[[LayerKernel], Answer]) -> Answer:
        """The answer to a question about kernels, worked out once for all of a model that look the same to it.

        Parameters
        ----------
        question
            Its name.
        work
            Works the answer out of a kernel, and of nothing else.
        """
        found: Answer = self.instance.setting.of_kernels[question].answer(self, work)
        return found

    @property
    def chip(self) -> Chip:
        """The chip."""
        return self.instance.system.chip

    @property
    def rate(self) -> float:
        """Peak rate of the chip in the type that it computes in, FLOP/s."""
        return self.instance.setting.rate_k[self.number]

    @property
    def limits_sram(self) -> bool:
        """Whether the SRAM of the chip has a bandwidth."""
        return self.chip.sram.bandwidth is not None

    @property
    def reduced_word(self) -> float:
        """Bytes of an element of a weight gradient as copies add it up."""
        return reduced_bytes(self.instance.graph)

    @property
    def added_word(self) -> float:
        """Bytes of an element of a weight gradient as evaluations add to it."""
        return added_bytes(self.instance.graph, self.assumptions)

    @property
    def holds_weight(self) -> bool:
        """Whether its weight is held for it: while only forward kernels hold any, others read the same ones again."""
        return not self.instance.setting.only_forward or self.kernel.pass_ == "forward"

    @property
    def sums(self) -> frozenset[str]:
        """Kernels that add up partial sums, see :mod:`dfopt.physics.operands`."""
        return self.instance.setting.sums

    @property
    def passed(self) -> tuple[tuple[tuple[int, ...], float, float], ...]:
        """Tensors between kernels that it writes (operand 0) and reads: as which operands, whole bytes, elements."""
        return Layer(self.instance, self.tiles).passed_k[self.number]

    @property
    def kept(self) -> tuple[tuple[float, float], ...]:
        """Bytes that it keeps beside tensors under each option: until the backward pass, while its layer runs."""
        beside = Layer(self.instance, self.tiles).beside
        return tuple(beside.on_chip(self.kernel, z, self.degree) for z in schemes(self)) if beside else ()


def schemes(of: LayerKernel) -> tuple[Sharding, ...]:
    """Schemes that a kernel may take: its options."""
    return ops.legal_schemes(of.kernel, of.degree, of.assumptions)


def by_option(of: LayerKernel, figure: Callable[[Kernel, Sharding], float]) -> Floats:
    """A figure of a kernel under each of its options, shape (options,)."""
    kernel = of.kernel
    return np.array([figure(kernel, scheme) for scheme in schemes(of)], dtype=np.float64)


def output_share(of: LayerKernel) -> Floats:
    """Share of a kernel's output that one chip holds, under each of its options."""
    degree, rules = of.degree, of.assumptions.sharding_rules
    return by_option(of, lambda kernel, scheme: ops.output_share(kernel, scheme, degree, rules))


def end_bytes(of: LayerKernel, operand: int, whole: float) -> Floats:
    """Bytes that one chip moves of an input or output of the graph, under each option of the kernel that does.

    Parameters
    ----------
    of
        The kernel.
    operand, whole
        Of :attr:`LayerKernel.ends`.
    """
    degree, rules, elements = of.degree, of.assumptions.sharding_rules, whole / of.words.activations
    return whole * by_option(of, lambda kernel, z: end_share(kernel, operand, z, degree, rules, elements))


def weight_bytes(of: LayerKernel, elements: Callable[[Kernel], float]) -> Floats:
    """Bytes of the part of a kernel's weight that one chip has, under each of its options.

    ``elements``: how many of it, such as all, or those that an evaluation reads.
    """
    degree, rules = of.degree, of.assumptions.sharding_rules
    share_o = by_option(of, lambda kernel, scheme: ops.weight_share(kernel, scheme, degree, rules))
    return (elements(of.kernel) * of.words.of_weight(of.kernel)) * share_o
