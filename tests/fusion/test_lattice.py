"""The lattice of down-sets against naive enumeration, and the path in it against all other forms."""

from __future__ import annotations

import itertools
import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import best_fusion, judged, mapping_of
from problem_cases import (
    close,
    fused,
    fusion_cases,
    limits_of,
    partitionings,
    partitions,
    searched,
    stage_of,
    stages,
    tables_of,
    tight_stages,
)
from stage_cases import gemms, lattice_of, limited, on_eight_chips
from strategies import LEVELS, share

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.fusion import intrachip
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.columns import Columns
from dfopt.fusion.downsets import Lattice, down_sets
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, least_terms, lower_bound, objective
from dfopt.machines.compose import load_system
from dfopt.milp import Termination, TracePoint, solve
from dfopt.terms.chip import combine
from dfopt.workloads import load_graph


def closed_sets(tables: StageTables, rule: str) -> set[tuple[bool, ...]]:
    """Sets of kernels that hold all predecessors of theirs; under ``separate`` the forward pass comes first."""
    sharded, n = tables.sharded, tables.kernels
    edges = {(a, b) for a, b in zip(sharded.src_t.tolist(), sharded.dst_t.tolist(), strict=True) if a < n and b < n}
    if rule == "separate":
        edges |= {(a, b) for a in range(n) for b in range(n) if sharded.forward_k[a] and not sharded.forward_k[b]}
    sets = itertools.product([False, True], repeat=n)
    return {bits for bits in sets if all(bits[a] or not bits[b] for a, b in edges)}


@given(stages(most=6))
def test_a_lattice_holds_the_closed_sets_and_nothing_else(stage) -> None:
    tables, limits = stage
    rule = limits.forward_backward
    closed = closed_sets(tables, rule)
    lattice = down_sets(tables, rule, len(closed))
    assert lattice is not None
    rows = [tuple(row) for row in lattice.member.tolist()]
    assert len(rows) == len(closed) and set(rows) == closed
    assert (lattice.size == lattice.member.sum(axis=1)).all()
    assert (np.diff(lattice.size) >= 0).all()
    assert not lattice.member[0].any() and lattice.member[-1].all()
    assert down_sets(tables, rule, len(closed) - 1) is None
    np.testing.assert_array_equal(lattice_of(tables, rule).member, lattice.member)


@given(st.permutations(range(6)))
def test_kernels_may_be_listed_in_any_order(listed: list[int]) -> None:
    """No key tells sets apart, each is made once: also where the kernels are not listed in a topological order."""
    ends = [(0, 2), (2, 3), (1, 4), (4, 5)]
    tables = gemms([64] * 6, [(listed[a], listed[b]) for a, b in ends], 1e9)
    rows = [tuple(row) for row in lattice_of(tables).member.tolist()]
    assert len(rows) == len(set(rows)) and set(rows) == closed_sets(tables, "shared")


@given(st.integers(1, 200), st.integers(1, 5), st.data())
def test_words_tell_subsets_as_the_rows_do(kernels: int, count: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    member = rng.random((count, kernels)) < data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    words = Lattice(member, member.sum(axis=1)).words
    within = ((words[:, None, :] & ~words[None, :, :]) == 0).all(axis=2)
    np.testing.assert_array_equal(within, ~(member[:, None, :] & ~member[None, :, :]).any(axis=2))


# -- the search in it -------------------------------------------------------------------------


@given(st.one_of(stages(limited=True), tight_stages()), st.sampled_from([1.0, 1.3, np.inf]))
def test_the_shortest_path_is_brute_force_whatever_is_known_before(stage, above: float) -> None:
    tables, limits = stage
    partition_k, seconds = partitionings(tables, limits)
    best = seconds.min(initial=np.inf)
    _, found = searched(tables, limits, best * above)
    assert found.complete
    assert (found.partition_k is None) == (not len(seconds))
    if found.partition_k is not None:
        assert close(found.objective, best, 1e-9)
        assert (found.partition_k == partition_k[seconds <= best * (1 + 1e-9)]).all(axis=1).any()
    if np.isfinite(best) and best > 0:
        assert searched(tables, limits, best * 0.99)[1].partition_k is None


@share(0.5)
@given(tight_stages())
def test_down_sets_out_of_reach_change_nothing(stage) -> None:
    tables, limits = stage
    search, _ = searched(tables, limits)
    with patch.object(ShortestPath, "_reach", lambda search, level, size: len(search.lattice.size)):
        whole, _ = searched(tables, limits)
    assert search.pairs <= whole.pairs
    for one, other in zip(search.blocks(), whole.blocks(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("least", ["sram", "tiles"])
def test_the_window_is_as_wide_as_the_largest_block(least: str) -> None:
    """Twelve GEMMs in a row, of which three fit together: down-sets four or more apart are never looked at."""
    count, weight = 12, 64 * 64 * 2
    sram, tiles = (3.9 * weight, 100) if least == "sram" else (1e9, 3)
    tables = gemms([64] * count, [(i, i + 1) for i in range(count - 1)], sram, tiles)
    search, found = searched(tables, IntraChipLimits(p_max=count))
    i, j, _ = search.blocks()
    assert set(j - i) == {1, 2, 3}
    assert search.pairs == len(i) == 3 * count - 3
    assert len(np.unique(found.partition_k)) == 4


def test_the_window_is_that_of_the_heaviest_set_of_a_level() -> None:
    """Behind the heavy kernel the two light ones fit together, though behind a light one the other two do not."""
    tables = gemms([80, 10, 10], [], 85 * 64 * 2)
    search, _ = searched(tables, IntraChipLimits(p_max=3))
    member = search.lattice.member
    blocks = {(tuple(member[i]), tuple(member[j])) for i, j, _ in zip(*search.blocks(), strict=True)}
    assert ((True, False, False), (True, True, True)) in blocks
    assert ((False, True, False), (True, True, True)) not in blocks


# -- the columns form (a path in the lattice) against the assignment form, and its own laws ----


def check_all_forms(case) -> None:
    """Shortest path, MILP over blocks, assignment MILP and brute force by the judge: one answer."""
    world, sharding, p_max = case
    path, milp = fused(*case, "auto", lattice=True), fused(*case)
    best = best_fusion(world, sharding, stage_of(world), p_max)
    said = f"path {path}, MILP {milp}, brute force {best and best.score.layer_time_s}"
    assert (path is None) == (milp is None) == (best is None), said
    if path is None or milp is None or best is None:
        return
    assert path.formulation == "columns" or "lower bound" in path.note
    assert close(path.objective, best.score.layer_time_s), said
    assert close(milp.objective, best.score.layer_time_s), said
    assert milp.bound <= milp.objective * (1 + 1e-9) and milp.solution.termination is Termination.OPTIMAL
    tables = tables_of(world, sharding)
    columns = Columns(searched(tables, limits_of(world, tables, p_max))[0])
    solution = solve(columns.model)
    assert close(solution.objective * columns.unit_s, best.score.layer_time_s)
    decoded = dict(zip(tables.sharded.names, columns.decode(solution.x).tolist(), strict=True))
    for partition in (partitions(world, milp), decoded):
        mapping = mapping_of(world, sharding, stage_of(world), partition)
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
    p_max = case[2]
    tables, limits = limited(*case)
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


def test_a_chain_has_one_down_set_per_length_an_antichain_all_and_a_gpt_layer_26() -> None:
    kernels = tuple(Kernel(name=f"k{i}", op="elementwise", m=4, n=8) for i in range(6))
    chain = Graph(name="chain", kernels=kernels, tensors=tuple(Tensor(src=f"k{i}", dst=f"k{i + 1}") for i in range(5)))
    antichain = Graph(name="antichain", kernels=kernels)
    # those of the layer were counted on the reference graph too
    for graph, count in ((chain, 7), (antichain, 64), (load_graph("gpt3-175b"), 26)):
        assert len(lattice_of(on_eight_chips(graph)).size) == count


def of_gpt() -> tuple[StageTables, IntraChipLimits, Lattice]:
    """A layer in as many partitions as it has kernels."""
    tables = on_eight_chips(load_graph("gpt3-175b"))
    limits = IntraChipLimits(p_max=tables.kernels)
    return tables, limits, lattice_of(tables, limits.forward_backward)


def test_a_cutoff_below_the_optimum_is_proven_unreachable() -> None:
    tables, limits, lattice = of_gpt()
    best = intrachip.optimize_intrachip(tables, limits, lattice=lattice)
    with pytest.raises(intrachip.CutOff):
        intrachip.optimize_intrachip(tables, limits, lattice=lattice, cutoff=best.objective * 0.999)
    again = intrachip.optimize_intrachip(tables, limits, lattice=lattice, cutoff=best.objective)
    assert again.objective == pytest.approx(best.objective, rel=1e-12)


def test_bounds_on_the_way_rise_to_the_optimum_and_never_pass_it() -> None:
    tables, limits, lattice = of_gpt()
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
