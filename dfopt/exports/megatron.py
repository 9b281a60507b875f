"""Decisions as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dfopt.errors import Issue
from dfopt.exports.decisions import RunDecisions
from dfopt.exports.tool import Lacks, Tool, ToolArguments, exported
from dfopt.frontends.megatron.arguments import Arguments as Options
from dfopt.frontends.megatron.refusals import refusals
from dfopt.workloads.recompute import PARTS, ways_of

FP8: Final = {"fp8": "tensorwise", "mxfp8": "mxfp8", "fp8_1x128": "blockwise"}
"""Recipes for products in eight bits, by the type of the operands."""
UNEVEN: Final = "stages have equally many layers, or the first and the last fewer"
UNEVEN_CHUNKS: Final = "in chunks an embedding and a loss count as a layer each, or not"
ALWAYS_BEHIND: Final = "two stages of several chunks always work while they send"
ONE: Final = "whole layers, or scores, not both"
CONVERTED: Final = "products in eight bits keep what they take, converted (saved: as operands)"
MODULES: Final = {"attention": "core_attn"}
"""What it calls modules that are computed again, where that is another name than here."""
_STRATEGY: Final = {2: "optim_grads", 3: "optim_grads_params"}
_CONTEXT: Final = "allgather"
_ROWS: Final = 128  # --make-vocab-size-divisible-by, where nothing is said


def _model(d: RunDecisions) -> ToolArguments | Lacks:
    if d.sizes is None:
        return Lacks("layers are not equal transformer layers; give the sizes by hand")
    s = d.sizes
    arguments: ToolArguments = {
        "num-layers": s.layers,
        "hidden-size": s.hidden,
        "ffn-hidden-size": s.ffn,
        "num-attention-heads": s.heads,
        "kv-channels": s.head_dim,
        "seq-length": s.seq,
        "max-position-embeddings": s.seq,
        "position-embedding-type": "rope" if s.rotary else "learned_absolute",
    }
    if s.kv_heads < s.heads:
        arguments |= {"group-query-attention": True, "num-query-groups": s.kv_heads}
    if s.gated:
        arguments["swiglu"] = True
    if s.experts is not None:
        arguments |= {"num-experts": s.experts, "moe-router-topk": s.chosen, "moe-ffn-hidden-size": s.ffn}
        arguments |= {"moe-grouped-gemm": True} if d.weights == "bf16" else {}
    arguments |= {} if s.attention_dropout else {"attention-dropout": 0.0}
    arguments |= {} if s.hidden_dropout else {"hidden-dropout": 0.0}
    return arguments


def _vocabulary(d: RunDecisions) -> ToolArguments | Lacks:
    if d.sizes is None or d.sizes.vocab is None:
        return Lacks("give the size of the vocabulary or a tokenizer")
    padded = -(-d.sizes.vocab // (_ROWS * d.tensor)) * _ROWS * d.tensor
    arguments: ToolArguments = {"vocab-size": padded}
    return (
        arguments
        if padded == d.sizes.vocab
        else Lacks(f"padded to {padded}, a multiple of {_ROWS} x {d.tensor}", arguments)
    )


def _architecture(d: RunDecisions) -> ToolArguments | Lacks:
    """What differs from that tool's LayerNorm, biases, tied embeddings and rotary base of 10000."""
    a, rotary = d.architecture, d.sizes is not None and d.sizes.rotary
    split = d.sizes is not None and d.sizes.experts is not None and d.tensor > 1  # then the tool refuses biases
    arguments: ToolArguments = {"normalization": "RMSNorm"} if a.norm == "rmsnorm" else {}
    arguments |= {"disable-bias-linear": True} if split or a.bias in ("none", "qkv") else {}
    arguments |= {"add-qkv-bias": True} if a.bias == "qkv" else {}
    arguments |= {"untie-embeddings-and-output-weights": True} if a.tied_embeddings is False else {}
    arguments |= {"qk-layernorm": True} if a.qk_norm == "head" else {}
    arguments |= {"rotary-base": int(a.rotary_base)} if rotary and a.rotary_base else {}
    if rotary and a.rotary_scaling:
        arguments |= {"use-rope-scaling": True, "rope-scaling-factor": a.rotary_scaling}
    if a.qk_norm == "all":
        return Lacks("norms of queries and keys are over each head", arguments)
    return Lacks("LayerNorm, biases, tied embeddings and a base of 10000 where nothing says", arguments) if (
        "norms and biases" in d.words
    ) else arguments  # fmt: skip


def _precision(d: RunDecisions) -> ToolArguments | Lacks:
    if d.weights == "fp32":
        return {}
    if d.weights not in ("bf16", "fp16"):
        return Lacks("weights, experts and activations of one type, fp32, bf16 or fp16")
    arguments: ToolArguments = {d.weights: True}
    if d.operands == d.weights:
        return arguments
    if d.weights != "bf16" or d.operands not in FP8:
        return Lacks(f"operands in {', '.join(FP8)} beside bf16", arguments)
    arguments |= {"fp8-format": "hybrid", "fp8-recipe": FP8[d.operands]}
    return arguments if d.saved == d.operands else Lacks(CONVERTED, arguments)


def _gradients(d: RunDecisions) -> ToolArguments | Lacks:
    """In bf16 its buffers are in fp32, unless it reduces in bf16; else in the type of the weights, unless in fp32."""
    narrow: ToolArguments = {"grad-reduce-in-bf16": True} if d.weights == "bf16" else {}
    wide: ToolArguments = {"accumulate-allreduce-grads-in-fp32": True} if d.weights == "fp16" else {}
    arguments = {"fp32": wide, d.weights: narrow}.get(d.reduced) if d.weights != "fp32" or d.reduced == "fp32" else None
    if arguments is None or d.held != d.reduced:
        return Lacks("one type for both: fp32, or that of the weights", arguments)
    return arguments


def _optimizer(d: RunDecisions) -> ToolArguments | Lacks:
    return {} if d.moments in ("", "fp32") and d.main_weights in ("", "fp32") else Lacks("both in fp32")


def _stages(d: RunDecisions) -> ToolArguments | Lacks:
    if d.stages is None:
        return {} if d.even else Lacks(UNEVEN)
    first, most, last = d.stages
    if d.virtual > 1:
        if not d.even or most - min(first, last) > 1:
            return Lacks(UNEVEN_CHUNKS)
        counted = {"account-for-embedding-in-pipeline-split": first, "account-for-loss-in-pipeline-split": last}
        return {name: True for name, layers in counted.items() if layers < most}
    layers_at = {"decoder-first-pipeline-num-layers": first, "decoder-last-pipeline-num-layers": last}
    layers_at = {name: layers for name, layers in layers_at.items() if layers != most}
    return layers_at if d.even else Lacks(UNEVEN, layers_at)


def _virtual(d: RunDecisions) -> ToolArguments:
    if d.virtual == 1:
        return {}
    if d.stages is None and d.even and d.layers_per_stage % d.virtual == 0:
        return {"num-layers-per-virtual-pipeline-stage": d.layers_per_stage // d.virtual}
    return {"num-virtual-stages-per-pipeline-rank": d.virtual}


def _tensor_overlap(d: RunDecisions) -> ToolArguments | Lacks:
    if d.tensor_overlap == "waves":
        return Lacks("its kernels send tile by tile, and not wave by wave")
    if d.tensor_overlap and not d.sequence_parallel:
        return Lacks("only what is gathered and scattered with --sequence-parallel is hidden")
    return {"tp-comm-overlap": True} if d.tensor_overlap else {}


def _sending(d: RunDecisions) -> ToolArguments | Lacks:
    """Messages of chunks are hidden by default; those of stages that have one cannot be."""
    arguments: ToolArguments = {}
    if d.virtual > 1:
        arguments = {} if d.sends_behind else {"no-overlap-p2p-communication": True}
    if d.sends_behind and d.virtual == 1:
        return Lacks("only stages of several chunks work while they send", arguments)
    if arguments and d.pipeline == 2:
        return Lacks(ALWAYS_BEHIND)
    return Lacks("what chips hold whole is sent whole", arguments) if d.sends_in_parts else arguments


def _zero(d: RunDecisions) -> ToolArguments:
    groups: ToolArguments = {"num-distributed-optimizer-instances": d.replicas} if d.replicas > 1 else {}
    if d.zero < 2:
        return {"use-distributed-optimizer": True, **groups} if d.zero else {}
    strategy = {"data-parallel-sharding-strategy": _STRATEGY[d.zero], **groups}
    return {"use-megatron-fsdp": True, "use-distributed-optimizer": True, "ckpt-format": "fsdp_dtensor", **strategy}


def _recomputed_layers(d: RunDecisions) -> tuple[str, int]:
    """The method and number of layers that are computed again whole: each by itself, or the first of every chunk."""
    return ("block", d.recomputed // d.virtual) if ways_of(d.recompute)[1] else ("uniform", d.every)


def recomputation(d: RunDecisions) -> tuple[ToolArguments, str]:
    """Megatron-LM options for activation recomputation, and what they cannot express, if anything."""
    method, layers = _recomputed_layers(d)
    layer: ToolArguments = {"granularity": "full", "method": method, "num_layers": layers}
    others, some = ways_of(d.recompute)
    names, kept = (set(way.split("+")) - {"none"} for way in (some or others, others if some else "none"))
    # FlashAttention computes scores again by itself
    inside = names - {"full"} - ({"attention"} if d.one_attention or "full" in names else set())
    if "full" in names:
        if d.recompute == "full/attention" or inside or kept - {"attention"}:
            return layer, ONE
        unlike = "attention" in names and not d.one_attention
        return layer, f"{ONE}; only a kernel for all of attention keeps no scores" if unlike else ""
    modules = [MODULES.get(name, name) for name in PARTS if name in inside and name != "op"]
    options: ToolArguments = {"granularity": "selective", "modules": modules} if modules else {}
    return options, "whole layers, or modules of all layers" if some or "op" in names else ""


def _recomputation(d: RunDecisions) -> ToolArguments | Lacks:
    options, why = recomputation(d)
    arguments = {f"recompute-{name.replace('_', '-')}": value for name, value in options.items()}
    return Lacks(why, arguments) if why else arguments


def _attention(d: RunDecisions) -> ToolArguments | Lacks:
    again = "attention" in d.recompute
    if d.one_attention and not again:
        return Lacks("a kernel for all of attention keeps no scores", {"attention-backend": "unfused"})
    return {"attention-backend": "flash" if d.one_attention else "unfused"}


def refused(d: RunDecisions) -> Iterator[Issue]:
    """Issues for which Megatron-LM, or a tool on top of it, would reject its arguments."""
    arguments = exported(MEGATRON, d).arguments
    fields = {name.replace("-", "_"): tuple(v) if isinstance(v, list) else v for name, v in arguments.items()}
    if d.sizes is not None:
        yield from refusals(Options(**{name: v for name, v in fields.items() if name in Options.model_fields}))
    if d.virtual > 1 and d.microbatches % d.pipeline:
        message = f"found {d.microbatches} microbatches for {d.pipeline} stages in chunks"
        yield Issue("$.global-batch-size", message, f"a multiple of {d.pipeline} microbatches")


def _write(arguments: Mapping[str, Any], first: str) -> str:
    """Options and their values as shell words, a line each."""
    words = {name: " ".join(value) if isinstance(value, list) else value for name, value in arguments.items()}
    lines = [f"--{name}" if value is True else f"--{name} {value}" for name, value in words.items()]
    return "\n".join([f"# {first}", *lines]) + "\n"


MEGATRON: Final = Tool(
    name="megatron",
    title="Megatron-LM",
    source="NVIDIA/Megatron-LM at 000c4ac, megatron/training/arguments.py",
    file="megatron.args",
    says={
        "model": _model,
        "vocabulary": _vocabulary,
        "norms and biases": _architecture,
        "batch": lambda d: {"micro-batch-size": d.microbatch, "global-batch-size": d.batch},
        "precision": _precision,
        "gradients": _gradients,
        "optimizer": _optimizer,
        "tensor": lambda d: {"tensor-model-parallel-size": d.tensor},
        "sequence parallelism": lambda d: {"sequence-parallel": True} if d.sequence_parallel else {},
        "tensor overlap": _tensor_overlap,
        "pipeline": lambda d: {"pipeline-model-parallel-size": d.pipeline},
        "stages": _stages,
        "virtual stages": _virtual,
        "data": lambda _: {},  # what the other degrees leave of the ranks
        "zero": _zero,
        "gradient overlap": lambda d: {"overlap-grad-reduce": True} if d.gradient_overlap else {},
        "weight overlap": lambda d: {"overlap-param-gather": True} if d.parameter_overlap else {},
        "sending on": _sending,
        "context": lambda d: {"context-parallel-size": d.context, "cp-comm-type": _CONTEXT} if d.context > 1 else {},
        "expert": lambda d: (
            {"expert-model-parallel-size": d.expert, "moe-token-dispatcher-type": "alltoall"} if d.expert > 1 else {}
        ),
        "recomputation": _recomputation,
        "attention": _attention,
    },
    write=_write,
    refuses=refused,
)
