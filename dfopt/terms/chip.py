"""The chip as pricing sees it: its limits, its rates, and how the seconds of its resources make the time of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from typing import NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Floats
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.system import EfficiencyRow, System
from dfopt.physics.efficiency import bandwidth_share, memory_rows

RESOURCES = ("compute", "memory", "network")
"""What a block of kernels keeps busy on every chip. *Terms* are the seconds of each resource, in this order.

A chip whose SRAM has a bandwidth has a fourth, ``sram``. SRAM seconds of a kernel do not depend on its block.
"""

CROSSING_TILES = 2.0
"""Tiles buffered of a tensor on its way to or from DRAM: one moves while the other is worked on."""


ResourceSeconds = Sequence[Floats] | Floats  # of every resource of a chip: of one kernel or block, or arrays of them


class OverlapRule(NamedTuple):
    """How the time of a block follows from its seconds of compute, memory, network and SRAM: which of them overlap.

    The time is the largest of the seconds of all resources in ``hidden``, plus the sum of the seconds of all resources
    in ``added``. Each resource of the chip is in one of the two.

    Attributes
    ----------
    hidden : tuple of int
        Resources that overlap with each other, so that only the slowest counts: positions in
        :attr:`ChipModel.resources`.
    added : tuple of int
        Resources that overlap with nothing, so that their seconds are added: positions in :attr:`ChipModel.resources`.
    """

    hidden: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def serial_sets(self) -> tuple[tuple[int, ...], ...]:
        """The rule in another form: sets of resources, where time is the largest of the sums of seconds of each set.

        A tuple of sets, each a tuple of positions in :attr:`ChipModel.resources`. There is one for each resource of
        ``hidden``: that resource and all of ``added``. If nothing is hidden, ``added`` is the only set.
        """
        return tuple((resource, *self.added) for resource in self.hidden) or (self.added,)


@cache
def rule_of(overlap: str, resources: tuple[str, ...]) -> OverlapRule:
    """The resources whose seconds overlap, and those whose seconds are added, under a value of ``overlap``.

    Parameters
    ----------
    overlap : str
        Value of the assumption. ``perfect``: all resources overlap, and the slowest counts. ``none``: the seconds of
        all add up. ``compute_memory``: the seconds of ``network`` are added to those of the slowest of the others.
        ``auto`` has to be resolved before: it, and any unknown value, is taken for ``compute_memory`` without an error.
    resources : tuple of str
        Names of the resources, as in :attr:`ChipModel.resources`. ``network`` is among them.

    Returns
    -------
    OverlapRule
        Its numbers are positions in ``resources``.

    Raises
    ------
    ValueError
        If ``overlap`` is neither ``perfect`` nor ``none``, and ``network`` is not among the resources.

    Examples
    --------
    >>> rule_of("compute_memory", RESOURCES).serial_sets
    ((0, 2), (1, 2))
    """
    every = tuple(range(len(resources)))
    if overlap == "perfect":
        return OverlapRule(every, ())
    if overlap == "none":
        return OverlapRule((), every)
    sent = resources.index("network")
    return OverlapRule(tuple(resource for resource in every if resource != sent), (sent,))


@dataclass(frozen=True)
class ChipModel:
    """Limits and rates of one chip, and how the time of a block of kernels follows from the seconds of its resources.

    A *block* is a set of kernels that run together on the chip.

    Attributes
    ----------
    dram_bandwidth : B/s
        Rate of the fastest off-chip memory. With :attr:`memory_rows`: its nominal bandwidth times the largest share of
        these rows.
    sram : B
        Capacity of its SRAM.
    tiles : no unit
        Number of compute tiles of the chip. A block has at most as many kernels.
    overlap : e.g. perfect
        Overlap between resources (compute, memory, network, SRAM), see :func:`rule_of`.
    cuts_weights : bool
        Whether a kernel that is alone in its block may load its weight in parts.
    fused : bool
        Whether a block may hold several kernels.
    library : bool
        Whether a block may hold several kernels only if a GPU library has one fused kernel for all of them.
    sram_bandwidth : B/s
        Rate at which SRAM is read and written. Infinite where the system states none: SRAM traffic takes no time then.
    memory_rows : tuple of EfficiencyRow
        Shares of the nominal bandwidth that blocks sustain, by the bytes that a block moves in one evaluation. As
        ``dram_bandwidth`` has the largest share already, a block sustains ``dram_bandwidth * share / largest share``.
        Empty: all blocks sustain ``dram_bandwidth``. With rows, more bytes may take less time. Then the time of the
        fewest bytes is no lower bound on the time of a block: bounds need :attr:`rising` or :attr:`bounding`.
    rises : bool
        True: bytes take the least seconds that as many or more of them take, see :attr:`rising`.
    """

    dram_bandwidth: float
    sram: float
    tiles: int
    overlap: str
    cuts_weights: bool
    fused: bool
    library: bool
    sram_bandwidth: float = np.inf
    memory_rows: tuple[EfficiencyRow, ...] = ()
    rises: bool = False

    @property
    def rising(self) -> ChipModel:
        """The same chip with DRAM seconds that never fall: of so many bytes, the least seconds of these or any more.

        They are a lower bound as those of :attr:`bounding` are, and a higher one.
        """
        return replace(self, rises=bool(self.memory_rows))

    @property
    def bounding(self) -> ChipModel:
        """The same chip without :attr:`memory_rows`, for lower bounds on times.

        On the returned chip all blocks sustain ``dram_bandwidth``. So no block takes longer there than on the original,
        and more bytes never take less time.
        """
        return replace(self, memory_rows=())

    def dram_seconds(self, moved: Floats) -> Floats:
        """Seconds in which blocks move their bytes to and from DRAM, each block at the rate that it sustains.

        They are ``moved / rate``. Without :attr:`memory_rows` the rate is ``dram_bandwidth``. With rows it is
        ``dram_bandwidth * share / largest share of any row``. A block has the share of the first row whose ``bytes``
        are no more than it moves; a row without ``bytes`` fits every block.

        Parameters
        ----------
        moved : float array, B
            Bytes that each block moves in one evaluation, as the fastest memory counts them: a byte of a memory of half
            the bandwidth is two. Of any shape.

        Returns
        -------
        float array, s
            Seconds in the shape of ``moved``. 0 for a block that moves nothing.
        """
        if not self.memory_rows:
            return moved / self.dram_bandwidth
        seconds = self._by_share(moved)
        for row in self.memory_rows if self.rises else ():
            if row.bytes is not None:  # seconds fall only where the share of another row begins
                begins = np.array(row.bytes * (1 - ROUNDING))
                seconds = np.where(moved < begins, np.minimum(seconds, self._by_share(begins)), seconds)
        return seconds

    def _by_share(self, moved: Floats) -> Floats:
        most = max(row.share for row in self.memory_rows)
        return moved / self.dram_bandwidth * (most / bandwidth_share(self.memory_rows, moved))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources whose seconds make up the time of a block, in the order in which arrays have them.

        They are ``compute``, ``memory`` and ``network``, and last ``sram`` if the SRAM has a bandwidth.
        """
        return RESOURCES if np.isinf(self.sram_bandwidth) else (*RESOURCES, "sram")

    @cached_property
    def rule(self) -> OverlapRule:
        """Which of :attr:`resources` overlap, and which add their seconds to the time of a block (:func:`rule_of`)."""
        return rule_of(self.overlap, self.resources)


def reads_again(assumptions: Assumptions) -> bool:
    """Whether a kernel that runs in parts of its weight reads its inputs again for each part after the first.

    True under ``weight_tiling: reread`` and ``reread_all``, else false.
    """
    return assumptions.weight_tiling in ("reread", "reread_all")


def writes_again(assumptions: Assumptions) -> bool:
    """Whether a kernel that runs in parts of its weight writes its outputs again for each part after the first.

    True under ``weight_tiling: reread_all``, else false.
    """
    return assumptions.weight_tiling == "reread_all"


def chip_of(system: System, assumptions: Assumptions, bounding: bool = False) -> ChipModel:
    """Limits and rates of one chip of a machine, with what the assumptions allow blocks of kernels to do.

    Parameters
    ----------
    system
        The machine, whose chips are all equal.
    assumptions
        Resolved: no ``auto`` is left. ``execution``, ``overlap`` and ``weight_tiling`` decide what blocks may do. Under
        ``compute_model: efficiency`` rows of unit ``memory`` in the chip's table decide its DRAM rates.
    bounding : bool
        True: leave out :attr:`ChipModel.memory_rows`, for lower bounds. Then no block takes longer than with them.

    Returns
    -------
    ChipModel
        Its DRAM is the fastest memory of the chip. Callers count a byte of a slower memory as several bytes of it:
        bandwidth of the fastest over bandwidth of the slower one.
    """
    # nothing lies elsewhere where there are such rows: `setting.plans` leaves no such plan
    rows = [row for row in memory_rows(system.chip, assumptions) if row.memory in (None, system.chip.fastest_tier)]
    most = max((row.share for row in rows), default=1.0)
    return ChipModel(
        dram_bandwidth=system.chip.fastest.bandwidth * most,
        sram=system.chip.sram.capacity,
        tiles=system.chip.tiles,
        overlap=assumptions.overlap,
        cuts_weights=assumptions.weight_tiling != "forbid",
        fused=assumptions.execution != "kernel_by_kernel",
        library=assumptions.execution == "library",
        sram_bandwidth=np.inf if system.chip.sram.bandwidth is None else system.chip.sram.bandwidth,
        memory_rows=() if bounding else tuple(row.model_copy(update={"memory": None}) for row in rows),
    )


def combine(terms: ResourceSeconds, chip: ChipModel) -> Floats:
    """Time of blocks from the seconds of their resources, which overlap as the chip says.

    A block is a set of kernels that run together. Its time is max(seconds of resources that overlap) + sum(seconds of
    all others).

    Parameters
    ----------
    terms : float arrays, s
        Seconds of each resource, in the order of :attr:`ChipModel.resources`: a sequence of arrays of one shape, or an
        array with the resources as its first axis.
    chip
        The chip, whose :attr:`ChipModel.rule` says which resources overlap.

    Returns
    -------
    float array, s
        Seconds of blocks, in the shape of the seconds of one resource.

    Examples
    --------
    >>> limits = {"sram": 1.0, "tiles": 4, "cuts_weights": True}
    >>> chip = ChipModel(dram_bandwidth=1.0, overlap="compute_memory", fused=True, library=False, **limits)
    >>> combine(np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 1.0]]), chip).tolist()
    [4.0, 3.0]
    """
    hidden, added = ([terms[resource] for resource in some] for some in chip.rule)
    time: Floats = reduce(np.add, [reduce(np.maximum, hidden), *added] if hidden else added)
    return time
