"""The cycle model: kernels of a block share the compute tiles of a chip, and the block takes the least latency.

A kernel reaches a latency with some number of tiles or more. A block reaches it if its kernels together need no more
tiles than there are (DFModel, section V.C).

Suffixes: l latency, ascending.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.arrays import Bools, Floats, Ints

__all__ = ["least_level", "tiles_for"]

_ROUNDED = 1e-12


def tiles_for(menu: tuple[Ints, Floats], latency_l: Floats, too_many: int) -> Ints:
    """Fewest compute tiles with which a kernel takes no longer than each latency.

    Parameters
    ----------
    menu : (int array, float array)
        Tiles that the kernel may have, ascending, and its seconds with them, descending.
    latency_l : float array, s
        Latencies.
    too_many : int
        Said where it never is so fast.

    Returns
    -------
    int array, shape (latencies,)

    Examples
    --------
    >>> tiles_for((np.array([1, 2]), np.array([4.0, 2.0])), np.array([1.0, 2.0, 3.0, 4.0]), too_many=9).tolist()
    [9, 2, 2, 1]
    """
    used, seconds = menu
    entry = np.searchsorted(-seconds, -latency_l * (1 + _ROUNDED))  # the first that is fast enough
    reached = entry < len(used)
    needed = np.full(len(latency_l), too_many, dtype=np.int64)
    needed[reached] = used[entry[reached]]
    return needed


def least_level(suffice: Callable[[Ints], Bools], shape: tuple[int, ...], levels: int) -> tuple[Ints, Bools]:
    """The least latency for which the tiles of a chip suffice, found by halving.

    Parameters
    ----------
    suffice : callable
        Whether they do for a level of each block; for more time they do all the more.
    shape : tuple of int
        Of the blocks, and vectors of options if there are several.
    levels : int
        Number of latencies.

    Returns
    -------
    (int array, bool array)
        Levels, and whether they suffice for any.

    Examples
    --------
    >>> least_level(lambda level: level >= np.array([2, 9]), (2,), 4)
    (array([2, 3]), array([ True, False]))
    """
    low, high = np.zeros(shape, dtype=np.int64), np.full(shape, levels - 1)
    reached = suffice(high)
    while (low < high).any():
        middle = (low + high) // 2
        enough = suffice(middle)
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    return low, reached
