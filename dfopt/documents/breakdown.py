"""Where the seconds of a step and the bytes of a chip go: parts that add up to them, and how long links are busy."""

from __future__ import annotations

import math

from dfopt.documents.base import Part


class _Parts(Part):
    """Fields of one unit, which add up."""

    @property
    def total(self) -> float:
        """All of them together."""
        return math.fsum(dict(self).values())

    @property
    def parts(self) -> dict[str, float]:
        """Those that are not nothing, by name without the unit."""
        return {name.rpartition("_")[0]: size for name, size in dict(self).items() if size > 0}


class Breakdown(_Parts):
    """Seconds of a step by what a pipeline stage does, over all its microbatches; they add up to the step.

    Work is the time of a partition with an infinitely fast network, by the pass of its kernels (for several passes by
    their FLOP). Communication is exposed: the time that it adds to the partition. The meaning of the parts is that of
    Calculon (Isaev et al., SC'23, section 4), where work and exposed communication add up in the same way.

    Attributes
    ----------
    forward_s : s, e.g. 1.2
        Time of the step that computes the forward pass, without communication.
    backward_s : s, e.g. 2.4
        Time of the step that computes the backward pass, weight gradients included, without communication.
    recompute_s : s, e.g. 0.4
        Time of the step that computes activations again for the backward pass, without communication.
    optimizer_s : s, e.g. 0.02
        Time of the step in which the optimizer updates the weights.
    tensor_parallel_s : s, e.g. 0.3
        Exposed time of communication between tensor-parallel chips, which share the work of a kernel.
    exchange_s : s, e.g. 0.1
        Exposed time of communication that kernels list themselves, for experts, contexts, tables or panels.
    recomputed_communication_s : s, e.g. 0.05
        Exposed time of communication that activation recomputation repeats.
    pipeline_parallel_s : s, e.g. 0.02
        Exposed time of transfers between pipeline stages.
    data_parallel_s : s, e.g. 0.06
        Exposed time of gradient reduction between data-parallel replicas.
    overhead_s : s, e.g. 0.01
        Exposed time of starting partitions, and the assumed overhead of a step.
    bubble_s : s, e.g. 0.1
        Time in which the pipeline fills and drains, or a stage waits for a slower one.
    offload_forward_s : s, e.g. 0.03
        Exposed time of the forward pass in which data moves between the memories of a chip.
    offload_backward_s : s, e.g. 0.04
        Exposed time of the backward pass in which data moves between the memories of a chip.
    pause_s : s, e.g. 0.002
        Time of pauses that a heat-aware mapping makes to cool the chip.

    Examples
    --------
    >>> parts = Breakdown(forward_s=1.0, backward_s=2.0, bubble_s=0.5)
    >>> parts.total, list(parts.parts)
    (3.5, ['forward', 'backward', 'bubble'])
    """

    forward_s: float = 0.0
    backward_s: float = 0.0
    recompute_s: float = 0.0
    optimizer_s: float = 0.0
    tensor_parallel_s: float = 0.0
    exchange_s: float = 0.0
    recomputed_communication_s: float = 0.0
    pipeline_parallel_s: float = 0.0
    data_parallel_s: float = 0.0
    overhead_s: float = 0.0
    bubble_s: float = 0.0
    offload_forward_s: float = 0.0
    offload_backward_s: float = 0.0
    pause_s: float = 0.0


class LinkTime(_Parts):
    """Seconds of a step in which a chip of the slowest stage sends or waits for a link, whether the step waits or not.

    The parts have the names of the exposed parts of `Breakdown`; the difference is hidden behind work. Work of a chip
    for a collective (reducing, copying) is not link time. Gradients are those of the stage with most of them.

    Attributes
    ----------
    tensor_parallel_s : s, e.g. 0.5
        Time in which links carry communication between tensor-parallel chips, exposed or overlapped.
    exchange_s : s, e.g. 0.1
        Time in which links carry communication that kernels list themselves, exposed or overlapped.
    recomputed_communication_s : s, e.g. 0.05
        Time in which links carry communication that activation recomputation repeats, exposed or overlapped.
    pipeline_parallel_s : s, e.g. 0.04
        Time in which links carry transfers between pipeline stages, exposed or overlapped.
    data_parallel_s : s, e.g. 0.2
        Time in which links carry gradients between replicas, and weights that they shard, exposed or overlapped.

    Examples
    --------
    >>> LinkTime(tensor_parallel_s=2.0, data_parallel_s=0.5).parts
    {'tensor_parallel': 2.0, 'data_parallel': 0.5}
    """

    tensor_parallel_s: float = 0.0
    exchange_s: float = 0.0
    recomputed_communication_s: float = 0.0
    pipeline_parallel_s: float = 0.0
    data_parallel_s: float = 0.0


class MemoryBreakdown(_Parts):
    """Bytes of a chip of a pipeline stage over all its memories, by use; they add up to all that it stores.

    The meaning of the parts is that of Calculon (Isaev et al., SC'23, section 3), whose activations are ours and those
    of the layer at work.

    Attributes
    ----------
    weights_b : B, e.g. 5500000000
        Memory of a chip that weights, tables and resident matrices take.
    activations_b : B, e.g. 47000000000
        Memory of a chip that activations take between the forward pass and the backward pass.
    checkpoints_b : B, e.g. 8000000000
        Memory of a chip that the inputs of layers take from which all other activations are recomputed.
    working_b : B, e.g. 1200000000
        Memory of a chip that activations of the layer at work take, while they wait between partitions, are recomputed
        or are sent.
    activation_gradients_b : B, e.g. 400000000
        Memory of a chip that gradients of activations of the layer at work take.
    weight_gradients_b : B, e.g. 11000000000
        Memory of a chip that gradients of parameters take.
    optimizer_b : B, e.g. 4000000000
        Memory of a chip that the optimizer state takes, main weights included.
    caches_b : B, e.g. 2700000000
        Memory of a chip that KV caches and recurrent states of sequences take.

    Examples
    --------
    >>> parts = MemoryBreakdown(weights_b=2.0, weight_gradients_b=4.0, optimizer_b=12.0)
    >>> parts.total, list(parts.parts)
    (18.0, ['weights', 'weight_gradients', 'optimizer'])
    """

    weights_b: float = 0.0
    activations_b: float = 0.0
    checkpoints_b: float = 0.0
    working_b: float = 0.0
    activation_gradients_b: float = 0.0
    weight_gradients_b: float = 0.0
    optimizer_b: float = 0.0
    caches_b: float = 0.0
