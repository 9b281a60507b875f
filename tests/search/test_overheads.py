"""What starting a partition takes, and a step: by hand."""

from __future__ import annotations

import pytest

import dfopt.search as optimizer
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System

CHIP = Chip(name="c", tiles=4, peak=1e3, sram=Sram(capacity=1e6), dram=Dram(bandwidth=1e3))
PAIR = Graph(
    name="g",
    batch=3,
    kernels=tuple(Kernel(name=name, op="elementwise", m=10, n=10) for name in "ab"),
    tensors=(Tensor(src="a", dst="b"),),
)


@pytest.mark.parametrize(
    ("execution", "overlap", "partitions"),
    [("kernel_by_kernel", "none", 2), ("kernel_by_kernel", "compute_memory", 2), ("dataflow", "none", 1)],
)
def test_every_partition_of_every_microbatch_starts_once(execution: str, overlap: str, partitions: int) -> None:
    plain = Assumptions(execution=execution, overlap=overlap)
    both = plain.with_(kernel_overhead=0.25, step_overhead=7.0)
    system = System(name="m", chip=CHIP, network=())
    without, found = (optimizer.solve(PAIR, system, assumptions=one) for one in (plain, both))
    assert found.status == without.status == "optimal"
    more = 3 * partitions * 0.25 + 7.0
    assert found.step_time_s - without.step_time_s == pytest.approx(more, rel=1e-9)
    assert found.score.breakdown.overhead_s == pytest.approx(more, rel=1e-9)
    assert found.score.breakdown.total == pytest.approx(found.step_time_s, rel=1e-9)


def test_what_hides_communication_hides_the_start() -> None:
    chosen = Assumptions(execution="dataflow", overlap="perfect", kernel_overhead=1e-3)
    found = optimizer.solve(PAIR, System(name="m", chip=CHIP, network=()), assumptions=chosen)
    assert found.score.partitions[0].network_s == 1e-3 < found.score.partitions[0].time_s
    assert found.score.breakdown.overhead_s == 0.0


def test_a_sharding_of_kernels_that_run_alone_counts_their_starts() -> None:
    """Of two kernels of 0.2 s on one chip each, sent in 0.3 s: 0.4 s together and 0.5 s apart, but for their starts."""
    link = NetworkDim(name="x", topology="ring", size=2, link_bandwidth=200.0 / 0.3)
    system = System(name="m", chip=CHIP.model_copy(update={"dram": Dram(bandwidth=2e3)}), network=(link,))
    plain = Assumptions(execution="kernel_by_kernel", overlap="none", sharding_objective="seconds")
    for overhead, stages in ((None, 1), (0.2, 2)):
        found = optimizer.solve(PAIR, system, assumptions=plain.with_(kernel_overhead=overhead), pp=2)
        assert len({one.stage for one in found.mapping.kernels}) == stages, found.score
