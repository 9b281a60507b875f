"""Where the seconds of a step go: parts that add up to it, and how long links are busy meanwhile."""

from __future__ import annotations

import math

from dfopt.documents.base import Part

__all__ = ["Breakdown", "LinkTime"]


class _Seconds(Part):
    """Fields in seconds, which add up."""

    @property
    def total(self) -> float:
        """Seconds of all of them."""
        return math.fsum(dict(self).values())

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of the parts that take any time, by name without the unit."""
        return {name.removesuffix("_s"): seconds for name, seconds in dict(self).items() if seconds > 0}


class Breakdown(_Seconds):
    """Seconds of a step by what a pipeline stage does in them, all its microbatches; their sum is the step time.

    Work is what a partition takes with a network that takes no time, by the pass of its kernels (of several passes by
    their FLOP); communication is exposed: what it makes the partition longer. The meaning of the parts is that of
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


class LinkTime(_Seconds):
    """Seconds of a step in which a chip of the slowest stage sends or waits for a link, whether the step waits or not.

    Beside the exposed parts of `Breakdown` of the same names: what is longer here is hidden behind work. What a chip
    does for a collective (adding up, copying) is no time of a link. Gradients are those of the stage with most of them.

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
