"""What waits in DRAM between the partitions of a stage whose schemes are still open, whatever those are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dfopt.fusion.downsets import Lattice, one_by_one
from dfopt.fusion.lattice import LeastWaiting
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import topological_orders
from dfopt.fusion.shortfalls import dram_report
from dfopt.solving.candidate import Prepared, Stage
from dfopt.solving.options import Options

_PART, _MOST = 0.1, 4e6  # of the work that is left, and units at most, to find out what waits
Chains = dict[int, Lattice]  # by stage: the down-sets of the only order there is, where kernels run one by one


def paths(number: int, stage: Stage, chains: Chains) -> tuple[IntraChipLimits, Lattice | None]:
    """The limits on the partitions of a stage, and its down-sets; none where they are too many to list."""
    assert stage.tables is not None and stage.limits is not None
    if stage.tables.chip.fused:
        return stage.limits, stage.lattice
    if number not in chains:  # one order, and no other partition for any kernel
        chains[number] = one_by_one(topological_orders(stage.tables)[0])
    return replace(stage.limits, exactly=False, forward_backward="shared", pins=()), chains[number]


def least_waiting(number: int, stage: Stage, chains: Chains, options: Options) -> float:
    """Bytes that wait at some time between the partitions of a stage, whatever they are, as far as it is found out."""
    assert stage.tables is not None and stage.work is not None
    limits, lattice = paths(number, stage, chains)
    if stage.work.waiting is None:
        until = options.clock.share(_PART, _MOST)
        stage.work.waiting = 0.0 if lattice is None else LeastWaiting(stage.tables, limits, lattice).bytes(until)
    return stage.work.waiting


def too_much(ready: Prepared, chains: Chains, options: Options) -> str:
    """Why no partitions fit: more waits between them than DRAM is left; nothing if some may fit.

    Where any kernels may share a block there are many blocks, which may leave nothing to wait: those are not looked at.
    """
    for number, stage in enumerate(ready.stages):
        if stage.tables is None or stage.limits is None:
            continue
        room, chip = stage.limits.dram_left, stage.tables.chip
        if stage.tables.bytes_g.sum() > room and (chip.library or not chip.fused):
            need = least_waiting(number, stage, chains, options)
            if room < need < np.inf:
                return dram_report(need, room, "at least ")
    return ""
