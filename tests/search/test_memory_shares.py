"""Bandwidths of memories: shares by the bytes of a partition, and SRAM traffic as a term of its time."""

from __future__ import annotations

import pytest
from given_plans import drawn_mapping
from hypothesis import assume, given
from hypothesis import strategies as st
from matplotlib.text import Text
from small_systems import rings, small_system
from strategies import World, share, worlds

import dfopt as df
import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import EfficiencyRow, Memory, Sram, System
from dfopt.errors import PlanError, SystemSpecError
from dfopt.judge import evaluate
from dfopt.physics.pipeline import resolve
from dfopt.setting.instance import Setting
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
    _, score = drawn_mapping(world, data, {kernel.name: n for n, kernel in enumerate(graph.kernels)})
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
    links = rings(chips, rate=1e3) if chips > 1 else ()
    memories = {"dram": None, **memory} if memory else {}
    return small_system(*links, tiles=2, peak=1e9, sram=1e6, efficiency=ROWS, **memories)


@pytest.mark.parametrize(("word", "seconds"), [(1, 65 / 100 / 0.25), (2, 130 / 100 / 0.5), (3, 195 / 100 / 0.5)])
def test_the_bytes_of_a_partition_decide(word: int, seconds: float) -> None:
    """It moves 20 elements of its weight, 20 of its input and 25 of its output; 130 bytes reach the row of 130."""
    graph = GEMM.model_copy(update={"word_bytes": word})
    one = KernelMapping(name="a", sharding="none", stage=0, partition=0, tiles=1)
    mapping = Mapping(graph="g", system="s", plan=Plan(), kernels=(one,), tile_count=5)
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


def test_weights_lie_in_the_fastest_memory() -> None:
    memories = (Memory(name="HBM", bandwidth=100.0, capacity=1e3), Memory(name="DDR", bandwidth=10.0))
    system = _machine(memories=memories)
    with pytest.raises(PlanError, match="place it there"):
        optimizer.solve(GEMM, system, assumptions=BY_SIZE)
    found = optimizer.solve(GEMM, system, assumptions=BY_SIZE, place={"weights": "HBM"})
    assert found.score.partitions[0].memory_s == 65 / 100 / 0.25


# -- SRAM traffic, and never worse with more bandwidth -----------------------------------------


def with_bandwidth(system: System, bandwidth: float | None) -> System:
    sram = Sram(capacity=system.chip.sram.capacity, bandwidth=bandwidth)
    return system.model_copy(update={"chip": system.chip.model_copy(update={"sram": sram})})


@pytest.mark.parametrize("system", ["sn10-8-ring", "h100-8"])
def test_a_zoo_machine_waits_for_its_sram(system: str) -> None:
    """Fused or kernel by kernel; tables, plots and reports have one more column."""
    graph, free = df.load_graph("gpt2-small"), df.load_system(system)
    plain = df.optimize(graph, free, tp=8)
    result = df.optimize(graph, with_bandwidth(free, 1e11), tp=8, sensitivity=True)
    assert result.step_time > plain.step_time and result.score.bound_by == "sram"
    assert plain.score.sram_share is None and result.score.sram_share is not None
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
