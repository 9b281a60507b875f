"""What dies are cut from, and what they are put into: wafers, interposers and packages, with prices and yields."""

from __future__ import annotations

import itertools
from typing import Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.units import Metres

__all__ = ["Interposer", "Packaging", "Wafer"]


class Wafer(Part):
    """A processed wafer: what it costs, how much of it can be used, and how often a layer has a defect.

    ``clustering`` is the parameter of the negative binomial yield: the number of critical layers, or how evenly
    defects are spread. Infinitely many is Poisson's yield.
    """

    usd: float = Field(ge=0, description="price of a processed wafer in USD")
    diameter: Metres = Field(default=0.3, gt=0)
    edge: Metres = Field(default=0.005, ge=0, description="ring at the rim that has no dies")
    scribe: Metres = Field(default=0.0002, ge=0, description="lane between dies that is sawn away")
    defects_per_cm2: float = Field(ge=0, description="defects per cm2")
    clustering: float = Field(default=10, gt=0, description="parameter of the negative binomial yield")

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 2 * self.edge >= self.diameter:
            rim, wide = self.edge * 1e3, self.diameter * 1e3
            found = f"found {rim:g} mm around {wide:g} mm, expected less than half of it"
            raise problem(found, "no die is left: make it narrower", "$.edge")
        return self


class Interposer(Part):
    """What dies of a package stand on together: silicon, or layers of redistribution."""

    wafer: Wafer
    area_factor: float = Field(ge=1, description="its area over that of all dies")


class Packaging(Part):
    """A package: its substrate, an interposer if it has one, and how often a die survives being bonded."""

    usd_per_mm2: float = Field(ge=0, description="price of the substrate in USD per mm2, for one die")
    area_factor: float = Field(ge=1, description="area of the substrate over that of the dies, or of the interposer")
    bump_usd_per_mm2: float = Field(default=0.0, ge=0, description="price of a die's bumps in USD per mm2 of it")
    ball_usd_per_mm2: float = Field(default=0.0, ge=0, description="of an interposer's, where there is one")
    layers: tuple[tuple[float, float], ...] = Field(
        default=(), description="substrates of several dies without an interposer: from so many mm2 on, so many times"
        " the price, as it takes more layers",
    )  # fmt: skip
    bonding_yield: float = Field(default=1.0, gt=0, le=1, description="share of the dies that survive being bonded")
    substrate_yield: float = Field(default=1.0, gt=0, le=1, description="of the interposers, onto the substrate")
    interposer: Interposer | None = None

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for at, (one, other) in enumerate(itertools.pairwise(self.layers), 1):
            if other[0] <= one[0]:
                found = f"found {other[0]:g} mm2 after {one[0]:g} mm2, expected more"
                raise problem(found, "list them ascending", f"$.layers[{at}]")
        return self
