"""What the judge says about a mapping: times, traffic, memory, and what binds.

On a real stack of dies also effective bandwidth, energy, temperature and throttling. SI units throughout, at the end
of the name (``_s``); only temperatures are in degrees Celsius (``_c``).
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from dfopt.documents.base import Document, Part
from dfopt.documents.breakdown import Breakdown, LinkTime
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.memory_breakdown import MemoryBreakdown
from dfopt.units import format as show_unit

Bound = Literal["compute", "memory", "network", "sram"]
_RATES: Final = (
    "samples_per_s", "tokens_per_s", "produced_tokens_per_s", "utilization", "model_flop_utilization",
    "hardware_flop_utilization",
)  # fmt: skip


class PartitionScore(Part):
    """One on-chip partition of one stage of the mapping, for one microbatch and one layer."""

    stage: int
    partition: int
    kernels: tuple[str, ...]
    tiles: tuple[int, ...]
    compute_s: float
    memory_s: float
    network_s: float = Field(description="communication, and the assumed overhead of starting the partition")
    time_s: float
    bound_by: Bound
    flop: float
    dram_bytes: float
    sram_bytes: float = Field(description="that it holds")
    sram_s: float | None = Field(default=None, description="of SRAM traffic; none where its bandwidth has no limit")
    through: dict[str, float] | None = Field(
        default=None, description="of dram_bytes, those of each memory of a chip that has several"
    )

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of each resource; of SRAM where its bandwidth is limited."""
        found = {"compute": self.compute_s, "memory": self.memory_s, "network": self.network_s}
        return found if self.sram_s is None else found | {"sram": self.sram_s}


class StageScore(Part):
    """One distinct pipeline stage, for one microbatch.

    ``holds`` are the stages of the mapping whose kernels it runs: its own, or of a folded graph the kinds of its
    layers. Layers that are counted take ``layer_time_s``, on average; the others take ``once_time_s`` together.
    """

    stage: int
    layers: int
    layer_time_s: float
    once_time_s: float = 0.0
    point_to_point_s: float
    time_s: float
    offload_forward_s: float | None = Field(
        default=None, description="in which it waits for slower memories of a chip in its forward pass, if it uses any"
    )
    offload_backward_s: float | None = Field(default=None, description="the same in its backward pass")
    holds: tuple[int, ...] = ()
    times: tuple[int, ...] | None = Field(
        default=None, description="how often it runs each of those; none: the layers are of the first, others run once"
    )
    recomputed: int | None = Field(
        default=None,
        description="fewest layers that have to be computed again for the stage to fit, where a plan says how many are",
    )
    states: dict[str, dict[str, float]] = Field(
        description="bytes that one chip holds, by memory and by state: weights, gradients, optimizer, activations,"
        " tables; none of a state that it does not hold"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_a_field_per_state(cls, data: Any) -> Any:
        """Results of earlier versions had a field for each state, ``dram_weights_bytes`` and so on."""
        if not isinstance(data, dict) or "states" in data:
            return data
        old = {key: value for key, value in data.items() if re.fullmatch("dram_[a-z]+_bytes", key)}
        named = {key[5:-6].replace("resident", "tables"): value for key, value in old.items() if value}
        return {**{key: value for key, value in data.items() if key not in old}, "states": {"dram": named}}

    @property
    def offload_s(self) -> float:
        """Seconds in which it waits for slower memories of a chip."""
        return (self.offload_forward_s or 0.0) + (self.offload_backward_s or 0.0)

    @property
    def runs(self) -> dict[int, int]:
        """How often it runs which stages of the mapping for one microbatch."""
        held = self.holds or (self.stage,)
        return dict(zip(held, self.times or (self.layers, *(1 for _ in held[1:])), strict=True))

    def held_in(self, memory: str) -> float:
        """Bytes that one chip of this stage holds in a memory."""
        return math.fsum(self.states.get(memory, {}).values())

    @property
    def dram_bytes(self) -> float:
        """All that one chip of this stage holds in its off-chip memories."""
        return math.fsum(size for held in self.states.values() for size in held.values())


class PartitionPhysics(Part):
    """One partition for one microbatch and one layer, on one chip; of several pipeline stages the slowest."""

    stage: int
    partition: int
    frequency: float = Field(description="share of the nominal frequency of compute")
    compute_s: float
    memory_s: float
    network_s: float
    sram_s: float | None = None
    time_s: float
    bound_by: Bound
    dram_bandwidth_b_per_s: float = Field(description="bytes / time of the memory's streams, all channels")
    dram_binding: str = Field(description="what limits the memory for most of its time; none without traffic")
    bursts_per_activate: float
    read_share: float = Field(description="of the bytes")
    energy_j: float = Field(description="of the work itself, without what flows as time goes by")


class DieHeat(Part):
    """One die of a chip in the steady state: its hottest cell and its mean."""

    die: str
    kind: Literal["logic", "dram", "passive"]
    power_w: float
    max_c: float
    mean_c: float


class TileHeat(Part):
    """One tile of a floorplan in the steady state."""

    die: str
    tile: str
    power_w: float
    mean_c: float


class ChipHeat(Part):
    """A chip of one distinct pipeline stage in the steady state."""

    stage: int
    stage_time_s: float = Field(description="of one microbatch; it waits for the slowest stage")
    power_w: float = Field(description="heat of the stack: without memory beside it")
    refresh_rate: float = Field(description="of its DRAM, as a multiple of the normal rate")
    refresh_kept: bool = Field(description="at this rate the DRAM is cool enough for a lower one, at which it is not")
    dies: tuple[DieHeat, ...]
    tiles: tuple[TileHeat, ...]


class PhysicalScore(Part):
    """The judge's figures on a stack. One step is one global batch; energies are those of all chips."""

    stack: str
    step_time_s: float
    modelled_step_time_s: float = Field(description="with the bandwidth that the system states, whatever the heat")
    slowdown: float = Field(description="step time / modelled step time")
    interval_s: float = Field(description="between two microbatches: the time of the slowest stage")
    frequency: float = Field(description="share of the nominal frequency that keeps the limits, of the whole chip")
    throttled: bool
    iterations: int
    loop_gain: float = Field(description="further leakage per watt of leakage: below 1, or thermal runaway")
    energy_per_step_j: float
    energy_per_token_j: float
    energy_j: dict[str, float] = Field(description="the energy of a step by component")
    power_w: float = Field(description="heat of the hottest chip's stack in the steady state")
    logic_max_c: float
    dram_max_c: float | None = Field(default=None, description="none if the memory is beside the stack")
    dram_bandwidth_b_per_s: float | None = Field(
        default=None, description="of one layer and microbatch, all partitions; none without traffic"
    )
    refresh_rate: float
    partitions: tuple[PartitionPhysics, ...]
    chips: tuple[ChipHeat, ...]
    runaway: bool = False
    limits_broken: tuple[Literal["logic", "dram", "power", "runaway", "convergence", "capacity"], ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] | None = Field(default=None, description="what the figures are not confirmed for")

    @property
    def keeps_limits(self) -> bool:
        """Whether it could run like this for ever."""
        return not self.violations

    @property
    def hottest_chip(self) -> ChipHeat:
        """The chip with the hottest cell."""
        return max(self.chips, key=lambda chip: max(die.max_c for die in chip.dies))

    def hottest_tiles(self, count: int = 5) -> tuple[TileHeat, ...]:
        """The tiles with the highest means on the hottest chip, hottest first."""
        return tuple(sorted(self.hottest_chip.tiles, key=lambda tile: -tile.mean_c)[:count])


class Score(Document):
    """The judge's figures for a mapping: one step is one global batch."""

    SCHEMA: ClassVar[str] = "dfopt/score/1"
    LATER: ClassVar = (
        "model_flop_utilization", "hardware_flop_utilization", "breakdown", "stage_breakdowns", "link_time",
        "link_latency_s", "memory", "formulas", "unpriced",
    )  # fmt: skip
    """What scores of before did not say."""

    step_time_s: float
    layer_time_s: float
    pipeline_fill_s: float
    point_to_point_s: float
    gradient_reduction_s: float = Field(
        description="in which copies of the batch add up gradients, and bring weights together that they share out; of"
        " gradients added up behind the backward pass what the step waits for"
    )
    optimizer_step_s: float | None = Field(
        default=None, description="of the optimizer, behind the reduction of gradients, if its step takes time"
    )
    gradient_link_s: float | None = Field(
        default=None, description="in which they do so, whether the step waits or not, if something is hidden"
    )
    flop_per_step: float
    utilization: float = Field(
        description="FLOP of all kernels but of what is computed again / (step time x chips x peak of its type)"
    )
    model_flop_utilization: float | None = Field(
        default=None,
        description="MFU: FLOP of the forward pass's matrix products, three times when training, over the same",
    )
    hardware_flop_utilization: float | None = Field(
        default=None, description="HFU: FLOP of all matrix products that run, over the same"
    )
    samples_per_s: float
    tokens_per_s: float = Field(description="that are processed")
    produced_tokens_per_s: float | None = Field(default=None, description="that sequences gain at least, in serving")
    bound_by: Bound
    compute_share: float
    memory_share: float
    network_share: float
    sram_share: float | None = Field(default=None, description="none where the bandwidth of SRAM has no limit")
    stages: tuple[StageScore, ...]
    partitions: tuple[PartitionScore, ...]
    collectives: dict[str, int]
    price_usd: float | None = Field(default=None, description="of the system; none if a part has no price")
    power_w: float | None = Field(default=None, description="of the system; none if a part has no power")
    energy_per_step_j: float | None = Field(default=None, description="power of the system x time of a step")
    unpriced: dict[str, str] | None = Field(
        default=None, description="of price and power those that a part lacks: what the other parts have, and the part"
    )
    breakdown: Breakdown | None = Field(
        default=None, description="of the step time, for its slowest stage; none in results of before"
    )
    stage_breakdowns: tuple[Breakdown, ...] | None = Field(
        default=None, description="of the step time, for each of the stages; none in results of before"
    )
    link_time: LinkTime | None = Field(
        default=None, description="in which links of the slowest stage are busy; none in results of before"
    )
    link_latency_s: float | None = Field(
        default=None, description="of the sum of link_time, that of latencies: links of any bandwidth would take it too"
    )
    memory: tuple[MemoryBreakdown, ...] | None = Field(
        default=None, description="what a chip of each of the stages holds; none in results of before"
    )
    formulas: dict[str, str] | None = Field(default=None, description="how figures follow from others, in words")
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] | None = Field(
        default=None, description="what the figures take in place of what was asked for, such as a wider type"
    )
    physical: PhysicalScore | None = Field(default=None, description="on a stack of dies; none without a stack")

    @property
    def has_kinds(self) -> bool:
        """Whether layers of several kinds were judged."""
        return any(len(stage.holds) > 1 for stage in self.stages)

    @property
    def sustained(self) -> Score:
        """These figures at the speed that a stack of dies keeps up; the same without a stack."""
        if self.physical is None or self.physical.step_time_s == self.step_time_s:
            return self
        share = self.step_time_s / self.physical.step_time_s
        rates = {name: share * rate for name in _RATES if (rate := getattr(self, name)) is not None}
        return self.model_copy(update={"step_time_s": self.physical.step_time_s, **rates})

    @property
    def feasible(self) -> bool:
        """Whether every limit (SRAM, DRAM, tiles, order) is kept."""
        return not self.violations

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
