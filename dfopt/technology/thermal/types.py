"""What the thermal solver works on: a stack of slabs under a package, as plain numbers in SI units.

Everything here is a frozen dataclass; a `Body` checks itself when it is made and reports all that is wrong at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dfopt.errors import Issue, SystemSpecError, json_path, shown

__all__ = ["Body", "HotspotPackage", "HtcPackage", "Package", "PlatesPackage", "Rect", "Slab"]

Floats = NDArray[np.float64]

# Copper as in HotSpot's default configuration (hotspot.config of HotSpot 6 and 7): W/mK, J/m3K, and J/K of the
# convection node of the sink.
COPPER_K: Final = 400.0
COPPER_CV: Final = 3.55e6
C_CONVEC: Final = 140.4

# A plate made as large as the die by adding 1 nm, as floorplan files need it, is not refused for rounding.
_SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Slab:
    """One layer of the stack: a die, a bond or an interface material.

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
        over the whole thickness. The temperature of the slab is that of its powered part. Under a `HotspotPackage` it
        changes nothing: power and temperature are at the far face there anyway.
    """

    name: str
    thickness_m: float
    conductivity: float | Floats
    heat_capacity: float | Floats
    source_thickness_m: float | None = None


@dataclass(frozen=True)
class Rect:
    """A tile of a floorplan: lower left corner and size in metres; (0, 0) is a corner of the die."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class HtcPackage:
    """A heat transfer coefficient (W/m2K) over the whole last slab, as a cold plate on the stack."""

    htc: float

    @property
    def film(self) -> float:
        """Heat transfer coefficient of the outer face, W/m2K."""
        return self.htc


@dataclass(frozen=True)
class HotspotPackage:
    """Spreader and sink in the lumped form of HotSpot: meshed over the die, twelve nodes for what is outside.

    Source: Skadron et al., "Temperature-aware microarchitecture", ISCA 2003, and package.c of HotSpot. Plates are
    squares of side ``s_*`` and thickness ``t_*`` (metres), ``k_*`` in W/mK, ``cv_*`` in J/m3K, ``r_convec`` in K/W and
    ``c_convec`` in J/K of the whole sink. Heat capacities are taken as they are (HotSpot multiplies them by 0.333).
    """

    r_convec: float
    s_sink: float
    t_sink: float
    s_spreader: float
    t_spreader: float
    k_sink: float = COPPER_K
    k_spreader: float = COPPER_K
    cv_sink: float = COPPER_CV
    cv_spreader: float = COPPER_CV
    c_convec: float = C_CONVEC

    @property
    def film(self) -> float:
        """Heat transfer coefficient of the sink's outer face, W/m2K."""
        return 1.0 / (self.r_convec * self.s_sink**2)


@dataclass(frozen=True)
class PlatesPackage:
    """Spreader and sink meshed as they are, wider than the die; convection shared by the area of the sink.

    Units as in `HotspotPackage`. Exactly one of ``r_convec`` (K/W of the whole sink) and ``htc`` (W/m2K) is given;
    ``*_cells`` is how many cells a plate has through its thickness.
    """

    s_sink: float
    t_sink: float
    s_spreader: float
    t_spreader: float
    r_convec: float | None = None
    htc: float | None = None
    k_sink: float = COPPER_K
    k_spreader: float = COPPER_K
    cv_sink: float = COPPER_CV
    cv_spreader: float = COPPER_CV
    spreader_cells: int = 1
    sink_cells: int = 3

    @property
    def film(self) -> float:
        """Heat transfer coefficient of the sink's outer face, W/m2K."""
        if self.r_convec is None:
            return float(self.htc or 0.0)  # a body has exactly one of them
        return 1.0 / (self.r_convec * self.s_sink**2)


Package = HtcPackage | HotspotPackage | PlatesPackage


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
        What is beyond the last slab.
    ambient_k
        Kelvin.
    far_htc
        W/m2K from the far face to ambient (bumps, substrate and board); 0 is adiabatic.

    Raises
    ------
    SystemSpecError
        With every value that is out of range.

    Examples
    --------
    >>> Body(0.01, 0.01, (Slab("die", 1e-4, -120.0, 1.75e6),), HtcPackage(1e4), 318.15)
    Traceback (most recent call last):
    dfopt.errors.SystemSpecError: <data>: 1 problem
      $.slabs[0].conductivity: found -120.0, expected finite numbers above 0
    """

    side_x: float
    side_y: float
    slabs: tuple[Slab, ...]
    package: Package
    ambient_k: float
    far_htc: float = 0.0

    def __post_init__(self) -> None:
        issues = list(_issues(self))
        if issues:
            raise SystemSpecError("", issues)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the slabs, far face first."""
        return tuple(slab.name for slab in self.slabs)


def _positive(where: str, value: object) -> Iterator[Issue]:
    """The issue of a value that is not a finite number (or array of them) above 0."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or not array.size or not bool(np.all(np.isfinite(array) & (array > 0))):
        found = shown(value) if array.ndim == 0 else f"an array of shape {array.shape} with other values"
        yield Issue(where, f"found {found}, expected finite numbers above 0")


def _issues(body: Body) -> Iterator[Issue]:
    for key in ("side_x", "side_y", "ambient_k"):
        yield from _positive(f"$.{key}", getattr(body, key))
    if not (math.isfinite(body.far_htc) and body.far_htc >= 0):
        yield Issue("$.far_htc", f"found {body.far_htc}, expected a finite number, 0 or more", "0 is adiabatic")
    if not body.slabs:
        yield Issue("$.slabs", "found none, expected at least one slab")
    known: set[str] = set()
    package = body.package
    taken = () if isinstance(package, HtcPackage) else ("spreader", "sink")
    for index, slab in enumerate(body.slabs):
        where = json_path("slabs", index)
        for key in ("thickness_m", "conductivity", "heat_capacity"):
            yield from _positive(f"{where}.{key}", getattr(slab, key))
        if slab.source_thickness_m is not None and not 0 < slab.source_thickness_m <= slab.thickness_m:
            message = f"found {slab.source_thickness_m}, expected above 0 and at most thickness_m {slab.thickness_m}"
            yield Issue(f"{where}.source_thickness_m", message)
        if slab.name in known:
            yield Issue(f"{where}.name", f"found {slab.name!r} a second time", "give every slab a name of its own")
        if slab.name in taken:
            yield Issue(f"{where}.name", f"found {slab.name!r}, which is a plate of the package", "rename the slab")
        known.add(slab.name)
    if isinstance(package, HtcPackage):
        yield from _positive("$.package.htc", package.htc)
    else:
        yield from _plate_issues(package, max(body.side_x, body.side_y))


def _plate_issues(package: HotspotPackage | PlatesPackage, side: float) -> Iterator[Issue]:
    keys = ["s_sink", "t_sink", "s_spreader", "t_spreader", "k_sink", "k_spreader", "cv_sink", "cv_spreader"]
    if isinstance(package, HotspotPackage):
        keys += ["r_convec", "c_convec"]
    elif (package.r_convec is None) == (package.htc is None):
        yield Issue("$.package", "expected exactly one of r_convec and htc", "leave one of them out")
    else:
        keys.append("htc" if package.r_convec is None else "r_convec")
    if isinstance(package, PlatesPackage):
        for key in ("spreader_cells", "sink_cells"):
            if getattr(package, key) < 1:
                yield Issue(f"$.package.{key}", f"found {getattr(package, key)}, expected 1 or more")
    for key in keys:
        yield from _positive(f"$.package.{key}", getattr(package, key))
    pairs = (("s_spreader", side, "the die"), ("s_sink", package.s_spreader, "the spreader"))
    for key, least, what in pairs:
        found = getattr(package, key)
        if found < least * (1 - _SLACK):
            yield Issue(f"$.package.{key}", f"found {found} m, expected at least {least} m, the side of {what}")
