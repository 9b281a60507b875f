"""The options of Megatron-LM that say what a step of training is, and how it is shared out.

Source of names, types, choices and defaults: github.com/NVIDIA/Megatron-LM, ``megatron/training/arguments.py``, commit
000c4ac (Apache-2.0).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dfopt.documents.base import Part, problem


def _digits(value: Any) -> Any:
    """Whole numbers as argparse reads them: ``int("1e3")`` fails."""
    if isinstance(value, float):
        raise problem(f"found {value:g} with a point or an exponent, expected a whole number", "write all its digits")
    return value


DigitCount = Annotated[int, BeforeValidator(_digits), Field(ge=1)]


def _listed(value: Any) -> Any:
    """Several words, also if there is one."""
    return (value,) if isinstance(value, str) else value


class Arguments(Part):
    """Megatron-LM options that describe a training step and its parallelism; ``options.yaml`` has the others.

    Attributes
    ----------
    num_layers : layers, e.g. 96
        Number of transformer layers of the model.
    hidden_size : features, e.g. 12288
        Features of the residual stream of one token.
    num_attention_heads : heads, e.g. 96
        Number of attention heads of each layer.
    kv_channels : features, e.g. 128
        Features of one attention head. None: hidden_size / num_attention_heads.
    group_query_attention : e.g. true
        Whether several query heads share keys and values.
    num_query_groups : heads, e.g. 8
        Number of heads of keys and of values, with group_query_attention.
    ffn_hidden_size : features, e.g. 49152
        Features inside the MLP. None: 4 x hidden_size, or two thirds of that with swiglu.
    seq_length : tokens, e.g. 2048
        Number of tokens of one sample.
    max_position_embeddings : positions, e.g. 2048
        Longest sequence that the model supports. None: not given.
    vocab_size : tokens, e.g. 51200
        Size of the vocabulary before padding. None: not given.
    padded_vocab_size : tokens, e.g. 51200
        Size of the vocabulary after padding. None: it follows from vocab_size.
    make_vocab_size_divisible_by : tokens, e.g. 128
        Number to whose multiple the vocabulary is padded for each tensor-parallel chip.
    swiglu : e.g. true
        Whether the MLP has a gate with the SiLU function.
    quick_geglu : e.g. true
        Whether the MLP has a gate with an approximate GeLU function.
    normalization : e.g. RMSNorm
        Normalization that the layers use. ``LayerNorm``: mean and variance. ``RMSNorm``: root mean square.
    position_embedding_type : e.g. rope
        Kind of position embedding. ``learned_absolute``: a learned table. ``rope``: rotary. ``mrope``: rotary in
        several dimensions. ``none``: no positions.
    use_rotary_position_embeddings : e.g. true
        Whether positions are rotary; an older form of position_embedding_type.
    no_position_embedding : e.g. true
        Whether the model has no learned position embedding.
    rotary_base : no unit, e.g. 10000
        Base of the rotary position embedding (theta).
    use_rope_scaling : e.g. true
        Whether rotary positions are scaled for long contexts as in Llama 3.1.
    rope_scaling_factor : no unit, e.g. 8.0
        Factor by which rotary positions are scaled for long contexts.
    qk_layernorm : e.g. true
        Whether queries and keys are normalized.
    disable_bias_linear : e.g. true
        Whether linear projections have no bias.
    add_qkv_bias : e.g. true
        Whether the projections of queries, keys and values have a bias.
    untie_embeddings_and_output_weights : e.g. true
        Whether the logits have a matrix of their own.
    attention_dropout : share, e.g. 0.1
        Share of attention scores that training drops.
    hidden_dropout : share, e.g. 0.1
        Share of hidden features that training drops.
    num_experts : experts, e.g. 8
        Number of experts of a layer. None: the MLP is dense.
    moe_router_topk : experts, e.g. 2
        Number of experts that the router selects for every token.
    moe_ffn_hidden_size : features, e.g. 14336
        Features inside one expert. None: those of the dense MLP.
    moe_token_dispatcher_type : e.g. alltoall
        Communication that sends tokens to experts. ``allgather``: all chips get all tokens. ``alltoall``: chips
        exchange the tokens that they need. ``flex``: DeepEP kernels.
    micro_batch_size : samples, e.g. 1
        Samples that a pipeline processes at a time.
    global_batch_size : samples, e.g. 1536
        Samples of one step, over all data-parallel replicas.
    tensor_model_parallel_size : chips, e.g. 8
        Degree of tensor parallelism, as a number of chips.
    pipeline_model_parallel_size : chips, e.g. 8
        Degree of pipeline parallelism, as a number of chips.
    context_parallel_size : chips, e.g. 1
        Degree of context parallelism, as a number of chips.
    cp_comm_type : e.g. p2p
        Communication of context parallelism. ``p2p``: keys and values travel along a ring. ``a2a``: heads are
        exchanged. ``allgather``: keys and values are gathered. ``a2a+p2p``: both, in two levels.
    expert_model_parallel_size : chips, e.g. 8
        Degree of expert parallelism, as a number of chips.
    expert_tensor_parallel_size : chips, e.g. 1
        Degree of tensor parallelism of experts. None: that of the other layers.
    sequence_parallel : e.g. true
        Whether tensor-parallel chips split norms and dropout along the tokens.
    tp_comm_overlap : e.g. true
        Whether tensor-parallel communication overlaps with products.
    overlap_grad_reduce : e.g. true
        Whether gradient reduction overlaps with the backward pass.
    overlap_param_gather : e.g. true
        Whether the all-gather of updated weights overlaps with the next forward pass.
    no_overlap_p2p_communication : e.g. true
        Whether transfers between pipeline stages do not overlap with compute.
    num_layers_per_virtual_pipeline_stage : layers, e.g. 4
        Number of layers in each chunk of a pipeline stage. None: stages are not interleaved by this option.
    num_virtual_stages_per_pipeline_rank : chunks, e.g. 2
        Number of chunks of layers in each pipeline stage. None: stages are not interleaved by this option.
    decoder_first_pipeline_num_layers : layers, e.g. 11
        Number of layers in the first pipeline stage. None: as many as in the others.
    decoder_last_pipeline_num_layers : layers, e.g. 11
        Number of layers in the last pipeline stage. None: as many as in the others.
    account_for_embedding_in_pipeline_split : e.g. true
        Whether the embedding counts as one layer when layers are distributed over stages.
    account_for_loss_in_pipeline_split : e.g. true
        Whether the loss counts as one layer when layers are distributed over stages.
    recompute_activations : e.g. true
        Whether the backward pass recomputes attention; short for selective recomputation.
    recompute_granularity : e.g. selective
        Granularity of activation recomputation. ``full``: whole layers. ``selective``: the modules of
        recompute_modules. None: no recomputation.
    recompute_method : e.g. uniform
        Method of full activation recomputation. ``uniform``: equal groups of layers. ``block``: the first layers of
        each stage. None: not given.
    recompute_num_layers : layers, e.g. 1
        Number of layers of each recomputed group, or of each stage with the method block. None: 1.
    recompute_modules : e.g. [core_attn]
        Modules that selective recomputation covers. ``core_attn``: attention scores. ``moe_act``: activations of
        experts. ``layernorm``: norms. ``mla_up_proj``: projections of latents. ``mlp``: dense MLPs. ``moe``: expert
        layers.
    attention_backend : e.g. auto
        Implementation of attention. ``flash``: FlashAttention. ``fused``: cuDNN. ``unfused``: separate kernels of
        Transformer Engine. ``local``: separate kernels of Megatron-LM. ``auto``: the fastest available.
    use_flash_attn : e.g. true
        Whether attention runs as FlashAttention.
    transformer_impl : e.g. transformer_engine
        Implementation of the layers. ``local``: Megatron-LM's own. ``transformer_engine``: NVIDIA Transformer Engine.
    use_distributed_optimizer : e.g. true
        Whether data-parallel replicas shard the optimizer state.
    use_megatron_fsdp : e.g. true
        Whether Megatron FSDP shards the model over replicas.
    data_parallel_sharding_strategy : e.g. optim_grads_params
        Data that Megatron FSDP shards over replicas. ``no_shard``: nothing. ``optim``: the optimizer state.
        ``optim_grads``: also gradients. ``optim_grads_params``: also weights.
    num_distributed_optimizer_instances : groups, e.g. 1
        Number of groups of replicas, each of which shards the optimizer state within itself.
    bf16 : e.g. true
        Whether training computes in bf16.
    fp16 : e.g. true
        Whether training computes in fp16.
    grad_reduce_in_bf16 : e.g. true
        Whether replicas add up gradients in bf16.
    accumulate_allreduce_grads_in_fp32 : e.g. true
        Whether gradients are accumulated and reduced in fp32.
    fp8_format : e.g. hybrid
        Format of fp8 training. ``e4m3``: E4M3 everywhere. ``hybrid``: E4M3 in the forward pass and E5M2 for gradients.
        None: no fp8.
    fp8_recipe : e.g. delayed
        Scaling of fp8 training. ``tensorwise``: one current scale per tensor. ``delayed``: scales of earlier steps.
        ``mxfp8``: blocks of 32. ``blockwise``: blocks of 128.
    fp8_param_gather : e.g. true
        Whether replicas gather sharded weights in fp8.

    Examples
    --------
    >>> sizes = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32}
    >>> Arguments(**sizes, micro_batch_size=1, global_batch_size=8).ffn
    256
    """

    num_layers: DigitCount
    hidden_size: DigitCount
    num_attention_heads: DigitCount
    kv_channels: DigitCount | None = None
    group_query_attention: bool = False
    num_query_groups: DigitCount = 1
    ffn_hidden_size: DigitCount | None = None
    seq_length: DigitCount
    max_position_embeddings: DigitCount | None = None
    vocab_size: DigitCount | None = None
    padded_vocab_size: DigitCount | None = None
    make_vocab_size_divisible_by: DigitCount = 128
    swiglu: bool = False
    quick_geglu: bool = False
    normalization: Literal["LayerNorm", "RMSNorm"] = "LayerNorm"
    position_embedding_type: Literal["learned_absolute", "rope", "mrope", "none"] = "learned_absolute"
    use_rotary_position_embeddings: bool = False
    no_position_embedding: bool = False
    rotary_base: DigitCount = 10000
    use_rope_scaling: bool = False
    rope_scaling_factor: float = Field(default=8.0, gt=0)
    qk_layernorm: bool = False
    disable_bias_linear: bool = False
    add_qkv_bias: bool = False
    untie_embeddings_and_output_weights: bool = False
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)
    num_experts: DigitCount | None = None
    moe_router_topk: DigitCount = 2
    moe_ffn_hidden_size: DigitCount | None = None
    moe_token_dispatcher_type: Literal["allgather", "alltoall", "flex"] = "allgather"
    micro_batch_size: DigitCount
    global_batch_size: DigitCount
    tensor_model_parallel_size: DigitCount = 1
    pipeline_model_parallel_size: DigitCount = 1
    context_parallel_size: DigitCount = 1
    cp_comm_type: Literal["p2p", "a2a", "allgather", "a2a+p2p"] = "p2p"
    expert_model_parallel_size: DigitCount = 1
    expert_tensor_parallel_size: DigitCount | None = None
    sequence_parallel: bool = False
    tp_comm_overlap: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    no_overlap_p2p_communication: bool = False
    num_layers_per_virtual_pipeline_stage: DigitCount | None = None
    num_virtual_stages_per_pipeline_rank: DigitCount | None = None
    decoder_first_pipeline_num_layers: DigitCount | None = None
    decoder_last_pipeline_num_layers: DigitCount | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    recompute_activations: bool = False
    recompute_granularity: Literal["full", "selective"] | None = None
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_num_layers: DigitCount | None = None
    recompute_modules: Annotated[
        tuple[Literal["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe"], ...], BeforeValidator(_listed)
    ] = ("core_attn",)
    attention_backend: Literal["flash", "fused", "unfused", "local", "auto"] = "auto"
    use_flash_attn: bool = False
    transformer_impl: Literal["local", "transformer_engine"] = "transformer_engine"
    use_distributed_optimizer: bool = False
    use_megatron_fsdp: bool = False
    data_parallel_sharding_strategy: Literal["no_shard", "optim", "optim_grads", "optim_grads_params"] = "no_shard"
    num_distributed_optimizer_instances: DigitCount = 1
    bf16: bool = False
    fp16: bool = False
    grad_reduce_in_bf16: bool = False
    accumulate_allreduce_grads_in_fp32: bool = False
    fp8_format: Literal["e4m3", "hybrid"] | None = None
    fp8_recipe: Literal["tensorwise", "delayed", "mxfp8", "blockwise"] = "delayed"
    fp8_param_gather: bool = False

    @property
    def split_layers(self) -> int:
        """Number of layers that stages share equally; an embedding and a loss may count as one each."""
        counted = self.account_for_embedding_in_pipeline_split, self.account_for_loss_in_pipeline_split
        return self.num_layers + sum(counted)

    @property
    def stage_layers(self) -> int:
        """Largest number of layers in a pipeline stage."""
        return -(-self.split_layers // self.pipeline_model_parallel_size)

    @property
    def chunk_layers(self) -> int:
        """Largest number of layers in a chunk of a stage."""
        chunks = self.num_virtual_stages_per_pipeline_rank or 1
        return self.num_layers_per_virtual_pipeline_stage or self.stage_layers // chunks

    @property
    def chunks(self) -> int:
        """Number of chunks in a stage."""
        if self.num_layers_per_virtual_pipeline_stage is not None:
            return self.stage_layers // self.num_layers_per_virtual_pipeline_stage
        return self.num_virtual_stages_per_pipeline_rank or 1

    @property
    def uneven(self) -> bool:
        """Whether stages have different numbers of layers."""
        ends = self.decoder_first_pipeline_num_layers, self.decoder_last_pipeline_num_layers
        uneven = self.num_layers % self.pipeline_model_parallel_size or self.split_layers > self.num_layers
        return bool(uneven) or ends != (None, None)

    @property
    def checkpoint_every(self) -> int:
        """Number of layers for each checkpoint, by the uniform method."""
        uniform = self.recompute_granularity == "full" and self.recompute_method != "block"
        return (self.recompute_num_layers or 1) if uniform else 1

    @property
    def ffn(self) -> int:
        """Features inside an MLP or expert; by default 4 x hidden, with SwiGLU two thirds of it in multiples of 64."""
        usual = int(4 * self.hidden_size * 2 / 3 / 64) * 64 if self.swiglu else 4 * self.hidden_size
        dense = self.ffn_hidden_size or usual
        return dense if self.num_experts is None else self.moe_ffn_hidden_size or dense

    @property
    def gated(self) -> bool:
        """Whether MLPs have a gate."""
        return self.swiglu or self.quick_geglu

    @property
    def groups(self) -> int:
        """Number of key and value heads."""
        return self.num_query_groups if self.group_query_attention else self.num_attention_heads

    @property
    def rotary(self) -> bool:
        """Whether positions are rotary."""
        return self.position_embedding_type in ("rope", "mrope")

    @property
    def vocab(self) -> int | None:
        """Rows of the embedding: those of the vocabulary, padded for tensor-parallel chips."""
        each = self.make_vocab_size_divisible_by * self.tensor_model_parallel_size
        return self.padded_vocab_size or (self.vocab_size and -(-self.vocab_size // each) * each)
