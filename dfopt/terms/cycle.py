"""The cycle model: kernels of a block share the compute tiles of a chip, and the block takes the least latency.

A kernel reaches a latency with some number of compute tiles or more. A block reaches it if its kernels together need no
more of them than there are (DFModel, section V.C).

Suffix: l latency, ascending. A *level* is the place of a latency in that order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dfopt.arrays import ROUNDING, Bools, Floats, Ints
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import Chip
from dfopt.physics import ops
from dfopt.physics.chip import cycle_menu
from dfopt.physics.dtypes import slowdown
from dfopt.setting.instance import Instance


def compute_menu(instance: Instance, kernel: Kernel, scheme: Sharding, tiles: int) -> tuple[Ints, Floats]:
    """Useful numbers of compute tiles for a kernel, and its seconds in one evaluation with each of these numbers.

    A number is useful if no smaller one is as fast (DFModel, section V.C). Seconds are those of the largest shard in
    one evaluation (one microbatch): tiles of the streamed axis x cycles of one tile / clock frequency. They are scaled
    by the share of the work that a mask leaves, and by the speed of the data type: one that is twice as fast takes half
    the seconds.

    Parameters
    ----------
    instance
        Setting and plan. The chip of the system has lanes, stages and a frequency.
    kernel
        The kernel.
    scheme
        Its sharding scheme, which decides the shard of each tensor-parallel chip.
    tiles : int
        Number of tiles that the axis which the kernel streams is cut into; not compute tiles.

    Returns
    -------
    (int array, float array), shape (entries,) both
        Numbers of compute tiles, ascending and at most those of the chip. Seconds with each number, descending.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or a frequency.
    SystemSpecError
        If no data type of the chip holds the operands of the kernel.
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
    """Seconds of a kernel's largest shard for one microbatch, if every unit of every compute tile is always busy.

    They are rows x columns x depth / (lanes x stages x compute tiles x frequency), with the rows and columns of the
    shard's output and the depth of its contraction. For an elementwise kernel they are rows x columns / (lanes x
    compute tiles x frequency), as it uses the lanes only. Both are scaled by the share of the work that a mask leaves.
    Under the cycle model no number of compute tiles is faster. Data types are not read: if the graph states them, the
    caller has to multiply the result by (peak rate without types / rate of the kernel's type), see
    :func:`dfopt.physics.dtypes.slowdown`.

    Parameters
    ----------
    kernel
        The kernel.
    scheme
        Its sharding scheme.
    degree : int
        Number of tensor-parallel chips.
    chip
        Chip with lanes, stages and a frequency.
    rules
        Sharding rules, which decide the size of the shard: ``exact``, as arithmetic requires, or ``dfmodel``, as in
        DFModel's program.

    Returns
    -------
    float, s
        Of one chip, a lower bound for every number of tiles of the streamed axis.

    Raises
    ------
    AssertionError
        If the chip lacks lanes, stages or a frequency.
    """
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
    """Fewest compute tiles with which a kernel takes no longer than a latency, for each of several latencies.

    Parameters
    ----------
    menu : (int array, float array)
        Numbers of compute tiles that the kernel may have, ascending, and its seconds with each number, descending, as
        :func:`compute_menu` returns them.
    latency_l : float array, shape (latencies,), s
        Most seconds that the kernel may take, in any order.
    too_many : int
        Value of the result where the kernel is not so fast with any number of compute tiles.

    Returns
    -------
    int array, shape (latencies,)
        By latency the number of compute tiles, or ``too_many``. Latencies have a tolerance of 1e-12 of their value.

    Examples
    --------
    >>> tiles_for((np.array([1, 2]), np.array([4.0, 2.0])), np.array([1.0, 2.0, 3.0, 4.0]), too_many=9).tolist()
    [9, 2, 2, 1]
    """
    used, seconds = menu
    entry = np.searchsorted(-seconds, -latency_l * (1 + ROUNDING))  # the first that is fast enough
    reached = entry < len(used)
    needed = np.full(len(latency_l), too_many, dtype=np.int64)
    needed[reached] = used[entry[reached]]
    return needed


def least_level(suffice: Callable[[Ints], Bools], shape: tuple[int, ...], levels: int) -> tuple[Ints, Bools]:
    """Position of the least latency for which the compute tiles of a chip suffice, for many blocks by binary search.

    A block is a set of kernels that share the compute tiles. All latencies that a block may have are sorted. A *level*
    is the position of a latency in this order, from 0 for the least one.

    Parameters
    ----------
    suffice : callable
        Takes an int array of the shape ``shape`` with a level for each block. Returns a bool array of that shape:
        whether the compute tiles suffice for each block at its level. Where they suffice for a level they must do so
        for all higher ones.
    shape : tuple of int
        (blocks,), or (vectors, blocks) if each block is asked about under several vectors of options, which are choices
        of a sharding scheme for each kernel.
    levels : int
        Number of latencies, at least 1.

    Returns
    -------
    (int array, bool array)
        Both of the shape ``shape``: the least level for which compute tiles suffice, and whether they suffice for any.
        If they do not, the level is the last one.

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
