"""What the tensor-parallel chips communicate, and what kernels communicate themselves.

All rules here take a layer and yield charges, of seconds in one evaluation. A *block* is a set of kernels that one
on-chip partition runs.

Suffixes: k kernel, o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.network import adds_up_at_once
from dfopt.terms.charges import Charge, Term
from dfopt.terms.communication import added_up_s, between_shards_s
from dfopt.terms.incidence import AnyOf, Exactly, Has
from dfopt.terms.kernel import LayerKernel
from dfopt.terms.layer import Layer, Wanted
from dfopt.terms.rules.weights import gradient_bytes
from dfopt.terms.table import MERGED

MOST_LISTED = 1e6
"""Amounts of the conversion of one tensor that are listed, at most: 8 MB."""


def inherent(layer: Layer, kernel: int) -> list[Collective | None]:
    """The collective that each option of a kernel needs on its output, because its scheme leaves partial sums.

    Parameters
    ----------
    layer
        The layer. An *option* of a kernel is a sharding scheme that it may take.
    kernel : int
        Place of the kernel in ``layer.kernels``.

    Returns
    -------
    list of Collective or None
        One for each option of the kernel. If the option splits the contraction: a reduce-scatter where its scheme
        leaves the summed output sharded, else an all-reduce. None for all other options, for partial sums that the
        collective of another kernel adds up (``accumulates_into``), and for every option without tensor parallelism.
    """
    of, schemes = layer.kernels[kernel], layer.schemes_k[kernel]
    if layer.degree == 1:
        return [None] * len(schemes)
    return [ops.inherent(of, scheme, layer.degree, layer.rules) for scheme in schemes]


def collectives(layer: Layer) -> Iterator[Charge]:
    """Seconds of the collectives in which tensor-parallel chips add up the partial sums of kernels' outputs.

    A scheme that splits a contraction leaves partial sums (Shoeybi et al., 2019, section 3). The seconds are those of
    the collective of :func:`inherent` on the whole output (:func:`~dfopt.terms.communication.between_shards_s`). Those
    that run beside the kernel's matrix product do not count (``tensor_overlap``), and the chip's own work for the
    collective does (``collective_work``).

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``network_s``, in s of one evaluation, for every kernel. The option of the kernel decides it: 0 for
        options that need no collective. The block of the kernel pays it once. Nothing is yielded without tensor
        parallelism.
    """
    for k in range(len(layer.kernels) if layer.degree > 1 else 0):
        size, kinds = layer.graph.output_bytes(k), inherent(layer, k)
        seconds = [between_shards_s(layer.instance, kind, size, k, behind=(k,)) if kind else 0.0 for kind in kinds]
        yield Charge("network_s", Has(k), (k,), np.array(seconds))


COLLECTIVES = Term("collectives", "Shoeybi et al., 2019, section 3: partial sums of a split contraction", collectives)


def conversions(layer: Layer) -> Iterator[Charge]:
    """Seconds of the collectives that bring every tensor into the layouts that its readers need (resharding).

    The block that makes the tensor pays, once for all readers (DFModel, section IV.B, figure 6). With sequence
    parallelism the tensors that the forward pass saves keep their layout in memory. Then every block with a kernel of a
    later pass that reads such a tensor converts it again and pays for that (Korthikanti et al., 2022, section 4.2.2).
    Under any value of the assumption ``backward_gathers`` but None, the block of its source pays instead.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``network_s``, in s of one evaluation, for every entry of :attr:`~dfopt.terms.layer.Layer.wanted`:
        a tensor with some of its readers. The amount is :meth:`~dfopt.terms.layer.Layer.conversion` of the layout
        that the source leaves and the set of layouts that the readers need. If the source pays, the entry has one
        charge. The block of the source pays it once, and the options of source and readers decide it. If readers pay
        (``tolls`` of the entry), the entry has one charge for each non-empty set of its readers
        (:class:`~dfopt.terms.incidence.Exactly`). Every block that holds exactly this set of them pays it once, and the
        options of the source and of this set decide it. Nothing is yielded without tensor parallelism.
    """
    for wanted in layer.wanted:
        if wanted.tolls:
            yield from _by_readers(layer, wanted)
        else:
            yield _charge(layer, wanted, wanted.layouts_ko, layer.conversion(wanted)[0], Has(wanted.fan.source))


def has_many_readers(layer: Layer) -> bool:
    """Whether some tensor has so many readers that the seconds of its conversion cannot be listed by their options.

    Then :func:`conversions` must not be asked for: it would list more than :data:`MOST_LISTED` amounts.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan.
    """

    def listed(wanted: Wanted) -> int:
        sizes = {k: len(layer.schemes_k[k]) for k in {wanted.fan.source, *wanted.layouts_ko}}
        in_blocks = {k: sizes[k] + wanted.tolls for k in wanted.layouts_ko}  # or in no block of a set
        return math.prod((sizes | in_blocks).values())

    return any(listed(wanted) > MOST_LISTED for wanted in layer.wanted)


def _by_readers(layer: Layer, wanted: Wanted) -> Iterator[Charge]:
    """A conversion that every block pays for the readers that it holds, by which of them these are."""
    seconds, readers = layer.conversion(wanted)[0], tuple(sorted(wanted.layouts_ko))
    for held in itertools.product((False, True), repeat=len(readers)):
        here = {kernel: wanted.layouts_ko[kernel] for kernel, inside in zip(readers, held, strict=True) if inside}
        if here:
            yield _charge(layer, wanted, here, seconds, Exactly(readers, held))


def _charge(
    layer: Layer, wanted: Wanted, wanted_ko: Mapping[int, Ints], seconds: Floats, incidence: Has | Exactly
) -> Charge:
    """Seconds of a conversion by the options of the source and of some readers; a source may read its own output."""
    source = wanted.fan.source
    scope = tuple(sorted({source, *wanted_ko}))
    shape = [len(layer.schemes_k[k]) for k in scope]

    def along(kernel: int, of_options: Ints) -> Ints:
        return of_options.reshape([-1 if k == kernel else 1 for k in scope])

    layouts = np.zeros(shape, dtype=np.int64)
    for kernel, bits in wanted_ko.items():
        layouts |= along(kernel, bits)
    produced = np.broadcast_to(along(source, layer.produced_ko[source]), shape)
    return Charge("network_s", incidence, scope, seconds[produced, layouts])


CONVERSIONS = Term("layout conversions", "DFModel, section IV.B, figure 6", conversions)


def least_conversions(layer: Layer) -> Iterator[Charge]:
    """Lower bounds on the seconds of :func:`conversions`, which leave out readers where arrays would be too large.

    A charge of :func:`conversions` has an amount for each combination of options of the source and all readers of a
    tensor. A tensor that fewer readers want takes no longer to convert, so a bound may leave readers out. For each
    entry of :attr:`~dfopt.terms.layer.Layer.wanted` (a tensor with some of its readers), readers are taken in the order
    of ``layouts_ko``. A reader with which the number of amounts would be above :data:`~dfopt.terms.table.MERGED` is
    left out, and the next one is tried.

    Who pays is as in :func:`conversions`. If the block of the source pays, the bound counts the readers that are taken.
    If each block that holds readers pays (``tolls`` of the entry), the bound has a charge for each non-empty set of
    them. It then needs all n readers, and 2^n at most ``MERGED``: else the entry counts as 0, and nothing is yielded.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``network_s``, in s of one evaluation, paid as those of :func:`conversions` are. Nothing is yielded
        without tensor parallelism.
    """
    for wanted in layer.wanted:
        amounts, some = len(layer.schemes_k[wanted.fan.source]), dict[int, Ints]()
        for kernel, bits in wanted.layouts_ko.items():
            more = 1 if kernel == wanted.fan.source else len(layer.schemes_k[kernel])
            if amounts * more <= MERGED:
                amounts, some = amounts * more, some | {kernel: bits}
        if not wanted.tolls:
            yield _charge(layer, wanted, some, layer.conversion(wanted)[0], Has(wanted.fan.source))
        elif len(some) == len(wanted.layouts_ko) and 2 ** len(some) <= MERGED:
            yield from _by_readers(layer, wanted)


LEAST_CONVERSIONS = Term("layout conversions, at least", "DFModel, section IV.B, figure 6", least_conversions)


def own_communications(layer: Layer) -> Iterator[Charge]:
    """Seconds of communications that kernels of the graph state themselves, such as an all-to-all of routed experts.

    A kernel states a collective, its bytes and the chips that take part, such as all data-parallel copies. The seconds
    are those of that collective on the network (:attr:`dfopt.setting.instance.Instance.own_communication_s`). With
    two-batch overlap, which the plan turns on (``two_batch_overlap``), they hide behind the work of another microbatch.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        For a kernel that states communications their seconds in one evaluation, a constant of ``network_s`` that its
        block pays once. Nothing is yielded for other kernels, nor with two-batch overlap.
    """
    for k, seconds in enumerate(layer.instance.own_communication_s.tolist()):
        if seconds:
            yield Charge("network_s", Has(k), (), np.array(seconds))


OWN_COMMUNICATIONS = Term("own communications", "stated by the kernels of the graph", own_communications)


def reduced_each(layer: Layer) -> Iterator[Charge]:
    """Seconds in which chips add up each kernel's weight gradient in every evaluation, under ``gradients: dfmodel``.

    An evaluation takes the seconds of one all-reduce of a step over the number of microbatches of the step, as
    DFModel's program counts (:func:`~dfopt.terms.communication.added_up_s`).

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        An amount of ``network_s``, in s of one evaluation, for every kernel, decided by its option and paid once by its
        block. 0 for a kernel without a weight gradient, and where no other chip has the same weight. Nothing is yielded
        unless ``gradients: dfmodel`` is assumed.
    """
    if not adds_up_at_once(layer.assumptions):
        return
    for k, kernel in enumerate(LayerKernel.all_of(layer)):
        seconds = [added_up_s(layer.instance, k, size) for size in gradient_bytes(kernel).tolist()]
        yield Charge("network_s", Has(k), (k,), np.array(seconds))


REDUCED_EACH = Term("gradients of every evaluation", "DFModel's program adds gradients up in each", reduced_each)


def starts(layer: Layer) -> Iterator[Charge]:
    """Seconds that every block (set of kernels that the chip runs together) takes to start, such as a kernel launch.

    Parameters
    ----------
    layer
        What one chip does in one evaluation (one microbatch): kernels, tensors and plan. An *option* of a kernel is a
        sharding scheme that it may take. A *block* is a set of kernels that the chip runs together.

    Yields
    ------
    Charge
        One amount of ``network_s``, in s of one evaluation: the assumption ``kernel_overhead``, or 0 if that is None.
        It is a constant. Every block with any kernel pays it once.
    """
    everyone = AnyOf(tuple(range(len(layer.kernels))))
    yield Charge("network_s", everyone, (), np.array(layer.assumptions.kernel_overhead or 0.0))


STARTS = Term("kernel launches", "kernel_overhead of the assumptions", starts)
