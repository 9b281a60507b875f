"""What the judge says about a mapping: times, traffic, memory, and what binds. SI units throughout."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from dfopt.documents.base import Document, Part
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.physical import PhysicalScore
from dfopt.units import format as show_unit

Bound = Literal["compute", "memory", "network"]


class PartitionScore(Part):
    """One on-chip partition of one stage of the mapping, for one microbatch and one layer."""

    stage: int
    partition: int
    kernels: tuple[str, ...]
    tiles: tuple[int, ...]
    compute_s: float
    memory_s: float
    network_s: float
    time_s: float
    bound_by: Bound
    flop: float
    dram_bytes: float
    sram_bytes: float


class StageScore(Part):
    """One distinct pipeline stage, for one microbatch.

    ``holds`` are the stages of the mapping whose kernels it runs: its own, or where some kernels of a repeated graph
    run once per microbatch 0, the layer, and 1 or 2, those before the first or after the last layer; these take
    ``once_time_s``.
    """

    stage: int
    layers: int
    layer_time_s: float
    once_time_s: float = 0.0
    point_to_point_s: float
    time_s: float
    holds: tuple[int, ...] = ()
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
    def dram_bytes(self) -> float:
        """All DRAM that one chip of this stage needs."""
        return math.fsum(self.states.get("dram", {}).values())


class Score(Document):
    """The judge's figures for a mapping: one step is one global batch."""

    SCHEMA: ClassVar[str] = "dfopt/score/1"

    step_time_s: float
    layer_time_s: float
    pipeline_fill_s: float
    point_to_point_s: float
    gradient_reduction_s: float
    flop_per_step: float
    utilization: float
    samples_per_s: float
    tokens_per_s: float
    bound_by: Bound
    compute_share: float
    memory_share: float
    network_share: float
    stages: tuple[StageScore, ...]
    partitions: tuple[PartitionScore, ...]
    collectives: dict[str, int]
    price_usd: float | None = Field(default=None, description="of the system; none if a part has no price")
    power_w: float | None = Field(default=None, description="of the system; none if a part has no power")
    energy_per_step_j: float | None = Field(default=None, description="power of the system x time of a step")
    violations: tuple[str, ...] = ()
    physical: PhysicalScore | None = Field(default=None, description="on a stack of dies; none without a stack")

    @property
    def has_pieces(self) -> bool:
        """Whether some kernels run once per microbatch and others in every layer."""
        return any(len(stage.holds) > 1 for stage in self.stages)

    @property
    def feasible(self) -> bool:
        """Whether every limit (SRAM, DRAM, tiles, order) is kept."""
        return not self.violations

    def _partitions_html(self) -> str:
        columns = ("stage", "partition", "kernels", "compute", "DRAM", "network", "time", "bound by")
        rows = []
        for part in self.partitions:
            times = (part.compute_s, part.memory_s, part.network_s, part.time_s)
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
