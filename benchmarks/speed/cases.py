"""The registry of sizes that the speed benchmarks run on: one :class:`Case` each, all built here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from dfopt.documents.graph import Graph, Kernel, Tensor
from dfopt.documents.mapping import Sharding
from dfopt.documents.system import System
from dfopt.machines.compose import load_system
from dfopt.setting.instance import Instance
from dfopt.solving.menu import Menu
from dfopt.terms.sharded_graph import ShardedGraph
from dfopt.workloads import load_graph
from dfopt.workloads.unroll import unroll


@dataclass(frozen=True)
class Case:
    """A graph on a system, with what the solve is asked for."""

    name: str
    graph: Callable[[], Graph]
    system: Callable[[], System]
    assumptions: dict[str, Any] = field(default_factory=dict)
    p_max: int | None = None
    tp: int = 8
    time_limit: float = 30.0


def machine(sram: str = "320 MiB") -> System:
    """Eight SN10 on 400 GB/s links, so that no case is decided by the network alone; SRAM as given."""
    system = load_system("sn10-8-ring").to_data()
    system["chip"]["sram"]["capacity"] = sram
    system["network"][0]["link_bandwidth"] = "400 GB/s"
    return System.model_validate(system)


def _zoo() -> System:
    """Eight SN10 on the 25 GB/s links of the zoo."""
    return load_system("sn10-8-ring")


def gpt(mode: str = "forward", layers: int = 1) -> Graph:
    """GPT-3 175B: one layer that stands for all, or so many drawn."""
    graph = load_graph("gpt3-175b", mode=mode)
    return graph if layers == 1 else unroll(graph, layers)


def moe(experts: int, top: int = 2, hidden: int = 4096, ffn: int = 14336, tokens: int = 2048) -> Graph:
    """A transformer layer whose MLP is ``experts`` drawn experts, ``top`` of them per token (sizes of Mixtral 8x7B).

    Every expert gathers its tokens from the whole normalised input, and the combination adds all outputs.
    """
    layer = load_graph("gpt3-175b", hidden=hidden, heads=32, head_dim=128, ffn=ffn, seq=tokens, layers=32, batch=256)
    keep = [k for k in layer.kernels if k.name not in ("FFN0", "GeLU", "FFN1", "DropOut_3")]
    names = {k.name for k in keep}
    kernels, tensors = list(keep), [t for t in layer.tensors if t.src in names and t.dst in names]
    share = max(tokens * top // experts, 1)

    def one(name: str, op: str, m: int, k: int = 1) -> Kernel:
        return Kernel(name=name, op=op, m=m, k=k, n=share)

    last = kernels.pop()  # Add_2 comes after the experts
    kernels.append(Kernel(name="Router", op="gemm", m=experts, k=hidden, n=tokens))
    tensors.append(Tensor(src="LayerNorm_2", dst="Router"))
    for e in range(experts):
        kernels += [
            one(f"Gather_{e}", "elementwise", hidden),
            one(f"FFN0_{e}", "gemm", ffn, hidden),
            one(f"GeLU_{e}", "elementwise", ffn),
            one(f"FFN1_{e}", "gemm", hidden, ffn),
        ]
        chain = ["LayerNorm_2", f"Gather_{e}", f"FFN0_{e}", f"GeLU_{e}", f"FFN1_{e}", "Combine"]
        tensors += [Tensor(src=a, dst=b) for a, b in pairwise(chain)]
        tensors.append(Tensor(src="Router", dst=f"Gather_{e}"))
    kernels += [Kernel(name="Combine", op="elementwise", m=hidden, n=tokens, flop_per_element=top), last]
    tensors.append(Tensor(src="Combine", dst="Add_2"))
    return Graph(**_fields(layer, f"moe-{experts}", kernels, tensors))


def heads(count: int) -> Graph:
    """A GPT-3 layer whose attention heads are drawn apart, up to 96."""
    layer = load_graph("gpt3-175b")
    many = {"Q", "K", "V", "MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2"}
    kernels: list[Kernel] = []
    for kernel in layer.kernels:
        if kernel.name not in many:
            kernels.append(kernel)
            continue
        share = {"outer": kernel.outer // count}
        kernels += [kernel.model_copy(update={"name": f"{kernel.name}.{h}", **share}) for h in range(count)]
    tensors: list[Tensor] = []
    for t in layer.tensors:
        if t.src not in many and t.dst not in many:
            tensors.append(t)
            continue
        for h in range(count):
            src = f"{t.src}.{h}" if t.src in many else t.src
            dst = f"{t.dst}.{h}" if t.dst in many else t.dst
            tensors.append(t.model_copy(update={"src": src, "dst": dst}))
    place = next(i for i, k in enumerate(kernels) if k.name == "PROJ_GEMM")
    kernels.insert(place, kernels[place].model_copy(update={"name": "Concat", "op": "elementwise", "k": 1}))
    tensors = [t.model_copy(update={"dst": "Concat"}) if t.dst == "PROJ_GEMM" else t for t in tensors]
    tensors.append(Tensor(src="Concat", dst="PROJ_GEMM"))
    return Graph(**_fields(layer, f"gpt-{count}-heads", kernels, tensors))


def dlrm_tables(tables: int, distinct: bool = False) -> Graph:
    """A click-through model with the 26 sparse features of Criteo: lookups, interaction, MLPs (MLPerf DLRM sizes).

    Bottom MLP 13-512-256-128, embedding dimension 128, top MLP 1024-1024-512-256-1, batch 2048 per chip.
    With ``distinct`` every table is read a different number of times per sample (multi-hot).
    """
    batch, dim = 2048, 128
    kernels, tensors = [], []
    widths = [13, 512, 256, 128]
    for i, (k, m) in enumerate(pairwise(widths)):
        kernels.append(Kernel(name=f"Bottom_{i}", op="gemm", m=m, k=k, n=batch))
        if i:
            tensors.append(Tensor(src=f"Bottom_{i - 1}", dst=f"Bottom_{i}"))
    for t in range(tables):
        read = float(batch * dim * 2 * (t % 13 + 1 if distinct else 1))
        kernels.append(Kernel(name=f"Table_{t}", op="elementwise", m=dim, n=batch, dram_bytes_per_chip=read))
        tensors.append(Tensor(src=f"Table_{t}", dst="Interaction"))
    pairs = (tables + 1) * tables // 2 + dim
    kernels.append(Kernel(name="Interaction", op="elementwise", m=pairs, n=batch, flop_per_element=2 * dim))
    tensors.append(Tensor(src="Bottom_2", dst="Interaction"))
    widths = [pairs, 1024, 1024, 512, 256, 1]
    before = "Interaction"
    for i, (k, m) in enumerate(pairwise(widths)):
        kernels.append(Kernel(name=f"Top_{i}", op="gemm", m=m, k=k, n=batch))
        tensors.append(Tensor(src=before, dst=f"Top_{i}"))
        before = f"Top_{i}"
    return Graph(name=f"dlrm-{tables}-tables", batch=batch * 64, microbatch=batch, kernels=kernels, tensors=tensors)


def dlrm_training(depth: int = 20, width: int = 3375, batch: int = 512) -> Graph:
    """DLRM-A's MLPs in training: forward, backward and update of every layer (60 kernels, 3.1 million down-sets).

    Sizes of the public DFModel case DLRM/Compare_w_existing/A; there too a backward kernel needs only the next one's.
    """
    fwd = [Kernel(name=f"MLP_{i}", op="gemm", m=width, k=width, n=batch) for i in range(depth)]
    bwd = [Kernel(name=f"MLP_{i}_bwd", op="gemm", m=width, k=width, n=batch, pass_="backward") for i in range(depth)]
    upd = [
        Kernel(name=f"MLP_{i}_update", op="weight_update", m=width, k=batch, n=width, pass_="update")
        for i in range(depth)
    ]
    tensors = [Tensor(src=f"MLP_{i}", dst=f"MLP_{i + 1}") for i in range(depth - 1)]
    tensors += [Tensor(src=f"MLP_{i + 1}_bwd", dst=f"MLP_{i}_bwd") for i in range(depth - 1)]
    for i in range(depth):
        if i:
            tensors.append(Tensor(src=f"MLP_{i - 1}", dst=f"MLP_{i}_update", operand=2))
        if i < depth - 1:
            tensors.append(Tensor(src=f"MLP_{i + 1}_bwd", dst=f"MLP_{i}_update", operand=1))
    kernels = [*fwd, *reversed(bwd), *reversed(upd)]
    return Graph(name="dlrm-a", batch=batch * 128, microbatch=batch, kernels=kernels, tensors=tensors)


def series_parallel(kernels: int, seed: int) -> Graph:
    """A random series-parallel DAG of GEMMs and elementwise kernels of mixed sizes."""
    rng = np.random.default_rng(seed)
    found: list[Kernel] = []
    tensors: list[Tensor] = []
    rows = 2048

    def kernel(joins: bool) -> str:
        name = f"k{len(found)}"
        if joins or rng.random() < 0.4:
            found.append(Kernel(name=name, op="elementwise", m=4096, n=rows, flop_per_element=int(rng.integers(1, 9))))
        else:
            found.append(Kernel(name=name, op="gemm", m=4096, k=4096, n=rows))
        return name

    def grow(size: int, source: str) -> str:
        """So many kernels behind ``source``; returns the last."""
        if size == 1:
            name = kernel(False)
            tensors.append(Tensor(src=source, dst=name))
            return name
        if size >= 4 and rng.random() < 0.45:
            branches = int(rng.integers(2, min(4, size - 1) + 1))
            cuts = np.sort(rng.choice(np.arange(1, size - 1), branches - 1, replace=False))
            ends = [grow(int(part), source) for part in np.diff([0, *cuts, size - 1])]
            name = kernel(True)
            tensors.extend(Tensor(src=end, dst=name) for end in ends)
            return name
        first = int(rng.integers(1, size))
        return grow(size - first, grow(first, source))

    source = kernel(True)
    if kernels > 1:
        grow(kernels - 1, source)
    return Graph(name=f"sp-{kernels}-{seed}", kernels=found, tensors=tensors, batch=64)


def _fields(layer: Graph, name: str, kernels: list[Kernel], tensors: list[Tensor]) -> dict[str, Any]:
    return {
        "name": name,
        "repeat": layer.repeat,
        "word_bytes": layer.word_bytes,
        "microbatch": layer.microbatch,
        "batch": layer.batch,
        "tokens": layer.tokens,
        "kernels": kernels,
        "tensors": tensors,
        "carried": layer.carried,
    }


# Partition time as a sum of compute, memory and network time: then every cut tensor costs.
_SUM = {"overlap": "none"}
LAYERS = (2, 6, 12, 24, 48, 96)
SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000)
CASES = [
    Case("gpt-forward", gpt, lambda: machine("100 MB")),
    Case("gpt-training", lambda: gpt("training"), machine),
    Case("gpt-training-cycle", lambda: gpt("training"), machine, {"compute_model": "cycle"}, p_max=41),
    *(Case(f"gpt-training-{41 * n}", lambda n=n: gpt("training", n), machine) for n in (2, 4)),
    *(Case(f"gpt-training-{41 * n}-zoo", lambda n=n: gpt("training", n), _zoo) for n in (2, 4)),
    *(Case(f"gpt-{n}-layers", lambda n=n: gpt(layers=n), lambda: machine("100 MB")) for n in LAYERS),
    Case("moe-8", lambda: moe(8), lambda: machine("100 MB")),
    Case("moe-64", lambda: moe(64), lambda: machine("100 MB")),
    Case("moe-64-sum", lambda: moe(64), lambda: machine("150 MB"), _SUM),
    Case("heads-96", lambda: heads(96), machine),
    Case("dlrm-26", lambda: dlrm_tables(26), lambda: machine("3 MB"), tp=1),
    Case("dlrm-26-distinct", lambda: dlrm_tables(26, True), lambda: machine("3 MB"), tp=1),
    Case("dlrm-a", dlrm_training, machine, tp=1),
    Case("dlrm-a-sum", dlrm_training, lambda: machine("60 MB"), _SUM),
    *(Case(f"sp-{n}", lambda n=n: series_parallel(n, 7), lambda: machine("60 MB"), _SUM) for n in SIZES),
]
BY_NAME = {case.name: case for case in CASES}


def shard(instance: Instance, sharding: Mapping[str, Sharding], tiles: int | None = None) -> ShardedGraph:
    """A layer on one chip with a scheme for each kernel; without tiles in the most that are worth trying."""
    menu = Menu(instance, {})
    most, domain = next(menu.tiled(sharding))
    return menu.layer.least(domain, most if tiles is None else tiles)
