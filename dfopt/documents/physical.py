"""What the judge says of a mapping on a real stack of dies: effective bandwidth, energy, temperature, throttling.

SI units with a suffix; temperatures are in degrees Celsius (``_c``).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dfopt.documents.base import Part


class PartitionPhysics(Part):
    """One partition for one microbatch and one layer, on one chip; of several pipeline stages the slowest."""

    stage: int
    partition: int
    frequency: float = Field(description="share of the nominal frequency of compute")
    compute_s: float
    memory_s: float
    network_s: float
    time_s: float
    bound_by: Literal["compute", "memory", "network"]
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
