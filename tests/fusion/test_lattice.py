"""The columns form (a path in the lattice of down-sets) against the assignment form, and its own laws."""

from __future__ import annotations

import os

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import best_fusion, judged, mapping_of
from problem_cases import close, fused, fusion_cases, limits_of, partitions, stage_of, tables_of
from strategies import LEVELS, plans_on, share

import dfopt as df
from dfopt.bnb import ENDED
from dfopt.errors import Infeasible
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import price_blocks
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import down_sets
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, least_terms, lower_bound, objective
from dfopt.machines.compose import load_system
from dfopt.milp import Termination, TracePoint, solve
from dfopt.terms.chip import combine
from dfopt.workloads import load_graph


def by_path(world, sharding, p_max):
    try:
        tables = tables_of(world, sharding)
        limits = limits_of(world, tables, p_max)
        lattice = down_sets(tables, limits.forward_backward, 10_000)
        assert lattice is not None
        return intrachip.optimize_intrachip(tables, limits, lattice=lattice)
    except Infeasible:
        return None


def check_all_forms(case) -> None:
    """Shortest path, MILP over blocks, assignment MILP and brute force by the judge: one answer."""
    world, sharding, p_max = case
    path, milp = by_path(world, sharding, p_max), fused(world, sharding, p_max)
    best = best_fusion(world, sharding, stage_of(world), p_max)
    said = f"path {path}, MILP {milp}, brute force {best and best.score.layer_time_s}"
    assert (path is None) == (milp is None) == (best is None), said
    if path is None or milp is None or best is None:
        return
    assert path.formulation == "columns" or "lower bound" in path.note
    assert close(path.objective, best.score.layer_time_s), said
    assert close(milp.objective, best.score.layer_time_s), said
    assert milp.bound <= milp.objective * (1 + 1e-9) and milp.solution.termination is Termination.OPTIMAL
    mapping = mapping_of(world, sharding, stage_of(world), partitions(world, milp))
    assert mapping is not None
    assert not judged(world, mapping).violations
    tables = tables_of(world, sharding)
    limits = limits_of(world, tables, p_max)
    lattice = down_sets(tables, limits.forward_backward, 10_000)
    assert lattice is not None
    search = ShortestPath(tables, limits, lattice, np.inf)
    search.run()
    columns = Columns(search)
    solution = solve(columns.model)
    assert close(solution.objective * columns.unit_s, best.score.layer_time_s)
    mapping = mapping_of(
        world,
        sharding,
        stage_of(world),
        dict(zip(tables.sharded.names, columns.decode(solution.x).tolist(), strict=True)),
    )
    assert mapping is not None
    score = judged(world, mapping)
    assert not score.violations
    assert close(score.layer_time_s, best.score.layer_time_s)


@share(5)
@given(case=fusion_cases())
def test_all_forms_agree_with_brute_force(case) -> None:
    check_all_forms(case)


@pytest.mark.nightly
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="needs HYPOTHESIS_PROFILE=nightly")
@share(2.5)
@given(case=fusion_cases(most=6))
def test_all_forms_agree_with_brute_force_nightly(case) -> None:
    check_all_forms(case)


@given(case=fusion_cases(most=6), data=st.data())
def test_bounds_of_sets_bound_every_partitioning(case, data) -> None:
    world, sharding, p_max = case
    try:
        tables = tables_of(world, sharding)
        limits = limits_of(world, tables, p_max)
    except Infeasible:
        return
    n = tables.kernels
    rule = limits.forward_backward
    partition_k = np.array(data.draw(st.lists(st.integers(0, p_max - 1), min_size=n, max_size=n)))
    forward = tables.sharded.forward_k
    mixed = any(len(set(forward[partition_k == p])) > 1 for p in range(p_max))
    if rule == "separate" and mixed:
        return
    prices = price_blocks(tables, partition_k == np.arange(p_max)[:, None])
    if not prices.legal.all():
        return
    assert lower_bound(tables, limits) <= prices.time.sum() * (1 + 1e-9) + 1e-15
    for p in range(p_max):
        least = [term[partition_k == p].sum() for term in least_terms(tables, limits)]
        assert combine(least, tables.chip) <= prices.time[p] * (1 + 1e-9) + 1e-15


def test_a_chain_has_one_down_set_per_length_and_an_antichain_all() -> None:
    from dfopt.documents.graph import Graph, Kernel, Tensor

    kernels = tuple(Kernel(name=f"k{i}", op="elementwise", m=4, n=8) for i in range(6))
    chain = Graph(name="chain", kernels=kernels, tensors=tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}") for i in range(5)))
    assert nx.is_directed_acyclic_graph(chain.networkx())
    for graph, count in ((chain, 7), (Graph(name="antichain", kernels=kernels), 64)):
        tables, _ = _zoo_tables(graph)
        lattice = down_sets(tables, "shared", 1000)
        assert lattice is not None
        assert len(lattice.size) == count


def _zoo_tables(graph):
    from sharded_cases import shard

    from dfopt.documents.assumptions import Assumptions
    from dfopt.fusion.blocks import stage_tables
    from dfopt.physics.pipeline import resolve
    from dfopt.setting.instance import Setting
    from dfopt.terms.chip import chip_of

    system = load_system("sn10-8-ring")
    chosen = resolve(Assumptions(), system.chip.execution, system.chip.compute_utilization)
    plan = plans_on(graph, system, **({"pp": 8} if graph.repeat > 1 else {"tp": 8}))[0][0]
    sharded = shard(Setting(graph, system, chosen).under(plan), {k.name: "none" for k in graph.kernels})
    tables = stage_tables(sharded, chip_of(system, chosen))
    return tables, IntraChipLimits(p_max=tables.kernels)


def test_the_gpt_layer_has_26_down_sets() -> None:
    tables, limits = _zoo_tables(load_graph("gpt3-175b"))
    lattice = down_sets(tables, limits.forward_backward, 1000)
    assert lattice is not None
    assert len(lattice.size) == 26  # counted on the reference graph too


def test_a_cutoff_below_the_optimum_is_proven_unreachable() -> None:
    tables, limits = _zoo_tables(load_graph("gpt3-175b"))
    lattice = down_sets(tables, limits.forward_backward, 1000)
    assert lattice is not None
    best = intrachip.optimize_intrachip(tables, limits, lattice=lattice)
    with pytest.raises(intrachip.CutOff):
        intrachip.optimize_intrachip(tables, limits, lattice=lattice, cutoff=best.objective * 0.999)
    again = intrachip.optimize_intrachip(tables, limits, lattice=lattice, cutoff=best.objective)
    assert again.objective == pytest.approx(best.objective, rel=1e-12)


def test_a_search_without_time_says_so() -> None:
    tables, limits = _zoo_tables(load_graph("gpt3-175b"))
    lattice = down_sets(tables, limits.forward_backward, 1000)
    assert lattice is not None
    path = ShortestPath(tables, limits, lattice, np.inf).run(ENDED)
    assert not path.complete
    assert path.partition_k is None


def test_bounds_on_the_way_rise_to_the_optimum_and_never_pass_it() -> None:
    tables, limits = _zoo_tables(load_graph("gpt3-175b"))
    lattice = down_sets(tables, limits.forward_backward, 1000)
    assert lattice is not None
    points: list[TracePoint] = []
    start = intrachip.greedy(tables, limits)
    assert start is not None
    known = objective(tables, start)
    path = ShortestPath(tables, limits, lattice, known).run(progress=points.append)
    bounds = [point.bound for point in points]
    assert len(bounds) == tables.kernels
    assert all(bound <= path.objective * (1 + 1e-9) for bound in bounds)
    assert bounds[-1] == pytest.approx(path.objective)
    assert bounds[0] < bounds[-1]


@pytest.mark.parametrize("mode", ["forward", pytest.param("training", marks=pytest.mark.nightly)])
def test_forms_agree_on_the_zoo(mode: str) -> None:
    graph, system = load_graph("gpt3-175b", mode=mode), load_system("sn10-8-ring")
    path = df.solve(graph, system, tp=8, formulation="columns", assumptions=LEVELS)
    milp = df.solve(graph, system, tp=8, formulation="assignment", assumptions=LEVELS)
    assert path.level_gap == milp.level_gap == 0.0
    assert path.step_time_s == pytest.approx(milp.step_time_s, rel=1e-6)
    assert [s.formulation for s in path.plans[0].solves if s.problem == "intrachip"] == ["columns"]
    assert [s.formulation for s in milp.plans[0].solves if s.problem == "intrachip"] == ["assignment"]
