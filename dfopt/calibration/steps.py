"""A measured step as the model has it: graph, machine, a mapping with the degrees of the run, and its seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dfopt.calibration.rows import Chip, TrainingRow
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import part_name
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import DfoptError
from dfopt.library import load_system
from dfopt.machines.fields import with_fields
from dfopt.search import optimize
from dfopt.workloads import expand

__all__ = ["MACHINES", "MICROBATCHES", "NODE", "Step", "graph_of", "machine_of", "step_of"]

NODE: Final = 8  # chips of a node, of all machines here
MACHINES: Final[dict[Chip, tuple[str, dict[str, Any]]]] = {
    "a100": ("a100-512", {}),
    # NVIDIA A100 40 GB SXM datasheet: 1555 GB/s of HBM2
    "a100-40gb": ("a100-512", {"chip.dram.bandwidth": "1555 GB/s", "chip.dram.capacity": "40 GiB"}),
    "h100": ("h100-4096", {}),
    # torchtitan's benchmarks: H100 of 500 W with 96 GB of HBM2e at 2.4 TB/s; its peak under that power is not stated
    "h100-hbm2e": ("h100-4096", {"chip.dram.bandwidth": "2400 GB/s", "chip.dram.capacity": "96 GB"}),
}
"""System of the zoo of each chip, and what is different in it."""
MICROBATCHES: Final = (1, 2, 4, 8)
INTERLEAVES: Final = (1, 2, 4)
"""What is tried where a source does not say it."""
SECONDS: Final = 10.0  # for a solve: the best mapping found is taken
_MODES: Final = ("attention", "full")


@dataclass(frozen=True)
class Step:
    """What the model says of a row; ``assumed`` is what the source does not say, as the best mapping has it."""

    row: TrainingRow
    graph: Graph
    system: System
    assumptions: Assumptions
    result: Result
    assumed: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.result.step_time_s


def machine_of(row: TrainingRow, base: System | None = None, memory_limit: bool = True) -> System:
    """The machine that a row ran on: so many nodes, and one node, or a part of it, where no more were used.

    Raises
    ------
    DocumentError
        Where a base has other dims than nodes and what connects them.

    Examples
    --------
    >>> from dfopt.calibration.rows import Model
    >>> small = Model(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
    >>> row = TrainingRow("a", "b", small, "a100", 64, 8, 8, 1, batch=8, seconds=1.0)
    >>> machine_of(row).chips
    64
    """
    name, changes = MACHINES[row.chip]
    system = with_fields(load_system(name), changes) if base is None else base
    data = system.to_data()
    inside, between = data["network"]
    sizes = min(NODE, row.chips), row.chips // NODE
    data["network"] = [{**inside, "size": sizes[0]}]
    if row.chips > NODE:
        data["network"].append({**between, "size": sizes[1]})
    if not memory_limit:
        data["chip"]["dram"].pop("capacity", None)
    return System.from_data(data, system.name)


def graph_of(row: TrainingRow, microbatch: int, recompute: str) -> Graph:
    """The training step of a row: embedding, equal layers, logits."""
    model = row.model
    like_llama = model.gated_mlp
    parameters = {
        "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim,
        "ffn": model.ffn, "layers": model.layers, "vocab": model.vocab, "seq": model.seq, "ends": True,
        "gated_mlp": like_llama, "rotary": like_llama, "norm": "rmsnorm" if like_llama else "layernorm",
        "learned_positions": 0 if like_llama else model.seq, "tie_embeddings": model.tie_embeddings,
        "word_bytes": row.word_bytes, "microbatch": microbatch, "batch": row.batch, "mode": "training",
        "recompute": recompute, "causal": row.causal, "scores_dropout": row.scores_dropout,
    }  # fmt: skip
    return expand({"schema": Graph.SCHEMA, "name": "decoder", "workload": "decoder", "parameters": parameters}, "row")


def dims_of(row: TrainingRow, system: System) -> dict[str, tuple[str, ...]]:
    """Network dims of every axis, chips numbered as Megatron-LM and its kin do: TP innermost, then DP, then PP.

    Source: ``initialize_model_parallel`` of Megatron-LM, whose order is tp-cp-ep-dp-pp. Nothing where the degrees do
    not tile the nodes: then the search lays them out.

    Examples
    --------
    >>> from dfopt.calibration.rows import Model
    >>> small = Model(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
    >>> row = TrainingRow("a", "b", small, "a100", 512, 4, 16, 8, batch=8, seconds=1.0)
    >>> dims_of(row, machine_of(row))
    {'tp_dims': ('node[4]',), 'dp_dims': ('node[2@4]', 'cluster[4]'), 'pp_dims': ('cluster[16@4]',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    free = [(dim.name, dim.size, 1) for dim in system.network]  # name, chips that are left, stride of the next part
    for axis, degree in (("tp", row.tensor), ("dp", row.copies), ("pp", row.pipeline)):
        names: list[str] = []
        for at, (name, left, stride) in enumerate(free):
            size = math.gcd(degree, left)
            whole = left == size and stride == 1
            if size > 1:
                names.append(name if whole else part_name(name, size, stride))
                free[at] = name, left // size, stride * size
                degree //= size
            if degree > 1 and left // size > 1:
                return {}
        found[f"{axis}_dims"] = tuple(names)
    return found


def _microbatches(row: TrainingRow) -> Sequence[int]:
    if row.microbatch is not None:
        return (row.microbatch,)
    return [size for size in MICROBATCHES if row.batch % (row.copies * size) == 0]


def _interleaves(row: TrainingRow, graph: Graph) -> Sequence[int]:
    """Chunks of a stage; more than one need microbatches that are a multiple of the stages."""
    if row.interleave is not None:
        return (row.interleave,)
    layers, microbatches = row.model.layers // row.pipeline, row.batch // (row.copies * graph.microbatch)
    fits = row.pipeline > 1 and row.model.layers % row.pipeline == 0 and microbatches % row.pipeline == 0
    return [chunks for chunks in INTERLEAVES if chunks == 1 or (fits and layers % chunks == 0)]


def _graphs(row: TrainingRow) -> Iterator[Graph]:
    """A graph for each way that a source leaves open."""
    for recompute in (row.recompute,) if row.recompute is not None else _MODES:
        for size in _microbatches(row):
            yield graph_of(row, size, recompute)


def step_of(row: TrainingRow, assumptions: Assumptions, system: System) -> Step:
    """Map a row with the degrees of its run, and judge it; what the source leaves open is chosen for least time.

    Raises
    ------
    DfoptError
        Of the first way, where none can be mapped.
    """
    sequence = row.sequence_parallelism or assumptions.sequence_parallelism
    chosen = assumptions.with_(sharding_objective="seconds", sequence_parallelism=sequence)
    if row.library_attention:
        chosen = chosen.with_(execution="library")
    if row.overlaps_gradients:
        chosen = chosen.with_(gradient_overlap="backward")
    asked: dict[str, Any] = {
        "tp": row.tensor,
        "pp": row.pipeline,
        "dp": row.copies,
        "time_limit": SECONDS,
        **dims_of(row, system),
    }
    if row.zero:
        asked["zero"] = row.zero
    found: list[Step] = []
    refused: list[DfoptError] = []
    for graph in _graphs(row):
        for interleave in _interleaves(row, graph):
            try:
                result = optimize(
                    graph,
                    system,
                    assumptions=chosen,
                    interleave=interleave,
                    pin_sharding=_by_tokens(row, graph),
                    **asked,
                )
            except DfoptError as error:
                refused.append(error)
                continue
            found.append(Step(row, graph, system, chosen, result, _assumed(row, graph, result)))
    if not found:
        raise refused[0]
    return min(found, key=lambda step: step.seconds)


def _by_tokens(row: TrainingRow, graph: Graph) -> dict[str, Sharding]:
    """Where a run splits tokens of the residual stream (Korthikanti et al.), all kernels on it do."""
    if row.sequence_parallelism != "allow" or row.tensor == 1:
        return {}
    return {k.name: "n" for k in graph.kernels if k.op == "elementwise" and k.role in ("residual", "norm", "dropout")}


def _assumed(row: TrainingRow, graph: Graph, result: Result) -> tuple[str, ...]:
    plan = result.mapping.plan
    open_ = {
        "microbatch": (row.microbatch, graph.microbatch),
        "interleave": (row.interleave if row.pipeline > 1 else 1, plan.interleave),
        "recompute": (row.recompute, (graph.variant or "recompute: none").removeprefix("recompute: ")),
    }
    found = [f"{name} {value}" for name, (stated, value) in open_.items() if stated is None]
    if row.sequence_parallelism is None and row.tensor > 1:
        found.append("sequence_parallelism")
    return tuple(found)


def alike(row: TrainingRow) -> TrainingRow:
    """The row without what changes nothing in its step: rows with equal answers are equal."""
    return replace(row, name="", source="", seconds=1.0, unmodelled=())
