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
    """Timing parameters of one DRAM channel; ``_S`` and ``_L`` are for different and the same bank group.

    Attributes
    ----------
    tCK : e.g. 1 ns
        Period of the command clock.
    tBL : e.g. 2 ns
        Time for which one burst occupies the data bus of a channel.
    tRCDRD : e.g. 14 ns
        Time from an activate to a read command of the same bank.
    tRCDWR : e.g. 14 ns
        Time from an activate to a write command of the same bank.
    tRP : e.g. 14 ns
        Time that a precharge of a bank takes.
    tRAS : e.g. 33 ns
        Time from an activate to the precharge of the same bank.
    tRC : e.g. 47 ns
        Time from one activate to the next one of the same bank. None: tRAS + tRP.
    tRTP : e.g. 5 ns
        Time from a read command to the precharge of the same bank.
    tWR : e.g. 15 ns
        Time from the end of write data to the precharge of the same bank.
    tCCD_S : e.g. 2 ns
        Time between two column commands of different bank groups.
    tCCD_L : e.g. 4 ns
        Time between two column commands of the same bank group.
    tRRD_S : e.g. 2 ns
        Time between activates of two banks in different bank groups.
    tRRD_L : e.g. 4 ns
        Time between activates of two banks in the same bank group.
    tFAW : e.g. 16 ns
        Length of the window in which a channel may start at most four activates.
    tWTR_S : e.g. 3 ns
        Time from the end of write data to a read command of a different bank group.
    tWTR_L : e.g. 8 ns
        Time from the end of write data to a read command of the same bank group.
    tRTW : e.g. 8 ns
        Time from a read command to a write command. None: the time that the data bus needs.
    CL : e.g. 14 ns
        Time from a read command to its data.
    CWL : e.g. 7 ns
        Time from a write command to its data.
    tRFC : e.g. 260 ns
        Time that one refresh of all banks takes.
    tREFI : e.g. 3.9 us
        Time between two refreshes at the normal rate.
    """

    tCK: Seconds = Field(gt=0)
    tBL: Seconds = Field(gt=0)
    tRCDRD: Seconds = Field(gt=0)
    tRCDWR: Seconds = Field(gt=0)
    tRP: Seconds = Field(gt=0)
    tRAS: Seconds = Field(gt=0)
    tRC: Seconds | None = Field(default=None, gt=0)
    tRTP: Seconds = Field(ge=0)
    tWR: Seconds = Field(ge=0)
    tCCD_S: Seconds = Field(gt=0)
    tCCD_L: Seconds = Field(gt=0)
    tRRD_S: Seconds = Field(gt=0)
    tRRD_L: Seconds = Field(gt=0)
    tFAW: Seconds = Field(gt=0)
    tWTR_S: Seconds = Field(ge=0)
    tWTR_L: Seconds = Field(ge=0)
    tRTW: Seconds | None = Field(default=None, ge=0)
    CL: Seconds = Field(gt=0)
    CWL: Seconds = Field(gt=0)
    tRFC: Seconds = Field(gt=0)
    tREFI: Seconds = Field(gt=0)

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
    """Refresh rate factor ``rate`` above a temperature.

    Attributes
    ----------
    above : e.g. 85 degC
        Temperature of the DRAM above which refreshes come more often.
    rate : no unit, e.g. 2
        Refresh rate above this temperature, as a multiple of the normal rate.
    """

    above: Kelvin = Field(gt=0)
    rate: float = Field(gt=0, le=64)


class DramBuffers(Part):
    """Requests in flight, which limit bandwidth by Little's law (bytes in flight / latency).

    Attributes
    ----------
    requests : bursts, e.g. 64
        Number of bursts that one channel may have outstanding.
    round_trip : e.g. 100 ns
        On-chip latency of an access, in addition to the latency of the DRAM.
    """

    requests: int = Field(ge=1, le=10**6)
    round_trip: Seconds = Field(default=0.0, ge=0)


class DramEnergies(Part):
    """Energy of the commands of one channel, and of transfers to the logic die.

    Attributes
    ----------
    activate : e.g. 1 nJ
        Energy of one activate together with its precharge.
    read_burst : e.g. 200 pJ
        Energy of reading one burst inside the DRAM.
    write_burst : e.g. 200 pJ
        Energy of writing one burst inside the DRAM.
    refresh : e.g. 50 nJ
        Energy of one refresh of all banks of a channel.
    background : e.g. 50 mW
        Power of one channel that flows all the time.
    io : e.g. 0.3 pJ/bit
        Energy of one byte on the wires between the DRAM and the logic die.
    """

    activate: Joules = Field(ge=0)
    read_burst: Joules = Field(ge=0)
    write_burst: Joules = Field(ge=0)
    refresh: Joules = Field(ge=0)
    background: Watts = Field(ge=0)
    io: JoulesPerByte = Field(default=0.0, ge=0)


class DramStack(Part):
    """All DRAM of one chip: equal ``channels`` spread evenly over the DRAM dies.

    The memory of a stack without DRAM dies is outside of it (DDR on the board, HBM next to the die), and so is its
    heat.

    Attributes
    ----------
    channels : channels, e.g. 128
        Number of equal DRAM channels of the chip.
    capacity : e.g. 24 GB
        Capacity of all channels together.
    bank_groups : bank groups, e.g. 4
        Number of bank groups of one channel.
    banks_per_group : banks, e.g. 4
        Number of banks in one bank group.
    row : e.g. 1024 B
        Size of one row (page) of a bank.
    burst : e.g. 32 B
        Data of one column access.
    interleave : e.g. 256 B
        Length of the range of consecutive addresses that one channel stores.
    io_bits : bits, e.g. 128
        Number of data connections of one channel.
    timings
        Timing parameters of one channel, named as in the JEDEC standards.
    refresh : e.g. [{above: 85 degC, rate: 2}]
        Refresh rates by temperature, in rising order. Below the first temperature the rate is normal.
    buffers : e.g. {requests: 64}
        Outstanding accesses, which limit the bandwidth together with the latency.
    energies
        Energies of the commands of one channel and of the wires to the logic die.
    """

    channels: int = Field(ge=1, le=10**5)
    capacity: Bytes = Field(gt=0)
    bank_groups: int = Field(ge=1, le=64)
    banks_per_group: int = Field(ge=1, le=1024)
    row: Bytes = Field(gt=0)
    burst: Bytes = Field(gt=0)
    interleave: Bytes = Field(gt=0)
    io_bits: int = Field(ge=1, le=10**5)
    timings: DramTimings
    refresh: tuple[RefreshStep, ...] = ()
    buffers: DramBuffers
    energies: DramEnergies

    @property
    def peak(self) -> float:
        """Peak bandwidth of all data buses, B/s: one burst per channel in each ``tBL``."""
        # To 15 digits: 2 ns is no binary number, and a system would be written with 16383.999999999998 GB/s.
        return float(f"{self.channels * self.burst / self.timings.tBL:.15g}")

    @property
    def banks(self) -> int:
        """Number of banks of one channel."""
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
                actual = f"found rate {after.rate:.6g} above {after.above - 273.15:.6g} degC"
                least = f"expected {before.rate:.6g} or more above more than {before.above - 273.15:.6g} degC"
                remedy = "list the steps from cool to hot, rates rising"
                raise problem(f"{actual}, {least}", remedy, f"$.refresh[{i}]")
        for i, step in enumerate(self.refresh):
            most = self.timings.tREFI / self.timings.tRFC
            if step.rate >= most:
                message = f"found {step.rate:.6g}, expected less than tREFI / tRFC = {most:.6g}"
                raise problem(message, "else the channel does nothing but refresh", f"$.refresh[{i}].rate")
        return self

    def refresh_rate(self, temperature_k: float) -> float:
        """Refresh rate at a temperature, K, relative to normal."""
        return next((step.rate for step in reversed(self.refresh) if temperature_k > step.above), 1.0)
