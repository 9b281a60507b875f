"""Weights and their gradients: what an evaluation moves of them, and what stays on the chip while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.graph import Kernel
from dfopt.documents.saved import added_bytes, reduced_bytes
from dfopt.physics import ops
from dfopt.terms.charges import Charge, Term
from dfopt.terms.incidence import Has
from dfopt.terms.layer import Layer

__all__ = ["GRADIENTS", "WEIGHTS", "accumulated", "gradient_bytes", "stays", "weight_bytes"]


def weight_bytes(layer: Layer, kernel: int, elements: Callable[[Kernel], float]) -> Floats:
    """Bytes of the part of a kernel's weight that one chip has, under each of its options.

    ``elements``: how many of it, such as all, or those that an evaluation reads.
    """
    of = layer.kernels[kernel]
    return (elements(of) * layer.graph.words.of_weight(of)) * layer.weight_share_ko[kernel]


def stays(layer: Layer, kernel: int) -> bool:
    """Whether a kernel has a weight or an accumulator that stays on the chip while it runs, and may be cut."""
    of = layer.kernels[kernel]
    adds = layer.assumptions.gradients == "exact" and ops.gradients_at_once(of) > 0
    return adds or ops.weights_at_once(of) > 0


def weights(layer: Layer) -> Iterator[Charge]:
    """A block reads the weights of its kernels from DRAM once and holds them; of experts one at a time."""
    counted = layer.instance.counted
    for k, kernel in enumerate(layer.kernels):
        if layer.assumptions.weights_from_dram:
            read = weight_bytes(layer, k, ops.weights_read) * counted.of_weight(kernel)
            yield Charge("dram_bytes", Has(k), (k,), read)
        yield Charge("stationary_bytes", Has(k), (k,), weight_bytes(layer, k, ops.weights_at_once))


WEIGHTS = Term("weights", "DFModel, section V.A: a partition loads the weights of its kernels", weights)


def accumulated(layer: Layer, kernel: int) -> Floats:
    """Bytes of a kernel's weight gradient that an evaluation adds to, under each of its options."""
    if layer.assumptions.gradients != "exact":
        return 0.0 * layer.output_share_ko[kernel]
    size = ops.gradients_added(layer.kernels[kernel]) * added_bytes(layer.graph, layer.assumptions)
    return size * layer.output_share_ko[kernel]


def gradient_bytes(layer: Layer, kernel: int) -> Floats:
    """Bytes of a kernel's weight gradient as copies add it up, under each of its options."""
    size = ops.gradient_elements(layer.kernels[kernel]) * reduced_bytes(layer.graph)
    return size * layer.output_share_ko[kernel]


def gradients(layer: Layer) -> Iterator[Charge]:
    """Weight gradients are accumulated over microbatches: in DRAM between evaluations, in SRAM during one.

    The authors' program leaves that out, and adds gradients of the copies up in every microbatch instead.
    """
    passes = layer.assumptions.gradient_passes
    for k, kernel in enumerate(layer.kernels):
        if layer.assumptions.gradients == "dfmodel":
            reduced = [layer.instance.amortized_gradient_s(k, float(size)) for size in gradient_bytes(layer, k)]
            yield Charge("network_s", Has(k), (k,), np.array(reduced))
            continue
        yield Charge("dram_bytes", Has(k), (k,), passes * accumulated(layer, k))
        held = ops.gradients_at_once(kernel) * layer.graph.words.activations * layer.output_share_ko[k]
        yield Charge("stationary_bytes", Has(k), (k,), held)


GRADIENTS = Term("weight gradients", "Narayanan et al., SC21, section 2: accumulated over microbatches", gradients)
