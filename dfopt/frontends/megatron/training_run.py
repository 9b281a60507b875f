"""Arguments of Megatron-LM turned into a graph, pins, and the options of a solve that fix the rest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dfopt.documents.files import folder_of, write_text
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Pins
from dfopt.documents.strict_yaml import dump_yaml
from dfopt.errors import DocumentError, Issue
from dfopt.frontends.megatron.arguments import Arguments
from dfopt.frontends.megatron.launch_files import read
from dfopt.frontends.megatron.shardings import megatron_shardings
from dfopt.workloads import expand
from dfopt.workloads.recompute import recompute_of

_RECOMPUTE: Final = {
    (None, False): "none",
    (None, True): "attention",
    ("selective", False): "attention",
    ("selective", True): "attention",
    ("full", False): "full",
    ("full", True): "full+attention",
}
"""What is computed again, by granularity and by whether attention keeps no scores (FlashAttention)."""
_ZERO: Final = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_OPERANDS: Final = {"tensorwise": "fp8", "delayed": "fp8", "mxfp8": "mxfp8", "blockwise": "fp8_1x128"}

_OPTIONS: Final = {
    "interleave": "--interleave ", "zero": "--zero ", "zero_replicas": "--zero-replicas ",
    "recomputed": "--recompute-layers ", "first_layers": "--first-layers ", "last_layers": "--last-layers ",
    "sequence_parallelism": "--set sequence_parallelism=", "tensor_overlap": "--tp-comm-overlap ",
    "gradient_overlap": "--gradient-overlap ", "parameter_overlap": "--param-gather-overlap ",
    "point_to_point_overlap": "--p2p-overlap ",
}  # fmt: skip
"""Options of ``dfopt solve``, by what they fix."""


@dataclass(frozen=True)
class TrainingRun:
    """A Megatron-LM training step as dfopt documents.

    ``recipe`` is the graph as in a file, ``fixed`` the arguments of ``dfopt.optimize`` in addition to graph and system,
    ``notes`` remarks on arguments that a solve does not use.
    """

    recipe: dict[str, Any]
    graph: Graph
    pins: Pins
    fixed: dict[str, Any]
    notes: tuple[str, ...]

    def options(self) -> dict[str, Any]:
        """Keyword arguments for ``dfopt.optimize(run.graph, system, ...)``."""
        return {**self.pins.on_axes, "pin_sharding": self.pins.sharding, **self.fixed}

    def words(self) -> list[str]:
        """Options of ``dfopt solve`` that fix the run, in addition to those in its pins."""
        values = {name: value[0] if isinstance(value, tuple) else value for name, value in self.fixed.items()}
        words = [f"{option}{values[name]}" for name, option in _OPTIONS.items() if name in values]
        return words + [f"--module {module}={scheme}" for module, scheme in self.fixed["modules"].items()]


def load_run(path: str | Path) -> TrainingRun:
    """Import a file of Megatron-LM arguments.

    The number of chips is no argument: it is that of the system, and the number of replicas follows from it and the
    degrees.

    Raises
    ------
    DocumentError
        For options that are missing, invalid or not modelled; all are named at once.
    """
    a, notes, free = read(path)
    axis = max(a.context_parallel_size, a.expert_model_parallel_size)
    each = a.micro_batch_size * (axis if a.context_parallel_size == 1 else 1)  # sequences that chips of the axis share
    if a.global_batch_size % each:
        message = f"found {a.global_batch_size}, no multiple of the {each} samples of expert-parallel chips"
        raise DocumentError(str(path), [Issue("$.global-batch-size", message, f"a multiple of {each}")])
    recipe = _recipe(a, Path(path).stem, each)
    graph = expand(recipe, str(path))
    tensor = a.tensor_model_parallel_size
    degrees: dict[str, Any] = {"tp": tensor, "pp": a.pipeline_model_parallel_size, "mp": axis}
    pins = Pins(**degrees, sharding=megatron_shardings(graph, tensor, a.sequence_parallel))
    fixed: dict[str, Any] = {"interleave": a.chunks, "zero": (_zero(a),), "modules": _modules(a)}
    if fixed["zero"] != (0,) and a.num_distributed_optimizer_instances > 1:
        fixed["zero_replicas"] = (a.num_distributed_optimizer_instances,)
    fixed |= _ends(a)
    if graph.recomputed is not None:
        fixed["recomputed"] = _recomputed(a)
    if tensor > 1:
        fixed |= {"sequence_parallelism": "force"} if a.sequence_parallel and a.num_experts is None else {}
        fixed["tensor_overlap"] = "ring" if a.tp_comm_overlap else "none"
    fixed["gradient_overlap"] = "backward" if a.overlap_grad_reduce else "none"
    if a.overlap_grad_reduce and fixed["zero"] != (0,):
        fixed["parameter_overlap"] = "forward" if a.overlap_param_gather else "none"
    if fixed["interleave"] > 1:
        fixed["point_to_point_overlap"] = "none" if a.no_overlap_p2p_communication else "interleaved"
    return TrainingRun(recipe, graph, pins, fixed, (*notes, *_notes(a), *free))


def _recipe(a: Arguments, name: str, microbatch: int) -> dict[str, Any]:
    keeps_no_scores = a.attention_backend in ("flash", "fused") or a.use_flash_attn or _chosen(a)
    parameters: dict[str, Any] = {
        "hidden": a.hidden_size,
        "heads": a.num_attention_heads,
        "head_dim": a.kv_channels or a.hidden_size // a.num_attention_heads,
        "ffn": a.ffn,
        "layers": a.num_layers,
        "seq": a.seq_length,
        "microbatch": microbatch,
        "batch": a.global_batch_size,
        "mode": "training",
        "recompute": _recompute(a, keeps_no_scores),
        **_types(a),
    }
    if a.checkpoint_every > 1:
        parameters["checkpoint_every"] = a.checkpoint_every
    workload, drops = "transformer", a.attention_dropout > 0 and a.hidden_dropout > 0
    if a.vocab or a.num_experts or not drops or not _plain(a):
        workload = "decoder"
        parameters |= _of_decoder(a)
    about = "imported from arguments of Megatron-LM"
    return {
        "schema": Graph.SCHEMA, "name": name, "description": about, "workload": workload, "parameters": parameters
    }  # fmt: skip


def _plain(a: Arguments) -> bool:
    """Whether layers are those of GPT-3."""
    others = a.rotary, a.gated, a.groups < a.num_attention_heads, a.qk_layernorm, a.disable_bias_linear
    return not any((*others, a.normalization != "LayerNorm", _modules_again(a)))


def _of_decoder(a: Arguments) -> dict[str, Any]:
    """Parameters that a decoder has beside those of all layers."""
    parameters = {
        "kv_heads": a.groups,
        "rotary": a.rotary,
        "gated_mlp": a.gated,
        "norm": a.normalization.lower(),
        "scores_dropout": a.attention_dropout > 0,
        "hidden_dropout": a.hidden_dropout > 0,
        "bias": "all" if not a.disable_bias_linear else "qkv" if a.add_qkv_bias else "none",
        "qk_norm": "head" if a.qk_layernorm else "none",
        "vocab": a.vocab or 1,
        "ends": a.vocab is not None,
        "tie_embeddings": not a.untie_embeddings_and_output_weights,
    }
    parameters |= {"rotary_base": float(a.rotary_base)} if a.rotary else {}
    parameters |= {"rotary_scaling": a.rope_scaling_factor} if a.rotary and a.use_rope_scaling else {}
    return parameters | ({} if a.num_experts is None else {"experts": a.num_experts, "chosen": a.moe_router_topk})


def _chosen(a: Arguments) -> bool:
    """Whether Transformer Engine chooses the kernel of attention."""
    return a.attention_backend == "auto" and a.transformer_impl == "transformer_engine" and not a.use_flash_attn


def _recompute(a: Arguments, keeps_no_scores: bool) -> str:
    """What is computed again; of some layers of a stage, where not of all."""
    recompute = _RECOMPUTE[a.recompute_granularity, keeps_no_scores]
    if more := _modules_again(a):
        return recompute_of("+".join({*more, "attention"} if keeps_no_scores else more))
    if a.recompute_granularity != "full" or a.recompute_method != "block" or _recomputed(a) >= a.stage_layers:
        return recompute
    return f"{recompute}/{_RECOMPUTE[None, keeps_no_scores]}"


def _modules_again(a: Arguments) -> list[str]:
    """Modules that are computed again, where those are others than attention alone."""
    if a.recompute_granularity != "selective" or a.recompute_modules == ("core_attn",):
        return []
    return ["attention" if name == "core_attn" else name for name in a.recompute_modules]


def _recomputed(a: Arguments) -> int:
    """Layers of a stage that are computed again whole, by the block method: as many of every chunk."""
    return (a.recompute_num_layers or 1) * a.chunks


def _types(a: Arguments) -> dict[str, Any]:
    """Parameters for the types of a graph's data and gradients, which are added up in fp32 or as weights are held."""
    words = "bf16" if a.bf16 else "fp16" if a.fp16 else "fp32"
    wide = a.accumulate_allreduce_grads_in_fp32 or (a.bf16 and not a.grad_reduce_in_bf16)
    gradients: dict[str, Any] = {"trained": {"reduced": "fp32"}} if wide else {"main_gradients": words}
    if a.fp8_format is not None:
        taken = _OPERANDS[a.fp8_recipe]  # and kept: Transformer Engine's layers save what they have converted
        weights = {"weights": taken} if a.fp8_param_gather else {"weights": "bf16", "weight_operands": taken}
        dtypes = {**weights, "ends": "bf16", "activations": "bf16", "operands": taken, "saved": taken}
        return {"dtypes": dtypes, **gradients}
    if a.bf16:
        return {"word_bytes": 2, **gradients}
    return {"dtypes": {"weights": words, "activations": words}, **gradients}


def _ends(a: Arguments) -> dict[str, int]:
    """Layers of the first and of the last stage, where these differ from the others."""
    if a.account_for_embedding_in_pipeline_split or a.account_for_loss_in_pipeline_split:
        first = a.stage_layers - a.account_for_embedding_in_pipeline_split
        return {"first_layers": first, "last_layers": a.stage_layers - a.account_for_loss_in_pipeline_split}
    ends = {"first_layers": a.decoder_first_pipeline_num_layers, "last_layers": a.decoder_last_pipeline_num_layers}
    # in chunks that program takes layers from all of them, not from the first and the last; without ends none are drawn
    usual = a.vocab is not None and a.chunks == 1 and a.pipeline_model_parallel_size > 1
    return {name: layers for name, layers in ends.items() if layers is not None and usual}


def _zero(a: Arguments) -> int:
    if a.use_megatron_fsdp:
        return _ZERO[a.data_parallel_sharding_strategy]
    return 1 if a.use_distributed_optimizer else 0


def _modules(a: Arguments) -> dict[str, str]:
    """Schemes over the second axis; none where there is none."""
    if max(a.context_parallel_size, a.expert_model_parallel_size) == 1:
        return {}
    shared = "context" if a.context_parallel_size > 1 else "n"
    schemes = {"stream": shared, "mixer": shared, "dense": "n"}  # a router is dense too
    if a.num_experts is not None:
        schemes["experts"] = "outer" if a.expert_model_parallel_size > 1 else "n"
    return schemes | ({"ends": "n"} if a.vocab is not None else {})


def _notes(a: Arguments) -> list[str]:
    notes = []
    if a.vocab is None:
        notes.append("no --vocab-size: embedding and logits are not drawn, nor counted among the parameters")
    if a.vocab not in (None, a.vocab_size):
        notes.append(f"vocabulary of {a.vocab_size or 'unknown size'} padded to {a.vocab}")
    if a.fp8_format is not None and not a.fp8_param_gather:
        notes.append("weights are kept in bf16 and cast for each product in 8 bits: --fp8-param-gather keeps them in 8")
    if _chosen(a):
        notes.append("attention that the tool chooses keeps no scores here; --attention-backend unfused keeps them")
    if a.qk_layernorm:
        notes.append("norms of queries and keys (--qk-layernorm) are not priced")
    if a.expert_model_parallel_size > 1 and a.moe_token_dispatcher_type == "allgather":
        notes.append("tokens that every chip gathers (allgather, the default) are counted as sent (alltoall)")
    if (a.decoder_first_pipeline_num_layers or a.decoder_last_pipeline_num_layers) and not _ends(a):
        notes.append("layers of the first and of the last stage are chosen by the solve, not fixed")
    if a.context_parallel_size > 1 and a.cp_comm_type == "p2p":
        notes.append("keys and values that go round from chip to chip (p2p) are counted as gathered")
    notes.append("scores are counted in full: --param causal=true counts those below the diagonal")
    if a.sequence_parallel and a.num_experts is not None:
        notes.append("a router works on all tokens on every chip: sequence parallelism is in the pins, not forced")
    if a.overlap_param_gather and _zero(a) != 1:
        notes.append("weights that are gathered behind other passes (--overlap-param-gather) count as shown")
    notes.append("network dims are chosen by the solve; other overlaps are those of the assumptions")
    return notes


def write_run(path: str | Path, folder: str | Path) -> list[str]:
    """Import arguments and write graph.yaml and pins.yaml; return lines that describe the files and the command.

    The lines name the written files, the arguments that were not read, and the command that solves the run on a system.
    """
    run = load_run(path)
    target = folder_of(folder)
    write_text(target / "graph.yaml", dump_yaml(run.recipe))
    run.pins.dump(target / "pins.yaml")
    command = f"  dfopt solve {target}/graph.yaml SYSTEM --pins {target}/pins.yaml {' '.join(run.words())}"
    wrote = [f"wrote {target / name}" for name in ("graph.yaml", "pins.yaml")]
    return [*wrote, *(f"note: {note}" for note in run.notes), "solve it on a system with:", command]
