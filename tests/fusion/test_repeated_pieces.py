"""Long graphs piece by piece: equal to brute force and to the lattice, whatever the layers are."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from problem_cases import all_blocks, block_numbers, close, partitionings, stages, tables_of, tight_stages
from stage_cases import gemms
from strategies import shardings, share, worlds

from dfopt.bnb import ENDED, UNLIMITED, OutOfTime
from dfopt.documents.assumptions import profile
from dfopt.errors import Infeasible
from dfopt.fusion import pieces
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.intrachip import optimize_intrachip
from dfopt.fusion.lattice import PathResult, ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, legal
from dfopt.fusion.pieces import Pieces, TooWide, piecewise
from dfopt.machines.compose import load_system
from dfopt.search import solve
from dfopt.search.verify import verify
from dfopt.workloads import load_graph
from dfopt.workloads.unroll import unroll

EVERY = patch.object(pieces, "_LONG", 0.0)  # graphs of any shape
WIDE = patch.multiple(pieces, _LONG=0.0, _WIDE=10**5, _MOST=10**6)  # and of as many blocks as there are


def check(tables: StageTables, limits: IntraChipLimits, known: float, best: float, found: PathResult) -> None:
    """What holds of every answer: bound <= optimum <= objective, and all three are one where it says so."""
    assert found.partition_k is not None and legal(tables, limits, found.partition_k)
    assert found.bound <= best * (1 + 1e-9) <= found.objective * (1 + 2e-9)
    assert found.complete == (found.bound >= min(known, found.objective) * (1 - 2e-7))
    if found.complete and known > best:
        assert close(found.bound, best, 2e-7) and found.objective <= known * (1 + 2e-7)


@given(
    st.one_of(
        tight_stages(overlap=["perfect", "compute_memory"], forward_backward=["separate", "shared"]),
        stages(forward_backward=["separate", "shared"]),
    ),
    st.sampled_from([0.8, 1.0, 1.2, np.inf]),
)
def test_pieces_are_brute_force_whatever_is_known_before(stage, above: float) -> None:
    tables, limits = stage
    n = tables.kernels
    limits = replace(limits, p_max=n, exactly=False, dram_left=np.inf)
    _, seconds = partitionings(tables, limits)
    best = seconds.min(initial=np.inf)
    with EVERY:
        found = piecewise(tables, limits, best * above if best > 0 else np.inf)
    if tables.sharded.menus or limits.forward_backward == "halves":
        assert found is None
        return
    if np.isinf(best):  # a kernel that fits no block: there are no pieces to cut
        assert found is None or np.isinf(found.bound)
        return
    assert found is not None
    check(tables, limits, best * above if best > 0 else np.inf, best, found)
    if n <= 4:  # four pieces are too few to wait for each other
        assert found.complete


@st.composite
def drawn_out(draw) -> tuple[StageTables, IntraChipLimits]:
    """Two to four drawn layers of a random training graph, on a chip with room for some of their kernels."""
    fixed = {
        "execution": "dataflow",
        "compute_model": ["fixed", "efficiency"],
        "tile_rows": 1,
        "layer_boundary": "dram",
        "kernel_overhead": None,  # a toll of all kernels, which holds them together as one piece
    }
    world = draw(
        worlds(least=2, most=4, trains=True, repeats=(4,), max_pp=1, dims=1, pieces=False, roomy=True, **fixed)
    )
    sharding = draw(shardings(world.graph, world.plan, world.assumptions))
    copies = draw(st.sampled_from([2, 4]))
    world = replace(world, graph=unroll(world.graph, copies))
    sharding = {f"{name}.{copy}": z for name, z in sharding.items() for copy in range(copies)}
    try:
        tables = tables_of(world, sharding)
    except Infeasible:
        assume(False)
    forward, own = tables.sharded.forward_k, tables.sharded.src_t < tables.kernels
    own &= tables.sharded.dst_t < tables.kernels
    # what is carried may make a layer forward wait for one backward: then the passes cannot be apart
    assume(not (~forward[tables.sharded.src_t[own]] & forward[tables.sharded.dst_t[own]]).any())
    largest = price_blocks(tables, np.eye(tables.kernels, dtype=bool)).sram_bytes.max()
    room = largest * draw(st.sampled_from([1.1, 1.5, 2.0, 3.0]))
    rule = draw(st.sampled_from(["separate", "shared"]))
    limits = IntraChipLimits(p_max=tables.kernels, forward_backward=rule)
    return replace(tables, chip=replace(tables.chip, sram=max(float(room), 1.0))), limits


@share(0.3)
@given(drawn_out())
def test_drawn_layers_are_the_shortest_path(stage) -> None:
    tables, limits = stage
    lattice = down_sets(tables, limits.forward_backward, 3000)
    assume(lattice is not None)
    best = ShortestPath(tables, limits, lattice, np.inf).run().objective
    with WIDE:
        found = piecewise(tables, limits, np.inf)
    assert found is not None
    check(tables, limits, np.inf, best, found)
    with EVERY:
        assert close(optimize_intrachip(tables, limits).objective, best)


@st.composite
def unbalanced(draw) -> tuple[StageTables, IntraChipLimits]:
    """Five kernels with few tensors and tolls: some wait for compute, some for DRAM, some for the network."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    ends = [(int(rng.integers(b)), b) for b in range(1, 5) if rng.random() < 0.5]
    tables = gemms([64] * 5, ends, 64 * 64 * 2 * float(rng.choice([1.2, 2.2, 3.2, 9.0])), int(rng.choice([2, 3, 9])))
    compute, net, mem = (rng.choice([0.0, 1.0, 2.0, 3.0, 5.0], 5) * unit for unit in (100.0, 100.0, 1e4))
    chip = replace(tables.chip, overlap=str(rng.choice(["perfect", "compute_memory"])))
    tolls = int(rng.integers(3))
    payers, toll = rng.random((tolls, 5)) < 0.5, rng.choice([50.0, 150.0], tolls)
    paid = {"payers_xk": payers[payers.any(axis=1)], "toll_x": toll[payers.any(axis=1)]}
    paid["sent_x"] = np.zeros(len(paid["toll_x"]))
    sharded = replace(tables.sharded, compute_k=compute, net_k=net, **paid)
    tables = replace(tables, chip=chip, mem_k=mem, sharded=sharded)
    return tables, IntraChipLimits(p_max=5, forward_backward="shared")


@share(0.6)
@given(unbalanced(), st.sampled_from([np.inf, 1 + 1e-6]))
def test_pieces_share_blocks_where_that_pays(stage, above: float) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    known = seconds.min() * above if seconds.min() > 0 else np.inf
    with EVERY:
        graph, found = Pieces(tables, UNLIMITED), piecewise(tables, limits, known)
    assert found is not None
    check(tables, limits, known, seconds.min(), found)
    # the bound without a MILP is the least of one side over all partitionings, that of the side for which it is most
    blocks = all_blocks(tables, "shared")
    prices = price_blocks(tables, blocks.member)
    summed = np.array([prices.seconds[[*terms]].sum(axis=0) for terms in tables.chip.rule.serial_sets])
    sides = np.where(np.isfinite(blocks.seconds), summed, np.inf)
    sides[:, 0] = 0.0  # no kernel
    sums = sides[:, block_numbers(partition_k, 5)].sum(axis=2)
    assert close(graph.low, float(sums.min(axis=1).max()), 1e-9)


@share(0.5)
@given(tight_stages(most=5))
def test_a_block_is_its_pieces(stage) -> None:
    """Terms and SRAM add up over kernels that share no tensor, and the parts of a legal block are legal."""
    tables, limits = stage
    assume(not tables.sharded.menus)
    member = all_blocks(tables, limits.forward_backward).member
    prices = price_blocks(tables, member)
    with EVERY:
        graph = Pieces(tables, UNLIMITED)
    bits = 1 << np.arange(tables.kernels)
    for number, row in enumerate(member):
        parts = list(graph._parts(sum(1 << graph.order.index(k) for k in np.flatnonzero(row))))
        numbers = [sum(int(bits[graph.order[k]]) for k in pieces._bits(part)) for part in parts]
        assert sum(numbers) == number
        for term in (*prices.seconds[:3], prices.sram_bytes):
            assert close(float(term[numbers].sum()), float(term[number]), 1e-9)
        if prices.legal[number] and parts:
            assert prices.legal[numbers].all()


def test_blocks_of_several_pieces_are_found() -> None:
    """One waits for compute, one for DRAM, and nothing joins them: together they take what the longer takes."""
    tables = gemms([64] * 4, [(0, 1), (2, 3)], 1e9)
    sharded = replace(tables.sharded, compute_k=np.array([0.0, 1e4, 0.0, 0.0]))
    tables, limits = replace(tables, sharded=sharded), IntraChipLimits(p_max=4, forward_backward="shared")
    best = partitionings(tables, limits)[1].min()
    found = piecewise(tables, limits, np.inf)
    assert found is not None and found.complete and close(found.objective, best, 1e-9)
    with patch.object(Pieces, "_merged", lambda *given: []):
        alone = piecewise(tables, limits, np.inf)
    assert alone is not None and alone.objective > best * 1.01


def test_what_a_piece_costs_more_is_counted_once_and_no_more() -> None:
    """The first of two kernels leaves the second, which costs a store and a read, to run beside one that computes.

    What is known before leaves just so much room.
    """
    tables = gemms([64] * 3, [(0, 1)], 2.5 * 64 * 64 * 2)
    sharded = replace(tables.sharded, compute_k=np.array([0.0, 0.0, 20.0]), net_k=np.zeros(3))
    tables = replace(tables, sharded=sharded, mem_k=np.array([2000.0, 50.0, 0.0]))
    limits = IntraChipLimits(p_max=3, forward_backward="shared")
    best = partitionings(tables, limits)[1].min()
    with EVERY:
        fewest, found = Pieces(tables, UNLIMITED), piecewise(tables, limits, best * (1 + 1e-6))
    store = 64 * 4 * 2 / 100.0
    assert close(fewest.low, 20.5, 1e-9) and close(best, 20.5 + 2 * store, 1e-9)
    assert found is not None and found.complete and close(found.objective, best, 1e-9)


def test_blocks_that_wait_for_each_other_are_no_answer() -> None:
    tables = gemms([64] * 4, [(0, 1), (2, 3)], 1e9)
    with EVERY:
        graph = Pieces(tables, UNLIMITED)
    at = [graph.order.index(k) for k in range(4)]
    with pytest.raises(pieces.CycleError):
        graph.lined_up([1 << at[0] | 1 << at[3], 1 << at[1] | 1 << at[2]])


def test_wide_graphs_limits_and_deadlines_are_left_to_others() -> None:
    wide, long = gemms([64] * 9, [(0, k) for k in range(1, 9)], 1e9), gemms([64] * 4, [(0, 1), (1, 2), (2, 3)], 1e9)
    limits = IntraChipLimits(p_max=9, forward_backward="shared")
    assert piecewise(wide, limits, np.inf) is None
    assert piecewise(long, replace(limits, p_max=4), np.inf) is not None
    for other in ({"p_max": 3}, {"exactly": True}, {"pins": ((0, 0),)}, {"dram_left": 1.0}):
        assert piecewise(long, replace(limits, **{"p_max": 4, **other}), np.inf) is None
    assert piecewise(long, replace(limits, p_max=4), np.inf, clock=ENDED) is None
    with pytest.raises(OutOfTime):
        Pieces(long, ENDED)
    with patch.object(pieces, "_MOST", 1), pytest.raises(TooWide):
        Pieces(long, UNLIMITED)
    with EVERY, patch.object(pieces, "_MERGED", 0):
        found = piecewise(wide, limits, np.inf)
    assert found is not None and found.bound <= found.objective


@pytest.mark.parametrize("copies", [2, 4])
def test_training_layers_are_proven(copies: int) -> None:
    graph, system = unroll(load_graph("gpt3-175b", mode="training"), copies), load_system("sn10-8-ring")
    levels = profile("default").with_(sharding_objective="seconds")
    result = solve(graph, system, assumptions=levels, tp=8, pp=1, time_limit=60)
    assert len(graph.kernels) == 41 * copies
    assert result.level_gap == 0.0
    assert verify(result).verdict.startswith("verified optimal")
