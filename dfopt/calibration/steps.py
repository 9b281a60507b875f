"""A measured step as the model has it: graph, machine, a mapping with the degrees of the run, and its seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from dfopt.calibration.machines import machine_of
from dfopt.calibration.row import TrainingRow
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dim_names import part_name
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Sharding
from dfopt.documents.result import Result
from dfopt.documents.system import System
from dfopt.errors import DfoptError, Infeasible, PlanError
from dfopt.search import solve
from dfopt.workloads import expand, load_graph

MICROBATCHES: Final = (1, 2, 4, 8)
INTERLEAVES: Final = (1, 2, 4)
"""What is tried where a source does not say it."""
LOSS_BYTES: Final = "44 B"
"""Of a loss in fp32 whose operations are kernels, for every logit: those of PyTorch take as long as 48 bytes on an H100
(h100_torch_moves.csv in benchmarks/reference/data: 4.41 and 4.55 ms for 4096 x 128256 at 0.84 of 3350 GB/s), 4 of which
are counted as those of one kernel."""
SECONDS: Final = 10.0  # for a solve: the best mapping found is taken
_USAGE: Final = 0.15  # of a GPU by its NVLinks: Calculon (Isaev et al., SC23), systems/h100_80g_nvl8.json, at caa4b11
_MODES: Final = {False: ("attention", "full"), True: ("attention", "full+attention")}
"""By whether a library does attention at once."""


@dataclass(frozen=True)
class MeasuredStep:
    """A measured row with the model's prediction; ``assumed`` lists choices that the source leaves open."""

    row: TrainingRow
    graph: Graph
    system: System
    assumptions: Assumptions
    result: Result
    assumed: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Predicted seconds of the step."""
        return self.result.step_time_s


def row_machine(row: TrainingRow, base: System | None = None, memory_limit: bool = True) -> System:
    """System that a row ran on, or a base system with as many chips.

    Parameters
    ----------
    row
        The measured step.
    base, memory_limit
        As for :func:`dfopt.calibration.machines.machine_of`.

    Examples
    --------
    >>> from dfopt.calibration.row import RunModel
    >>> small = RunModel(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
    >>> row_machine(TrainingRow("a", "b", small, "a100", 64, 8, 8, 1, batch=8, seconds=1.0)).chips
    64
    """
    return machine_of(row.chip, row.chips, base, memory_limit, row.between)


def second_axis(row: TrainingRow) -> int:
    """Degree of the second axis (expert or context parallelism) of a row; 1 without it.

    It is the number of expert groups, if it divides the number of replicas. If TP chips have experts of their own too,
    that part is ignored, and TP splits each expert.

    Raises
    ------
    PlanError
        For groups of experts that are no part of the copies.
    """
    if row.expert_groups == 1:
        return row.contexts
    for groups in (row.expert_groups, row.expert_groups // row.tensor):
        if row.contexts == 1 and groups and row.copies % groups == 0:
            return groups
    suffix = f" beside cp {row.contexts}" if row.contexts > 1 else ""
    raise PlanError(f"found {row.expert_groups} groups of experts{suffix} in {row.copies} copies of the batch")


def graph_of(row: TrainingRow, microbatch: int, recompute: str) -> Graph:
    """Training graph of a row: embedding, equal layers, logits.

    Parameters
    ----------
    row
        The measured step.
    microbatch : int
        Sequences of a microbatch.
    recompute : str
        What the backward pass computes again, as in the parameter ``recompute`` of a workload.
    """
    model = row.model
    if model.zoo is not None:
        return _of_zoo(row, model.zoo, microbatch, recompute)
    like_llama = model.gated_mlp
    parameters: dict[str, Any] = {
        "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim,
        "ffn": model.ffn, "layers": model.layers + _more_layers(row), "vocab": model.vocab, "seq": model.seq,
        "ends": True, "gated_mlp": like_llama, "rotary": like_llama, "norm": "rmsnorm" if like_llama else "layernorm",
        "learned_positions": 0 if like_llama else model.seq, "tie_embeddings": model.tie_embeddings,
        "microbatch": microbatch * _sequences(row), "batch": row.batch, "mode": "training", "recompute": recompute,
        "causal": row.causal, "scores_dropout": row.scores_dropout,
    }  # fmt: skip
    if model.experts is not None:
        parameters |= {"experts": model.experts, "chosen": model.chosen, "routing": "balanced"}
    if row.loss_apart:
        parameters["loss_bytes"] = LOSS_BYTES
    if row.dtypes:
        parameters["dtypes"] = dict(row.dtypes)
    if row.main_gradients is not None:
        parameters["main_gradients"] = row.main_gradients
    return expand({"schema": Graph.SCHEMA, "name": "decoder", "workload": "decoder", "parameters": parameters}, "row")


def _of_zoo(row: TrainingRow, name: str, microbatch: int, recompute: str) -> Graph:
    """The training step of a model whose sizes a table does not have, as it is in the zoo."""
    given: dict[str, Any] = {} if row.main_gradients is None else {"main_gradients": row.main_gradients}
    graph = load_graph(
        name, mode="training", ends=True, recompute=recompute, causal=row.causal, routing="balanced",
        isl=row.model.seq, microbatch=microbatch * _sequences(row), batch=row.batch,
        dtypes=dict(row.dtypes) or {"weights": "bf16"}, **given,
    )  # fmt: skip
    hidden = {kernel.m for kernel in graph.kernels if kernel.role == "residual"}
    if (graph.repeat, hidden) != (row.model.layers, {row.model.hidden}):
        has = f"{graph.repeat} layers of {min(hidden)} features"
        raise PlanError(f"found {row.model.layers} layers of {row.model.hidden} features, but {name} has {has}")
    return graph


def _sequences(row: TrainingRow) -> int:
    """Copies whose samples are evaluated together, since they share experts."""
    return second_axis(row) if row.expert_groups > 1 else 1


def _more_layers(row: TrainingRow) -> int:
    """Layers that stages have room for, where the first and the last chunk of all cannot be smaller by what is missing.

    Embedding and logits take the place of some there.
    """
    chunks = row.interleave or 1
    if -(-row.model.layers // row.pipeline) % chunks == 0:
        return 0
    return -row.model.layers % (row.pipeline * chunks)


def dims_of(row: TrainingRow, system: System) -> dict[str, tuple[str, ...]]:
    """Network dims of every axis in Megatron-LM's rank order: TP innermost, then DP, then PP.

    Source: ``initialize_model_parallel`` of Megatron-LM, whose order is tp-cp-ep-dp-pp. Nothing where the degrees do
    not tile the nodes: then the search lays them out.

    Examples
    --------
    >>> from dfopt.calibration.row import RunModel
    >>> small = RunModel(2, 64, 8, 8, 8, 256, 1000, 32, gated_mlp=False, tie_embeddings=True)
    >>> row = TrainingRow("a", "b", small, "a100", 512, 4, 16, 8, batch=8, seconds=1.0)
    >>> dims_of(row, row_machine(row))
    {'tp_dims': ('node[4]',), 'dp_dims': ('node[2@4]', 'cluster[4]'), 'pp_dims': ('cluster[16@4]',)}
    """
    dims: dict[str, tuple[str, ...]] = {}
    free = [(dim.name, dim.size, 1) for dim in system.network]  # name, chips that are left, stride of the next part
    second = second_axis(row)
    degrees = {"tp": row.tensor, "mp": second, "dp": row.copies // _sequences(row), "pp": row.pipeline}
    for axis, degree in degrees.items():
        names: list[str] = []
        for at, (name, left, stride) in enumerate(free):
            size = math.gcd(degree, left)
            undivided = left == size and stride == 1
            if size > 1:
                names.append(name if undivided else part_name(name, size, stride))
                free[at] = name, left // size, stride * size
                degree //= size
            if degree > 1 and left // size > 1:
                return {}
        if axis != "mp" or second > 1:
            dims[f"{axis}_dims"] = tuple(names)
    return dims


def _microbatches(row: TrainingRow) -> Sequence[int]:
    if row.microbatch is not None:
        return (row.microbatch,)
    return [size for size in MICROBATCHES if row.batch % (row.copies * size) == 0]


def _interleaves(row: TrainingRow, microbatch: int) -> Sequence[int]:
    """Chunks of a stage; more than one need microbatches that are a multiple of the stages."""
    if row.interleave is not None:
        return (row.interleave,)
    layers, microbatches = row.model.layers // row.pipeline, row.batch // (row.copies * microbatch)
    fits = row.pipeline > 1 and row.model.layers % row.pipeline == 0 and microbatches % row.pipeline == 0
    return [chunks for chunks in INTERLEAVES if chunks == 1 or (fits and layers % chunks == 0)]


def _ways(row: TrainingRow) -> Iterator[tuple[str, int, int, Graph]]:
    """What a source leaves open, every way of it: what is computed again, microbatch, chunks, and the graph."""
    again = (row.recompute,) if row.recompute is not None else _MODES[row.library_attention]
    for recompute in again:
        for size in _microbatches(row):
            graph = graph_of(row, size, recompute)
            for chunks in _interleaves(row, size):
                yield recompute, size, chunks, graph


def _asked(row: TrainingRow, system: System) -> dict[str, Any]:
    """What a request says of the degrees of a row."""
    second = second_axis(row)
    asked: dict[str, Any] = {"tp": row.tensor, "pp": row.pipeline, "dp": row.copies // _sequences(row)}
    if row.expert_groups > 1:
        asked |= {"ep": second, "attention_dp": second}
    elif second > 1:
        asked["cp"] = second
    return asked | dims_of(row, system)


def step_of(row: TrainingRow, assumptions: Assumptions, system: System) -> MeasuredStep:
    """Predict a measured step: map the row with its degrees, and choose the fastest for what is left open.

    If the row does not state ZeRO, states are not partitioned; if no way fits then, replicas partition the optimizer's
    state.

    Parameters
    ----------
    row, assumptions, system
        The measured step, and the assumptions and system of the prediction.

    Raises
    ------
    DfoptError
        That of the first way, if no way has a mapping.
    """
    sequence = row.sequence_parallelism or assumptions.sequence_parallelism
    chosen = assumptions.with_(sharding_objective="seconds", sequence_parallelism=sequence)
    chosen = chosen.with_(execution="library" if row.library_attention else "kernel_by_kernel")
    if row.overlaps_gradients:
        weights = {"parameter_overlap": "forward"} if row.overlaps_weights else {}
        chosen = chosen.with_(gradient_overlap="backward", **weights)
    if row.overlaps_messages:
        chosen = chosen.with_(point_to_point_overlap="interleaved")
    overlapped = chosen.with_(tensor_overlap="ring")
    under = {True: (overlapped,), False: (chosen,), None: (overlapped, chosen)}[row.overlaps_tensor]
    refused = list[DfoptError]()
    for zero in _levels(row):
        asked, steps = {**_asked(row, system), "zero": zero}, list[MeasuredStep]()
        for variant, (recompute, size, chunks, graph) in product(under, _ways(row)):
            there = _slowed(system) if variant.tensor_overlap else system
            try:
                pins = _by_tokens(row, graph)
                result = solve(graph, there, assumptions=variant, time_limit=SECONDS, interleave=chunks,
                                  shard=pins, **asked)  # fmt: skip
            except DfoptError as error:
                refused.append(error)
                continue
            assumed = _assumed(row, {"microbatch": size, "interleave": chunks, "recompute": recompute}, zero)
            steps.append(MeasuredStep(row, graph, there, variant, result, assumed))
        if steps:
            return min(steps, key=lambda step: step.seconds)
        if not any(isinstance(error, Infeasible) for error in refused):
            break
    raise refused[0]


def _levels(row: TrainingRow) -> Sequence[int]:
    """Levels of ZeRO, one after another where none before fits."""
    if row.zero is not None:
        return (row.zero,)
    return (0, 1) if row.copies // _sequences(row) > 1 else (0,)


def _slowed(system: System) -> System:
    """The system whose products are slowed down by communication in a node that overlaps with them."""
    node, *others = system.network
    if node.processor_usage is None:
        node = node.model_copy(update={"processor_usage": _USAGE})
    return system.model_copy(update={"network": (node, *others)})


def _by_tokens(row: TrainingRow, graph: Graph) -> dict[str, Sharding]:
    """Where a run splits tokens of the residual stream (Korthikanti et al.), all kernels on it do."""
    if row.sequence_parallelism != "allow" or row.tensor == 1:
        return {}
    return {k.name: "n" for k in graph.kernels if k.op == "elementwise" and k.role in ("residual", "norm", "dropout")}


def _assumed(row: TrainingRow, chosen: dict[str, int | str], zero: int) -> tuple[str, ...]:
    stated = {
        "microbatch": row.microbatch,
        "interleave": row.interleave if row.pipeline > 1 else 1,
        "recompute": row.recompute,
    }
    names = [f"{name} {value}" for name, value in chosen.items() if stated[name] is None]
    if row.zero is None and zero:
        names.append(f"zero {zero}")
    if row.sequence_parallelism is None and row.tensor > 1:
        names.append("sequence_parallelism")
    if row.overlaps_tensor is None:
        names.append("tensor_overlap")
    if row.loss_apart:
        names.append("loss in several kernels")
    return tuple(names)


def left_out(row: TrainingRow) -> tuple[str, ...]:
    """Properties of a row that the model does not have."""
    words = list(row.unmodelled)
    if more := _more_layers(row):
        words.append(f"stages that are not equal: {more} layers more")
    if row.expert_groups > 1 and second_axis(row) < row.expert_groups:
        words.append("experts of their own for TP chips")
    return tuple(words)


def alike(row: TrainingRow) -> TrainingRow:
    """The row without fields that do not affect its prediction, as a cache key."""
    return replace(row, name="", source="", seconds=1.0, unmodelled=())
