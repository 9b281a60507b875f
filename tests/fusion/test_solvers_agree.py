"""The project's own models through three solvers: HiGHS with and without presolve, and CBC by the second door."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from problem_cases import close, fusion_cases, limits_of, tables_of
from strategies import LEVELS

import dfopt as df
from dfopt.errors import Infeasible, PlanError
from dfopt.fusion import intrachip
from dfopt.fusion.assignment import Assignment
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, objective
from dfopt.machines.compose import load_system
from dfopt.milp import Model, Termination, solve
from dfopt.search.dump import dump_models
from dfopt.workloads import load_graph

WAYS = ({}, {"presolve": False}, {"solver": "pulp:CBC"})


def models(case) -> list[Model]:
    """Both forms of one fusion problem; none when a kernel does not fit at all."""
    world, sharding, p_max = case
    try:
        tables = tables_of(world, sharding)
        limits = limits_of(world, tables, p_max)
    except Infeasible:
        return []
    lattice = down_sets(tables, limits.forward_backward, 10_000)
    assert lattice is not None
    search = ShortestPath(tables, limits, lattice, np.inf)
    search.run()
    return [Assignment(tables, limits).model, Columns(search).model]


def agree(case) -> None:
    for model in models(case):
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
    tables, limits = _stage(result)
    if formulation == "assignment":
        unit = Assignment(tables, limits).unit_s
    else:
        lattice = down_sets(tables, limits.forward_backward, 10_000)
        start = intrachip.greedy(tables, limits)
        assert lattice is not None and start is not None
        search = ShortestPath(tables, limits, lattice, objective(tables, start) * 1.1)
        search.run()
        unit = Columns(search).unit_s
    assert close(least * unit, layer)


def _stage(result):
    from sharded_cases import shard

    from dfopt.fusion.blocks import stage_tables
    from dfopt.setting.instance import Setting
    from dfopt.terms.chip import chip_of

    sharding = {k.name: k.sharding for k in result.mapping.kernels}
    sharded = shard(Setting(result.graph, result.system, result.assumptions).under(result.plan), sharding)
    tables = stage_tables(sharded, chip_of(result.system, result.assumptions))
    return tables, IntraChipLimits(p_max=4, forward_backward="shared")
