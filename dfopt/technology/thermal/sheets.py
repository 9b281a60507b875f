"""Cut a body into sheets of cells: what the heat flows through, before any equation.

Every sheet is a window of one rectangular grid, so the cells of two sheets lie exactly above each other. Only meshed
plates are wider than the die; their cells outside it grow by `GROWTH` from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import HtcPackage
from dfopt.technology.thermal.types import Body

GROWTH: Final = 1.4  # 1.2 instead cools the hottest cell of a 60 W stack by 0.03 K, of a 100 W hot spot by 0.05 K
SPREADER_CELLS: Final = 1  # of a meshed plate through its thickness
SINK_CELLS: Final = 3


@dataclass(frozen=True)
class Sheet:
    """One layer of cells of the thermal grid.

    Attributes
    ----------
    name : str
        Name of the layer.
    thickness : float, m
        Height of its cells.
    conductivity : float array, shape (ny, nx), W/(m K)
        Thermal conductivity of every cell.
    heat_capacity : float array, shape (ny, nx), J/(m3 K)
        Heat capacity of every cell per volume.
    dx, dy : float arrays, shapes (nx,) and (ny,), m
        Widths of columns and rows.
    x0, y0 : int
        Column and row at which the sheet begins, counted in cells from the corner of the die.
    slab : int
        Index of the slab whose power enters here, and whose temperature is read here; -1 if there is none.
    """

    name: str
    thickness: float
    conductivity: Floats
    heat_capacity: Floats
    dx: Floats
    dy: Floats
    x0: int = 0
    y0: int = 0
    slab: int = -1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return self.dy.size, self.dx.size

    @property
    def areas(self) -> Floats:
        """Area of each cell, m2, shape (ny, nx)."""
        return np.multiply.outer(self.dy, self.dx)

    @property
    def uniform(self) -> bool:
        """Whether all cells are equal."""
        return all(bool(np.ptp(a) == 0) for a in (self.conductivity, self.heat_capacity, self.dx, self.dy))


def graded(first: float, length: float) -> Floats:
    """Increasing cell widths that add up to ``length``; the first is about ``first``.

    Examples
    --------
    >>> graded(1.0, 2.4), graded(1.0, 0.0).size
    (array([1. , 1.4]), 0)
    """
    if length <= 1e-9 * first:  # rounding of two equal sides
        return np.empty(0)
    cells = max(1, int(np.ceil(np.log1p(length * (GROWTH - 1) / first) / np.log(GROWTH) - 1e-9)))
    widths = GROWTH ** np.arange(cells)
    return np.asarray(widths * (length / widths.sum()))


def sheets_of(body: Body, nx: int, ny: int) -> list[Sheet]:
    """Cell layers of the slabs of a body, far face first, each split into source part and rest.

    Parameters
    ----------
    body
        Slabs and package.
    nx, ny : int
        Cells over the die along its sides.
    """
    dx, dy = np.full(nx, body.side_x / nx), np.full(ny, body.side_y / ny)
    sheets: list[Sheet] = []
    for index, slab in enumerate(body.slabs):
        k = np.broadcast_to(np.asarray(slab.conductivity, dtype=np.float64), (ny, nx))
        cv = np.broadcast_to(np.asarray(slab.heat_capacity, dtype=np.float64), (ny, nx))
        # A node of HotSpot already is the far face of its layer, where a source part would be.
        source = None if body.package.mode == "hotspot" else slab.source_thickness_m
        source = slab.thickness_m if source is None else source
        sheets.append(Sheet(slab.name, source, k, cv, dx, dy, slab=index))
        if source < slab.thickness_m:
            sheets.append(Sheet(slab.name, slab.thickness_m - source, k, cv, dx, dy))
    return sheets


def plates_of(body: Body, dx: Floats, dy: Floats) -> list[Sheet]:
    """Cell layers of a body's package.

    Parameters
    ----------
    body
        Slabs and package.
    dx, dy : float array, m
        Widths of the cells over the die along its sides.
    """
    package = body.package
    if isinstance(package, HtcPackage):
        if package.plate_thickness is None:
            return []
        k, cv = (np.full((dy.size, dx.size), v) for v in (package.plate_conductivity, package.plate_heat_capacity))
        return [Sheet("lid", package.plate_thickness, k, cv, dx, dy)]
    meshed = package.mode == "plates"
    plates: list[Sheet] = []
    widths, before = [dx, dy], [0, 0]
    inner = [body.side_x, body.side_y]
    for name, plate, parts in (("spreader", package.spreader, SPREADER_CELLS), ("sink", package.sink, SINK_CELLS)):
        for axis in (0, 1) if meshed else ():
            rim = graded(float(widths[axis][-1]), (plate.side - inner[axis]) / 2)
            widths[axis] = np.concatenate((rim[::-1], widths[axis], rim))
            before[axis] -= rim.size
            inner[axis] = max(inner[axis], plate.side)
        shape, count = (widths[1].size, widths[0].size), parts if meshed else 1
        k, cv = np.full(shape, plate.conductivity), np.full(shape, plate.heat_capacity)
        plates += [Sheet(name, plate.thickness / count, k, cv, widths[0], widths[1], before[0], before[1])] * count
    return plates
