"""What the thermal network is made of: a stack of slabs under a package, as plain numbers in SI units."""

from __future__ import annotations

from dataclasses import dataclass

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import HtcPackage, SinkPackage


@dataclass(frozen=True, eq=False)
class Slab:
    """One slab of the stack: a die, a bond or an interface material.

    Parameters
    ----------
    name
        Unique in its body.
    thickness_m
        Metres.
    conductivity, heat_capacity
        W/mK and J/m3K (per volume); one number, or an array of one number per cell, shape (ny, nx).
    source_thickness_m
        Metres of the powered part at the far face; the rest lies behind it, unpowered. Without it the power is spread
        over the whole thickness. The temperature of the slab is that of its powered part. In mode ``hotspot`` it
        changes nothing: power and temperature are at the far face there anyway.
    """

    name: str
    thickness_m: float
    conductivity: float | Floats
    heat_capacity: float | Floats
    source_thickness_m: float | None = None


@dataclass(frozen=True, eq=False)
class Body:
    """A rectangular stack of slabs and its package; the sides are adiabatic.

    Parameters
    ----------
    side_x, side_y
        Metres.
    slabs
        From the face far from the sink to the sink.
    package
        Parts of the package beyond the last slab. A sink in mode ``hotspot`` is meshed over the die, with twelve nodes
        for the area outside (Skadron et al., "Temperature-aware microarchitecture", ISCA 2003, and package.c of
        HotSpot; heat capacities are taken as they are, HotSpot multiplies them by 0.333). In mode ``plates`` it is
        meshed as it is.
    ambient_k
        Kelvin.
    far_htc
        W/m2K from the far face to ambient (bumps, substrate and board); 0 is adiabatic.
    """

    side_x: float
    side_y: float
    slabs: tuple[Slab, ...]
    package: HtcPackage | SinkPackage
    ambient_k: float
    far_htc: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the slabs, far face first."""
        return tuple(slab.name for slab in self.slabs)
