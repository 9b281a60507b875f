"""A plan with some schemes left for every kernel, and what is proven of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.documents.result import SolveRecord
from dfopt.search.candidate import Prepared
from dfopt.setting.tables import Bools


@dataclass(eq=False)
class Node:
    """A plan and tile count with the schemes that are left, and what is proven of it.

    ``ready``: the plan with every figure at its least; ``lows``: seconds that each stage takes at least.
    """

    ready: Prepared
    allowed_o: Bools
    whole: bool  # every legal scheme is left
    lows: list[float]
    bound: float
    rooted: bool = False
    exhausted: bool = False  # nothing more can be proven of it
    tight: bool = False  # what it would be best with does not fit
    heard: bool = False  # what communication by itself shows is known
    met: bool = False  # what layouts show is known
    patience: int = 0  # how often it waited until all others were done
    tried: set[tuple[int, ...]] = field(default_factory=set)  # options that were fused exactly
    agreed: set[str] = field(default_factory=set)  # kernels about whose outputs blocks had to agree

    def proven(self) -> None:
        """Take what the stages are shown to take into the bound."""
        nothing_fits = np.isinf(self.lows).any()
        self.bound = np.inf if nothing_fits else max(self.bound, self.ready.value_of(self.lows))

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.ready.plan


@dataclass(order=True)
class Entry:
    """A plan, or a node of it, in the order of what is proven of it."""

    bound: float
    number: int  # the earlier of two that are equal
    what: Plan | Node = field(compare=False)


Unit = tuple[Plan, int | None]
"""A plan and a tile count: what has a record of its own."""


@dataclass
class Found:
    """What is known of a unit: the least that is proven of what was given up, and its best mapping."""

    low: float = np.inf
    value: float = np.inf
    solves: tuple[SolveRecord, ...] = ()
    seconds: float = 0.0
    note: str = ""
    late: bool = False  # something was given up because the time was
    wide: bool = False  # something was given up because its down-sets are too many
    agreed: frozenset[str] = frozenset()  # kernels about whose outputs blocks had to agree
