"""What a die stack is made of: dies with their floorplans, bonds, and the package that takes the heat away.

Dies are listed from the face far from the heat sink to the heat sink. Lateral coordinates start at one corner of the
stack. Conductivities are in W/(m K), heat capacities in J/(m3 K).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Kelvin, Metres, Watts

Conductivity = Annotated[float, Field(gt=0, le=1e5, description="thermal conductivity in W/(m K)")]
HeatCapacity = Annotated[float, Field(gt=0, le=1e9, description="volumetric heat capacity in J/(m3 K)")]
TileKind = Literal["compute", "sram", "noc", "io", "dram"]


class Tile(Part):
    """A rectangle of a die's floorplan; power is uniform inside it."""

    name: str = Field(min_length=1)
    kind: TileKind
    x: Metres = Field(ge=0, description="distance of its left side from the corner of the stack")
    y: Metres = Field(ge=0)
    width: Metres = Field(gt=0)
    height: Metres = Field(gt=0)


class TileGrid(Part):
    """A floorplan of equal tiles over the whole die, row by row from ``y = 0``."""

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
    """Static power of a die, spread over its area: ``power * exp(beta_per_k * (T - at))``."""

    power: Watts = Field(ge=0, description="at the temperature `at` and nominal voltage")
    at: Kelvin = Field(gt=0)
    beta_per_k: float = Field(default=0.0, ge=0, le=0.2, description="1/K; 0 = leakage does not depend on temperature")


class Bond(Part):
    """What joins a die to its neighbour on the side of the sink: microbumps, hybrid bonds, glue, or the TIM.

    ``pitch`` and ``signal_share`` tell how many vertical connections there are; the heat takes ``conductivity``,
    which is that of bond and fill together.
    """

    kind: Literal["microbump", "hybrid", "adhesive", "tim"]
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity
    heat_capacity: HeatCapacity = 2.2e6
    pitch: Metres | None = Field(default=None, gt=0, description="of the vertical connections")
    signal_share: float = Field(default=0.5, gt=0, le=1, description="share of the connections that carry data")


class Die(Part):
    """One die, or ``count`` equal ones on top of each other, numbered from the far side: ``dram0``, ``dram1``.

    ``logic`` holds the compute tiles, ``dram`` banks, ``passive`` neither (an interposer, a lid, a dummy die).
    """

    name: str = Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    kind: Literal["logic", "dram", "passive"]
    count: int = Field(default=1, ge=1, le=64)
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity = 120.0
    heat_capacity: HeatCapacity = 1.75e6
    source_thickness: Metres | None = Field(
        default=None, gt=0, description="of the powered slab at the far face; none = the whole thickness"
    )
    floorplan: Floorplan = Field(default=TileGrid(columns=4, rows=4), description="of a passive die it says nothing")
    leakage: Leakage | None = None
    bond: Bond | None = Field(default=None, description="towards the sink; none = in direct contact")

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
        """The dies that it stands for, one by one."""
        if self.count == 1:
            return (self,)
        return tuple(self.model_copy(update={"name": f"{self.name}{i}", "count": 1}) for i in range(self.count))

    def tiles(self, side_x: float, side_y: float) -> tuple[Tile, ...]:
        """The floorplan as rectangles, on a stack of these sides in metres."""
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
    """A square plate of the package: heat spreader or heat sink base. Copper unless said otherwise."""

    side: Metres = Field(gt=0)
    thickness: Metres = Field(gt=0)
    conductivity: Conductivity = 400.0
    heat_capacity: HeatCapacity = 3.55e6


_MODE: Any = Field(description="htc: a cold plate; hotspot or plates: spreader and sink")


class HtcPackage(Part):
    """A cold plate: a heat transfer coefficient on a plate of the size of the die, or on the last layer itself."""

    mode: Literal["htc"] = _MODE
    htc_w_per_m2k: float = Field(gt=0, le=1e9, description="heat transfer coefficient in W/(m2 K)")
    plate_thickness: Metres | None = Field(default=None, gt=0, description="of a lid of the size of the die")
    plate_conductivity: Conductivity = 400.0
    plate_heat_capacity: HeatCapacity = 3.55e6


class SinkPackage(Part):
    """A heat spreader and a finned sink in moving air or water.

    ``hotspot``: plates outside the die lumped into a few nodes, as HotSpot has it; ``plates``: both meshed. The
    lumped one reads 10 to 12 % less rise (HotSpot f18831e against our plates, ten cases).
    """

    mode: Literal["hotspot", "plates"] = _MODE
    r_convec_k_per_w: float = Field(gt=0, le=1e4, description="sink to ambient in K/W, over the whole sink")
    c_convec_j_per_k: float = Field(default=140.4, gt=0, le=1e6, description="of the moving air; of transients only")
    spreader: Plate = Plate(side=30e-3, thickness=1e-3)
    sink: Plate = Plate(side=60e-3, thickness=6.9e-3)

    @model_validator(mode="after")
    def _nested(self) -> Self:
        if self.sink.side < self.spreader.side:
            found = (
                f"found {self.sink.side * 1e3:.6g} mm, expected the {self.spreader.side * 1e3:.6g} mm of the spreader"
            )
            raise problem(f"{found} or more", "the sink covers the spreader: make it larger", "$.sink.side")
        return self


Package = Annotated[HtcPackage | SinkPackage, Field(discriminator="mode")]
