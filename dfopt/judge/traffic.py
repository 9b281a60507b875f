"""Bytes: what each partition moves to and from DRAM and SRAM, and keeps in SRAM."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from dfopt.arrays import ROUNDING
from dfopt.documents.placement import Item
from dfopt.judge import token_blocks
from dfopt.judge.case import Case, End, Fan, Place, Placed, totals
from dfopt.judge.types import made_word
from dfopt.physics import operands
from dfopt.physics.states import cache_traffic, own_traffic


@dataclass(frozen=True)
class WeightParts:
    """How kernels with weights run that do not fit SRAM alone.

    ``parts`` holds the number of weight parts of each tiled kernel; ``alone`` the bytes that each kernel
    with weights needs when nothing else is in its partition; ``stuck`` those whose buffers leave no room.
    """

    parts: dict[int, int]
    alone: dict[int, float]
    stuck: dict[int, float]

    def of(self, kernel: int) -> int:
        """Number of parts of a kernel's weight; 1 if it is not cut."""
        return self.parts.get(kernel, 1)


def weight_parts(case: Case) -> WeightParts:
    """Which kernels must load their weights in parts, and in how many."""
    # what a kernel has for its inputs and its outputs; of these for a part only: the weight is cut along them
    buffers: dict[bool, dict[int, list[float]]] = {False: defaultdict(list), True: defaultdict(list)}
    for of in case.tensors:
        for kernel, size, is_cut in buffered(of):
            buffers[is_cut][kernel].append(size)
    capacity = case.system.chip.sram.capacity
    parts, alone, stuck = {}, {}, {}
    for number, placed in enumerate(case.kernels):
        if placed.stationary <= 0 or placed.place in case.token_blocks:  # there weights pass by
            continue
        uncut, cut = math.fsum(buffers[False][number]), placed.stationary + math.fsum(buffers[True][number])
        alone[number] = uncut + cut
        if case.assume.weight_tiling == "forbid" or alone[number] <= capacity:
            continue
        if (count := parts_of(uncut, cut, capacity)) is None:
            stuck[number] = uncut
        else:
            parts[number] = count
    return WeightParts(parts, alone, stuck)


def parts_of(uncut: float, cut: float, capacity: float) -> int | None:
    """Fewest weight parts with which a kernel fits SRAM; None if no number does.

    Parameters
    ----------
    uncut, cut : float, B
        Bytes that parts do not divide, and bytes that they divide.
    capacity : float, B
        Bytes of SRAM.
    """
    return None if uncut >= capacity else math.ceil(cut / (capacity - uncut) - ROUNDING)


def buffered(of: Fan | End) -> Iterator[tuple[int, float, bool]]:
    """(kernel, bytes, whether weight parts cut them) of the buffers of kernels alone in their partitions."""
    if isinstance(of, End):
        yield of.kernel, 2 * of.tile, False
        return
    yield of.src, 2 * of.tile, True
    for kernel in of.readers:
        yield kernel, 2 * of.tile, False


What = Literal["tensor", "weight", "own data", "lookups", "cache", "gradient"]


_ITEMS: Final[dict[What, Item]] = {"own data": "tables", "lookups": "tables", "cache": "caches"}


class Moved(NamedTuple):
    """Bytes that a partition moves to or from DRAM, for one microbatch and layer.

    Attributes
    ----------
    place : Place
        Stage and partition.
    what : str
        Kind of data.
    bytes : float, B
        Bytes of one move.
    of : Fan, End or Placed
        The tensor, or the kernel, that the data belong to.
    write : bool
        Whether they are written. Lookups and gradients go both ways and are listed as reads.
    times : int
        Number of moves of the same bytes, in sequence.
    """

    place: Place
    what: What
    bytes: float
    of: Fan | End | Placed
    write: bool = False
    times: int = 1

    @property
    def item(self) -> Item | None:
        """Placement item of the data, or None for data that always use the fastest memory."""
        if self.what == "weight" and isinstance(self.of, Placed):
            return "experts" if self.of.kernel.module == "experts" else "weights"
        return _ITEMS.get(self.what)


def moves(case: Case, tiling: WeightParts) -> Iterator[Moved]:
    """All DRAM transfers of partitions."""
    for of in case.tensors:
        yield from moved(case, of)
    for placed in case.kernels:
        kernel = placed.kernel
        if placed.read and case.assume.weights_from_dram:
            yield Moved(placed.place, "weight", placed.read, placed)
        if kernel.dram_bytes_per_chip:
            yield Moved(placed.place, "own data", kernel.dram_bytes_per_chip, placed)
        if kernel.dram_bytes:
            yield Moved(placed.place, "lookups", kernel.dram_bytes / case.plan.shards, placed)
        read, written = cache_traffic(kernel, placed.sharding, case.plan.shards)
        if read:
            yield Moved(placed.place, "cache", read, placed)
        if written:
            yield Moved(placed.place, "cache", written, placed, write=True)
        if placed.accumulator:
            yield Moved(placed.place, "gradient", case.assume.gradient_passes * placed.accumulator, placed)
    for place, what, size, source in token_blocks.again(case):
        times = case.token_blocks[place] - 1
        if times:
            yield Moved(place, what, times * size, source, times=times)
    if tiling.parts:
        for of in case.tensors:
            yield from moved_again(case, of, tiling)


def moved(case: Case, of: Fan | End) -> Iterator[Moved]:
    """First transfers of a tensor by each partition."""
    if isinstance(of, End):
        yield Moved(case.place(of.kernel), "tensor", of.chip, of, of.write)
    elif case.assume.operand_traffic is not None:
        yield from _of_its_ends(case, of)
    else:
        if of.away:
            yield Moved(of.home, "tensor", of.chip, of, write=True)
        for place in of.away:
            yield Moved(place, "tensor", of.chip, of)


def moved_again(case: Case, of: Fan | End, tiling: WeightParts) -> Iterator[Moved]:
    """Repeated transfers of a tensor, for further parts of a weight.

    Parameters
    ----------
    case, of : Case, Fan or End
        The mapping, and the tensor or the input or output of the graph.
    tiling : WeightParts
        Numbers of weight parts of kernels.
    """
    if case.assume.weight_tiling not in ("reread", "reread_all"):
        return
    for number, chip, write in touched(of):
        if number in tiling.parts and (
            not write or (case.assume.weight_tiling == "reread_all" and isinstance(of, Fan))
        ):
            yield Moved(case.place(number), "tensor", (tiling.parts[number] - 1) * chip, of, write)


def _of_its_ends(case: Case, fan: Fan) -> Iterator[Moved]:
    """Of a fan, what its source writes and each of its readers reads, as their own schemes say."""
    degree, rules, source = case.plan.shards, case.assume.sharding_rules, case.kernels[fan.src]
    tiled = case.assume.operand_traffic == "own_tiled"
    wrote = operands.written_share(source.kernel, source.sharding, degree, rules, tiled)
    adders, assume = operands.adding(case.graph), case.assume
    if operands.work_whole(source.kernel, source.sharding, adders, assume):
        wrote = 1.0
    yield Moved(fan.home, "tensor", fan.total * wrote, fan, write=True)
    elements = fan.total / made_word(case.graph, source.kernel)
    for number in fan.readers:
        placed = case.kernels[number]
        shares = (
            operands.read_share(placed.kernel, reader.operand, placed.sharding, degree, rules, elements, tiled)
            for reader in fan.consumers
            if reader.kernel == number
        )
        read = 1.0 if operands.work_whole(placed.kernel, placed.sharding, adders, assume) else max(shares)
        yield Moved(placed.place, "tensor", fan.total * read, fan)


def by_memory(case: Case, tiling: WeightParts) -> dict[str, dict[Place, float]]:
    """Bytes that every partition moves to and from each memory of a chip, by memory and place."""
    bytes_by_tier: dict[str, list[tuple[Place, float]]] = {name: [] for name in case.system.chip.tiers}
    for move in moves(case, tiling):
        bytes_by_tier[tier_of(case, move)].append((move.place, move.bytes))
    return {name: totals(parts) for name, parts in bytes_by_tier.items()}


def tier_of(case: Case, move: Moved) -> str:
    """Memory of a transfer; in training, kernels use only the fastest one."""
    return case.system.chip.fastest_tier if case.trains else case.plan.tier_of(move.item, case.system.chip)


def touched(of: Fan | End) -> Iterator[tuple[int, float, bool]]:
    """(kernel, bytes, whether it writes) of every access to a tensor by a kernel."""
    if isinstance(of, End):
        yield of.kernel, of.chip, of.write
        return
    yield of.src, of.chip, True
    for kernel in of.readers:
        yield kernel, of.chip, False


def inputs(case: Case) -> dict[int, float]:
    """Bytes of tensors, carried tensors and graph inputs that every kernel reads, by kernel."""
    return {number: math.fsum(sizes) for number, sizes in _touched(case, write=False).items()}


def _touched(case: Case, *, write: bool) -> dict[int, list[float]]:
    """Bytes of every tensor that every kernel writes, or reads."""
    sizes_by_kernel: dict[int, list[float]] = {number: [] for number in range(len(case.kernels))}
    for of in case.tensors:
        for number, size, writes in touched(of):
            if writes == write:
                sizes_by_kernel[number].append(size)
    return sizes_by_kernel


def sram_traffic(case: Case) -> dict[int, float]:
    """Bytes that every kernel reads from and writes to SRAM, by kernel.

    A fan is written once by its source and read once by every consumer, whether it stays on the chip or goes through
    DRAM; weights, lookups and a kernel's own data are read once, gradient accumulators read and written, or written.
    """
    wrote, again = _touched(case, write=True), token_blocks.accessed_again(case)
    bytes_by_kernel = {}
    for number, taken in inputs(case).items():
        placed = case.kernels[number]
        own = own_traffic(placed.kernel, placed.sharding, case.plan.shards)
        gradient = case.assume.gradient_passes * placed.accumulator
        bytes_by_kernel[number] = math.fsum((*wrote[number], taken, placed.read, gradient, own, again[number]))
    return bytes_by_kernel


def sram_need(case: Case, tiling: WeightParts) -> dict[Place, float]:
    """SRAM bytes that every partition needs for buffers and stationary data, by place."""
    parts = [part for of in case.tensors for part in held(case, of, tiling)]
    parts += [
        (placed.place, placed.stationary / tiling.of(k)) for k, placed in enumerate(case.kernels) if placed.stationary
    ]
    return totals([*(part for part in parts if part[0] not in case.token_blocks), *token_blocks.in_sram(case)])


def held(case: Case, of: Fan | End, tiling: WeightParts) -> Iterator[tuple[Place, float]]:
    """SRAM bytes, by place, that partitions buffer of a tensor at a time.

    Parameters
    ----------
    case, of : Case, Fan or End
        The mapping, and the tensor or the input or output of the graph.
    tiling : WeightParts
        Numbers of weight parts of kernels.
    """
    if isinstance(of, End):
        yield case.place(of.kernel), 2 * of.tile
        return
    inside = [reader.depth for reader in of.consumers if case.place(reader.kernel) == of.home]
    if inside:
        yield of.home, max(inside) * of.tile
    if of.away:
        yield of.home, 2 * of.tile / tiling.of(of.src)
    for place in of.away:
        yield place, 2 * of.tile
