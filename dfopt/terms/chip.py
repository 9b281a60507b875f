"""The chip as pricing sees it: its limits, its rates, and how the seconds of its resources make the time of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import EfficiencyRow, System
from dfopt.physics.efficiency import bandwidth_share, memory_rows

RESOURCES = ("compute", "memory", "network")
"""What a block of kernels keeps busy; arrays of *terms* have the seconds of each, in this order.

Further ones follow where a chip has them: of these a kernel takes the same seconds in every block.
"""

CROSSING_TILES = 2.0
"""Tiles buffered of a tensor on its way to or from DRAM: one moves while the other is worked on."""

Terms = Sequence[Floats] | Floats  # seconds of every resource of a chip: of one kernel or block, or arrays of them


class Rule(NamedTuple):
    """How terms make up a time: the slowest of those that hide behind each other, and all that are added to it.

    Both are positions among the resources of a chip.
    """

    hidden: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def hides_all(self) -> bool:
        """Whether every resource hides behind the slowest."""
        return not self.added

    @property
    def hides_nothing(self) -> bool:
        """Whether all resources add up."""
        return not self.hidden

    @property
    def sums(self) -> tuple[tuple[int, ...], ...]:
        """Terms that add up: the time is the largest of these sums."""
        return tuple((one, *self.added) for one in self.hidden) or (self.added,)


@cache
def rule_of(overlap: str, resources: tuple[str, ...]) -> Rule:
    """What the overlap assumption says about resources.

    Examples
    --------
    >>> rule_of("compute_memory", RESOURCES).sums
    ((0, 2), (1, 2))
    """
    every = tuple(range(len(resources)))
    if overlap == "perfect":
        return Rule(every, ())
    if overlap == "none":
        return Rule((), every)
    sent = resources.index("network")
    return Rule(tuple(one for one in every if one != sent), (sent,))


@dataclass(frozen=True)
class Chip:
    """Limits and rates of one chip, and how the seconds of its resources make up the time of a block.

    Attributes
    ----------
    dram_bandwidth : B/s
        The most that any block sustains.
    sram : B
        Its capacity.
    tiles : no unit
        Compute tiles; a block has no more kernels.
    overlap : e.g. perfect
        Which resources hide behind each other, see :func:`rule_of`.
    cuts_weights
        Whether a kernel alone may load its weight in parts.
    reads_again, writes_again
        Whether it then moves its inputs again for each further part, and its outputs.
    fused
        Whether a block may hold several kernels.
    library
        Whether it may hold only those that a library has one kernel for.
    sram_bandwidth : B/s
        Infinite where it is no limit.
    memory_rows
        Shares of the DRAM bandwidth by bytes of a block. With them more bytes may take less time: what is said of a
        block by its kernels is then a bound, see :meth:`bounding`.
    """

    dram_bandwidth: float
    sram: float
    tiles: int
    overlap: str
    cuts_weights: bool
    reads_again: bool
    writes_again: bool
    fused: bool
    library: bool
    sram_bandwidth: float = np.inf
    memory_rows: tuple[EfficiencyRow, ...] = ()

    @property
    def bounding(self) -> Chip:
        """The chip without :attr:`memory_rows`: no block takes longer, and more bytes never take less time."""
        return replace(self, memory_rows=())

    def dram_seconds(self, moved: Floats) -> Floats:
        """Seconds in which blocks move their bytes to and from DRAM, each block at the rate that it sustains."""
        if not self.memory_rows:
            return moved / self.dram_bandwidth
        most = max(row.share for row in self.memory_rows)
        return moved / self.dram_bandwidth * (most / bandwidth_share(self.memory_rows, moved))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """What may bind it."""
        return RESOURCES if np.isinf(self.sram_bandwidth) else (*RESOURCES, "sram")

    @cached_property
    def rule(self) -> Rule:
        """How the seconds of its resources make up a time."""
        return rule_of(self.overlap, self.resources)


def reads_again(assumptions: Assumptions) -> bool:
    """Whether a kernel in parts of its weight reads its inputs again for each further part."""
    return assumptions.weight_tiling in ("reread", "reread_all")


def writes_again(assumptions: Assumptions) -> bool:
    """Whether a kernel in parts of its weight writes its outputs again for each further part."""
    return assumptions.weight_tiling == "reread_all"


def chip_of(system: System, assumptions: Assumptions, bounding: bool = False) -> Chip:
    """The chip as pricing wants it, under resolved assumptions; or the one that bounds what it does."""
    # nothing lies elsewhere where there are such rows: `setting.plans` leaves no such plan
    rows = [row for row in memory_rows(system.chip, assumptions) if row.memory in (None, system.chip.fastest_tier)]
    most = max((row.share for row in rows), default=1.0)
    return Chip(
        dram_bandwidth=system.chip.fastest.bandwidth * most,
        sram=system.chip.sram.capacity,
        tiles=system.chip.tiles,
        overlap=assumptions.overlap,
        cuts_weights=assumptions.weight_tiling != "forbid",
        reads_again=reads_again(assumptions),
        writes_again=writes_again(assumptions),
        fused=assumptions.execution != "kernel_by_kernel",
        library=assumptions.execution == "library",
        sram_bandwidth=np.inf if system.chip.sram.bandwidth is None else system.chip.sram.bandwidth,
        memory_rows=() if bounding else tuple(row.model_copy(update={"memory": None}) for row in rows),
    )


def combine(terms: Terms, chip: Chip) -> Floats:
    """Time of a partition from the seconds of its resources."""
    hidden, added = ([terms[one] for one in some] for some in chip.rule)
    time: Floats = reduce(np.add, [reduce(np.maximum, hidden), *added] if hidden else added)
    return time
