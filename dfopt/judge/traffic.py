"""Bytes: what each partition moves to and from DRAM and keeps in SRAM."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dfopt.judge.case import Case, Place, totals


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
        if one.stationary <= 0:
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


def dram_traffic(case: Case, tiling: WeightParts) -> dict[Place, float]:
    """Bytes that every partition moves to or from DRAM, for one microbatch and one layer."""
    return totals(_dram_parts(case, tiling))


def _dram_parts(case: Case, tiling: WeightParts) -> Iterator[tuple[Place, float]]:
    for fan in case.fans:
        if fan.away:
            yield fan.home, fan.chip
        for place in fan.away:
            yield place, fan.chip
    for end in case.ends:
        yield case.place(end.kernel), end.chip
    for one in case.kernels:
        if one.weight and case.assume.weights_from_dram:
            yield one.place, one.weight
        if one.kernel.dram_bytes_per_chip:
            yield one.place, one.kernel.dram_bytes_per_chip
        if one.kernel.dram_bytes:
            yield one.place, one.kernel.dram_bytes / case.plan.shards
        if one.accumulator:
            yield one.place, 2 * one.accumulator  # read and written once
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in case.fans:
            for kernel in fan.readers:
                if kernel in tiling.parts:
                    yield case.place(kernel), (tiling.parts[kernel] - 1) * fan.chip
        for end in case.ends:
            if not end.write and end.kernel in tiling.parts:
                yield case.place(end.kernel), (tiling.parts[end.kernel] - 1) * end.chip
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                yield fan.home, (tiling.parts[fan.src] - 1) * fan.chip


def sram_need(case: Case, tiling: WeightParts) -> dict[Place, float]:
    """Bytes of SRAM that every partition needs for its buffers and what is stationary."""
    return totals(_sram_parts(case, tiling))


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
