"""Decisions as a configuration of DeepSpeed; what its users decide in the code of a model is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from dfopt.exports.decisions import Decisions
from dfopt.exports.nested import nested
from dfopt.exports.tool import Arguments, Lacks, Tool

__all__ = ["DEEPSPEED"]


def _precision(d: Decisions) -> Arguments | Lacks:
    if d.weights == "fp32":
        return {}
    if d.weights not in ("bf16", "fp16"):
        return Lacks("weights and activations of one type, fp32, bf16 or fp16")
    found: Arguments = {f"{d.weights}.enabled": True, "data_types.grad_accum_dtype": d.weights}
    return found if d.operands == d.weights else Lacks("no operands of other types than the weights", found)


def _in_code(where: str) -> Lacks:
    return Lacks(f"in the code of the model: {where}")


def _context(d: Decisions) -> Arguments | Lacks:
    if d.context == 1:
        return {}
    near = {"sequence_parallel_size": d.context}
    return Lacks("sequences are exchanged for heads (Ulysses), keys and values are not gathered", near)


def _zero(d: Decisions) -> Arguments | Lacks:
    stage: Arguments = {"zero_optimization.stage": d.zero}
    return stage if d.replicas == 1 else Lacks("shards over all copies; its groups (MiCS) are set up in code", stage)


def _recomputation(d: Decisions) -> Arguments | Lacks:
    return {} if d.recompute == "none" else _in_code("which functions it checkpoints")


def _write(arguments: Mapping[str, Any], _: str) -> str:
    return json.dumps(nested(arguments), indent=2) + "\n"


DEEPSPEED: Final = Tool(
    name="deepspeed",
    title="DeepSpeed",
    source="deepspeed 0.19.8, of PyPI",
    file="ds_config.json",
    says={
        "batch": lambda d: {
            "train_batch_size": d.batch,
            "train_micro_batch_size_per_gpu": d.microbatch,
            "gradient_accumulation_steps": d.microbatches,
        },
        "precision": _precision,
        "tensor": lambda d: {"tensor_parallel.autotp_size": d.tensor} if d.tensor > 1 else {},
        "pipeline": lambda d: _in_code("num_stages of PipelineModule") if d.pipeline > 1 else {},
        "data": lambda _: {},  # what the other degrees leave of the ranks
        "zero": _zero,
        "context": _context,
        "expert": lambda d: _in_code("ep_size of its layers of experts") if d.expert > 1 else {},
        "recomputation": _recomputation,
    },
    write=_write,
)
