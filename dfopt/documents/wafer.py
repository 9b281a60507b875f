"""What dies are cut from, and what they are put into: wafers, interposers and packages, with prices and yields."""

from __future__ import annotations

import itertools
from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Metres


class Wafer(Part):
    """A processed wafer: cost, usable area and defect density.

    ``clustering`` is the parameter of the negative binomial yield: the number of critical layers, or how evenly
    defects are spread. Infinitely many is Poisson's yield.

    Attributes
    ----------
    usd : USD, e.g. 9346
        Price of one processed wafer.
    diameter : e.g. 300 mm
        Diameter of the whole round wafer.
    edge : e.g. 5 mm
        Width of the ring at the rim that holds no dies.
    scribe : e.g. 0.2 mm
        Width of the lane between dies that the saw removes.
    defects_per_cm2 : defects/cm2, e.g. 0.09
        Density of defects on the wafer.
    clustering : no unit, e.g. 10
        Clustering parameter of the negative binomial yield. Very large values give the yield of Poisson.
    """

    usd: float = Field(ge=0)
    diameter: Metres = Field(default=0.3, gt=0)
    edge: Metres = Field(default=0.005, ge=0)
    scribe: Metres = Field(default=0.0002, ge=0)
    defects_per_cm2: float = Field(ge=0)
    clustering: float = Field(default=10, gt=0)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 2 * self.edge >= self.diameter:
            rim, wide = self.edge * 1e3, self.diameter * 1e3
            message = f"found {rim:g} mm around {wide:g} mm, expected less than half of it"
            raise problem(message, "no die is left: make it narrower", "$.edge")
        return self


class Interposer(Part):
    """Interposer of a package: silicon, or redistribution layers.

    Attributes
    ----------
    wafer
        Wafer that the interposers are cut from.
    area_factor : no unit, e.g. 1.1
        Area of the interposer divided by the area of all dies that stand on it.
    """

    wafer: Wafer
    area_factor: float = Field(ge=1)


class Packaging(Part):
    """A package: substrate, optional interposer, and bonding yield.

    Attributes
    ----------
    usd_per_mm2 : USD/mm2, e.g. 0.005
        Price of the package substrate per area, for a package with one die.
    area_factor : no unit, e.g. 4
        Area of the substrate divided by the area of the dies, or of the interposer if the package has one.
    bump_usd_per_mm2 : USD/mm2, e.g. 0.005
        Price of the bumps of a die per area of the die.
    ball_usd_per_mm2 : USD/mm2, e.g. 0.005
        Price of the bumps of the interposer per area of the interposer.
    layers : mm2 and no unit, e.g. [[900, 1.5], [1800, 2]]
        Price factors of substrates that carry several dies without an interposer. Each pair gives an area in mm2 and
        the factor that applies from this area on.
    bonding_yield : share, e.g. 0.99
        Share of the dies that survive bonding.
    substrate_yield : share, e.g. 0.99
        Share of the interposers that survive bonding to the substrate.
    interposer : e.g. {wafer: {usd: 1937, defects_per_cm2: 0.06}, area_factor: 1.1}
        Interposer on which the dies of the package stand. None: the dies stand on the substrate.
    """

    usd_per_mm2: float = Field(ge=0)
    area_factor: float = Field(ge=1)
    bump_usd_per_mm2: float = Field(default=0.0, ge=0)
    ball_usd_per_mm2: float = Field(default=0.0, ge=0)
    layers: tuple[tuple[float, float], ...] = ()  # fmt: skip
    bonding_yield: float = Field(default=1.0, gt=0, le=1)
    substrate_yield: float = Field(default=1.0, gt=0, le=1)
    interposer: Interposer | None = None

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for at, (layer, other) in enumerate(itertools.pairwise(self.layers), 1):
            if other[0] <= layer[0]:
                message = f"found {other[0]:g} mm2 after {layer[0]:g} mm2, expected more"
                raise problem(message, "list them ascending", f"$.layers[{at}]")
        return self
