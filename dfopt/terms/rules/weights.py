"""Weights and their gradients: what an evaluation moves of them, and what stays on the chip while it runs.

Rules yield pairs of the name of a resource and a float array, shape (options,): what the block of the kernel pays once,
under each option of the kernel. Bytes are those of one chip in one evaluation.

Suffix: o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.physics import ops
from dfopt.terms.charges import Term
from dfopt.terms.kernel import LayerKernel, output_share, schemes, weight_bytes


def stays(of: LayerKernel) -> bool:
    """Whether a kernel has a weight, or an accumulator of a weight gradient, that stays in SRAM while it runs.

    An accumulator counts under the assumption ``gradients: exact`` only. If the kernel is alone on the chip and does
    not fit SRAM, the weight or accumulator is what may be cut into parts.

    Parameters
    ----------
    of
        The kernel.
    """
    adds = of.assumptions.gradients == "exact" and ops.gradients_at_once(of.kernel) > 0
    return adds or ops.weights_at_once(of.kernel) > 0


def weight_flows(of: LayerKernel) -> Iterator[tuple[bool, Floats]]:
    """Bytes of a kernel's weight and weight gradient that one chip reads from memory or writes there in one evaluation.

    Weights are read. A gradient that is accumulated is read and written. Under ``gradient_traffic: written`` it is only
    written.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (bool, float array of shape (options,), B)
        Whether the bytes are written (else they are read), and the bytes of this flow under each option, in the memory
        where they lie: none counts as more for a slower memory. First the weight, if ``weights_from_dram`` is true.
        Then the gradient, under ``gradients: exact``: one pair that reads it and one that writes it, or only the one
        that writes it. Zeros for a kernel without a weight, or without a weight gradient.
    """
    if of.assumptions.weights_from_dram:
        yield False, weight_bytes(of, ops.weights_read)
    if of.assumptions.gradients == "exact":
        added_o = accumulated(of)
        yield from ((write, added_o) for write in (False, True)[-of.assumptions.gradient_passes :])


def weights(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM bytes of the weight that a kernel reads in every evaluation, and SRAM bytes of the weight while it runs.

    Both are elements of the weight, times bytes per element, times the share of one chip (DFModel, section V.A: a
    partition loads the weights of its kernels). Routed experts run one after another. So SRAM holds one of them at a
    time, and DRAM traffic is that of the experts that some token of the evaluation chooses.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``dram_bytes``, B: the weights that are read. A byte in a slower
        memory counts as more bytes, so that their number over the bandwidth of the fastest memory is the time. Not
        yielded under ``weights_from_dram: false``. ``stationary_bytes``, B: the weights that are in SRAM at a time.
        Nothing is yielded for a kernel without a weight.
    """
    if not ops.weight_elements(of.kernel):
        return
    if of.assumptions.weights_from_dram:
        yield "dram_bytes", weight_bytes(of, ops.weights_read) * of.counted.of_weight(of.kernel)
    yield "stationary_bytes", weight_bytes(of, ops.weights_at_once)


WEIGHTS = Term.of_kernel("weights", "DFModel, section V.A: a partition loads the weights of its kernels", weights)


def accumulated(of: LayerKernel) -> Floats:
    """Bytes of a kernel's weight gradient that one evaluation adds to on one chip, under each of its options.

    They are elements of the gradient, times bytes per element, times the share of one chip. They count once, though an
    evaluation may read and write them. An element has the type of activations, or that of ``main_gradients`` of the
    graph under ``gradient_traffic: held``.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Returns
    -------
    float array, shape (options,), B
        Of routed experts only those count that some token of the evaluation chooses. Zeros under ``gradients:
        dfmodel``, and for all kernels but those of op ``weight_update``.
    """
    added = ops.gradients_added(of.kernel) if of.assumptions.gradients == "exact" else 0.0
    return added * of.added_word * output_share(of) if added else np.zeros(len(schemes(of)))


def gradient_bytes(of: LayerKernel) -> Floats:
    """Bytes of a kernel's weight gradient on one chip, in the type in which data-parallel copies add it up.

    They are elements of the gradient, times bytes per element, times the share of one chip.

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Returns
    -------
    float array, shape (options,), B
        Bytes under each option. All routed experts count. Zeros for all kernels but those of op ``weight_update``.
    """
    elements = ops.gradient_elements(of.kernel)
    return elements * of.reduced_word * output_share(of) if elements else np.zeros(len(schemes(of)))


def gradients(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """DRAM and SRAM bytes of a kernel's weight gradient, which is accumulated over microbatches.

    It lies in DRAM between evaluations and in SRAM during one (Narayanan et al., SC21, section 2). The rule holds under
    ``gradients: exact``. Under ``gradients: dfmodel`` accumulation is free, as in DFModel's program, which adds up the
    gradients of the data-parallel copies in every microbatch instead (:func:`~dfopt.terms.rules.network.reduced_each`).

    Parameters
    ----------
    of
        The kernel. Its options are the sharding schemes that it may take.

    Yields
    ------
    (str, float array of shape (options,))
        Name of a resource, and its amount under each option: on one chip, in one
        evaluation of the layer (one microbatch). ``dram_bytes``, B: the gradient (:func:`accumulated`) read and
        written, so twice; or once under ``gradient_traffic: written``. ``stationary_bytes``, B: the accumulator in SRAM
        in the type of activations, of routed experts that of one at a time. Nothing is yielded for a kernel of another
        op than ``weight_update``, nor under ``gradients: dfmodel``.
    """
    if of.assumptions.gradients == "exact" and ops.gradient_elements(of.kernel):
        yield "dram_bytes", of.assumptions.gradient_passes * accumulated(of)
        yield "stationary_bytes", ops.gradients_at_once(of.kernel) * of.words.activations * output_share(of)


GRADIENTS = Term.of_kernel(
    "weight gradients", "Narayanan et al., SC21, section 2: accumulated over microbatches", gradients
)
