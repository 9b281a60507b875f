"""The cycle model: kernels of a block share the compute tiles of a chip, and the block takes the least latency.

A kernel reaches a latency with some number of tiles or more. A block reaches it if its kernels together need no more
tiles than there are (DFModel, section V.C).

Suffixes: l latency, ascending.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import Chip
from dfopt.physics import ops
from dfopt.physics.chip import cycle_menu
from dfopt.physics.dtypes import slowdown
from dfopt.setting.instance import Instance

__all__ = ["compute_menu", "least_cycles_s", "least_level", "tiles_for"]

_ROUNDED = 1e-12


def compute_menu(instance: Instance, kernel: Kernel, scheme: Sharding, tiles: int) -> tuple[Ints, Floats]:
    """Compute tiles that a kernel may have under a scheme, and the seconds of an evaluation with each number of them.

    ``tiles``: that the streamed axis is cut into. No entry has both more tiles and more seconds than another. A type
    that is twice as fast takes half the cycles.
    """
    chip, degree, rules = instance.system.chip, instance.plan.shards, instance.assumptions.sharding_rules
    assert chip.lanes and chip.stages and chip.frequency  # a question without them is refused
    rows, columns, depth = ops.shard_extents(kernel, scheme, degree, rules)
    columns = -(-columns // tiles) if kernel.streamed == "n" else columns
    depth = -(-depth // tiles) if kernel.streamed == "k" else depth
    units = {"lanes": chip.lanes, "stages": chip.stages, "tiles": chip.tiles}
    used, cycles = cycle_menu(rows, columns, depth, **units, simd=kernel.op == "elementwise")
    steps = tiles if kernel.streamed != "none" else 1
    seconds = steps * ops.work_share(kernel) * slowdown(instance.graph, kernel, chip) / chip.frequency
    return used, cycles.astype(np.float64) * seconds


def least_cycles_s(kernel: Kernel, scheme: Sharding, degree: int, chip: Chip, rules: ops.Rules) -> float:
    """Time of a kernel's largest shard under the cycle model, when it wastes no unit of any tile."""
    assert chip.lanes and chip.stages and chip.frequency  # optimize() refuses the cycle model without them
    rows, columns, depth = ops.shard_extents(kernel, scheme, degree, rules)
    # an elementwise kernel uses the lanes only, one element each per cycle
    cycles = (
        rows * columns / chip.lanes
        if kernel.op == "elementwise"
        else rows * columns * depth / (chip.lanes * chip.stages)
    )
    return cycles * ops.work_share(kernel) / (chip.tiles * chip.frequency)


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
