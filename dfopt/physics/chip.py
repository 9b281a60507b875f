"""The cycle model of one compute tile: lanes x stages systolic arrays, and menus of tile counts.

Source: DFModel's program (section 2.3 of our study of it), which follows SCALE-Sim: a kernel given
``lane_tiles x stage_tiles`` tiles covers its shard in ``ceil(m / (lane_tiles * lanes)) *
ceil(n / (stage_tiles * stages)) * k`` cycles; an elementwise kernel uses lanes only and takes
``ceil(m / (lane_tiles * lanes)) * n`` cycles.
"""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Ints


def _useful_factors(extent: int, width: int, limit: int) -> tuple[Ints, Ints]:
    """Distinct ``ceil(extent / (width * tiles))`` for 1..limit tiles, with the fewest tiles for each."""
    blocks = -(-extent // width)
    tiles = np.arange(1, min(blocks, limit) + 1, dtype=np.int64)
    factor = -(-blocks // tiles)
    first = np.concatenate(([True], factor[1:] != factor[:-1]))
    return tiles[first], factor[first]


def cycle_menu(m: int, n: int, k: int, *, lanes: int, stages: int, tiles: int, simd: bool) -> tuple[Ints, Ints]:
    """Pareto menu (tiles used, cycles) of one kernel shard.

    Parameters
    ----------
    m, n, k
        Shard extents: rows (``outer`` included), columns streamed per tile step, contraction.
    lanes, stages, tiles
        Systolic width and height of a compute tile, and how many tiles the chip has.
    simd
        Whether it is an elementwise kernel.

    Returns
    -------
    (tiles, cycles)
        Tiles strictly increasing, cycles strictly decreasing: no option is dominated.

    Examples
    --------
    >>> cycle_menu(64, 6, 10, lanes=32, stages=6, tiles=8, simd=False)
    (array([1, 2]), array([20, 10]))
    """
    lane_tiles, lane_factor = _useful_factors(m, lanes, tiles)
    if simd:
        return lane_tiles, lane_factor * n
    stage_tiles, stage_factor = _useful_factors(n, stages, tiles)
    used = np.multiply.outer(lane_tiles, stage_tiles).ravel()
    cycles = (np.multiply.outer(lane_factor, stage_factor) * k).ravel()
    fits = used <= tiles
    used, cycles = used[fits], cycles[fits]
    order = np.lexsort((cycles, used))
    used, cycles = used[order], cycles[order]
    best = np.minimum.accumulate(cycles)
    keep = np.concatenate(([True], best[1:] < best[:-1]))
    return used[keep], cycles[keep]
