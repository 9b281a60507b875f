"""Bounds of plans whose optimizer state lies in a slower memory, of kernels that are spread over pipeline stages."""

from __future__ import annotations

import pytest

import dfopt as df
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.system import Chip, Memory, NetworkDim, Sram, System
from dfopt.setting.instance import Setting
from dfopt.terms.bounds import PlanBounds
from dfopt.workloads.backward import backward_of


def drawn_once(layers: int, size: int = 4096) -> Graph:
    """A training graph that is not folded."""
    kernels = tuple(Kernel(name=f"f{i}", op="gemm", m=size, k=size, n=size) for i in range(layers))
    tensors = tuple(Tensor(src=f"f{i}", dst=f"f{i + 1}") for i in range(layers - 1))
    return backward_of(Graph(name="g", batch=8, kernels=kernels, tensors=tensors))


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_no_bound_is_above_the_step_of_kernels_that_are_spread_over_stages(pp: int) -> None:
    memories = (Memory(name="HBM", bandwidth=1e12, capacity=1e12), Memory(name="DDR", bandwidth=1e11, capacity=1e13))
    chip = Chip(name="c", tiles=4, peak=1e14, sram=Sram(capacity=1e9), memories=memories)
    network = (NetworkDim(name="x", topology="switch", size=pp, link_bandwidth=1e12),) if pp > 1 else ()
    system = System(name="s", chip=chip, network=network)
    assumptions, graph = Assumptions(offload="calculon", forward_backward="separate"), drawn_once(4)
    given = {"pp": pp, "tp": 1, "dp": 1, "place": {"optimizer": "DDR"}}
    result = df.solve(graph, system, assumptions=assumptions, **given)
    setting = Setting.resolved(graph, system, assumptions)
    assert PlanBounds(setting).seconds(setting.under(result.plan)) <= result.value * (1 + 1e-9)
