"""Where the components of a derived chip lie on its die: interfaces at the edges, SRAM between the compute tiles.

Interfaces take their area along as much of the edge as their links need: DRAM at the left and right, links to other
chips at the bottom and top. What the die has besides is filled by compute and SRAM in proportion to their areas. This
arrangement is an assumption; a technology says areas and edges, and no places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dfopt.documents.stack_parts import Tile

# An interface that has much area for its edge is made longer rather than deeper than this part of the die.
_DEEPEST = 0.2


@dataclass(frozen=True)
class Interface:
    """An interface at two opposite die edges, half at each: area in m2, edge length in m."""

    name: str
    area: float
    edge: float


def floorplan(
    side_x: float,
    side_y: float,
    compute: float,
    sram: float,
    grid: int,
    dram: Interface,
    links: tuple[Interface, ...] = (),
) -> tuple[Tile, ...]:
    """Floorplan tiles of a logic die; areas in m2, lengths in m.

    Parameters
    ----------
    side_x, side_y
        Sides of the die.
    compute, sram
        Areas, of which the proportion counts.
    grid
        Compute tiles along each side, two or more: SRAM is between their columns.
    dram, links
        Interfaces; those without area are left out.

    Raises
    ------
    ValueError
        If the interfaces leave nothing.

    Examples
    --------
    >>> tiles = floorplan(20e-3, 30e-3, 3e-4, 1e-4, 2, Interface("dram", 6e-5, 40e-3))
    >>> [tile.name for tile in tiles]
    ['dram-left', 'dram-right', 'core0,0', 'core1,0', 'core0,1', 'core1,1', 'sram0']
    >>> round(tiles[0].width * 1e3, 9), round(tiles[0].height * 1e3, 9), round(tiles[-1].width * 1e3, 9)
    (1.5, 20.0, 4.25)
    """
    tiles = []
    width, length = _strip(dram.area / 2, dram.edge / 2, side_y, side_x)
    if width:
        for name, x in (("left", 0.0), ("right", side_x - width)):
            tiles.append(_tile(f"{dram.name}-{name}", "io", x, (side_y - length) / 2, width, length))
    inner = side_x - 2 * width
    if inner <= 0:
        raise ValueError(f"interfaces of {dram.area * 1e6:.6g} mm2 leave no room")
    strips = [_strip(link.area / 2, link.edge / 2, inner, side_y) for link in links]
    total = math.fsum(length for _, length in strips)
    squeezed = max(total / inner, 1.0)
    at, height = width + (inner - total / squeezed) / 2, 0.0
    for link, (deep, length) in zip(links, strips, strict=True):
        deep, length = deep * squeezed, length / squeezed
        if deep:
            tiles.append(_tile(f"{link.name}-bottom", "io", at, 0.0, length, deep))
            tiles.append(_tile(f"{link.name}-top", "io", at, side_y - deep, length, deep))
        at, height = at + length, max(height, deep)
    middle = side_y - 2 * height
    if middle <= 0:
        raise ValueError(f"interfaces of {math.fsum(link.area for link in links) * 1e6:.6g} mm2 leave no room")
    between = inner * sram / (compute + sram) / (grid - 1)
    column, row = (inner - between * (grid - 1)) / grid, middle / grid
    tiles += [
        _tile(f"core{ix},{iy}", "compute", width + ix * (column + between), height + iy * row, column, row)
        for iy in range(grid)
        for ix in range(grid)
    ]
    if between:
        tiles += [
            _tile(f"sram{ix}", "sram", width + (ix + 1) * column + ix * between, height, between, middle)
            for ix in range(grid - 1)
        ]
    return tuple(tiles)


def _strip(area: float, edge: float, side: float, across: float) -> tuple[float, float]:
    """Depth and length of a strip of some area along one side of the die."""
    if area <= 0:
        return 0.0, 0.0
    length = min(max(edge, area / (across * _DEEPEST)), side)
    return area / length, length


def _tile(name: str, kind: str, x: float, y: float, width: float, height: float) -> Tile:
    return Tile.model_validate({"name": name, "kind": kind, "x": x, "y": y, "width": width, "height": height})
