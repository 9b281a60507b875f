"""The best mappings of distinct shardings: those of brute force over all of them, proven and checked."""

from __future__ import annotations

import pytest
from brute import sharding_optima
from hypothesis import assume, given, note
from hypothesis import strategies as st
from strategies import ROWS, World, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import Infeasible, PlanError
from dfopt.search.verify import verify


@share(0.4)
@given(
    worlds(most=4, least=2, tile_rows=ROWS, gradient_overlap=None, zero=False),
    st.integers(2, 12),
)
def test_the_best_shardings_are_those_of_brute_force(world: World, top: int) -> None:
    """In order, no two alike, and nothing but these is better than the last; fewer where there are no more."""
    chosen = world.assumptions.with_(sharding_objective="joint")
    asked: dict[str, object] = {"zero": (0,), "mp": 1, "two_batch_overlap": False}
    asked |= {} if world.graph.folded else {"pp": 1}
    if chosen.empty_partitions == "forbid" and chosen.execution != "kernel_by_kernel":
        asked["p_max"] = 2
    try:
        result = optimizer.solve(world.graph, world.system, assumptions=chosen, top=top, distinct="sharding", **asked)
    except Infeasible:
        assume(False)
    plans = [record.plan for record in result.plans if record.status != "infeasible"]  # the best of these are promised
    values = sharding_optima(world.graph, world.system, chosen, Request(**asked), plans)
    mappings = [result.mapping, *(one.mapping for one in result.alternatives or ())]
    found = [result.value, *(one.value for one in result.alternatives or ())]
    note(f"{found} {result.status} against {sorted(values.values())[:top]}")
    assert found == pytest.approx(sorted(values.values())[:top], rel=1e-6)
    keys = [(one.plan, tuple(kernel.sharding for kernel in one.kernels)) for one in mappings]
    assert len(set(keys)) == len(keys)
    assert all(values[key] == pytest.approx(value, rel=1e-6) for key, value in zip(keys, found, strict=True))
    assert result.status == "optimal"
    shown = verify(result)
    assert shown.ok, shown.problems
    assert shown.verdict.startswith("verified optimal")


def test_a_better_sharding_that_is_left_out_is_found_by_a_check() -> None:
    """Shardings of one plan, named as different in the proof; with the best and a worse one alone it is refused."""
    kernels = Kernel(name="up", op="gemm", m=8, k=4, n=6), Kernel(name="down", op="gemm", m=4, k=8, n=6)
    graph = Graph(name="g", batch=4, kernels=kernels, tensors=(Tensor(src="up", dst="down"),))
    chip = Chip(name="c", tiles=2, peak=300, sram=Sram(capacity=1e6), dram=Dram(bandwidth=100))
    pair = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=20)
    system = System(name="s", chip=chip, network=(pair,))
    result = df.optimize(graph, system, tp=2, pp=1, top=4, distinct="sharding", sensitivity=False)
    others = result.alternatives or ()
    assert result.status == "optimal" and len(others) == 3
    assert {one.mapping.plan for one in others} == {result.plan}
    assert result.proof.endswith("of different plans, microbatches, ways to compute again or shardings")
    assert verify(result).ok
    worse = next(one for one in others if one.value > others[0].value * 1.01)
    fields = {"request": result.request.model_copy(update={"top": 2}), "alternatives": (worse,), "question": None}
    forged = result.model_copy(update=fields).sealed()
    assert any("could be shown" in problem for problem in verify(forged).problems)


@pytest.mark.parametrize(
    ("asked", "beside"),
    [
        ({"set": {"sharding_objective": "seconds"}}, "sharding_objective: seconds; use joint"),
        ({"formulation": "assignment"}, "formulation: assignment; use auto"),
    ],
)
def test_where_only_one_sharding_of_a_plan_is_looked_for_several_are_refused(
    asked: dict[str, object], beside: str
) -> None:
    """By name, with what to ask for instead."""
    with pytest.raises(PlanError, match=f"distinct: found sharding, expected plan beside {beside}"):
        df.optimize("gpt2-small", "sn10-8-ring", top=2, distinct="sharding", **asked)
