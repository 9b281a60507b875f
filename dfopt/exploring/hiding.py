"""Collectives that products hide: the one thing of which a chip that computes faster may have less.

A product that waits for memory takes no less time on a faster chip, and hides less of its collective
(`dfopt.physics.tiled`). So a corner that bounds several designs hides as much as the slowest of them does.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

from dfopt.documents.system import System
from dfopt.exploring.space import Box, DesignSpace
from dfopt.technology.derive import Derived

_LISTED: Final = 64  # designs whose rates are looked at one by one; a corner of more hides all that can be hidden


def with_slowest_hiding(corner: System, best: Derived, box: Box, space: DesignSpace) -> System:
    """The corner system of a box, with products that hide collectives for as long as on its slowest design.

    Parameters
    ----------
    corner, best
        The corner system, and its chip as the space derives it.
    box, space
        The box of designs, and the space that it is part of.
    """
    sides = [range(low, high + 1) for low, high in zip(box.low, box.high, strict=True)]
    share = 0.0
    if math.prod(map(len, sides)) <= _LISTED:
        chips = (space.chip(box.at(at)) for at in itertools.product(*sides))
        share = min((_share(chip, best) for chip in chips if chip is not None), default=0.0)
    return corner.model_copy(update={"chip": corner.chip.model_copy(update={"hiding_share": share})})


def _share(chip: Derived, best: Derived) -> float:
    """The least rate of a chip of all types of numbers, as a share of that of another one."""
    rates = [float(rate / best.core.peaks[kind]) for kind, rate in chip.core.peaks.items()]
    return min([*rates, float(chip.core.peak / best.core.peak), 1.0])
