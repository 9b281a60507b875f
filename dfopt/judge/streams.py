"""The streams that each partition sends to memory; how they lie there is told in `dfopt.technology.streams`.

The bytes are those of `dfopt.judge.traffic`, term by term.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dfopt.judge.case import Case, End, Fan, Place
from dfopt.judge.traffic import WeightParts
from dfopt.technology.streams import Flow, contiguous_bytes, lookups


class Moved(NamedTuple):
    """A flow of a partition, and what it carries."""

    place: Place
    what: str
    flow: Flow


def flows(case: Case, tiling: WeightParts) -> list[Moved]:
    """Everything that moves to or from DRAM; the bytes of a partition sum to `traffic.dram_traffic`."""
    return [Moved(place, what, flow) for place, what, flow in _flows(case, tiling) if flow.bytes > 0]


def _flows(case: Case, tiling: WeightParts) -> Iterator[tuple[Place, str, Flow]]:
    for fan in case.fans:
        if not fan.away:
            continue
        yield fan.home, "tensors", _tensor(case, fan, write=True)
        for place in sorted(fan.away):
            yield place, "tensors", _tensor(case, fan, write=False)
    for end in case.ends:
        yield case.place(end.kernel), "tensors", _end(end)
    for one in case.kernels:
        kernel = one.kernel
        if one.weight and case.assume.weights_from_dram:
            yield one.place, "weights", Flow(one.weight, one.weight, write=False)
        own, moved = kernel.dram_bytes_per_chip, kernel.dram_bytes / case.plan.shards
        if own:
            yield one.place, "own data", Flow(own, own, write=False)
        if moved:
            for flow in lookups(moved, float(kernel.m * case.graph.word_bytes), one.forward):
                yield one.place, "lookups", flow
        if one.accumulator:
            for write in (False, True):
                yield one.place, "gradients", Flow(one.accumulator, one.accumulator, write)
    if case.assume.weight_tiling in ("reread", "reread_all") and tiling.parts:
        for fan in case.fans:
            for number in sorted(tiling.parts.keys() & fan.readers):
                yield case.place(number), "tensors", _tensor(case, fan, write=False, times=tiling.parts[number] - 1)
        for end in case.ends:
            if not end.write and end.kernel in tiling.parts:
                yield case.place(end.kernel), "tensors", _end(end, times=tiling.parts[end.kernel] - 1)
    if case.assume.weight_tiling == "reread_all":
        for fan in case.fans:
            if fan.src in tiling.parts:
                yield fan.home, "tensors", _tensor(case, fan, write=True, times=tiling.parts[fan.src] - 1)


def _tensor(case: Case, fan: Fan, write: bool, times: int = 1) -> Flow:
    placed = case.kernels[fan.src]
    kernel, split = placed.kernel, case.plan.shards if placed.sharding == "m" else 1
    row, rows = float(-(-kernel.m // split) * case.graph.word_bytes), -(-kernel.n // case.tile_count)
    return Flow(times * fan.chip, contiguous_bytes(fan.chip, fan.tile, row, rows, split), write)


def _end(end: End, times: int = 1) -> Flow:
    return Flow(times * end.chip, contiguous_bytes(end.chip, end.tile, end.row, end.rows, end.split), end.write)
