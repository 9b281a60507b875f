"""What a DRAM channel is made of, and the stream of bursts that one kernel sends to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Self

from dfopt.errors import Issue, SystemSpecError, json_path

__all__ = ["BandwidthBounds", "Organisation", "Stream", "Timing"]


def refuse(kind: str, key: str, found: object, expected: str, remedy: str = "") -> None:
    """Raise the one error of a wrong number, with its path."""
    raise SystemSpecError("", [Issue(json_path(kind, key), f"found {found}, expected {expected}", remedy)])


def _number(kind: str, key: str, value: object, least: float, above: bool = False, whole: bool = False) -> None:
    word = ("a whole number" if whole else "a finite number") + (f" above {least:g}" if above else f" >= {least:g}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        refuse(kind, key, repr(value), word)
    elif value < least or (above and value == least) or (whole and value != int(value)):
        refuse(kind, key, value, word)


@dataclass(frozen=True)
class Timing:
    """The timing of a DRAM channel in seconds, named as in `dfopt.documents.stack_dram.DramTimings` and as JEDEC does.

    ``_S`` is between bank groups, ``_L`` within one. ``tBL`` is the time that one burst takes on the bus, ``tCK``
    the clock of the commands.

    Parameters
    ----------
    tRC : float or None
        Activate to activate of one bank; None is ``tRAS + tRP``.
    tRTW : float or None
        Read to write command; None is ``CL + tBL - CWL + 2 tCK``, two clocks to turn the bus round (the default of
        DRAMsim3, `tRTRS`).

    Raises
    ------
    SystemSpecError
        A number that is not finite, or below 0 (tCK, tBL, tREFI: not above 0), or a tRC below tRAS + tRP.

    Examples
    --------
    >>> Timing(tRAS=34e-9, tRP=14e-9).tRC
    4.8e-08
    >>> Timing(tRAS=-1.0)
    Traceback (most recent call last):
    dfopt.errors.SystemSpecError: <data>: 1 problem
      $.timing.tRAS: found -1.0, expected a finite number >= 0
    """

    # The starting values are those of an HBM2 channel, 8 Gb: DRAMsim3, configs/HBM2_8Gb_x128.ini, and its default
    # of 5 clocks for tRTP.
    tCK: float = 1e-9
    tRCDRD: float = 14e-9
    tRCDWR: float = 14e-9
    tRP: float = 14e-9
    tRAS: float = 34e-9
    tRC: float = None  # type: ignore[assignment]  # a number once made
    tRTP: float = 5e-9
    tWR: float = 16e-9
    tRRD_S: float = 4e-9
    tRRD_L: float = 6e-9
    tFAW: float = 30e-9
    tCCD_S: float = 1e-9
    tCCD_L: float = 2e-9
    tWTR_S: float = 6e-9
    tWTR_L: float = 8e-9
    tRTW: float = None  # type: ignore[assignment]
    CL: float = 14e-9
    CWL: float = 4e-9
    tBL: float = 2e-9
    tRFC: float = 260e-9
    tREFI: float = 3900e-9

    def __post_init__(self) -> None:
        """Check every number, and fill in the two derived ones."""
        for key in ("tCK", "tBL", "tREFI"):
            _number("timing", key, getattr(self, key), 0, above=True)
        for each in fields(self):
            if getattr(self, each.name) is not None or each.name not in ("tRC", "tRTW"):
                _number("timing", each.name, getattr(self, each.name), 0)
        if self.tRC is None:
            object.__setattr__(self, "tRC", self.tRAS + self.tRP)
        elif self.tRC < (self.tRAS + self.tRP) * (1 - 1e-9) - self.tCK:
            # A clock of slack: data sheets round each of the three up to whole clocks.
            least = f"at least tRAS + tRP = {self.tRAS + self.tRP:.4g}"
            refuse("timing", "tRC", self.tRC, least, "leave tRC out to have it computed")
        if self.tRTW is None:
            object.__setattr__(self, "tRTW", max(self.CL + self.tBL - self.CWL, 0.0) + 2 * self.tCK)

    def clocks(self, key: str) -> int:
        """A time in whole clocks, rounded up as a controller must.

        Examples
        --------
        >>> Timing(tCK=0.625e-9, tRAS=28e-9).clocks("tRAS")
        45
        """
        seconds: float = getattr(self, key)
        return max(0, math.ceil(seconds / self.tCK - 1e-6))


@dataclass(frozen=True)
class Organisation:
    """The banks of one channel, pseudo channel, vault or port, and the size of a burst and of a row.

    Raises
    ------
    SystemSpecError
        A count that is not a whole number above 0, or a row that is not a whole number of bursts.

    Examples
    --------
    >>> hbm2 = Organisation(bank_groups=4, banks_per_group=4, row_bytes=2048, burst_bytes=64)
    >>> hbm2.banks, hbm2.bursts_per_row, round(hbm2.peak(Timing()) / 1e9, 6)
    (16, 32, 32.0)
    """

    bank_groups: int = 4
    banks_per_group: int = 4
    row_bytes: int = 2048
    burst_bytes: int = 64

    def __post_init__(self) -> None:
        """Check the counts."""
        for each in fields(self):
            _number("organisation", each.name, getattr(self, each.name), 1, whole=True)
        if self.row_bytes % self.burst_bytes:
            expected = f"a multiple of burst_bytes = {self.burst_bytes}"
            refuse("organisation", "row_bytes", self.row_bytes, expected)

    @property
    def banks(self) -> int:
        """Banks of the channel."""
        return self.bank_groups * self.banks_per_group

    @property
    def bursts_per_row(self) -> int:
        """Bursts that one open row holds."""
        return self.row_bytes // self.burst_bytes

    def peak(self, timing: Timing) -> float:
        """B/s of the bus, never idle."""
        return self.burst_bytes / timing.tBL


@dataclass(frozen=True)
class Stream:
    """Bytes that travel between a client and one channel in one pattern.

    Parameters
    ----------
    bytes : float
        All bytes of the stream.
    bursts_per_activation : float
        Bursts that the stream takes from a row each time the row is opened, u.
    banks, groups : int
        Banks and bank groups that the stream visits in turn or at random.
    random : bool
        True if each visit goes to a bank at random: then visits in flight can meet in one bank or group.
    read_share : float
        Reads per burst: 1 reads only, 0 writes only.
    bursts_per_turnaround : float or None
        Bursts between a change of the bus from reads to writes and the next such change; needed for a mix.
    outstanding : int or None
        Requests of one burst that the client keeps in flight; None has no limit beyond that of the controller.
    extra_latency : float
        Seconds of the round trip outside the DRAM and its controller.

    Raises
    ------
    SystemSpecError
        A number outside its range, more groups than banks, or a mix without bursts_per_turnaround.

    Examples
    --------
    >>> Stream(bytes=1e6, bursts_per_activation=32).is_mix, Stream(bytes=1e6, read_share=0.0).write
    (False, True)
    """

    bytes: float
    bursts_per_activation: float = 32
    banks: int = 16
    groups: int = 4
    random: bool = False
    read_share: float = 1.0
    bursts_per_turnaround: float | None = None
    outstanding: int | None = None
    extra_latency: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        _number("stream", "bytes", self.bytes, 0)
        _number("stream", "bursts_per_activation", self.bursts_per_activation, 1)
        _number("stream", "banks", self.banks, 1, whole=True)
        _number("stream", "groups", self.groups, 1, whole=True)
        _number("stream", "read_share", self.read_share, 0)
        _number("stream", "extra_latency", self.extra_latency, 0)
        if self.groups > self.banks:
            refuse("stream", "groups", self.groups, f"at most its banks, {self.banks}")
        if self.read_share > 1:
            refuse("stream", "read_share", self.read_share, "a share from 0 to 1")
        if self.outstanding is not None:
            _number("stream", "outstanding", self.outstanding, 1, whole=True)
        if self.bursts_per_turnaround is not None:
            _number("stream", "bursts_per_turnaround", self.bursts_per_turnaround, 0, above=True)
        elif self.is_mix:
            remedy = "give the bursts between two changes from reads to writes"
            refuse("stream", "bursts_per_turnaround", "nothing", "a number for a mix of reads and writes", remedy)

    @property
    def is_mix(self) -> bool:
        """Whether the stream both reads and writes."""
        return 0 < self.read_share < 1

    @property
    def write(self) -> bool:
        """Whether the stream only writes."""
        return self.read_share == 0

    def with_(self, **changes: object) -> Self:
        """The same stream with other values."""
        return replace(self, **changes)  # type: ignore[arg-type]  # a wrong name or type is refused above


@dataclass(frozen=True)
class BandwidthBounds:
    """What limits a stream: B/s under each limit alone, the factors on all of them, and the bandwidth that follows.

    ``limits`` has the keys activation (tRC), row_to_row (tRRD), four_activate (tFAW), column (tCCD), port (the bus) and
    buffering (Little's law); ``factors`` has refresh and turnaround. ``binding`` names the smallest limit.
    """

    limits: dict[str, float]
    factors: dict[str, float]
    bandwidth: float
    binding: str
    peak: float = field(default=math.inf)

    @property
    def utilization(self) -> float:
        """Bandwidth as a share of the peak of the bus."""
        return self.bandwidth / self.peak
