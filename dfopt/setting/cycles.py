"""What a kernel takes under the cycle model: by how many compute tiles it has, and at least."""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import Chip
from dfopt.physics import ops
from dfopt.physics.chip import cycle_menu
from dfopt.physics.dtypes import slowdown
from dfopt.setting.instance import Instance

__all__ = ["compute_menu", "least_cycles_s"]


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
