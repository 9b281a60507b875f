"""The options of Megatron-LM that say what a step of training is, and how it is shared out.

Source of names, types, choices and defaults: github.com/NVIDIA/Megatron-LM, ``megatron/training/arguments.py``, commit
000c4ac (Apache-2.0).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dfopt.documents.base import Part, problem

__all__ = ["Arguments"]


def _digits(value: Any) -> Any:
    """Whole numbers as argparse reads them: ``int("1e3")`` fails."""
    if isinstance(value, float):
        raise problem(f"found {value:g} with a point or an exponent, expected a whole number", "write all its digits")
    return value


Count = Annotated[int, BeforeValidator(_digits), Field(ge=1)]


def _listed(value: Any) -> Any:
    """Several words, also if there is one."""
    return (value,) if isinstance(value, str) else value


class Arguments(Part):
    """The options that say what a step of training is, and how it is shared out; ``options.yaml`` has the others.

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
    max_position_embeddings: Count | None = None
    vocab_size: Count | None = None
    padded_vocab_size: Count | None = None
    make_vocab_size_divisible_by: Count = 128
    swiglu: bool = False
    quick_geglu: bool = False
    normalization: Literal["LayerNorm", "RMSNorm"] = "LayerNorm"
    position_embedding_type: Literal["learned_absolute", "rope", "mrope", "none"] = "learned_absolute"
    use_rotary_position_embeddings: bool = False
    no_position_embedding: bool = False
    rotary_base: Count = 10000
    use_rope_scaling: bool = False
    rope_scaling_factor: float = Field(default=8.0, gt=0)
    qk_layernorm: bool = False
    disable_bias_linear: bool = False
    add_qkv_bias: bool = False
    untie_embeddings_and_output_weights: bool = False
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)
    num_experts: Count | None = None
    moe_router_topk: Count = 2
    moe_ffn_hidden_size: Count | None = None
    moe_token_dispatcher_type: Literal["allgather", "alltoall", "flex"] = "allgather"
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
    recompute_activations: bool = False
    recompute_granularity: Literal["full", "selective"] | None = None
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_num_layers: Count | None = None
    recompute_modules: Annotated[
        tuple[Literal["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"], ...], BeforeValidator(_listed)
    ] = ("core_attn",)
    attention_backend: Literal["flash", "fused", "unfused", "local", "auto"] = "auto"
    use_flash_attn: bool = False
    transformer_impl: Literal["local", "transformer_engine"] = "transformer_engine"
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
    fp8_param_gather: bool = False

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
    def chunks(self) -> int:
        """Chunks of layers in a stage."""
        if self.num_layers_per_virtual_pipeline_stage is not None:
            return self.stage_layers // self.num_layers_per_virtual_pipeline_stage
        return self.num_virtual_stages_per_pipeline_rank or 1

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
        """Features inside a feed-forward, or inside an expert; SwiGLU has two thirds of 4 x hidden, in whole 64s."""
        usual = int(4 * self.hidden_size * 2 / 3 / 64) * 64 if self.swiglu else 4 * self.hidden_size
        dense = self.ffn_hidden_size or usual
        return dense if self.num_experts is None else self.moe_ffn_hidden_size or dense

    @property
    def gated(self) -> bool:
        """Whether a feed-forward has a gate."""
        return self.swiglu or self.quick_geglu

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.num_query_groups if self.group_query_attention else self.num_attention_heads

    @property
    def rotary(self) -> bool:
        """Whether queries and keys are turned by their position."""
        return self.position_embedding_type in ("rope", "mrope")

    @property
    def vocab(self) -> int | None:
        """Rows of the embedding: those of the vocabulary, padded for tensor-parallel chips."""
        each = self.make_vocab_size_divisible_by * self.tensor_model_parallel_size
        return self.padded_vocab_size or (self.vocab_size and -(-self.vocab_size // each) * each)
