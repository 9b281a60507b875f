"""From a floorplan of tiles to watts per cell, by overlap of areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Floats
from dfopt.errors import Issue, SystemSpecError, json_path
from dfopt.technology.thermal import responses

__all__ = ["Rect", "rasterise", "tile_weights"]

# A tile may stick out by this share of the die's side: sums of widths in binary do.
_SLACK = 1e-9


@dataclass(frozen=True)
class Rect:
    """A tile of a floorplan: lower left corner and size in metres; (0, 0) is a corner of the die."""

    x: float
    y: float
    width: float
    height: float


def tile_weights(rects: Sequence[Rect], nx: int, ny: int, side_x: float, side_y: float) -> Floats:
    """The share of each tile's area that lies in each cell, `responses.tile_weights`, of tiles that were checked.

    Raises
    ------
    SystemSpecError
        For a tile without area or outside the die.
    """
    issues: list[Issue] = []
    for index, rect in enumerate(rects):
        values = (rect.x, rect.y, rect.width, rect.height)
        far_x, far_y = rect.x + rect.width, rect.y + rect.height
        if not (all(map(np.isfinite, values)) and rect.width > 0 and rect.height > 0):
            found = f"width {rect.width:g} m, height {rect.height:g} m at ({rect.x:g}, {rect.y:g})"
            issues.append(Issue(json_path("rects", index), f"found {found}, expected finite numbers and an area"))
        elif min(rect.x / side_x, rect.y / side_y) < -_SLACK or max(far_x / side_x, far_y / side_y) > 1 + _SLACK:
            found = f"x {rect.x:g} to {far_x:g} m, y {rect.y:g} to {far_y:g} m"
            expected = f"inside the die, 0 to {side_x:g} m and 0 to {side_y:g} m"
            remedy = "move or shrink the tile, or enlarge the die"
            issues.append(Issue(json_path("rects", index), f"found {found}, expected {expected}", remedy))
    if issues:
        raise SystemSpecError("", issues)
    return responses.tile_weights(rects, nx, ny, side_x, side_y)


def rasterise(rects: Sequence[Rect], powers: Sequence[float], nx: int, ny: int, side_x: float, side_y: float) -> Floats:
    """Spread the power of tiles over the cells by overlap of areas; the total is kept.

    Parameters
    ----------
    rects, powers
        Tiles inside the die and the watts of each, uniform over it.
    nx, ny, side_x, side_y
        Grid and die as in `tile_weights`.

    Returns
    -------
    array (ny, nx)
        Watts per cell.

    Raises
    ------
    SystemSpecError
        For a tile without area or outside the die, a power that is no number, or lists of different lengths.

    Examples
    --------
    >>> rasterise([Rect(0.0, 0.0, 1.5, 1.0), Rect(1.5, 0.0, 0.5, 1.0)], [3.0, 4.0], 2, 1, 2.0, 1.0)
    array([[2., 5.]])
    """
    if len(rects) != len(powers):
        message = f"found {len(powers)} powers for {len(rects)} tiles, expected one for each"
        raise SystemSpecError("", [Issue("$.powers", message)])
    wrong = [i for i, watts in enumerate(powers) if not np.isfinite(watts)]
    if wrong:
        where = json_path("powers", wrong[0])
        raise SystemSpecError("", [Issue(where, f"found {powers[wrong[0]]}, expected a finite number of watts")])
    weights = tile_weights(rects, nx, ny, side_x, side_y)
    return np.tensordot(np.asarray(powers, dtype=np.float64), weights, axes=1)
