"""The chip of a design with sizes: units of compute on what DRAM layers, buffers and network leave of the logic die.

The area law, with T layers of which C are connected, S bytes of buffer and L bytes per cycle of port for each unit, and
a rate R of each role of links::

    left  = die - T layer - C connection - sum over roles (R area per rate)      mm2; no R of a network on a DRAM die
    units = left / (unit + 8 S bit + L port)                                     a real number

A network on a DRAM die takes capacity there instead: as large a share of one layer as it takes of the die.

The DRAM gives a chip no more than three rates allow::

    layers   C rate of a layer
    ports    units L f / 2            a byte from the DRAM is written into a buffer and read from it
    buffers  units S / (round trip x buffering)                                  Little's law

The forms of the last two are those of DeepStack (arXiv:2604.04750; github.com/tile-ai/DeepStack, 8ed05cc4), whose own
areas are not published. The term of each layer beside that of each connected one is ours: without it no law of this
form gives the numbers of units that are published.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.documents.design import Design
from dfopt.documents.design_sizes import DesignSizes
from dfopt.documents.dram_layers import DramLayers
from dfopt.documents.technology import ChipLinks, LinkRole, Technology, UnitBuffer
from dfopt.errors import Issue, SystemSpecError
from dfopt.technology.arithmetic import Numbers, arithmetic_of
from dfopt.technology.components import DEGREE, ChipDram, ChipSram, Core, Links, core_of, fastest_clock
from dfopt.technology.operating import BUFFERS, LAYERS, PORTS
from dfopt.technology.rules import REAL_UNITS

Components = tuple[Core, ChipSram, ChipDram, dict[LinkRole, Links]]


@dataclass(frozen=True, slots=True)
class Point:
    """Sizes of one stacked chip, or of many as arrays.

    Attributes
    ----------
    layers, connected
        Number of DRAM layers, and of those that transfer data at the same time.
    buffer, port : B, B/cycle
        Size and port width of a compute unit's buffer.
    network_mm2 : mm2
        Area of the network on the logic die.
    """

    layers: Numbers
    connected: Numbers
    buffer: Numbers
    port: Numbers
    network_mm2: Numbers = 0.0

    @classmethod
    def of(cls, sizes: DesignSizes, technology: Technology) -> Point:
        """Sizes of a design; a network on a DRAM die takes no area of the logic die."""
        on_logic = _network_mm2(sizes, technology) if sizes.network_die == "logic" else 0.0
        return cls(sizes.dram_layers, sizes.connected, sizes.buffer, sizes.buffer_port, on_logic)


@dataclass(frozen=True, slots=True)
class AreaLaw:
    """Area of the compute units on a logic die as a function of sizes: see the top of the file.

    Examples
    --------
    >>> law = AreaLaw(die=100.0, unit=6.0, bit=3e-7, port=1e-3, layer=3.0, connection=2.0)
    >>> at = Point(layers=4, connected=4, buffer=256 * 2**10, port=256, network_mm2=4.0)
    >>> round(law.units(at), 3), round(law.units(at) * law.unit_mm2(at), 9)
    (11.038, 76.0)
    """

    die: float
    unit: float
    bit: float
    port: float
    layer: float
    connection: float

    @classmethod
    def of(cls, technology: Technology, die_mm2: float) -> AreaLaw:
        """Area law of a technology for a logic die of ``die_mm2`` mm2."""
        layers, buffer = _parts(technology)
        return cls(
            die_mm2, technology.core.area_mm2, buffer.bit_area_mm2, buffer.port_area_mm2, layers.area_mm2,
            layers.connection_mm2,
        )  # fmt: skip

    def unit_mm2(self, at: Point) -> Numbers:
        """Area of a compute unit with its buffer, mm2."""
        return self.unit + at.buffer * 8 * self.bit + at.port * self.port

    def left_mm2(self, at: Point) -> Numbers:
        """Die area left by DRAM layers and network, mm2; negative if they do not fit."""
        return self.die - self.vias_mm2(at) - at.network_mm2

    def vias_mm2(self, at: Point) -> Numbers:
        """Die area of the vias of all DRAM layers, connected or not, mm2."""
        return at.layers * self.layer + at.connected * self.connection

    def units(self, at: Point) -> Numbers:
        """Number of compute units that fit, not rounded."""
        left = self.left_mm2(at)
        return arithmetic_of(left).maximum(left, 0.0) / self.unit_mm2(at)


def usable(part: DramLayers, at: Point, units: Numbers, frequency: Numbers) -> tuple[Numbers, Numbers]:
    """Usable bandwidth of the DRAM layers, B/s, and the code of the limit that sets it.

    Parameters
    ----------
    part, at : DramLayers, Point
        The technology, and the sizes.
    units, frequency : float or array, count and Hz
        Compute units, and their clock.

    Examples
    --------
    >>> from dfopt.technology.operating import limit_names
    >>> layers = DramLayers(
    ...     capacity=2e9, area_mm2=3.0, ports=8, port_bits=128, frequency=1.6e9, pitch=1e-5, keep_out=17.0,
    ...     round_trip=250e-9, buffering=2.0, energy=32e-12,
    ... )
    >>> for port, buffer in ((1024, 512 * 2**10), (128, 512 * 2**10), (1024, 16 * 2**10)):
    ...     rate, limit = usable(layers, Point(4, 4, buffer, port), 8.0, 0.9e9)
    ...     print(round(rate / 1e9, 1), limit_names(limit))
    819.2 layers
    460.8 ports
    262.1 buffers
    """
    own = at.connected * part.rate
    through = units * at.port * frequency / 2
    waiting = units * at.buffer / (part.round_trip * part.buffering)
    do = arithmetic_of(own, through, waiting)
    least = do.minimum(do.minimum(own, through), waiting)
    return least, do.where(least >= own, LAYERS, do.where(least >= through, PORTS, BUFFERS))


def layered_chip(taking: Design, giving: Design | None = None) -> Components:
    """Components of a design with sizes: cores, buffers, DRAM and links.

    DRAM and links run at their nominal rates, with the power that these need; cores have the rest of the budget, from
    which their clock follows.

    Parameters
    ----------
    taking
        The design.
    giving
        For a bound on many designs: components have its sizes and its budget of power, but take the area and the power
        of those of ``taking``. Units do not leak then, and ports have the highest clock that there can be.

    Raises
    ------
    SystemSpecError
        If layers and network leave no area, or DRAM and links no power, or a DRAM die has no room for the network.
    """
    technology, sizes, budgets = taking.technology, taking.sizes, (giving or taking).budgets
    given = (giving or taking).sizes
    assert sizes is not None and given is not None
    (part, buffer), least, most = _parts(technology), Point.of(sizes, technology), Point.of(given, technology)
    law = AreaLaw.of(technology, budgets.chip_area_mm2)
    links = {role: _links(wire, given.rate.get(role, 0.0), role) for role, wire in technology.links.items()}
    left, watts = law.left_mm2(least), budgets.power - _beside_w(technology, sizes)
    if left <= 0:
        taken = f"found layers and network of {budgets.chip_area_mm2 - left:.6g} mm2"
        message = f"{taken}, expected less than the {budgets.chip_area_mm2:.6g} mm2 of the logic die"
        raise SystemSpecError(taking.name, [Issue("$.sizes", message, "take fewer layers or lower rates")])
    if watts <= 0:
        drawn = f"found DRAM and links of {budgets.power - watts:.6g} W"
        message = f"{drawn}, expected less than the {budgets.power:.6g} W of the chip"
        raise SystemSpecError(taking.name, [Issue("$.budgets.power", message, "raise it, or take fewer layers")])
    unit = technology.core.model_copy(
        update={"area_mm2": law.unit_mm2(least), **({"static_power": None} if giving is not None else {})}
    )
    core = core_of(unit, left, watts, REAL_UNITS)
    clock = core.frequency if giving is None else fastest_clock(unit)
    rate, bound = usable(part, most, core.units, clock)
    flowing = part.static_power * given.dram_layers
    dram = _dram(part, most, rate, bound, flowing)
    if given.network_die == "dram":
        dram = dram._replace(size=dram.size - _displaced(taking) * part.capacity)
    return core, _buffer(buffer, most, core, clock), dram, links


def _network_mm2(sizes: DesignSizes, technology: Technology) -> Numbers:
    return sum(network_mm2(technology.links[role], rate) for role, rate in sizes.rate.items())


def _displaced(design: Design) -> Numbers:
    """Share of one DRAM die that the network takes."""
    technology, sizes, die = design.technology, design.sizes, design.budgets.chip_area_mm2
    assert sizes is not None
    area = _network_mm2(sizes, technology) * _parts(technology)[0].network_area
    if area > die:
        message = f"found a network of {area:.6g} mm2, expected at most the {die:.6g} mm2 of a DRAM die"
        raise SystemSpecError(design.name, [Issue("$.sizes.network_die", message, "lower rates, or take logic")])
    return area / die


def _beside_w(technology: Technology, sizes: DesignSizes) -> float:
    """Power of DRAM and links at the most that layers and links can move."""
    part, _ = _parts(technology)
    links: float = sum(_links(technology.links[role], rate, role).power for role, rate in sizes.rate.items())
    return sizes.dram_layers * part.static_power + sizes.connected * part.rate * part.energy + links


def least_drawn(low: Design, high: Design) -> tuple[float, float, dict[LinkRole, Links]]:
    """Lower bounds on the power of cores and of DRAM, W, and the slowest links, over all designs between two others.

    The fewest units draw least, and so do layers without traffic and the slowest links. ``low`` and ``high``: the
    designs with the smallest and with the largest sizes.
    """
    technology, sizes = low.technology, low.sizes
    assert sizes is not None
    part, _ = _parts(technology)
    links = {role: _links(wire, sizes.rate.get(role, 0.0), role) for role, wire in technology.links.items()}
    try:
        cores = float(layered_chip(high, low)[0].power)
    except SystemSpecError:  # such a design there is not; others may have hardly any units
        cores = 0.0
    return cores, part.static_power * sizes.dram_layers, links


def _parts(technology: Technology) -> tuple[DramLayers, UnitBuffer]:
    layers, buffer = technology.layers, technology.core.buffer
    assert layers is not None and buffer is not None  # the validators of designs see to it
    return layers, buffer


def network_mm2(wire: ChipLinks, rate: Numbers) -> Numbers:
    """Area of the links of a role for ``rate`` B/s in one direction, mm2."""
    return rate * 8 / (wire.frequency * wire.utilization) * wire.area_mm2


def _buffer(buffer: UnitBuffer, at: Point, core: Core, clock: Numbers) -> ChipSram:
    bandwidth = core.units * at.port * clock
    return ChipSram(
        banks=core.units,
        size=core.units * at.buffer,
        bandwidth=bandwidth,
        rate=bandwidth,
        energy=buffer.energy,
        bound=PORTS,
    )


def _dram(part: DramLayers, at: Point, rate: Numbers, bound: Numbers, flowing: float) -> ChipDram:
    return ChipDram(
        stacks=at.layers,
        links=at.connected * part.ports * part.port_bits,
        size=at.layers * part.capacity,
        voltage=0.0,
        frequency=part.frequency,
        bandwidth=at.connected * part.rate,
        rate=rate,
        energy=part.energy,
        power=flowing + rate * part.energy,
        bound=bound,
    )


def _links(part: ChipLinks, rate: float, role: LinkRole) -> Links:
    """Links of a role that move so many bytes per second in one direction, at their nominal rate."""
    count = rate * 8 / (part.frequency * part.utilization)
    return Links(
        links=count,
        voltage=part.supply.nominal_v,
        frequency=part.frequency,
        rate=rate / DEGREE[role],
        energy=part.energy,
        power=rate / part.utilization * part.energy,
        latency=part.latency or 0.0,
    )
