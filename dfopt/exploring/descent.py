"""From the corner of a box of designs to one design that is good: the smallest that does, then downhill."""

from __future__ import annotations

import math
from collections.abc import Callable

from dfopt.exploring.space import Box

__all__ = ["downhill", "smallest"]


def smallest(box: Box, fits: Callable[[Box], bool]) -> Box:
    """The design of the smallest sizes, one after the other, up to which the box still fits.

    Examples
    --------
    >>> smallest(Box((0, 0), (9, 9)), lambda box: box.high[0] >= 3 and box.high[1] >= 5)
    Box(low=(3, 5), high=(3, 5), which=0)
    """
    high = list(box.high)
    for at, least in enumerate(box.low):
        most = high[at]
        while least < most:
            high[at] = (least + most) // 2
            least, most = (least, high[at]) if fits(box._replace(high=tuple(high))) else (high[at] + 1, most)
        high[at] = most
    return Box(tuple(high), tuple(high), box.which)


def downhill(design: Box, within: Box, value: Callable[[Box], float]) -> tuple[float, Box]:
    """From one design in steps of half the sizes and less to where no step helps: the value there, and the design.

    Examples
    --------
    >>> downhill(Box((0, 0), (0, 0)), Box((0, 0), (9, 9)), lambda box: (box.low[0] - 3) ** 2 + (box.low[1] - 12) ** 2)
    (9, Box(low=(3, 9), high=(3, 9), which=0))
    """
    ends = list(zip(within.low, within.high, strict=True))
    step, best = max(high - low + 1 for low, high in ends) // 2, value(design)
    while step:
        around = []
        for at, (low, high) in enumerate(ends):
            for moved in (design.low[at] - step, design.low[at] + step):
                if low <= moved <= high:
                    position = (*design.low[:at], moved, *design.low[at + 1 :])
                    near = Box(position, position, design.which)
                    around.append((value(near), near))
        least, near = min(around, default=(math.inf, design))
        if least < best:
            best, design = least, near
        else:
            step //= 2
    return best, design
