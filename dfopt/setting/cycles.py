"""What a kernel takes at least under the cycle model."""

from __future__ import annotations

from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import System
from dfopt.physics import ops

__all__ = ["least_cycles_s"]


def least_cycles_s(kernel: Kernel, scheme: Sharding, degree: int, system: System, rules: ops.Rules) -> float:
    """Time of a kernel's largest shard under the cycle model, when it wastes no unit of any tile."""
    chip = system.chip
    assert chip.lanes and chip.stages and chip.frequency  # optimize() refuses the cycle model without them
    rows, columns, depth = ops.shard_extents(kernel, scheme, degree, rules)
    # an elementwise kernel uses the lanes only, one element each per cycle
    cycles = (
        rows * columns / chip.lanes
        if kernel.op == "elementwise"
        else rows * columns * depth / (chip.lanes * chip.stages)
    )
    return cycles * ops.work_share(kernel) / (chip.tiles * chip.frequency)
