"""What accounting rules read: the kernels of a layer on one chip, the schemes of each, and who reads what.

A layer is what one chip does in one evaluation: a setting under the part of a plan that decides it
(:attr:`dfopt.setting.instance.Instance.shared`), with its streamed axis in some number of tiles. Kernels are numbered
as in the graph. Whole bytes are those of a tensor before any sharding.

Suffixes: k kernel, o option of a kernel (a sharding scheme), l layout (in ``latency_l`` a latency).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import beside_tensors
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.network import bytes_sent
from dfopt.setting.instance import Instance
from dfopt.setting.reads import by_reads, memoized
from dfopt.terms.by_kernel import depths, fanout_groups
from dfopt.terms.communication import between_shards_s, is_of_bytes
from dfopt.terms.conversions import LAYOUTS, gathered_late
from dfopt.terms.cycle import compute_menu
from dfopt.terms.working import KeptBytes, kept_bytes


@dataclass(frozen=True, slots=True)
class Reader:
    """A kernel that takes a tensor as one of its operands.

    ``kernel``: its index in the graph. ``operand``: 1 or 2. ``depth``: number of tiles of the tensor that wait in SRAM
    where one block (on-chip partition) has its source and this kernel. ``late``: true if this kernel is of a later
    pass and the tensor is converted again for it, as sequence parallelism saves the tensor in the layout that its
    source leaves (:func:`dfopt.terms.conversions.gathered_late`). False: all such readers share the conversions.
    """

    kernel: int
    operand: int
    depth: float
    late: bool


@dataclass(frozen=True, slots=True)
class FanOut:
    """One output of a kernel and the readers that share it: stored once, read once by each block (on-chip partition).

    Attributes
    ----------
    source : int
        Index in the graph of the kernel that makes it.
    readers : tuple of Reader
        Kernels and operands that take it, in the order of tensors. One if carried or under ``fanout: per_consumer``.
    bytes, elements : B, no unit
        Bytes, and number of elements, of the output or of the part that is read, for one microbatch, before sharding.
    carried : bool
        Whether the next layer reads it, and not this one.
    saved, kept : bool
        Saved: a forward kernel makes it and a later pass reads it. Kept: it stays in memory until the backward pass, as
        it is saved or, under ``fanout: shared``, its source states ``output_saved`` and no later pass reads it.
    """

    source: int
    readers: tuple[Reader, ...]
    bytes: float
    elements: float
    carried: bool
    saved: bool
    kept: bool

    @property
    def kernels(self) -> tuple[int, ...]:
        """Indices in the graph of the kernels that read this output, each kernel once, in the order of ``readers``."""
        return tuple(dict.fromkeys(reader.kernel for reader in self.readers))


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """A tensor with the layouts in which some of its readers need it: late readers, or all others.

    Attributes
    ----------
    group, fan : int, FanOut
        Place of the tensor in :attr:`Layer.fan_outs`, and the tensor.
    late : bool
        Whether the readers are the late ones (:class:`Reader`), for which the tensor has a conversion of its own.
    tolls : bool
        Blocks that pay. True: each block (on-chip partition) that has some of these readers. False: the block of the
        source.
    layouts_ko : dict of int array, shape (options of the kernel,), by kernel
        Set of layouts that each reader needs: bit l stands for layout l of :data:`~dfopt.terms.conversions.LAYOUTS`.
    """

    group: int
    fan: FanOut
    late: bool
    tolls: bool
    layouts_ko: dict[int, Ints]

    @property
    def behind(self) -> tuple[int, ...]:
        """Indices of kernels whose matrix multiplications may hide this conversion: the readers; none if ``tolls``."""
        return () if self.tolls else tuple(self.layouts_ko)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer as a chip runs it for one microbatch: kernels, their legal sharding schemes (*options*) and tensors.

    That is one evaluation of the graph. What ``by_reads`` decorates is an attribute, not called. ``instance``: setting
    and plan, of which only what decides the work of a chip is read. ``tiles``: how many the streamed axis is cut into.
    """

    instance: Instance
    tiles: int

    def at(self, tiles: int) -> Layer:
        """The layer with its streamed axis (mostly tokens) cut into ``tiles`` tiles; ``self`` if unchanged."""
        return self if tiles == self.tiles else Layer(self.instance, tiles)

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache for values that callers work out from this layer, by a name that they choose; empty at first."""
        return {}

    @cached_property
    def graph(self) -> Graph:
        """The workload; under a second parallel axis (``modules`` of the plan), the part that one chip of it has."""
        return self.instance.graph

    @cached_property
    def assumptions(self) -> Assumptions:
        """The conventions of the setting, resolved: no ``auto`` is left, as the chip's choice is filled in."""
        return self.instance.assumptions

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels in the order of the graph: the axis k."""
        return self.graph.kernels

    @cached_property
    def degree(self) -> int:
        """Number of tensor-parallel chips, which share the work of every kernel."""
        return self.instance.plan.shards

    @cached_property
    def rules(self) -> ops.Rules:
        """Layouts that schemes require: ``exact``, as arithmetic does, or ``dfmodel``, as DFModel's program does."""
        return self.assumptions.sharding_rules

    @property
    def moves_tensors(self) -> bool:
        """True if tensors between kernels of a partition stay on the chip; if not, all are read and written in DRAM."""
        return self.assumptions.operand_traffic is None

    @property
    def by_cycles(self) -> bool:
        """Whether ``compute_model`` is ``cycle``: seconds of a kernel depend on how many compute tiles it has."""
        return self.assumptions.compute_model == "cycle"

    @property
    def one_rate(self) -> bool:
        """Whether all kernels compute at one rate: ``compute_model: fixed``, and one peak FLOP/s for their types."""
        return self.assumptions.compute_model == "fixed" and len(set(self.instance.setting.rate_k)) == 1

    @by_reads
    def schemes_k(self) -> tuple[tuple[Sharding, ...], ...]:
        """Sharding schemes that each kernel may take, its options, in the order of kernels: at least one each."""
        return tuple(ops.legal_schemes(kernel, self.degree, self.assumptions) for kernel in self.kernels)

    @by_reads
    def output_share_ko(self) -> tuple[Floats, ...]:
        """Share of every kernel's output that one chip holds, by kernel: float arrays, shape (options,), at most 1."""
        pairs = zip(self.kernels, self.schemes_k, strict=True)
        return tuple(
            np.array([ops.output_share(kernel, scheme, self.degree, self.rules) for scheme in schemes], dtype=float)
            for kernel, schemes in pairs
        )

    @by_reads
    def produced_ko(self) -> tuple[Ints, ...]:
        """Layout of the output under each option, by kernel: 0 whole, 1 by features, 2 by tokens; shape (options,)."""
        return tuple(
            np.array([LAYOUTS.index(ops.PRODUCED[scheme]) for scheme in schemes], dtype=np.int64)
            for schemes in self.schemes_k
        )

    @by_reads
    def shares_rows_ko(self) -> tuple[Bools, ...]:
        """Options under which chips share the rows of every tile, by kernel: bool arrays, shape (options,)."""
        pairs = zip(self.kernels, self.schemes_k, strict=True)
        return tuple(np.array([ops.splits_tiles(kernel, scheme) for scheme in schemes]) for kernel, schemes in pairs)

    @by_reads
    def output_tile_k(self) -> Floats:
        """Share of every kernel's output in one tile: float array, shape (kernels,). 1 if tiles do not cut it."""
        return np.array([ops.tile_share(kernel, self.tiles) for kernel in self.kernels])

    @by_reads
    def menus_ko(self) -> tuple[tuple[tuple[Ints, Floats], ...], ...]:
        """Useful numbers of compute tiles for each kernel and option by the cycle model, and seconds with each number.

        Pairs of arrays, shape (numbers,): compute tiles, ascending; seconds of one evaluation, descending. It raises
        AssertionError if the chip lacks lanes, stages or frequency, SystemSpecError if it lacks a rate for a data type.
        """
        return tuple(
            tuple(compute_menu(self.instance, kernel, scheme, self.tiles) for scheme in schemes)
            for kernel, schemes in zip(self.kernels, self.schemes_k, strict=True)
        )

    @cached_property
    def latency_l(self) -> Floats:
        """Possible compute seconds of an on-chip partition, ascending: shape (levels,). Empty if not `by_cycles`."""
        if not self.by_cycles:
            return np.zeros(0)
        return np.unique(np.concatenate([seconds for menus in self.menus_ko for _, seconds in menus]))

    @by_reads
    def fan_outs(self) -> tuple[FanOut, ...]:
        """Outputs that kernels of this layer read, then those that the next layer reads: those of :attr:`carried`.

        Under ``fanout: shared`` all readers of an output, or of the same part of it, share an entry. Else each has one.
        """
        graph, index = self.graph, self.graph.index()
        depth_t, operand_t = depths(graph, self.assumptions), graph.operands()
        kept_t = beside_tensors(graph)
        late_t, groups = gathered_late(graph, self.assumptions).tolist(), dict[int, list[int]]()
        for t, group in enumerate(fanout_groups(graph, self.assumptions).tolist()):
            groups.setdefault(group, []).append(t)
        fan_outs = []
        for places in groups.values():
            first = graph.tensors[places[0]]
            source = index[first.src]
            readers = tuple(Reader(index[graph.tensors[t].dst], operand_t[t], depth_t[t], late_t[t]) for t in places)
            backward = any(not self._is_forward(reader.kernel) for reader in readers)
            saved = self._is_forward(source) and backward
            kept = saved or (self.assumptions.fanout == "shared" and kept_t[places[0]])
            size, elements = graph.bytes_of(first), graph.elements_of(first)
            fan_outs.append(FanOut(source, readers, size, elements, carried=False, saved=saved, kept=kept))
        return (*fan_outs, *self.carried)

    @by_reads
    def carried(self) -> tuple[FanOut, ...]:
        """Outputs that kernels hand to the next layer; empty if they cost nothing (``layer_boundary: free``)."""
        graph, index, fan_outs = self.graph, self.graph.index(), []
        for tensor in graph.carried if self.assumptions.layer_boundary == "dram" else ():
            reader = Reader(index[tensor.dst], 1, 2.0, late=False)
            size, elements = graph.bytes_of(tensor), graph.elements_of(tensor)
            fan_outs.append(FanOut(index[tensor.src], (reader,), size, elements, carried=True, saved=False, kept=False))
        return tuple(fan_outs)

    def _is_forward(self, kernel: int) -> bool:
        return self.kernels[kernel].pass_ == "forward"

    @by_reads
    def ends_k(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """Inputs and outputs of the graph that each kernel reads and writes, as pairs of operand and unsharded bytes.

        Operand 0 is the output of the kernel, 1 and 2 are its inputs. No kernel has any under ``layer_boundary: free``.
        """
        ends: list[list[tuple[int, float]]] = [[] for _ in self.kernels]
        if self.assumptions.layer_boundary == "dram":
            for k, size in self.graph.writes():
                ends[k].append((0, size))
            for k, operand, size in self.graph.reads():
                ends[k].append((operand, size))
        return tuple(map(tuple, ends))

    @by_reads
    def kept_bytes(self) -> KeptBytes:
        """Bytes that kernels keep in one evaluation in addition to tensors of the graph, such as dropout masks.

        Two dicts have bytes before sharding, by the name of a kernel: ``kept`` until the backward pass, ``working``
        only while the layer runs. Method ``on_chip``: bytes of one chip. False if no kernel can keep anything.
        """
        return kept_bytes(self.graph, self.assumptions)

    @by_reads
    def saved_k(self) -> tuple[tuple[float, ...], ...]:
        """Unsharded bytes of the outputs that each kernel saves for later passes; empty unless the graph trains."""
        saved: list[list[float]] = [[] for _ in self.kernels]
        for fan in self.fan_outs if self.graph.trains else ():  # elsewhere there is no other pass
            if fan.saved:
                saved[fan.source].append(fan.bytes)
        return tuple(map(tuple, saved))

    @by_reads
    def passed_k(self) -> tuple[tuple[tuple[tuple[int, ...], float, float], ...], ...]:
        """Tensors between kernels of this layer that each kernel writes or reads: triples (operands, bytes, elements).

        Operands are ``(0,)`` for a tensor that the kernel writes. For one that it reads they are ``(1,)``, ``(2,)``, or
        ``(1, 2)`` if both inputs are this tensor. Bytes and elements are those of one evaluation before any sharding.
        """
        passed: list[list[tuple[tuple[int, ...], float, float]]] = [[] for _ in self.kernels]
        for fan in self.fan_outs:
            if not fan.carried:
                passed[fan.source].append(((0,), fan.bytes, fan.elements))
                for k in fan.kernels:
                    operands = {reader.operand for reader in fan.readers if reader.kernel == k}
                    passed[k].append((tuple(sorted(operands)), fan.bytes, fan.elements))
        return tuple(map(tuple, passed))

    @by_reads
    def wanted(self) -> tuple[Wanted, ...]:
        """Layouts over tensor-parallel chips that readers need every output in, in the order of :attr:`fan_outs`.

        An output has an entry for its usual readers, then one for those of a later pass with a conversion of their own
        (*late*, :class:`Reader`). An entry without readers is left out. Empty without tensor parallelism.
        """
        if self.degree == 1:
            return ()
        pay, wanted = self.assumptions.backward_gathers is None, []  # every partition that reads it converts it again
        for (group, fan), late in itertools.product(enumerate(self.fan_outs), (False, True)):
            if layouts_ko := self._wanted_ko(fan, late=late):
                wanted.append(Wanted(group, fan, late, late and pay, layouts_ko))
        return tuple(wanted)

    def _wanted_ko(self, fan: FanOut, *, late: bool) -> dict[int, Ints]:
        layouts_ko: dict[int, Ints] = {}
        for reader in fan.readers:
            if reader.late == late:
                kernel, schemes = self.kernels[reader.kernel], self.schemes_k[reader.kernel]
                layouts = [ops.required_layout(kernel, reader.operand, z, self.rules, fan.elements) for z in schemes]
                bits = np.array([1 << LAYOUTS.index(layout) for layout in layouts], dtype=np.int64)
                layouts_ko[reader.kernel] = layouts_ko.get(reader.kernel, np.zeros_like(bits)) | bits
        return layouts_ko

    def conversion(self, wanted: Wanted) -> tuple[Floats, Floats]:
        """Seconds of one evaluation to bring a tensor from one layout into a set of them, and bytes sent: (3, 8).

        First axis of both: layout that the source leaves, by its number in :data:`~dfopt.terms.conversions.LAYOUTS`.
        Second: needed set, a number whose bit l is 1 if layout l is in it. ``wanted``: an entry of :attr:`wanted`, with
        its tensor. Seconds that matrix products hide are left out. Bytes are those that one chip sends. With sequence
        parallelism one all-gather serves all readers if one of them needs an all-gather anyhow, or if it is faster than
        a collective for each layout.
        """
        kernels = (0, False, ()) if is_of_bytes(self.assumptions) else (wanted.fan.source, wanted.late, wanted.behind)
        return self._conversion(wanted.fan.bytes, *kernels)

    @memoized
    def _conversion(self, size: float, source: int, late: bool, behind: tuple[int, ...]) -> tuple[Floats, Floats]:
        given = size, source, late, behind
        seconds = np.array([between_shards_s(self.instance, kind, *given) for kind in _KINDS])
        sent = np.array([bytes_sent(kind, size, self.degree) for kind in _KINDS])
        each_s, each_bytes = _COUNTS @ seconds, _COUNTS @ sent
        gathers = self.assumptions.splits_tokens & ((_COUNTS[..., _GATHER] > 0) | (seconds[_GATHER] < each_s))
        return np.where(gathers, seconds[_GATHER], each_s), np.where(gathers, sent[_GATHER], each_bytes)


def counts_training(graph: Graph, assumptions: Assumptions) -> bool:
    """Whether gradients, optimizer state and saved activations count in the memory of a chip.

    True if the graph trains (it has a backward pass or weight updates) and the assumption is ``gradients: exact``.
    """
    return graph.trains and assumptions.gradients == "exact"


def _collectives(produced: ops.Layout, wanted: int) -> list[Collective]:
    """Collectives that bring a tensor from one layout into each of a set of layouts."""
    layouts = [layout for bit, layout in enumerate(LAYOUTS) if wanted >> bit & 1]
    return [kind for layout in layouts if (kind := ops.conversion(produced, layout)) is not None]


_KINDS = tuple(dict.fromkeys(kind for layout in LAYOUTS for kind in _collectives(layout, (1 << len(LAYOUTS)) - 1)))
"""Collectives that some conversion needs."""
_GATHER = _KINDS.index(Collective.ALL_GATHER)
_SETS = range(1 << len(LAYOUTS))
_COUNTS = np.array(
    [[[_collectives(layout, wanted).count(kind) for kind in _KINDS] for wanted in _SETS] for layout in LAYOUTS], float
)
"""How many of each bring a tensor from a layout into a set of them, shape (layouts, sets, collectives)."""
