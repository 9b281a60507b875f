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

__all__ = ["GRADIENTS", "WEIGHTS", "accumulated", "gradient_bytes", "stays", "weight_flows"]


def stays(of: LayerKernel) -> bool:
    """Whether a kernel has a weight, or an accumulator of a weight gradient, that stays on the chip while it runs.

    Where the kernel is alone in its block and does not fit SRAM, this is what may be cut into parts.
    """
    adds = of.assumptions.gradients == "exact" and ops.gradients_at_once(of.kernel) > 0
    return adds or ops.weights_at_once(of.kernel) > 0


def weight_flows(of: LayerKernel) -> Iterator[tuple[bool, Floats]]:
    """What an evaluation moves between DRAM and chip of a kernel's weight and weight gradient.

    Weights are read. A gradient that is accumulated is read and written, or only written.

    Yields
    ------
    (bool, float array of shape (options,), B)
        Whether it is written (else it is read), and bytes in the memory where they lie: for the weight unless
        partitions read none (``weights_from_dram``), and for each pass of the gradient under ``gradients: exact``.
    """
    if of.assumptions.weights_from_dram:
        yield False, weight_bytes(of, ops.weights_read)
    if of.assumptions.gradients == "exact":
        added_o = accumulated(of)
        yield from ((write, added_o) for write in (False, True)[-of.assumptions.gradient_passes :])


def weights(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """A block reads the weights of its kernels from DRAM once and holds them; of experts one at a time.

    Yields
    ------
    (str, float array of shape (options,))
        ``dram_bytes``, B, as the fastest memory counts them: what an evaluation reads. Not yielded if partitions read
        no weights (``weights_from_dram``). ``stationary_bytes``, B: what is in SRAM at a time. Nothing for a
        kernel without a weight.
    """
    if not ops.weight_elements(of.kernel):
        return
    if of.assumptions.weights_from_dram:
        yield "dram_bytes", weight_bytes(of, ops.weights_read) * of.counted.of_weight(of.kernel)
    yield "stationary_bytes", weight_bytes(of, ops.weights_at_once)


WEIGHTS = Term.of_kernel("weights", "DFModel, section V.A: a partition loads the weights of its kernels", weights)


def accumulated(of: LayerKernel) -> Floats:
    """Bytes of a kernel's weight gradient that an evaluation adds to, under each of its options.

    Returns
    -------
    float array, shape (options,), B
        Of routed experts only those count that some token of the evaluation chooses. Zeros under ``gradients:
        dfmodel``, and for all kernels but those of op ``weight_update``.
    """
    added = ops.gradients_added(of.kernel) if of.assumptions.gradients == "exact" else 0.0
    return added * of.added_word * output_share(of) if added else np.zeros(len(schemes(of)))


def gradient_bytes(of: LayerKernel) -> Floats:
    """Bytes of a kernel's weight gradient as copies add it up, under each of its options.

    Returns
    -------
    float array, shape (options,), B
        Of routed experts all count. Zeros for all kernels but those of op ``weight_update``.
    """
    elements = ops.gradient_elements(of.kernel)
    return elements * of.reduced_word * output_share(of) if elements else np.zeros(len(schemes(of)))


def gradients(of: LayerKernel) -> Iterator[tuple[str, Floats]]:
    """Weight gradients are accumulated over microbatches: in DRAM between evaluations, in SRAM during one.

    DFModel's program leaves that out, and adds gradients of the copies up in every microbatch instead.

    Yields
    ------
    (str, float array of shape (options,))
        ``dram_bytes``, B: what is read and written, or only written (``gradient_traffic``). ``stationary_bytes``, B:
        the accumulator in SRAM, of experts one at a time. Only of kernels of op ``weight_update``, and only under
        ``gradients: exact``.
    """
    if of.assumptions.gradients == "exact" and ops.gradient_elements(of.kernel):
        yield "dram_bytes", of.assumptions.gradient_passes * accumulated(of)
        yield "stationary_bytes", ops.gradients_at_once(of.kernel) * of.words.activations * output_share(of)


GRADIENTS = Term.of_kernel(
    "weight gradients", "Narayanan et al., SC21, section 2: accumulated over microbatches", gradients
)
