"""Shares of memory bandwidth by the bytes of a partition: optimizer and judge agree, and bounds hold.

Shares rise and fall with bytes here, so that more bytes often take less time.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import judged, mapping_of
from strategies import World, share, worlds

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, EfficiencyRow, Memory, NetworkDim, Sram, System
from dfopt.errors import PlanError, SystemSpecError
from dfopt.judge import evaluate
from dfopt.physics import ops
from dfopt.terms.bounds import PlanBounds

_BY_BYTES = {
    "most": 4,
    "memory": True,
    "compute_model": "efficiency",
    "execution": ["library", "kernel_by_kernel"],
    "empty_partitions": "allow",
}


@share(1)
@given(worlds(**_BY_BYTES), st.data())
def test_no_mapping_beats_its_bound(world: World, data: st.DataObject) -> None:
    graph, plan = world.graph, world.plan
    assume(graph.folded or plan.pp == 1)
    schemes = {
        k.name: data.draw(st.sampled_from(ops.legal_schemes(k, plan.tp, world.assumptions))) for k in graph.kernels
    }
    stage = {kernel.name: graph.kind_of(kernel) for kernel in graph.kernels}
    mapping = mapping_of(world, schemes, stage, {kernel.name: n for n, kernel in enumerate(graph.kernels)})
    assume(mapping is not None)
    score = judged(world, mapping)
    assert PlanBounds(world.instance.setting).seconds(world.instance) <= score.step_time_s * (1 + 1e-9)


ROWS = (
    EfficiencyRow(unit="matrix", share=1.0),
    EfficiencyRow(unit="vector", share=1.0),
    EfficiencyRow(unit="memory", bytes=130.0, share=0.5),
    EfficiencyRow(unit="memory", share=0.25),
)
BY_SIZE = Assumptions(execution="kernel_by_kernel", compute_model="efficiency", overlap="none")
GEMM = Graph(name="g", word_bytes=1, kernels=(Kernel(name="a", op="gemm", m=5, k=4, n=5),))


def _machine(chips: int = 1, **memory: object) -> System:
    kinds = memory or {"dram": Dram(bandwidth=100.0)}
    chip = Chip(name="c", tiles=2, peak=1e9, sram=Sram(capacity=1e6), efficiency=ROWS, **kinds)
    dims = (NetworkDim(name="x", topology="ring", size=chips, link_bandwidth=1e3),) if chips > 1 else ()
    return System(name="m", chip=chip, network=dims)


@pytest.mark.parametrize(("word", "seconds"), [(1, 65 / 100 / 0.25), (2, 130 / 100 / 0.5), (3, 195 / 100 / 0.5)])
def test_the_bytes_of_a_partition_decide(word: int, seconds: float) -> None:
    """It moves 20 elements of its weight, 20 of its input and 25 of its output; 130 bytes reach the row of 130."""
    graph = GEMM.model_copy(update={"word_bytes": word})
    one = KernelMapping(name="a", sharding="none", stage=0, partition=0, tiles=1)
    mapping = Mapping(graph="g", system="m", plan=Plan(), kernels=(one,), tile_count=5)
    score = evaluate(mapping, graph, _machine(), BY_SIZE)
    assert score.partitions[0].memory_s == pytest.approx(seconds, rel=1e-12)
    assert score.partitions[0].dram_bytes == 65 * word
    plain = evaluate(mapping, graph, _machine(), BY_SIZE.with_(compute_model="fixed"))
    assert plain.partitions[0].memory_s == 65 * word / 100
    found = optimizer.solve(graph, _machine(), assumptions=BY_SIZE)
    assert (found.status, found.score.partitions[0].memory_s) == ("optimal", score.partitions[0].memory_s)


def test_what_has_no_proof_is_refused() -> None:
    with pytest.raises(SystemSpecError, match="rows of unit memory are not supported beside") as error:
        optimizer.solve(GEMM, _machine(chips=2), assumptions=BY_SIZE.with_(execution="dataflow"))
    assert "execution: dataflow" in str(error.value)


@pytest.mark.parametrize("execution", ["library", "kernel_by_kernel", "dataflow"])
def test_matrices_know_shares_of_bandwidth(execution: str) -> None:
    found = optimizer.solve(
        GEMM, _machine(chips=2), assumptions=BY_SIZE.with_(execution=execution), formulation="assignment"
    )
    assert found.status == "optimal"


def test_weights_lie_in_the_fastest_memory() -> None:
    memories = (Memory(name="HBM", bandwidth=100.0, capacity=1e3), Memory(name="DDR", bandwidth=10.0))
    system = _machine(memories=memories)
    with pytest.raises(PlanError, match="place it there"):
        optimizer.solve(GEMM, system, assumptions=BY_SIZE)
    found = optimizer.solve(GEMM, system, assumptions=BY_SIZE, place={"weights": "HBM"})
    assert found.score.partitions[0].memory_s == 65 / 100 / 0.25
