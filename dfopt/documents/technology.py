"""A technology: what a unit of a chip takes of area, power and perimeter, and what it yields.

Areas are in mm2, lengths of the chip's edge in mm, voltages in V. Powers and energies are those at nominal voltage.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Named, Part, problem
from dfopt.documents.dram_layers import DramLayers
from dfopt.documents.dtypes import Arithmetic
from dfopt.documents.wafer import Packaging, Wafer
from dfopt.units import Bytes, Hertz, JoulesPerByte, Ratio, Seconds, Watts, show_unit

LinkRole = Literal["in_package", "between_packages", "between_nodes", "between_dies"]
Area = Annotated[float, Field(gt=0, le=1e7)]
BitArea = Annotated[float, Field(gt=0, le=1.0)]
BitPower = Annotated[float, Field(ge=0, le=1.0)]
PerMm = Annotated[float, Field(gt=0, le=1e7)]
Cycle = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[Ratio, Field(gt=0, le=1)]
SECTIONS: Final = ("core", "sram", "dram", "layers", "links", "wafer", "package")


class Supply(Part):
    """Supply voltages of a circuit, V; it works at ``threshold_v + margin_v`` or more.

    Attributes
    ----------
    nominal_v : V, e.g. 0.75
        Nominal voltage of the circuit.
    threshold_v : V, e.g. 0.3
        Threshold voltage, at which the clock frequency would be 0.
    margin_v : V, e.g. 0.15
        Voltage above the threshold that the circuit needs to work.
    max_v : V, e.g. 1.1
        Highest voltage that the circuit allows. None: no limit.
    """

    nominal_v: float = Field(gt=0, le=100)
    threshold_v: float = Field(ge=0, le=100)
    margin_v: float = Field(ge=0, le=100)
    max_v: float | None = Field(default=None, gt=0, le=100)

    @property
    def floor(self) -> float:
        """Lowest working voltage, V."""
        return self.threshold_v + self.margin_v

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.threshold_v >= self.nominal_v:
            message = f"found {self.threshold_v:.6g} V, expected less than the nominal {self.nominal_v:.6g} V"
            raise problem(message, "at its threshold a circuit has no clock", "$.threshold_v")
        if self.max_v is not None and self.max_v < self.floor:
            message = f"found {self.max_v:.6g} V, expected {self.floor:.6g} V (threshold_v + margin_v) or more"
            raise problem(message, "raise it, or lower the margin", "$.max_v")
        return self


class UnitBuffer(Part):
    """Local memory of one compute unit, with its size and port width.

    Attributes
    ----------
    bit_area_mm2 : mm2/bit, e.g. 0.0000003
        Area of one bit of the buffer.
    port_area_mm2 : mm2 per B/cycle, e.g. 0.001
        Area of the port of the buffer for each byte that it moves in a cycle.
    energy : e.g. 0.2 pJ/bit
        Energy of one byte that is read or written.
    """

    bit_area_mm2: BitArea
    port_area_mm2: float = Field(ge=0, le=1e6)
    energy: JoulesPerByte = Field(gt=0)


class CoreUnit(Part):
    """One compute unit, such as a tensor core; a chip has as many as fit.

    Attributes
    ----------
    area_mm2 : mm2, e.g. 0.25
        Area of one unit of compute.
    flop_per_cycle : FLOP/cycle, e.g. 1024
        Operations that one unit performs in a cycle, in its usual data type.
    flop_per_cycle_by_type : FLOP/cycle, e.g. {fp8: 2048}
        Operations that one unit performs in a cycle in other data types. None: other types have no rate of their own.
    power : e.g. 200 mW
        Dynamic power of one unit at nominal voltage and frequency.
    static_power : e.g. 20 mW
        Leakage power of one unit at nominal voltage. None: the dynamic power includes it.
    frequency : e.g. 1.4 GHz
        Clock frequency of the unit at nominal voltage.
    supply : e.g. {nominal_v: 0.75, threshold_v: 0.3, margin_v: 0.15}
        Voltages at which the unit works.
    units_per_cluster : units, e.g. 4
        Number of units that share one port to the memories.
    utilization : e.g. 0.9
        Share of the peak rate that the units sustain.
    buffer : e.g. {bit_area_mm2: 0.0000003, port_area_mm2: 0.001, energy: 0.2 pJ/bit}
        Memory of its own that each unit has, whose size and port a design with ``sizes`` chooses. None: the units have
        none.
    """

    area_mm2: Area
    flop_per_cycle: Cycle
    flop_per_cycle_by_type: dict[Arithmetic, Cycle] | None = None
    power: Watts = Field(gt=0)
    static_power: Watts | None = Field(default=None, ge=0)
    frequency: Hertz = Field(gt=0)
    supply: Supply
    units_per_cluster: int = Field(ge=1, le=10**6)
    utilization: Share = 1.0
    buffer: UnitBuffer | None = None


class SramLevel(Part):
    """One level of on-chip memory, of equal banks.

    Attributes
    ----------
    name : e.g. L2
        Name of this level, to which shares and templates refer.
    bit_area_mm2 : mm2/bit, e.g. 0.00000005
        Area of one bit of the level.
    energy : e.g. 0.1 pJ/bit
        Energy of one byte that is read or written.
    static_w_per_bit : W/bit, e.g. 0.000000001
        Leakage power of one bit of the level.
    bank : e.g. 64 kB
        Capacity of one bank of the level.
    overhead : e.g. 0.2
        Share of the area of an on-chip memory that holds neither bits nor links, such as its decoders.
    link_area_mm2 : mm2, e.g. 0.001
        Area of the link from one bank to one cluster.
    shared : e.g. true
        Whether all clusters reach all banks. False: each cluster has banks of its own.
    port : e.g. 64 B
        Data that one bank delivers in a cycle of the cores. None: no limit.
    utilization : e.g. 0.9
        Share of the bandwidth of the level that is sustained.
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    bit_area_mm2: BitArea
    energy: JoulesPerByte = Field(gt=0)
    static_w_per_bit: BitPower
    bank: Bytes = Field(gt=0)
    overhead: Ratio = Field(default=0.0, ge=0, lt=1)
    link_area_mm2: float = Field(default=0.0, ge=0, le=1e6)
    shared: bool = True
    port: Bytes | None = Field(default=None, gt=0)
    utilization: Share = 1.0


class DramStacks(Part):
    """DRAM stacks beside the chip, with their controllers on it.

    Attributes
    ----------
    stack : e.g. 24 GB
        Capacity of one DRAM stack.
    stack_area_mm2 : mm2, e.g. 110
        Area of one DRAM stack on the package.
    controller_area_mm2 : mm2, e.g. 10
        Area of the controller of one DRAM stack on the chip.
    links_per_stack : links, e.g. 1024
        Number of data links of one DRAM stack.
    links_per_mm : links/mm, e.g. 150
        Number of links that fit on one mm of the edge of the chip.
    frequency : e.g. 6.4 GHz
        Bits per second of one link at nominal voltage.
    supply : e.g. {nominal_v: 1.1, threshold_v: 0.4, margin_v: 0.3}
        Voltages at which the links work.
    energy : e.g. 3.5 pJ/bit
        Energy of one byte that passes the links to the DRAM.
    energy_range : J/B, e.g. [3 pJ/bit, 4 pJ/bit]
        Least and most energy that sources give for one byte. None: the sources agree.
    static_w_per_bit : W/bit, e.g. 0.00000000001
        Power of one bit of the DRAM that flows all the time.
    utilization : e.g. 0.9
        Share of the DRAM bandwidth that is sustained.
    usd_per_gb : USD/GB, e.g. 12
        Price of the DRAM per GB (1e9 B) of its capacity. None: unknown.
    on_die : e.g. true
        Whether the DRAM dies are bonded onto the logic die. None: they stand next to it.
    """

    stack: Bytes = Field(gt=0)
    stack_area_mm2: Area
    controller_area_mm2: Area
    links_per_stack: int = Field(ge=1, le=10**7)
    links_per_mm: PerMm
    frequency: Hertz = Field(gt=0)
    supply: Supply
    energy: JoulesPerByte = Field(gt=0)
    energy_range: tuple[JoulesPerByte, JoulesPerByte] | None = None
    static_w_per_bit: BitPower
    utilization: Share = 1.0
    usd_per_gb: float | None = Field(default=None, ge=0)
    on_die: bool | None = None

    @model_validator(mode="after")
    def _within_range(self) -> Self:
        if self.energy_range is not None and not 0 < self.energy_range[0] <= self.energy <= self.energy_range[1]:
            least, most = (show_unit(value, "energy_per_byte") for value in self.energy_range)
            energy = show_unit(self.energy, "energy_per_byte")
            message = f"found {least} to {most}, expected a range that has the energy in it, {energy}"
            raise problem(message, "list the least and the most, or leave it out", "$.energy_range")
        return self


class ChipLinks(Part):
    """Links between chips.

    Attributes
    ----------
    area_mm2 : mm2, e.g. 0.02
        Area of one link on the chip.
    links_per_mm : links/mm, e.g. 100
        Number of links that fit on one mm of the edge of the chip.
    frequency : e.g. 32 GHz
        Bits per second of one link at nominal voltage.
    supply : e.g. {nominal_v: 0.9, threshold_v: 0.3, margin_v: 0.2}
        Voltages at which the links work.
    energy : e.g. 1.3 pJ/bit
        Energy of one byte that passes a link.
    utilization : e.g. 0.8
        Share of the bandwidth of the links that is sustained.
    latency : e.g. 500 ns
        Latency of one hop; through a switch, from chip to chip. None: 0.
    """

    area_mm2: Area
    links_per_mm: PerMm
    frequency: Hertz = Field(gt=0)
    supply: Supply
    energy: JoulesPerByte = Field(gt=0)
    utilization: Share = 1.0
    latency: Seconds | None = Field(default=None, ge=0)


class Technology(Named):
    """Building blocks of chips: a core, SRAM levels, DRAM, and links inside and between packages.

    Attributes
    ----------
    core
        Unit of compute, such as a tensor core, of which a chip has as many as fit.
    sram : e.g. [{name: L2, bit_area_mm2: 0.00000005, energy: 0.1 pJ/bit, static_w_per_bit: 0.000000001, bank: 64 kB}]
        Levels of on-chip memory, from the cores outwards.
    dram
        Stacks of DRAM of the chip, and their controllers on the chip. None: ``layers`` describes the DRAM.
    layers
        DRAM dies that are bonded onto the logic die, layer by layer. None: ``dram`` describes the DRAM.
    links
        Links between dies, inside a package, between packages and between nodes, by their role. Roles are
        ``in_package``, ``between_packages``, ``between_nodes`` and ``between_dies``.
    wafer : e.g. {usd: 9346, defects_per_cm2: 0.09}
        Wafer from which dies are cut. None: dies have no price.
    package : e.g. {usd_per_mm2: 0.005, area_factor: 4}
        Package on which dies and DRAM stacks stand. None: the technology has no package, so systems have no price.
    """

    SCHEMA: ClassVar[str] = "dfopt/technology/1"
    EXAMPLE: ClassVar = ("dram",)

    core: CoreUnit
    sram: tuple[SramLevel, ...] = Field(default=(), max_length=8)
    dram: DramStacks | None = None
    layers: DramLayers | None = None
    links: dict[LinkRole, ChipLinks] = Field(default_factory=dict)
    wafer: Wafer | None = None
    package: Packaging | None = None

    @property
    def components(self) -> tuple[str, ...]:
        """Components that take shares of the budgets."""
        return ("core", *(level.name for level in self.sram), *(("dram",) if self.dram else ()), *self.links)

    @property
    def stacks(self) -> DramStacks:
        """DRAM stacks, for a chip without DRAM layers."""
        assert self.dram is not None  # the validators of designs see to it
        return self.dram

    @property
    def memories(self) -> tuple[str, ...]:
        """Memories that mappings can use as SRAM."""
        return (*(level.name for level in self.sram), *(("buffer",) if self.core.buffer else ()))

    @model_validator(mode="after")
    def _has_one_dram(self) -> Self:
        if (self.dram is None) == (self.layers is None):
            given = "neither dram nor layers" if self.dram is None else "both dram and layers"
            remedy = "dram: stacks with controllers on the chip; layers: dies on the chip"
            raise problem(f"found {given}, expected one of them", remedy, "$.dram")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for position, level in enumerate(self.sram):
            if self.components.count(level.name) > 1:
                message = f"found {level.name!r}, a name that another component has"
                raise problem(message, "shares name components: rename it", f"$.sram[{position}].name")
        return self


class TechnologyPart(Named):
    """Some sections of a technology, in the same form.

    Attributes
    ----------
    core
        Unit of compute, such as a tensor core, of which a chip has as many as fit. None: the part has no such section.
    sram : e.g. [{name: L2, bit_area_mm2: 0.00000005, energy: 0.1 pJ/bit, static_w_per_bit: 0.000000001, bank: 64 kB}]
        Levels of on-chip memory, from the cores outwards. None: the part has no such section.
    dram
        Stacks of DRAM of the chip, and their controllers on the chip. None: the part has no such section.
    layers
        DRAM dies that are bonded onto the logic die, layer by layer. None: the part has no such section.
    links
        Links between dies, inside a package, between packages and between nodes, by their role. Roles are
        ``in_package``, ``between_packages``, ``between_nodes`` and ``between_dies``. None: the part has no such
        section.
    wafer : e.g. {usd: 9346, defects_per_cm2: 0.09}
        Wafer from which dies are cut. None: the part has no such section.
    package : e.g. {usd_per_mm2: 0.005, area_factor: 4}
        Package on which dies and DRAM stacks stand. None: the part has no such section.

    Examples
    --------
    >>> TechnologyPart(name="prices", wafer=Wafer(usd=9346, defects_per_cm2=0.09)).sections
    ('wafer',)
    """

    SCHEMA: ClassVar[str] = "dfopt/technology-part/1"

    core: CoreUnit | None = None
    sram: tuple[SramLevel, ...] | None = Field(default=None, max_length=8)
    dram: DramStacks | None = None
    layers: DramLayers | None = None
    links: dict[LinkRole, ChipLinks] | None = None
    wafer: Wafer | None = None
    package: Packaging | None = None

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the sections that the part has."""
        return tuple(name for name in SECTIONS if getattr(self, name) is not None)
