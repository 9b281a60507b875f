"""One DRAM channel: streams of bursts for the formula of `dfopt.technology.dram`, a simulator of the banks, the energy.

`bounds` asks the formula, `simulate` runs the scheduler, `why_simulate` says which of the two holds, `energy` the
joules.
"""

from dram_channel.bounds import bounds, bounds_of_many
from dram_channel.energy import DramEnergy, EnergySplit, energy
from dram_channel.simulate import Policy, Request, SimResult, simulate, why_simulate
from dram_channel.types import BandwidthBounds, Organisation, Stream, Timing

__all__ = [
    "BandwidthBounds", "DramEnergy", "EnergySplit", "Organisation", "Policy", "Request", "SimResult", "Stream",
    "Timing", "bounds", "bounds_of_many", "energy", "simulate", "why_simulate",
]  # fmt: skip
