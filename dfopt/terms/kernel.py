"""What rules of single kernels read: a kernel of a layer, and the little that graph, chip and plan have to do with it.

Layers of many plans, and of what chips of a second axis see, have most of their kernels in common. What a rule says of
a kernel is remembered by what it reads here, so every attribute is a value that may be compared, and no array.

An *option* of a kernel is a sharding scheme that it may take. Suffix: o option, in the order of :func:`schemes`.
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
    """One kernel of a layer, with all that rules of single kernels may read.

    Attributes
    ----------
    instance
        Setting and plan.
    tiles : no unit
        Tiles that the streamed axis of the layer is cut into.
    number : no unit
        Its place among the kernels of the graph.
    kernel
        The kernel as the graph states it.
    degree : no unit
        Number of tensor-parallel chips, which share its work.
    assumptions
        The conventions of the setting, resolved: no ``auto`` is left.
    words : B
        Bytes of an element of each class of data of the graph.
    counted : no unit
        How many bytes of the fastest memory one byte counts as, by what it is of: weights, experts, caches, tables.
    ends : tuple of (operand, bytes)
        Inputs and outputs of the graph that it reads and writes. Operand 0 is its output, 1 and 2 are its inputs. Bytes
        are those of the whole tensor, before any sharding.
    saved : tuple of B
        Whole bytes of each of its outputs that the forward pass leaves for a later one.
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
        """The kernels of a layer, in its order. They are made once for a layer."""
        if (found := layer.memo.get("kernels")) is None:
            shared = layer.degree, layer.assumptions, layer.graph.words, layer.instance.counted
            each = enumerate(zip(layer.kernels, layer.ends_k, layer.saved_k, strict=True))
            found = tuple(
                cls(layer.instance, layer.tiles, k, kernel, *shared, ends, saved) for k, (kernel, ends, saved) in each
            )
            layer.memo["kernels"] = found
        return found

    def answer(self, question: Hashable, work: Callable[[LayerKernel], Answer]) -> Answer:
        """The answer to a question about this kernel, worked out once for all kernels that look the same to it.

        Kernels of all graphs that chips see of one model share their answers.

        Parameters
        ----------
        question
            Name of the question. Questions of one name have one ``work``.
        work : callable
            Works the answer out of a kernel, and of nothing else.

        Returns
        -------
        Answer
            What ``work`` returned for this kernel, or for one that looks the same.
        """
        setting = self.instance.setting
        if setting.of is None:  # no other graph has its kernels
            return work(self)
        found: Answer = setting.of_kernels[question].answer(self, work)
        return found

    @property
    def chip(self) -> Chip:
        """The chip that it runs on: one of the equal chips of the system."""
        return self.instance.system.chip

    @property
    def rate(self) -> float:
        """Peak rate of the chip in the type that the kernel computes in, FLOP/s."""
        return self.instance.setting.rate_k[self.number]

    @property
    def limits_sram(self) -> bool:
        """Whether the SRAM of the chip has a bandwidth, so that its traffic takes time."""
        return self.chip.sram.bandwidth is not None

    @property
    def reduced_word(self) -> float:
        """Bytes of an element of a weight gradient in the type in which copies add it up."""
        return reduced_bytes(self.instance.graph)

    @property
    def added_word(self) -> float:
        """Bytes of an element of a weight gradient in the type in which evaluations add to it in DRAM."""
        return added_bytes(self.instance.graph, self.assumptions)

    @property
    def holds_weight(self) -> bool:
        """Whether a chip holds a weight for it.

        Where forward kernels of a graph that trains have weights, only they do: backward kernels read the same ones
        again.
        """
        return not self.instance.setting.only_forward or self.kernel.pass_ == "forward"

    @property
    def sums(self) -> frozenset[str]:
        """Names of all kernels of the graph that add up partial sums, see :mod:`dfopt.physics.operands`."""
        return self.instance.setting.sums

    @property
    def passed(self) -> tuple[tuple[tuple[int, ...], float, float], ...]:
        """Tensors between kernels that it writes and reads, as tuples of operands, whole bytes and elements.

        Operands are a tuple: ``(0,)`` for a tensor that it writes, else those of 1 and 2 that the tensor is. A kernel
        may take one tensor as both inputs.
        """
        return Layer(self.instance, self.tiles).passed_k[self.number]

    @property
    def kept(self) -> tuple[tuple[float, float], ...]:
        """Bytes that one chip keeps for this kernel beside tensors, such as dropout masks, as a pair for each option.

        The first are kept until the backward pass, the second only while the layer runs; (0, 0) for a kernel that
        keeps nothing. An empty tuple where no kernel of the layer keeps anything.
        """
        beside = Layer(self.instance, self.tiles).beside
        return tuple(beside.on_chip(self.kernel, z, self.degree) for z in schemes(self)) if beside else ()


def schemes(of: LayerKernel) -> tuple[Sharding, ...]:
    """Sharding schemes that a kernel may take: its options, in the order of the axis o."""
    return ops.legal_schemes(of.kernel, of.degree, of.assumptions)


def by_option(of: LayerKernel, figure: Callable[[Kernel, Sharding], float]) -> Floats:
    """A figure of a kernel under each of its options: float array, shape (options,).

    Parameters
    ----------
    of
        The kernel.
    figure : callable
        The figure of the graph's kernel under a sharding scheme.
    """
    kernel = of.kernel
    return np.array([figure(kernel, scheme) for scheme in schemes(of)], dtype=np.float64)


def output_share(of: LayerKernel) -> Floats:
    """Share of a kernel's output that one chip holds, under each of its options: float array, shape (options,).

    It is 1 where every chip holds all of the output.
    """
    degree, rules = of.degree, of.assumptions.sharding_rules
    return by_option(of, lambda kernel, scheme: ops.output_share(kernel, scheme, degree, rules))


def end_bytes(of: LayerKernel, operand: int, whole: float) -> Floats:
    """Bytes that one chip moves of an input or output of the graph, under each option of the kernel that does.

    Parameters
    ----------
    of
        The kernel.
    operand : int
        0 for an output of the graph, which the kernel writes. 1 or 2 for an input, which it takes as that operand.
    whole : B
        Bytes of the whole tensor. Both are of an entry of :attr:`LayerKernel.ends`.

    Returns
    -------
    float array, shape (options,), B
    """
    degree, rules, elements = of.degree, of.assumptions.sharding_rules, whole / of.words.activations
    return whole * by_option(of, lambda kernel, z: end_share(kernel, operand, z, degree, rules, elements))


def weight_bytes(of: LayerKernel, elements: Callable[[Kernel], float]) -> Floats:
    """Bytes of a kernel's weight on one chip, under each of its options.

    Parameters
    ----------
    of
        The kernel.
    elements : callable
        Elements of the whole weight that count: such as all (:func:`dfopt.physics.ops.weight_elements`), or those that
        an evaluation reads (:func:`dfopt.physics.ops.weights_read`).

    Returns
    -------
    float array, shape (options,), B
        Zeros for a kernel without a weight.
    """
    if not (count := elements(of.kernel)):  # most kernels have none
        return np.zeros(len(schemes(of)))
    degree, rules = of.degree, of.assumptions.sharding_rules
    share_o = by_option(of, lambda kernel, scheme: ops.weight_share(kernel, scheme, degree, rules))
    return (count * of.words.of_weight(of.kernel)) * share_o
