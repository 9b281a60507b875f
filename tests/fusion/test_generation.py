"""Blocks generated on demand: bounds that hold, and partitionings that are legal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_cases import all_blocks, close, limits_of, partitionings, searched, stages, tight_stages
from scipy.optimize import linprog
from stage_cases import on_one_chip, unsharded
from strategies import share

from dfopt.bnb import UNLIMITED
from dfopt.documents.graph import Kernel, Tensor
from dfopt.errors import Infeasible
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.classes import interchangeable
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.generation import Generated, Generation
from dfopt.fusion.intrachip import CutOff, optimize_intrachip
from dfopt.fusion.one_block import OneBlock
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.fusion.segments import precedence
from dfopt.milp import Termination, TracePoint, solve

SAME = 1e-6


def generated(tables: StageTables, limits: IntraChipLimits, gap: float = 0.0, **given_) -> Generated:
    return Generation(tables, limits, **given_).run(gap, UNLIMITED)


def optimum(tables: StageTables, limits: IntraChipLimits) -> float:
    """By the shortest path, for stages too large for brute force; inf when there is none."""
    found = searched(tables, limits)[1]
    return found.objective if found.partition_k is not None else np.inf


def check(tables: StageTables, limits: IntraChipLimits, found: Generated, best: float) -> None:
    """What holds of every run: bound <= optimum <= objective."""
    assert found.solution.bound <= best * (1 + SAME)
    assert found.solution.objective >= best * (1 - SAME)
    if found.partition_k is not None:
        assert close(objective(tables, found.partition_k), found.solution.objective, 1e-9)
        assert found.solution.bound <= found.solution.objective
    solution = found.solution
    for earlier, later in itertools.pairwise(solution.trace):
        assert earlier.bound <= later.bound <= later.objective <= earlier.objective
        assert earlier.seconds <= later.seconds
    last = [(point.bound, point.objective) for point in solution.trace[-1:]]
    assert last in ([], [(solution.bound, solution.objective)])


@given(st.one_of(stages(limited=True), tight_stages(most=5)))
def test_bound_and_objective_enclose_brute_force(stage) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    found = generated(tables, limits)
    check(tables, limits, found, seconds.min(initial=np.inf))
    if found.partition_k is not None:
        assert (found.partition_k == partition_k).all(axis=1).any()


@share(0.3)
@given(stages(most=3, copies=(2, 2, 3)))
def test_counted_classes_bound_every_partitioning(stage) -> None:
    tables, limits = stage
    check(tables, limits, generated(tables, limits), optimum(tables, limits))


@share(0.4)
@given(stages(least=2, limited=True), st.sampled_from([0.5, 0.9, 1.0, 1.1]), st.booleans())
def test_a_cutoff_says_no_more_than_is_true(stage, share_of: float, started: bool) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    if not len(seconds):
        return
    best, start = seconds.min(), partition_k[0] if started else None
    found = generated(tables, limits, start=start, cutoff=best * share_of)
    assert found.solution.bound <= best * (1 + SAME)
    assert start is None or found.solution.objective <= seconds[0] * (1 + 1e-9)
    try:
        mapping = optimize_intrachip(tables, limits, cutoff=best * share_of)
    except CutOff:
        assert share_of < 1 + SAME
    else:
        assert share_of >= 1 and close(mapping.objective, best)


@share(0.4)
@given(stages(limited=True))
def test_without_a_lattice_the_answer_still_is_brute_force(stage) -> None:
    tables, limits = stage
    best = partitionings(tables, limits)[1].min(initial=np.inf)
    try:
        found = optimize_intrachip(tables, limits)
    except Infeasible:
        assert np.isinf(best)
    else:
        assert close(found.solution.objective, best) and found.solution.bound >= best * (1 - SAME)


@share(0.2)
@given(stages(least=3), st.sampled_from([0.01, 0.5]))
def test_a_run_with_a_gap_stops_there(stage, gap: float) -> None:
    tables, limits = stage
    best = partitionings(tables, limits)[1].min(initial=np.inf)
    found = generated(tables, limits, gap)
    check(tables, limits, found, best)
    if found.partition_k is not None:
        assert found.closed or found.solution.gap <= gap + SAME


@share(0.1)
@given(stages())
def test_a_bound_that_rounding_lifted_is_held_to_the_last_one(stage) -> None:
    generation = Generation(*stage)
    generation.trace.append(TracePoint(0.0, np.inf, np.inf))
    found = generation.run(0.0, UNLIMITED).solution
    assert len(found.trace) >= 2 and all(point.bound <= found.bound for point in found.trace)


# -- the relaxation ---------------------------------------------------------------------------


def reach_of(tables: StageTables) -> np.ndarray:
    """Whether a path leads from the kernel of the row to that of the column."""
    n = tables.kernels
    reach = np.zeros((n, n), dtype=bool)
    for k, after in enumerate(precedence(tables)[1]):
        reach[k, after] = True
    for k in range(n):
        reach |= reach[:, [k]] & reach[[k]]
    return reach


def relaxation(tables: StageTables, limits: IntraChipLimits) -> float:
    """The LP over all convex blocks: what generation is to find without listing them."""
    blocks, reach = all_blocks(tables, limits.forward_backward), reach_of(tables)
    convex = ~((blocks.member @ reach) & (blocks.member @ reach.T) & ~blocks.member).any(axis=1)
    convex[0] = False
    keep = convex & np.isfinite(blocks.seconds)
    member, seconds = blocks.member[keep].T.astype(float), blocks.seconds[keep]
    ones = np.ones((1, member.shape[1]))
    equal = [(member, np.ones(tables.kernels))] + [(ones, [limits.p_max])] * limits.exactly
    most = {} if limits.exactly else {"A_ub": ones, "b_ub": [limits.p_max]}
    rows, sides = (np.concatenate(parts) for parts in zip(*equal, strict=True))
    answer = linprog(seconds / seconds.max(), A_eq=rows, b_eq=sides, **most)
    return float(answer.fun * seconds.max()) if answer.status == 0 else np.inf


def check_point(tables: StageTables, limits: IntraChipLimits, block: np.ndarray) -> bool:
    """Every legal block is a point of the model, at no more than its time; returns whether it is legal.

    The law that makes its bounds hold. Where every kernel is a class of its own, the model knows no other blocks.
    """
    classes, reach = interchangeable(tables), reach_of(tables)
    one = OneBlock(tables, limits, classes)
    before = reach[:, block].any(axis=1) & ~block
    for column, kernels in ((one.A, block), (one.I, before)):
        counts = classes.counts(np.flatnonzero(kernels))
        one.model.bound(column, counts, counts)
    one.model.minimize([(one.time, 1.0)])
    solution = solve(one.model)
    prices = price_blocks(tables, block[None, :])
    forward = tables.sharded.forward_k[block]
    mixed = limits.forward_backward == "separate" and forward.any() and not forward.all()
    legal = bool(prices.legal[0]) and not mixed
    if legal:
        assert solution.termination is Termination.OPTIMAL
        assert solution.objective * one.unit_s <= prices.time[0] * (1 + SAME)
    if len(classes.size_c) == tables.kernels:
        assert legal == (solution.x is not None)
        assert not legal or close(solution.objective * one.unit_s, prices.time[0])
    return legal


@share(0.5)
@given(
    st.one_of(tight_stages(most=6, execution="dataflow"), stages(most=3, copies=(2,), execution="dataflow")), st.data()
)
def test_every_block_is_a_point_of_the_model_at_no_more_than_its_time(stage, data: st.DataObject) -> None:
    tables, limits = stage
    block = np.zeros(tables.kernels, dtype=bool)
    block[list(data.draw(st.sets(st.integers(0, tables.kernels - 1), min_size=1, max_size=4)))] = True
    reach = reach_of(tables)
    block |= reach[block].any(axis=0) & reach[:, block].any(axis=1)  # convex
    if (tables.parts_k[block] == 1).all():  # else it is on its own, without a model
        check_point(tables, limits, block)


@pytest.mark.parametrize("sram", [6.5, 7.5])
def test_a_buffer_of_a_tensor_that_is_stored_anyway_cannot_be_passed_off_as_a_cut(sram: float) -> None:
    """Beside the store for d, 3 tiles for c; if b and c were to read what is stored, 2."""
    ends = [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]
    shapes = {name: {"m": 4} for name in "abcd"}
    tables, limits = small(ends, shapes, sram * 4 * 2, fanout="shared", overlap="perfect")
    slow = replace(tables, sharded=replace(tables.sharded, compute_k=tables.sharded.compute_k + 1.0 + np.arange(4)))
    assert check_point(slow, limits, np.array([True, True, True, False])) == (sram > 7)


@share(0.4)
@given(tight_stages(most=6))
def test_a_closed_run_has_solved_the_relaxation_over_all_blocks(stage) -> None:
    tables, limits = stage
    found = generated(tables, limits)
    if not found.closed:
        return
    best = relaxation(tables, limits)
    assert found.solution.bound <= best * (1 + SAME)
    if found.solution.rows == tables.kernels and np.isfinite(best):
        assert found.solution.bound >= best * (1 - SAME)


@pytest.mark.parametrize("fanout", ["shared", "per_consumer"])
def test_a_deep_buffer_cannot_be_passed_off_as_a_cut(fanout: str) -> None:
    """All six kernels fit together only if the skip, 6 tiles deep, could be stored and read again (4 tiles)."""
    tile = 4 * 4 * 2 / 4
    sram = tile * (6 + 2 * (4 if fanout == "shared" else 5) - 1)
    ends = [*((f"k{i}", f"k{i + 1}") for i in range(5)), ("k0", "k5")]
    tables, limits = small(ends, {f"k{i}": {"m": 4} for i in range(6)}, sram, fanout=fanout, overlap="none")
    best = partitionings(tables, limits)[1].min()
    found = generated(tables, limits)
    assert close(found.solution.objective, best) and close(found.solution.bound, relaxation(tables, limits))


@share(0.1)
@given(st.one_of(stages(least=3, most=6), stages(most=3, copies=(2,))))
def test_every_column_with_kernels_is_a_convex_block_at_its_price(stage) -> None:
    tables, limits = stage
    generation = Generation(tables, limits)
    generation.run(0.0, UNLIMITED)
    blocks, reach = all_blocks(tables, limits.forward_backward), reach_of(tables)
    for counts, seconds, kernels in generation.columns:
        if kernels is not None:
            assert close(seconds, blocks.seconds[(2**kernels).sum()], 1e-9)
            assert (counts == generation.classes.counts(kernels)).all()
            outside = np.setdiff1d(np.arange(tables.kernels), kernels)
            assert not (reach[kernels].any(axis=0) & reach[:, kernels].any(axis=1))[outside].any()


# -- examples ---------------------------------------------------------------------------------


def small(
    ends: list[tuple[str, str]], shapes: dict[str, dict[str, object]], sram: float, tiles: int = 8, **assumptions
) -> tuple[StageTables, IntraChipLimits]:
    """A stage of elementwise kernels of four columns, unless said otherwise, with as many partitions as kernels."""
    plain = {"op": "elementwise", "n": 4}
    kernels = tuple(Kernel(name=name, **{**plain, **shape}) for name, shape in shapes.items())
    tensors = tuple(Tensor(src=a, dst=b) for a, b in ends)
    world = on_one_chip(
        kernels, tensors, sram=sram, tiles=tiles, peak=1e3, ends=False, **{"tile_rows": 1, **assumptions}
    )
    tables = unsharded(world)
    return tables, limits_of(world, tables, len(shapes))


def branches(count: int, fits: float) -> tuple[StageTables, IntraChipLimits]:
    """Branches of three kernels, the middle one with a weight, between a source and a sink; so many weights fit."""
    shapes: dict[str, dict[str, object]] = {"source": {"m": 16}}
    ends = []
    for i in range(count):
        shapes |= {f"a{i}": {"m": 16}, f"b{i}": {"op": "gemm", "m": 16, "k": 16}, f"c{i}": {"m": 4}}
        ends += [("source", f"a{i}"), (f"a{i}", f"b{i}"), (f"b{i}", f"c{i}"), (f"c{i}", "sink")]
    shapes["sink"] = {"m": 4}
    weight = 16 * 16 * 2
    return small(ends, shapes, fits * weight, tiles=100, overlap="none", weights_from_dram=False)


@pytest.mark.parametrize("fits", [2.0, 3.0, 4.5])
def test_five_branches_alike_are_three_classes(fits: float) -> None:
    tables, limits = branches(5, fits)
    classes = interchangeable(tables)
    assert sorted(classes.size_c.tolist()) == [1, 1, 5, 5, 5]
    found = generated(tables, limits)
    best = optimum(tables, limits)
    check(tables, limits, found, best)
    assert close(found.solution.objective, best)
    assert found.solution.bound >= best * 0.95


@pytest.mark.parametrize("fits", [2.0, 3.0, 4.5])
def test_eight_branches_cost_no_more_rows_than_five(fits: float) -> None:
    tables, limits = branches(8, fits)
    assert down_sets(tables, limits.forward_backward, 20_000) is None  # 4^8: what generation is for
    found = generated(tables, limits)
    assert found.solution.rows == 5
    assert found.solution.objective - found.solution.bound <= 0.02 * found.solution.objective


def test_under_separate_no_order_is_cut_that_has_the_forward_pass_second() -> None:
    """Whole blocks {a, d} and {c, b} can be put in no order, so the other pass is the first that finds its place."""
    shapes: dict[str, dict[str, object]] = {
        "s": {"op": "gemm", "m": 8, "k": 16}, "t": {"op": "gemm", "m": 16, "k": 16},
        "c": {"m": 1}, "a": {"m": 1}, "d": {"m": 1}, "b": {"m": 1}, "e": {"m": 1, "pass_": "backward"},
    }  # fmt: skip
    ends = [("s", "a"), ("s", "d"), ("t", "b"), ("t", "c"), ("a", "b"), ("c", "d")]
    tables, limits = small(ends, shapes, 200.0, tiles=2, overlap="none", fanout="shared", forward_backward="separate")
    orders: list[np.ndarray] = []
    take_up = Generation._take_up

    def noted(generation: Generation, order: np.ndarray) -> None:
        orders.append(order)
        take_up(generation, order)

    with patch.object(Generation, "_take_up", noted):
        check(tables, limits, generated(tables, limits), partitionings(tables, replace(limits, p_max=6))[1].min())
    assert len(orders) > 2
    for order in orders:
        assert sorted(order.tolist()) == list(range(7)) and order[-1] == 6


@pytest.mark.parametrize("shapes", [{"a": {"m": 4}}, {"a": {"op": "gemm", "m": 4, "k": 4}, "b": {"m": 4}}])
def test_kernels_without_tensors(shapes: dict[str, dict[str, object]]) -> None:
    tables, limits = small([], shapes, 1e6)
    found = generated(tables, limits)
    check(tables, limits, found, partitionings(tables, limits)[1].min())
    assert close(found.solution.bound, found.solution.objective)


def test_where_no_kernel_fits_there_is_no_partitioning() -> None:
    tables, limits = small([], {"a": {"op": "gemm", "m": 4, "k": 4}}, 1e6, weight_tiling="forbid")
    found = generated(replace(tables, chip=replace(tables.chip, sram=1.0)), limits)
    assert found.partition_k is None and found.solution.termination is Termination.LIMIT_NO_SOLUTION
