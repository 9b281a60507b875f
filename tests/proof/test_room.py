"""A memory that is full to the last byte holds a mapping, and one that is a little smaller holds none."""

from __future__ import annotations

import math

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.judge import evaluate
from dfopt.proof.plans import proven

GRAPH = Graph(name="g", kernels=(Kernel(name="a", op="gemm", m=400, k=400, n=40),), repeat=2)
CHOSEN = Assumptions(execution="dataflow", compute_utilization=1.0, memory_reserve=0.0)


def machine(capacity: float) -> System:
    dram = Dram(bandwidth=2e6, capacity=capacity)
    return System(name="s", chip=Chip(name="c", tiles=2, peak=1e8, sram=Sram(capacity=1e9), dram=dram))


def test_a_full_memory_is_large_enough() -> None:
    plan = Plan(layers_per_stage=2)
    mapping = Mapping(graph="g", system="s", plan=plan, kernels=(KernelMapping(name="a", partition=0),))
    [stage] = evaluate(mapping, GRAPH, machine(1e9), CHOSEN).stages
    need = sum(stage.states["dram"].values())
    assert need > 0 and not evaluate(mapping, GRAPH, machine(need), CHOSEN).violations
    for share in (1.0, 1.005):
        assert (plan, 1) in proven(GRAPH, machine(share * need), CHOSEN, {(plan, 1): math.inf}).open
    assert not proven(GRAPH, machine(0.995 * need), CHOSEN, {(plan, 1): math.inf}).open
