"""DRAM dies that are bonded onto the logic die: what a layer holds, moves, and takes of the logic die.

Layers that are connected to the logic die move data at once; the others only add capacity. A layer takes area on the
logic die because vias for power and for the layers above it pass through; a connected layer also takes that of its data
connections, with what keeps other circuits away from them.
"""

from __future__ import annotations

from pydantic import Field

from dfopt.documents.base import Part
from dfopt.documents.wafer import Wafer
from dfopt.units import Bytes, Hertz, JoulesPerByte, Metres, Seconds, Watts


class DramLayers(Part):
    """DRAM of a chip as equal layers on its logic die.

    Attributes
    ----------
    capacity : e.g. 2 GiB
        Data that one layer of DRAM on the logic die holds.
    area_mm2 : mm2, e.g. 2.95
        Area of the logic die that each layer takes, connected or not, for vias and power.
    ports : ports, e.g. 8
        Number of independent ports of one connected layer.
    port_bits : bits, e.g. 128
        Number of data connections of one port.
    banks : banks, e.g. 4
        Number of banks that one layer has for each port.
    frequency : e.g. 1.6 GHz
        Bits per second of one data connection.
    pitch : e.g. 10 um
        Distance between neighboring vertical connections.
    keep_out : no unit, e.g. 17
        Area of the logic die that a data connection takes, divided by the square of the pitch. It covers the circuits
        of the port, power, and the zone around vias that stays empty.
    round_trip : e.g. 250 ns
        Time from a request of a unit to its data.
    buffering : no unit, e.g. 2
        Bytes of buffer that a unit needs for each byte in flight.
    network_area : no unit, e.g. 3
        Area that circuits of the network take on a DRAM die, divided by that on the logic die. 0: a DRAM die has room
        for them beside its banks.
    energy : e.g. 4 pJ/bit
        Energy of one byte from the DRAM to the logic die.
    static_power : e.g. 0.3 W
        Power of one layer that flows all the time.
    wafer : e.g. {usd: 2100, defects_per_cm2: 0.1}
        Wafer from which DRAM dies are cut, with its vias. None: layers have no price.
    tested : e.g. true
        Whether only dies without a defect are bonded. False: wafers are bonded as they are, and a stack is good if all
        its dies and bonds are.
    bonding_yield : share, e.g. 0.99
        Share of the bonds of one layer that are good. One bad bond loses the stack.

    Examples
    --------
    >>> layers = DramLayers(
    ...     capacity=2 * 2**30, area_mm2=2.95, ports=8, port_bits=128, frequency=1.6e9, pitch=10e-6, keep_out=17,
    ...     round_trip=250e-9, buffering=2, energy=32e-12,
    ... )
    >>> round(layers.rate / 1e9, 1), round(layers.connection_mm2, 2)
    (204.8, 1.74)
    """

    capacity: Bytes = Field(gt=0)
    area_mm2: float = Field(ge=0, le=1e6)
    ports: int = Field(ge=1, le=10**5)
    port_bits: int = Field(ge=1, le=10**5)
    banks: int = Field(default=4, ge=1, le=1024)
    frequency: Hertz = Field(gt=0)
    pitch: Metres = Field(gt=0)
    keep_out: float = Field(gt=0, le=1e6)
    round_trip: Seconds = Field(gt=0)
    buffering: float = Field(default=1.0, gt=0, le=1e3)
    network_area: float = Field(default=1.0, ge=0, le=1e3)
    energy: JoulesPerByte = Field(gt=0)
    static_power: Watts = Field(default=0.0, ge=0)
    wafer: Wafer | None = None
    tested: bool = True
    bonding_yield: float = Field(default=1.0, gt=0, le=1)

    @property
    def rate(self) -> float:
        """Bandwidth of one connected layer, B/s."""
        return self.ports * self.port_bits * self.frequency / 8

    @property
    def connection_mm2(self) -> float:
        """Area of the logic die for the data connections of one layer, mm2."""
        return self.ports * self.port_bits * self.pitch**2 * self.keep_out * 1e6
