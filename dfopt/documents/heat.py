"""What heat costs a mapping: three answers side by side, and what a kelvin is worth."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from dfopt.documents.base import Document, Part
from dfopt.documents.mapping import Mapping

HeatName = Literal["ignore", "throttle", "aware"]


class HeatAnswer(Part):
    """One way to deal with heat, as the judge sees it on the stack. Temperatures in degC, times in seconds."""

    name: HeatName
    mapping: Mapping
    step_time_s: float = Field(description="with the memory's effective bandwidth, at the clocks of the mapping")
    interval_s: float = Field(description="between two microbatches, pauses included")
    pause_s: float = Field(description="idle time of that, added to keep the limits")
    lowest_frequency: float = Field(description="of a partition, as a share of the nominal frequency")
    partitions: int
    logic_max_c: float
    dram_max_c: float | None = Field(default=None, description="none if the memory is beside the stack")
    refresh_rate: float
    power_w: float = Field(description="of the hottest chip's stack")
    energy_per_step_j: float
    keeps_limits: bool
    violations: tuple[str, ...] = ()


class SlowedPartition(Part):
    """A partition of the heat-aware mapping below the nominal frequency."""

    stage: int
    partition: int
    frequency: float
    kernels: tuple[str, ...]


HEAT_WORDS = {
    "optimal_per_level": "optimal for this plan, its sharding and the stack's limits",
    "gap_reached": "stopped at the gap that was asked for",
    "limit_with_solution": "stopped by a limit on time or on rounds",
}


STATUS_WORDS: dict[str, str] = HEAT_WORDS | {
    "optimal": "optimal: no mapping in the space is better",
    "optimal_per_level": "optimal per level",
    "limit_with_solution": "stopped by the time limit",
    "interrupted_with_solution": "stopped by Ctrl-C",
}


def status_name(status: str) -> str:
    """What a solve or a cell ended with, in words.

    Examples
    --------
    >>> status_name("optimal"), status_name("limit_with_solution"), status_name("no_solution")
    ('optimal', 'stopped by the time limit', 'no solution')
    """
    return STATUS_WORDS.get(status, status.replace("_", " ")).partition(":")[0]


class HeatProof(Part):
    """What the optimiser showed of the heat-aware mapping, at the last leakage and refresh rate."""

    status: Literal["optimal_per_level", "gap_reached", "limit_with_solution"]
    bound_s: float = Field(description="interval that no choice of blocks and levels beats, in seconds")
    interval_s: float = Field(description="of the optimiser: the judge's agrees where the temperatures have settled")
    gap: float
    blocks: int = Field(description="blocks of kernels that were considered")
    levels: int
    columns: int = Field(description="blocks at levels that the bound left to the MILP")
    rounds: int = Field(description="solves until leakage and temperatures agreed")
    seconds: float
    note: str = ""

    @field_validator("status", mode="before")
    @classmethod
    def _from_version_1(cls, value: object) -> object:
        return "optimal_per_level" if value == "optimal" else value


class ShadowPrice(Part):
    """What a higher limit is worth: seconds of a step per kelvin."""

    lp_logic_s_per_k: float = Field(description="by the duals of the LP relaxation, of the limit on the logic die")
    lp_dram_s_per_k: float = Field(description="of the limit on the DRAM dies, or of the threshold of their refresh")
    lp_power_s_per_w: float = 0.0
    one_kelvin_more_s: float | None = Field(
        default=None,
        description="step time gained by 1 K on both limits, solved anew; none if not asked, or out of time",
    )
    binding: tuple[str, ...] = Field(default=(), description="the rows that bind, the dearest first")


class HeatReport(Document):
    """Three answers for one plan and sharding: ignore heat, throttle after the fact, heat-aware.

    ``ignore`` and ``throttle`` have one mapping, the fastest without heat at the memory's effective bandwidth.
    ``throttle`` runs it at the highest uniform level that keeps the limits, with pauses if even the lowest is too hot.
    ``aware`` chooses partitions, a level for each of them and pauses together.
    """

    SCHEMA: ClassVar[str] = "dfopt/heat/1"

    graph: str
    system: str
    stack: str
    plan: str
    limit_logic_c: float | None = None
    limit_dram_c: float | None = None
    limit_power_w: float | None = None
    answers: tuple[HeatAnswer, ...]
    proof: HeatProof | None = Field(default=None, description="none if there is no heat-aware mapping")
    price: ShadowPrice | None = None
    slowed: tuple[SlowedPartition, ...] = ()
    note: str = ""

    def answer(self, name: HeatName) -> HeatAnswer | None:
        """The answer of a name, none if it was not found."""
        return next((one for one in self.answers if one.name == name), None)

    @property
    def speedup(self) -> float | None:
        """Step time of the throttled mapping over that of the heat-aware one; none if one is missing."""
        throttle, aware = self.answer("throttle"), self.answer("aware")
        if throttle is None or aware is None:
            return None
        return throttle.step_time_s / aware.step_time_s
