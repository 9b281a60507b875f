"""Random worlds whose partitions may take their tokens in blocks, and do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies import World, with_sram

from dfopt.terms.incidence import counts
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.sharded_graph import tile_counts
from dfopt.terms.table import Table
from dfopt.terms.token_blocks import shares_of, token_rows

IN_TOKEN_BLOCKS: dict[str, Any] = {
    "token_blocks": "allow", "execution": "dataflow", "weights_from_dram": True,
    "weight_tiling": ["forbid", "reread_all", "reread"], "compute_model": ["fixed", "efficiency"],
}  # fmt: skip
"""Assumptions under which partitions may take their tokens in blocks."""


@st.composite
def needing_blocks(draw: st.DrawFn, drawn_worlds: st.SearchStrategy[World]) -> World:
    """A world with about as much SRAM as all of its kernels need that take their tokens in some number of blocks."""
    world = draw(drawn_worlds)
    layer = Layer(world.instance.shared, tile_counts(world.graph, world.assumptions)[0])
    table, rows = Table.of(layer, TERMS), token_rows(layer)
    assert rows is not None
    count_ki = counts(table.incidences, np.eye(len(layer.kernels), dtype=bool))
    options = np.array([[draw(st.sampled_from(range(size))) for size in table.sizes_k]])
    sums = (table.sums(table.exact(options), count_ki, name)[0] for name in ("beside_token_bytes", "token_bytes"))
    beside_k, cut_k = sums
    blocks = draw(st.sampled_from([rows.most, 4, 3, 2, 1]))
    need = float((beside_k + cut_k * shares_of(rows, np.array(min(blocks, rows.most)))).max())
    return replace(world, system=with_sram(world.system, max(need * draw(st.sampled_from([1.01, 1.3, 2.0])), 1.0)))
