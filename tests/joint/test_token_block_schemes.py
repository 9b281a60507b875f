"""Schemes, fusion and blocks of tokens found together, against every vector of options with its best partitioning.

Prices of the oracle come from the table of charges, which test_token_block_prices holds against the judge.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sharded_cases import whole_domain
from strategies import Dice, World, assumptions, share, with_sram, worlds
from table_sums import sums_of

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible
from dfopt.physics import ops
from dfopt.physics.pipeline import resolve
from dfopt.setting.plans import asked_plans
from dfopt.terms.blocks import Blocks
from dfopt.terms.chip import chip_of
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
from dfopt.terms.table import Table
from dfopt.terms.token_blocks import token_rows

FIXED = {
    "execution": "dataflow", "token_blocks": "allow", "weights_from_dram": True, "forward_backward": "shared",
    "empty_partitions": "allow", "sharding_objective": "joint", "tile_rows": [1, 2, 4], "bubble": "one_f_one_b",
    "stage_time": "sum", "compute_model": ["fixed", "efficiency"],
}  # fmt: skip
MOST = 700
"""Vectors of options."""


def layer_of(world: World) -> tuple[Layer, Table]:
    tiles = -(-ops.streamed_rows(world.graph) // (world.assumptions.tile_rows or 1))
    layer = Layer(world.instance.shared, tiles)
    return layer, Table.of(layer, TERMS)


def blocks_of(world: World, tokens: bool = True) -> tuple[Blocks, np.ndarray]:
    """All sets of kernels as blocks, and the amounts of all vectors of options that may be."""
    layer, table = layer_of(world)
    numbers = np.arange(1, 1 << len(layer.kernels))
    member = (numbers[:, None] >> np.arange(len(layer.kernels))) & 1 > 0
    amounts = table.exact(table.vectors(whole_domain(table.sizes_k)))
    rows = token_rows(layer) if tokens else None
    blocks = Blocks(table, chip_of(world.system, world.assumptions), member, layer.latency_l, rows)
    return blocks, amounts[np.isfinite(table.totals(amounts, "legal"))]


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
    chosen = draw(assumptions(**FIXED | {"compute_model": "fixed", "sequence_parallelism": ["none", "allow"]}))
    system = System(name="s", chip=chip, network=dims)
    plans, _ = asked_plans(graph, system, Request(tp=2), chosen)
    return World(graph, system, plans[0], resolve(chosen, "dataflow", 1.0))


@st.composite
def cases(draw: st.DrawFn, most: int = 3) -> World:
    """Chips that share the kernels of a layer, with about as much SRAM as some block needs in one way or the other."""
    random = worlds(most=most, max_pp=1, dims=1, roomy=True, trains=False, pieces=False, **FIXED)
    world = draw(st.one_of(heavy(), random))
    assume(world.plan.shards > 1 and not world.plan.two_batch_overlap)
    assume(np.prod([len(schemes) for schemes in layer_of(world)[0].schemes_k]) <= MOST)
    dice, world = Dice(draw), replace(world, system=with_sram(world.system, 1e18))
    blocks, amounts = blocks_of(world)
    assume(len(amounts))
    v, b, part = dice(range(len(amounts))), dice(range(len(blocks.member_bk))), dice([1, 2, 3, 0])
    if part:
        names = "beside_token_bytes", "token_bytes"
        beside, cut = (sums_of(blocks.table, amounts, blocks.member_bk, name) for name in names)
        need = beside[v, b] + cut[v, b] / part
    else:
        need = blocks.prices(amounts).sram_bytes[v, b]
    return replace(world, system=with_sram(world.system, max(need * dice([1.01, 1.01, 1.3, 0.7]), 1.0)))


def best_by_hand(world: World, tokens: bool = True) -> float:
    """Least seconds of a layer over all vectors of options and all ways to run the kernels block by block."""
    blocks, amounts = blocks_of(world, tokens)
    prices, index = blocks.prices(amounts), world.graph.index()
    time_vb = np.where(prices.legal, prices.time, np.inf)
    every, needs = (1 << len(index)) - 1, [0] * len(index)
    for tensor in world.graph.tensors:
        needs[index[tensor.dst]] |= 1 << index[tensor.src]

    @cache
    def least(done: int) -> tuple[float, ...]:
        if done == every:
            return (0.0,) * len(time_vb)
        found = np.full(len(time_vb), np.inf)
        for block in range(1, every + 1):
            after = done | block
            if not block & done and not any(needs[k] & ~after for k in range(len(needs)) if block >> k & 1):
                found = np.minimum(found, time_vb[:, block - 1] + np.array(least(after)))
        return tuple(found.tolist())

    return min(least(0))


@share(1.0)
@given(world=cases())
def test_the_best_schemes_with_blocks_of_tokens_are_found(world: World) -> None:
    expected, plan = best_by_hand(world), world.plan
    try:
        found = df.solve(
            world.graph, world.system, assumptions=world.assumptions, tp=plan.tp, dp=plan.dp, pp=1, tp_dims=plan.tp_dims
        )
    except Infeasible:
        assert np.isinf(expected)
        return
    assert found.status == "optimal" and not found.score.violations
    if found.mapping.tile_count == layer_of(world)[0].tiles:
        assert found.score.layer_time_s == pytest.approx(expected, rel=1e-9)
    else:  # fewer tiles, so that every chip has rows of each
        assert found.score.layer_time_s <= expected * (1 + 1e-9)
    assert df.check(found).ok
