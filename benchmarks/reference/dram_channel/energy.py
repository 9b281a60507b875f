"""The energy of a DRAM channel from what it did: activates, bursts, refreshes, and time.

The currents of a data sheet give the energy of each command, as in Micron's technical note TN-40-07 ("Calculating
Memory Power for DDR4 SDRAM") and in DRAMsim3, whose figures these are::

    activate = VDD (IDD0 tRC - IDD3N tRAS - IDD2N tRP)     refresh    = VDD (IDD5AB - IDD3N) tRFC
    read     = VDD (IDD4R - IDD3N) tBL                     background = VDD IDD3N with a row open
    write    = VDD (IDD4W - IDD3N) tBL                                  VDD IDD2N with every bank closed
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

from dram_channel.types import Timing, refuse

__all__ = ["DramEnergy", "EnergySplit", "energy"]


@dataclass(frozen=True)
class DramEnergy:
    """Joules of each command of one channel, and its watts at rest.

    Parameters
    ----------
    activate_j, read_burst_j, write_burst_j, refresh_j : float
        Joules of one activate with its precharge, of one burst inside the DRAM, of one all-bank refresh.
    background_w, idle_w : float
        Watts with a row open somewhere, and with every bank closed (None: the same).
    io_j_per_bit : float
        Joules per bit on the wires between DRAM and client.

    Raises
    ------
    SystemSpecError
        A number that is not finite or below 0.
    """

    activate_j: float
    read_burst_j: float
    write_burst_j: float
    refresh_j: float
    background_w: float
    idle_w: float | None = None
    io_j_per_bit: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.name == "idle_w":
                object.__setattr__(self, "idle_w", self.background_w)
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                refuse("energy", each.name, repr(value), "a finite number >= 0")

    @classmethod
    def from_currents(
        cls,
        timing: Timing,
        *,
        vdd: float,
        idd0: float,
        idd2n: float,
        idd3n: float,
        idd4r: float,
        idd4w: float,
        idd5ab: float,
        devices: int = 1,
        io_j_per_bit: float = 0.0,
    ) -> Self:
        """Energies from the currents (amperes) and voltage (volts) of a data sheet.

        Parameters
        ----------
        devices : int
            Devices that answer together on the bus.

        Examples
        --------
        The HBM2 channel of DRAMsim3, 8 Gb: 828 pJ per activate, 804 pJ per burst of 64 B read.

        >>> hbm2 = DramEnergy.from_currents(
        ...     Timing(), vdd=1.2, idd0=0.065, idd2n=0.04, idd3n=0.055, idd4r=0.39, idd4w=0.5, idd5ab=0.25
        ... )
        >>> round(hbm2.activate_j * 1e12), round(hbm2.read_burst_j * 1e12), round(hbm2.refresh_j * 1e12)
        (828, 804, 60840)
        """
        charge = idd0 * timing.tRC - idd3n * timing.tRAS - idd2n * timing.tRP
        volts = vdd * devices
        return cls(
            activate_j=volts * charge,
            read_burst_j=volts * (idd4r - idd3n) * timing.tBL,
            write_burst_j=volts * (idd4w - idd3n) * timing.tBL,
            refresh_j=volts * (idd5ab - idd3n) * timing.tRFC,
            background_w=volts * idd3n,
            idle_w=volts * idd2n,
            io_j_per_bit=io_j_per_bit,
        )


@dataclass(frozen=True)
class EnergySplit:
    """Joules of a stretch of time, by what took them."""

    activate: float
    read: float
    write: float
    refresh: float
    background: float
    io: float

    @property
    def total(self) -> float:
        """All of them, in joules."""
        return self.activate + self.read + self.write + self.refresh + self.background + self.io


def energy(
    model: DramEnergy,
    *,
    n_act: float,
    n_rd: float,
    n_wr: float = 0.0,
    n_ref: float = 0.0,
    seconds: float,
    idle_seconds: float = 0.0,
    burst_bytes: float = 0.0,
) -> EnergySplit:
    """Joules of a number of commands over some seconds, of which ``idle_seconds`` had every bank closed.

    Parameters
    ----------
    burst_bytes : float
        Bytes of one burst; needed for the energy of the wires only.

    Raises
    ------
    SystemSpecError
        A count or time that is negative, more idle seconds than seconds, or wires without burst_bytes.

    Examples
    --------
    >>> model = DramEnergy(1e-9, 1e-9, 1e-9, 60e-9, background_w=0.066)
    >>> energy(model, n_act=10, n_rd=20, seconds=1e-6).total
    9.6e-08
    """
    given = {"n_act": n_act, "n_rd": n_rd, "n_wr": n_wr, "n_ref": n_ref, "seconds": seconds}
    for key, value in {**given, "idle_seconds": idle_seconds, "burst_bytes": burst_bytes}.items():
        if not 0 <= value < math.inf:
            refuse("energy", key, value, "a finite number >= 0")
    if idle_seconds > seconds * (1 + 1e-9):
        refuse("energy", "idle_seconds", idle_seconds, f"at most all of the {seconds:.6g} s")
    if model.io_j_per_bit and not burst_bytes:
        refuse("energy", "burst_bytes", burst_bytes, "the bytes of a burst, as io_j_per_bit is not 0")
    idle_w = model.background_w if model.idle_w is None else model.idle_w
    return EnergySplit(
        activate=n_act * model.activate_j,
        read=n_rd * model.read_burst_j,
        write=n_wr * model.write_burst_j,
        refresh=n_ref * model.refresh_j,
        background=(seconds - idle_seconds) * model.background_w + idle_seconds * idle_w,
        io=(n_rd + n_wr) * burst_bytes * 8 * model.io_j_per_bit,
    )
