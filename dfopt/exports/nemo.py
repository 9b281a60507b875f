"""Decisions as a configuration of Megatron-Bridge, the part of NVIDIA NeMo that trains language models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dfopt.documents.strict_yaml import dump_yaml, load_strict
from dfopt.exports.decisions import RunDecisions
from dfopt.exports.megatron import CONVERTED, FP8, MEGATRON, recomputation, refused
from dfopt.exports.nested import nested
from dfopt.exports.tool import Lacks, Says, Tool, ToolArguments

_STRATEGY: Final = {2: "optim_grads", 3: "optim_grads_params"}
_TABLE: Final = load_strict(Path(__file__).with_suffix(".yaml"))


def _as_megatron(decision: str) -> Says:
    """What options of Megatron-LM say of a decision, as fields."""

    def fields(arguments: Mapping[str, Any]) -> ToolArguments:
        named: ToolArguments = {}
        for option, value in arguments.items():
            if field := _TABLE["fields"].get(option, [f"model.{option.replace('-', '_')}"]):
                named[field[0]] = field[1] if len(field) > 1 else value
        return named

    def says(d: RunDecisions) -> ToolArguments | Lacks:
        answer = MEGATRON.says[decision](d)
        arguments = (answer.arguments or {}) if isinstance(answer, Lacks) else answer
        why = [answer.why] if isinstance(answer, Lacks) else []
        why += ["scaling of rotary position: in code"] if "use-rope-scaling" in arguments else []
        return Lacks("; ".join(why), fields(arguments)) if why else fields(arguments)

    return says


def _sending(d: RunDecisions) -> ToolArguments | Lacks:
    """Messages of chunks are hidden where it is said."""
    behind: ToolArguments = {"model.overlap_p2p_comm": d.sends_behind or d.pipeline == 2} if d.virtual > 1 else {}
    answer = MEGATRON.says["sending on"](d)
    return Lacks(answer.why, behind) if isinstance(answer, Lacks) else behind


def _precision(d: RunDecisions) -> ToolArguments | Lacks:
    if d.weights not in ("bf16", "fp16"):
        return Lacks("a recipe of mixed_precision for bf16 or fp16")
    arguments: ToolArguments = {"mixed_precision": f"{d.weights}_mixed"}
    if d.operands == d.weights:
        return arguments
    if d.weights != "bf16" or d.operands not in FP8:
        return Lacks(f"operands in {', '.join(FP8)} beside bf16", arguments)
    recipe: ToolArguments = {"mixed_precision": _TABLE["recipes"][FP8[d.operands]]}
    return recipe if d.saved == d.operands else Lacks(CONVERTED, recipe)


def _gradients(d: RunDecisions) -> ToolArguments | Lacks:
    """Recipes of bf16 reduce in fp32, that of fp16 does not."""
    usual = "fp32" if d.weights == "bf16" else d.weights
    return (
        {} if d.held == d.reduced == usual else Lacks("the recipe's type for both: fp32 beside bf16, fp16 beside fp16")
    )


def _optimizer(d: RunDecisions) -> ToolArguments | Lacks:
    if d.moments in ("", "fp32") and d.main_weights in ("", "fp32"):
        return {}
    aware: ToolArguments = {"optimizer.use_precision_aware_optimizer": True} if d.zero else {}
    return Lacks("types of torch: set optimizer.main_params_dtype, exp_avg_dtype and exp_avg_sq_dtype in code", aware)


def _zero(d: RunDecisions) -> ToolArguments:
    arguments: ToolArguments = {
        "ddp.use_distributed_optimizer": d.zero > 0,
        "optimizer.use_distributed_optimizer": d.zero > 0,
    }
    if d.zero > 1:
        arguments |= {"dist.use_megatron_fsdp": True, "ddp.use_megatron_fsdp": True}
        arguments["ddp.data_parallel_sharding_strategy"] = _STRATEGY[d.zero]
    if d.zero and d.replicas > 1:
        arguments["ddp.num_distributed_optimizer_instances"] = d.replicas
    return arguments


def _recomputation(d: RunDecisions) -> ToolArguments | Lacks:
    options, why = recomputation(d)
    arguments = {f"model.recompute_{name}": value for name, value in options.items()}
    return Lacks(why, arguments) if why else arguments


def _write(arguments: Mapping[str, Any], first: str) -> str:
    return f"# {first}\n{dump_yaml(nested(arguments))}"


NEMO: Final = Tool(
    name="nemo",
    title="NeMo (Megatron-Bridge)",
    source="megatron-bridge 0.3.1 and megatron-core 0.16.1, of PyPI",
    file="nemo.yaml",
    says={
        **{
            decision: _as_megatron(decision)
            for decision in MEGATRON.says.keys() - {"attention", "data", "virtual stages"}
        },
        "precision": _precision,
        "gradients": _gradients,
        "optimizer": _optimizer,
        "virtual stages": lambda d: {"model.virtual_pipeline_model_parallel_size": d.virtual} if d.virtual > 1 else {},
        "data": lambda _: {},  # what the other degrees leave of the ranks
        "zero": _zero,
        "sending on": _sending,
        "recomputation": _recomputation,
    },
    write=_write,
    refuses=refused,
)
