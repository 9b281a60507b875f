"""What the judge says about a mapping on a stack of dies: effective bandwidth, energy, temperature and throttling.

SI units throughout, at the end of the name (``_s``); only temperatures are in degrees Celsius (``_c``).
"""

from __future__ import annotations

from typing import Literal

from dfopt.documents.base import Part

BoundBy = Literal["compute", "memory", "network", "sram"]


class PartitionPhysics(Part):
    """One partition for one microbatch and one layer, on one chip; of several pipeline stages the slowest.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage of the partition.
    partition : no unit, e.g. 0
        Number of the on-chip partition within its stage.
    frequency : share, e.g. 0.9
        Frequency of compute in the partition, as a share of the nominal one.
    compute_s : s, e.g. 0.0004
        Compute time at this frequency for one microbatch and one layer.
    memory_s : s, e.g. 0.0003
        Time of off-chip memory traffic at the effective bandwidth, for one microbatch and one layer.
    network_s : s, e.g. 0.0001
        Time of communication for one microbatch and one layer.
    sram_s : s, e.g. 0.0002
        Time of on-chip memory traffic for one microbatch and one layer. None: the bandwidth of the SRAM has no limit.
    time_s : s, e.g. 0.0005
        Time of the partition for one microbatch and one layer, after overlap.
    bound_by : e.g. memory
        Resource with the longest time in the partition. ``compute``: the compute rate. ``memory``: the off-chip memory.
        ``network``: communication. ``sram``: the on-chip memory.
    dram_bandwidth_b_per_s : B/s, e.g. 12600000000000.0
        Effective bandwidth of the DRAM for the traffic of the partition, over all channels.
    dram_binding : e.g. activates
        Effect that limits the DRAM for most of the time of the partition. It is "none" without traffic.
    bursts_per_activate : bursts, e.g. 12.5
        Mean number of bursts that one activated row delivers.
    read_share : share, e.g. 0.8
        Share of the DRAM traffic that reads.
    energy_j : J, e.g. 0.03
        Energy of the work of the partition, without power that flows all the time.
    """

    stage: int
    partition: int
    frequency: float
    compute_s: float
    memory_s: float
    network_s: float
    sram_s: float | None = None
    time_s: float
    bound_by: BoundBy
    dram_bandwidth_b_per_s: float
    dram_binding: str
    bursts_per_activate: float
    read_share: float
    energy_j: float


class DieHeat(Part):
    """One die of a chip in the steady state: its hottest cell and its mean.

    Attributes
    ----------
    die : e.g. logic
        Name of the die in its stack.
    kind : e.g. logic
        Kind of work that the die does. ``logic``: it computes. ``dram``: it stores. ``passive``: it does neither.
    power_w : W, e.g. 160.0
        Heat that the die produces in the steady state.
    max_c : degC, e.g. 92.5
        Temperature of the hottest cell of the die in the steady state.
    mean_c : degC, e.g. 86.1
        Mean temperature of the die in the steady state.
    """

    die: str
    kind: Literal["logic", "dram", "passive"]
    power_w: float
    max_c: float
    mean_c: float


class TileHeat(Part):
    """One tile of a floorplan in the steady state.

    Attributes
    ----------
    die : e.g. logic
        Name of the die to which the tile belongs.
    tile : e.g. "0,3"
        Name of the tile in the floorplan of its die.
    power_w : W, e.g. 2.4
        Heat that the tile produces in the steady state.
    mean_c : degC, e.g. 88.0
        Mean temperature of the tile in the steady state.
    """

    die: str
    tile: str
    power_w: float
    mean_c: float


class ChipHeat(Part):
    """A chip of one distinct pipeline stage in the steady state.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage to which the chip belongs.
    stage_time_s : s, e.g. 0.05
        Time of the stage for one microbatch, before it waits for the slowest stage.
    power_w : W, e.g. 252.2
        Heat of the stack of the chip, without memory outside of the stack.
    refresh_rate : no unit, e.g. 2.0
        Refresh rate of the DRAM of the chip, as a multiple of the normal rate.
    refresh_kept : e.g. false
        Whether the DRAM is cool enough at this refresh rate for a lower one, but not at the lower one.
    dies
        Heat and temperatures of each die of the chip.
    tiles
        Heat and temperature of each tile of the chip.
    """

    stage: int
    stage_time_s: float
    power_w: float
    refresh_rate: float
    refresh_kept: bool
    dies: tuple[DieHeat, ...]
    tiles: tuple[TileHeat, ...]


class PhysicalScore(Part):
    """The judge's figures on a stack. One step is one global batch; energies are those of all chips.

    Attributes
    ----------
    stack : e.g. microbump-8
        Name of the stack of dies on which the mapping is judged.
    step_time_s : s, e.g. 820.4
        Step time that the stack sustains within its temperature and power limits.
    modelled_step_time_s : s, e.g. 762.9
        Step time with the DRAM bandwidth that the system states, at any temperature.
    slowdown : no unit, e.g. 1.075
        Sustained step time divided by the modelled step time.
    interval_s : s, e.g. 0.05
        Time between two microbatches: the time of the slowest stage.
    frequency : share, e.g. 0.93
        Share of the nominal frequency at which the whole chip keeps its limits.
    throttled : e.g. true
        Whether the chip must run below its nominal frequency to keep its limits.
    iterations : iterations, e.g. 7
        Number of iterations until temperatures, leakage and refresh rates agreed.
    loop_gain : no unit, e.g. 0.12
        Additional leakage for each watt of leakage. At 1 or more the temperature runs away.
    energy_per_step_j : J, e.g. 21580.0
        Energy of all chips for one step.
    energy_per_token_j : J, e.g. 0.004
        Energy of all chips for one token.
    energy_j : J, e.g. {flop: 9000.0, dram: 6000.0}
        Energy of all chips for one step, by component.
    power_w : W, e.g. 252.2
        Heat of the stack of the hottest chip in the steady state.
    logic_max_c : degC, e.g. 100.4
        Temperature of the hottest point of the logic die.
    dram_max_c : degC, e.g. 92.0
        Temperature of the hottest point of the DRAM dies. None: the memory is outside of the stack.
    dram_bandwidth_b_per_s : B/s, e.g. 12600000000000.0
        Effective bandwidth of the DRAM over all partitions of one layer and microbatch. None: there is no traffic.
    refresh_rate : no unit, e.g. 2.0
        Refresh rate of the DRAM of the hottest chip, as a multiple of the normal rate.
    partitions
        Times, effective bandwidth and energy of each partition on the stack.
    chips
        Heat of one chip of each distinct pipeline stage.
    runaway : e.g. false
        Whether leakage grows faster with temperature than the package removes heat.
    limits_broken : e.g. [logic, dram]
        Limits that the mapping breaks. ``logic``: temperature of the logic die. ``dram``: temperature of the DRAM dies.
        ``power``: power of the stack. ``runaway``: thermal runaway. ``convergence``: the temperatures did not settle.
        ``capacity``: the DRAM is too small.
    violations : e.g. [the logic die reaches 105 degC]
        Sentences that describe each broken limit.
    notes : e.g. [DRAM timings are unconfirmed]
        Sentences about figures that no source confirms. None: there are none.
    """

    stack: str
    step_time_s: float
    modelled_step_time_s: float
    slowdown: float
    interval_s: float
    frequency: float
    throttled: bool
    iterations: int
    loop_gain: float
    energy_per_step_j: float
    energy_per_token_j: float
    energy_j: dict[str, float]
    power_w: float
    logic_max_c: float
    dram_max_c: float | None = None
    dram_bandwidth_b_per_s: float | None = None
    refresh_rate: float
    partitions: tuple[PartitionPhysics, ...]
    chips: tuple[ChipHeat, ...]
    runaway: bool = False
    limits_broken: tuple[Literal["logic", "dram", "power", "runaway", "convergence", "capacity"], ...] = ()
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] | None = None

    @property
    def keeps_limits(self) -> bool:
        """Whether all thermal limits hold in the steady state."""
        return not self.violations

    @property
    def hottest_chip(self) -> ChipHeat:
        """The chip with the hottest cell."""
        return max(self.chips, key=lambda chip: max(die.max_c for die in chip.dies))

    def hottest_tiles(self, count: int = 5) -> tuple[TileHeat, ...]:
        """The ``count`` tiles with the highest mean temperatures on the hottest chip, in descending order."""
        return tuple(sorted(self.hottest_chip.tiles, key=lambda tile: -tile.mean_c)[:count])
