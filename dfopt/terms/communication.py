"""Seconds in which tensor-parallel chips communicate beside their work, and copies add up gradients in evaluations."""

from __future__ import annotations

from dfopt.documents.plan import Plan
from dfopt.physics.beside import collective_s
from dfopt.physics.collectives import Collective
from dfopt.physics.network import NO_BYTES, amortized_gradient_seconds
from dfopt.physics.tiled import Products, Sent, beside_s, spread_s, usage_of, waves_of
from dfopt.setting.instance import Instance

__all__ = ["added_up_s", "between_shards_s"]


def between_shards_s(
    instance: Instance,
    kind: Collective | None,
    volume: float,
    kernel: int,
    again: bool = False,
    behind: tuple[int, ...] = (),
) -> float:
    """Seconds that a collective of the tensor-parallel chips adds to the work of their kernels.

    Under ``tensor_overlap`` products may hide a part of it, which does not count. Under ``collective_work`` a chip has
    work of its own for it, which counts.

    Parameters
    ----------
    instance
        Setting and plan.
    kind
        The collective; None for no communication.
    volume : B
        Bytes of the whole tensor that it works on, before any sharding.
    kernel : int
        Number of the kernel that makes the tensor.
    again : bool
        Whether it repeats a collective of the forward pass for the backward pass. What a recomputed kernel makes always
        counts so.
    behind : tuple of int
        Numbers of the kernels whose matrix products may hide it.

    Returns
    -------
    float, s
        0 without a collective, without bytes, or if only one chip has a kernel.
    """
    plan, graph, chip, chosen = instance.plan, instance.graph, instance.system.chip, instance.assumptions
    dims, shards = plan.shard_dims, plan.shards
    seconds = instance.communication_s(kind, volume, dims)
    if kind is None or seconds <= 0 or (chosen.collective_work, chosen.tensor_overlap) == (None, None):
        return seconds
    made = graph.kernels[kernel]
    elements, again = volume / graph.words.of_output(made), again or made.pass_ == "recompute"
    on_chip_s = collective_s(kind, volume, elements, shards, chip, chosen, again)
    if chosen.tensor_overlap is None:
        return seconds + on_chip_s
    waves, latency_s = 1, 0.0
    if chosen.tensor_overlap == "waves":
        waves = waves_of([graph.kernels[number] for number in behind], shards, chip)
        latency_s = instance.communication_s(kind, NO_BYTES, dims)
    compute_s = sum(_spread_s(instance, number) for number in behind)
    products = Products(compute_s, shards, usage_of(instance.system, dims), waves)
    return beside_s(kind, Sent(seconds, latency_s, on_chip_s), products, chosen)


def _spread_s(instance: Instance, kernel: int) -> float:
    """Seconds of a kernel spread evenly over the chips that share it."""
    setting = instance.setting
    product = [(setting.graph.kernels[kernel], setting.rate_k[kernel])]

    def spread(plan: Plan) -> float:
        return spread_s(product, plan.shards, setting.system.chip, setting.assumptions)

    found: float = setting.reads["spread", kernel].answer(instance.plan, spread)
    return found


def added_up_s(instance: Instance, kernel: int, volume: float) -> float:
    """Seconds of one evaluation in which chips add up the weight gradient of a kernel, as DFModel's program does.

    That is the all-reduce of a whole step, over its number of microbatches (``gradients: dfmodel``).

    Parameters
    ----------
    instance
        Setting and plan.
    kernel : int
        Number of the kernel.
    volume : B
        Bytes of its weight gradient that one chip adds up.

    Returns
    -------
    float, s
        0 where no other chip has the same weight.
    """
    parts = [
        amortized_gradient_seconds(float(share_k[kernel]) * volume, dims, instance.system, instance.assumptions)
        for dims, share_k in instance.adding
    ]
    return sum(parts) / instance.plan.microbatches
