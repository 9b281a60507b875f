"""Which compute tiles of a floorplan a kernel's compute tiles are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import Floats
from dfopt.documents.stack_parts import Tile


def snake(tiles: Sequence[Tile]) -> list[int]:
    """Tile positions in boustrophedon order: along the first row, back along the next.

    Tiles belong to one row when their middles differ by less than half the lowest tile's height.

    Examples
    --------
    >>> grid = [Tile(name=f"{x}{y}", kind="compute", x=x, y=y, width=1, height=1) for y in (0, 1) for x in (0, 1)]
    >>> snake(grid)
    [0, 1, 3, 2]
    """
    middle = [tile.y + tile.height / 2 for tile in tiles]
    step = min((tile.height for tile in tiles), default=0.0) / 2
    rows: list[list[int]] = []
    for number in sorted(range(len(tiles)), key=lambda i: (middle[i], tiles[i].x)):
        if rows and middle[number] - middle[rows[-1][0]] < step:
            rows[-1].append(number)
        else:
            rows.append([number])
    order: list[int] = []
    for position, row in enumerate(rows):
        order += sorted(row, key=lambda i: tiles[i].x, reverse=position % 2 == 1)
    return order


def placement_shares(
    tiles_k: ArrayLike,
    chip_tiles: ArrayLike,
    areas: ArrayLike,
    mode: Literal["contiguous", "interleaved"],
    order: Sequence[int] | None = None,
) -> Floats:
    """Share of each kernel's compute tiles on each compute tile of the floorplan.

    ``contiguous``: kernels take their tiles one after the other along the floorplan's ``order``, each as much area as
    its share of the chip's tiles. ``interleaved``: every kernel is spread over the whole floorplan. Kernels that ask
    for more tiles than the chip has share it in proportion.

    Parameters
    ----------
    tiles_k : array (..., K)
        Compute tiles of the chip given to each kernel; leading axes are blocks of kernels.
    chip_tiles : float or array (...)
        Compute tiles of the chip.
    areas : array (F,)
        Areas of the floorplan's compute tiles, in any unit.
    order
        Positions of the floorplan's tiles along the snake; as listed if left out.

    Returns
    -------
    array (..., K, F)
        Rows sum to 1. A kernel without tiles is spread over all.

    Examples
    --------
    >>> placement_shares([1, 3], 4, [1.0, 1.0], "contiguous").tolist()
    [[1.0, 0.0], [0.3333333333333333, 0.6666666666666666]]
    >>> placement_shares([1, 3], 4, [1.0, 1.0], "interleaved").tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    size = np.asarray(areas, dtype=np.float64)
    wanted = np.asarray(tiles_k, dtype=np.float64)
    even = np.broadcast_to(size / size.sum(), (*wanted.shape, len(size)))
    if mode == "interleaved":
        return even.copy()
    line = np.arange(len(size)) if order is None else np.asarray(order)
    edges = np.concatenate(([0.0], np.cumsum(size[line]))) / size.sum()
    total = np.maximum(np.asarray(chip_tiles, dtype=np.float64), wanted.sum(axis=-1))
    end = np.cumsum(wanted, axis=-1) / np.where(total > 0, total, 1.0)[..., None]
    start = np.concatenate((np.zeros_like(end[..., :1]), end[..., :-1]), axis=-1)
    low = np.maximum(start[..., None], edges[:-1])
    high = np.minimum(end[..., None], edges[1:])
    overlap = np.maximum(high - low, 0.0)
    placed = overlap.sum(axis=-1, keepdims=True)
    shares = np.empty_like(even)
    shares[..., line] = np.where(placed > 0, overlap / np.where(placed > 0, placed, 1.0), even[..., line])
    return shares
