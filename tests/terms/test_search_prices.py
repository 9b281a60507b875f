"""What the path search pays for blocks, from arrays of one layer, against the table of charges: the same to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sharded_cases import shard
from strategies import share
from test_rules import layer_of
from test_two_ways import Case, cases, options, zoo_cases

from dfopt.errors import Infeasible
from dfopt.fusion.blocks import price_blocks, stage_tables
from dfopt.terms.blocks import Blocks
from dfopt.terms.chip import chip_of


@share(0.5)
@given(case=st.one_of(cases(), zoo_cases()))
def test_blocks_cost_the_search_what_the_table_says(case: Case) -> None:
    world, sharding, _, tiles = case
    layer, table, blocks = layer_of(case)
    amounts = table.exact(options(case, layer))
    assume(table.totals(amounts, "legal") < np.inf)
    chip = chip_of(world.system, world.assumptions)
    try:
        tables = stage_tables(shard(layer.instance, sharding, tiles), chip)
    except Infeasible:  # a kernel alone is too large, in whatever parts
        alone = Blocks(table, chip, np.eye(len(layer.kernels), dtype=bool), layer.latency_l).prices(amounts)
        assert not alone.legal.all()
        return
    mine = price_blocks(tables, blocks.member_bk)
    theirs = Blocks(table, chip, blocks.member_bk, layer.latency_l).prices(amounts)
    if not chip.library:  # whose sets of kernels are no charge
        assert mine.legal.tolist() == theirs.legal[0].tolist()
    legal = mine.legal & theirs.legal[0]
    for one, other in ((mine.time, theirs.time), (mine.dram_bytes, theirs.dram_bytes)):
        assert one[legal] == pytest.approx(other[0, legal], rel=1e-12)
    assert mine.sram_bytes[legal] == pytest.approx(theirs.sram_bytes[0, legal], rel=1e-9)
    assert mine.seconds[:, legal] == pytest.approx(theirs.seconds[:, 0, legal], rel=1e-12)
