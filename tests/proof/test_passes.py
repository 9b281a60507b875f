"""Where kernels of both passes may share blocks, what hides behind what is no matter of one pass."""

from __future__ import annotations

import math

import pytest

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, Sram, System
from dfopt.judge import evaluate
from dfopt.proof import blocks
from dfopt.proof.plans import proven

CHIP = Chip(name="c", tiles=2, peak=1e8, sram=Sram(capacity=1e9), dram=Dram(bandwidth=2e6, capacity=1e9))
KERNELS = (  # much work on few weights, and much to read for little work
    Kernel(name="a", op="gemm", m=400, k=400, n=400),
    Kernel(name="b", op="gemm", m=2000, k=500, n=1, pass_="backward"),
)
GRAPH = Graph(name="g", kernels=KERNELS, tensors=(Tensor(src="a", dst="b", bytes=1.0),))


@pytest.mark.parametrize("sets", [1500, 2])  # with 2 no blocks of several kernels are listed
@pytest.mark.parametrize("rule", ["shared", "halves", "separate"])
def test_passes_that_share_blocks_are_bounded_together(rule: str, sets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of both takes as long as its work; apart, one waits for compute and the other for memory."""
    monkeypatch.setattr(blocks, "_SETS", sets)
    system = System(name="s", chip=CHIP)
    chosen = Assumptions(
        execution="dataflow", overlap="perfect", compute_utilization=1.0, forward_backward=rule, weights_from_dram=True
    )
    values = []
    for partitions in ((0, 0), (0, 1)):
        pairs = zip(KERNELS, partitions, strict=True)
        places = tuple(KernelMapping(name=kernel.name, partition=number) for kernel, number in pairs)
        mapping = Mapping(graph="g", system="s", plan=Plan(), kernels=places)
        score = evaluate(mapping, GRAPH, system, chosen)
        values.append(math.inf if score.violations else score.step_time_s)
    best, claim = min(values), (Plan(), 1)
    assert (values[0] < 0.9 * values[1]) == (rule != "separate")
    assert claim in proven(GRAPH, system, chosen, {claim: best * (1 + 1e-6)}).open
    assert not proven(GRAPH, system, chosen, {claim: best * (1 - 1e-6)}).open
