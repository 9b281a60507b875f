"""Where every kernel runs: its sharding, pipeline stage, on-chip partition and tiles; and what a user fixes of that."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Document, Part
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.plan import Plan
from dfopt.errors import repeated
from dfopt.units import Ratio, Seconds

_EMPTY = 1000  # partitions or stages that may be empty, beside as many as there are kernels

Sharding = Literal["outer", "m", "k", "k>n", "n", "none", "even"]


class KernelMapping(Part):
    """Placement and sharding of one kernel.

    Attributes
    ----------
    name : e.g. FFN0
        Name of the kernel in its graph.
    sharding : e.g. m
        Axis of the kernel that the tensor-parallel chips share. ``outer``: heads or other independent matrices. ``m``:
        output features. ``k``: the contraction, followed by an all-reduce. ``k>n``: the contraction, followed by a
        reduce-scatter along the tokens. ``n``: tokens. ``none``: every chip computes all of it. ``even``: the workload
        itself spreads it.
    stage : no unit, e.g. 0
        Number of the pipeline stage. In a graph with repeated layers it is 0 for the layers, 1 for kernels before the
        first layer and 2 for kernels after the last.
    partition : no unit, e.g. 0
        Number of the on-chip partition within the stage. Partitions run one after another; kernels of one partition are
        fused.
    tiles : tiles, e.g. 12
        Number of compute tiles of the chip that the kernel gets.
    """

    name: str
    sharding: Sharding = "none"
    stage: int = Field(default=0, ge=0)
    partition: int = Field(ge=0)
    tiles: int = Field(default=1, ge=1)


class PartitionClock(Part):
    """Clock of a partition that runs below the nominal frequency to stay cool.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage to which the slower partition belongs.
    partition : no unit, e.g. 0
        Number of the partition that runs below the nominal frequency.
    frequency : e.g. 80 %
        Frequency of compute in this partition as a share of the nominal one. The memory keeps its own frequency.
    """

    stage: int = Field(default=0, ge=0)
    partition: int = Field(ge=0)
    frequency: Ratio = Field(gt=0, le=1)


class TokenBlocks(Part):
    """A partition that takes its tokens in blocks, one after another, and reads its weights again for each.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage of the partition.
    partition : no unit, e.g. 0
        Number of the partition within its stage.
    blocks : blocks, e.g. 4
        Number of blocks. With 1 all tokens are on the chip at a time, and weights pass by once.
    """

    stage: int = Field(default=0, ge=0)
    partition: int = Field(ge=0)
    blocks: int = Field(ge=1)


class Pause(Part):
    """Idle time at the end of every evaluation of a stage's kernels.

    Attributes
    ----------
    stage : no unit, e.g. 0
        Number of the pipeline stage that pauses.
    time : e.g. 2 ms
        Idle time at the end of every evaluation of the stage, so that the chip cools.
    """

    stage: int = Field(default=0, ge=0)
    time: Seconds = Field(gt=0)


class Mapping(Document):
    """A complete mapping of a graph onto a system: a plan, and sharding and partition of each kernel.

    Attributes
    ----------
    graph : e.g. gpt3-175b
        Name of the graph that is mapped.
    system : e.g. sn10-8-ring
        Name of the system on which the graph runs.
    plan : e.g. {microbatches: 16, layers_per_stage: 6}
        Degrees of parallelism, the network dims that carry them, and the shape of the pipeline.
    kernels
        Place of every kernel: its sharding, pipeline stage, on-chip partition and compute tiles.
    tile_count : tiles, e.g. 64
        Number of tiles into which the streamed axis is cut.
    token_blocks : e.g. [{partition: 0, blocks: 4}]
        Partitions that take their tokens in blocks and read their weights again for each. None: all partitions hold
        their weights on the chip.
    clocks : e.g. [{partition: 0, frequency: 0.8}]
        Partitions that run below the nominal frequency to keep the chip cool. None: all run at the nominal frequency.
    pauses : e.g. [{time: 2 ms}]
        Idle times of stages that keep the chip cool. None: no stage pauses.
    """

    SCHEMA: ClassVar[str] = "dfopt/mapping/1"

    graph: str
    system: str
    plan: Plan
    kernels: tuple[KernelMapping, ...] = Field(min_length=1)
    tile_count: int = Field(default=1, ge=1)
    token_blocks: tuple[TokenBlocks, ...] | None = None
    clocks: tuple[PartitionClock, ...] | None = None
    pauses: tuple[Pause, ...] | None = None

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        twice = sorted({name for _, name, _ in repeated(kernel.name for kernel in self.kernels)})
        if twice:
            raise ValueError(f"kernels are mapped twice: {', '.join(twice[:5])}; each kernel needs exactly one place")
        most = _EMPTY + len(self.kernels)
        if far := [kernel for kernel in self.kernels if max(kernel.partition, kernel.stage) >= most]:
            where = f"partition {far[0].partition} of stage {far[0].stage}"
            raise ValueError(f"kernel {far[0].name!r} is in {where}, expected numbers below {most}: others are empty")
        return self

    def __repr__(self) -> str:
        return f"Mapping({self.graph} on {self.system}, {self.plan.label}, {len(self.kernels)} kernels)"

    __str__ = __repr__

    @property
    def stages(self) -> int:
        """Number of distinct stages; 1 if one repeated layer stands for all and nothing runs before or after it."""
        return max(kernel.stage for kernel in self.kernels) + 1

    @property
    def blocks_by_partition(self) -> dict[tuple[int, int], int]:
        """Number of blocks of tokens by (stage, partition); partitions that store their weights are left out."""
        return {(entry.stage, entry.partition): entry.blocks for entry in self.token_blocks or ()}

    def partitions(self, stage: int = 0) -> list[list[str]]:
        """Kernel names of each partition of a stage in execution order; lists may be empty."""
        here = [kernel for kernel in self.kernels if kernel.stage == stage]
        names: list[list[str]] = [[] for _ in range(max((k.partition for k in here), default=-1) + 1)]
        for kernel in here:
            names[kernel.partition].append(kernel.name)
        return names


class Pins(Document, OnAxes):
    """Choices of a mapping that the user fixes; everything else is optimized.

    Attributes
    ----------
    p_max : partitions, e.g. 4
        Largest number of on-chip partitions of a stage. None: dfopt chooses.
    sharding : e.g. {FFN0: m}
        Sharding of kernels that you fix, by kernel name. ``outer``: heads or other independent matrices. ``m``: output
        features. ``k``: the contraction, followed by an all-reduce. ``k>n``: the contraction, followed by a
        reduce-scatter along the tokens. ``n``: tokens. ``none``: every chip computes all of it. ``even``: the workload
        itself spreads it. All other kernels stay free.
    partition : no unit, e.g. {FFN0: 2}
        On-chip partition of kernels that you fix, by kernel name. All other kernels stay free.
    """

    SCHEMA: ClassVar[str] = "dfopt/pins/1"

    p_max: int | None = Field(default=None, ge=1)
    sharding: dict[str, Sharding] = Field(default_factory=dict)
    partition: dict[str, int] = Field(default_factory=dict)
