"""Arguments of Megatron-LM as they stand: options and values in shell words, or the same as YAML.

Source of names, types, choices and defaults: github.com/NVIDIA/Megatron-LM, ``megatron/training/arguments.py``, commit
000c4ac (Apache-2.0).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError

from dfopt.documents.base import Part, issues_of
from dfopt.documents.scalars import parse_scalar
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError, Issue, refuse, shown

__all__ = ["REFUSED", "Arguments", "option", "read", "words_of"]

Count = Annotated[int, Field(ge=1)]


def _listed(value: Any) -> Any:
    """Several words, also if there is one."""
    return (value,) if isinstance(value, str) else value


_WORD = re.compile(r"--[a-z0-9][a-z0-9_-]*")

REFUSED: Final[Mapping[str, str]] = {
    "multi-latent-attention": "latent attention",
    "mtp-num-layers": "layers that predict further tokens",
    "window-size": "attention within a window",
    "moe-layer-freq": "layers with and without experts in one model",
    "moe-shared-expert-intermediate-size": "experts that every token passes",
    "moe-expert-capacity-factor": "tokens that are dropped",
    "pipeline-model-parallel-layout": "a list of the layers of every stage",
    "recompute-activations": "an older option",
    "rampup-batch-size": "a batch that grows",
    "cpu-offloading-num-layers": "activations in the memory of the host",
    "optimizer-cpu-offload": "an optimizer in the memory of the host",
    "use-torch-fsdp2": "shards of PyTorch's FSDP",
    "fp4-format": "products in four bits",
    "first-last-layers-bf16": "layers of other types than the rest",
    "encoder-num-layers": "an encoder",
}
"""Options that change what a step costs, in a way that is not read here: what each asks for."""


class Arguments(Part):
    """The options that say what a step of training is, and how it is shared out; all others are left.

    Examples
    --------
    >>> sizes = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32}
    >>> Arguments(**sizes, micro_batch_size=1, global_batch_size=8).ffn
    256
    """

    num_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    kv_channels: Count | None = None
    group_query_attention: bool = False
    num_query_groups: Count = 1
    ffn_hidden_size: Count | None = None
    seq_length: Count
    vocab_size: Count | None = None
    swiglu: bool = False
    normalization: Literal["LayerNorm", "RMSNorm"] = "LayerNorm"
    position_embedding_type: Literal["learned_absolute", "rope", "mrope", "relative", "none"] = "learned_absolute"
    use_rotary_position_embeddings: bool = False
    untie_embeddings_and_output_weights: bool = False
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)
    num_experts: Count | None = None
    moe_router_topk: Count = 2
    moe_ffn_hidden_size: Count | None = None
    micro_batch_size: Count
    global_batch_size: Count
    tensor_model_parallel_size: Count = 1
    pipeline_model_parallel_size: Count = 1
    context_parallel_size: Count = 1
    cp_comm_type: Literal["p2p", "a2a", "allgather", "a2a+p2p"] = "p2p"
    expert_model_parallel_size: Count = 1
    expert_tensor_parallel_size: Count | None = None
    sequence_parallel: bool = False
    tp_comm_overlap: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    no_overlap_p2p_communication: bool = False
    num_layers_per_virtual_pipeline_stage: Count | None = None
    num_virtual_stages_per_pipeline_rank: Count | None = None
    decoder_first_pipeline_num_layers: Count | None = None
    decoder_last_pipeline_num_layers: Count | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    recompute_granularity: Literal["full", "selective"] | None = None
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_num_layers: Count | None = None
    recompute_modules: Annotated[
        tuple[Literal["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"], ...], BeforeValidator(_listed)
    ] = ("core_attn",)
    attention_backend: Literal["flash", "fused", "unfused", "local", "auto"] = "auto"
    use_flash_attn: bool = False
    use_distributed_optimizer: bool = False
    use_megatron_fsdp: bool = False
    data_parallel_sharding_strategy: Literal["no_shard", "optim", "optim_grads", "optim_grads_params"] = "no_shard"
    num_distributed_optimizer_instances: Count = 1
    bf16: bool = False
    fp16: bool = False
    grad_reduce_in_bf16: bool = False
    accumulate_allreduce_grads_in_fp32: bool = False
    fp8_format: Literal["e4m3", "hybrid"] | None = None
    fp8_recipe: Literal["tensorwise", "delayed", "mxfp8", "blockwise"] = "delayed"

    @property
    def split_layers(self) -> int:
        """Layers that stages share out equally, with an embedding and a loss that count as one each."""
        counted = self.account_for_embedding_in_pipeline_split, self.account_for_loss_in_pipeline_split
        return self.num_layers + sum(counted)

    @property
    def stage_layers(self) -> int:
        """Layers of a stage, at most."""
        return -(-self.split_layers // self.pipeline_model_parallel_size)

    @property
    def chunk_layers(self) -> int:
        """Layers of a chunk of a stage, at most."""
        chunks = self.num_virtual_stages_per_pipeline_rank or 1
        return self.num_layers_per_virtual_pipeline_stage or self.stage_layers // chunks

    @property
    def uneven(self) -> bool:
        """Whether stages have not equally many layers."""
        said = self.decoder_first_pipeline_num_layers, self.decoder_last_pipeline_num_layers
        uneven = self.num_layers % self.pipeline_model_parallel_size or self.split_layers > self.num_layers
        return bool(uneven) or said != (None, None)

    @property
    def checkpoint_every(self) -> int:
        """Layers behind each checkpoint, by the uniform method."""
        uniform = self.recompute_granularity == "full" and self.recompute_method != "block"
        return (self.recompute_num_layers or 1) if uniform else 1

    @property
    def ffn(self) -> int:
        """Features inside a feed-forward, or inside an expert."""
        dense = self.ffn_hidden_size or 4 * self.hidden_size
        return dense if self.num_experts is None else self.moe_ffn_hidden_size or dense


def option(field: str) -> str:
    """What an option is called that a field holds.

    Examples
    --------
    >>> option("num_layers")
    '--num-layers'
    """
    return "--" + field.replace("_", "-")


def words_of(path: str | Path) -> dict[str, Any]:
    """Options and their values, by name without dashes in front; true of those without a value.

    A file that ends in ``.yaml``, ``.yml`` or ``.json`` maps names to values; any other one has shell words, with
    comments behind ``#`` and lines that end in a backslash.
    """
    file, name = Path(path), str(path)
    if file.suffix.lower() in (".yaml", ".yml", ".json"):
        given = {str(key).removeprefix("--").replace("_", "-"): value for key, value in load_strict(file).items()}
        return {key: value for key, value in given.items() if value is not False and value is not None}
    try:
        text = file.read_text(encoding="utf-8")
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no text in UTF-8"
        refuse(name, f"cannot be read: {reason}", "name a file of arguments")
    except ValueError as error:
        refuse(name, f"cannot be read as shell words: {error}", "close the quotation")
    return _options(words, name)


def _options(words: list[str], name: str) -> dict[str, Any]:
    """Options of shell words: what follows one up to the next is its value, or its values."""
    found: dict[str, list[str]] = {}
    last: list[str] | None = None
    issues = []
    for word in words:
        key, equals, value = word.partition("=")
        if _WORD.fullmatch(key):
            key = key.removeprefix("--").replace("_", "-")
            if key in found:
                issues.append(Issue(f"$.{key}", "found twice", "keep one of them"))
            last = found[key] = [value] if equals else []
        elif last is None:
            issues.append(Issue("$", f"found {shown(word)}, expected an option such as --num-layers", "take it out"))
        else:
            last.append(word)
    if issues:
        raise DocumentError(name, issues)
    many = {key: [parse_scalar(value) for value in values] for key, values in found.items()}
    return {key: values[0] if len(values) == 1 else values or True for key, values in many.items()}


def read(path: str | Path) -> tuple[Arguments, list[str]]:
    """The arguments, and the options that are not read; one `DocumentError` with all that is wrong or cannot be said.

    Source of what none of them says: Megatron-LM derives a global batch of one microbatch from the number of chips,
    which no argument has, so that it must be there.
    """
    given = words_of(path)
    issues = [
        Issue(f"$.{key}", f"found {what}, which is not read", "leave it out to ask what a step costs without it")
        for key, what in REFUSED.items()
        if key in given
    ]
    known = {option(field).removeprefix("--"): field for field in Arguments.model_fields}
    data = {known[key]: value for key, value in given.items() if key in known}
    try:
        found = Arguments.model_validate(data)
    except ValidationError as error:
        wrong = issues_of(Arguments, data, error)
        raise DocumentError(str(path), [*issues, *(_as_option(issue) for issue in wrong)]) from None
    issues += _disagreements(found)
    if issues:
        raise DocumentError(str(path), issues)
    return found, [f"--{key}" for key in given if key not in known]


def _as_option(issue: Issue) -> Issue:
    """An issue of a field, about the option that it holds."""
    name = issue.where.replace("_", "-")
    missing = issue.message == "the key is missing"
    return Issue(name, "it is missing", f"add --{name[2:]}") if missing else Issue(name, issue.message, issue.remedy)


def _unsplit(a: Arguments, issue: Callable[[str, str, str], Issue]) -> Iterator[Issue]:
    """What an embedding and a loss that count as layers do not go with."""
    for field in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
        if not getattr(a, field):
            continue
        name, stages = field.replace("_", "-"), a.pipeline_model_parallel_size
        if a.vocab_size is None:
            yield issue(name, "it without --vocab-size, so that no embedding and logits are drawn", "add --vocab-size")
        elif a.decoder_first_pipeline_num_layers or a.decoder_last_pipeline_num_layers:
            yield issue(name, "it beside layers of the first or the last stage", "keep one of them")
        elif stages == 1 or a.split_layers % stages:
            yield issue(name, f"{a.split_layers} layers with it on {stages} stages", "a multiple of several stages")


def _disagreements(a: Arguments) -> Iterator[Issue]:
    """What Megatron-LM itself would refuse, or what there is no plan for."""

    def issue(field: str, message: str, remedy: str) -> Issue:
        return Issue(f"$.{field}", f"found {message}", remedy)

    cp, ep = a.context_parallel_size, a.expert_model_parallel_size
    if ep > 1 and cp > 1 and ep != cp:
        yield issue("expert-model-parallel-size", f"{ep} beside a context-parallel size of {cp}: both are on one axis",
                    "make them equal, or one of them 1")  # fmt: skip
    if ep > 1 and (a.num_experts is None or a.num_experts % ep):
        experts = a.num_experts or "no"
        yield issue("expert-model-parallel-size", f"{ep} for {experts} experts", "a divisor of --num-experts")
    if cp > 1 and a.cp_comm_type not in ("allgather", "p2p"):
        yield issue("cp-comm-type", f"{a.cp_comm_type}, which is not modelled", "write allgather or p2p")
    if a.expert_tensor_parallel_size not in (None, a.tensor_model_parallel_size):
        yield issue("expert-tensor-parallel-size", f"{a.expert_tensor_parallel_size}, of experts alone",
                    "leave it out: experts are split like the rest")  # fmt: skip
    if a.sequence_parallel and a.tensor_model_parallel_size == 1:
        yield issue("sequence-parallel", "it without tensor parallelism", "leave it out")
    if a.tp_comm_overlap and not a.sequence_parallel:
        yield issue("tp-comm-overlap", "it without --sequence-parallel", "add that, or leave it out")
    if a.overlap_param_gather and not a.overlap_grad_reduce:
        yield issue("overlap-param-gather", "it without --overlap-grad-reduce", "add that, or leave it out")
    if a.bf16 and a.fp16:
        yield issue("fp16", "it beside --bf16", "keep one of them")
    if a.grad_reduce_in_bf16 and a.accumulate_allreduce_grads_in_fp32:
        yield issue("grad-reduce-in-bf16", "it beside --accumulate-allreduce-grads-in-fp32", "keep one of them")
    if a.fp8_format and not a.bf16:
        yield issue("fp8-format", f"{a.fp8_format} without --bf16", "add --bf16")
    if a.checkpoint_every > 1 and (a.uneven or a.chunk_layers % a.checkpoint_every):
        told = f"{a.checkpoint_every} layers behind a checkpoint, where chunks of stages have {a.chunk_layers} at most"
        yield issue("recompute-num-layers", told, "a divisor of the layers of all chunks: they have equally many then")
    if a.global_batch_size % a.micro_batch_size:
        yield issue("global-batch-size", f"{a.global_batch_size}, no multiple of the microbatch", "a multiple of it")
    if a.group_query_attention and a.num_attention_heads % a.num_query_groups:
        yield issue("num-query-groups", f"{a.num_query_groups}", f"a divisor of {a.num_attention_heads}")
    if (chunk := a.num_layers_per_virtual_pipeline_stage) and a.split_layers % (chunk * a.pipeline_model_parallel_size):
        yield issue("num-layers-per-virtual-pipeline-stage", f"{chunk}: stages would differ", "a divisor")
    yield from _unsplit(a, issue)
    if a.use_megatron_fsdp and a.data_parallel_sharding_strategy == "no_shard" and a.use_distributed_optimizer:
        yield issue("data-parallel-sharding-strategy", "no_shard beside --use-distributed-optimizer", "write optim")
