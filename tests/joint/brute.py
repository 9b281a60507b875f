"""Brute force for the joint problem: every plan, sharding, stage of a kernel, tile count and cut into partitions.

The judge is the price list: a block of kernels costs the same in whatever mapping it occurs, under the schemes of its
kernels and of those that they exchange tensors with, so it is priced once for these. A set of kernels is the bits of
an int.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from oracles import allocate, at_once, judged, kinds, stages_legal
from strategies import World, sums_meet
from two_halves import flat, length, rows_of

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.graph import Graph, Kernel
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.documents.request import Request
from dfopt.documents.score import Score
from dfopt.documents.system import System
from dfopt.errors import PlanError
from dfopt.judge import case, ledger, network, timing, traffic
from dfopt.judge.breakdown import sent_by_place
from dfopt.judge.members import seen_by_a_chip
from dfopt.physics import ops
from dfopt.physics.fill import line_of
from dfopt.physics.metrics import METRICS, Constants, Metric
from dfopt.physics.overlap import hides
from dfopt.physics.pipeline import partition_time, resolve
from dfopt.setting.plans import asked_plans

_SAME = 1e-6  # the judge's tolerance of a limit
_PRECISE = 1e-12


class Joint(NamedTuple):
    """A best mapping: kernel -> scheme, and kernel -> partition of its stage."""

    value: float
    plan: Plan
    sharding: dict[str, Sharding]
    partition: dict[str, int]
    mapping: Mapping
    score: Score


def joint_optimum(
    graph: Graph,
    system: System,
    assumptions: Assumptions,
    request: Request | None = None,
    plans: Sequence[Plan] | None = None,
) -> Joint | None:
    """The best of all mappings that a request allows, or None when none keeps every limit.

    ``plans``: those to try, by default all that the request leaves free.
    """
    asked = Request() if request is None else request
    chosen = resolve(assumptions, system.chip.execution, system.chip.compute_utilization)
    if plans is None:
        plans, _ = asked_plans(graph, system, asked, chosen)
    memo: Memo = {}
    metric = METRICS[asked.objective.metric]
    open_: list[tuple[float, int, Choice]] = []
    for plan in plans:
        world = World(seen_by_a_chip(graph, plan, system), system, plan, chosen, graph)
        for choice in choices(world, asked, memo):
            # without hops and gradients, which only the judge adds
            open_.append((metric.value(choice.seconds, choice.problem.constants), len(open_), choice))
    best: Joint | None = None
    for low, _, choice in sorted(open_, key=lambda entry: entry[:2]):
        most = math.inf if best is None else best.value * (1 + _PRECISE)
        if low > most:
            break
        away = graph.trains and choice.problem.world.plan.placement is not None
        found = choice.judged_behind(metric, most) if away or hides(chosen, graph) else choice.judged()
        keeps = found is not None and all(
            float(getattr(found.score, f"{limit.metric}_s")) <= limit.at_most * (1 + 1e-9)
            for limit in asked.objective.limits
        )
        if found is not None and keeps and (best is None or found.value < best.value):
            best = found
    return best


def least_capacities(graph: Graph, system: System, assumptions: Assumptions, asked: Request) -> dict[Plan, float]:
    """Fewest bytes of DRAM with which some mapping under each plan fits every chip; infinite where none does."""
    chosen = resolve(assumptions, system.chip.execution, system.chip.compute_utilization)
    plans, _ = asked_plans(graph, system, asked, chosen)
    memo: Memo = {}
    every = {plan: choices(World(graph, system, plan, chosen), asked, memo) for plan in plans}
    return {plan: min((one.least_bytes() for one in found), default=math.inf) for plan, found in every.items()}


# -- one plan -----------------------------------------------------------------------------------

Memo = dict[object, float]


@dataclass(frozen=True)
class Choice:
    """A sharding with stages and a tile count; ``seconds`` of its pipeline stages at least, by the best partitions."""

    problem: Problem
    schemes: tuple[Sharding, ...]
    stage_k: tuple[int, ...]
    count: int
    seconds: tuple[float, ...]

    def judged(self) -> Joint | None:
        """The best mapping of this choice, unless it holds more than the DRAM has."""
        problem = self.problem
        partition = problem.partitions(self.schemes, self.stage_k, self.count)
        return None if partition is None else self.judged_as(partition)

    def judged_as(self, partition: tuple[int, ...]) -> Joint:
        """One mapping of this choice."""
        problem, world = self.problem, self.problem.world
        names = [kernel.name for kernel in world.graph.kernels]
        mapping = problem.mapping(self.schemes, self.stage_k, partition, self.count)
        score = judged(world, mapping)
        assert not score.violations, score.violations
        sharding = dict(zip(names, self.schemes, strict=True))
        return Joint(score.step_time_s, world.plan, sharding, dict(zip(names, partition, strict=True)), mapping, score)

    def judged_behind(self, metric: Metric, most: float) -> Joint | None:
        """The best where gradients are added up behind the backward pass: a slower one may hide more, so all of them
        are looked at whose time without what shows is no longer than ``most``."""
        problem, best = self.problem, None
        constants = problem.constants
        every = problem.every_partition(self.schemes, self.stage_k, self.count)
        listed = ((metric.value(seconds, constants), partition) for seconds, partition in every)
        for low, partition in sorted(listed, key=lambda entry: entry[0]):
            if low > most:
                break
            found = self.judged_as(partition)
            if best is None or found.value < best.value:
                best, most = found, min(most, found.value * (1 + _PRECISE))
        return best

    def least_bytes(self) -> float:
        """What the fullest chip holds when as little as possible waits between partitions."""
        problem, found = self.problem, dict[int, float]()
        for stage in set(self.stage_k):
            sequences = problem.sequences(bits_of(self.stage_k, stage), stage)
            fits = np.isfinite(problem.times(stage, self.schemes, self.stage_k, self.count))
            found[stage] = float(problem.waiting(sequences.rows[fits], self.schemes, self.stage_k, stage).min())
        return max(
            sum(sizes.values()) + max(found.get(stage, 0.0) for stage in rank.runs)
            for rank, sizes in problem.kept(self.schemes, self.stage_k, self.count)
        )


def choices(world: World, asked: Request, memo: Memo) -> Iterator[Choice]:
    """Every sharding, stages and tile count of a plan under which every stage has a partitioning that fits SRAM."""
    graph, plan = world.graph, world.plan
    problem = Problem(world, asked, memo)
    names = [kernel.name for kernel in graph.kernels]
    if graph.folded:
        places = [tuple(kinds(graph).index(kernel.layer or "layer") for kernel in graph.kernels)]
    else:
        every = itertools.product(range(plan.stages), repeat=len(names))
        places = [place for place in every if stages_legal(graph, dict(zip(names, place, strict=True)))]
    for schemes in shardings(world, asked):
        for count in tile_counts(world, schemes):
            for place in places:
                seconds = problem.seconds(schemes, place, count)
                if all(map(math.isfinite, seconds)):
                    yield Choice(problem, schemes, place, count, seconds)


def shardings(world: World, asked: Request) -> Iterator[tuple[Sharding, ...]]:
    """Legal schemes of all kernels, as pinned, whose partial sums meet."""
    graph, plan = world.graph, world.plan
    menus = [ops.legal_schemes(kernel, plan.shards, world.assumptions) for kernel in graph.kernels]
    if plan.shards > 1:
        for k, kernel in enumerate(graph.kernels):
            pinned = asked.pin_sharding.get(kernel.name)
            if pinned is not None and pinned not in menus[k]:
                raise PlanError(f"{kernel.name} cannot be {pinned}")
            menus[k] = menus[k] if pinned is None else (pinned,)
    for schemes in itertools.product(*menus):
        sharding = {kernel.name: z for kernel, z in zip(graph.kernels, schemes, strict=True)}
        if sums_meet(graph, plan, world.assumptions, sharding):
            yield schemes


def tile_counts(world: World, schemes: Sequence[Sharding]) -> list[int]:
    """Pieces that the shortest streamed axis may be cut into; chips that split it have a row each of every piece."""
    rows, asked = ops.streamed_rows(world.graph), world.assumptions.tile_rows
    shared = any(k.streamed == "n" and z in ("n", "k>n") for k, z in zip(world.graph.kernels, schemes, strict=True))
    least = min(rows, max(asked or 1, world.plan.shards if shared else 1))
    if asked is not None or world.assumptions.compute_model != "cycle":
        return [math.ceil(rows / least)]
    return sorted({math.ceil(rows / size) for size in range(least, rows + 1)})


class Problem:
    """One plan: prices of blocks by schemes, and the sequences of blocks that its stages may run as."""

    def __init__(self, world: World, asked: Request, memo: Memo) -> None:
        self.world, self.asked, self.memo = world, asked, memo
        graph, chosen = world.graph, world.assumptions
        self.index = graph.index()
        ends = [(self.index[t.src], self.index[t.dst]) for t in graph.tensors]
        self.edges = sorted(set(ends))
        near = [1 << k for k in range(len(graph.kernels))]
        for a, b in (*ends, *((self.index[t.src], self.index[t.dst]) for t in graph.carried)):
            near[a] |= 1 << b
            near[b] |= 1 << a
        if chosen.splits_tokens:  # what one reader gathers may serve another
            near = [mine | _or(near[k] for k in range(len(near)) if mine >> k & 1) for mine in near]
        self.near = near
        # what a block costs does not depend on the other axes, unless its kernels communicate along them
        alone = (
            world.plan.modules is None
            and not any(kernel.communications for kernel in graph.kernels)
            and chosen.gradients == "exact"
        )
        plan = world.plan
        # what copies share out is paid beside the blocks
        whole = plan.model_copy(update={"zero": None})
        self.key = (plan.shards, plan.shard_dims, plan.placement) if alone else whole
        self.price = network.price_list(self.case(*self.plainest()))

    def plainest(self) -> tuple[Sequence[Sharding], Sequence[int], Sequence[int], int]:
        """Some mapping, whatever it is worth."""
        graph, plan = self.world.graph, self.world.plan
        schemes = [ops.legal_schemes(kernel, plan.shards, self.world.assumptions)[0] for kernel in graph.kernels]
        place = [kinds(graph).index(kernel.layer or "layer") if graph.folded else 0 for kernel in graph.kernels]
        return schemes, place, range(len(schemes)), 1

    def mapping(
        self, schemes: Sequence[Sharding], stage_k: Sequence[int], partition_k: Sequence[int], count: int
    ) -> Mapping:
        """The mapping of some choices, with the best compute tiles."""
        world, graph = self.world, self.world.graph
        sharding = {kernel.name: z for kernel, z in zip(graph.kernels, schemes, strict=True)}
        places = list(zip(stage_k, partition_k, strict=True))
        tiles: dict[str, int] = {}
        for place in set(places):
            members = [kernel for kernel, here in zip(graph.kernels, places, strict=True) if here == place]
            given = self.allocated(tuple((kernel, sharding[kernel.name]) for kernel in members), count)
            tiles.update(zip((kernel.name for kernel in members), given, strict=True))
        kernels = tuple(
            KernelMapping(name=kernel.name, sharding=z, stage=stage, partition=partition, tiles=tiles[kernel.name])
            for kernel, z, (stage, partition) in zip(graph.kernels, schemes, places, strict=True)
        )
        return Mapping(graph=graph.name, system=world.system.name, plan=world.plan, kernels=kernels, tile_count=count)

    @functools.cache  # noqa: B019
    def allocated(self, members: tuple[tuple[Kernel, Sharding], ...], count: int) -> list[int]:
        """Compute tiles of the kernels of a block."""
        sharding = {kernel.name: z for kernel, z in members}
        given = allocate(self.world, sharding, [kernel for kernel, _ in members], count)
        assert given is not None
        return given

    def case(
        self, schemes: Sequence[Sharding], stage_k: Sequence[int], partition_k: Sequence[int], count: int
    ) -> case.Case:
        """The judge's view of a mapping."""
        world = self.world
        mapping = self.mapping(schemes, stage_k, partition_k, count)
        return case.build(mapping, world.model or world.graph, world.system, world.assumptions)

    # -- time ---------------------------------------------------------------------------------
    def seconds(self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> tuple[float, ...]:
        """Seconds of every pipeline stage with the fastest partitions that fit SRAM; infinite where none do."""
        least = {
            stage: float(self.times(stage, schemes, stage_k, count).min(initial=math.inf)) for stage in set(stage_k)
        }
        halves = self.world.plan.at_once  # of two that take turns, as if all that they send were hidden
        return tuple(
            halves * math.fsum(times * least.get(stage, 0.0) for stage, times in rank.runs.items())
            for rank in self.ranks
        )

    @functools.cached_property
    def constants(self) -> Constants:
        """What the judge's own order of pipeline stages makes of their times."""
        world = self.world
        line = line_of(world.plan, world.assumptions, world.graph.trains, self.case(*self.plainest()).line)
        return Constants(world.plan, world.assumptions, line=line)

    @functools.cached_property
    def ranks(self) -> tuple[case.Rank, ...]:
        """The distinct pipeline stages of the plan."""
        return self.case(*self.plainest()).ranks

    def times(self, stage: int, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> np.ndarray:
        """Seconds of every sequence of blocks of a stage."""
        sequences = self.sequences(bits_of(stage_k, stage), stage)
        known = {mask: self.memo.get(self.key_of(mask, schemes, count)) for mask in sequences.blocks}
        while missing := [mask for mask, seconds in known.items() if seconds is None]:
            # the mapping that has the most of them prices all of its blocks
            row = sequences.rows[int(np.isin(sequences.rows, missing).sum(axis=1).argmax())]
            self.note_prices(row, schemes, stage_k, stage, count)
            known.update({mask: self.memo.get(self.key_of(mask, schemes, count)) for mask in missing})
        price = np.array([known[mask] for mask in sequences.blocks] + [0.0])
        return np.asarray(price[sequences.number].sum(axis=1))

    def key_of(self, mask: int, schemes: tuple[Sharding, ...], count: int) -> object:
        """What the price of a block depends on."""
        touched = _or(self.near[k] for k in range(len(schemes)) if mask >> k & 1)
        return self.key, count, mask, tuple(z for k, z in enumerate(schemes) if touched >> k & 1)

    def note_prices(
        self, row: np.ndarray, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], stage: int, count: int
    ) -> None:
        """Remember what the blocks of a sequence cost, infinite where one does not fit."""
        partition_k = list(range(len(schemes)))
        for number, mask in enumerate(row.tolist()):
            for k in range(len(schemes)):
                if mask >> k & 1:
                    partition_k[k] = number
        looked = self.case(schemes, stage_k, partition_k, count)
        tiling, paid = traffic.weight_parts(looked), network.tensor_parallel(looked)
        sram = traffic.sram_need(looked, tiling)
        moved = traffic.by_memory(looked, tiling)
        room = looked.system.chip.sram.capacity * (1 + _SAME)
        for part in timing._partitions(looked, sent_by_place(looked, paid, self.price), moved, sram):
            members = looked.members[part.stage, part.partition]
            apart = any(k in tiling.stuck or (k in tiling.parts and len(members) > 1) for k in members)
            fits = part.sram_bytes <= room and not apart
            mask = sum(1 << k for k in members)
            time_s = part.time_s
            if hidden := sum(self.hidden[k] for k in members):
                beside = max(part.network_s - hidden, 0.0)
                time_s = partition_time(part.compute_s, part.memory_s, beside, looked.assume.overlap, part.sram_s)
            self.memo[self.key_of(mask, schemes, count)] = time_s if fits else math.inf

    # -- what may follow what -------------------------------------------------------------------
    @functools.cached_property
    def _sequences(self) -> dict[tuple[int, int], Sequences]:
        return {}

    def _once(self, stage: int) -> bool:
        """Whether a stage of the mapping is a layer at one of the ends."""
        return self.world.graph.folded and kinds(self.world.graph)[stage] in ("first", "last")

    def sequences(self, members: int, stage: int) -> Sequences:
        """The sequences of blocks that the kernels of a stage may run as."""
        key = members, self._once(stage)
        if key not in self._sequences:
            self._sequences[key] = Sequences.of(list(self._listed(members, stage)))
        return self._sequences[key]

    def _listed(self, members: int, stage: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """(blocks, their partitions), nothing looked at but the rules."""
        world, asked = self.world, self.asked
        graph, chosen = world.graph, world.assumptions
        forward = sum(1 << k for k, kernel in enumerate(graph.kernels) if kernel.pass_ == "forward") & members
        before = [0] * len(graph.kernels)
        for a, b in self.edges:
            if members >> a & members >> b & 1:
                before[b] |= 1 << a
        kernels = [k for k in range(len(graph.kernels)) if members >> k & 1]
        if chosen.execution == "kernel_by_kernel":
            order: list[int] = []
            while len(order) < len(kernels):  # as listed, forward kernels first
                done = sum(1 << k for k in order)
                ready = [k for k in kernels if not done >> k & 1 and not before[k] & ~done]
                order.append(min(ready, key=lambda k: (not forward >> k & 1, k)))
            yield tuple(1 << k for k in order), tuple(range(len(order)))
            return
        most = asked.p_max if asked.p_max is not None else len(kernels)
        exactly = chosen.empty_partitions == "forbid"
        if exactly and self._once(stage):
            most = min(most, len(kernels))
        rule = chosen.forward_backward if graph.trains and forward not in (0, members) else "shared"
        pins = {self.index[name]: p for name, p in asked.pin_partition.items() if members >> self.index[name] & 1}
        gaps = chosen.forward_backward == "halves" and graph.trains
        for blocks in self._cuts(members, before, forward if rule == "separate" else members, most):
            if exactly and len(blocks) < most:
                continue
            # which partition is empty matters only where the middle of them does
            numbers = itertools.combinations(range(most), len(blocks)) if gaps else [tuple(range(len(blocks)))]
            for partitions in numbers:
                where = {k: p for p, mask in zip(partitions, blocks, strict=True) for k in kernels if mask >> k & 1}
                if any(where[k] != p for k, p in pins.items()):
                    continue
                if rule == "halves" and not all(
                    p < (most + 1) // 2 if forward >> k & 1 else p >= most // 2 for k, p in where.items()
                ):
                    continue
                yield blocks, partitions
                break

    def _cuts(self, members: int, before: list[int], first: int, most: int) -> Iterator[tuple[int, ...]]:
        """Sequences of at most so many blocks in which nothing runs before what it needs, nor beside or before `first`
        what is not of it."""

        def after(done: int, left: int) -> Iterator[tuple[int, ...]]:
            rest = members & ~done
            if not rest:
                yield ()
                return
            pool = rest & first or rest
            block = pool if left else 0
            while block:  # every subset
                small = block.bit_count() <= self.world.system.chip.tiles and self.at_once(block)
                if small and not any(before[k] & ~(done | block) for k in range(len(before)) if block >> k & 1):
                    for later in after(done | block, left - 1):
                        yield (block, *later)
                block = (block - 1) & pool

        return after(0, most)

    @functools.cache  # noqa: B019
    def at_once(self, block: int) -> bool:
        """Whether the chip runs these kernels as one."""
        return at_once(self.world, [kernel for k, kernel in enumerate(self.world.graph.kernels) if block >> k & 1])

    # -- DRAM -----------------------------------------------------------------------------------
    def partitions(self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> tuple[int, ...] | None:
        """The fastest partition of every kernel with which every pipeline stage keeps to its DRAM."""
        left = self.left(schemes, stage_k, count)
        if self.world.plan.two_batch_overlap:
            return self.in_turns(left, schemes, stage_k, count)
        partition_k = [0] * len(schemes)
        for stage in set(stage_k):
            sequences = self.sequences(bits_of(stage_k, stage), stage)
            times = self.times(stage, schemes, stage_k, count)
            if math.isfinite(left[stage]):
                fits = self.waiting(sequences.rows, schemes, stage_k, stage) <= left[stage]
                times = np.where(fits, times, math.inf)
            best = int(times.argmin())
            if not math.isfinite(times[best]):
                return None
            for mask, number in zip(sequences.rows[best].tolist(), sequences.partitions[best], strict=False):
                for k in range(len(schemes)):
                    if mask >> k & 1:
                        partition_k[k] = number
        return tuple(partition_k)

    def every_partition(
        self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int
    ) -> Iterator[tuple[tuple[float, ...], tuple[int, ...]]]:
        """Seconds of every pipeline stage, and the partition of every kernel, of all that fits."""
        left, menus = self.left(schemes, stage_k, count), []
        stages = sorted(set(stage_k))
        for stage in stages:
            sequences = self.sequences(bits_of(stage_k, stage), stage)
            times = self.times(stage, schemes, stage_k, count)
            if math.isfinite(left[stage]):
                fits = self.waiting(sequences.rows, schemes, stage_k, stage) <= left[stage]
                times = np.where(fits, times, math.inf)
            rows = np.flatnonzero(np.isfinite(times))
            menus.append([(float(times[row]), sequences.rows[row], sequences.partitions[row]) for row in rows])
        for some in itertools.product(*menus):
            took = {stage: seconds for stage, (seconds, _, _) in zip(stages, some, strict=True)}
            partition_k = [0] * len(schemes)
            for _, blocks, numbers in some:
                for mask, number in zip(blocks.tolist(), numbers, strict=False):
                    for k in range(len(schemes)):
                        if mask >> k & 1:
                            partition_k[k] = number
            ranks = (math.fsum(times * took.get(at, 0.0) for at, times in rank.runs.items()) for rank in self.ranks)
            yield tuple(ranks), tuple(partition_k)

    @functools.cached_property
    def hidden(self) -> list[float]:
        """Seconds of each kernel's own communications, where another microbatch computes meanwhile."""
        found = [0.0] * len(self.world.graph.kernels)
        if self.world.plan.two_batch_overlap:
            for k, seconds in network.own_seconds(self.case(*self.plainest()), self.price):
                found[k] = seconds
        return found

    def in_turns(
        self, left: dict[int, float], schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int
    ) -> tuple[int, ...] | None:
        """The same for two microbatches that take turns: every choice of all stages, step by step."""
        stages = sorted(set(stage_k))
        menus = []
        for stage in stages:
            sequences = self.sequences(bits_of(stage_k, stage), stage)
            times = self.times(stage, schemes, stage_k, count)
            if math.isfinite(left[stage]):
                fits = self.waiting(sequences.rows, schemes, stage_k, stage) <= left[stage]
                times = np.where(fits, times, math.inf)
            menus.append([sequences.rows[row].tolist() for row in np.flatnonzero(np.isfinite(times))])
        rows = rows_of(self.world.graph, self.world.plan).values()
        best: tuple[float, tuple[list[int], ...]] = math.inf, ()
        for some in itertools.product(*menus):
            parts = {
                stage: [(self.memo[self.key_of(mask, schemes, count)], self.sent(mask)) for mask in row if mask]
                for stage, row in zip(stages, some, strict=True)
            }
            best = min(best, (max(length(flat(row, parts)) for row in rows), some))
        if not best[1]:
            return None
        numbered = ((number, mask) for row in best[1] for number, mask in enumerate(row))
        places = {k: number for number, mask in numbered for k in range(len(schemes)) if mask >> k & 1}
        return tuple(places[k] for k in range(len(schemes)))

    def sent(self, mask: int) -> float:
        """Seconds that a block sends while another microbatch computes."""
        return sum(self.hidden[k] for k in range(len(self.hidden)) if mask >> k & 1)

    def left(self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> dict[int, float]:
        """Bytes that every stage of the mapping has for tensors that wait between its partitions.

        Less than none where another memory than the fastest, in which they wait, is too small.
        """
        tiers = self.world.system.chip.tiers
        found = dict.fromkeys(stage_k, math.inf)
        if all(one.capacity is None for one in tiers.values()):
            return found
        for rank, sizes in self.kept(schemes, stage_k, count):
            for name, one in tiers.items():
                room = math.inf if one.capacity is None else one.capacity * (1 + _SAME) - sizes.get(name, 0.0)
                if room < 0 or name == next(iter(tiers)):
                    found |= {stage: min(found[stage], room) for stage in rank.runs if stage in found}
        return found

    def kept(
        self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int
    ) -> Iterator[tuple[case.Rank, dict[str, float]]]:
        """Bytes that a chip of every pipeline stage holds in each memory beside what waits between partitions."""
        level = self.world.graph.levels()
        order = sorted(range(len(schemes)), key=lambda k: (level[self.world.graph.kernels[k].name], k))
        looked = self.case(schemes, stage_k, [order.index(k) for k in range(len(schemes))], count)
        for rank in looked.ranks:
            held = {name: math.fsum(parts.values()) for name, parts in ledger.held(looked, rank).items()}
            fastest = next(iter(looked.system.chip.tiers))
            waiting = []
            for stage in rank.runs:
                mine = bits_of(stage_k, stage)
                row = np.array([[mine & 1 << k for k in order if mine >> k & 1]])
                waiting.append(float(self.waiting(row, schemes, stage_k, stage).max(initial=0.0)) if mine else 0.0)
            yield rank, held | {fastest: held.get(fastest, 0.0) - max(waiting)}

    def waiting(
        self, rows: np.ndarray, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], stage: int
    ) -> np.ndarray:
        """Most bytes that wait in DRAM while the blocks of every sequence run, without what is saved for later."""
        graph, chosen = self.world.graph, self.world.assumptions
        if graph.trains and chosen.by_layer:  # all that a layer needs is counted as there at once
            return np.zeros(len(rows))
        members = bits_of(stage_k, stage)
        forward = [kernel.pass_ == "forward" for kernel in graph.kernels]
        fans: dict[object, list[int]] = {}
        sizes: dict[object, tuple[int, float]] = {}
        for number, tensor in enumerate(graph.tensors):
            src, dst, size = self.index[tensor.src], self.index[tensor.dst], graph.bytes_of(tensor)
            key = (src, size, tensor.part) if chosen.fanout == "shared" else number
            fans.setdefault(key, []).append(dst)
            sizes[key] = src, size
        done = np.bitwise_or.accumulate(rows, axis=1)
        past = np.concatenate([np.zeros((len(rows), 1), dtype=rows.dtype), done[:, :-1]], axis=1)
        total = np.zeros(rows.shape)
        for key, readers in fans.items():
            src, size = sizes[key]
            if graph.trains and chosen.gradients == "exact" and forward[src] and not all(forward[k] for k in readers):
                continue
            here = sum(1 << k for k in set(readers)) & members
            outside = any(not members >> k & 1 for k in readers)
            if not members >> src & 1 and not here:
                continue
            share = ops.output_share(graph.kernels[src], schemes[src], self.world.plan.shards, chosen.sharding_rules)
            born = (done >> src & 1).astype(bool) if members >> src & 1 else np.ones(rows.shape, dtype=bool)
            needed = np.ones(rows.shape, dtype=bool) if outside else (here & ~past) != 0
            inside = (rows >> src & 1).astype(bool) & ((here & ~rows) == 0) & (not outside)
            total += size * share * (born & needed & ~inside & (rows != 0))
        return np.asarray(total.max(axis=1, initial=0.0))


def _or(masks: Iterable[int]) -> int:
    """All kernels of some sets."""
    return functools.reduce(int.__or__, masks, 0)


def bits_of(stage_k: Sequence[int], stage: int) -> int:
    """The kernels of a stage."""
    return sum(1 << k for k, here in enumerate(stage_k) if here == stage)


@dataclass(frozen=True)
class Sequences:
    """Sequences of blocks, filled up with empty ones; ``number`` is the place of each in ``blocks``."""

    rows: np.ndarray
    partitions: list[tuple[int, ...]]
    blocks: list[int]
    number: np.ndarray

    @classmethod
    def of(cls, listed: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Sequences:
        """From (blocks, partitions)."""
        width = max((len(blocks) for blocks, _ in listed), default=0)
        rows = np.zeros((len(listed), width), dtype=np.int64)
        for row, (blocks, _) in zip(rows, listed, strict=True):
            row[: len(blocks)] = blocks
        blocks = sorted({mask for sequence, _ in listed for mask in sequence})
        place = {mask: number for number, mask in enumerate(blocks)} | {0: len(blocks)}
        number = np.array([[place[mask] for mask in row] for row in rows.tolist()], dtype=np.int64)
        return cls(rows, [partitions for _, partitions in listed], blocks, number.reshape(rows.shape))
