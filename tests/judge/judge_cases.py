"""Small machines, short spellings, and the GPT layer of the paper, for the tests of the judge."""

from __future__ import annotations

from typing import Any

from dfopt.documents.assumptions import Assumptions, profile
from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import KernelMapping, Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip, Dram, NetworkDim, Sram, System
from dfopt.documents.tokens import Tokens

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


def gpt3_layer() -> Graph:
    """One forward layer of GPT-3 175B as DFModel draws it: 18 kernels, 21 tensors."""
    h, heads, d, s, f = 12288, 96, 128, 2048, 4 * 12288
    kernels = (
        simd("Add_Prev_Layer", h, s),
        simd("LayerNorm_1", h, s, normalizes=True),
        gemm("Q", d, h, s, outer=heads),
        gemm("K", d, h, s, outer=heads),
        gemm("V", d, h, s, outer=heads),
        Kernel(name="MHA_GEMM_1", op="matmul", outer=heads, m=s, k=d, n=s),
        simd("SOFTMAX", s, s, outer=heads, normalizes=True),
        simd("DropOut_1", s, s, outer=heads),
        Kernel(name="MHA_GEMM_2", op="matmul", outer=heads, m=d, k=s, n=s),
        gemm("PROJ_GEMM", h, h, s),
        simd("DropOut_2", h, s),
        simd("Add_1", h, s),
        simd("LayerNorm_2", h, s, normalizes=True),
        gemm("FFN0", f, h, s),
        simd("GeLU", f, s),
        gemm("FFN1", h, f, s),
        simd("DropOut_3", h, s),
        simd("Add_2", h, s),
    )
    ends = [
        (1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 6), (6, 7), (7, 8), (5, 9), (8, 9), (9, 10), (10, 11),
        (11, 12), (1, 12), (12, 13), (13, 14), (14, 15), (15, 16), (16, 17), (17, 18), (12, 18),
    ]  # fmt: skip
    return Graph(
        name="gpt3-175b-layer",
        repeat=96,
        batch=2304,
        tokens=Tokens(processed=s),
        kernels=kernels,
        tensors=tuple(Tensor(src=kernels[a - 1].name, dst=kernels[b - 1].name) for a, b in ends),
        carried=(Tensor(src="Add_2", dst="Add_Prev_Layer"),),
    )


GPT_SHARDING = ["none"] * 2 + ["outer"] * 7 + ["k"] + ["none"] * 3 + ["m"] * 2 + ["k"] + ["none"] * 2


def sn10(*dims: NetworkDim, execution: Any = "dataflow") -> System:
    """SambaNova SN10 as DFModel's Table VI sets it up."""
    return System(
        name="sn10",
        chip=Chip(
            name="SN10",
            execution=execution,
            tiles=640,
            lanes=32,
            stages=6,
            frequency=1.25e9,
            sram=Sram(capacity=335544320.0),
            dram=Dram(bandwidth=100e9, capacity=1099511600000.0),
        ),
        network=dims,
    )


DFMODEL = profile("dfmodel")
