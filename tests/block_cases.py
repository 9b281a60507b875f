"""Random worlds whose partitions may take their tokens in blocks, and do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from oracles import judged
from strategies import Dice, World, with_sram, worlds
from table_sums import sums_of

from dfopt.documents.mapping import KernelMapping, Mapping, TokenBlocks
from dfopt.documents.score import PartitionScore
from dfopt.physics import ops
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
    options = np.array([[draw(st.sampled_from(range(size))) for size in table.sizes_k]])
    amounts, alone = table.exact(options), np.eye(len(layer.kernels), dtype=bool)
    beside_k, cut_k = (sums_of(table, amounts, alone, name)[0] for name in ("beside_token_bytes", "token_bytes"))
    blocks = draw(st.sampled_from([rows.most, 4, 3, 2, 1]))
    need = float((beside_k + cut_k * shares_of(rows, np.array(min(blocks, rows.most)))).max())
    return replace(world, system=with_sram(world.system, max(need * draw(st.sampled_from([1.01, 1.3, 2.0])), 1.0)))


DATAFLOW = {
    "execution": "dataflow", "token_blocks": "allow", "weights_from_dram": True, "forward_backward": "shared",
    "empty_partitions": "allow",
}  # fmt: skip


@st.composite
def one_chip(draw: st.DrawFn, most: int = 4) -> World:
    """A world of one chip, with about as much SRAM as some set of its kernels needs in one way or the other."""
    model = draw(st.sampled_from(["fixed", "efficiency"]))
    world = draw(worlds(most=most, max_pp=1, dims=1, pieces=False, roomy=True, compute_model=model, **DATAFLOW))
    assume(world.plan.shards == 1)
    dice, names = Dice(draw), [kernel.name for kernel in world.graph.kernels]
    world = replace(world, system=with_sram(world.system, 1e18))
    some = {name for name in names if dice([True, True, False])}
    mapping = mapping_of(world, tuple(sorted(some)), dice([0, 1, 2, 4]))
    need = max(one.sram_bytes for one in judged(world, mapping).partitions)
    return replace(world, system=with_sram(world.system, max(need * dice([1.01, 0.99, 0.7, 0.5]), 1.0)))


def mapping_of(world: World, block: tuple[str, ...], blocks: int) -> Mapping:
    """Some kernels in a partition of their own behind all others, whether that can be or not."""
    kernels, inside = [], set(block)
    for place, kernel in enumerate(world.graph.kernels):
        partition = len(world.graph.kernels) if kernel.name in inside else place
        kernels.append(KernelMapping(name=kernel.name, partition=partition, tiles=1))
    listed = (TokenBlocks(partition=len(kernels), blocks=blocks),) if blocks and inside else None
    names = {"graph": world.graph.name, "system": world.system.name}
    tiles = -(-ops.streamed_rows(world.graph) // (world.assumptions.tile_rows or 1))
    return Mapping(**names, plan=world.plan, kernels=tuple(kernels), tile_count=tiles, token_blocks=listed)


def ways_to_run(world: World) -> list[int]:
    """Ways to run a partition: 0 if it holds its weights, else in how many blocks of tokens."""
    rows = token_rows(Layer(world.instance.shared, 1))
    return [0] if rows is None else [0, *rows.numbers.tolist()]


def is_broken(place: str, said: PartitionScore, sentence: str) -> bool:
    of_kernel = "leaves no room" in sentence and any(f"kernel {name!r} " in sentence for name in said.kernels)
    of_block = any(words in sentence for words in (" of SRAM", " tiles, the chip", "takes its tokens in blocks"))
    return of_kernel or (place in sentence and of_block)
