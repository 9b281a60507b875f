"""Which kernels no mapping puts beside others on a chip: where their heat is, is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfopt.documents.sections import kernels_by_kind
from dfopt.heat.balanced_power import crowding
from dfopt.physics import ops
from dfopt.physics.dtypes import slowdown
from dfopt.setting.instance import Instance

__all__ = ["Together", "together"]

_SLACK = 2e-6  # by which the judge lets SRAM be exceeded, and a little


class Together(NamedTuple):
    """Names of the kernels that are alone in their partitions, and the crowding of the others."""

    alone: frozenset[str]
    crowding: float


def together(instance: Instance, interleaved: bool = False) -> Together:
    """What is known of partitions under a plan, whatever the mapping.

    A kernel whose weights (and the gradients that it adds to) are more than SRAM under every sharding runs in parts,
    alone in its partition. Of the others a partition holds no more than have room for theirs. Where all compute at one
    rate, and share the chip in balance, that bounds their crowding: `dfopt.heat.balanced_power`.

    Parameters
    ----------
    instance : Instance
        The plan in its setting.
    interleaved : bool
        Whether the stack spreads every kernel over all tiles.
    """
    graph, system, assumptions = instance.graph, instance.system, instance.assumptions
    if assumptions.compute_model == "cycle":  # a kernel is on its own tiles, and may leave others idle
        return Together(frozenset(), 1.0 if interleaved else np.inf)
    every = frozenset(kernel.name for kernel in graph.kernels)
    if interleaved or assumptions.execution == "kernel_by_kernel":
        return Together(every, 1.0)
    rules, degree, words, room = (
        assumptions.sharding_rules,
        instance.plan.shards,
        graph.words,
        system.chip.sram.capacity,
    )
    held: dict[str, float] = {}
    for kernel in graph.kernels:
        schemes = ops.legal_schemes(kernel, degree, assumptions)
        weight = min(ops.weight_share(kernel, z, degree, rules) for z in schemes)
        held[kernel.name] = ops.weights_at_once(kernel) * words.of_weight(kernel) * weight
        if assumptions.gradients == "exact":
            made = min(ops.output_share(kernel, z, degree, rules) for z in schemes)
            held[kernel.name] += ops.gradients_at_once(kernel) * words.activations * made
    alone = frozenset(name for name, size in held.items() if size > room * (1 + _SLACK))
    most = 1
    for kernels in kernels_by_kind(graph):
        sizes = np.sort([held[kernel.name] for kernel in kernels if kernel.name not in alone])
        most = max(most, int((np.cumsum(sizes) <= room * (1 + _SLACK)).sum()))
    one_rate = len({slowdown(graph, kernel, system.chip) for kernel in graph.kernels}) == 1
    even_time = assumptions.compute_model == "fixed" and one_rate
    return Together(alone, crowding(most, system.chip.tiles) if even_time else np.inf)
