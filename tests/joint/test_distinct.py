"""The best mappings of distinct shardings: those of brute force over all of them, proven and checked."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.errors import PlanError
from dfopt.search.verify import verify


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
