"""The fewest bytes that wait between partitions, against every partitioning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from problem_cases import partitionings, stages, tight_stages
from strategies import share

from dfopt.bnb import ENDED
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.lattice import LeastWaiting
from dfopt.fusion.partitioning import IntraChipLimits, most_alive


@share(0.6)
@given(stages(limited=True) | tight_stages(most=4))
def test_no_partitioning_leaves_less_to_wait(stage: tuple[StageTables, IntraChipLimits]) -> None:
    tables, limits = stage
    lattice = down_sets(tables, limits.forward_backward, 10_000)
    assert lattice is not None
    legal, _ = partitionings(tables, replace(limits, dram_left=np.inf))
    least = min((most_alive(tables, limits, partition_k) for partition_k in legal), default=np.inf)
    assert LeastWaiting(tables, replace(limits, dram_left=0.0), lattice).bytes() == least
    assert LeastWaiting(tables, limits, lattice).bytes(ENDED) == 0.0  # no time: nothing is known
