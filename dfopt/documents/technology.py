"""A technology: what a unit of a chip takes of area, power and perimeter, and what it yields.

Areas are in mm2, lengths of the chip's edge in mm, voltages in V. Powers and energies are those at nominal voltage.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Named, Part, problem
from dfopt.documents.dtypes import Arithmetic
from dfopt.documents.wafer import Packaging, Wafer
from dfopt.units import Bytes, Hertz, JoulesPerByte, Ratio, Seconds, Watts
from dfopt.units import format as show_unit

LinkRole = Literal["in_package", "between_packages", "between_dies"]
Area = Annotated[float, Field(gt=0, le=1e7, description="in mm2")]
BitArea = Annotated[float, Field(gt=0, le=1.0, description="of one bit in mm2")]
BitPower = Annotated[float, Field(ge=0, le=1.0, description="leakage of one bit in W")]
PerMm = Annotated[float, Field(gt=0, le=1e7, description="per mm of the chip's edge")]
Cycle = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[Ratio, Field(gt=0, le=1)]


class Supply(Part):
    """The voltages of a circuit, in V; it runs at ``threshold_v + margin_v`` or more."""

    nominal_v: float = Field(gt=0, le=100)
    threshold_v: float = Field(ge=0, le=100, description="where the clock would be 0")
    margin_v: float = Field(ge=0, le=100, description="above the threshold, at the lowest voltage that works")
    max_v: float | None = Field(default=None, gt=0, le=100, description="none = no limit")

    @property
    def floor(self) -> float:
        """The lowest voltage that works."""
        return self.threshold_v + self.margin_v

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.threshold_v >= self.nominal_v:
            found = f"found {self.threshold_v:.6g} V, expected less than the nominal {self.nominal_v:.6g} V"
            raise problem(found, "at its threshold a circuit has no clock", "$.threshold_v")
        if self.max_v is not None and self.max_v < self.floor:
            found = f"found {self.max_v:.6g} V, expected {self.floor:.6g} V (threshold_v + margin_v) or more"
            raise problem(found, "raise it, or lower the margin", "$.max_v")
        return self


class CoreUnit(Part):
    """One unit of compute, such as a tensor core; a chip is as many as fit."""

    area_mm2: Area
    flop_per_cycle: Cycle
    flop_per_cycle_by_type: dict[Arithmetic, Cycle] | None = Field(default=None, description="in other types")
    power: Watts = Field(gt=0, description="dynamic power at nominal voltage and frequency")
    static_power: Watts | None = Field(default=None, ge=0, description="leakage; none = in the dynamic power")
    frequency: Hertz = Field(gt=0, description="at nominal voltage")
    supply: Supply
    units_per_cluster: int = Field(ge=1, le=10**6, description="units that share a port to the memories")
    utilization: Share = Field(default=1.0, description="share of peak that is sustained")


class SramLevel(Part):
    """One level of the memories on the chip, made of equal banks."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    bit_area_mm2: BitArea
    energy: JoulesPerByte = Field(gt=0, description="of an access")
    static_w_per_bit: BitPower
    bank: Bytes = Field(gt=0, description="capacity of a bank")
    overhead: Ratio = Field(default=0.0, ge=0, lt=1, description="share of the area that holds neither bits nor links")
    link_area_mm2: float = Field(default=0.0, ge=0, le=1e6, description="of one bank's link to one cluster, in mm2")
    shared: bool = Field(default=True, description="whether all clusters reach all banks; false = each has its own")
    port: Bytes | None = Field(default=None, gt=0, description="of a bank per cycle of the cores; none = no limit")
    utilization: Share = Field(default=1.0, description="share of the bandwidth that is sustained")


class DramStacks(Part):
    """Stacks of DRAM beside the chip, and their controllers on it."""

    stack: Bytes = Field(gt=0, description="capacity of a stack")
    stack_area_mm2: Area
    controller_area_mm2: Area
    links_per_stack: int = Field(ge=1, le=10**7)
    links_per_mm: PerMm
    frequency: Hertz = Field(gt=0, description="bits per second of a link at nominal voltage")
    supply: Supply
    energy: JoulesPerByte = Field(gt=0, description="of a byte over the links")
    energy_range: tuple[JoulesPerByte, JoulesPerByte] | None = Field(
        default=None, description="least and most that sources give for the energy; none = they agree"
    )
    static_w_per_bit: BitPower
    utilization: Share = Field(default=1.0, description="share of the bandwidth that is sustained")
    usd_per_gb: float | None = Field(default=None, ge=0, description="price in USD per GB = 1e9 B of capacity")
    on_die: bool | None = Field(
        default=None, description="true: dies bonded onto the logic die, which no stack without DRAM dies has"
    )

    @model_validator(mode="after")
    def _within_range(self) -> Self:
        if self.energy_range is not None and not 0 < self.energy_range[0] <= self.energy <= self.energy_range[1]:
            least, most = (show_unit(one, "energy_per_byte") for one in self.energy_range)
            energy = show_unit(self.energy, "energy_per_byte")
            found = f"found {least} to {most}, expected a range that has the energy in it, {energy}"
            raise problem(found, "list the least and the most, or leave it out", "$.energy_range")
        return self


class ChipLinks(Part):
    """Links between chips."""

    area_mm2: Area
    links_per_mm: PerMm
    frequency: Hertz = Field(gt=0, description="bits per second of a link at nominal voltage")
    supply: Supply
    energy: JoulesPerByte = Field(gt=0, description="of a byte over a link")
    utilization: Share = Field(default=1.0, description="share of the bandwidth that is sustained")
    latency: Seconds | None = Field(default=None, ge=0, description="of one hop; through a switch: chip to chip")


class Technology(Named):
    """What chips can be made of: a core, levels of SRAM, DRAM, and links inside and between packages."""

    SCHEMA: ClassVar[str] = "dfopt/technology/1"

    core: CoreUnit
    sram: tuple[SramLevel, ...] = Field(default=(), max_length=8, description="from the cores outwards")
    dram: DramStacks
    links: dict[LinkRole, ChipLinks] = Field(default_factory=dict)
    wafer: Wafer | None = Field(default=None, description="what the dies are cut from; none = they have no price")
    package: Packaging | None = Field(default=None, description="what the dies and stacks stand on")

    @property
    def components(self) -> tuple[str, ...]:
        """What has a share of the budgets."""
        return ("core", *(level.name for level in self.sram), "dram", *self.links)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for position, level in enumerate(self.sram):
            if self.components.count(level.name) > 1:
                message = f"found {level.name!r}, a name that another component has"
                raise problem(message, "shares name components: rename it", f"$.sram[{position}].name")
        return self
