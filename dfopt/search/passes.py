"""Seconds of a plan's forward and backward pass: how long gradients can be added up before the step has to wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dfopt.fusion.blocks import price_each
from dfopt.fusion.partitioning import blocks_of, rest_bound
from dfopt.fusion.priced import PricedStage
from dfopt.setting.overlap import Passes
from dfopt.setting.tables import Ints

__all__ = ["least_passes", "passes_of"]


def least_passes(stages: Iterable[PricedStage], ahead_s: float = 0.0) -> Passes:
    """What no partitions beat: as much forward pass, ``ahead_s`` at least, and as much of what holds nothing of it."""
    forward_s, backward_s = [], []
    for stage in stages:
        ahead = back = 0.0
        if (tables := stage.tables) is not None and stage.limits is not None:
            forward_k = tables.sharded.forward_k[None, :]
            ahead = float(rest_bound(tables, stage.limits, ~forward_k)[0])
            if not tables.chip.fused or stage.limits.forward_backward == "separate":  # else all may be mixed
                back = float(rest_bound(tables, stage.limits, forward_k)[0])
        forward_s.append(max(ahead, ahead_s))
        backward_s.append(back)
    return Passes(tuple(forward_s), tuple(backward_s))


def passes_of(stages: Iterable[PricedStage], stage_seconds: Sequence[float], partition_k: Ints) -> Passes:
    """The passes that partitions make, which take so many seconds in every stage."""
    backward_s = []
    for stage in stages:
        back = 0.0
        if stage.tables is not None:
            blocks = blocks_of(partition_k[stage.members])
            ahead = np.array([stage.tables.sharded.forward_k[block].any() for block in blocks])
            back = float(price_each(stage.tables, blocks).time[~ahead].sum())
        backward_s.append(back)
    forward_s = (whole - back for whole, back in zip(stage_seconds, backward_s, strict=True))
    return Passes(tuple(forward_s), tuple(backward_s))
