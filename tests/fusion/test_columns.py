"""The MILP over blocks: the shortest path again, rows over the chosen blocks, and all models through three solvers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_cases import block_numbers, close, fusion_cases, partitionings, searched, stages, tables_of
from stage_cases import limited, on_one_chip, unsharded
from strategies import LEVELS, World, share

import dfopt as df
from dfopt.documents.graph import Kernel
from dfopt.errors import PlanError
from dfopt.fusion import intrachip
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.columns import Columns
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.machines.compose import load_system
from dfopt.milp import Termination, solve
from dfopt.search.dump import dump_models
from dfopt.workloads import load_graph


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
    tables = unsharded(on_one_chip([Kernel(name="k", op="elementwise", m=4, n=4)]))
    limits = IntraChipLimits(p_max=2, pins=((0, 1),), forward_backward=rule)
    search, path = searched(tables, limits)
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


@share(0.05)
@given(stages(least=2, max_pp=1))
def test_a_row_has_one_value_per_block(stage) -> None:
    columns = Columns(searched(*stage)[0])
    with pytest.raises(ValueError, match=r"'energy'.*blocks"):
        columns.add("energy", np.ones(len(columns.seconds) + 1))


# -- HiGHS with and without presolve, and CBC by the second door -------------------------------


WAYS = ({}, {"presolve": False}, {"solver": "pulp:CBC"})


def agree(case) -> None:
    """Both forms of one fusion problem, by every solver."""
    tables, limits = limited(*case)
    for model in (Assignment(tables, limits).model, Columns(searched(tables, limits)[0]).model):
        found = [solve(model, **way) for way in WAYS]
        assert {f.termination for f in found} in ({Termination.OPTIMAL}, {Termination.INFEASIBLE}), model.name
        if found[0].x is not None:
            assert all(close(f.objective, found[0].objective) for f in found), model.name


@settings(max_examples=12)
@given(case=fusion_cases(most=4))
def test_three_solvers_agree(case) -> None:
    agree(case)


@pytest.mark.nightly
@settings(max_examples=150)
@given(case=fusion_cases(most=6))
def test_three_solvers_agree_on_hundreds_of_models(case) -> None:
    agree(case)


@pytest.mark.parametrize("formulation", ["columns", "assignment"])
def test_a_layer_through_the_second_door(formulation: str) -> None:
    graph, system = load_graph("gpt2-small"), load_system("sn10-8-torus")
    first = df.solve(graph, system, tp=8, assumptions=LEVELS)
    second = df.solve(graph, system, tp=8, solver="pulp:CBC", formulation=formulation, assumptions=LEVELS)
    assert second.level_gap == 0.0
    assert close(first.step_time_s, second.step_time_s)
    assert second.provenance.solver == "pulp:PULP_CBC_CMD"
    records = [s for plan in second.plans for s in plan.solves if s.problem == "intrachip"]
    assert all(s.formulation == formulation for s in records)


def test_an_unknown_solver_is_named_before_any_work() -> None:
    with pytest.raises(PlanError, match=r"pulp:nix.*available here"):
        df.solve(load_graph("gpt2-small"), load_system("sn10-8-torus"), solver="pulp:nix")


@pytest.mark.parametrize("formulation", ["columns", "assignment"])
def test_dumped_models_have_the_optimum_of_the_result(tmp_path, formulation: str) -> None:
    import highspy

    asked = {"tp": 8, "p_max": 4, "formulation": formulation, "assumptions": LEVELS}
    result = df.solve("gpt3-175b", "sn10-8-ring", **asked)
    layer = result.score.layer_time_s
    files = dump_models(result, tmp_path / "model.mps")
    assert [f.name for f in files] == ["model.interchip.mps", "model.mps"]
    highs = highspy.Highs()
    highs.silent()
    highs.readModel(str(files[1]))
    highs.run()
    least = highs.getInfo().objective_function_value
    sharding = {kernel.name: kernel.sharding for kernel in result.mapping.kernels}
    tables = tables_of(World(result.graph, result.system, result.plan, result.assumptions), sharding)
    limits = IntraChipLimits(p_max=4, forward_backward="shared")
    if formulation == "assignment":
        unit = Assignment(tables, limits).unit_s
    else:
        start = intrachip.greedy(tables, limits)
        assert start is not None
        unit = Columns(searched(tables, limits, objective(tables, start) * 1.1)[0]).unit_s
    assert close(least * unit, layer)
