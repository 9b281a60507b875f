"""Tables of efficiency: the shares of a chip's rates that kernels of some size sustain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from dfopt.documents.base import Part, problem
from dfopt.errors import Issue, did_you_mean
from dfopt.units import Bytes, Flop, Ratio

_OPS = {"matrix": (None, "matmul", "attention"), "vector": (None,), "memory": (None, "optimizer")}


class EfficiencyRow(Part):
    """A row of ``Chip.efficiency``: the share of a peak rate that kernels of some size sustain.

    All conditions are about one evaluation of one chip's shard of a kernel; a row without any is for all the
    rest. ``extent`` is compared with the smallest of rows (``outer * m``), columns (``n``) and, on the matrix
    unit, contraction (``k``). Rows of unit ``memory`` are about bytes: those that a partition moves to
    and from a memory, :func:`dfopt.physics.efficiency.bandwidth_share`.

    Attributes
    ----------
    unit : e.g. matrix
        Unit of the chip that the row is about. ``matrix``: matrix products. ``vector``: elementwise kernels.
        ``memory``: transfers between the chip and one of its off-chip memories.
    flop : e.g. 1 GFLOP
        Least work of one chip's shard for which the row applies. None: shards of any size.
    extent : elements, e.g. 128
        Smallest extent (rows, columns and, on the matrix unit, contraction) of one chip's shard from which the row
        applies. None: shards of any shape.
    bytes : e.g. 100 MB
        Least amount of data that a partition moves to and from a memory for which the row of unit memory applies. None:
        any amount.
    op : e.g. attention
        Operation that the row is limited to. ``matmul``: a product of two activations that runs as a kernel of its own.
        ``attention``: the same inside a fused attention kernel of a library. ``optimizer``: memory traffic of the
        optimizer step. None: all operations of the unit.
    memory : e.g. HBM
        Name of the off-chip memory that the row is about, on a chip with several. None: each of them.
    share : e.g. 0.7
        Share of the peak rate, or of the memory bandwidth, that the shards of this row sustain.

    Examples
    --------
    >>> large = EfficiencyRow(unit="memory", bytes=100e6, share=0.9)
    >>> EfficiencyRow(unit="memory", share=0.3).covers(large), large.covers(EfficiencyRow(unit="memory", share=0.3))
    (True, False)
    """

    unit: Literal["matrix", "vector", "memory"]
    flop: Flop | None = Field(default=None, gt=0)
    extent: int | None = Field(default=None, ge=2, le=10**15)
    bytes: Bytes | None = Field(default=None, gt=0)
    op: Literal["matmul", "attention", "optimizer"] | None = None
    memory: str | None = Field(default=None, min_length=1)
    share: Ratio = Field(gt=0, le=1)

    @property
    def conditions(self) -> bool:
        """Whether the row applies to some shards only."""
        return any(asked is not None for asked in (self.flop, self.extent, self.bytes, self.op))

    def covers(self, other: EfficiencyRow) -> bool:
        """Whether this row applies wherever another one does."""
        asks, theirs = ((row.flop or 0.0, row.extent or 1, row.bytes or 0.0) for row in (self, other))
        at_least = all(own <= its for own, its in zip(asks, theirs, strict=True))
        alike = self.memory in (None, other.memory) and self.op in (None, other.op)
        return self.unit == other.unit and alike and at_least

    @model_validator(mode="after")
    def _of_its_unit(self) -> Self:
        of_others = {"memory": ("flop", "extent"), "vector": ("bytes", "memory")}
        others = [*of_others.get(self.unit, ("bytes", "memory"))]
        others += ["op"] if self.op not in _OPS[self.unit] else []
        for name in others:
            if (value := getattr(self, name)) is not None:
                has = "bytes, memory and op: optimizer" if self.unit == "memory" else "flop and extent"
                words = f"{value:g}" if isinstance(value, int | float) else repr(value)
                raise problem(f"found {words} of unit {self.unit}", f"its rows have {has}: leave it out", f"$.{name}")
        return self


def efficiency_issues(rows: Sequence[EfficiencyRow], memories: Sequence[str]) -> Iterator[Issue]:
    """Problems in the efficiency table of a chip with these named memories (none: the single memory ``dram``)."""
    where = "$.chip.efficiency"
    for position, row in enumerate(rows):
        before = next((i for i, earlier in enumerate(rows[:position]) if earlier.covers(row)), None)
        if before is not None:
            message = f"never reached: {where}[{before}] comes first and applies to all that this row is for"
            remedy = "list the rows of a unit from the largest kernels down, or drop this one"
            yield Issue(f"{where}[{position}]", message, remedy)
        if row.memory is not None and row.memory not in memories:
            message = f"the chip has no memory {row.memory!r}" + ("" if memories else ", only dram")
            otherwise = f"its memories: {', '.join(memories)}" if memories else "leave it out"
            yield Issue(f"{where}[{position}].memory", message, did_you_mean(row.memory, memories, otherwise))
    for unit in ("matrix", "vector"):
        if not any(row.unit == unit and not row.conditions for row in rows):
            message = f"no row of the {unit} unit is without conditions, so some kernels would have no share"
            yield Issue(where, message, f"end with a row {{unit: {unit}, share: ...}} for all the rest")
    for name in {row.memory: None for row in rows if row.unit == "memory"}:
        of_memory = [row for row in rows if row.unit == "memory" and row.memory in (None, name)]
        if not any(not row.conditions for row in of_memory):
            of, key = ("", "") if name is None else (f" of {name!r}", f"memory: {name}, ")
            message = f"no row of the memory unit{of} is without conditions, so small transfers would have no share"
            yield Issue(where, message, f"end with a row {{unit: memory, {key}share: ...}} for all the rest")
