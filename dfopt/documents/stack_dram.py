"""The DRAM of a stack: channels, banks, timings, refresh, buffers and energies.

A channel is what has its own command and data bus: a (pseudo) channel of an HBM stack, or a vault of banks behind
one hybrid-bonded port. Timing names are those of the JEDEC standards.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Bytes, Joules, JoulesPerByte, Kelvin, Seconds, Watts


class DramTimings(Part):
    """Times of one channel; ``_S`` and ``_L`` are for commands to different and to the same bank group."""

    tCK: Seconds = Field(gt=0, description="period of the command clock")
    tBL: Seconds = Field(gt=0, description="data bus time of one burst")
    tRCDRD: Seconds = Field(gt=0, description="activate to read")
    tRCDWR: Seconds = Field(gt=0, description="activate to write")
    tRP: Seconds = Field(gt=0, description="precharge")
    tRAS: Seconds = Field(gt=0, description="activate to precharge")
    tRC: Seconds | None = Field(default=None, gt=0, description="activate to activate of a bank; none = tRAS + tRP")
    tRTP: Seconds = Field(ge=0, description="read to precharge")
    tWR: Seconds = Field(ge=0, description="end of write data to precharge")
    tCCD_S: Seconds = Field(gt=0, description="column command to column command")
    tCCD_L: Seconds = Field(gt=0)
    tRRD_S: Seconds = Field(gt=0, description="activate to activate of another bank")
    tRRD_L: Seconds = Field(gt=0)
    tFAW: Seconds = Field(gt=0, description="window that holds four activates at most")
    tWTR_S: Seconds = Field(ge=0, description="end of write data to read")
    tWTR_L: Seconds = Field(ge=0)
    tRTW: Seconds | None = Field(default=None, ge=0, description="read to write command; none = what the bus allows")
    CL: Seconds = Field(gt=0, description="read command to data")
    CWL: Seconds = Field(gt=0, description="write command to data")
    tRFC: Seconds = Field(gt=0, description="one all-bank refresh")
    tREFI: Seconds = Field(gt=0, description="between refreshes at the normal rate")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ns = 1e9
        for short, long in (("tCCD_S", "tCCD_L"), ("tRRD_S", "tRRD_L"), ("tWTR_S", "tWTR_L")):
            a, b = getattr(self, short), getattr(self, long)
            if a > b:
                message = f"found {short} = {a * ns:.6g} ns above {long} = {b * ns:.6g} ns"
                raise problem(message, "the same bank group is never faster", f"$.{short}")
        least = self.tRAS + self.tRP
        if self.tRC is not None and self.tRC < least * (1 - 1e-9):
            message = f"found {self.tRC * ns:.6g} ns, expected tRAS + tRP = {least * ns:.6g} ns or more"
            raise problem(message, "leave tRC out: it is then tRAS + tRP", "$.tRC")
        if self.tRFC >= self.tREFI:
            message = f"found tRFC = {self.tRFC * ns:.6g} ns, expected less than tREFI = {self.tREFI * ns:.6g} ns"
            raise problem(message, "else the channel does nothing but refresh", "$.tRFC")
        return self


class RefreshStep(Part):
    """Above a temperature, refreshes come ``rate`` times as often."""

    above: Kelvin = Field(gt=0)
    rate: float = Field(gt=0, le=64)


class DramBuffers(Part):
    """What waits for the memory: by Little's law the bandwidth is at most what is in flight per latency."""

    requests: int = Field(ge=1, le=10**6, description="bursts that one channel can have outstanding")
    round_trip: Seconds = Field(default=0.0, ge=0, description="on chip, beside the DRAM's own latency")


class DramEnergies(Part):
    """Energy of the commands of one channel, and of the way to the logic die."""

    activate: Joules = Field(ge=0, description="one activate with its precharge")
    read_burst: Joules = Field(ge=0)
    write_burst: Joules = Field(ge=0)
    refresh: Joules = Field(ge=0, description="one all-bank refresh")
    background: Watts = Field(ge=0, description="of one channel, whatever it does")
    io: JoulesPerByte = Field(default=0.0, ge=0, description="drivers and wires to the logic die")


class DramStack(Part):
    """All DRAM of one chip: ``channels`` alike, spread evenly over the DRAM dies and their floorplans.

    Of a stack without DRAM dies the memory is outside (DDR on the board, HBM beside the die): its heat goes elsewhere.
    """

    channels: int = Field(ge=1, le=10**5)
    capacity: Bytes = Field(gt=0, description="of all channels together")
    bank_groups: int = Field(ge=1, le=64)
    banks_per_group: int = Field(ge=1, le=1024)
    row: Bytes = Field(gt=0, description="bytes of one row (page) of a bank")
    burst: Bytes = Field(gt=0, description="bytes of one column access")
    interleave: Bytes = Field(gt=0, description="consecutive addresses that stay in one channel")
    io_bits: int = Field(ge=1, le=10**5, description="data connections of one channel")
    timings: DramTimings
    refresh: tuple[RefreshStep, ...] = Field(default=(), description="ascending; below the first the rate is 1")
    buffers: DramBuffers
    energies: DramEnergies

    @property
    def peak(self) -> float:
        """Bytes per second of all data buses: a burst per channel in each ``tBL``."""
        # To 15 digits: 2 ns is no binary number, and a system would be written with 16383.999999999998 GB/s.
        return float(f"{self.channels * self.burst / self.timings.tBL:.15g}")

    @property
    def banks(self) -> int:
        """Banks of one channel."""
        return self.bank_groups * self.banks_per_group

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.burst > self.row:
            message = f"found a burst of {self.burst:.6g} B, expected at most the row of {self.row:.6g} B"
            raise problem(message, "a row holds one burst or more", "$.burst")
        for key, value in (("row", self.row), ("interleave", self.interleave)):
            if value / self.burst % 1:
                message = f"found {value:.6g} B, expected a multiple of the burst of {self.burst:.6g} B"
                raise problem(message, "columns are accessed by whole bursts", f"$.{key}")
        for i, (before, after) in enumerate(pairwise(self.refresh), start=1):
            if after.above <= before.above or after.rate < before.rate:
                found = f"found rate {after.rate:.6g} above {after.above - 273.15:.6g} degC"
                least = f"expected {before.rate:.6g} or more above more than {before.above - 273.15:.6g} degC"
                remedy = "list the steps from cool to hot, rates rising"
                raise problem(f"{found}, {least}", remedy, f"$.refresh[{i}]")
        for i, step in enumerate(self.refresh):
            most = self.timings.tREFI / self.timings.tRFC
            if step.rate >= most:
                message = f"found {step.rate:.6g}, expected less than tREFI / tRFC = {most:.6g}"
                raise problem(message, "else the channel does nothing but refresh", f"$.refresh[{i}].rate")
        return self

    def refresh_rate(self, temperature_k: float) -> float:
        """How much more often than normal rows are refreshed at a temperature."""
        return next((step.rate for step in reversed(self.refresh) if temperature_k > step.above), 1.0)
