"""Calculon's three files as they stand, in its own names and units; what is unknown, missing or no number is refused.

Source: github.com/calculon-ai/calculon, commit caa4b11 (Apache-2.0): `calculon/llm/llm.py`, `processor.py`,
`memory.py`, `network.py`, `system.py`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator

from dfopt.documents.base import Part, issues_of, problem
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
CurveShare = Annotated[float, Field(gt=0, le=1)]
F = TypeVar("F", bound=Part)


def _down_to_zero(curve: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    for at, ((size, _), (smaller, _)) in enumerate(pairwise(curve), 1):
        if smaller >= size:
            raise problem(f"found a size of {smaller:g} behind {size:g}", "list the largest first", f"$[{at}]")
    if curve[-1][0] != 0:
        message = f"the last row is for sizes of {curve[-1][0]:g} or more, so smaller ones have no share"
        raise problem(message, "end with a size of 0")
    return curve


CurveSize = Annotated[float, Field(ge=0)]
Curve = Annotated[
    tuple[tuple[CurveSize, CurveShare], ...], Field(min_length=1, max_length=1000), AfterValidator(_down_to_zero)
]
"""Least size and share, the largest first, down to a size of 0."""


class Application(Part):
    """Application file: a transformer of ``num_blocks`` equal blocks.

    Attributes
    ----------
    hidden : features, e.g. 12288
        Features of the residual stream of one token.
    feedforward : features, e.g. 49152
        Features inside the MLP of each block.
    seq_size : tokens, e.g. 2048
        Number of tokens of one sample.
    attn_heads : heads, e.g. 96
        Number of attention heads of each block.
    attn_size : features, e.g. 128
        Features of one attention head.
    num_blocks : blocks, e.g. 96
        Number of equal transformer blocks.

    Examples
    --------
    >>> Application(hidden=8, feedforward=32, seq_size=16, attn_heads=2, attn_size=4, num_blocks=3).num_blocks
    3
    """

    hidden: Count
    feedforward: Count
    seq_size: Count
    attn_heads: Count
    attn_size: Count
    num_blocks: Count


class Engine(Part):
    """A matrix or vector engine for one data type.

    Attributes
    ----------
    tflops : TFLOP/s, e.g. 312
        Peak rate of the engine.
    gflops_efficiency : GFLOP and share, e.g. [[128, 0.99], [0, 0.5]]
        Shares of the peak rate by the size of an operation, as pairs of the least GFLOP and the share.
    """

    tflops: Positive
    gflops_efficiency: Curve


class MemoryFile(Part):
    """A memory; one of 0 GiB does not exist.

    Attributes
    ----------
    GiB : GiB, e.g. 80
        Capacity of the memory. 0 means that the memory does not exist.
    GBps : GB/s, e.g. 2039
        Bandwidth of the memory of one processor.
    MB_efficiency : MB and share, e.g. [[100, 0.9], [0, 0.5]]
        Shares of the bandwidth by the size of a transfer, as pairs of the least MB and the share.
    """

    GiB: float = Field(ge=0)
    GBps: Positive
    MB_efficiency: Curve


class Ops(Part):
    """For each collective, the number of times that a tensor passes a link: (scalar, offset per 1/n).

    Attributes
    ----------
    p2p : no unit, e.g. [1.0, null]
        Factor by which a point-to-point transfer multiplies its data, and no offset.
    reduce_scatter : no unit, e.g. [1.0, -1.0]
        Factor by which a reduce-scatter multiplies its data, and the offset in n-ths.
    all_gather : no unit, e.g. [1.0, -1.0]
        Factor by which an all-gather multiplies its data, and the offset in n-ths.
    all_reduce : no unit, e.g. [2.0, -1.0]
        Factor by which an all-reduce multiplies its data, and the offset in n-ths.
    """

    p2p: tuple[Positive, None]
    reduce_scatter: tuple[Positive, float]
    all_gather: tuple[Positive, float]
    all_reduce: tuple[Positive, float]


class NetworkFile(Part):
    """A network of ``size`` processors.

    Attributes
    ----------
    bandwidth : GB/s, e.g. 300
        Bandwidth of the network for each processor.
    efficiency : share, e.g. 0.8
        Share of the bandwidth that messages sustain.
    size : processors, e.g. 8
        Number of processors that the network connects.
    latency : s, e.g. 0.00002
        Latency of one call of a collective.
    ops
        Factors and offsets of the data of each kind of communication.
    must_be_filled : e.g. true
        Whether a group of processors must use the network completely.
    processor_usage : share, e.g. 0.15
        Share of the processor that communication occupies while it overlaps with compute.
    """

    bandwidth: Positive
    efficiency: CurveShare
    size: Count
    latency: float = Field(ge=0)
    ops: Ops
    must_be_filled: bool
    processor_usage: float = Field(ge=0, lt=1)


class SystemFile(Part):
    """System file: a processor with its memories, and the networks between processors.

    Attributes
    ----------
    matrix : e.g. {float16: {tflops: 312, gflops_efficiency: [[0, 0.9]]}}
        Matrix engines of the processor, by data type.
    vector : e.g. {float16: {tflops: 78, gflops_efficiency: [[0, 0.9]]}}
        Vector engines of the processor, by data type.
    mem1
        Memory next to the processor.
    mem2
        Slower memory for offloaded data.
    processing_mode : e.g. no_overlap
        Overlap of compute and memory time. ``no_overlap``: they add up. ``roofline``: the longer one counts.
    networks
        Networks between processors, the fastest first.
    """

    matrix: dict[str, Engine] = Field(min_length=1)
    vector: dict[str, Engine] = Field(min_length=1)
    mem1: MemoryFile
    mem2: MemoryFile
    processing_mode: Literal["no_overlap", "roofline"]
    networks: tuple[NetworkFile, ...] = Field(max_length=8)


class Execution(Part):
    """Execution file: how an application runs on a system; all 23 fields are required.

    Attributes
    ----------
    num_procs : processors, e.g. 4096
        Number of processors that the execution uses.
    tensor_par : processors, e.g. 8
        Degree of tensor parallelism, as a number of chips.
    pipeline_par : processors, e.g. 8
        Degree of pipeline parallelism, as a number of chips.
    data_par : processors, e.g. 64
        Degree of data parallelism, as a number of chips.
    tensor_par_net : no unit, e.g. 0
        Number of the network that carries tensor parallelism.
    pipeline_par_net : no unit, e.g. 1
        Number of the network that carries pipeline parallelism.
    data_par_net : no unit, e.g. 1
        Number of the network that carries data parallelism.
    batch_size : samples, e.g. 4096
        Samples of one step, over all data-parallel replicas.
    microbatch_size : samples, e.g. 1
        Samples that a pipeline processes at a time.
    datatype : e.g. float16
        Data type in which the execution computes.
    fused_activation : e.g. false
        Whether the activation function is fused into the product before it.
    attention_type : e.g. multihead
        Kind of attention that the blocks use. ``multihead``: each head has its own keys and values. ``multiquery``: all
        heads share them.
    activation_recompute : e.g. attn_only
        Activation recomputation in the backward pass. ``full``: the whole block. ``attn_only``: attention. ``none``:
        nothing.
    pipeline_interleaving : chunks, e.g. 1
        Number of chunks of blocks in each pipeline stage.
    optimizer_sharding : e.g. true
        Whether data-parallel replicas shard the optimizer state.
    tensor_par_comm_type : e.g. ar
        Communication of tensor parallelism. ``ar``: all-reduces. ``p2p_rs_ag``: reduce-scatters and all-gathers around
        point-to-point transfers. ``rs_ag``: reduce-scatters and all-gathers everywhere, as with sequence parallelism.
    tensor_par_overlap : e.g. none
        Overlap of tensor-parallel communication with products. ``none``: no overlap. ``ring``: tile by tile. ``pipe``:
        after waiting for the first tile.
    seq_par_ag_redo : e.g. false
        Whether the backward pass gathers tensors again under sequence parallelism.
    data_par_overlap : e.g. true
        Whether gradient reduction overlaps with the backward pass.
    weight_offload : e.g. false
        Whether weights lie in the slower memory.
    activations_offload : e.g. false
        Whether stored activations lie in the slower memory.
    optimizer_offload : e.g. false
        Whether the optimizer state lies in the slower memory.
    training : e.g. true
        Whether the execution is a training step, not a forward pass.
    """

    num_procs: Count
    tensor_par: Count
    pipeline_par: Count
    data_par: Count
    tensor_par_net: int = Field(ge=0)
    pipeline_par_net: int = Field(ge=0)
    data_par_net: int = Field(ge=0)
    batch_size: Count
    microbatch_size: Count
    datatype: str
    fused_activation: bool
    attention_type: Literal["multihead", "multiquery"]
    activation_recompute: Literal["full", "attn_only", "none"]
    pipeline_interleaving: Count
    optimizer_sharding: bool
    tensor_par_comm_type: Literal["ar", "p2p_rs_ag", "rs_ag"]
    tensor_par_overlap: Literal["none", "ring", "pipe"]
    seq_par_ag_redo: bool
    data_par_overlap: bool
    weight_offload: bool
    activations_offload: bool
    optimizer_offload: bool
    training: bool

    @model_validator(mode="after")
    def _fits_together(self) -> Execution:
        chips = self.tensor_par * self.pipeline_par * self.data_par
        if chips != self.num_procs:
            message = f"found {self.num_procs}, but tensor_par x pipeline_par x data_par is {chips}"
            raise problem(message, "make them equal", "$.num_procs")
        if self.batch_size % (self.data_par * self.microbatch_size):
            message = f"found {self.batch_size}, no multiple of data_par x microbatch_size"
            raise problem(message, f"a multiple of {self.data_par * self.microbatch_size}", "$.batch_size")
        if self.pipeline_par == 1 and self.pipeline_interleaving > 1:
            message = f"found {self.pipeline_interleaving} without a pipeline"
            raise problem(message, "write 1", "$.pipeline_interleaving")
        if self.seq_par_ag_redo and self.tensor_par_comm_type != "rs_ag":
            message = f"found true beside tensor_par_comm_type {self.tensor_par_comm_type}, which gathers nothing"
            raise problem(message, "write false", "$.seq_par_ag_redo")
        return self


def read(kind: type[F], path: str | Path) -> F:
    """Read one of Calculon's files; `DocumentError` lists unknown keys, missing fields and invalid values."""
    data = load_strict(Path(path))
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise DocumentError(str(path), issues_of(kind, data, error)) from None
