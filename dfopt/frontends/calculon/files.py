"""Calculon's three files as they stand, in its own names and units; what is unknown, missing or no number is refused.

Source: github.com/calculon-ai/calculon, commit caa4b11 (Apache-2.0): `calculon/llm/llm.py`, `processor.py`,
`memory.py`, `network.py`, `system.py`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from dfopt.documents.base import Part, issues_of, problem
from dfopt.documents.strict_yaml import load_strict
from dfopt.errors import DocumentError

__all__ = ["Application", "Engine", "Execution", "MemoryFile", "NetworkFile", "SystemFile", "read"]

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Curve = Annotated[tuple[tuple[Annotated[float, Field(ge=0)], Share], ...], Field(min_length=1, max_length=1000)]
"""Least size and share, the largest first, down to a size of 0."""
F = TypeVar("F", bound=Part)


def _check_curve(curve: Curve, where: str) -> None:
    for at, ((size, _), (smaller, _)) in enumerate(pairwise(curve), 1):
        if smaller >= size:
            message = f"found a size of {smaller:g} behind {size:g}"
            raise problem(message, "list the largest first", f"$.{where}[{at}]")
    if curve[-1][0] != 0:
        message = f"the last row is for sizes of {curve[-1][0]:g} or more, so smaller ones have no share"
        raise problem(message, "end with a size of 0", f"$.{where}")


class Application(Part):
    """A transformer of ``num_blocks`` equal blocks.

    Examples
    --------
    >>> Application(hidden=8, feedforward=32, seq_size=16, attn_heads=2, attn_size=4, num_blocks=3).num_blocks
    3
    """

    hidden: Count
    feedforward: Count
    seq_size: Count
    attn_heads: Count
    attn_size: Count = Field(description="features of a head")
    num_blocks: Count


class Engine(Part):
    """A matrix or vector engine that computes in one type."""

    tflops: Positive
    gflops_efficiency: Curve

    @model_validator(mode="after")
    def _whole(self) -> Engine:
        _check_curve(self.gflops_efficiency, "gflops_efficiency")
        return self


class MemoryFile(Part):
    """A memory; one of 0 GiB is not there."""

    GiB: float = Field(ge=0)
    GBps: Positive
    MB_efficiency: Curve

    @model_validator(mode="after")
    def _whole(self) -> MemoryFile:
        _check_curve(self.MB_efficiency, "MB_efficiency")
        return self


class Ops(Part):
    """Of each communication how many times the tensor passes a link: a scalar, and how many n-th more of it."""

    p2p: tuple[Positive, None]
    reduce_scatter: tuple[Positive, float]
    all_gather: tuple[Positive, float]
    all_reduce: tuple[Positive, float]


class NetworkFile(Part):
    """A network that ``size`` processors share."""

    bandwidth: Positive = Field(description="GB/s")
    efficiency: Share
    size: Count
    latency: float = Field(ge=0, description="s, of one call")
    ops: Ops
    must_be_filled: bool
    processor_usage: float = Field(ge=0, lt=1)


class SystemFile(Part):
    """A processor with its memories, and the networks between processors."""

    matrix: dict[str, Engine] = Field(min_length=1)
    vector: dict[str, Engine] = Field(min_length=1)
    mem1: MemoryFile
    mem2: MemoryFile
    processing_mode: Literal["no_overlap", "roofline"]
    networks: tuple[NetworkFile, ...] = Field(max_length=8)


class Execution(Part):
    """How an application runs on a system: 23 fields, all of them written."""

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
    """One of the files, or a `DocumentError` with every unknown key, missing field and value that cannot be."""
    data = load_strict(Path(path))
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise DocumentError(str(path), issues_of(kind, data, error)) from None
