"""Decisions as a configuration of DeepSpeed; what its users decide in the code of a model is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dfopt.errors import Issue
from dfopt.exports.decisions import RunDecisions
from dfopt.exports.nested import nested
from dfopt.exports.tool import Lacks, Tool, ToolArguments


def _precision(d: RunDecisions) -> ToolArguments | Lacks:
    if d.weights == "fp32":
        return {}
    if d.weights not in ("bf16", "fp16"):
        return Lacks("weights and activations of one type, fp32, bf16 or fp16")
    arguments: ToolArguments = {f"{d.weights}.enabled": True}
    return arguments if d.operands == d.weights else Lacks("no operands of other types than the weights", arguments)


def _gradients(d: RunDecisions) -> ToolArguments | Lacks:
    held: ToolArguments = {"data_types.grad_accum_dtype": d.held} if d.held in ("fp32", "bf16", "fp16") else {}
    if not held:
        return Lacks("held in fp32, bf16 or fp16")
    return held if d.reduced == d.weights else Lacks("added up in the type of the weights", held)


def _optimizer(d: RunDecisions) -> ToolArguments | Lacks:
    if d.moments in ("", "fp32") and d.main_weights in ("", "fp32"):
        return {}
    narrow = d.weights in ("bf16", "fp16") and d.main_weights == d.weights and d.zero > 0
    arguments: ToolArguments = {f"{d.weights}.{d.weights}_master_weights_and_grads": True} if narrow else {}
    if narrow and d.moments == "fp32":
        return arguments
    if narrow and d.weights == d.moments == "bf16":
        return arguments | {"bf16.bf16_optimizer_states": True}
    return Lacks("fp32, or with ZeRO main weights of the type of the weights, and then moments in bf16", arguments)


def _in_code(where: str) -> Lacks:
    return Lacks(f"in the code of the model: {where}")


def _context(d: RunDecisions) -> ToolArguments | Lacks:
    if d.context == 1:
        return {}
    near = {"sequence_parallel_size": d.context}
    return Lacks("sequences are exchanged for heads (Ulysses), keys and values are not gathered", near)


def _zero(d: RunDecisions) -> ToolArguments | Lacks:
    stage: ToolArguments = {"zero_optimization.stage": d.zero}
    return stage if d.replicas == 1 else Lacks("shards over all copies; its groups (MiCS) are set up in code", stage)


_HOST: Final = {"device": "cpu"}
_OFFLOADS: Final[Mapping[str, tuple[str, int]]] = {
    "optimizer": ("zero_optimization.offload_optimizer", 1),
    "weights": ("zero_optimization.offload_param", 3),
}
"""Arguments by item of a placement, and the level of ZeRO from which DeepSpeed takes them."""


def _placement(d: RunDecisions) -> ToolArguments | Lacks:
    """What lies in the memory of the host; gradients go there with the optimizer's state."""
    offloads = {item: _OFFLOADS[item] for item in d.away if item in _OFFLOADS and d.zero >= _OFFLOADS[item][1]}
    arguments: ToolArguments = {name: dict(_HOST) for name, _ in offloads.values()}
    gone = {*offloads, *(("gradients",) if "optimizer" in offloads else ())}
    if left := [item for item in d.away if item not in gone]:
        return Lacks(f"no {', '.join(left)} in another memory under ZeRO-{d.zero}", arguments)
    return arguments


def _recomputation(d: RunDecisions) -> ToolArguments | Lacks:
    return {} if d.recompute == "none" else _in_code("which functions it checkpoints")


def _refused(d: RunDecisions) -> Iterator[Issue]:
    """What its pipeline engine asserts (deepspeed/runtime/pipe/engine.py)."""
    if d.pipeline > 1 and d.zero > 1:
        yield Issue("$.zero_optimization.stage", f"found {d.zero} beside a pipeline", "ZeRO-1 or none, or one stage")


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
        "gradients": _gradients,
        "optimizer": _optimizer,
        "tensor": lambda d: {"tensor_parallel.autotp_size": d.tensor} if d.tensor > 1 else {},
        "pipeline": lambda d: _in_code("num_stages of PipelineModule") if d.pipeline > 1 else {},
        "data": lambda _: {},  # what the other degrees leave of the ranks
        "zero": _zero,
        "placement": _placement,
        "context": _context,
        "expert": lambda d: _in_code("ep_size of its layers of experts") if d.expert > 1 else {},
        "recomputation": _recomputation,
    },
    write=_write,
    refuses=_refused,
)
