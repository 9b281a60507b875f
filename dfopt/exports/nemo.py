"""Decisions as a configuration of Megatron-Bridge, the part of NVIDIA NeMo that trains language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dfopt.documents.strict_yaml import dump_yaml
from dfopt.exports.decisions import BIASES, Decisions
from dfopt.exports.megatron import ALWAYS_BEHIND, CONVERTED, FP8, UNEVEN, UNEVEN_CHUNKS, recomputation
from dfopt.exports.nested import nested
from dfopt.exports.tool import Arguments, Lacks, Tool

__all__ = ["NEMO"]

_STRATEGY: Final = {2: "optim_grads", 3: "optim_grads_params"}
_RECIPES: Final = {
    "tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
}


def _model(d: Decisions) -> Arguments | Lacks:
    if d.sizes is None:
        return Lacks("layers are not equal transformer layers; give the sizes by hand")
    s = d.sizes
    found: Arguments = {
        "model.num_layers": s.layers,
        "model.hidden_size": s.hidden,
        "model.ffn_hidden_size": s.ffn,
        "model.num_attention_heads": s.heads,
        "model.num_query_groups": s.kv_heads,
        "model.kv_channels": s.head_dim,
        "model.seq_length": s.seq,
        "model.gated_linear_unit": s.gated,
        "model.position_embedding_type": "rope" if s.rotary else "learned_absolute",
    }
    if s.experts is not None:
        found |= {"model.num_moe_experts": s.experts, "model.moe_router_topk": s.chosen}
        found |= {"model.moe_ffn_hidden_size": s.ffn, "model.moe_grouped_gemm": True}
    found |= {} if s.attention_dropout else {"model.attention_dropout": 0.0}
    found |= {} if s.hidden_dropout else {"model.hidden_dropout": 0.0}
    return found


def _vocabulary(d: Decisions) -> Arguments | Lacks:
    if d.sizes is None or d.sizes.vocab is None:
        return Lacks("give model.vocab_size or a tokenizer")
    return {"model.vocab_size": d.sizes.vocab}


def _biases(d: Decisions) -> Lacks:
    split = d.sizes is not None and d.sizes.experts is not None and d.tensor > 1  # then the tool refuses biases
    return Lacks(BIASES, {"model.add_bias_linear": False} if split else None)


def _precision(d: Decisions) -> Arguments | Lacks:
    if d.weights not in ("bf16", "fp16"):
        return Lacks("a recipe of mixed_precision for bf16 or fp16")
    found: Arguments = {"mixed_precision": f"{d.weights}_mixed"}
    if d.operands == d.weights:
        return found
    if d.weights != "bf16" or d.operands not in FP8:
        return Lacks(f"operands in {', '.join(FP8)} beside bf16", found)
    recipe: Arguments = {"mixed_precision": _RECIPES[FP8[d.operands]]}
    return recipe if d.saved == d.operands else Lacks(CONVERTED, recipe)


def _gradients(d: Decisions) -> Arguments | Lacks:
    """Recipes of bf16 reduce in fp32, that of fp16 does not."""
    usual = "fp32" if d.weights == "bf16" else d.weights
    return (
        {} if d.held == d.reduced == usual else Lacks("the recipe's type for both: fp32 beside bf16, fp16 beside fp16")
    )


def _optimizer(d: Decisions) -> Arguments | Lacks:
    if d.moments in ("", "fp32") and d.main_weights in ("", "fp32"):
        return {}
    aware: Arguments = {"optimizer.use_precision_aware_optimizer": True} if d.zero else {}
    return Lacks("types of torch: set optimizer.main_params_dtype, exp_avg_dtype and exp_avg_sq_dtype in code", aware)


def _stages(d: Decisions) -> Arguments | Lacks:
    if d.stages is None:
        return {} if d.even else Lacks(UNEVEN)
    first, most, last = d.stages
    if d.virtual > 1:
        if not d.even or most - min(first, last) > 1:
            return Lacks(UNEVEN_CHUNKS)
        counted = {"embedding": first, "loss": last}
        return {f"model.account_for_{end}_in_pipeline_split": True for end, n in counted.items() if n < most}
    names = ("model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage")
    found = {name: layers for name, layers in zip(names, (first, last), strict=True) if layers != most}
    return found if d.even else Lacks(UNEVEN, found)


def _tensor_overlap(d: Decisions) -> Arguments | Lacks:
    if d.tensor_overlap and not d.sequence_parallel:
        return Lacks("only what is gathered and scattered with sequence_parallel is hidden")
    return {"model.tp_comm_overlap": True} if d.tensor_overlap else {}


def _sending(d: Decisions) -> Arguments | Lacks:
    """Messages of chunks are hidden by default; those of stages that have one cannot be."""
    found: Arguments = {}
    if d.virtual > 1:
        found = {"model.overlap_p2p_comm": d.sends_behind or d.pipeline == 2}
    if d.sends_behind and d.virtual == 1:
        return Lacks("only stages of several chunks work while they send", found)
    if d.virtual > 1 and d.pipeline == 2 and not d.sends_behind:
        return Lacks(ALWAYS_BEHIND, found)
    return Lacks("what chips hold whole is sent whole", found) if d.sends_in_parts else found


def _zero(d: Decisions) -> Arguments:
    found: Arguments = {
        "ddp.use_distributed_optimizer": d.zero > 0,
        "optimizer.use_distributed_optimizer": d.zero > 0,
    }
    if d.zero > 1:
        found |= {"dist.use_megatron_fsdp": True, "ddp.use_megatron_fsdp": True}
        found["ddp.data_parallel_sharding_strategy"] = _STRATEGY[d.zero]
    if d.zero and d.replicas > 1:
        found["ddp.num_distributed_optimizer_instances"] = d.replicas
    return found


def _recomputation(d: Decisions) -> Arguments | Lacks:
    found, why = recomputation(d)
    arguments = {f"model.recompute_{name}": value for name, value in found.items()}
    return Lacks(why, arguments) if why else arguments


def _write(arguments: Mapping[str, Any], first: str) -> str:
    return f"# {first}\n{dump_yaml(nested(arguments))}"


NEMO: Final = Tool(
    name="nemo",
    title="NeMo (Megatron-Bridge)",
    source="megatron-bridge 0.3.1 and megatron-core 0.16.1, of PyPI",
    file="nemo.yaml",
    says={
        "model": _model,
        "vocabulary": _vocabulary,
        "norms and biases": _biases,
        "batch": lambda d: {"train.micro_batch_size": d.microbatch, "train.global_batch_size": d.batch},
        "precision": _precision,
        "gradients": _gradients,
        "optimizer": _optimizer,
        "tensor": lambda d: {"model.tensor_model_parallel_size": d.tensor},
        "sequence parallelism": lambda d: {"model.sequence_parallel": d.sequence_parallel},
        "tensor overlap": _tensor_overlap,
        "pipeline": lambda d: {"model.pipeline_model_parallel_size": d.pipeline},
        "stages": _stages,
        "virtual stages": lambda d: {"model.virtual_pipeline_model_parallel_size": d.virtual} if d.virtual > 1 else {},
        "data": lambda _: {},  # what the other degrees leave of the ranks
        "zero": _zero,
        "gradient overlap": lambda d: {"ddp.overlap_grad_reduce": True} if d.gradient_overlap else {},
        "weight overlap": lambda d: {"ddp.overlap_param_gather": True} if d.parameter_overlap else {},
        "sending on": _sending,
        "context": lambda d: {"model.context_parallel_size": d.context},
        "expert": lambda d: {"model.expert_model_parallel_size": d.expert},
        "recomputation": _recomputation,
    },
    write=_write,
)
