"""Prices of blocks, and what fits: one plan of the joint problem, with the judge as the price list.

A block of kernels costs the same in whatever mapping it occurs, under the schemes of its kernels and of those that they
exchange tensors with, so it is priced once for these. A set of kernels is the bits of an int.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from brute_cuts import Cuts, Sequences
from brute_plans import step_seconds
from oracles import allocate, kinds
from strategies import World
from two_halves import flat, length, rows_of

from dfopt.documents.graph import Kernel
from dfopt.documents.mapping import KernelMapping, Mapping, Sharding, TokenBlocks
from dfopt.documents.request import Request
from dfopt.judge import case, ledger, network, timing, token_blocks, traffic
from dfopt.judge.breakdown import sent_by_place
from dfopt.physics import ops
from dfopt.physics.pipeline import partition_time

_SAME = 1e-6  # the judge's tolerance of a limit

Memo = dict[object, float]


def _or(masks: Iterable[int]) -> int:
    """All kernels of some sets."""
    return functools.reduce(int.__or__, masks, 0)


def bits_of(stage_k: Sequence[int], stage: int) -> int:
    """The kernels of a stage."""
    return sum(1 << k for k, here in enumerate(stage_k) if here == stage)


def _mask(places: Sequence[object], here: object) -> int:
    """The kernels of one of the places."""
    return sum(1 << k for k, one in enumerate(places) if one == here)


def place(partition_k: list[int], blocks: np.ndarray, numbers: Sequence[int]) -> None:
    """Enter the partition number of every block, a set of kernels as bits, for each of its kernels."""
    for mask, number in zip(blocks.tolist(), numbers, strict=False):
        for k in range(len(partition_k)):
            if mask >> k & 1:
                partition_k[k] = number


class Problem:
    """One plan: prices of blocks by schemes, and the sequences of blocks that its stages may run as."""

    def __init__(self, world: World, asked: Request, memo: Memo) -> None:
        self.world, self.asked, self.memo = world, asked, memo
        graph, chosen = world.graph, world.assumptions
        self.index = graph.index()
        ends = [(self.index[t.src], self.index[t.dst]) for t in graph.tensors]
        self.cuts = Cuts(world, asked)
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
        blocks = tuple(
            TokenBlocks(stage=stage, partition=partition, blocks=int(self.memo["blocks of tokens", key]))
            for stage, partition in sorted(set(places))
            if ("blocks of tokens", key := self.key_of(_mask(places, (stage, partition)), schemes, count)) in self.memo
        )
        named = {"graph": graph.name, "system": world.system.name, "plan": world.plan}
        return Mapping(**named, kernels=kernels, tile_count=count, token_blocks=blocks or None)

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

    def step_s(self, seconds: Sequence[float]) -> float:
        """Seconds of a step of these pipeline stages, without hops and gradients, which only the judge adds."""
        world = self.world
        return step_seconds(seconds, self.places, world.plan, world.assumptions, trains=world.graph.trains)

    @functools.cached_property
    def places(self) -> Sequence[int]:
        """Which of the distinct pipeline stages every stage is."""
        return self.case(*self.plainest()).line

    @functools.cached_property
    def ranks(self) -> tuple[case.Rank, ...]:
        """The distinct pipeline stages of the plan."""
        return self.case(*self.plainest()).ranks

    def times(self, stage: int, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> np.ndarray:
        """Seconds of every sequence of blocks of a stage."""
        sequences = self.cuts.of(bits_of(stage_k, stage), stage)
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
        looked = replace(self.case(schemes, stage_k, partition_k, count), token_blocks={})
        for mask, seconds in self.prices(looked).items():
            self.memo[self.key_of(mask, schemes, count)] = seconds
        for blocks in range(1, ops.streamed_rows(self.world.graph) + 1) if looked.assume.blocks_tokens else ():
            in_blocks = replace(looked, token_blocks=dict.fromkeys(looked.members, blocks))
            refused = [sentence.split(" takes ")[0] for sentence in token_blocks.refused(in_blocks)]
            for mask, seconds in self.prices(in_blocks, refused).items():
                key = self.key_of(mask, schemes, count)
                if seconds < self.memo[key]:
                    self.memo[key], self.memo["blocks of tokens", key] = seconds, blocks

    def prices(self, looked: case.Case, refused: Sequence[str] = ()) -> dict[int, float]:
        """What the blocks of a mapping cost, infinite where one does not fit, or is refused by its name."""
        found = {}
        tiling, paid = traffic.weight_parts(looked), network.tensor_parallel(looked)
        sram = traffic.sram_need(looked, tiling)
        moved = traffic.by_memory(looked, tiling)
        room = looked.system.chip.sram.capacity * (1 + _SAME)
        for part in timing._partitions(looked, sent_by_place(looked, paid, self.price), moved, sram):
            members = looked.members[part.stage, part.partition]
            apart = any(k in tiling.stuck or (k in tiling.parts and len(members) > 1) for k in members)
            named = f"partition {part.partition} of stage {part.stage}"
            fits = part.sram_bytes <= room and not apart and named not in refused
            mask = sum(1 << k for k in members)
            time_s = part.time_s
            if hidden := sum(self.hidden[k] for k in members):
                beside = max(part.network_s - hidden, 0.0)
                time_s = partition_time(part.compute_s, part.memory_s, beside, looked.assume.overlap, part.sram_s)
            found[mask] = time_s if fits else math.inf
        return found

    # -- DRAM -----------------------------------------------------------------------------------
    def partitions(self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int) -> tuple[int, ...] | None:
        """The fastest partition of every kernel with which every pipeline stage keeps to its DRAM."""
        left = self.left(schemes, stage_k, count)
        if self.world.plan.two_batch_overlap:
            return self.in_turns(left, schemes, stage_k, count)
        partition_k = [0] * len(schemes)
        for stage in set(stage_k):
            sequences, times = self.fitting(left[stage], stage, schemes, stage_k, count)
            best = int(times.argmin())
            if not math.isfinite(times[best]):
                return None
            place(partition_k, sequences.rows[best], sequences.partitions[best])
        return tuple(partition_k)

    def every_partition(
        self, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int
    ) -> Iterator[tuple[tuple[float, ...], tuple[int, ...]]]:
        """Seconds of every pipeline stage, and the partition of every kernel, of all that fits."""
        left, menus = self.left(schemes, stage_k, count), []
        stages = sorted(set(stage_k))
        for stage in stages:
            sequences, times = self.fitting(left[stage], stage, schemes, stage_k, count)
            rows = np.flatnonzero(np.isfinite(times))
            menus.append([(float(times[row]), sequences.rows[row], sequences.partitions[row]) for row in rows])
        for some in itertools.product(*menus):
            took = {stage: seconds for stage, (seconds, _, _) in zip(stages, some, strict=True)}
            partition_k = [0] * len(schemes)
            for _, blocks, numbers in some:
                place(partition_k, blocks, numbers)
            ranks = (math.fsum(times * took.get(at, 0.0) for at, times in rank.runs.items()) for rank in self.ranks)
            yield tuple(ranks), tuple(partition_k)

    def fitting(
        self, left: float, stage: int, schemes: tuple[Sharding, ...], stage_k: tuple[int, ...], count: int
    ) -> tuple[Sequences, np.ndarray]:
        """Every cut of a stage, and its seconds, infinite where what waits does not fit in the bytes that are left."""
        sequences = self.cuts.of(bits_of(stage_k, stage), stage)
        times = self.times(stage, schemes, stage_k, count)
        if math.isfinite(left):
            fits = self.waiting(sequences.rows, schemes, stage_k, stage) <= left
            times = np.where(fits, times, math.inf)
        return sequences, times

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
            sequences, times = self.fitting(left[stage], stage, schemes, stage_k, count)
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
