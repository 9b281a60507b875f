"""What rules of single kernels read: a kernel of a layer, and the little that graph, chip and plan have to do with it.

Layers of many plans, and of what chips of a second axis see, have most of their kernels in common. What a rule says of
a kernel is remembered by what it reads here, so every attribute is a value that may be compared, and no array.

An *option* of a kernel is a sharding scheme that it may take. Suffix: o option, in the order of :func:`schemes`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import Words
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import added_bytes, reduced_bytes
from dfopt.documents.system import Chip
from dfopt.physics import ops
from dfopt.setting.placements import Counted
from dfopt.setting.reads import ReturnT
from dfopt.terms.layer import Layer


@dataclass(slots=True, eq=False)  # not frozen: there are tens of thousands
class LayerKernel:
    """One kernel (operator) of a layer, with everything that cost rules about this kernel alone may read.

    Bytes are those of one evaluation of the graph, which is one microbatch. *Whole* bytes are those of a tensor before
    any sharding.

    Attributes
    ----------
    layer
        What one chip does in one evaluation. It is no value: rules of this kernel alone must not read it.
    number : no unit
        Place of this kernel among the kernels of the graph.
    kernel
        The kernel as the graph states it.
    degree : no unit
        Number of tensor-parallel chips, which share its work.
    assumptions
        The conventions of the setting, resolved: no ``auto`` is left.
    words : B
        Bytes of an element of each class of data of the graph, such as weights and activations.
    counted : no unit
        For weights, experts, caches and tables: how many bytes of the fastest memory one moved byte counts as. 1 for
        what lies in the fastest memory, more for what lies in a slower one.
    ends : tuple of (operand, bytes)
        Inputs and outputs of the graph that this kernel reads and writes, with their whole bytes. Operand 0 is the
        output of the kernel, 1 and 2 are its inputs. Empty under ``layer_boundary: free``.
    saved : tuple of B
        Whole bytes of each output of this kernel that kernels of a later pass read. Empty for all but forward kernels
        of a graph that trains.
    """

    layer: Layer
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
        """All kernels of a layer, in the order of its graph. They are made once and kept in ``layer.memo``."""
        if (kernels := layer.memo.get("kernels")) is None:
            shared = layer.degree, layer.assumptions, layer.graph.words, layer.instance.counted
            each = enumerate(zip(layer.kernels, layer.ends_k, layer.saved_k, strict=True))
            kernels = tuple(cls(layer, k, kernel, *shared, ends, saved) for k, (kernel, ends, saved) in each)
            layer.memo["kernels"] = kernels
        return kernels

    def answer(self, question: Hashable, work: Callable[[LayerKernel], ReturnT]) -> ReturnT:
        """Return ``work(self)``, which is computed once for all kernels in which ``work`` reads the same values.

        Answers are remembered only if the graph is the part of a model that one chip sees under a second parallel axis
        (``modules`` of the plan). Kernels of all such graphs of the model share them. For any other graph ``work`` is
        called each time.

        Parameters
        ----------
        question
            Name of the question. The same name must always come with the same ``work``.
        work : callable
            Given a kernel, returns the answer. It must read nothing but this kernel.

        Returns
        -------
        ReturnT
            What ``work`` returns for this kernel, or has returned for another kernel with the same values.
        """
        setting = self.layer.instance.setting
        if setting.of is None:  # no other graph has its kernels
            return work(self)
        answer: ReturnT = setting.of_kernels[question].answer(self, work)
        return answer

    @property
    def tiles(self) -> int:
        """Tiles that the streamed axis of the layer (mostly that of tokens) is cut into."""
        return self.layer.tiles

    @property
    def chip(self) -> Chip:
        """The chip that the kernel runs on: all chips of the system are equal."""
        return self.layer.instance.system.chip

    @property
    def rate(self) -> float:
        """Peak rate of the whole chip in the data type that the kernel computes in, FLOP/s.

        Raises
        ------
        SystemSpecError
            If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
        """
        return self.layer.instance.setting.rate_k[self.number]

    @property
    def limits_sram(self) -> bool:
        """Whether the SRAM of the chip has a bandwidth, so that its traffic takes time."""
        return self.chip.sram.bandwidth is not None

    @property
    def reduced_word(self) -> float:
        """Bytes of an element of a weight gradient in the type in which data-parallel copies add it up."""
        return reduced_bytes(self.layer.instance.graph)

    @property
    def added_word(self) -> float:
        """Bytes of an element of a weight gradient in the type in which evaluations add to it in DRAM."""
        return added_bytes(self.layer.instance.graph, self.assumptions)

    @property
    def holds_weight(self) -> bool:
        """Whether a weight of this kernel counts as held by a chip.

        False for kernels of other passes if the graph trains and its forward kernels have weights: these kernels read
        the same weights again, which count once. Else true, even for a kernel without a weight.
        """
        return not self.layer.instance.setting.only_forward or self.kernel.pass_ == "forward"

    @property
    def sum_kernels(self) -> frozenset[str]:
        """Names of all elementwise kernels of the graph that add up partial sums of products.

        Their inputs are outputs of kernels with ``accumulates_into``. See :mod:`dfopt.physics.operands`.
        """
        return self.layer.instance.setting.sum_kernels

    @property
    def passed(self) -> tuple[tuple[tuple[int, ...], float, float], ...]:
        """Tensors between kernels of the layer that this kernel writes or reads: triples (operands, bytes, elements).

        Operands are ``(0,)`` for a tensor that the kernel writes. For a tensor that it reads they are ``(1,)``,
        ``(2,)``, or ``(1, 2)`` if the kernel takes the tensor as both inputs. Bytes and numbers of elements are those
        of one evaluation, before any sharding. Tensors to the next layer are not included.
        """
        return self.layer.passed_k[self.number]

    @property
    def kept(self) -> tuple[tuple[float, float], ...]:
        """Bytes that one chip keeps for this kernel in addition to tensors (dropout masks): a pair for each option.

        An option is a sharding scheme that the kernel may take. The first number of a pair is kept until the backward
        pass of the microbatch, the second only while the layer runs. Add the first to the bytes of the kernel's saved
        tensors. It is negative where these tensors count more bytes than are kept. All pairs are zeros if only other
        kernels of the graph keep anything. The tuple is empty if no kernel does, as in a graph that does not train.
        """
        kept_bytes = self.layer.kept_bytes
        return tuple(kept_bytes.on_chip(self.kernel, z, self.degree) for z in schemes(self)) if kept_bytes else ()


def schemes(of: LayerKernel) -> tuple[Sharding, ...]:
    """Sharding schemes that a kernel may take on its tensor-parallel chips, at least one.

    They are the *options* of the kernel. Arrays of shape (options,) have their order.

    Parameters
    ----------
    of
        The kernel.
    """
    return ops.legal_schemes(of.kernel, of.degree, of.assumptions)


def by_option(of: LayerKernel, figure: Callable[[Kernel, Sharding], float]) -> Floats:
    """Values of a function for each sharding scheme (option) that a kernel may take: float array, shape (options,).

    Parameters
    ----------
    of
        The kernel.
    figure : callable
        Given the kernel as the graph states it and one of its sharding schemes, returns a number. The array has its
        unit.
    """
    kernel = of.kernel
    return np.array([figure(kernel, scheme) for scheme in schemes(of)], dtype=np.float64)


def output_share(of: LayerKernel) -> Floats:
    """Share of a kernel's output that one chip holds, under each of its options: float array, shape (options,).

    An option is a sharding scheme that the kernel may take. The share is 1 for an option under which every chip holds
    all of the output.

    Parameters
    ----------
    of
        The kernel.
    """
    degree, rules = of.degree, of.assumptions.sharding_rules
    return by_option(of, lambda kernel, scheme: ops.output_share(kernel, scheme, degree, rules))


def end_bytes(of: LayerKernel, operand: int, tensor_bytes: float) -> Floats:
    """Bytes that one chip reads of an input of the graph, or writes of an output, in one evaluation (one microbatch).

    Parameters
    ----------
    of
        The kernel that reads the input or writes the output.
    operand : int
        0 for an output of the graph. 1 or 2 for an input, which the kernel takes as that operand.
    tensor_bytes : B
        Bytes of the tensor before any sharding, such as those in :attr:`LayerKernel.ends`.

    Returns
    -------
    float array, shape (options,), B
        One entry for each option of the kernel: each sharding scheme that it may take. If that splits the operand, it
        is the part of the chip that has most: ``ceil(length / chips) / length`` of the split axis. The ``dfmodel``
        rules split heads along their features, too: the axis is that much longer.
    """
    degree, rules, elements = of.degree, of.assumptions.sharding_rules, tensor_bytes / of.words.activations

    def share(kernel: Kernel, scheme: Sharding) -> float:
        layout = ops.required_layout(kernel, operand, scheme, rules, elements)
        return ops.input_share(kernel, layout, scheme, degree, rules)

    return tensor_bytes * (by_option(of, share) if operand else output_share(of))


def weight_bytes(of: LayerKernel, elements: Callable[[Kernel], float]) -> Floats:
    """Bytes of a kernel's weight on one chip, under each of its options (sharding schemes that it may take).

    Parameters
    ----------
    of
        The kernel.
    elements : callable
        Given the kernel, returns the number of elements of its weight that count, before any sharding. Use
        :func:`dfopt.physics.ops.weight_elements` for all elements, and :func:`dfopt.physics.ops.weights_read` for those
        that an evaluation reads.

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


def weight_held(of: LayerKernel) -> Floats:
    """Bytes of all of a kernel's weight on one chip, those of routed experts that no token chooses included."""
    return weight_bytes(of, ops.weight_elements)
