"""How the chips are shared out: degrees of parallelism and the network dims that carry them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from dfopt.documents.assumptions import TensorOverlap
from dfopt.documents.axes import AXES, AxisDegree, Dims, Splits, groups, keys
from dfopt.documents.base import Document
from dfopt.documents.copying import of_extra
from dfopt.documents.hybrid import Hybrid
from dfopt.documents.modules import Modules
from dfopt.documents.on_axes import OnAxes
from dfopt.documents.placement import Item, Placement

if TYPE_CHECKING:
    from dfopt.documents.graph import Graph
    from dfopt.documents.system import Chip


class Plan(Document, OnAxes):
    """Degrees of parallelism with their network dims, microbatches, schedule and ZeRO level.

    The degrees of all axes (:data:`dfopt.documents.axes.AXES`) multiply to the number of chips: ``tp * pp * dp``, one
    if left out. A dim that two axes share is named by its parts: ``x[8]`` are groups of eight neighbours, ``x[4@8]``
    groups of four chips that are eight apart. Collectives use the dims of an axis in their order, or run around the
    block of parts of two rings or lines: ``x[4]+y[2]`` is a ring of eight whose edges are single steps on the grid.

    ``microbatches`` is the number of microbatches of one pipeline per step, ``layers_per_stage`` the number of layers
    of its heaviest stage, ``interleave`` the number of chunks of consecutive layers in a stage (virtual stages of the
    interleaved 1F1B schedule). ``first_layers`` and ``last_layers`` are the layers of the first and of the last stage,
    if these have other work as well and therefore fewer layers, or none; with chunks, the layers are missing in the
    very first chunk and in the very last. ``placement`` gives the memory of each kind of data, for chips with several.
    ``two_batch_overlap``: a pipeline takes two microbatches at a time, halves of a batch, of which one communicates
    while the other computes. ``zero``: level of ZeRO, which decides the states that replicas partition
    (:mod:`dfopt.physics.copies`), and ``hybrid``, the groups that do so. ``recomputed``: number of layers of every
    stage, its first ones, that are recomputed in the backward pass, for a graph that draws both kinds
    (``Graph.recomputed``). ``tensor_overlap``: method by which products hide collectives, in place of that of the
    assumptions (:meth:`dfopt.documents.assumptions.Assumptions.hiding`).

    Attributes
    ----------
    microbatches : microbatches, e.g. 16
        Number of microbatches that one pipeline processes per step.
    layers_per_stage : layers, e.g. 6
        Number of layers in the heaviest pipeline stage.
    interleave : chunks, e.g. 2
        Number of chunks of consecutive layers that each pipeline stage holds (virtual stages of interleaved 1F1B). 1 is
        no interleaving.
    modules : e.g. {stream: n, mixer: n, dense: n, experts: outer, ends: n}
        Scheme by which each module shares its work over the chips of a module-wise parallel group (mp), as for expert
        parallelism. None: mp is 1.
    first_layers : layers, e.g. 7
        Number of layers in the first pipeline stage, which may have fewer because of the embedding. None:
        ``layers_per_stage``.
    last_layers : layers, e.g. 6
        Number of layers in the last pipeline stage, which may have fewer because of the logits. None:
        ``layers_per_stage``.
    placement : e.g. {optimizer: DDR}
        Memory in which each kind of data lies, on chips with several memories. None: all lies in the fastest one.
    two_batch_overlap : e.g. true
        Whether a pipeline takes two half-batches at a time, one of which communicates while the other computes. None:
        one microbatch at a time.
    zero : e.g. 1
        Data that data-parallel replicas shard instead of storing a copy each (ZeRO level). ``1``: the optimizer state.
        ``2``: also gradients. ``3``: also weights. None: nothing.
    hybrid : e.g. {replicas: 4, over: [node], across: [cluster]}
        Groups of data-parallel replicas that shard their data within a group only (HSDP). None: all replicas shard
        together.
    recomputed : layers, e.g. 3
        Number of layers of every stage, its first ones, that use activation recomputation, where the graph has layers
        of both kinds. None: as the graph says.
    tensor_overlap : e.g. ring
        Overlap of tensor-parallel collectives with the matrix products next to them, in place of the assumption of this
        name. ``none``: no overlap. ``ring``: tile by tile. ``pipe``: after waiting for the first tile. ``pipe_twice``:
        waiting twice, as Calculon counts. ``waves``: wave by wave of output tiles. None: as the assumption says.
    """

    SCHEMA: ClassVar[str] = "dfopt/plan/1"
    _FREE: ClassVar[tuple[Any, Any]] = (1, ())

    microbatches: int = Field(default=1, ge=1)
    layers_per_stage: int = Field(default=1, ge=1)
    interleave: int = Field(default=1, ge=1)
    modules: Modules | None = None
    first_layers: int | None = Field(default=None, ge=0)
    last_layers: int | None = Field(default=None, ge=0)
    placement: Placement | None = None
    two_batch_overlap: Literal[True] | None = None

    zero: Literal[1, 2, 3] | None = None

    hybrid: Hybrid | None = None
    recomputed: int | None = Field(default=None, ge=1)
    tensor_overlap: Literal["none"] | TensorOverlap | None = None

    @of_extra
    def axes(self) -> tuple[AxisDegree, ...]:
        """Degree and dims of each axis."""
        extra = self.__pydantic_extra__
        return tuple(AxisDegree(axis, extra.get(axis.name, 1), extra.get(axis.dims_key, ())) for axis in AXES.values())

    @property
    def request_fields(self) -> dict[str, Any]:
        """Request fields that fix these axes and module schemes.

        Examples
        --------
        >>> fields = Plan(tp=8, dp=2).request_fields
        >>> fields["tp"], fields["dp"], "modules" in fields
        (8, 2, False)
        """
        axes = {key: value for share in self.axes for key, value in zip(share.axis.keys, share[1:], strict=True)}
        return axes if self.modules is None else axes | {"modules": self.modules.schemes}

    def _degree(self, splits: Splits) -> int:
        extra = self.__pydantic_extra__
        return math.prod(extra.get(axis.name, 1) for axis in AXES.values() if axis.splits == splits)

    def _dims(self, splits: Splits) -> Dims:
        extra = self.__pydantic_extra__
        return tuple(name for axis in AXES.values() if axis.splits == splits for name in extra.get(axis.dims_key, ()))

    @of_extra
    def shards(self) -> int:
        """Number of chips that share the work of a kernel (tensor parallelism)."""
        return self._degree("kernels")

    @of_extra
    def members(self) -> int:
        """Number of chips on the second axis, over which modules are shared."""
        return self._degree("modules")

    @of_extra
    def member_dims(self) -> Dims:
        """Network dims of the second axis."""
        return self._dims("modules")

    @of_extra
    def stages(self) -> int:
        """Number of pipeline stages."""
        return self._degree("layers")

    @of_extra
    def copies(self) -> int:
        """Number of data-parallel replicas."""
        return self._degree("batch")

    @property
    def sharers(self) -> int:
        """Number of replicas over which ZeRO shards states: all, or those of one group."""
        return self.copies // (1 if self.hybrid is None else self.hybrid.replicas)

    @of_extra
    def shard_dims(self) -> Dims:
        """Network dims, or parts of dims, of tensor parallelism."""
        return self._dims("kernels")

    @of_extra
    def stage_dims(self) -> Dims:
        """Network dims of the pipeline."""
        return self._dims("layers")

    @of_extra
    def copy_dims(self) -> Dims:
        """Network dims of data parallelism."""
        return self._dims("batch")

    def variant(self, **fields: Any) -> Plan:
        """A copy with some fields replaced; equal requests on one plan return the same object."""
        key = tuple(fields.items())
        if key not in self._variants:
            self._variants[key] = self.model_copy(update=fields)
        return self._variants[key]

    @cached_property
    def _variants(self) -> dict[Hashable, Plan]:
        return {}

    def only(self, *splits: Splits, **fields: Any) -> Plan:
        """A plan that has only the axes of these kinds, and the given fields."""
        return Plan.saying(self.axis_values(*splits), **fields)

    @classmethod
    def saying(cls, values: Iterable[tuple[str, Any]], **fields: Any) -> Plan:
        """A plan with the axis values of another (:meth:`axis_values`), and the given fields."""
        return cls.model_construct(schema_=cls.SCHEMA, **dict(values), **fields)

    def axis_values(self, *splits: Splits) -> tuple[tuple[str, Any], ...]:
        """Document keys and values of the axes of these kinds."""
        extra = self.__pydantic_extra__
        return tuple((key, extra[key]) for key, (axis, _) in keys().items() if key in extra and axis.splits in splits)

    @property
    def pipeline(self) -> Plan:
        """The part of the plan that decides the layers and microbatches of stages; many plans share one object."""
        return _pipeline(self.stages, *_RUN(self.__dict__))

    @cached_property
    def apart_from_stages(self) -> Hashable:
        """Key of everything but how stages hold layers, in which thousands of plans may differ."""
        return (*_BUT_STAGES(self.__dict__), *self.said_of_axes)

    def held_by(self, shared_from: int | None, *, copied: bool = False) -> int:
        """Number of chips that jointly store data sharded from ZeRO level ``shared_from`` on.

        They are the data-parallel replicas; with ``copied`` also all chips of the second axis, for data that each of
        them would otherwise store.

        Examples
        --------
        >>> plan = Plan(dp=4, mp=8, zero=1)
        >>> plan.held_by(1), plan.held_by(1, copied=True), plan.held_by(2, copied=True)
        (4, 32, 1)
        """
        if shared_from is None or (self.zero or 0) < shared_from:
            return 1
        return self.sharers * (self.members if copied else 1)

    def share_held(self, shared_from: int | None, copied: float) -> float:
        """Share of such data on one chip, if a part ``copied`` of it is equal on all chips of the second axis."""
        return (1 - copied) / self.held_by(shared_from) + copied / self.held_by(shared_from, copied=True)

    def group(self, over: str) -> tuple[Dims, int]:
        """Network dims of a communication group, and the number of replicas in it.

        Examples
        --------
        >>> Plan(tp=8, dp=4, tp_dims=("x", "y"), dp_dims=("z",)).group("all")
        (('x', 'y', 'z'), 4)
        """
        if over not in self._known_groups:
            chosen, which = groups()[over]
            taken = [share for share in self.axes if share.axis in chosen]
            dims = tuple(name for share in taken for name in share.dims[which])
            copies = math.prod(share.degree for share in taken if share.axis.splits == "batch")
            self._known_groups[over] = dims, copies
        return self._known_groups[over]

    @of_extra
    def _known_groups(self) -> dict[str, tuple[Dims, int]]:
        return {}

    def sharing(self, over: str) -> int:
        """Number of chips that share a tensor communicated over such groups.

        Examples
        --------
        >>> Plan(tp=8, dp=4, tp_dims=("x", "y"), dp_dims=("z",)).sharing("tp_first")
        8
        """
        chosen, _ = groups()[over]
        return math.prod(share.degree for share in self.axes if share.axis in chosen and share.axis.splits != "batch")

    def label_of(self, splits: Splits) -> str:
        """Axes of one kind with their degrees as text, such as ``DP 8``."""
        taken = [share for share in self.axes if share.axis.splits == splits]
        return " x ".join(f"{axis.label} {n}" for axis, n, _ in taken if n > 1 or not axis.optional)

    def tier_of(self, item: Item | None, chip: Chip) -> str:
        """Memory of a chip in which an item is placed."""
        named = None if self.placement is None else self.placement.of(item)
        return chip.fastest_tier if named is None else named

    def refused(self, graph: Graph) -> dict[str, str]:
        """Reasons why a graph cannot use the degrees of some axes, by axis."""
        reasons = {axis.name: axis.refuses(graph, degree) for axis, degree, _ in self.axes if axis.refuses is not None}
        return {axis: reason for axis, reason in reasons.items() if reason}

    @property
    def stage_layers(self) -> tuple[int, int, int]:
        """Layers of the first stage, of each middle stage, and of the last stage."""
        first, most, last = self.first_layers, self.layers_per_stage, self.last_layers
        return most if first is None else first, most, most if last is None else last

    def chunk_layers(self, stage: int) -> tuple[int, ...]:
        """Layers of each chunk of a stage.

        Examples
        --------
        >>> plan = Plan(pp=4, layers_per_stage=8, interleave=2, first_layers=7, last_layers=6)
        >>> [plan.chunk_layers(stage) for stage in range(4)]
        [(3, 4), (4, 4), (4, 4), (4, 2)]
        """
        first, most, last = self.stage_layers
        layers = [most // self.interleave] * self.interleave
        if stage == 0:
            layers[0] -= most - first
        if stage == self.stages - 1:
            layers[-1] -= most - last
        return tuple(layers)

    @property
    def uneven(self) -> bool:
        """Whether the first or last stage has its own number of layers."""
        return self.first_layers is not None or self.last_layers is not None

    @property
    def at_once(self) -> int:
        """Number of microbatches that a pipeline takes together."""
        return 2 if self.two_batch_overlap else 1

    @property
    def rounds(self) -> int:
        """Number of rounds of a step, in each of which a pipeline takes :attr:`at_once` microbatches."""
        return self.microbatches // self.at_once

    @property
    def counts(self) -> dict[str, int]:
        """Columns of data frames: degrees of all axes, microbatches, layers and chunks of a stage."""
        degrees = {axis.name: degree for axis, degree, _ in self.axes}
        return degrees | {name: getattr(self, name) for name in ("microbatches", "layers_per_stage", "interleave")}

    def __repr__(self) -> str:
        return f"Plan({self.label}, {self.microbatches} microbatch{'es' * (self.microbatches != 1)})"

    __str__ = __repr__

    @property
    def label(self) -> str:
        """Short name, such as ``TP8(ring) PP1 DP1``, with the layers of the stages where they differ.

        Examples
        --------
        >>> Plan(pp=8, pp_dims=("x",), layers_per_stage=8, first_layers=7, last_layers=6).label
        'TP1 PP8(x) DP1 L7+8..8+6'
        """
        shown = (share for share in self.axes if not share.axis.optional or share.degree > 1)
        parts = [f"{axis.label}{degree}" + (f"({'*'.join(dims)})" if dims else "") for axis, degree, dims in shown]
        if self.modules is not None:
            parts.append(f"[{self.modules.label}]")
        if self.placement is not None and self.placement.elsewhere:
            parts.append(f"[{self.placement.label}]")
        if self.interleave > 1:
            parts.append(f"v{self.interleave}")
        if self.two_batch_overlap:
            parts.append("TBO")
        if self.zero:
            parts.append(f"ZeRO-{self.zero}" + (f"x{self.hybrid.replicas}" if self.hybrid else ""))
        if self.recomputed:
            parts.append(f"R{self.recomputed}")
        if self.tensor_overlap:
            parts.append(f"TP overlap {self.tensor_overlap}")
        if self.uneven:
            first, middle, last = self.stage_layers
            between = {2: "", 3: f"+{middle}"}.get(self.stages, f"+{middle}..{middle}")
            parts.append(f"L{first}{between}+{last}")
        return " ".join(parts)


NOTATION: Final = {
    "v": "interleave", "TBO": "two_batch_overlap", "ZeRO-": "zero", "R": "recomputed", "TP overlap ": "tensor_overlap",
    "L": "layers_per_stage",
}  # fmt: skip
"""How words of a label begin, behind those of the axes, and the field that each shows."""
_OF_STAGES = ("layers_per_stage", "first_layers", "last_layers", "interleave", "recomputed")
_OF_RUNS = (*_OF_STAGES, "microbatches", "two_batch_overlap")
_RUN = itemgetter(*_OF_RUNS)
_BUT_STAGES = itemgetter(*(name for name in Plan.model_fields if name not in _OF_STAGES))


@lru_cache(maxsize=1 << 14)
def _pipeline(stages: int, *run: Any) -> Plan:
    """One object for all plans with so many stages that say the same of :data:`_OF_RUNS`."""
    [axis, *_] = (axis for axis in AXES.values() if axis.splits == "layers")
    return Plan.saying([(axis.name, stages)], **dict(zip(_OF_RUNS, run, strict=True)))
