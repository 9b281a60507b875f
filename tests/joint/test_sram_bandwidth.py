"""SRAM traffic as a term of a partition's time: the optimiser against the judge, and never worse with more bandwidth.

Random worlds elsewhere have a limited SRAM bandwidth now and then, so that prices, bounds, both formulations, heat and
the brute force of schemes, partitions and plans are compared with it there too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from brute import joint_optimum
from hypothesis import assume, given
from hypothesis import strategies as st
from matplotlib.text import Text
from oracles import mapping_of
from problem_cases import close, fusion_cases, stage_of
from sharded_cases import shard
from strategies import World, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.system import Sram, System
from dfopt.errors import Infeasible
from dfopt.judge import case, traffic
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds


def with_bandwidth(system: System, bandwidth: float | None) -> System:
    sram = Sram(capacity=system.chip.sram.capacity, bandwidth=bandwidth)
    return system.model_copy(update={"chip": system.chip.model_copy(update={"sram": sram})})


@share(1)
@given(fusion_cases(most=6))
def test_optimiser_and_judge_count_the_same_bytes(drawn) -> None:
    world, sharding, _ = drawn
    mapping = mapping_of(world, sharding, stage_of(world), {kernel.name: 0 for kernel in world.graph.kernels})
    assume(mapping is not None)
    built = case.build(mapping, world.graph, world.system, world.assumptions)
    judged = list(traffic.sram_traffic(built).values())
    np.testing.assert_allclose(shard(world.instance, sharding).sram_traffic_k, judged, rtol=1e-12)


def optimum(world: World, bandwidth: float | None, **asked: Any) -> df.Result:
    system = with_bandwidth(world.system, bandwidth)
    found = optimizer.solve(world.graph, system, assumptions=world.assumptions, **asked)
    assert found.status == "optimal" and found.score.feasible
    return found


@share(0.4)
@given(
    worlds(most=4, least=2, sharding_objective="joint", empty_partitions="allow", gradient_overlap=None),
    st.sampled_from([10.0, 40.0, 100.0]),
)
def test_the_best_of_all_mappings_and_never_worse_with_more_of_it(world: World, bandwidth: float) -> None:
    asked = {"tp_dims": world.plan.tp_dims} if world.plan.tp > 1 else {}
    try:
        found = optimum(world, bandwidth, **asked)
    except Infeasible:
        assume(False)
    best = joint_optimum(world.graph, with_bandwidth(world.system, bandwidth), world.assumptions, df.Request(**asked))
    assert best is not None and close(found.value, best.value)
    more, enough, free = (optimum(world, rate, **asked) for rate in (2 * bandwidth, 1e15, None))
    assert free.value * (1 - 1e-6) <= more.value <= found.value * (1 + 1e-6)
    assert close(enough.value, free.value)
    assert free.score.sram_share is None and found.score.sram_share is not None


@pytest.mark.parametrize("system", ["sn10-8-ring", "h100-8"])
def test_a_zoo_machine_waits_for_its_sram(system: str) -> None:
    """Fused or kernel by kernel; tables, plots and reports have one more column."""
    graph, free = df.load_graph("gpt2-small"), df.load_system(system)
    plain = df.optimize(graph, free, tp=8)
    result = df.optimize(graph, with_bandwidth(free, 1e11), tp=8, sensitivity=True)
    assert result.step_time > plain.step_time and result.score.bound_by == "sram"
    assert "partition_sram_s" in result.frame() and "partition_sram_s" not in plain.frame()
    gains = {one.resource: one.speedup for one in result.sensitivity}
    assert 1.0 < gains["sram_bandwidth"] <= 1.1 + 1e-9 and gains["compute"] == pytest.approx(1.0, abs=0.02)
    chosen = resolve(result.assumptions, result.system.chip.execution, 1.0)
    setting = Setting(result.graph, result.system, chosen)
    bound = PlanBounds(setting).seconds(setting.under(result.plan))
    assert 0.5 * result.step_time <= bound <= result.step_time * (1 + 1e-12)  # before anything is solved
    said = df.verify(result)
    assert said.ok, said
    for kind in ("breakdown", "partitions", "roofline"):
        drawn = getattr(df.plot, kind)(result)
        assert any("SRAM" in text.get_text() for text in drawn.figure.findobj(Text)), kind
