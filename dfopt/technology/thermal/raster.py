"""From a floorplan of tiles to watts per cell, and back to means over tiles: both by overlap of areas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.errors import Issue, SystemSpecError, json_path
from dfopt.technology.thermal.types import Floats, Rect

__all__ = ["rasterise", "tile_weights"]

# A tile may stick out by this share of the die's side: sums of widths in binary do.
_SLACK = 1e-9


def _shares(low: float, size: float, side: float, cells: int) -> Floats:
    """The share of the interval [low, low + size] that falls into each of ``cells`` equal cells of [0, side]."""
    edges = np.linspace(0.0, side, cells + 1)
    covered = np.diff(np.clip(edges, low, low + size))
    # a cell that only rounding puts under the tile would lend it its temperature
    covered[covered <= _SLACK * covered.sum()] = 0.0
    return np.asarray(covered / covered.sum())


def tile_weights(rects: Sequence[Rect], nx: int, ny: int, side_x: float, side_y: float) -> Floats:
    """The share of each tile's area that lies in each cell.

    Parameters
    ----------
    rects
        Tiles inside the die; they may overlap.
    nx, ny
        Cells along x and y.
    side_x, side_y
        The die, metres.

    Returns
    -------
    array (tiles, ny, nx)
        Sums to 1 over the cells of a tile: watts per cell of one watt in the tile, and the weights of its mean.

    Raises
    ------
    SystemSpecError
        For a tile without area or outside the die.

    Examples
    --------
    >>> tile_weights([Rect(0.0, 0.0, 1.5, 1.0)], 2, 1, 2.0, 1.0).round(3)
    array([[[0.667, 0.333]]])
    """
    weights = np.empty((len(rects), ny, nx))
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
        else:
            across = _shares(rect.x, rect.width, side_x, nx)
            weights[index] = np.multiply.outer(_shares(rect.y, rect.height, side_y, ny), across)
    if issues:
        raise SystemSpecError("", issues)
    return weights


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
