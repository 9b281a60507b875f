"""Small machines, short spellings, and what the judge says of mappings on them."""

from __future__ import annotations

from typing import Any

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.score import Score
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.judge import evaluate

PLAIN = Assumptions(
    execution="chip",
    sequence_parallelism="none",
    collective_model="dfmodel",  # ring all-gather (n-1)/(n b) V: easy to do by hand
    overlap="perfect",
    compute_utilization=0.5,
    weights_from_dram=True,
)


def machine(
    *dims: NetworkDim,
    tiles: int = 8,
    sram: float = 1e9,
    sram_bandwidth: float | None = None,
    dram_bandwidth: float = 100.0,
    dram_capacity: float | None = None,
    **chip: Any,
) -> System:
    """A chip of 1000 FLOP/s and 100 B/s of DRAM: times come out as round seconds."""
    if "lanes" not in chip:
        chip.setdefault("peak", 1000.0)
    return System(
        name="toy",
        chip=Chip(
            name="toy",
            tiles=tiles,
            sram=Sram(capacity=sram, bandwidth=sram_bandwidth),
            dram=Dram(bandwidth=dram_bandwidth, capacity=dram_capacity),
            **chip,
        ),
        network=dims,
    )


def ring(name: str, size: int, bandwidth: float = 10.0) -> NetworkDim:
    """A ring without latency."""
    return NetworkDim(name=name, topology="ring", size=size, link_bandwidth=bandwidth)


def gemm(name: str, m: int, k: int, n: int, **more: Any) -> Kernel:
    """A weighted product."""
    return Kernel(name=name, op="gemm", m=m, k=k, n=n, **more)


def simd(name: str, m: int, n: int, **more: Any) -> Kernel:
    """An elementwise kernel."""
    return Kernel(name=name, op="elementwise", m=m, n=n, **more)


def arrows(*pairs: str) -> tuple[Tensor, ...]:
    """Tensors between kernels of one letter: "ab" is one from a to b."""
    return tuple(Tensor(src=src, dst=dst) for src, dst in pairs)


def closed(**fields: Any) -> Graph:
    """A graph that reads no input and writes no output, to look at other rules one at a time."""
    return Graph(**{"inputs": (), "outputs": (), **fields})


def place(
    graph: Graph, places: dict[str, Any], plan: Plan | None = None, *, tile_count: int = 1, tiles: int = 1
) -> Mapping:
    """A mapping from ``{kernel: partition}`` or ``{kernel: (sharding, partition[, stage])}``."""
    kernels = []
    for name, value in places.items():
        sharding, partition, stage = "none", value, 0
        if isinstance(value, tuple):
            sharding, partition, stage = (*value, 0)[:3]
        kernels.append(KernelMapping(name=name, sharding=sharding, partition=partition, stage=stage, tiles=tiles))
    return Mapping(graph=graph.name, system="toy", plan=plan or Plan(), kernels=tuple(kernels), tile_count=tile_count)


def judged(
    graph: Graph,
    places: dict[str, Any],
    plan: Plan | None = None,
    system: System | None = None,
    *,
    tile_count: int = 1,
    tiles: int = 1,
    **changes: Any,
) -> Score:
    """What the judge says of the mapping of `place`, under plain assumptions but for some changes."""
    mapping = place(graph, places, plan, tile_count=tile_count, tiles=tiles)
    return evaluate(mapping, graph, system or machine(), PLAIN.with_(**changes))
