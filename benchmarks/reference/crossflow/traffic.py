"""How much of a product of matrices moves between memories under a tiling."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossflow.tilings import Tiles, drawn

Numbers = NDArray[np.float64]
Sides = tuple[float, float, float]
"""Of a product of a first x second matrix by a second x third one."""
HOLDS_OUTPUT = (True, True, False)
"""Registers and L1 have room for a tile's output when tiles are drawn; L2 passes it through."""


class Moved(NamedTuple):
    """What tiles move: elements that are fetched for one product, how many tiles it is cut into, and their sides."""

    elements: Numbers
    pieces: Numbers
    sides: Numbers


def moved(problem: Numbers, tiles: Numbers, level: int) -> Moved:
    """Elements that enter a memory for its tiles: level 0 are the registers, 1 is L1, 2 is L2.

    Both arguments have three rows, first side to third. A tile that is larger than the problem is cut to it, and gives
    the room that is set free to one side that is not cut, the third, else the first, else the second. (The program
    counts with all three faces of the tile here, wherever the output is, but lets it take room in registers only.)
    """
    a, b, c = problem
    x, y, z = tiles
    faces = x * y + x * z + y * z
    cut_x, cut_y, cut_z = x > a, y > b, z > c
    grow_z = ~cut_z & (cut_x | cut_y)
    grow_x = cut_z & ~cut_x
    grow_y = cut_z & cut_x & ~cut_y
    x, y, z = np.minimum(x, a), np.minimum(y, b), np.minimum(z, c)
    if level == 0:
        free = _over(faces - x * y, x + y), _over(faces - z * y, z + y), _over(faces - x * z, x + z)
    else:
        free = _over(faces - x * y, y), _over(faces - z * y, y), _over(faces, x + z)
    x, y, z = (
        np.where(grow_x, np.minimum(free[1], a), x),
        np.where(grow_y, np.minimum(free[2], b), y),
        np.where(grow_z, np.minimum(free[0], c), z),
    )
    whole = (x > 0) & (y > 0) & (z > 0)
    along = [np.where(whole, np.ceil(side / np.maximum(tile, 1)), 1) for side, tile in ((a, x), (b, y), (c, z))]
    # partial sums come back for every piece of the inner side, but only registers are charged with it
    sums = along[1] if level == 0 else 1.0
    elements = a * b * along[2] + b * c * along[0] + a * c * sums
    sides = np.stack([np.where(tile > 0, tile, side) for side, tile in ((a, x), (b, y), (c, z))])
    return Moved(elements, along[0] * along[1] * along[2], sides)


def _over(room: Numbers, side: Numbers) -> Numbers:
    return np.floor(room / np.maximum(side, 1))


@lru_cache(maxsize=64)
def traffic(problems: tuple[Sides, ...], room: tuple[float, float, float]) -> tuple[Numbers, Numbers, Numbers]:
    """Elements that enter registers, L1 and L2: for each problem (axis 0) under each tiling of L2 and L1 (axis 1).

    For the registers the best of their tiles is taken: nothing else depends on those.
    """
    menus = [drawn(elements, holds) for elements, holds in zip(room, HOLDS_OUTPUT, strict=True)]
    sides = np.array(problems, dtype=np.float64).T
    into_l2 = moved(sides[:, :, None], menus[2][:, None, :], 2)
    into_l1 = moved(into_l2.sides[..., None], menus[1][:, None, None, :], 1)
    pieces = into_l2.pieces[..., None] * into_l1.pieces
    into_registers = _least(into_l1.sides.reshape(3, -1), menus[0]).reshape(pieces.shape) * pieces
    from_l2 = into_l1.elements * into_l2.pieces[..., None]
    flat = (len(problems), -1)
    per_l2 = np.broadcast_to(into_l2.elements[..., None], pieces.shape)
    return into_registers.reshape(flat), from_l2.reshape(flat), per_l2.reshape(flat)


def _least(problems: Numbers, tiles: Tiles) -> Numbers:
    """Elements into registers under the best of their tiles; many tiles of L1 are alike, so each is asked for once."""
    codes = np.zeros(problems.shape[1])
    for side in problems:
        values, index = np.unique(side, return_inverse=True)
        codes = codes * len(values) + index
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    best: Numbers = moved(problems[:, first, None], tiles[:, None, :], 0).elements.min(axis=1)
    return best[back]
