"""Bytes: what each partition moves to and from DRAM and keeps in SRAM, and what a stage holds in DRAM."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dfopt.judge.case import Case, Fan, Place, Rank, totals
from dfopt.physics import memory, pipeline


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
    for fan in case.written_between_layers:
        buffers[fan.src].append(2 * fan.tile)
        buffers[fan.readers[0]].append(2 * fan.tile)
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
    for fan in case.written_between_layers:
        yield fan.home, fan.chip
        yield case.place(fan.readers[0]), fan.chip
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
        for fan in (*case.fans, *case.written_between_layers):
            for kernel in fan.readers:
                if kernel in tiling.parts:
                    yield case.place(kernel), (tiling.parts[kernel] - 1) * fan.chip
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
    for fan in case.written_between_layers:
        yield fan.home, 2 * fan.tile
        yield case.place(fan.readers[0]), 2 * fan.tile
    for number, one in enumerate(case.kernels):
        if one.stationary:
            yield one.place, one.stationary / tiling.of(number)


@dataclass(frozen=True)
class DramHeld:
    """Bytes that one chip of a stage holds in DRAM."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    resident: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.resident


def dram_held(case: Case, rank: Rank) -> DramHeld:
    """What a chip of a pipeline stage holds in DRAM: parameters, saved activations, tensors between partitions."""
    parts = [_kept(case, rank, stage, times) for stage, times in rank.runs.items()]
    waiting = max(_transient(case, stage) for stage in rank.runs)  # of one part: they run one after another
    return DramHeld(
        weights=math.fsum(part.weights for part in parts),
        gradients=math.fsum(part.gradients for part in parts),
        optimizer=math.fsum(part.optimizer for part in parts),
        activations=math.fsum(part.saved_activations for part in parts) + waiting,
        resident=math.fsum(part.resident for part in parts),
    )


def _kept(case: Case, rank: Rank, stage: int, times: int) -> memory.DramUse:
    """What the kernels of one stage of the mapping hold in a pipeline stage for the whole step."""
    graph, plan = case.graph, case.plan
    here = case.of_stage[stage]
    # A backward GEMM reads the weight of a forward one: when training, only the latter holds it.
    once = case.trains and case.forward_weights
    weights = math.fsum(one.weight for one in here if one.forward or not once)
    saved = math.fsum(fan.chip for fan in case.touching[stage] if fan.home[0] == stage and is_saved(case, fan))
    tables = math.fsum(one.kernel.resident_bytes for one in here)
    schedule = case.assume.schedule
    if case.has_pieces and stage > 0:
        in_flight = pipeline.once_in_flight(plan, case.trains, schedule, last=stage == 2)
    else:  # where all stages are drawn as one, it is the first, the fullest
        in_flight = pipeline.microbatches_in_flight(plan, case.trains, schedule, rank.number if case.has_pieces else 0)
    return memory.dram_use(graph, plan, case.assume, weights, saved, times, tables, in_flight)


def is_saved(case: Case, fan: Fan) -> bool:
    """Whether the forward pass keeps this fan for the backward pass."""
    if not case.trains or not case.kernels[fan.src].forward:
        return False
    return not all(case.kernels[reader].forward for reader in fan.readers)


def _transient(case: Case, stage: int) -> float:
    """Largest sum, over the partitions of a stage, of cut tensors that wait in DRAM."""
    mine = [partition for of_stage, partition in case.members if of_stage == stage]
    if not mine:
        return 0.0
    last = max(mine)
    counted_as_saved = case.trains and case.assume.gradients == "exact"
    # (partition, bytes): what starts to wait at a partition, and what no longer waits there
    changes: list[tuple[int, float]] = []
    for fan in case.touching[stage]:
        if not fan.away or (counted_as_saved and is_saved(case, fan)):
            continue
        home, here = fan.home, [partition for of_stage, partition in fan.away if of_stage == stage]
        if home[0] == stage:
            start, end = home[1], last if len(here) < len(fan.away) else max(here)
        elif here:
            start, end = 0, max(here)
        else:
            continue
        # A mapping that breaks the order still has a lifetime: from the earlier end to the later one.
        changes += [(min(start, *here, end), fan.chip), (max(start, end) + 1, -fan.chip)]
    peak = held = 0.0
    for _, change in sorted(changes):  # releases (negative) come first at each partition
        held += change
        peak = max(peak, held)
    return peak
