"""The fewest bytes that wait between partitions, against every partitioning."""

from __future__ import annotations

import numpy as np
import pytest
from covered import covered
from hypothesis import assume, given
from hypothesis import strategies as st
from members import drawn_root
from problem_cases import partitionings
from strategies import World, share

from dfopt.errors import Infeasible
from dfopt.fusion.partitioning import most_alive
from dfopt.terms.rules.held import waits


@share(0.6)
@given(covered(most=4, token_blocks="none"), st.data())
def test_no_partitions_leave_less_to_wait(world: World, data: st.DataObject) -> None:
    _, root = drawn_root(world, data)
    of = root.of
    assume(of.cuts is None and of.is_exact and waits(of.setting))
    assume(of.chip.fused)  # kernel by kernel there is one order
    options = np.array([data.draw(st.sampled_from(left)) for left in root.domain])
    for kind in range(of.kinds):
        found = of.least_waiting(kind, of.table.exact(options[None])[0])
        assert of.least_waiting(kind, of.table.least(root.domain)) <= found
        try:
            tables = of.stage(kind, tuple((option,) for option in options.tolist()))
        except Infeasible:
            assert found == np.inf
            continue
        limits = of.numbering_k[kind].limits
        legal, _ = partitionings(tables, limits)
        least = min((most_alive(tables, limits, partition_k) for partition_k in legal), default=np.inf)
        assert found == pytest.approx(least, rel=1e-9)
