"""One mapping with everything looked up once: kernels by number, their shares of one chip, their fans."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Final, Literal

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import Mapping
from dfopt.documents.plan import Plan
from dfopt.documents.sections import Layers
from dfopt.documents.system import System
from dfopt.judge.members import seen_by_a_chip
from dfopt.judge.placed import Consumer, End, Fan, Place, Placed
from dfopt.judge.placing import Placing
from dfopt.judge.types import made_word, word
from dfopt.physics import library, operands, ops, pipeline

__all__ = [
    "LATER", "TERMS", "Case", "Consumer", "End", "Fan", "Place", "Placed", "Rank", "TimeTerm", "build", "totals",
]  # fmt: skip

LATER: Final = {"forward": ("recompute", "backward", "update"), "recompute": ("backward", "update")}
"""Passes behind those that make what is kept for a while."""


@dataclass(frozen=True)
class Rank:
    """A distinct pipeline stage: the first of several equal ones.

    Attributes
    ----------
    number, name : int, str
        Position in the pipeline, and name for messages.
    runs : dict
        Evaluations of each stage of the mapping, by its number, for one microbatch.
    alike : int
        Number of pipeline stages for which it stands.
    here : range
        Positions of its layers, in a folded graph.
    """

    number: int
    name: str
    runs: dict[int, int]
    alike: int = 1
    here: range = range(0)


@dataclass(frozen=True)
class Case:
    """A mapping with its documents and lookup tables for the judge; assumptions are resolved.

    Attributes
    ----------
    model, graph : Graph
        The given graph, and the graph of one chip of the second axis (the same graph without such an axis).
    system, plan, assume : System, Plan, Assumptions
        Machine, plan and resolved assumptions.
    tile_count : int
        Number of tiles of the streamed axis.
    kernels : tuple of Placed
        All kernels in their places.
    fans, carried : tuple of Fan
        Tensors between kernels, and those that layers carry to the next.
    members : dict
        Kernels of each partition, by place.
    clocks : dict
        Share of the nominal frequency, by place, of partitions below it.
    pauses : dict, s
        Pause after every evaluation, by stage of the mapping.
    token_blocks : dict
        Number of blocks of tokens, by place, of partitions that use them.
    ends : tuple of End
        Tensors that always pass through DRAM.
    """

    model: Graph
    graph: Graph
    system: System
    plan: Plan
    assume: Assumptions
    tile_count: int
    kernels: tuple[Placed, ...]
    fans: tuple[Fan, ...]
    carried: tuple[Fan, ...]
    members: dict[Place, list[int]]
    clocks: dict[Place, float] = field(default_factory=dict)
    pauses: dict[int, float] = field(default_factory=dict)
    token_blocks: dict[Place, int] = field(default_factory=dict)
    ends: tuple[End, ...] = ()

    @cached_property
    def tensors(self) -> tuple[Fan | End, ...]:
        """All tensors that partitions move or buffer, without data of single kernels."""
        return *self.fans, *self.ends

    @cached_property
    def layers(self) -> Layers:
        """Layers of a folded graph, with recomputed ones as the kinds that recompute."""
        return self.graph.layers.under(self.plan.stages, self.plan.stage_layers, self.plan.recomputed)

    def times_of(self, kernel: Kernel) -> int:
        """Number of evaluations of a kernel in the whole model, for one microbatch."""
        return self.layers.times(self.graph.kind_of(kernel)) if self.graph.folded else 1

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        """The distinct pipeline stages; a single one if one repeated layer stands for all stages."""
        return self._ranked[0]

    @cached_property
    def ran(self) -> tuple[int, ...]:
        """Numbers of the mapping's stages that some pipeline stage evaluates."""
        return tuple(dict.fromkeys(stage for rank in self.ranks for stage in rank.runs))

    @property
    def hides_hops(self) -> bool:
        """Whether stages compute while they send to their neighbours."""
        return self.assume.hides_hops_in(self.plan.interleave)

    @property
    def line(self) -> tuple[int, ...]:
        """For every pipeline stage in order, its position in :attr:`ranks`."""
        return self._ranked[1]

    @cached_property
    def _ranked(self) -> tuple[tuple[Rank, ...], tuple[int, ...]]:
        plan, (first, most, last) = self.plan, self.plan.stage_layers
        if not self.graph.folded:
            ranks = (Rank(number, f"stage {number}", {number: 1}) for number in range(plan.stages))
            return tuple(ranks), tuple(range(plan.stages))
        layers = self.layers
        if len(layers.kinds) == 1:
            return (Rank(0, "stage 0", {0: most}, plan.stages, range(most)),), (0,) * plan.stages
        if plan.stages == 1:
            here = self._here(0, most)
            return (Rank(0, "the only stage", self._held(here, ends=(0, layers.count)), 1, here),), (0,)
        line = []
        rank_by_runs: dict[tuple[tuple[int, int], ...], Rank] = {}
        begin = 0
        for number in range(plan.stages):
            size = first if number == 0 else last if number == plan.stages - 1 else most
            here, begin = self._here(begin, size), begin + size
            ends = {0: (0,), plan.stages - 1: (layers.count,)}.get(number, ())
            runs = self._held(here, ends)
            name = "the first stage" if number == 0 else "the last stage" if ends else "a stage in the middle"
            signature = (number if ends else -1, 0), *runs.items()
            same = rank_by_runs.setdefault(signature, Rank(number, name, runs, 0, here))
            rank_by_runs[signature] = replace(same, alike=same.alike + 1)
            line.append(list(rank_by_runs).index(signature))
        return tuple(rank_by_runs.values()), tuple(line)

    def _here(self, begin: int, size: int) -> range:
        """Places of its layers from one on. Stages may have room for too many; of one kind they count as full."""
        layers = self.layers
        end = begin + size
        return range(begin, end) if layers.counted == 1 else range(min(begin, layers.count), min(end, layers.count))

    def _held(self, here: range, ends: tuple[int, ...]) -> dict[int, int]:
        """How often a pipeline stage of some layers has each kind; ``ends``: what is in front of or behind all."""
        layers = self.layers
        if layers.counted == 1:
            times_by_kind = {0: len(here)}
        else:
            held = [int(layers.order[place]) for place in here]
            times_by_kind = {kind: held.count(kind) for kind in sorted(set(held))}
            times_by_kind = times_by_kind or {int(layers.order[min(here.start, layers.count - 1)]): 0}
        for kind, places in enumerate(layers.at, layers.counted):
            times = sum(place in ends or (place in here and 0 < place < layers.count) for place in places)
            times_by_kind |= {kind: times} if times else {}
        return times_by_kind

    @cached_property
    def trains(self) -> bool:
        """Whether the graph has a backward pass or weight updates."""
        return not all(placed.forward for placed in self.kernels)

    @cached_property
    def chips_along(self) -> Callable[[str], int]:
        """Function from the name of a network dim, or part of one, to its number of chips (cached)."""
        return cache(lambda dim: self.system.dim(dim).size)

    @cached_property
    def forward_weights(self) -> bool:
        """Whether any kernel of the forward pass has a weight."""
        return any(placed.forward and placed.weight for placed in self.kernels)

    @cached_property
    def of_stage(self) -> dict[int, list[Placed]]:
        """Kernels of each stage of the mapping, by stage number."""
        placed_by_stage: dict[int, list[Placed]] = defaultdict(list)
        for placed in self.kernels:
            placed_by_stage[placed.place[0]].append(placed)
        return placed_by_stage

    @cached_property
    def touching(self) -> dict[int, list[Fan]]:
        """Tensors that start or end in each stage of the mapping, by stage number."""
        fans_by_stage: dict[int, list[Fan]] = defaultdict(list)
        for fan in self.fans:
            for stage in {fan.home[0], *(stage for stage, _ in fan.away)}:
                fans_by_stage[stage].append(fan)
        return fans_by_stage

    def is_whole(self, fan: Fan) -> bool:
        """Whether a tensor is the whole of an output whose kernel states how long it is kept."""
        source = self.kernels[fan.src].kernel
        return source.output_saved is not None and fan.total == self.graph.output_bytes(fan.src)

    def is_read_later(self, fan: Fan) -> bool:
        """Whether kernels of a later pass read a tensor; for recomputed tensors, those of the backward pass proper."""
        later = LATER.get(self.kernels[fan.src].kernel.pass_, ())
        return any(self.kernels[reader].kernel.pass_ in later for reader in fan.readers)

    @cached_property
    def brought(self) -> frozenset[int]:
        """Kernels that state a kept output which some tensor carries to a later pass anyway."""
        return frozenset(fan.src for fan in self.fans if self.is_whole(fan) and self.is_read_later(fan))

    def clock(self, place: Place) -> float:
        """Share of the nominal frequency at which a partition runs."""
        return self.clocks.get(place, 1.0)

    def place(self, kernel: int) -> Place:
        """Stage and partition of a kernel, by its number."""
        return self.kernels[kernel].place

    @property
    def between_layers(self) -> tuple[Fan, ...]:
        """Tensors carried between layers if these pass through DRAM; otherwise none."""
        return self.carried if self.assume.layer_boundary == "dram" else ()


def build(mapping: Mapping, graph: Graph, system: System, assumptions: Assumptions) -> Case:
    """Build the lookup tables of a mapping.

    Parameters
    ----------
    mapping
        The mapping. It must be valid for graph and system, which `dfopt.judge.fit` checks.
    graph, system, assumptions
        Workload, machine and assumptions that it is judged on.
    """
    assume = pipeline.resolve(assumptions, system.chip.execution, system.chip.compute_utilization)
    graph = seen_by_a_chip(model := library.as_computed(graph, assume), mapping.plan, system)
    given = {entry.name: entry for entry in mapping.kernels}
    placing = Placing(graph, system, assume, mapping.plan.shards)
    placed = tuple(placing.of(kernel, given[kernel.name]) for kernel in graph.kernels)
    members: dict[Place, list[int]] = defaultdict(list)
    for number, kernel in enumerate(placed):
        members[kernel.place].append(number)
    fans, carried = fans_of(graph, assume, placed, mapping.tile_count)
    case = Case(
        model=model,
        graph=graph,
        system=system,
        plan=mapping.plan,
        assume=assume,
        tile_count=mapping.tile_count,
        kernels=placed,
        fans=fans,
        carried=carried,
        members=dict(sorted(members.items())),
        clocks={(entry.stage, entry.partition): entry.frequency for entry in mapping.clocks or ()},
        pauses={entry.stage: entry.time for entry in mapping.pauses or ()},
        token_blocks={(entry.stage, entry.partition): entry.blocks for entry in mapping.token_blocks or ()},
    )
    return replace(case, ends=tuple(_ends(case))) if assume.layer_boundary == "dram" else case


def fans_of(
    graph: Graph, assume: Assumptions, placed: Sequence[Placed], tile_count: int
) -> tuple[tuple[Fan, ...], tuple[Fan, ...]]:
    """Tensors between placed kernels, and those carried from layer to layer.

    Parameters
    ----------
    graph
        The graph that one chip of the second axis runs.
    assume
        Resolved assumptions; ``fanout`` says whether readers share one copy.
    placed
        Its kernels with their places, in the order of the graph.
    tile_count : int
        Number of tiles of the streamed axis.
    """
    index, operand_t = graph.index(), graph.operands()
    level = graph.levels() if assume.skew_buffers == "depth" else {}

    def fan(src: int, total: float, consumers: tuple[Consumer, ...]) -> Fan:
        chip = total * placed[src].share
        return Fan.of(placed, src, total, chip, chip * ops.tile_share(graph.kernels[src], tile_count), consumers)

    fans: dict[object, tuple[int, float, list[Consumer]]] = {}
    for position, (tensor, operand) in enumerate(zip(graph.tensors, operand_t, strict=True)):
        src, total = index[tensor.src], graph.bytes_of(tensor)
        depth = level[tensor.dst] - level[tensor.src] + 1 if level else 2
        depth = 0 if assume.execution == "library" else depth  # handed on in registers
        key = graph.taken(tensor) if assume.fanout == "shared" else position
        fans.setdefault(key, (src, total, []))[2].append(Consumer(index[tensor.dst], operand, depth))
    carried = tuple(fan(index[t.src], graph.bytes_of(t), (Consumer(index[t.dst], 1, 2),)) for t in graph.carried)
    return tuple(fan(src, total, tuple(consumers)) for src, total, consumers in fans.values()), carried


def _ends(case: Case) -> Iterator[End]:
    """Both ends of every carried tensor, and the graph's inputs and outputs."""
    graph, shards, tiles = case.graph, case.plan.shards, case.tile_count

    def lying(tokens: int, features: int, split: bool, size: float) -> tuple[float, int, int]:
        """Bytes of one token's features on a chip, tokens of a tile, and chips that share the features."""
        share = shards if split else 1
        return float(-(-features // share) * size), -(-tokens // tiles), share

    def out(src: int, chip: float, tile: float) -> End:
        of = case.kernels[src]
        output = of.kernel.n, of.kernel.m, operands.splits_features(of.sharding), made_word(graph, of.kernel)
        return End(src, chip, tile, True, *lying(*output))

    for fan in case.carried:
        yield replace(wrote := out(fan.src, fan.chip, fan.tile), carried=fan.src)
        yield replace(wrote, kernel=fan.readers[0], write=False, operand=1, carried=fan.src)
    for src, total in graph.writes():
        placed = case.kernels[src]
        chip = total * ops.output_share(placed.kernel, placed.sharding, shards, case.assume.sharding_rules)
        yield out(src, chip, chip * ops.tile_share(placed.kernel, tiles))
    for dst, operand, total in graph.reads():
        placed = case.kernels[dst]
        rules, z = case.assume.sharding_rules, placed.sharding
        layout = ops.required_layout(placed.kernel, operand, z, rules, total / word(graph))
        chip = total * ops.input_share(placed.kernel, layout, z, shards, rules)
        features, tokens = ops.operand_shape(placed.kernel, operand)
        tile = chip * ops.input_tile_share(placed.kernel, tiles, operand)
        split = layout == "SR" and z != "outer"
        yield End(dst, chip, tile, False, *lying(tokens, features, split, word(graph)), operand)


def totals(parts: Iterable[tuple[Place, float]]) -> dict[Place, float]:
    """Sums of figures by place, exactly rounded (`math.fsum`), so that no order of addition changes a digit."""
    values_by_place: dict[Place, list[float]] = defaultdict(list)
    for place, value in parts:
        values_by_place[place].append(value)
    return {place: math.fsum(values) for place, values in values_by_place.items()}


TimeTerm = Literal["compute", "memory", "network", "sram"]
TERMS: tuple[TimeTerm, ...] = ("compute", "memory", "network", "sram")
"""The terms of a partition, the last where SRAM traffic is limited; of equal ones the first binds."""
