"""Where the seconds of a step go: parts that add up to it, and how long links are busy meanwhile."""

from __future__ import annotations

import math

from pydantic import Field

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
        """Those that take time, without the unit in their names."""
        return {name.removesuffix("_s"): seconds for name, seconds in dict(self).items() if seconds > 0}


class Breakdown(_Seconds):
    """Seconds of a step by what a pipeline stage does in them, all its microbatches; their sum is the step time.

    Work is what a partition takes with a network that takes no time, by the pass of its kernels (of several passes by
    their FLOP); communication is exposed: what it makes the partition longer. The meaning of the parts is that of
    Calculon (Isaev et al., SC'23, section 4), where work and exposed communication add up in the same way.

    Examples
    --------
    >>> parts = Breakdown(forward_s=1.0, backward_s=2.0, bubble_s=0.5)
    >>> parts.total, list(parts.parts)
    (3.5, ['forward', 'backward', 'bubble'])
    """

    forward_s: float = Field(default=0.0, description="work of the forward pass")
    backward_s: float = Field(default=0.0, description="work of the backward pass, gradients of weights among it")
    recompute_s: float = Field(default=0.0, description="work that the backward pass does again")
    optimizer_s: float = Field(default=0.0, description="work of the optimizer's step")
    tensor_parallel_s: float = Field(default=0.0, description="exposed, between chips that share the work of a kernel")
    exchange_s: float = Field(default=0.0, description="exposed, what kernels list: experts, contexts, tables, panels")
    recomputed_communication_s: float = Field(default=0.0, description="exposed, of either kind, of what is done again")
    pipeline_parallel_s: float = Field(default=0.0, description="exposed, between pipeline stages")
    data_parallel_s: float = Field(default=0.0, description="exposed, gradients between copies of the batch")
    overhead_s: float = Field(default=0.0, description="exposed, starting partitions, and what is assumed of a step")
    bubble_s: float = Field(default=0.0, description="the pipeline fills and drains; a stage waits for a slower one")
    offload_forward_s: float = Field(
        default=0.0, description="exposed, of the forward pass: what moves between the memories of a chip"
    )
    offload_backward_s: float = Field(default=0.0, description="the same of the backward pass")
    pause_s: float = Field(default=0.0, description="pauses of a heat-aware mapping")


class LinkTime(_Seconds):
    """Seconds of a step in which a chip of the slowest stage sends or waits for a link, whether the step waits or not.

    Beside the exposed parts of `Breakdown` of the same names: what is longer here is hidden behind work. What a chip
    does for a collective (adding up, copying) is no time of a link. Gradients are those of the stage with most of them.

    Examples
    --------
    >>> LinkTime(tensor_parallel_s=2.0, data_parallel_s=0.5).parts
    {'tensor_parallel': 2.0, 'data_parallel': 0.5}
    """

    tensor_parallel_s: float = Field(default=0.0, description="between chips that share the work of a kernel")
    exchange_s: float = Field(default=0.0, description="what kernels list: experts, contexts, tables, panels")
    recomputed_communication_s: float = Field(default=0.0, description="of either kind, of what is done again")
    pipeline_parallel_s: float = Field(default=0.0, description="between pipeline stages")
    data_parallel_s: float = Field(default=0.0, description="gradients between copies of the batch, and weights")
