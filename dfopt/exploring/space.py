"""A space of designs: sizes of components, each from a list, and boxes of positions in these lists.

From the corner of a box to one design that is good: the smallest that does, then downhill.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dfopt.documents.design import Design
from dfopt.documents.result import Result
from dfopt.technology.derive import Derived

Sizes = tuple[int, ...]


class Box(NamedTuple):
    """A box of designs of one document and batch.

    Attributes
    ----------
    low, high : tuple of int
        Least and greatest position of each size, in the order of ``Design.searched``.
    which : int
        Number of the design document.
    batch : int
        Batch that the designs run.
    """

    low: Sizes
    high: Sizes
    which: int = 0
    batch: int = 0

    @property
    def single(self) -> bool:
        """Whether the box has exactly one design."""
        return self.low == self.high

    def at(self, positions: Sizes) -> Box:
        """The single design at some positions, of the same document and batch."""
        return self._replace(low=positions, high=positions)

    def holds(self, other: Box) -> bool:
        """Whether another box lies inside this one."""
        ends = (*zip(self.low, other.low, strict=True), *zip(other.high, self.high, strict=True))
        return self.which == other.which and all(low <= high for low, high in ends)


@dataclass(frozen=True)
class DesignChoice:
    """A design with its best mapping; two choices are equal if design and batch are."""

    box: Box
    result: Result = field(compare=False)


@dataclass(frozen=True)
class DesignSpace(ABC):
    """Design space of one document; subclasses bound what a box of designs can reach."""

    design: Design

    @cached_property
    @abstractmethod
    def sizes(self) -> Mapping[str, tuple[float, ...]]:
        """All candidate sizes of every free component, in ascending order."""

    @abstractmethod
    def chip(self, box: Box) -> Derived | None:
        """Chip of one design, or the best corner of several; None if nothing in the box fits the budgets."""

    @abstractmethod
    def least(self, box: Box, corner: Derived) -> Derived:
        """The best corner with lower bounds on power and price over all valid designs of the box."""

    @abstractmethod
    def one_design(self, positions: Sizes) -> Design:
        """The document of the design at some positions."""

    @property
    def count(self) -> int:
        """Number of designs, including those that exceed the budgets."""
        return math.prod(len(sizes) for sizes in self.sizes.values())

    @property
    def root(self) -> Box:
        """The box of all designs."""
        return Box((0,) * len(self.sizes), tuple(len(sizes) - 1 for sizes in self.sizes.values()))

    def named(self, positions: Sizes) -> dict[str, float]:
        """Sizes by component at some positions."""
        return {name: sizes[at] for (name, sizes), at in zip(self.sizes.items(), positions, strict=True)}

    def layers(self, box: Box) -> set[float | None]:
        """Least and greatest number of DRAM layers in a box; {None} if layers are not free."""
        return {self.named(end).get("dram_layers") for end in (box.low, box.high)}

    def halves(self, box: Box) -> list[tuple[Box, Box]]:
        """Pairs of halves of the box along each free component, the longest side first.

        Lengths are in parts of all sizes of the component.
        """
        parted = []
        for at, (low, high, sizes) in enumerate(zip(box.low, box.high, self.sizes.values(), strict=True)):
            if low < high:
                middle = (low + high) // 2
                below = box._replace(high=(*box.high[:at], middle, *box.high[at + 1 :]))
                above = box._replace(low=(*box.low[:at], middle + 1, *box.low[at + 1 :]))
                parted.append(((high - low) / len(sizes), at, (below, above)))
        return [halves for _, _, halves in sorted(parted, key=lambda part: (-part[0], part[1]))]


def smallest(box: Box, fits: Callable[[Box], bool]) -> Box:
    """The design of the smallest sizes, coordinate by coordinate, such that the box up to it still ``fits``.

    Examples
    --------
    >>> smallest(Box((0, 0), (9, 9)), lambda box: box.high[0] >= 3 and box.high[1] >= 5).high
    (3, 5)
    """
    high = list(box.high)
    for at, least in enumerate(box.low):
        most = high[at]
        while least < most:
            high[at] = (least + most) // 2
            least, most = (least, high[at]) if fits(box._replace(high=tuple(high))) else (high[at] + 1, most)
        high[at] = most
    return box.at(tuple(high))


def downhill(design: Box, within: Box, value: Callable[[Box], float]) -> tuple[float, Box]:
    """Pattern search from a design with halving steps: the value at a local optimum, and that design.

    Parameters
    ----------
    design : Box
        A single design, where the search starts.
    within : Box
        Box that the search does not leave.
    value : callable
        Function from a single design to the value to minimize.

    Examples
    --------
    >>> far = Box((0, 0), (9, 9))
    >>> least, design = downhill(far.at((0, 0)), far, lambda box: (box.low[0] - 3) ** 2 + (box.low[1] - 12) ** 2)
    >>> least, design.low
    (9, (3, 9))
    """
    ends = list(zip(within.low, within.high, strict=True))
    step, best = max(high - low + 1 for low, high in ends) // 2, value(design)
    while step:
        around = []
        for at, (low, high) in enumerate(ends):
            for moved in (design.low[at] - step, design.low[at] + step):
                if low <= moved <= high:
                    near = design.at((*design.low[:at], moved, *design.low[at + 1 :]))
                    around.append((value(near), near))
        least, near = min(around, default=(math.inf, design))
        if least < best:
            best, design = least, near
        else:
            step //= 2
    return best, design
