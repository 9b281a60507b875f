"""What the judge says about a mapping: times, traffic, memory, and what binds.

On a real stack of dies also effective bandwidth, energy, temperature and throttling. SI units throughout, at the end
of the name (``_s``); only temperatures are in degrees Celsius (``_c``).
"""

from __future__ import annotations

import math
from typing import ClassVar

from dfopt.documents.base import Document, Part
from dfopt.documents.breakdown import Breakdown, LinkTime, MemoryBreakdown
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.metrics import METRICS
from dfopt.documents.physical_score import BoundBy, PhysicalScore
from dfopt.units import show_unit


class PartitionScore(Part):
    """Figures of one partition of a stage, for one microbatch and layer.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage of the partition.
    partition : no unit, e.g. 0
        Number of the on-chip partition within its stage.
    kernels : e.g. [Q, K, QK]
        Names of the kernels that are fused in the partition.
    tiles : tiles, e.g. [40, 40, 52]
        Compute tiles of each kernel, in the order of ``kernels``.
    compute_s : s, e.g. 0.0004
        Compute time of the partition for one microbatch and one layer.
    memory_s : s, e.g. 0.0003
        Time of its off-chip memory traffic for one microbatch and one layer.
    network_s : s, e.g. 0.0001
        Time of its communication for one microbatch and one layer, with the assumed overhead of starting a partition.
    time_s : s, e.g. 0.0005
        Time of the partition for one microbatch and one layer, after overlap.
    bound_by : e.g. compute
        Resource with the longest time in the partition. ``compute``: the compute rate. ``memory``: the off-chip memory.
        ``network``: communication. ``sram``: the on-chip memory.
    flop : FLOP, e.g. 1200000000000.0
        Work of one chip in the partition for one microbatch and one layer.
    dram_bytes : B, e.g. 400000000.0
        Off-chip memory traffic of one chip in the partition for one microbatch and one layer.
    sram_bytes : B, e.g. 90000000.0
        On-chip memory of one chip that the partition occupies.
    sram_s : s, e.g. 0.0002
        Time of its on-chip memory traffic for one microbatch and one layer. None: the bandwidth of the SRAM has no
        limit.
    through : B, e.g. {HBM: 300000000.0, DDR: 100000000.0}
        Part of ``dram_bytes`` that passes through each memory, by name. None: the chip has one memory.
    """

    stage: int
    partition: int
    kernels: tuple[str, ...]
    tiles: tuple[int, ...]
    compute_s: float
    memory_s: float
    network_s: float
    time_s: float
    bound_by: BoundBy
    flop: float
    dram_bytes: float
    sram_bytes: float
    sram_s: float | None = None
    through: dict[str, float] | None = None

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of each resource; SRAM only if its bandwidth is limited."""
        seconds = {"compute": self.compute_s, "memory": self.memory_s, "network": self.network_s}
        return seconds if self.sram_s is None else seconds | {"sram": self.sram_s}


class StageScore(Part):
    """Figures of one distinct pipeline stage, for one microbatch.

    ``holds`` are the stages of the mapping whose kernels it runs: its own, or of a folded graph the kinds of its
    layers. Layers that are counted take ``layer_time_s``, on average; the others take ``once_time_s`` together.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage.
    layers : layers, e.g. 12
        Number of layers that the stage runs.
    layer_time_s : s, e.g. 0.004
        Mean time of one layer for one microbatch.
    once_time_s : s, e.g. 0.001
        Time of all kernels that run once, such as the embedding or the logits, for one microbatch.
    point_to_point_s : s, e.g. 0.0001
        Time of transfers to other stages for one microbatch.
    time_s : s, e.g. 0.05
        Time of the stage for one microbatch.
    offload_forward_s : s, e.g. 0.002
        Time in which the forward pass waits for slower memories of the chip. None: the mapping uses none.
    offload_backward_s : s, e.g. 0.002
        Time in which the backward pass waits for slower memories of the chip. None: the mapping uses none.
    holds : no unit, e.g. [0, 1]
        Numbers of the mapping's stages, or kinds of layers, whose kernels this stage runs.
    times : evaluations, e.g. [12, 1]
        Number of times that the stage runs each entry of ``holds`` for one microbatch. None: the layers belong to the
        first entry, and all others run once.
    recomputed : layers, e.g. 3
        Fewest layers that need activation recomputation for the stage to fit, where the plan chooses a number. None:
        the plan chooses none.
    states : B, e.g. {dram: {weights: 5500000000.0, optimizer: 4000000000.0}}
        Bytes that one chip stores, by memory and by state: weights, gradients, optimizer, activations, tables.
    """

    stage: int
    layers: int
    layer_time_s: float
    once_time_s: float = 0.0
    point_to_point_s: float
    time_s: float
    offload_forward_s: float | None = None
    offload_backward_s: float | None = None
    holds: tuple[int, ...] = ()
    times: tuple[int, ...] | None = None
    recomputed: int | None = None
    states: dict[str, dict[str, float]]

    @property
    def runs(self) -> dict[int, int]:
        """Number of evaluations of each stage of the mapping for one microbatch."""
        held = self.holds or (self.stage,)
        return dict(zip(held, self.times or (self.layers, *(1 for _ in held[1:])), strict=True))

    def held_in(self, memory: str) -> float:
        """Bytes that one chip of this stage stores in a memory."""
        return math.fsum(self.states.get(memory, {}).values())

    @property
    def dram_bytes(self) -> float:
        """Bytes that one chip of this stage stores in all off-chip memories."""
        return math.fsum(size for held in self.states.values() for size in held.values())


class Score(Document):
    """The judge's figures of a mapping; one step processes one global batch.

    Attributes
    ----------
    step_time_s : s, e.g. 5.033
        Time of one step, which processes one global batch.
    layer_time_s : s, e.g. 0.004
        Mean time of one layer for one microbatch in the slowest pipeline stage.
    pipeline_fill_s : s, e.g. 0.3
        Time of a step in which the pipeline fills and drains.
    point_to_point_s : s, e.g. 0.002
        Time of a step for transfers between pipeline stages, where the assumption ``point_to_point`` counts them once
        per step. Otherwise they are a part of the time of each stage.
    gradient_reduction_s : s, e.g. 0.06
        Time that the step waits for replicas to add up gradients and to gather weights that they shard.
    optimizer_step_s : s, e.g. 0.02
        Time of the optimizer step after the gradient reduction. None: the assumptions give it no time.
    gradient_link_s : s, e.g. 0.2
        Time in which links carry gradients, whether the step waits or not. None: no reduction is overlapped.
    flop_per_step : FLOP, e.g. 1200000000000000000.0
        Work of all chips in one step, without activation recomputation.
    utilization : share, e.g. 0.52
        Work of all kernels without recomputation, divided by step time x chips x peak rate of each kernel's type.
    model_flop_utilization : share, e.g. 0.66
        MFU: FLOP of the forward pass's matrix products (three times that in training), divided by step time x chips x
        peak rate.
    hardware_flop_utilization : share, e.g. 0.7
        HFU: FLOP of all matrix products that run, recomputation included, divided by step time x chips x peak rate.
    samples_per_s : samples/s, e.g. 48.0
        Samples of the global batch divided by the step time.
    tokens_per_s : tokens/s, e.g. 98400.0
        Tokens that the step processes divided by the step time.
    produced_tokens_per_s : tokens/s, e.g. 1847.0
        Tokens that sequences gain in serving, divided by the step time. None: the graph does not serve.
    bound_by : e.g. compute
        Resource that bounds the largest share of the time of the slowest stage. ``compute``: the compute rate.
        ``memory``: the off-chip memory. ``network``: communication. ``sram``: the on-chip memory.
    compute_share : share, e.g. 0.88
        Share of the time of the slowest stage in partitions that compute bounds.
    memory_share : share, e.g. 0.05
        Share of the time of the slowest stage in partitions that the off-chip memory bounds.
    network_share : share, e.g. 0.07
        Share of the time of the slowest stage in partitions that communication bounds.
    sram_share : share, e.g. 0.01
        Share of the time of the slowest stage in partitions that the on-chip memory bounds. None: the bandwidth of the
        SRAM has no limit.
    stages
        Times and stored bytes of each distinct pipeline stage.
    partitions
        Times and traffic of each on-chip partition.
    collectives : no unit, e.g. {all_reduce.forward: 4}
        Number of collectives of each kind and pass in one layer and microbatch.
    price_usd : USD, e.g. 250000.0
        Price of the whole system. None: a part has no price.
    power_w : W, e.g. 5600.0
        Power of the whole system. None: a part has no power.
    energy_per_step_j : J, e.g. 28000.0
        Power of the system multiplied by the step time. None: a part has no power.
    unpriced : e.g. {price_usd: a link has no price}
        Reason why the price or the power of the system is unknown, with the known rest. None: both are known.
    breakdown : e.g. {forward_s: 1.2, backward_s: 2.4}
        Parts of the step time of the slowest pipeline stage, which add up to it.
    stage_breakdowns : e.g. [{forward_s: 1.2, backward_s: 2.4}]
        Parts of the step time of each pipeline stage.
    link_time : e.g. {tensor_parallel_s: 0.5}
        Time in which links of the slowest stage are busy, exposed or overlapped.
    link_latency_s : s, e.g. 0.01
        Part of ``link_time`` that is latency, which no bandwidth shortens.
    memory : e.g. [{weights_b: 5500000000, caches_b: 2700000000}]
        Memory of one chip of each pipeline stage, by use.
    formulas : e.g. {samples_per_s: samples of the global batch / step_time_s}
        Formulas of the figures in words.
    violations : e.g. ["stage 0 holds 90 GB, the DRAM has 80 GB"]
        Sentences that describe each limit that the mapping breaks.
    notes : e.g. [fp8 products compute in bf16]
        Sentences about substitutions in the figures, such as a wider type than you asked for. None: nothing.
    physical
        Times, heat and energy on the stack of dies. None: the system has no stack.
    """

    SCHEMA: ClassVar[str] = "dfopt/score/1"

    step_time_s: float
    layer_time_s: float
    pipeline_fill_s: float
    point_to_point_s: float
    gradient_reduction_s: float
    optimizer_step_s: float | None = None
    gradient_link_s: float | None = None
    flop_per_step: float
    utilization: float
    model_flop_utilization: float
    hardware_flop_utilization: float
    samples_per_s: float
    tokens_per_s: float
    produced_tokens_per_s: float | None = None
    bound_by: BoundBy
    compute_share: float
    memory_share: float
    network_share: float
    sram_share: float | None = None
    stages: tuple[StageScore, ...]
    partitions: tuple[PartitionScore, ...]
    collectives: dict[str, int]
    price_usd: float | None = None
    power_w: float | None = None
    energy_per_step_j: float | None = None
    unpriced: dict[str, str] | None = None
    breakdown: Breakdown
    stage_breakdowns: tuple[Breakdown, ...]
    link_time: LinkTime
    link_latency_s: float
    memory: tuple[MemoryBreakdown, ...]
    formulas: dict[str, str]
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] | None = None
    physical: PhysicalScore | None = None

    @property
    def has_kinds(self) -> bool:
        """Whether the model has layers of several kinds."""
        return any(len(stage.holds) > 1 for stage in self.stages)

    @property
    def sustained(self) -> Score:
        """The score at the clock that the die stack sustains; unchanged without a stack."""
        if self.physical is None or self.physical.step_time_s == self.step_time_s:
            return self
        share = self.step_time_s / self.physical.step_time_s
        figures = {name: getattr(self, name) for name, metric in METRICS.items() if metric.rate}
        rates = {name: share * rate for name, rate in figures.items() if rate is not None}
        return self.model_copy(update={"step_time_s": self.physical.step_time_s, **rates})

    @property
    def feasible(self) -> bool:
        """Whether every limit (SRAM, DRAM, tiles, order) is kept."""
        return not self.violations

    def __repr__(self) -> str:
        limits = f", {len(self.violations)} limits broken" * bool(self.violations)
        step = show_unit(self.step_time_s, "time")
        return f"Score({step} a step, {100 * self.utilization:.3g} % of peak, bound by {self.bound_by}{limits})"

    __str__ = __repr__

    def _partitions_html(self) -> str:
        several = any(part.sram_s is not None for part in self.partitions)
        terms = ("compute", "DRAM", "network", *(["SRAM"] if several else []))
        columns = ("stage", "partition", "kernels", *terms, "time", "bound by")
        rows = []
        for part in self.partitions:
            times = (*part.terms.values(), part.time_s)
            names = ", ".join(part.kernels[:6]) + (f", ... {len(part.kernels) - 6} more" * (len(part.kernels) > 6))
            shown = [show_unit(value, "time") for value in times]
            rows.append([str(part.stage), str(part.partition), names, *shown, part.bound_by])
        return table_html("Partitions, for one layer and one microbatch", columns, rows)

    def _repr_html_(self) -> str:
        facts = [
            ("step time", show_unit(self.step_time_s, "time")),
            ("utilization", f"{100 * self.utilization:.2f} %"),
            ("bound by", self.bound_by),
            *(("limit broken", sentence) for sentence in self.violations),
        ]
        return facts_html(facts) + self._partitions_html()
