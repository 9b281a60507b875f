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
    """Where one kernel runs."""

    name: str
    sharding: Sharding = Field(
        default="none",
        description="axis split over the tensor-parallel chips; k>n: by k, with the output reduce-scattered along n",
    )
    stage: int = Field(
        default=0,
        ge=0,
        description="pipeline stage; of a repeated layer 0, whatever stage a repeat is in, of what runs before the"
        " first repeat 1, after the last 2",
    )
    partition: int = Field(ge=0, description="on-chip partition of its stage; partitions run one after another")
    tiles: int = Field(default=1, ge=1, description="compute tiles of the chip given to it")


class Clock(Part):
    """A partition that runs below the nominal frequency, to keep the chip cool."""

    stage: int = Field(default=0, ge=0)
    partition: int = Field(ge=0)
    frequency: Ratio = Field(gt=0, le=1, description="share of the nominal frequency of compute; memory keeps its own")


class Pause(Part):
    """Idle time at the end of every evaluation of a stage's kernels."""

    stage: int = Field(default=0, ge=0)
    time: Seconds = Field(gt=0)


class Mapping(Document):
    """A complete two-level mapping of a graph onto a system: a plan, and a place for each kernel."""

    SCHEMA: ClassVar[str] = "dfopt/mapping/1"

    graph: str
    system: str
    plan: Plan
    kernels: tuple[KernelMapping, ...] = Field(min_length=1)
    tile_count: int = Field(default=1, ge=1, description="tiles that the streamed axis is cut into")
    clocks: tuple[Clock, ...] | None = Field(default=None, description="partitions below the nominal frequency")
    pauses: tuple[Pause, ...] | None = Field(default=None, description="stages that wait to cool")

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

    @property
    def stages(self) -> int:
        """Number of distinct stages: 1 when one repeated layer stands for all and nothing runs before or after."""
        return max(kernel.stage for kernel in self.kernels) + 1

    def partitions(self, stage: int = 0) -> list[list[str]]:
        """Kernel names of each partition of a stage, in order of execution (may hold empty lists)."""
        here = [kernel for kernel in self.kernels if kernel.stage == stage]
        found: list[list[str]] = [[] for _ in range(max((k.partition for k in here), default=-1) + 1)]
        for kernel in here:
            found[kernel.partition].append(kernel.name)
        return found


class Pins(Document, OnAxes):
    """Choices made by hand; whatever is left out is optimised."""

    SCHEMA: ClassVar[str] = "dfopt/pins/1"

    p_max: int | None = Field(default=None, ge=1)
    sharding: dict[str, Sharding] = Field(default_factory=dict)
    partition: dict[str, int] = Field(default_factory=dict)
