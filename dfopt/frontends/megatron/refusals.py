"""What Megatron-LM refuses: arguments that do not fit together, by name.

Source: github.com/NVIDIA/Megatron-LM, ``megatron/training/arguments.py``, commit 000c4ac; of heads, experts and layers
of stages ``megatron-core`` 0.16.1, of PyPI (both Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from dfopt.errors import Issue
from dfopt.frontends.megatron.arguments import Arguments


def refusals(a: Arguments) -> Iterator[Issue]:
    """Issues of arguments that Megatron-LM would reject, or that no plan expresses."""

    def issue(field: str, message: str, remedy: str) -> Issue:
        return Issue(f"$.{field}", f"found {message}", remedy)

    yield from _unshared(a, issue)
    if a.no_position_embedding and a.position_embedding_type != "rope" and not a.use_rotary_position_embeddings:
        yield issue("no-position-embedding", "an older option", "write --position-embedding-type")
    if a.expert_tensor_parallel_size not in (None, a.tensor_model_parallel_size):
        yield issue("expert-tensor-parallel-size", f"{a.expert_tensor_parallel_size}, of experts alone",
                    "leave it out: experts are split like the rest")  # fmt: skip
    if a.tp_comm_overlap and (not a.sequence_parallel or a.tensor_model_parallel_size == 1):
        yield issue("tp-comm-overlap", "it without --sequence-parallel of several chips", "add that, or leave it out")
    if a.overlap_param_gather and not a.overlap_grad_reduce:
        yield issue("overlap-param-gather", "it without --overlap-grad-reduce", "add that, or leave it out")
    if a.overlap_param_gather and not (a.use_distributed_optimizer or a.use_megatron_fsdp):
        yield issue("overlap-param-gather", "it without --use-distributed-optimizer", "add that, or leave it out")
    if a.bf16 and a.fp16:
        yield issue("fp16", "it beside --bf16", "keep one of them")
    if a.grad_reduce_in_bf16 and a.accumulate_allreduce_grads_in_fp32:
        yield issue("grad-reduce-in-bf16", "it beside --accumulate-allreduce-grads-in-fp32", "keep one of them")
    if a.fp8_format and not a.bf16:
        yield issue("fp8-format", f"{a.fp8_format} without --bf16", "add --bf16")
    if a.checkpoint_every > 1 and (a.uneven or a.chunk_layers % a.checkpoint_every):
        text = f"{a.checkpoint_every} layers behind a checkpoint, where chunks of stages have {a.chunk_layers} at most"
        yield issue("recompute-num-layers", text, "a divisor of the layers of all chunks: they have equally many then")
    if a.global_batch_size % a.micro_batch_size:
        yield issue("global-batch-size", f"{a.global_batch_size}, no multiple of the microbatch", "a multiple of it")
    if a.group_query_attention and a.num_attention_heads % a.num_query_groups:
        yield issue("num-query-groups", f"{a.num_query_groups}", f"a divisor of {a.num_attention_heads}")
    yield from _unsplit(a, issue)
    yield from _unchunked(a, issue)
    yield from _undivided(a, issue)
    if a.use_megatron_fsdp and a.data_parallel_sharding_strategy == "no_shard" and a.use_distributed_optimizer:
        yield issue("data-parallel-sharding-strategy", "no_shard beside --use-distributed-optimizer", "write optim")


def _unshared(a: Arguments, issue: Callable[[str, str, str], Issue]) -> Iterator[Issue]:
    """Experts and contexts that chips cannot share out together."""
    cp, ep = a.context_parallel_size, a.expert_model_parallel_size
    if ep > 1 and cp > 1 and ep != cp:
        yield issue("expert-model-parallel-size", f"{ep} beside a context-parallel size of {cp}: both are on one axis",
                    "make them equal, or one of them 1")  # fmt: skip
    if ep > 1 and (a.num_experts is None or a.num_experts % ep):
        experts = a.num_experts or "no"
        yield issue("expert-model-parallel-size", f"{ep} for {experts} experts", "a divisor of --num-experts")
    if cp > 1 and a.cp_comm_type not in ("allgather", "p2p"):
        yield issue("cp-comm-type", f"{a.cp_comm_type}, which is not modelled", "write allgather or p2p")
    if a.num_experts and a.tensor_model_parallel_size > 1 and not a.sequence_parallel:
        yield issue("num-experts", "experts and tensor parallelism without --sequence-parallel", "add that")
    if a.fp16 and ep > 1:
        yield issue("fp16", "it beside expert parallelism", "write --bf16")


def _unsplit(a: Arguments, issue: Callable[[str, str, str], Issue]) -> Iterator[Issue]:
    """What an embedding and a loss that count as layers do not go with."""
    ends = [a.decoder_first_pipeline_num_layers, a.decoder_last_pipeline_num_layers]
    stages = a.pipeline_model_parallel_size
    counted = [name for name in ("embedding", "loss") if getattr(a, f"account_for_{name}_in_pipeline_split")]
    for name in counted:
        option, layers = f"account-for-{name}-in-pipeline-split", a.split_layers
        if a.vocab is None:
            message = "it without --vocab-size, so that no embedding and logits are drawn"
            yield issue(option, message, "add --vocab-size")
        elif any(ends):
            yield issue(option, "it beside layers of the first or the last stage", "keep one of them")
        elif stages == 1 or layers % stages:
            yield issue(option, f"{layers} layers with it on {stages} stages", "a multiple of several stages")


def _unchunked(a: Arguments, issue: Callable[[str, str, str], Issue]) -> Iterator[Issue]:
    """Layers that stages in the middle and chunks of stages cannot share out."""
    ends = [n for n in (a.decoder_first_pipeline_num_layers, a.decoder_last_pipeline_num_layers) if n is not None]
    stages, chunk = a.pipeline_model_parallel_size, a.num_layers_per_virtual_pipeline_stage
    counted = a.split_layers > a.num_layers
    inner, middle = a.num_layers - sum(ends), stages - len(ends)
    if not counted and (inner % middle if middle else inner):
        yield issue("num-layers", f"{inner} of {a.num_layers} on {middle} stages", "a multiple of them")
    elif chunk is not None and (a.num_virtual_stages_per_pipeline_rank is not None or ends):
        remedy = "keep --num-virtual-stages-per-pipeline-rank"
        yield issue("num-layers-per-virtual-pipeline-stage", "it beside other layers of stages or chunks", remedy)
    elif chunk is not None and a.split_layers % (chunk * stages):
        yield issue("num-layers-per-virtual-pipeline-stage", f"{chunk}: stages would differ", "a divisor")
    elif chunks := a.num_virtual_stages_per_pipeline_rank:
        each = [a.split_layers // stages] if counted else [inner // max(middle, 1), *ends]
        if any(layers % chunks for layers in each):
            yield issue("num-virtual-stages-per-pipeline-rank", f"{chunks} for stages of {each}", "a divisor of each")
    least = 3 if a.no_overlap_p2p_communication else 2
    if a.chunks > 1 and stages < least:
        yield issue("pipeline-model-parallel-size", f"{stages} beside chunks of layers", f"{least} stages at least")


def _undivided(a: Arguments, issue: Callable[[str, str, str], Issue]) -> Iterator[Issue]:
    """Sizes that chips cannot share out."""
    tensor = a.tensor_model_parallel_size
    if a.kv_channels is None and a.hidden_size % a.num_attention_heads:
        yield issue("hidden-size", f"{a.hidden_size} for {a.num_attention_heads} heads", "a multiple, or --kv-channels")
    for name, size in (("num-attention-heads", a.num_attention_heads), ("ffn-hidden-size", a.ffn)):
        if size % tensor:
            yield issue(name, f"{size} over {tensor} tensor-parallel chips", f"a multiple of {tensor}")
    if a.group_query_attention and a.num_query_groups % tensor and tensor % a.num_query_groups:
        message = f"{a.num_query_groups} over {tensor} tensor-parallel chips"
        yield issue("num-query-groups", message, f"a multiple or a divisor of {tensor}")
    parts = math.lcm(2 * a.context_parallel_size if a.context_parallel_size > 1 else 1,
                     a.context_parallel_size * tensor if a.sequence_parallel else 1)  # fmt: skip
    if a.seq_length % parts:
        message = f"{a.seq_length} over {a.context_parallel_size} context- and {tensor} tensor-parallel chips"
        yield issue("seq-length", message, f"a multiple of {parts}")
    if a.max_position_embeddings is not None and a.max_position_embeddings < a.seq_length:
        message = f"{a.max_position_embeddings} for {a.seq_length} tokens"
        yield issue("max-position-embeddings", message, f"at least {a.seq_length}")
