"""Sharding, fusion and plan found together against brute force over all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from brute import joint_optimum, least_capacities
from covered import asked_of, jointly
from hypothesis import assume, given
from hypothesis import strategies as st
from small_systems import rings, small_system
from strategies import ROWS, World, share, with_dram, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.bnb import UNITS_PER_S, Bound, Clock, Incumbents, Node
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import Infeasible
from dfopt.physics.pipeline import resolve
from dfopt.regions import lattices
from dfopt.regions.problem import problem_in
from dfopt.regions.space import MappingSpace
from dfopt.regions.unrolled import OneLayer
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans
from dfopt.solving.options import Options


def together(world: World, **asked: Any) -> Result:
    return optimizer.solve(world.graph, world.system, assumptions=jointly(world), **asked)


def test_a_share_of_peak_bounds_nothing_under_the_cycle_model() -> None:
    """Its cycles are those of the arrays: what compute takes by a share of peak may be more than what it takes."""
    kernels = (Kernel(name="a", op="matmul", m=2, k=4, n=5), Kernel(name="b", op="matmul", m=5, k=4, n=2))
    array = {"tiles": 1, "lanes": 4, "stages": 1, "frequency": 10.0, "peak": None}
    system = small_system(*rings(2), bandwidth=1e9, **array)
    chosen = resolve(Assumptions(compute_model="cycle", compute_utilization=0.1, overlap="none"), "dataflow", 0.9)
    world = World(Graph(name="g", kernels=kernels), system, Plan(tp=2, tp_dims=("x",)), chosen)
    best = joint_optimum(world.graph, system, chosen, Request(tp=2))
    result = together(world, tp=2)
    assert best is not None
    assert result.status == "optimal"
    assert result.value == pytest.approx(best.value, rel=1e-9)


@share(0.25)
@given(worlds(most=4, least=2, tile_rows=ROWS), st.data())
def test_what_fits_is_what_fits_by_brute_force(world: World, data: st.DataObject) -> None:
    check_what_fits(world, data)


def check_what_fits(world: World, data: st.DataObject) -> None:
    """With a little more DRAM than some plan needs, or a little less; and no mapping does without what is named."""
    asked, unlimited = asked_of(world, data.draw, ways=1), with_dram(world.system, None)
    del asked["two_batch_overlap"]
    bytes_of = least_capacities(world.graph, unlimited, world.assumptions, Request(**asked))
    least, sizes = min(bytes_of.values()), sorted({size for size in bytes_of.values() if 0 < size < math.inf})
    assume(sizes)
    capacity = data.draw(st.sampled_from(sizes)) * data.draw(st.sampled_from([0.9999, 1.0001]))
    world = replace(world, system=with_dram(world.system, capacity))
    if least < capacity:
        result = together(world, **asked)
        for record in result.plans:
            if record.plan in bytes_of and record.status in ("solved", "infeasible") and record.tile_count is None:
                assert (record.status == "infeasible") == (bytes_of[record.plan] > capacity)
        assert max(stage.dram_bytes for stage in result.score.stages) <= capacity * (1 + 1e-6)
        return
    with pytest.raises(Infeasible) as refused:
        together(world, **asked)
    named = refused.value.least
    assert named is None or named.bytes > capacity
    assert named is None or named.others or named.bytes <= least * (1 + 1e-9)


def _two_gemms(sram: float, m: int, k: int, n: int) -> tuple[Graph, System]:
    kernels = (Kernel(name="k0", op="gemm", m=m, k=k, n=n), Kernel(name="k1", op="gemm", m=k, k=m, n=n))
    system = small_system(*rings(2, rate=20, latency=0), tiles=2, peak=300, sram=sram)
    return Graph(name="two", batch=4, kernels=kernels), system


@pytest.mark.parametrize(("sram", "sizes"), [(24, (2, 4, 2)), (24, (1, 5, 3)), (32, (1, 5, 3))])
def test_small_tiles_leave_schemes_that_large_ones_need_not(sram: float, sizes: tuple[int, int, int]) -> None:
    """Where a tile of a row fits and one that chips share does not, `k>n` stands for `k` no more."""
    graph, system = _two_gemms(sram, *sizes)
    chosen = Assumptions(compute_model="fixed", sharding_objective="joint", weight_tiling="forbid")
    best = joint_optimum(graph, system, chosen, Request(pp=1))
    result = df.optimize(graph, system, pp=1, assumptions=chosen)
    assert best is not None and result.status == "optimal"
    assert result.value == pytest.approx(best.value, rel=1e-9)


@pytest.mark.parametrize(
    ("tiling", "sram", "sizes", "fits"), [("forbid", 20, (4, 2, 1), False), ("reread", 24, (2, 4, 2), True)]
)
def test_without_a_lattice_schemes_are_told_apart_until_some_fit(
    tiling: str, sram: float, sizes: tuple[int, int, int], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is best by each resource does not fit: that is no reason to end without an answer."""
    for name in ("MOST_SETS", "MOST_OF_LIBRARY", "_SOME"):
        monkeypatch.setattr(lattices, name, 1)
    graph, system = _two_gemms(sram, *sizes)
    chosen = Assumptions(compute_model="fixed", sharding_objective="joint", weight_tiling=tiling, tile_rows=1)
    best = joint_optimum(graph, system, chosen, Request(pp=1))
    assert (best is not None) == fits
    if best is None:
        with pytest.raises(Infeasible):
            df.optimize(graph, system, pp=1, assumptions=chosen)
    else:
        assert df.optimize(graph, system, pp=1, assumptions=chosen).value == pytest.approx(best.value, rel=2e-6)


def test_drawn_layers_too_large_to_list_start_from_one() -> None:
    """Equal layers, drawn one after another, are no slower than where one of them stands for all."""
    chosen, request = Assumptions(sharding_objective="joint", sequence_parallelism="none"), Request(tp=8)
    once, twice = (df.load_graph("gpt3-175b", mode="training", drawn=drawn) for drawn in (1, 2))
    apart = df.optimize(once, "sn10-8-ring", tp=8, assumptions=chosen, sensitivity=False)
    setting = Setting.resolved(twice, df.load_system("sn10-8-ring"), chosen)
    space = MappingSpace.of_plans(setting, request, asked_plans(twice, setting.system, request, setting.assumptions)[0])
    [root] = space.roots
    assert not root.complete
    problem = problem_in([space], Options(request, Clock(planned=10 * UNITS_PER_S)))
    [one_layer] = [each for each in problem.heuristics if isinstance(each, OneLayer)]
    [found] = one_layer.propose(Node(root, 0, Bound(0.0)), Incumbents(1, 0.0))
    assert found.value <= apart.value * (1 + 1e-9)


def test_a_large_graph_on_stages_says_that_its_sharding_came_first() -> None:
    """Kernels drawn once on four stages: too large a MILP, so the two levels answer and the proof line says so."""
    graph = df.load_graph("gpt2-small", mode="training").model_copy(update={"sections": None, "carried": ()})
    chosen = df.Assumptions(sharding_objective="joint")
    result = df.optimize(graph, "sn10-8-ring", tp=2, pp=4, time_limit=6, assumptions=chosen)
    assert result.status != "optimal"
    assert "under 1 the sharding came first" in result.proof
