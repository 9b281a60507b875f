"""Fusions are counted alike whichever plan is priced first: the down-sets of a stage are not those of a layer."""

from __future__ import annotations

from itertools import permutations

import dfopt as df
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.request import Request
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.regions.lattices import down_sets_by_kind
from dfopt.setting.instance import Setting
from dfopt.setting.plans import asked_plans

_KERNELS = tuple(Kernel(name=name, op="elementwise", m=4, n=8, flop_per_element=50) for name in ("a", "b"))
_GRAPH = Graph(name="two", kernels=_KERNELS, tensors=(), batch=4)
_CHIP = Chip(name="c", execution="dataflow", tiles=4, peak=1e3, compute_utilization=1.0,
             sram=Sram(capacity=1e9), dram=Dram(bandwidth=1e3))  # fmt: skip
_SYSTEM = System(name="s", chip=_CHIP, network=(NetworkDim(name="x", topology="ring", size=2, link_bandwidth=1e9),))


def test_the_down_sets_of_a_stage_are_not_taken_for_those_of_all_kernels() -> None:
    setting, request = Setting(_GRAPH, _SYSTEM, df.profile("default")), Request()
    plans, _ = asked_plans(_GRAPH, _SYSTEM, request, setting.assumptions)
    assert any(plan.stages == 2 for plan in plans)
    counted = set()
    for order in permutations(plans):
        lattices = down_sets_by_kind(setting, order)
        counted.add((*lattices, lattices[0] and lattices[0].member.shape))
    assert counted == {(0, (4, 2))}  # nothing, one of two or both
