"""DRAM channels: the bandwidth that a stream of bursts gets, a simulator of the banks, and the energy.

`bounds` is the formula, `simulate` the scheduler, `why_simulate` which of the two holds, `energy` the joules.
"""

from dfopt.technology.dram.bounds import LIMITS, ManyBounds, bounds, bounds_of_many, refresh_factor
from dfopt.technology.dram.energy import DramEnergy, EnergySplit, energy
from dfopt.technology.dram.simulate import Policy, Request, SimResult, simulate, why_simulate
from dfopt.technology.dram.types import BandwidthBounds, Organisation, Stream, Timing

__all__ = [
    "BandwidthBounds", "DramEnergy", "EnergySplit", "LIMITS", "ManyBounds", "Organisation", "Policy",
    "Request", "SimResult", "Stream", "Timing", "bounds", "bounds_of_many", "energy", "refresh_factor",
    "simulate", "why_simulate",
]  # fmt: skip
