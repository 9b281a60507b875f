"""What a partition moves, as streams that the memory serves; `dfopt.technology.streams` tells how bytes lie there."""

from __future__ import annotations

from collections.abc import Iterator

from dfopt.judge.case import Case, End, Fan, Place
from dfopt.judge.traffic import Moved, WeightParts, moves
from dfopt.judge.types import made_word, word
from dfopt.physics.operands import splits_features
from dfopt.technology.streams import Flow, contiguous_bytes, lookups


def flows(case: Case, tiling: WeightParts) -> Iterator[tuple[Place, Flow]]:
    """Place and data stream of everything that moves to or from DRAM."""
    for moved in moves(case, tiling):
        for flow in _flows(case, moved):
            if flow.bytes > 0:
                yield moved.place, flow


def _flows(case: Case, moved: Moved) -> tuple[Flow, ...]:
    of, size = moved.of, moved.bytes
    if isinstance(of, Fan):
        source = case.kernels[of.src]
        split = case.plan.shards if splits_features(source.sharding) else 1
        row, rows = (
            -(-source.kernel.m // split) * made_word(case.graph, source.kernel),
            -(-source.kernel.n // case.tile_count),
        )
        return (Flow(size, contiguous_bytes(of.chip, of.tile, row, rows, split), moved.write),)
    if isinstance(of, End):
        return (Flow(size, contiguous_bytes(of.chip, of.tile, of.row, of.rows, of.split), moved.write),)
    if moved.what == "lookups":
        return lookups(size, of.kernel.m * word(case.graph, "ends"), of.forward)
    if moved.what == "gradient":
        passes = case.assume.gradient_passes  # of two, the first reads
        return tuple(Flow(size / passes, size / passes, write) for write in (False, True)[-passes:])
    return (Flow(size, size / moved.times, moved.write),)
