"""A space of designs: sizes of components, each from a list, and boxes of positions in these lists."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from dfopt.documents.design import Design
from dfopt.documents.result import Result
from dfopt.technology.derive import Derived

__all__ = ["Box", "Choice", "Sizes", "Space"]

Sizes = tuple[int, ...]


class Box(NamedTuple):
    """Positions of sizes from ``low`` to ``high``, in the order of ``Design.searched``, of one of several designs."""

    low: Sizes
    high: Sizes
    which: int = 0

    @property
    def single(self) -> bool:
        """Whether this is one design."""
        return self.low == self.high

    def holds(self, other: Box) -> bool:
        """Whether all designs of another box are in this one."""
        ends = (*zip(self.low, other.low, strict=True), *zip(other.high, self.high, strict=True))
        return self.which == other.which and all(low <= high for low, high in ends)


@dataclass(frozen=True)
class Choice:
    """One design, and its best mapping; the same design is the same choice."""

    box: Box
    result: Result = field(compare=False)


@dataclass(frozen=True)
class Space(ABC):
    """The designs that one document stands for; a kind of design says what a box of them can do at best."""

    design: Design

    @cached_property
    @abstractmethod
    def sizes(self) -> Mapping[str, tuple[float, ...]]:
        """Every size of every component that is to be chosen, the smallest first."""

    @abstractmethod
    def chip(self, box: Box) -> Derived | None:
        """The chip of one design, or the best corner of several; none where nothing in the box fits the budgets."""

    @abstractmethod
    def least(self, box: Box, corner: Derived) -> Derived:
        """The best corner, but drawing and costing no more than any design of the box that makes a system."""

    @abstractmethod
    def one_design(self, positions: Sizes) -> Design:
        """The document of one design."""

    @property
    def count(self) -> int:
        """How many designs there are, those that do not fit the budgets among them."""
        return math.prod(len(sizes) for sizes in self.sizes.values())

    @property
    def whole(self) -> Box:
        """All designs."""
        return Box((0,) * len(self.sizes), tuple(len(sizes) - 1 for sizes in self.sizes.values()))

    def one(self, positions: Sizes) -> Box:
        """One design."""
        return Box(positions, positions)

    def named(self, positions: Sizes) -> dict[str, float]:
        """The sizes at some positions, by component."""
        return {name: sizes[at] for (name, sizes), at in zip(self.sizes.items(), positions, strict=True)}

    def alike(self, box: Box) -> Box:
        """All designs with the dies of those of a box, which has one number of dies."""
        return self.whole

    def of_one_stack(self, box: Box) -> bool:
        """Whether all designs of a box have the same number of dies."""
        return True

    def halves(self, box: Box) -> list[tuple[Box, Box]]:
        """The box in two halves, along each component of which it holds several sizes, the longest side first.

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
