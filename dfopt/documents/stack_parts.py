"""What a die stack is made of: dies with their floorplans, bonds, and the package that takes the heat away.

Dies are listed from the face far from the heat sink to the heat sink. Lateral coordinates start at one corner of the
stack. Conductivities are in W/(m K), heat capacities in J/(m3 K).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Kelvin, Metres, Watts

Conductivity = Annotated[float, Field(gt=0, le=1e5)]
HeatCapacity = Annotated[float, Field(gt=0, le=1e9)]
TileKind = Literal["compute", "sram", "noc", "io", "dram"]


class Tile(Part):
    """A rectangle of a die's floorplan; power is uniform inside it.

    Attributes
    ----------
    name : e.g. core0
        Name of the tile, unique on its die.
    kind : e.g. compute
        Kind of circuit on the tile, which decides the power that it gets. ``compute``: compute units. ``sram``: on-chip
        memory. ``noc``: the on-chip network. ``io``: links to other chips. ``dram``: banks of a DRAM die.
    x : e.g. 0 mm
        Distance of the left side of the tile from the corner of the stack.
    y : e.g. 0 mm
        Distance of the lower side of the tile from the corner of the stack.
    width : e.g. 3 mm
        Extent of the tile along the x axis.
    height : e.g. 2 mm
        Extent of the tile along the y axis.
    """

    name: str = Field(min_length=1)
    kind: TileKind
    x: Metres = Field(ge=0)
    y: Metres = Field(ge=0)
    width: Metres = Field(gt=0)
    height: Metres = Field(gt=0)


class TileGrid(Part):
    """A floorplan of equal tiles over the whole die, row by row from ``y = 0``.

    Attributes
    ----------
    columns : tiles, e.g. 4
        Number of equal tiles along the x axis of the die.
    rows : tiles, e.g. 4
        Number of equal tiles along the y axis of the die.
    """

    columns: int = Field(ge=1, le=64)
    rows: int = Field(ge=1, le=64)


def _floorplan_form(value: Any) -> str:
    return "a list of tiles" if isinstance(value, list | tuple) else "a grid of tiles"


# Told apart by their form, so that a typo in a tile is not told as a failed grid too.
Floorplan = Annotated[
    Annotated[TileGrid, Tag("a grid of tiles")] | Annotated[tuple[Tile, ...], Tag("a list of tiles")],
    Discriminator(_floorplan_form),
]


class Leakage(Part):
    """Static power of a die, spread over its area: ``power * exp(beta_per_k * (T - at))``.

    Attributes
    ----------
    power : e.g. 10 W
        Leakage power of the die at the temperature ``at`` and nominal voltage.
    at : e.g. 85 degC
        Temperature at which the die has this leakage power.
    beta_per_k : 1/K, e.g. 0.015
        Exponent by which leakage grows with temperature. At 0 it does not depend on temperature.
    """

    power: Watts = Field(ge=0)
    at: Kelvin = Field(gt=0)
    beta_per_k: float = Field(default=0.0, ge=0, le=0.2)


class Bond(Part):
    """Bond between a die and its neighbour towards the sink: microbumps, hybrid bonds, glue, or TIM.

    ``pitch`` and ``signal_share`` tell how many vertical connections there are; the heat takes ``conductivity``,
    which is that of bond and fill together.

    Attributes
    ----------
    kind : e.g. microbump
        Kind of joint between a die and its neighbor on the side of the sink. ``microbump``: solder bumps. ``hybrid``:
        hybrid bonding. ``adhesive``: glue. ``tim``: thermal interface material.
    thickness : e.g. 20 um
        Thickness of the joint between the dies.
    conductivity : W/(m K), e.g. 1.5
        Thermal conductivity of bond and fill together.
    heat_capacity : J/(m3 K), e.g. 2200000.0
        Heat capacity of the joint per volume.
    pitch : e.g. 40 um
        Distance between neighboring vertical connections. None: unknown, so dfopt does not count connections.
    signal_share : share, e.g. 0.5
        Share of the vertical connections that carry data.
    """

    kind: Literal["microbump", "hybrid", "adhesive", "tim"]
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity
    heat_capacity: HeatCapacity = 2.2e6
    pitch: Metres | None = Field(default=None, gt=0)
    signal_share: float = Field(default=0.5, gt=0, le=1)


class Die(Part):
    """One die, or ``count`` equal dies on top of each other, numbered from the far side: ``dram0``, ``dram1``.

    ``logic`` holds the compute tiles, ``dram`` banks, ``passive`` neither (an interposer, a lid, a dummy die).

    Attributes
    ----------
    name : e.g. dram
        Name of the die in its stack. Several equal dies add a number, such as dram0 and dram1.
    kind : e.g. dram
        Kind of circuit on the die. ``logic``: compute tiles. ``dram``: memory banks. ``passive``: neither, as for an
        interposer, a lid or a dummy die.
    count : dies, e.g. 4
        Number of equal dies on top of each other.
    thickness : e.g. 50 um
        Thickness of one die of this kind.
    conductivity : W/(m K), e.g. 120.0
        Thermal conductivity of the die; silicon has about 120.
    heat_capacity : J/(m3 K), e.g. 1750000.0
        Heat capacity of the die per volume.
    source_thickness : e.g. 5 um
        Thickness of the layer at the far face that produces the heat. None: the whole die does.
    floorplan : e.g. {columns: 4, rows: 4}
        Tiles of the die, as a list or as a grid of equal tiles. A passive die has no use for it.
    leakage : e.g. {power: 10 W, at: 85 degC}
        Leakage power of the die. None: the die has no leakage.
    bond : e.g. {kind: microbump, thickness: 20 um, conductivity: 1.5}
        Joint to the next die towards the sink. None: direct contact.
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    kind: Literal["logic", "dram", "passive"]
    count: int = Field(default=1, ge=1, le=64)
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity = 120.0
    heat_capacity: HeatCapacity = 1.75e6
    source_thickness: Metres | None = Field(default=None, gt=0)
    floorplan: Floorplan = TileGrid(columns=4, rows=4)
    leakage: Leakage | None = None
    bond: Bond | None = None

    @model_validator(mode="after")
    def _source_is_inside(self) -> Self:
        if self.source_thickness is not None and self.source_thickness >= self.thickness:
            message = (
                f"found {self.source_thickness * 1e6:.6g} um, expected less than the {self.thickness * 1e6:.6g} um"
            )
            remedy = "leave it out if the whole die is powered"
            raise problem(f"{message} of the die", remedy, "$.source_thickness")
        return self

    def layers(self) -> tuple[Die, ...]:
        """The dies individually."""
        if self.count == 1:
            return (self,)
        return tuple(self.model_copy(update={"name": f"{self.name}{i}", "count": 1}) for i in range(self.count))

    def tiles(self, side_x: float, side_y: float) -> tuple[Tile, ...]:
        """Floorplan as rectangles, for a stack with these sides in metres."""
        if self.kind == "passive":
            return ()
        if isinstance(self.floorplan, tuple):
            return self.floorplan
        columns, rows = self.floorplan.columns, self.floorplan.rows
        width, height = side_x / columns, side_y / rows
        kind: TileKind = "compute" if self.kind == "logic" else "dram"
        return tuple(
            Tile(name=f"{ix},{iy}", kind=kind, x=ix * width, y=iy * height, width=width, height=height)
            for iy in range(rows)
            for ix in range(columns)
        )


class Plate(Part):
    """A square plate of the package: heat spreader or heat sink base; copper by default.

    Attributes
    ----------
    side : e.g. 30 mm
        Length of each side of the square plate.
    thickness : e.g. 1 mm
        Thickness of the plate of the package.
    conductivity : W/(m K), e.g. 400.0
        Thermal conductivity of the plate; copper has about 400.
    heat_capacity : J/(m3 K), e.g. 3550000.0
        Heat capacity of the plate per volume.
    """

    side: Metres = Field(gt=0)
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity = 400.0
    heat_capacity: HeatCapacity = 3.55e6


class HtcPackage(Part):
    """A cold plate as a heat transfer coefficient, on a plate of the die's size or on the last layer.

    Attributes
    ----------
    mode : e.g. htc
        Model of how the package removes heat: htc, hotspot or plates. ``htc`` is a cold plate with a heat transfer
        coefficient; the other two have a heat spreader and a heat sink.
    htc_w_per_m2k : W/(m2 K), e.g. 20000
        Heat transfer coefficient between the stack, or its lid, and the coolant.
    plate_thickness : e.g. 1 mm
        Thickness of a lid of the size of the die. None: no lid.
    plate_conductivity : W/(m K), e.g. 400.0
        Thermal conductivity of the lid.
    plate_heat_capacity : J/(m3 K), e.g. 3550000.0
        Heat capacity of the lid per volume.
    """

    mode: Literal["htc"]
    htc_w_per_m2k: float = Field(gt=0, le=1e9)
    plate_thickness: Metres | None = Field(default=None, gt=0)
    plate_conductivity: Conductivity = 400.0
    plate_heat_capacity: HeatCapacity = 3.55e6


class SinkPackage(Part):
    """A heat spreader and a finned sink in moving air or water.

    ``hotspot``: plates outside the die lumped into a few nodes, as HotSpot has it; ``plates``: both meshed. The
    lumped one reads 10 to 12 % less rise (HotSpot f18831e against our plates, ten cases).

    Attributes
    ----------
    mode : e.g. hotspot
        Model of how the package removes heat: htc, hotspot or plates. ``hotspot``: plates outside of the die are lumped
        into a few nodes, as in HotSpot. ``plates``: both plates are meshed. The model htc is a cold plate.
    r_convec_k_per_w : K/W, e.g. 0.1
        Thermal resistance from the whole heat sink to the ambient.
    c_convec_j_per_k : J/K, e.g. 140.4
        Heat capacity of the moving air or water, which matters for transients only.
    spreader : e.g. {side: 30 mm, thickness: 1 mm}
        Heat spreader between the stack and the heat sink.
    sink : e.g. {side: 60 mm, thickness: 6.9 mm}
        Base plate of the heat sink.
    """

    mode: Literal["hotspot", "plates"]
    r_convec_k_per_w: float = Field(gt=0, le=1e4)
    c_convec_j_per_k: float = Field(default=140.4, gt=0, le=1e6)
    spreader: Plate = Plate(side=30e-3, thickness=1e-3)
    sink: Plate = Plate(side=60e-3, thickness=6.9e-3)

    @model_validator(mode="after")
    def _nested(self) -> Self:
        if self.sink.side < self.spreader.side:
            actual = (
                f"found {self.sink.side * 1e3:.6g} mm, expected the {self.spreader.side * 1e3:.6g} mm of the spreader"
            )
            raise problem(f"{actual} or more", "the sink covers the spreader: make it larger", "$.sink.side")
        return self


Package = Annotated[HtcPackage | SinkPackage, Field(discriminator="mode")]
