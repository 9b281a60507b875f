"""The machine: a chip with its memories, and the ordered network dimensions between chips."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from dfopt.documents.base import Named, Part
from dfopt.documents.dim_names import parts_of, split_part_name
from dfopt.documents.dtypes import Peaks
from dfopt.documents.efficiency import EfficiencyRow as EfficiencyRow
from dfopt.documents.efficiency import efficiency_issues
from dfopt.documents.html import facts_html, table_html
from dfopt.documents.memories import Dram as Dram
from dfopt.documents.memories import Memory as Memory
from dfopt.documents.memories import MemoryReserve, check_order
from dfopt.documents.memories import Sram as Sram
from dfopt.documents.network import IN_A_DIM as IN_A_DIM
from dfopt.documents.network import CollectiveFactor as CollectiveFactor
from dfopt.documents.network import Link as Link
from dfopt.documents.network import NetworkDim as NetworkDim
from dfopt.documents.network import Slices
from dfopt.documents.network import Tier as Tier
from dfopt.documents.stack import Stack
from dfopt.errors import Issue, SystemSpecError, repeated
from dfopt.units import FlopRate, Hertz, Ratio, Seconds, show_unit


def _form_of(peak: object) -> str:
    return "by type" if isinstance(peak, Mapping | Peaks) else "one rate"


Peak = Annotated[
    Annotated[FlopRate, Field(gt=0), Tag("one rate")] | Annotated[Peaks, Tag("by type")], Discriminator(_form_of)
]


class ChipBody(Part):
    """A chip without its off-chip memory, as in part files of chips.

    Attributes
    ----------
    name : e.g. h100-sxm
        Name of the chip, which tables show and calibrations refer to.
    execution : e.g. dataflow
        How the chip runs the kernels of a graph. ``dataflow``: several kernels may be fused into one on-chip partition.
        ``kernel_by_kernel``: one kernel runs after another.
    tiles : tiles, e.g. 132
        Number of compute tiles that dfopt can assign to kernels, such as SMs, PCUs or cores.
    peak : e.g. {bf16: 989 TFLOP/s, fp8: 1979 TFLOP/s}
        Dense peak rate of the whole chip, either one rate for all data types or one for each. None: 2 x lanes x stages
        x tiles x frequency.
    lanes : lanes, e.g. 32
        Width of the systolic array of one tile. None: the array is not described.
    stages : stages, e.g. 6
        Depth of the systolic array of one tile. None: the array is not described.
    frequency : e.g. 1.6 GHz
        Clock frequency of the compute tiles. None: not described.
    compute_utilization : e.g. 0.9
        Share of the peak rate that a kernel sustains under the assumption ``compute_model: fixed``.
    efficiency : e.g. [{unit: matrix, share: 0.7}, {unit: vector, share: 0.1}]
        Measured shares of the peak rate and of the memory bandwidth, by the size of a kernel. The first row of a unit
        that fits a kernel counts, so list large kernels first. None: the chip has no such table.
    hiding_share : share, e.g. 0.5
        Share of the compute rate that counts for how long products hide collectives (``tensor_overlap``). A chip that
        stands for several designs has the least of theirs; at 0 no hiding takes too long. None: 1.
    sram : e.g. {capacity: 320 MB}
        On-chip memory, which holds weights and the buffers between fused kernels.
    memory_reserve : e.g. {serving: 0.1, training: 0.05}
        Share of each memory that a model cannot use. It counts unless the assumptions give ``memory_reserve``. None:
        all memory is usable.
    price_usd : USD, e.g. 25000
        Price of one chip of this kind. None: unknown, so a system has no price.
    power_w : W, e.g. 700
        Power of one chip under load. None: unknown, so a system has no power.
    """

    name: str = Field(min_length=1)
    execution: Literal["dataflow", "kernel_by_kernel"] = "dataflow"
    tiles: int = Field(ge=1, le=10**7)
    peak: Peak | None = None
    lanes: int | None = Field(default=None, ge=1, le=10**6)
    stages: int | None = Field(default=None, ge=1, le=10**6)
    frequency: Hertz | None = Field(default=None, gt=0)
    compute_utilization: Ratio = Field(default=0.9, gt=0, le=1)
    efficiency: tuple[EfficiencyRow, ...] | None = Field(default=None, max_length=1000)
    hiding_share: float | None = Field(default=None, ge=0, le=1)
    sram: Sram
    memory_reserve: MemoryReserve | None = None
    price_usd: float | None = Field(default=None, ge=0)
    power_w: float | None = Field(default=None, ge=0)

    @property
    def peak_flops(self) -> float:
        """Peak rate of the chip, FLOP/s, for graphs without data types."""
        peak = self.peak.usual if isinstance(self.peak, Peaks) else self.peak or self._array_peak
        assert peak is not None  # the validator below saw to it
        return peak

    def reserved(self, trains: bool) -> float:
        """Share of memory that the chip's software reserves, in training or inference."""
        own = self.memory_reserve or MemoryReserve()
        return own.training if trains else own.serving

    def faster(self, factor: float) -> Self:
        """The chip with its clock, and all peak rates, multiplied by ``factor``."""
        peak = self.peak.times(factor) if isinstance(self.peak, Peaks) else self.peak_flops * factor
        return self.model_copy(update={"peak": peak, "frequency": (self.frequency or 0) * factor or None})

    @property
    def _array_peak(self) -> float | None:
        if self.lanes is None or self.stages is None or self.frequency is None:
            return None
        return 2.0 * self.lanes * self.stages * self.tiles * self.frequency

    @model_validator(mode="after")
    def _has_a_peak(self) -> Self:
        rebuilt = self._array_peak
        if self.peak is None and rebuilt is None:
            raise ValueError("the compute rate is missing: give either peak, or all of lanes, stages and frequency")
        if rebuilt is not None and abs(rebuilt - self.peak_flops) > 0.02 * self.peak_flops:
            raise ValueError(
                f"peak is {self.peak_flops:.4g} FLOP/s, but 2 x lanes x stages x tiles x frequency is {rebuilt:.4g};"
                " they must agree to 2 %, or leave one of them out"
            )
        return self


class ChipForm(ChipBody):
    """A chip in a system file, with off-chip memories that may still be missing.

    Attributes
    ----------
    dram : e.g. {bandwidth: 3.35 TB/s, capacity: 80 GB}
        Off-chip memory of a chip that has one. None: ``memories`` lists them.
    memories : e.g. [{name: HBM, bandwidth: 1.6 TB/s, capacity: 64 GB}, {name: DDR, bandwidth: 200 GB/s}]
        Off-chip memories of a chip that has several, fastest first. None: the chip has only ``dram``.
    """

    dram: Dram | None = None
    memories: tuple[Memory, ...] | None = Field(default=None, max_length=8)


class Chip(ChipForm):
    """One accelerator: ``tiles`` compute tiles, each a systolic array of ``lanes x stages`` units.

    ``peak`` is the dense rate of the whole chip, for all types or by type. It may be left out
    when lanes, stages and frequency are given: ``2 * lanes * stages * tiles * frequency``.

    Its off-chip memory is ``dram``, or ``memories`` if it has several: the fastest first.

    Examples
    --------
    >>> hbm, ddr = Memory(name="HBM", bandwidth=1.6e12, capacity=64e9), Memory(name="DDR", bandwidth=200e9)
    >>> chip = Chip(name="c", tiles=4, peak=1e12, sram=Sram(capacity=1e6), memories=(hbm, ddr))
    >>> list(chip.tiers), chip.fastest.capacity
    (['HBM', 'DDR'], 64000000000.0)
    """

    @property
    def tiers(self) -> dict[str, Dram]:
        """Off-chip memories by name, fastest first; a single one is ``dram``."""
        if self.dram is not None:
            return {"dram": self.dram}
        assert self.memories is not None  # the validator below saw to it
        first, *others = self.memories
        return {memory.name: memory for memory in self.memories} if others else {"dram": first}

    @property
    def named_tiers(self) -> dict[str, Dram]:
        """Off-chip memories by their everyday names."""
        return {"DRAM" if name == "dram" else name: memory for name, memory in self.tiers.items()}

    @property
    def fastest_tier(self) -> str:
        """Name of the fastest off-chip memory."""
        return next(iter(self.tiers))

    @property
    def fastest(self) -> Dram:
        """The fastest off-chip memory."""
        return next(iter(self.tiers.values()))

    def with_memories(self, change: Callable[[Dram], Dram]) -> Self:
        """The chip with ``change`` applied to every off-chip memory."""
        dram = None if self.dram is None else change(self.dram)
        memories = None if self.memories is None else tuple(change(memory) for memory in self.memories)
        return self.model_copy(update={"dram": dram, "memories": memories})

    @model_validator(mode="after")
    def _has_memories(self) -> Self:
        if self.dram is not None and self.memories is not None:
            raise ValueError("found both dram and memories, expected one of them: dram is the short form of one memory")
        if not self.dram and not self.memories:
            message = "memories is empty" if self.memories is not None else "the off-chip memory is missing"
            raise ValueError(f"{message}: give dram, or memories as a list of one or more, fastest first")
        check_order(self.memories or ())
        return self


_LARGEST = 1e40
"""In SI units; what is larger, or smaller than one over it, makes products that no number can be."""


def _extremes(data: Any, where: str) -> list[Issue]:
    """Numbers with which nothing can be computed."""
    if isinstance(data, Mapping | list | tuple):
        items = data.items() if isinstance(data, Mapping) else enumerate(data)
        at = "[{}]" if not isinstance(data, Mapping) else ".{}"
        return [issue for key, value in items for issue in _extremes(value, where + at.format(key))]
    if not isinstance(data, float | int) or not data or 1 / _LARGEST <= abs(data) <= _LARGEST:
        return []
    message = f"found {data:g} in SI units, expected 0 or a number from {1 / _LARGEST:g} to {_LARGEST:g}"
    return [Issue(where, message, "check the exponent, or leave the key out if there is no limit")]


def _at_stack(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A stack whose issues are told at its place in the system."""
    try:
        return handler(value)
    except SystemSpecError as error:
        issues = [Issue("$.stack" + issue.where[1:], issue.message, issue.remedy) for issue in error.issues]
        raise SystemSpecError(error.path, issues) from None


ChipStack = Annotated[Stack, WrapValidator(_at_stack)]


class Source(Named):
    """Base of documents that give a system: a system itself, or a design."""


class System(Source):
    """A machine of ``chips`` equal chips on a product of network dimensions.

    Attributes
    ----------
    chip : e.g. {name: c, tiles: 4, peak: 1 TFLOP/s, sram: {capacity: 1 MB}, dram: {bandwidth: 1 GB/s}}
        Chip of which the system has ``chips`` equal ones.
    network : e.g. [{name: node, topology: switch, size: 8, link_bandwidth: 450 GB/s}]
        Network dimensions between the chips, innermost first. Their sizes multiply to the number of chips. An empty
        list is a single chip.
    slices : e.g. [{topology: [ring, ring], sizes: [[4, 4], [4, 8]]}]
        Sizes in which the maker sells the system, for machines such as TPU pods. None: any size, except that rings and
        lines keep their own.
    scale_out : e.g. {bandwidth: 50 GB/s, latency: 2 us}
        Link from each chip to a switch between several systems of this kind. It makes systems larger than this one.
        None: there are no larger systems.
    collective_overhead : e.g. 5 us
        Time that software takes to start a collective of any size.
    stack
        Description of the chip as a stack of dies, for heat and the effective DRAM bandwidth. None: dfopt computes
        neither.
    """

    SCHEMA: ClassVar[str] = "dfopt/system/1"

    chip: Chip
    network: tuple[NetworkDim, ...] = Field(default=(), max_length=8)
    slices: tuple[Slices, ...] | None = Field(default=None, max_length=8)
    scale_out: Link | None = None
    collective_overhead: Seconds = Field(default=0.0, ge=0)
    stack: ChipStack | None = None

    @property
    def chips(self) -> int:
        """Number of chips: the product of the sizes of network dims."""
        return math.prod(dim.size for dim in self.network)

    def dim(self, name: str) -> NetworkDim:
        """The network dim of a name, a part of it (``x[8]``, ``x[4@8]``), or a block of parts."""
        if name not in self._parts:
            self._parts[name] = self._part(name)
        return self._parts[name]

    @cached_property
    def _parts(self) -> dict[str, NetworkDim]:
        return {}

    def _part(self, name: str) -> NetworkDim:
        if len(parts := parts_of([name])) > 1:
            if len({split_part_name(part)[0] for part in parts}) != 2 or len(parts) > 2:
                raise ValueError(f"found {name!r}, expected a block of parts of two network dims, such as x[4]+y[2]")
            return self.dim(parts[0]).around(self.dim(parts[1]))
        base, size, stride = split_part_name(name)
        dim = next((dim for dim in self.network if dim.name == base), None)
        if dim is None:
            have = ", ".join(dim.name for dim in self.network) or "none"
            raise ValueError(f"{self.name} has no network dim {base!r}; it has {have}")
        return dim if size is None else dim.part(size, stride)

    def __repr__(self) -> str:
        dims = " x ".join(f"{dim.topology} {dim.size}" for dim in self.network) or "no network"
        return f"System({self.name}: {self.chips} x {self.chip.name}, {dims})"

    __str__ = __repr__  # of a pydantic model it would be every field of every part

    def _repr_html_(self) -> str:
        chip = self.chip
        facts = [
            ("system", f"{self.name}: {self.description}" if self.description else self.name),
            ("chips", f"{self.chips} x {chip.name} ({chip.execution.replace('_', ' ')})"),
            ("compute", f"{show_unit(chip.peak_flops, 'flop_rate')} peak per chip, {chip.tiles} tiles"),
            ("SRAM", chip.sram.words),
            *((word, memory.words) for word, memory in chip.named_tiers.items()),
            *([("stack", self.stack.name)] if self.stack is not None else []),
        ]
        rows = [
            [dim.name, dim.topology.replace("_", " "), str(dim.size), show_unit(dim.link_bandwidth, "bandwidth"),
             show_unit(dim.latency, "time")]
            for dim in self.network
        ]  # fmt: skip
        return facts_html(facts) + table_html("Network", ("dim", "topology", "size", "link", "latency"), rows)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        rows, memories = self.chip.efficiency, [memory.name for memory in self.chip.memories or ()]
        issues = [
            *_dim_issues(self.network),
            *_slice_issues(self),
            *(efficiency_issues(rows, memories) if rows is not None else ()),
        ]
        if self.stack is not None and len(self.chip.tiers) > 1:
            message = f"found beside {len(self.chip.tiers)} memories of the chip, expected one: that of the stack"
            issues.append(Issue("$.stack", message, "leave the stack out, or give the chip one memory"))
        if issues:
            raise SystemSpecError(self.name, issues)
        return self

    @cached_property
    def extremes(self) -> tuple[Issue, ...]:
        """Issues of values so extreme that no time can be computed."""
        return tuple(_extremes(self.model_dump(mode="python", exclude={"stack"}), "$"))

    def check_extremes(self) -> None:
        """Raise an error for a machine with such extreme values.

        Raises
        ------
        SystemSpecError
            With the place of each.
        """
        if self.extremes:
            raise SystemSpecError(self.name, self.extremes)


def _dim_issues(network: tuple[NetworkDim, ...]) -> Iterator[Issue]:
    for position, name, first in repeated(dim.name for dim in network):
        message = f"network dim {name!r} is named twice, first as $.network[{first}]"
        yield Issue(f"$.network[{position}].name", message, "plans name dims, so each needs a name of its own")
    names = [dim.name for dim in network]
    for position, dim in enumerate(network):
        others = [name for name in names if name != dim.name]
        if dim.port_of is not None and dim.port_of not in others:
            message = f"found {dim.port_of!r}, expected another dim: {', '.join(others) or 'there is none'}"
            yield Issue(f"$.network[{position}].port_of", message, "name that dim, or leave it out")


def _slice_issues(system: System) -> Iterator[Issue]:
    for position, slices in enumerate(system.slices or ()):
        if {len(slices.topology), *map(len, slices.sizes)} != {len(system.network)}:
            message = f"expected a wiring and a size for each of the {len(system.network)} dims"
            yield Issue(f"$.slices[{position}]", message, "a dim that a slice does not have has size 1 there")
