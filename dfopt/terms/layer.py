"""What accounting rules read: the kernels of a layer on one chip, the schemes of each, and who reads what.

A layer is what one chip does in one evaluation: a setting under the part of a plan that decides it
(:attr:`dfopt.setting.instance.Instance.shared`), with its streamed axis cut into some number of tiles.

Suffixes: k kernel, o option of a kernel (a sharding scheme), l layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Sharding
from dfopt.documents.saved import beside_tensors
from dfopt.physics import ops
from dfopt.physics.collectives import Collective
from dfopt.physics.network import bytes_sent
from dfopt.setting.instance import Instance
from dfopt.setting.reads import by_reads
from dfopt.terms.by_kernel import depths, fanout_groups
from dfopt.terms.communication import between_shards_s
from dfopt.terms.conversions import LAYOUTS, gathered_late, readers_pay
from dfopt.terms.cycle import compute_menu
from dfopt.terms.working import Beside, beside_of

__all__ = ["FanOut", "Layer", "Reader", "Wanted", "keeps_saved"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A kernel that takes a tensor, as which of its operands, and how many tiles wait on the chip in between.

    ``late``: it belongs to the backward pass, for which what the forward pass saved is converted by itself.
    """

    kernel: int
    operand: int
    depth: float
    late: bool


@dataclass(frozen=True, slots=True)
class FanOut:
    """Tensors that are one output of a kernel: stored once, read once by every block.

    Attributes
    ----------
    source : int
        Kernel that makes it.
    readers
        Every kernel and operand that takes it, in the order of the tensors.
    whole : B
        Bytes of the whole tensor.
    elements : no unit
        Its elements.
    carried : bool
        Whether the next layer reads it, and not this one.
    saved : bool
        Whether the forward pass makes it and a later one reads it.
    kept : bool
        Whether it stays for the backward pass: it is saved, or its source says that it keeps it.
    """

    source: int
    readers: tuple[Reader, ...]
    whole: float
    elements: float
    carried: bool
    saved: bool
    kept: bool

    @property
    def kernels(self) -> tuple[int, ...]:
        """Kernels that read it, each once."""
        return tuple(dict.fromkeys(reader.kernel for reader in self.readers))


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Layouts that readers of a tensor want it in.

    Attributes
    ----------
    group : int
        Place of the tensor among the fan-outs of the layer.
    fan : FanOut
        The tensor.
    late : bool
        Whether they are those for which it is converted by itself in the backward pass.
    tolls : bool
        Whether every block of readers converts it; else the block that makes it does, for all of them.
    layouts_ko : int array, shape (options of the kernel,), by kernel
        What each reader wants: bit l stands for layout l.
    """

    group: int
    fan: FanOut
    late: bool
    tolls: bool
    layouts_ko: dict[int, Ints]

    @property
    def behind(self) -> tuple[int, ...]:
        """Kernels behind which the conversion may be hidden."""
        return () if self.tolls else tuple(self.layouts_ko)


@dataclass(frozen=True, eq=False)
class Layer:
    """The kernels of a layer on one chip.

    Attributes
    ----------
    instance
        Setting and plan; of the plan only what decides the work of a chip.
    tiles : no unit
        Tiles that the streamed axis is cut into.
    """

    instance: Instance
    tiles: int

    def at(self, tiles: int) -> Layer:
        """The layer with its streamed axis cut into another number of tiles."""
        return self if tiles == self.tiles else Layer(self.instance, tiles)

    @cached_property
    def memo(self) -> dict[str, Any]:
        """What others work out once of it."""
        return {}

    @cached_property
    def graph(self) -> Graph:
        """The workload as one chip of a second axis sees it."""
        return self.instance.graph

    @cached_property
    def assumptions(self) -> Assumptions:
        """The conventions of the setting, without any ``auto``: what the chip decides is filled in."""
        return self.instance.assumptions

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels in the order of the graph: the axis k."""
        return self.graph.kernels

    @cached_property
    def degree(self) -> int:
        """Chips that share the work of a kernel."""
        return self.instance.plan.shards

    @cached_property
    def rules(self) -> ops.Rules:
        """Which layouts a scheme needs."""
        return self.assumptions.sharding_rules

    @property
    def moves_tensors(self) -> bool:
        """Whether tensors between blocks pass through DRAM as one; else each kernel moves what it takes and makes."""
        return self.assumptions.operand_traffic is None

    @property
    def by_cycles(self) -> bool:
        """Whether kernels compute by the cycle model, in as many compute tiles as they have."""
        return self.assumptions.compute_model == "cycle"

    @property
    def at_one_rate(self) -> bool:
        """Whether all kernels compute at one rate, whatever their size."""
        return self.assumptions.compute_model == "fixed" and len(set(self.instance.setting.rate_k)) == 1

    @property
    def keeps_saved(self) -> bool:
        """Whether what is kept for the backward pass is counted as a state, which it is where gradients are kept."""
        return keeps_saved(self.graph, self.assumptions)

    @by_reads
    def schemes_k(self) -> tuple[tuple[Sharding, ...], ...]:
        """Schemes that each kernel may take: its options."""
        return tuple(ops.legal_schemes(kernel, self.degree, self.assumptions) for kernel in self.kernels)

    def by_option(self, kernel: int, figure: Callable[[Kernel, Sharding], float]) -> Floats:
        """A figure of one kernel under each of its options, shape (options,)."""
        return np.array([figure(self.kernels[kernel], scheme) for scheme in self.schemes_k[kernel]], dtype=np.float64)

    @by_reads
    def output_share_ko(self) -> tuple[Floats, ...]:
        """Share of every kernel's output that one chip holds, under each of its options."""
        return tuple(
            self.by_option(k, lambda kernel, scheme: ops.output_share(kernel, scheme, self.degree, self.rules))
            for k in range(len(self.kernels))
        )

    @by_reads
    def produced_ko(self) -> tuple[Ints, ...]:
        """Place among :data:`dfopt.terms.conversions.LAYOUTS` of every kernel's output, under each of its options."""
        return tuple(
            np.array([LAYOUTS.index(ops.PRODUCED[scheme]) for scheme in schemes], dtype=np.int64)
            for schemes in self.schemes_k
        )

    @by_reads
    def output_tile_k(self) -> Floats:
        """Share of every kernel's output in one tile."""
        return np.array([ops.tile_share(kernel, self.tiles) for kernel in self.kernels])

    @by_reads
    def menus_ko(self) -> tuple[tuple[tuple[Ints, Floats], ...], ...]:
        """Ways to run every kernel under each of its options by the cycle model.

        Each is a pair of arrays of shape (ways,): compute tiles that it takes, ascending, and the seconds of one
        evaluation that the kernel then takes.
        """
        return tuple(
            tuple(compute_menu(self.instance, kernel, scheme, self.tiles) for scheme in schemes)
            for kernel, schemes in zip(self.kernels, self.schemes_k, strict=True)
        )

    @cached_property
    def latency_l(self) -> Floats:
        """Seconds that a block may take to compute under the cycle model, ascending; empty under the others."""
        if not self.by_cycles:
            return np.zeros(0)
        return np.unique(np.concatenate([seconds for menus in self.menus_ko for _, seconds in menus]))

    @by_reads
    def fan_outs(self) -> tuple[FanOut, ...]:
        """All that kernels of the layer pass on, and what they hand to the next layer where that counts."""
        graph, index = self.graph, self.graph.index()
        depth_t, operand_t = depths(graph, self.assumptions), ops.operands(graph)
        kept_t = beside_tensors(graph)
        late_t, groups = gathered_late(graph, self.assumptions).tolist(), dict[int, list[int]]()
        for t, group in enumerate(fanout_groups(graph, self.assumptions).tolist()):
            groups.setdefault(group, []).append(t)
        found = []
        for places in groups.values():
            first = graph.tensors[places[0]]
            source = index[first.src]
            readers = tuple(Reader(index[graph.tensors[t].dst], operand_t[t], depth_t[t], late_t[t]) for t in places)
            backward = any(not self._is_forward(reader.kernel) for reader in readers)
            saved = self._is_forward(source) and backward
            kept = saved or (self.assumptions.fanout == "shared" and kept_t[places[0]])
            size, elements = graph.bytes_of(first), graph.elements_of(first)
            found.append(FanOut(source, readers, size, elements, carried=False, saved=saved, kept=kept))
        return (*found, *self.carried)

    @by_reads
    def carried(self) -> tuple[FanOut, ...]:
        """What kernels hand to the next layer, where that passes through DRAM."""
        graph, index, found = self.graph, self.graph.index(), []
        for tensor in graph.carried if self.assumptions.layer_boundary == "dram" else ():
            reader = Reader(index[tensor.dst], 1, 2.0, late=False)
            size, elements = graph.bytes_of(tensor), graph.elements_of(tensor)
            found.append(FanOut(index[tensor.src], (reader,), size, elements, carried=True, saved=False, kept=False))
        return tuple(found)

    def _is_forward(self, kernel: int) -> bool:
        return self.kernels[kernel].pass_ == "forward"

    @by_reads
    def ends_k(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """By kernel the inputs and outputs of the graph that it reads and writes, where these pass through DRAM.

        Of each which operand it is, 0 for the output, and its whole bytes.
        """
        ends: list[list[tuple[int, float]]] = [[] for _ in self.kernels]
        if self.assumptions.layer_boundary == "dram":
            for k, size in self.graph.writes():
                ends[k].append((0, size))
            for k, operand, size in self.graph.reads():
                ends[k].append((operand, size))
        return tuple(map(tuple, ends))

    @by_reads
    def beside(self) -> Beside:
        """What kernels keep beside tensors."""
        return beside_of(self.graph, self.assumptions)

    @by_reads
    def saved_k(self) -> tuple[tuple[float, ...], ...]:
        """By kernel the whole bytes of its outputs that the forward pass leaves for a later one."""
        saved: list[list[float]] = [[] for _ in self.kernels]
        for fan in self.fan_outs if self.graph.trains else ():  # elsewhere there is no other pass
            if fan.saved:
                saved[fan.source].append(fan.whole)
        return tuple(map(tuple, saved))

    @by_reads
    def passed_k(self) -> tuple[tuple[tuple[tuple[int, ...], float, float], ...], ...]:
        """By kernel the tensors between kernels that it writes and reads.

        Of each which operands it is, 0 for the output, its whole bytes, and its elements.
        """
        passed: list[list[tuple[tuple[int, ...], float, float]]] = [[] for _ in self.kernels]
        for fan in self.fan_outs:
            if not fan.carried:
                passed[fan.source].append(((0,), fan.whole, fan.elements))
                for k in fan.kernels:
                    operands = {reader.operand for reader in fan.readers if reader.kernel == k}
                    passed[k].append((tuple(sorted(operands)), fan.whole, fan.elements))
        return tuple(map(tuple, passed))

    @by_reads
    def wanted(self) -> tuple[Wanted, ...]:
        """What readers of tensors want of their layouts, those apart for which they are converted later."""
        if self.degree == 1:
            return ()
        pay, found = readers_pay(self.assumptions), []
        for (group, fan), late in itertools.product(enumerate(self.fan_outs), (False, True)):
            if layouts_ko := self._wanted_ko(fan, late=late):
                found.append(Wanted(group, fan, late, late and pay, layouts_ko))
        return tuple(found)

    def _wanted_ko(self, fan: FanOut, *, late: bool) -> dict[int, Ints]:
        found: dict[int, Ints] = {}
        for reader in fan.readers:
            if reader.late == late:
                kernel, schemes = self.kernels[reader.kernel], self.schemes_k[reader.kernel]
                layouts = [ops.required_layout(kernel, reader.operand, z, self.rules, fan.elements) for z in schemes]
                bits = np.array([1 << LAYOUTS.index(layout) for layout in layouts], dtype=np.int64)
                found[reader.kernel] = found.get(reader.kernel, np.zeros_like(bits)) | bits
        return found

    def conversion_s(self, one: Wanted) -> Floats:
        """Seconds to bring a tensor from one layout into all of a set of layouts.

        With sequence parallelism one all-gather serves all readers, who cut what they want from it: where one of them
        wants all of it, or where nothing else is faster.

        Parameters
        ----------
        one
            Of :attr:`wanted`.

        Returns
        -------
        float array, shape (3, 8)
            By layout that is there, and by the set of those that are wanted: bit l for layout l.
        """
        each_s, gather_s = self.each_conversion_s(one)
        if not self.assumptions.splits_tokens:
            return each_s
        least_s: Floats = np.where(_COUNTS[..., _GATHER] > 0, gather_s, np.minimum(each_s, gather_s))
        return least_s  # of none each takes none

    def conversion_sent(self, one: Wanted) -> Floats:
        """Bytes that a chip sends in what :meth:`conversion_s` takes the seconds of, shape (3, 8)."""
        sent = np.array([bytes_sent(kind, one.fan.whole, self.degree) for kind in _KINDS])
        each_s, gather_s = self.each_conversion_s(one)
        gathers = self.assumptions.splits_tokens & ((_COUNTS[..., _GATHER] > 0) | (gather_s < each_s))
        bytes_ls: Floats = np.where(gathers, sent[_GATHER], _COUNTS @ sent)
        return bytes_ls

    def each_conversion_s(self, one: Wanted) -> tuple[Floats, float]:
        """Seconds of one collective for each layout, from every layout into every set of them; of an all-gather."""
        fan, instance = one.fan, self.instance
        seconds = np.array(
            [between_shards_s(instance, kind, fan.whole, fan.source, one.late, one.behind) for kind in _KINDS]
        )
        each_s: Floats = _COUNTS @ seconds
        return each_s, float(seconds[_GATHER])


def keeps_saved(graph: Graph, assumptions: Assumptions) -> bool:
    """Whether what is kept for the backward pass is counted as a state, which it is where gradients are kept."""
    return graph.trains and assumptions.gradients == "exact"


def _collectives(made: ops.Layout, wanted: int) -> list[Collective]:
    """Collectives that bring a tensor from one layout into each of a set of layouts."""
    layouts = [layout for bit, layout in enumerate(LAYOUTS) if wanted >> bit & 1]
    return [kind for layout in layouts if (kind := ops.conversion(made, layout)) is not None]


_KINDS = tuple(dict.fromkeys(kind for made in LAYOUTS for kind in _collectives(made, (1 << len(LAYOUTS)) - 1)))
"""Collectives that some conversion needs."""
_GATHER = _KINDS.index(Collective.ALL_GATHER)
_SETS = range(1 << len(LAYOUTS))
_COUNTS = np.array(
    [[[_collectives(made, wanted).count(kind) for kind in _KINDS] for wanted in _SETS] for made in LAYOUTS], dtype=float
)
"""How many of each bring a tensor from a layout into a set of them, shape (layouts, sets, collectives)."""
