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
        for kernel in {reader.kernel for reader in fan.consumers}:
            buffers[kernel].append(2 * fan.tile)
    for fan in case.written_between_layers:
        buffers[fan.src].append(2 * fan.tile)
        buffers[fan.consumers[0].kernel].append(2 * fan.tile)
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
        home = case.place(fan.src)
        away = {case.place(reader.kernel) for reader in fan.consumers} - {home}
        if away:
            yield home, fan.chip
        for place in away:
            yield place, fan.chip
    for fan in case.written_between_layers:
        yield case.place(fan.src), fan.chip
        yield case.place(fan.consumers[0].kernel), fan.chip
    for one in case.kernels:
        if case.assume.weights_from_dram:
            yield one.place, one.weight
        yield one.place, one.kernel.dram_bytes_per_chip
        yield one.place, one.kernel.dram_bytes / case.plan.tp
        yield one.place, 2 * one.accumulator  # read and written once
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in (*case.fans, *case.written_between_layers):
            for kernel in {reader.kernel for reader in fan.consumers} & tiling.parts.keys():
                yield case.place(kernel), (tiling.parts[kernel] - 1) * fan.chip
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                yield case.place(fan.src), (tiling.parts[fan.src] - 1) * fan.chip


def sram_need(case: Case, tiling: WeightParts) -> dict[Place, float]:
    """Bytes of SRAM that every partition needs for its buffers and what is stationary."""
    return totals(_sram_parts(case, tiling))


def _sram_parts(case: Case, tiling: WeightParts) -> Iterator[tuple[Place, float]]:
    for fan in case.fans:
        home = case.place(fan.src)
        inside = [r.depth for r in fan.consumers if case.place(r.kernel) == home]
        away = {case.place(reader.kernel) for reader in fan.consumers} - {home}
        if inside:
            yield home, max(inside) * fan.tile
        if away:
            yield home, 2 * fan.tile / tiling.of(fan.src)
        for place in away:
            yield place, 2 * fan.tile
    for fan in case.written_between_layers:
        yield case.place(fan.src), 2 * fan.tile
        yield case.place(fan.consumers[0].kernel), 2 * fan.tile
    for number, one in enumerate(case.kernels):
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
    gemms = [one for one in case.kernels if one.kernel.op == "gemm"]
    # A backward GEMM reads the weight of a forward one: when training, only the latter holds it.
    if graph.trains and any(one.forward for one in gemms):
        gemms = [one for one in gemms if one.forward]
    weights = math.fsum(one.weight for one in gemms if one.place[0] == stage)
    kept = (fan for fan in case.fans if case.place(fan.src)[0] == stage and is_saved(case, fan))
    saved = math.fsum(fan.chip for fan in kept)
    tables = math.fsum(one.kernel.resident_bytes for one in case.kernels if one.place[0] == stage)
    schedule = case.assume.schedule
    if case.has_pieces and stage > 0:
        in_flight = pipeline.once_in_flight(plan, graph.trains, schedule, last=stage == 2)
    else:  # where all stages are drawn as one, it is the first, the fullest
        in_flight = pipeline.microbatches_in_flight(plan, graph.trains, schedule, rank.number if case.has_pieces else 0)
    return memory.dram_use(graph, plan, case.assume, weights, saved, times, tables, in_flight)


def is_saved(case: Case, fan: Fan) -> bool:
    """Whether the forward pass keeps this fan for the backward pass."""
    readers = (case.kernels[reader.kernel] for reader in fan.consumers)
    return case.kernels[fan.src].forward and not all(one.forward for one in readers)


def _transient(case: Case, stage: int) -> float:
    """Largest sum, over the partitions of a stage, of cut tensors that wait in DRAM."""
    mine = [partition for of_stage, partition in case.members if of_stage == stage]
    if not mine:
        return 0.0
    last = max(mine)
    counted_as_saved = case.graph.trains and case.assume.gradients == "exact"
    # (partition, bytes): what starts to wait at a partition, and what no longer waits there
    changes: list[tuple[int, float]] = []
    for fan in case.fans:
        home = case.place(fan.src)
        places = [case.place(reader.kernel) for reader in fan.consumers]
        if all(place == home for place in places) or (counted_as_saved and is_saved(case, fan)):
            continue
        here = [partition for of_stage, partition in places if of_stage == stage]
        if home[0] == stage:
            start, end = home[1], last if len(here) < len(places) else max(here)
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
