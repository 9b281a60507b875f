"""Seconds in which tensor-parallel chips communicate beside their work, and copies add up gradients in evaluations."""

from __future__ import annotations

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.beside import collective_s
from dfopt.physics.collectives import Collective
from dfopt.physics.network import NO_BYTES, amortized_gradient_seconds
from dfopt.physics.tiled import CommunicationTime, Products, beside_s, spread_s, usage_of, waves_of
from dfopt.setting.instance import Instance


def is_of_bytes(assumptions: Assumptions) -> bool:
    """Whether a tensor's bytes alone decide how long a collective on it takes, whichever kernels make and read it."""
    return assumptions.collective_work is None and assumptions.tensor_overlap is None


def between_shards_s(
    instance: Instance,
    kind: Collective | None,
    volume: float,
    kernel: int,
    again: bool = False,
    behind: tuple[int, ...] = (),
) -> float:
    """Seconds of one evaluation that a collective of the tensor-parallel chips adds to the work of their kernels.

    An evaluation is one microbatch. The time on the network follows from the assumption ``collective_model``
    (:mod:`dfopt.physics.network`). Under ``collective_work`` the chip's own work is added, such as to add up what
    arrives (:mod:`dfopt.physics.beside`). Under ``tensor_overlap`` matrix products may hide a part of the seconds, and
    only the rest counts (:mod:`dfopt.physics.tiled`).

    Parameters
    ----------
    instance
        Setting (workload, machine and assumptions) and plan, which says how many chips share the tensors.
    kind
        The collective, such as an all-reduce. None: there is no communication.
    volume : B
        Bytes of the whole tensor that the collective works on, before any sharding.
    kernel : int
        Number, in the graph, of the kernel that makes the tensor.
    again : bool
        Whether the collective repeats one of the forward pass for the backward pass. Then ``collective_work`` may count
        less work of the chip. A collective on the output of a recomputed kernel always counts as repeated.
    behind : tuple of int
        Numbers of the kernels whose matrix products may hide the collective under ``tensor_overlap``. Empty: nothing
        hides it.

    Returns
    -------
    float, s
        0 without a collective, without bytes, or without tensor parallelism.

    Raises
    ------
    ValueError
        If the volume of a collective is infinite or NaN, and several chips share the tensor.
    """
    plan, graph, chip, chosen = instance.plan, instance.graph, instance.system.chip, instance.assumptions
    dims, shards = plan.shard_dims, plan.shards
    seconds = instance.communication_s(kind, volume, dims)
    if kind is None or seconds <= 0 or is_of_bytes(chosen):
        return seconds
    source = graph.kernels[kernel]
    elements, again = volume / graph.words.of_output(source), again or source.pass_ == "recompute"
    on_chip_s = collective_s(kind, volume, elements, shards, chip, chosen, again)
    if chosen.tensor_overlap is None:
        return seconds + on_chip_s
    waves, latency_s = 1, 0.0
    if chosen.tensor_overlap == "waves":
        waves = waves_of([graph.kernels[number] for number in behind], shards, chip)
        latency_s = instance.communication_s(kind, NO_BYTES, dims)
    compute_s = sum(_spread_s(instance, number) for number in behind)
    products = Products(compute_s, shards, usage_of(instance.system, dims), waves)
    return beside_s(kind, CommunicationTime(seconds, latency_s, on_chip_s), products, chosen)


def _spread_s(instance: Instance, kernel: int) -> float:
    """Seconds of a kernel spread evenly over the chips that share it."""
    setting = instance.setting
    product = [(setting.graph.kernels[kernel], setting.rate_k[kernel])]

    def spread(plan: Plan) -> float:
        return spread_s(product, plan.shards, setting.system.chip, setting.assumptions)

    seconds: float = setting.reads["spread", kernel].answer(instance.plan, spread)
    return seconds


def added_up_s(instance: Instance, kernel: int, volume: float) -> float:
    """Seconds of one evaluation in which chips add up the weight gradient of a kernel, as DFModel's program counts.

    They are the seconds of one all-reduce per step, divided by the number of microbatches of a step. An evaluation is
    one microbatch. The caller has to use them under ``gradients: dfmodel`` only. Under ``gradients: exact`` the
    all-reduce counts at the end of the step instead.

    Parameters
    ----------
    instance
        Setting (workload, machine and assumptions) and plan, which says which chips hold copies of a weight.
    kernel : int
        Number of the kernel in the graph.
    volume : B
        Bytes of its weight gradient on one chip, under the sharding scheme of the kernel.

    Returns
    -------
    float, s
        0 if no other chip has the same shard of the weight, as without data-parallel copies and without a module-wise
        parallel axis (mp).

    Raises
    ------
    ValueError
        If the volume is infinite or NaN, unless ``gradient_bandwidth`` is stated.
    """
    parts = [
        amortized_gradient_seconds(float(share_k[kernel]) * volume, dims, instance.system, instance.assumptions)
        for dims, share_k in instance.adding
    ]
    return sum(parts) / instance.plan.microbatches
