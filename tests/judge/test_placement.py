"""What lies in which memory of a chip: the judge's prices and books, by hand."""

from __future__ import annotations

import pytest
from judge_cases import place

import dfopt as df
from dfopt.documents.experts import Experts
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.kernel import SequenceState
from dfopt.documents.placement import SERVED, Placement, items_of
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import Chip, Dram, Memory, Sram, System
from dfopt.errors import PlanError

FAST, SLOW = 1e9, 1e8


def _graph() -> Graph:
    cache = SequenceState(name="kv", sequences=1, bytes_per_token=1000, tokens=3, reads=2, writes=1)
    kernels = (
        Kernel(name="look", op="elementwise", m=8, n=10, dram_bytes=700.0, resident_bytes=5000.0),
        Kernel(name="a", op="gemm", m=8, k=8, n=10),
        Kernel(name="attend", op="elementwise", m=8, n=10, states=(cache,)),
        Kernel(name="b", op="gemm", m=8, k=8, n=10, experts=Experts(count=4, chosen=1, touched=2.0), module="experts"),
    )
    tensors = tuple(Tensor(src=one, dst=two) for one, two in (("look", "a"), ("a", "attend"), ("attend", "b")))
    return Graph(name="g", kernels=kernels, tensors=tensors)


def _system(*capacities: float | None) -> System:
    memories = tuple(
        Memory(name=name, bandwidth=rate, capacity=size)
        for name, rate, size in zip(("HBM", "DDR"), (FAST, SLOW), capacities, strict=False)
    )
    chip = Chip(name="c", tiles=8, peak=1e15, sram=Sram(capacity=1e9), memories=memories)
    return System(name="s", chip=chip)


def _judged(system: System, **placed: str) -> Score:
    graph = _graph()
    plan = Plan(placement=Placement(**placed) if placed else None)
    return df.evaluate(place(graph, {one.name: 0 for one in graph.kernels}, plan), graph, system)


MOVED: dict[str, float] = {"weights": 8 * 8 * 2, "experts": 2 * 8 * 8 * 2, "caches": 3000, "tables": 700}
HELD = {"weights": 8 * 8 * 2, "experts": 4 * 8 * 8 * 2, "caches": 3000, "tables": 5000}


@pytest.mark.parametrize("item", SERVED)
def test_an_item_passes_through_its_memory_and_lies_there(item: str) -> None:
    system = _system(1e9, 1e9)
    usual, other = _judged(system), _judged(system, **{item: "DDR"})
    assert usual.partitions[0].through == {"HBM": usual.partitions[0].dram_bytes, "DDR": 0.0}
    assert other.partitions[0].dram_bytes == usual.partitions[0].dram_bytes
    assert other.partitions[0].through is not None
    assert other.partitions[0].through["DDR"] == MOVED[item]
    more = MOVED[item] * (1 / SLOW - 1 / FAST)
    assert other.partitions[0].memory_s == pytest.approx(usual.partitions[0].memory_s + more, rel=1e-12)
    assert sum(other.stages[0].states["DDR"].values()) == HELD[item]
    assert other.stages[0].dram_bytes == usual.stages[0].dram_bytes
    assert items_of(_graph()) == SERVED


def test_all_in_the_fastest_memory_is_a_chip_with_that_alone() -> None:
    chip = _system(None, None).chip
    alone = _system(None, None).model_copy(
        update={"chip": chip.model_copy(update={"memories": None, "dram": Dram(bandwidth=FAST)})}
    )
    one, two = _judged(alone), _judged(_system(None, None))
    assert one.step_time_s == two.step_time_s
    assert one.partitions[0].memory_s == two.partitions[0].memory_s
    assert one.partitions[0].through is None
    assert one.stages[0].states == {"dram": two.stages[0].states["HBM"]}


def test_each_memory_has_its_own_limit() -> None:
    small = _judged(_system(4000.0, 4000.0), tables="DDR")
    assert list(small.violations) == ["stage 0 needs 5.0 kB of DDR per chip, the chip has 4.0 kB"]
    assert not _judged(_system(4000.0, 5000.0), tables="DDR").violations
    assert "of HBM" in _judged(_system(4000.0, 5000.0)).violations[0]


@pytest.mark.parametrize(
    ("placed", "said"), [({"experts": "DRR"}, "no memory 'DRR'"), ({"caches": "dram"}, "no memory 'dram'")]
)
def test_a_memory_that_the_chip_does_not_have_is_an_error(placed: dict[str, str], said: str) -> None:
    with pytest.raises(PlanError, match=said) as caught:
        _judged(_system(None, None), **placed)
    assert "$.plan.placement." in str(caught.value)


def test_a_graph_that_trains_keeps_its_tables_in_the_fastest_memory() -> None:
    graph, chip = df.load_graph("gpt3-1t"), _system(None, None).chip
    assert graph.trains
    found = Placement(tables="DDR", weights="DDR", optimizer="DDR").issues(graph, chip)
    assert [issue.where for issue in found] == ["$.plan.placement.tables"]
    assert not list(Placement(tables="HBM").issues(graph, chip))
    drawn_once = graph.model_copy(update={"sections": None, "repeat": 1})
    found = Placement(activations="DDR", optimizer="DDR").issues(drawn_once, chip)
    assert [issue.where for issue in found] == ["$.plan.placement.activations"]


def test_a_graph_that_does_not_train_has_no_optimizer() -> None:
    graph = df.load_graph("llama-3.1-8b", phase="decode", context=64, batch=4, microbatch=4)
    found = Placement(optimizer="DDR", activations="DDR").issues(graph, _system(None, None).chip)
    assert [issue.where for issue in found] == ["$.plan.placement.activations", "$.plan.placement.optimizer"]
