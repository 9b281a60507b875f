"""The MILP over blocks: the shortest path again, and what a path cannot do: rows over the chosen blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_cases import block_numbers, close, partitionings, searched, stages, tables_of
from strategies import World, share

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.columns import Columns
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.milp import Solution, Termination, solve


def is_one_of(found: np.ndarray, partition_k: np.ndarray) -> bool:
    return bool((partition_k == found).all(axis=1).any())


@given(stages(limited=True), st.sampled_from([1.0, 1.5, np.inf]))
def test_the_optimum_is_the_shortest_path(stage, above: float) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    search, path = searched(tables, limits, seconds.min(initial=np.inf) * above)
    columns = Columns(search)
    solution = solve(columns.model)
    assert (solution.termination is Termination.INFEASIBLE) == (path.partition_k is None) == (not len(seconds))
    if solution.x is None:
        return
    assert solution.termination is Termination.OPTIMAL
    assert close(solution.objective * columns.unit_s, seconds.min())
    found = columns.decode(solution.x)
    assert is_one_of(found, partition_k)
    assert close(objective(tables, found), seconds.min())


@share(0.5)
@given(stages(limited=True))
def test_the_path_is_a_feasible_start_of_its_own_price(stage) -> None:
    tables, limits = stage
    search, path = searched(tables, limits)
    if path.partition_k is None:
        return
    columns = Columns(search)
    start = columns.start(search.path)
    chosen = np.nan_to_num(start[: len(columns.block)])
    assert close(chosen @ columns.seconds[columns.block], path.objective, 1e-9)
    if np.isnan(start).any():  # arcs of empty partitions are left to the solver
        columns.model.bound(np.arange(len(columns.block)), chosen, chosen)
        start = solve(columns.model).x
        assert start is not None
    assert columns.model.arrays().violation(start) <= 1e-9
    np.testing.assert_array_equal(columns.decode(start), path.partition_k)


@pytest.mark.parametrize("rule", ["shared", "halves"])
def test_only_under_halves_a_partition_before_a_pinned_one_may_stay_empty(rule: str) -> None:
    kernel = Kernel(name="k", op="elementwise", m=4, n=4)
    chip = Chip(name="c", tiles=8, peak=1e6, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100.0))
    chosen = Assumptions(execution="dataflow", compute_utilization=1.0)
    world = World(Graph(name="g", kernels=(kernel,)), System(name="s", chip=chip), Plan(), chosen)
    limits = IntraChipLimits(p_max=2, pins=((0, 1),), forward_backward=rule)
    search, path = searched(tables_of(world, {"k": "none"}), limits)
    columns = Columns(search)
    solution = solve(columns.model)
    if rule == "shared":
        assert path.partition_k is None and solution.termination is Termination.INFEASIBLE
    else:
        assert path.partition_k.tolist() == columns.decode(solution.x).tolist() == [1]


# -- rows over the blocks ---------------------------------------------------------------------


def with_row(tables: StageTables, limits: IntraChipLimits, worth: np.ndarray, lower: float, upper: float):
    """Solve with a row over blocks; ``worth`` is the value of every set of kernels, numbered by its bits."""
    columns = Columns(searched(tables, limits)[0])
    bits = 2 ** np.arange(tables.kernels)
    columns.add("side", worth[columns.member @ bits], lower, upper)
    return columns, solve(columns.model)


@given(stages(limited=True), st.data())
def test_a_row_over_the_blocks_is_kept_at_the_least_price(stage, data: st.DataObject) -> None:
    """Values are those of energy: nonnegative, different for every block, nothing additive about them."""
    tables, limits = stage
    worth = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 8, 2**tables.kernels).astype(float)
    worth[0] = 0.0  # an empty partition
    partition_k, seconds = partitionings(tables, limits)
    value = worth[block_numbers(partition_k, limits.p_max)].sum(axis=1)
    side = float(data.draw(st.sampled_from(sorted({0.0, 9.0, *value.tolist()}))))
    lower, upper = data.draw(st.sampled_from([(-np.inf, side), (side, np.inf), (side, side), (side - 2, side)]))
    columns, solution = with_row(tables, limits, worth, lower, upper)
    fits = (lower <= value) & (value <= upper)
    if not fits.any():
        assert solution.termination is Termination.INFEASIBLE
        return
    assert solution.termination is Termination.OPTIMAL
    assert close(solution.objective * columns.unit_s, seconds[fits].min())
    assert is_one_of(columns.decode(solution.x), partition_k[fits])


@share(0.3)
@given(stages())
def test_a_budget_below_every_partitioning_is_infeasible(stage) -> None:
    tables, limits = stage
    worth = np.ones(2**tables.kernels)
    worth[0] = 0.0
    partition_k, _ = partitionings(tables, limits)
    if not len(partition_k):
        return
    blocks = (block_numbers(partition_k, limits.p_max) > 0).sum(axis=1).min()
    assert with_row(tables, limits, worth, -np.inf, blocks - 0.5)[1].termination is Termination.INFEASIBLE
    solution: Solution = with_row(tables, limits, worth, -np.inf, blocks)[1]
    assert solution.termination is Termination.OPTIMAL


@share(0.05)
@given(stages(least=2, max_pp=1))
def test_a_row_has_one_value_per_block(stage) -> None:
    columns = Columns(searched(*stage)[0])
    with pytest.raises(ValueError, match=r"'energy'.*blocks"):
        columns.add("energy", np.ones(len(columns.seconds) + 1))
