"""Brute force: least times by enumeration, with the judge (not the problems' own tables) as the price list."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np
from strategies import World, sums_meet

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.dtypes import FORMATS
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding
from dfopt.documents.score import Score
from dfopt.documents.system import Chip
from dfopt.judge import evaluate
from dfopt.judge.types import peak
from dfopt.physics import ops
from dfopt.physics.library import SETS

# -- mappings from bare choices ---------------------------------------------------------------


def pieces(graph: Graph, assumptions: Assumptions) -> int:
    """Tiles that the shortest streamed axis is cut into; ``tile_rows`` is stated, not left to the optimizer."""
    assert assumptions.tile_rows is not None
    axes = {"n": lambda k: k.n, "k": lambda k: k.k}
    lengths = [axes[k.streamed](k) for k in graph.kernels if k.streamed in axes]
    return math.ceil(min(lengths) / assumptions.tile_rows) if lengths else 1


def cycles_with(kernel: Kernel, sharding: Sharding, degree: int, rules: str, count: int, chip: Chip, tiles: int) -> int:
    """Fewest cycles of a shard on at most ``tiles`` compute tiles, by trying every rectangle of tiles."""
    rows, inner, columns = kernel.outer * (kernel.samples or 1) * kernel.m, kernel.k, kernel.n
    if sharding == "outer" and rules == "exact":  # a head is whole
        rows = math.ceil(kernel.outer / degree) * (kernel.samples or 1) * kernel.m
    elif sharding in ("outer", "m"):
        rows = math.ceil(rows / degree)
    elif sharding in ("k", "k>n"):
        inner = math.ceil(inner / degree)
    elif sharding == "n" or (sharding == "even" and columns >= degree):
        columns = math.ceil(columns / degree)
    elif sharding == "even":
        rows, columns = math.ceil(rows * columns / degree), 1
    if kernel.streamed == "n":
        columns = math.ceil(columns / count)
    elif kernel.streamed == "k":
        inner = math.ceil(inner / count)
    assert chip.lanes and chip.stages
    steps = 1 if kernel.streamed == "none" else count
    if kernel.op == "elementwise":
        return steps * math.ceil(rows / (tiles * chip.lanes)) * columns
    return steps * min(
        math.ceil(rows / (a * chip.lanes)) * math.ceil(columns / (b * chip.stages)) * inner
        for a in range(1, tiles + 1)
        for b in range(1, tiles // a + 1)
    )


def word_of(graph: Graph, source: Kernel | None = None) -> float:
    """Bytes of an element that a kernel makes, or of one that comes from DRAM."""
    if graph.dtypes is None:
        return graph.word_bytes
    said = graph.dtypes.logits if source is not None and source.output_class == "logits" else None
    return float(FORMATS[said or graph.dtypes.activations].bytes)


def left_of(kernel: Kernel, face: int | None = None) -> float:
    """Share of a matrix that a mask leaves, by default of the one that it lies on: so many whole elements."""
    mask = kernel.masked or 0
    if kernel.density is None or (kernel.op == "matmul" and face is not None and face != mask):
        return 1.0
    rows, columns = {0: (kernel.m, kernel.n), 1: (kernel.k, kernel.n), 2: (kernel.m, kernel.k)}[mask]
    return max(round(kernel.density * rows * columns), 1) / (rows * columns)


def at_once(world: World, members: list[Kernel]) -> bool:
    """Whether the chip runs kernels as one: by the table of library sets, and a drawing of what joins them."""
    if world.assumptions.execution == "dataflow" or len(members) == 1:
        return True
    names = {kernel.name for kernel in members}
    joined = nx.Graph((t.src, t.dst) for t in world.graph.tensors if {t.src, t.dst} <= names)
    joined.add_nodes_from(names)
    one_set = any(all(k.pass_ in passes and k.role in roles for k in members) for passes, roles in SETS.values())
    return world.assumptions.execution == "library" and one_set and nx.is_connected(joined)


def allocate(
    world: World, sharding: dict[str, Sharding], members: list[Kernel], count: int | None = None
) -> list[int] | None:
    """Compute tiles of the kernels of one partition: the best of all allocations; None when there are too many.

    ``count``: tiles that the streamed axis is cut into.
    """
    chip, most = world.system.chip, world.system.chip.tiles
    if len(members) > most:
        return None
    if world.assumptions.compute_model != "cycle":
        return [1] * len(members)
    count = count or pieces(world.graph, world.assumptions)
    degree, rules = world.plan.tp, world.assumptions.sharding_rules
    # what a mask leaves out takes no time, and a type that is twice as fast half of it
    cost = [
        [
            cycles_with(k, sharding[k.name], degree, rules, count, chip, t) * left_of(k) / peak(world.graph, k, chip)
            for t in range(1, most + 1)
        ]
        for k in members
    ]
    free = [range(1, most - len(members) + 2)] * len(members)
    fits = (tiles for tiles in itertools.product(*free) if sum(tiles) <= most)
    return list(min(fits, key=lambda tiles: max(cost[k][t - 1] for k, t in enumerate(tiles))))


def kinds(graph: Graph) -> list[str]:
    """Kinds of layers in the order of the stages of a mapping: what repeats before what stands at the ends."""
    named = (name for one in graph.sections or () for name in one.layers)
    names = dict.fromkeys([*named, *(graph.recomputed or {}).values()])
    return sorted(names, key=lambda name: name in ("first", "last"))


def mapping_of(
    world: World, sharding: dict[str, Sharding], stage: dict[str, int], partition: dict[str, int]
) -> Mapping | None:
    """The mapping with these choices and the best compute tiles, or None when a partition has too many kernels.

    Of a graph with pieces the stages are those, whatever ``stage`` says.
    """
    if world.graph.folded:
        stage = {k.name: kinds(world.graph).index(k.layer or "layer") for k in world.graph.kernels}
    tiles: dict[str, int] = {}
    for place in {(stage[k.name], partition[k.name]) for k in world.graph.kernels}:
        members = [k for k in world.graph.kernels if (stage[k.name], partition[k.name]) == place]
        given = allocate(world, sharding, members)
        if given is None:
            return None
        tiles.update(zip((k.name for k in members), given, strict=True))
    kernels = tuple(
        KernelMapping(name=n, sharding=sharding[n], stage=stage[n], partition=partition[n], tiles=tiles[n])
        for n in (k.name for k in world.graph.kernels)
    )
    return Mapping(
        graph=world.graph.name, system=world.system.name, plan=world.plan, kernels=kernels,
        tile_count=pieces(world.graph, world.assumptions),
    )  # fmt: skip


def in_a_row(world: World) -> dict[str, int]:
    """Every kernel in a partition of its own, the forward pass first."""
    drawn = nx.DiGraph((t.src, t.dst) for t in world.graph.tensors)
    drawn.add_nodes_from(kernel.name for kernel in world.graph.kernels)
    late = {kernel.name: kernel.pass_ != "forward" for kernel in world.graph.kernels}
    order = nx.lexicographical_topological_sort(drawn, key=lambda name: (late[name], name))
    return {name: number for number, name in enumerate(order)}


def judged(world: World, mapping: Mapping) -> Score:
    """What the judge says."""
    return evaluate(mapping, world.model or world.graph, world.system, world.assumptions)


def end_bytes(world: World, sharding: dict[str, Sharding]) -> dict[str, float]:
    """Bytes that each kernel reads or writes on one chip because nothing in the graph produces or consumes them."""
    graph, chosen, chips = world.graph, world.assumptions, world.plan.tp
    found: dict[str, float] = {}
    if chosen.layer_boundary == "free":
        return found
    operands = graph.operands()
    taken = {t.src for t in (*graph.tensors, *graph.carried)}
    for kernel in graph.kernels:
        name, z = kernel.name, sharding[kernel.name]
        if kernel.dram_bytes_per_chip + kernel.dram_bytes:
            continue
        axes = {"outer": kernel.outer, "m": kernel.m, "k": kernel.k, "n": kernel.n}
        if chosen.sharding_rules == "dfmodel":
            axes["outer"] *= (kernel.samples or 1) * kernel.m
        shares = {axis: math.ceil(size / chips) / size for axis, size in axes.items()} | {"even": 1 / chips}
        part = shares.get(z.partition(">")[0], 1.0)
        made = kernel.outer * (kernel.samples or 1) * kernel.m * kernel.n * word_of(graph, kernel) * left_of(kernel, 0)
        if not (name in taken or kernel.op == "weight_update" or kernel.accumulates_into):
            found[name] = made * (1.0 if z == "k" else shares["n"] if z == "k>n" else part)
        heads = 1 if kernel.op == "gemm" else kernel.outer * (kernel.samples or 1)
        first, second = heads * kernel.k * kernel.n, heads * kernel.m * kernel.k
        sizes = {"gemm": [first], "elementwise": [heads * kernel.m * kernel.n]}.get(kernel.op, [first, second])
        sizes = [size * left_of(kernel, face) for face, size in enumerate(sizes, start=1)]
        brought = {o for t, o in zip(graph.tensors, operands, strict=True) if t.dst == name}
        left = [o for o in range(1, len(sizes) + 1) if o not in brought]
        for t in graph.carried:
            if t.dst == name and left:
                left = [o for o in left if o != (t.operand or left[0])]
        for o in left:
            size = sizes[o - 1]
            whole = ops.required_layout(kernel, o, z, chosen.sharding_rules, size) == "RR"
            found[name] = found.get(name, 0.0) + size * word_of(graph) * (1.0 if whole else part)
    return found


# -- intra-chip -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fusion:
    """A partitioning and its score."""

    partition: dict[str, int]
    score: Score


def fusions(
    world: World, sharding: dict[str, Sharding], stage: dict[str, int], p_max: int, *, shrink: bool = True
) -> Iterator[Fusion]:
    """Every assignment of kernels to partitions that the judge finds no fault with.

    Under ``halves`` a partition's number matters (``p_max`` says where the middle is); else assignments that
    differ only by empty partitions are tried once (``shrink``).
    """
    names = [k.name for k in world.graph.kernels]
    position = {name: i for i, name in enumerate(names)}
    edges = [(position[t.src], position[t.dst]) for t in world.graph.tensors if stage[t.src] == stage[t.dst]]
    rule = world.assumptions.forward_backward if world.graph.trains else "shared"
    exactly = world.assumptions.empty_partitions == "forbid"
    forward = [k.pass_ == "forward" for k in world.graph.kernels]
    stages, ends = set(stage.values()), [name in ("first", "last") for name in kinds(world.graph)]
    # the layer has exactly p_max partitions where they are asked for, a piece beside it no more than it has kernels
    most = dict.fromkeys(stages, p_max)
    if exactly and world.graph.folded:
        most |= {s: min(p_max, list(stage.values()).count(s)) for s in stages if ends[s]}
    for choice in itertools.product(range(p_max), repeat=len(names)):
        if any(choice[a] > choice[b] for a, b in edges):
            continue
        used = {s: {p for n, p in zip(names, choice, strict=True) if stage[n] == s} for s in stages}
        if any(p >= most[stage[n]] for n, p in zip(names, choice, strict=True)):
            continue
        if exactly and any(len(u) < most[s] for s, u in used.items()):
            continue
        if rule == "halves":
            here = {s: [f for f, n in zip(forward, names, strict=True) if stage[n] == s] for s in stages}
            if any(
                len(set(here[stage[n]])) == 2 and (p >= (most[stage[n]] + 1) // 2 if f else p < most[stage[n]] // 2)
                for f, n, p in zip(forward, names, choice, strict=True)
            ):
                continue
        elif shrink and any(u != set(range(len(u))) for u in used.values()):
            continue
        mapping = mapping_of(world, sharding, stage, dict(zip(names, choice, strict=True)))
        if mapping is None:
            continue
        score = judged(world, mapping)
        if not score.violations:
            yield Fusion({k.name: k.partition for k in mapping.kernels}, score)


def best_fusion(world: World, sharding: dict[str, Sharding], stage: dict[str, int], p_max: int) -> Fusion | None:
    """The fusion with the least layer time, or None when none is legal."""
    every = fusions(world, sharding, stage, p_max)
    return min(every, key=lambda fusion: fusion.score.stages[0].layer_time_s, default=None)


# -- inter-chip -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shard:
    """A choice of schemes and stages with its figures: seconds per stage, and bytes."""

    sharding: dict[str, Sharding]
    stage: dict[str, int]
    compute: np.ndarray
    network: np.ndarray
    hop: np.ndarray
    moved: float
    converted: float

    def slowest(self, stage_time: str) -> float:
        """Time of the slowest stage."""
        terms = np.stack([self.compute, self.network, self.hop])
        return float((terms.sum(axis=0) if stage_time == "sum" else terms.max(axis=0)).max())

    def levels(self, assumptions: Assumptions) -> tuple[float, ...]:
        """What is minimised, one after another."""
        slowest, total = (
            self.slowest(assumptions.stage_time),
            float(sum(map(np.sum, (self.compute, self.network, self.hop)))),
        )
        if assumptions.sharding_objective == "bytes":
            split = float(sum(z != "none" for z in self.sharding.values()))
            return (self.moved, self.converted, split, *([slowest] if len(self.compute) > 1 else []))
        return (slowest, total)


def all_shards(world: World) -> Iterator[Shard]:
    """Every legal choice of schemes and stages."""
    graph, plan = world.graph, world.plan
    names = [k.name for k in graph.kernels]
    count = 1 if graph.folded else plan.pp
    menus = [ops.legal_schemes(k, plan.tp, world.assumptions) for k in graph.kernels]
    places = [
        p
        for p in itertools.product(range(count), repeat=len(names))
        if stages_legal(graph, dict(zip(names, p, strict=True)))
    ]
    for schemes in itertools.product(*menus):
        sharding = dict(zip(names, schemes, strict=True))
        if sums_meet(graph, plan, world.assumptions, sharding):
            for place in places:
                yield priced(world, sharding, dict(zip(names, place, strict=True)))


def stages_legal(graph: Graph, stage: dict[str, int]) -> bool:
    """Tensors go to later stages, those between two kernels of the other passes to earlier ones."""
    forward = {k.name: k.pass_ == "forward" for k in graph.kernels}
    for t in graph.tensors:
        ahead = forward[t.src] or forward[t.dst]
        if (stage[t.src] > stage[t.dst]) if ahead else (stage[t.src] < stage[t.dst]):
            return False
    return all(k.stage_with is None or stage[k.name] == stage[k.stage_with] for k in graph.kernels)


def priced(world: World, sharding: dict[str, Sharding], stage: dict[str, int]) -> Shard:
    """Seconds by the judge on a chip without limits; bytes by naive sums.

    Every kernel is a partition of its own; with sequence parallelism each stage is one, if chips fuse kernels, so that
    its kernels gather a saved tensor once. How many partitions start is not known yet, but where kernels run alone.
    """
    model = "efficiency" if world.assumptions.compute_model == "efficiency" else "fixed"
    free = world.assumptions.with_(
        compute_model=model, compute_utilization=world.assumptions.compute_utilization or 1.0,
        gradients="exact", forward_backward="shared", empty_partitions="allow", weight_tiling="forbid",
        **({} if world.assumptions.execution == "kernel_by_kernel" else {"kernel_overhead": None}),
    )  # fmt: skip
    chip = world.system.chip
    roomy = chip.model_copy(
        update={
            "sram": chip.sram.model_copy(update={"capacity": 1e30}),
            "dram": chip.dram.model_copy(update={"capacity": None}),
            "tiles": 1000,
            "peak": chip.peak or chip.peak_flops,
        }
    )
    elsewhere = World(world.graph, world.system.model_copy(update={"chip": roomy}), world.plan, free)
    level = world.graph.levels()
    order = sorted(level, key=lambda n: (level[n], n))
    together = once_per_stage(world)
    mapping = mapping_of(elsewhere, sharding, stage, {n: 0 if together else p for p, n in enumerate(order)})
    assert mapping is not None
    score = judged(elsewhere, mapping)
    assert not [v for v in score.violations if "empty" not in v], score.violations
    count = 1 if world.graph.folded else world.plan.pp
    compute, network = np.zeros(count), np.zeros(count)
    for part in score.partitions:
        place = 0 if world.graph.folded else part.stage
        compute[place] += part.compute_s
        network[place] += part.network_s
    hop = np.array([one.point_to_point_s for one in score.stages]) if not world.graph.folded else np.zeros(1)
    inherent, converted = moved_bytes(world, sharding, stage)
    return Shard(sharding, stage, compute, network, hop, inherent + converted, converted)


def once_per_stage(world: World) -> bool:
    """Whether the readers of a saved tensor may gather it together."""
    return world.assumptions.splits_tokens and world.assumptions.execution == "dataflow"


def moved_bytes(world: World, sharding: dict[str, Sharding], stage: dict[str, int]) -> tuple[float, float]:
    """Bytes of the schemes' own collectives, and of layout conversions."""
    graph, plan, chosen = world.graph, world.plan, world.assumptions
    if plan.tp == 1:
        return 0.0, 0.0
    kernels = {k.name: k for k in graph.kernels}
    inherent = sum(
        graph.output_bytes(k.name)
        for k in graph.kernels
        if sharding[k.name] in ("k", "k>n")
        and not (k.op == "gemm" and k.accumulates_into and chosen.sharding_rules == "exact")
    )
    paid: dict[object, float] = {}
    carried = graph.carried if chosen.layer_boundary == "dram" else ()
    operands = [*graph.operands(), *[1 for _ in carried]]
    for i, (t, operand) in enumerate(zip((*graph.tensors, *carried), operands, strict=True)):
        size = graph.bytes_of(t)
        elements = size / word_of(graph, kernels[t.src])
        needed = ops.required_layout(kernels[t.dst], operand, sharding[t.dst], chosen.sharding_rules, elements)
        if ops.conversion(ops.PRODUCED[sharding[t.src]], needed) is not None:
            shared = chosen.fanout == "shared" and i < len(graph.tensors)
            bill: tuple[object, ...] = (t.src, size, t.part) if shared else (i,)
            if chosen.sequence_parallelism == "none":
                bill = (*bill, needed) if shared else bill
            elif i < len(graph.tensors) and kernels[t.src].pass_ == "forward" != kernels[t.dst].pass_:
                bill = (*bill, "again", stage[t.dst] if once_per_stage(world) else t.dst)
            paid[bill] = size
    return inherent, sum(paid.values())


def best_shard(world: World) -> Shard | None:
    """The lexicographically least choice, levels that agree to 1e-7 counted as equal."""
    found = list(all_shards(world))
    if not found:
        return None
    for level in range(len(found[0].levels(world.assumptions))):
        least = min(s.levels(world.assumptions)[level] for s in found)
        found = [s for s in found if s.levels(world.assumptions)[level] <= least + 1e-7 * max(abs(least), 1e-9)]
    return found[0]
