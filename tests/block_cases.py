"""Random worlds whose partitions may take their tokens in blocks, and do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, combinations
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from oracles import judged
from strategies import Dice, World, assumptions, with_sram, worlds
from table_sums import sums_of

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping, TokenBlocks
from dfopt.documents.request import Request
from dfopt.documents.score import PartitionScore
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.setting.plans import asked_plans
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


WEIGHTS_AGAIN: dict[str, Any] = {
    "execution": "dataflow", "token_blocks": "allow", "weights_from_dram": True, "forward_backward": "shared",
    "empty_partitions": "allow", "tile_rows": [1, 2, 4], "bubble": "one_f_one_b", "stage_time": "sum",
    "compute_model": "fixed", "sequence_parallelism": ["none", "allow"],
}  # fmt: skip
"""Assumptions under which weights are read again for every block."""


@st.composite
def heavy(draw: st.DrawFn) -> World:
    """Two chips that share two products or more, whose weights are large beside their few tokens."""
    dice = Dice(draw)
    wide, n = [dice([4, 6, 8]) for _ in range(4)], dice([4, 2, 3, 6])
    kernels = [Kernel(name="a", op="gemm", m=wide[1], k=wide[0], n=n)]
    tensors = list[Tensor]()
    middle = dice(["simd", "gemm", "matmul"])
    if middle == "matmul":  # its second operand is needed whole
        keys = dice([2, 4])
        kernels.append(Kernel(name="b", op="gemm", m=wide[1], k=wide[0], n=keys))
        kernels.append(Kernel(name="c", op="matmul", m=keys, k=wide[1], n=n))
        tensors += [Tensor(src="a", dst="c", operand=1), Tensor(src="b", dst="c", operand=2)]
        wide[2] = keys
    elif middle == "simd":
        kernels.append(Kernel(name="c", op="elementwise", m=wide[1], n=n))
        tensors.append(Tensor(src="a", dst="c"))
        wide[2] = wide[1]
    else:
        kernels.append(Kernel(name="c", op="gemm", m=wide[2], k=wide[1], n=n))
        tensors.append(Tensor(src="a", dst="c"))
    kernels.append(Kernel(name="d", op="gemm", m=wide[3], k=wide[2], n=n))
    tensors.append(Tensor(src="c", dst="d"))
    carried = (Tensor(src="d", dst="a"),) if wide[3] == wide[0] and dice([True, False]) else ()
    graph = Graph(name="heavy", repeat=2, kernels=tuple(kernels), tensors=tuple(tensors), carried=carried)
    chip = Chip(
        name="c", tiles=dice([8, 3]), peak=1000.0, compute_utilization=dice([0.5, 1.0]),
        sram=Sram(capacity=1e18, bandwidth=dice([None, 100.0])), dram=Dram(bandwidth=dice([100.0, 400.0])),
        execution="dataflow",
    )  # fmt: skip
    dims = (NetworkDim(name="x", topology="ring", size=2, link_bandwidth=dice([20.0, 100.0])),)
    chosen = draw(assumptions(**WEIGHTS_AGAIN))
    system = System(name="s", chip=chip, network=dims)
    plans, _ = asked_plans(graph, system, Request(tp=2), chosen)
    return World(graph, system, plans[0], resolve(chosen, "dataflow", 1.0))


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


def runs_of(world: World, ways: Iterable[int]) -> Callable[[tuple[str, ...]], list[PartitionScore]]:
    """What the judge says of a partition of some kernels in each of some ways to run it that he allows."""
    place, numbers = len(world.graph.kernels), [*ways]

    @cache
    def runs(block: tuple[str, ...]) -> list[PartitionScore]:
        found = []
        for blocks in numbers:
            score = judged(world, mapping_of(world, block, blocks))
            [said] = [one for one in score.partitions if one.partition == place]
            if not any(_is_broken(f"partition {place} of stage 0", said, one) for one in score.violations):
                found.append(said)
        return found

    return runs


def _is_broken(place: str, said: PartitionScore, sentence: str) -> bool:
    of_kernel = "leaves no room" in sentence and any(f"kernel {name!r} " in sentence for name in said.kernels)
    of_block = any(words in sentence for words in (" of SRAM", " tiles, the chip", "takes its tokens in blocks"))
    return of_kernel or (place in sentence and of_block)


def next_blocks(graph: Graph, done: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Kernels that may be the next partition: what they read was made before, or is made among them."""
    left = sorted(kernel.name for kernel in graph.kernels if kernel.name not in done)
    for block in chain.from_iterable(combinations(left, size) for size in range(1, len(left) + 1)):
        if all(tensor.src in done or tensor.src in block for tensor in graph.tensors if tensor.dst in block):
            yield block
