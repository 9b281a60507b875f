"""Decisions as a configuration of torchtitan; a model's sizes are those of a flavor that its code registers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dfopt.errors import Issue
from dfopt.exports.decisions import RunDecisions
from dfopt.exports.megatron import UNEVEN
from dfopt.exports.nested import nested
from dfopt.exports.tool import Lacks, Tool, ToolArguments
from dfopt.workloads.recompute import ways_of

_NAMES: Final = {"bf16": "bfloat16", "fp32": "float32"}
_QUANTIZED: Final = {"fp8": ("float8", "tensorwise"), "mxfp8": ("mx", "mxfp8_cublas")}
_SHARDS: Final = "parallelism.data_parallel_shard_degree"
_COPIES: Final = "parallelism.data_parallel_replicate_degree"
_GATHERED: Final = "parallelism.fsdp_reshard_after_forward"


def _batch(d: RunDecisions) -> ToolArguments:
    arguments: ToolArguments = {"training.global_batch_size": d.batch}
    if d.sizes is not None:
        arguments["training.seq_len"] = d.sizes.seq
    if d.pipeline == 1:
        return arguments | {"training.local_batch_size": d.microbatch}
    local = {"training.local_batch_size": d.microbatch * d.microbatches}
    return arguments | local | {"parallelism.pipeline_parallel_microbatch_size": d.microbatch}


def _precision(d: RunDecisions) -> ToolArguments | Lacks:
    if d.weights not in _NAMES:
        return Lacks("weights and activations in bf16 or fp32")
    arguments: ToolArguments = {"training.mixed_precision_param": _NAMES[d.weights]}
    if d.operands == d.weights:
        return arguments
    if d.operands not in _QUANTIZED:
        return Lacks(f"operands in {' or '.join(_QUANTIZED)}", arguments)
    kind, recipe = _QUANTIZED[d.operands]
    arguments |= {"model.converters": [f"quantize.linear.{kind}"], f"quantize.linear.{kind}.recipe_name": recipe}
    return Lacks("products keep what they are given, and convert it again", arguments) if d.saved else arguments


def _optimizer(d: RunDecisions) -> ToolArguments | Lacks:
    """Moments have the type of the parameters that the optimizer updates."""
    arguments: ToolArguments = {"training.dtype": _NAMES.get(d.main_weights, "float32")}
    alike = d.main_weights == d.moments and d.main_weights in ("", *_NAMES)
    return arguments if alike else Lacks("both in bf16 or both in fp32", arguments)


def _gradients(d: RunDecisions) -> ToolArguments | Lacks:
    arguments: ToolArguments = {"training.mixed_precision_reduce": "float32"}
    if d.reduced != "fp32" or d.held != (d.main_weights or "fp32"):
        return Lacks("added up in fp32, and held in the type of the parameters that the optimizer updates", arguments)
    return arguments


def _sequence_parallelism(d: RunDecisions) -> ToolArguments | Lacks:
    return Lacks("tensor parallelism always has it") if d.tensor > 1 and not d.sequence_parallel else {}


def _pipeline(d: RunDecisions) -> ToolArguments:
    arguments: ToolArguments = {"parallelism.pipeline_parallel_degree": d.pipeline}
    if d.pipeline > 1:
        plain = "GPipe" if d.gpipe else "1F1B"
        arguments["parallelism.pipeline_parallel_schedule"] = "Interleaved1F1B" if d.virtual > 1 else plain
    return arguments


def _chunk(d: RunDecisions) -> tuple[int, int, int] | None:
    """Layers of a chunk, and how many fewer the first and the last chunk have, where its arguments can say them."""
    first, most, last = d.stages or (d.layers_per_stage,) * 3
    chunk, left = divmod(most, d.virtual)
    return (chunk, most - first, most - last) if d.even and not left and most - min(first, last) <= chunk else None


def _stages(d: RunDecisions) -> ToolArguments | Lacks:
    if d.pipeline == 1:
        return {}
    chunk = _chunk(d)
    if chunk is None:
        return Lacks(f"{UNEVEN}, and all other chunks of a stage equally many")
    names = ("layers_per_stage", "first_stage_less_layers", "last_stage_less_layers")
    return {f"parallelism.pipeline_parallel_{name}": count for name, count in zip(names, chunk, strict=True)}


def _virtual(d: RunDecisions) -> ToolArguments | Lacks:
    """By the layers of a chunk; without them it makes two chunks of every stage."""
    return Lacks("two, where no argument says their layers") if d.virtual > 2 and _chunk(d) is None else {}


def _zero(d: RunDecisions) -> ToolArguments | Lacks:
    if d.zero == 0:
        return {_COPIES: d.data, _SHARDS: 1}
    shards: ToolArguments = {
        _COPIES: d.replicas,
        _SHARDS: d.data // d.replicas,
        _GATHERED: "always" if d.zero == 3 else "never",
    }
    return shards if d.zero > 1 else Lacks("gradients are sharded with the optimizer's state (ZeRO-2)", shards)


def _expert(d: RunDecisions) -> ToolArguments:
    arguments: ToolArguments = {"parallelism.expert_parallel_degree": d.expert} if d.expert > 1 else {}
    if d.sizes is not None and d.sizes.experts is not None:
        arguments["parallelism.expert_tensor_parallel_degree"] = d.tensor
    return arguments


def _context(d: RunDecisions) -> ToolArguments:
    if d.context == 1:
        return {}
    method = "parallelism.context_parallel_rotate_method"
    return {"parallelism.context_parallel_degree": d.context, method: "allgather"}


def _recomputation(d: RunDecisions) -> ToolArguments | Lacks:
    """Whole layers, or by a policy for products; of nothing else a layer keeps less."""
    others, some = ways_of(d.recompute)
    names = set((some or others).split("+")) - {"none", "attention"}
    mode: ToolArguments = {"activation_checkpoint.mode": "full" if "full" in names else "none"}
    if "op" in names and "full" not in names:
        mode = {"activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}
    if some or d.every > 1:
        return Lacks("all layers alike, or every so many of them", mode)
    if names - {"full"} and names != {"op"}:
        return Lacks("whole layers, or all but every second product", mode)
    kept = "attention" not in d.recompute
    return Lacks("attention is one kernel, which keeps no scores", mode) if kept or not d.one_attention else mode


def _refused(d: RunDecisions) -> Iterator[Issue]:
    """Sequences and stages that torchtitan refuses (torchtitan/distributed: parallel_dims.py, pipeline_parallel.py)."""
    if d.sizes is not None and d.sizes.seq % (parts := 2 * d.tensor * d.context):
        message = f"found {d.sizes.seq} tokens over {d.tensor} tensor- and {d.context} context-parallel chips"
        yield Issue("$.training.seq_len", message, f"a multiple of {parts}")
    if d.sizes is not None and d.pipeline > 1 and _chunk(d) is None:  # it then spreads layers, embedding and logits
        chunks = d.pipeline * min(d.virtual, 2)
        if d.sizes.layers + 2 < chunks:
            message = f"found {d.sizes.layers} layers for {chunks} chunks of stages"
            yield Issue("$.parallelism.pipeline_parallel_degree", message, f"at least {chunks - 2} layers")


def _write(arguments: Mapping[str, Any], first: str) -> str:
    """TOML: a table for every section; strings, numbers and lists are written as in JSON."""
    lines = [f"# {first}"]

    def table(name: str, content: Mapping[str, Any]) -> None:
        plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
        if plain:
            lines.extend(["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())])
        for key, value in content.items():
            if isinstance(value, dict):
                table(f"{name}.{key}", value)

    for name, content in nested(arguments).items():
        table(name, content)
    return "\n".join(lines) + "\n"


TORCHTITAN: Final = Tool(
    name="torchtitan",
    title="torchtitan",
    source="torchtitan 0.2.2, of PyPI",
    file="torchtitan.toml",
    says={
        "model": lambda _: Lacks("register a flavor of these sizes"),
        "vocabulary": lambda _: Lacks("that of the flavor"),
        "batch": _batch,
        "precision": _precision,
        "gradients": _gradients,
        "optimizer": _optimizer,
        "tensor": lambda d: {"parallelism.tensor_parallel_degree": d.tensor},
        "sequence parallelism": _sequence_parallelism,
        "pipeline": _pipeline,
        "schedule": lambda _: {},  # of the pipeline
        "stages": _stages,
        "virtual stages": _virtual,
        "data": lambda _: {},  # by what copies share out
        "zero": _zero,
        "context": _context,
        "expert": _expert,
        "recomputation": _recomputation,
    },
    write=_write,
    refuses=_refused,
)
