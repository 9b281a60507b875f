"""Bytes: what each partition moves to and from DRAM and SRAM, and keeps in SRAM."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from dfopt.documents.placement import Item
from dfopt.judge import token_blocks
from dfopt.judge.case import Case, End, Fan, Place, Placed, totals
from dfopt.judge.types import made_word
from dfopt.physics import operands
from dfopt.physics.states import cache_traffic, own_traffic


@dataclass(frozen=True)
class WeightParts:
    """How weighted kernels that do not fit by themselves are run.

    ``parts`` holds the number of weight parts of each tiled kernel; ``alone`` the bytes that each kernel
    with weights needs when nothing else is in its partition; ``stuck`` those whose buffers leave no room.
    """

    parts: dict[int, int]
    alone: dict[int, float]
    stuck: dict[int, float]

    def of(self, kernel: int) -> int:
        """Number of parts that a kernel's weights are cut into."""
        return self.parts.get(kernel, 1)


def weight_parts(case: Case) -> WeightParts:
    """Which kernels must be cut into weight parts, and into how many."""
    buffers: dict[int, list[float]] = defaultdict(list)
    outputs: dict[int, list[float]] = defaultdict(list)  # of a part only: the weight is cut along the outputs
    for fan in case.fans:
        outputs[fan.src].append(2 * fan.tile)
        for kernel in fan.readers:
            buffers[kernel].append(2 * fan.tile)
    for end in case.ends:
        buffers[end.kernel].append(2 * end.tile)
    capacity = case.system.chip.sram.capacity
    parts, alone, stuck = {}, {}, {}
    for number, one in enumerate(case.kernels):
        if one.stationary <= 0 or one.place in case.token_blocks:  # there weights pass by
            continue
        whole, cut = math.fsum(buffers[number]), one.stationary + math.fsum(outputs[number])
        alone[number] = whole + cut
        if case.assume.weight_tiling == "forbid" or alone[number] <= capacity:
            continue
        if whole >= capacity:
            stuck[number] = whole
        else:
            parts[number] = math.ceil(cut / (capacity - whole) - 1e-12)
    return WeightParts(parts, alone, stuck)


What = Literal["tensor", "weight", "own data", "lookups", "cache", "gradient"]


_ITEMS: Final[dict[What, Item]] = {"own data": "tables", "lookups": "tables", "cache": "caches"}


class Moved(NamedTuple):
    """Bytes that a partition moves to or from DRAM, for one microbatch and one layer.

    ``of`` is the tensor, the end or the kernel that they belong to. Lookups and gradients go both ways: what is written
    of them is not told apart here. ``times``: how often the same bytes are moved, one time after the other.
    """

    place: Place
    what: What
    bytes: float
    of: Fan | End | Placed
    write: bool = False
    times: int = 1

    @property
    def item(self) -> Item | None:
        """What a placement calls it; what is no item passes through the fastest memory."""
        if self.what == "weight" and isinstance(self.of, Placed):
            return "experts" if self.of.kernel.module == "experts" else "weights"
        return _ITEMS.get(self.what)


def moves(case: Case, tiling: WeightParts) -> Iterator[Moved]:
    """Everything that moves to or from DRAM."""
    for fan in case.fans:
        if case.assume.operand_traffic is not None:
            yield from _of_its_ends(case, fan)
            continue
        if fan.away:
            yield Moved(fan.home, "tensor", fan.chip, fan, write=True)
        for place in fan.away:
            yield Moved(place, "tensor", fan.chip, fan)
    for end in case.ends:
        yield Moved(case.place(end.kernel), "tensor", end.chip, end, end.write)
    for one in case.kernels:
        kernel = one.kernel
        if one.read and case.assume.weights_from_dram:
            yield Moved(one.place, "weight", one.read, one)
        if kernel.dram_bytes_per_chip:
            yield Moved(one.place, "own data", kernel.dram_bytes_per_chip, one)
        if kernel.dram_bytes:
            yield Moved(one.place, "lookups", kernel.dram_bytes / case.plan.shards, one)
        read, written = cache_traffic(kernel, one.sharding, case.plan.shards)
        if read:
            yield Moved(one.place, "cache", read, one)
        if written:
            yield Moved(one.place, "cache", written, one, write=True)
        if one.accumulator:
            yield Moved(one.place, "gradient", case.assume.gradient_passes * one.accumulator, one)
    for place, what, size, of in token_blocks.again(case):
        times = case.token_blocks[place] - 1
        if times:
            yield Moved(place, what, times * size, of, times=times)
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in case.fans:
            for number in fan.readers:
                if number in tiling.parts:
                    yield Moved(case.place(number), "tensor", (tiling.parts[number] - 1) * fan.chip, fan)
        for end in case.ends:
            if not end.write and end.kernel in tiling.parts:
                again = tiling.parts[end.kernel] - 1
                yield Moved(case.place(end.kernel), "tensor", again * end.chip, end)
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                yield Moved(fan.home, "tensor", (tiling.parts[fan.src] - 1) * fan.chip, fan, write=True)


def _of_its_ends(case: Case, fan: Fan) -> Iterator[Moved]:
    """Of a fan, what its source writes and each of its readers reads, as their own schemes say."""
    degree, rules, source = case.plan.shards, case.assume.sharding_rules, case.kernels[fan.src]
    tiled = case.assume.operand_traffic == "own_tiled"
    wrote = operands.written_share(source.kernel, source.sharding, degree, rules, tiled)
    sums, assume = operands.adding(case.graph), case.assume
    if operands.work_whole(source.kernel, source.sharding, sums, assume):
        wrote = 1.0
    yield Moved(fan.home, "tensor", fan.whole * wrote, fan, write=True)
    elements = fan.whole / made_word(case.graph, source.kernel)
    for number in fan.readers:
        one = case.kernels[number]
        shares = (
            operands.read_share(one.kernel, reader.operand, one.sharding, degree, rules, elements, tiled)
            for reader in fan.consumers
            if reader.kernel == number
        )
        read = 1.0 if operands.work_whole(one.kernel, one.sharding, sums, assume) else max(shares)
        yield Moved(one.place, "tensor", fan.whole * read, fan)


def by_memory(case: Case, tiling: WeightParts) -> dict[str, dict[Place, float]]:
    """Bytes that every partition moves to and from each memory of a chip."""
    found: dict[str, list[tuple[Place, float]]] = {name: [] for name in case.system.chip.tiers}
    fastest = case.system.chip.fastest_tier
    for one in moves(case, tiling):  # while it trains, kernels work from the fastest only
        tier = fastest if case.trains else case.plan.tier_of(one.item, case.system.chip)
        found[tier].append((one.place, one.bytes))
    return {name: totals(parts) for name, parts in found.items()}


def inputs(case: Case) -> dict[int, float]:
    """Bytes of fans, carried tensors and inputs that every kernel reads."""
    read: dict[int, list[float]] = {number: [] for number in range(len(case.kernels))}
    for fan in case.fans:
        for kernel in fan.readers:
            read[kernel].append(fan.chip)
    for end in case.ends:
        if not end.write:
            read[end.kernel].append(end.chip)
    return {number: math.fsum(parts) for number, parts in read.items()}


def sram_traffic(case: Case) -> dict[int, float]:
    """Bytes that every kernel reads from SRAM and writes there.

    A fan is written once by its source and read once by every consumer, whether it stays on the chip or goes through
    DRAM; weights, lookups and a kernel's own data are read once, gradient accumulators read and written, or written.
    """
    wrote: dict[int, list[float]] = defaultdict(list)
    for fan in case.fans:
        wrote[fan.src].append(fan.chip)
    for end in case.ends:
        if end.write:
            wrote[end.kernel].append(end.chip)
    found, again = {}, token_blocks.accessed_again(case)
    for number, taken in inputs(case).items():
        one = case.kernels[number]
        own = own_traffic(one.kernel, one.sharding, case.plan.shards)
        gradient = case.assume.gradient_passes * one.accumulator
        found[number] = math.fsum((*wrote[number], taken, one.read, gradient, own, again[number]))
    return found


def sram_need(case: Case, tiling: WeightParts) -> dict[Place, float]:
    """Bytes of SRAM that every partition needs for its buffers and what is stationary."""
    held = (part for part in _sram_parts(case, tiling) if part[0] not in case.token_blocks)
    return totals([*held, *token_blocks.in_sram(case)])


def _sram_parts(case: Case, tiling: WeightParts) -> Iterator[tuple[Place, float]]:
    for fan in case.fans:
        inside = [r.depth for r in fan.consumers if case.place(r.kernel) == fan.home]
        if inside:
            yield fan.home, max(inside) * fan.tile
        if fan.away:
            yield fan.home, 2 * fan.tile / tiling.of(fan.src)
        for place in fan.away:
            yield place, 2 * fan.tile
    for end in case.ends:
        yield case.place(end.kernel), 2 * end.tile
    for number, one in enumerate(case.kernels):
        if one.stationary:
            yield one.place, one.stationary / tiling.of(number)
