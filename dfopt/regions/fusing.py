"""Layers with more down-sets than are listed: bounds and partitions from blocks that are generated on demand.

The solves are those of :mod:`dfopt.fusion.intrachip`. With every figure at its least over the options of a region they
bound its members; with one option of every kernel they find the best partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Clock
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.partitioning import IntraChipLimits, most_alive, numbered
from dfopt.regions.arcs import chain_of
from dfopt.regions.classes import PlanClass
from dfopt.regions.pricing import Lot, Priced, best_of
from dfopt.regions.region import Region
from dfopt.terms.table import Domain

_SHARE: Final = 0.1
"""Of the work that is left, at most, for the blocks of one region."""
_MOST: Final = 100_000.0
"""Units of work for them, at most."""


def for_blocks(clock: Clock) -> Clock:
    """The part of a clock for the blocks of one region."""
    return clock.share(_SHARE, _MOST)


class Fused(NamedTuple):
    """Bound and partitions of a kind of layer whose blocks are not all listed.

    Attributes
    ----------
    low : float, s
        No partitions take less. Infinite: there are none.
    partition_k : int array or None
        Partition of each kernel of the layer. None: nothing below the cutoff was found.
    """

    low: float
    partition_k: Ints | None = None


def fused(of: PlanClass, kind: int, domain: Domain, cutoff: float, clock: Clock, room: float = np.inf) -> Fused:
    """The best partitions of a kind of layer, with every figure at its least over the remaining options.

    Parameters
    ----------
    of : PlanClass
        The class of plans.
    kind : int
        Kind of layer.
    domain : Domain
        Options that are left.
    cutoff : float, s
        Seconds of a layer from which on partitions do not matter.
    clock : Clock
        Limit on the solve.
    room : float, B
        Upper bound on the DRAM bytes of tensors that wait between partitions.

    Raises
    ------
    KeyboardInterrupt
        If the solve was interrupted.
    """
    try:
        stage = of.stage(kind, domain)
    except Infeasible:
        return Fused(np.inf)
    return fused_stage(stage, replace(of.numbering_k[kind].limits, dram_left=room), cutoff, clock)


def fused_stage(stage: StageTables, limits: IntraChipLimits, cutoff: float, clock: Clock) -> Fused:
    """The best partitions of a stage.

    Parameters
    ----------
    stage : StageTables
        Prices of its kernels.
    limits : IntraChipLimits
        What partitions have to keep.
    cutoff : float, s
        Seconds from which on partitions do not matter.
    clock : Clock
        Limit on the solve.

    Raises
    ------
    KeyboardInterrupt
        If the solve was interrupted.
    """
    from dfopt.fusion.intrachip import CutOff, greedy, optimize_intrachip  # not for those who never ask

    try:
        most = cutoff if np.isfinite(cutoff) else None
        fusion = optimize_intrachip(stage, limits, clock=clock, start=greedy(stage, limits, clock), cutoff=most)
    except CutOff as proof:
        return Fused(proof.seconds)
    except Infeasible:
        return Fused(np.inf)
    except NoSolution as error:
        return Fused(error.bound)
    if fusion.solution.interrupted:
        raise KeyboardInterrupt
    return Fused(fusion.bound, numbered(stage, limits, fusion.partition_k))


def best_fusions(
    of: PlanClass, plan_i: Ints, option_k: Sequence[int], cutoff_i: Floats, clock: Clock, top: int = 1
) -> tuple[list[Priced], Floats]:
    """Mappings with given options under some plans, with the best partitions that are found.

    Parameters
    ----------
    of : PlanClass
        The class of the plans.
    plan_i : int array
        The plans, as places in the class.
    option_k : sequence of int
        Option of every kernel.
    cutoff_i : float array, s, shape (plans,)
        Only mappings below these are looked for.
    clock : Clock
        Limit on all solves.
    top : int
        Number of mappings, of different plans, to find.

    Returns
    -------
    (list of Priced, float array, shape (plans,))
        The best mappings, the best first; and by plan the seconds that none with these options is below. They end at
        the largest cutoff.
    """
    lot = Lot(of, plan_i, of.arcs_k, np.array([option_k], dtype=np.int64))
    room_ki, domain = lot.room_kiv[:, :, 0], tuple((option,) for option in option_k)
    beside_layers = of.beside_of(lot.option_vk, lot.amount_vc)
    if of.by_pass is not None:
        beside_layers = beside_layers._replace(passes=of.least_passes(of.arcs_k, lot.priced_k, domain))
    if not of.holding.counts_waiting:
        room_ki = np.full_like(room_ki, np.inf)
    fused_k = [_Fusions(of, kind, domain, clock) for kind in range(of.kinds)]
    low_i, alike = np.full(len(plan_i), np.inf), dict[tuple[bytes, ...], tuple[list[Ints], list[int]]]()
    for i in np.flatnonzero(lot.may[:, 0]).tolist():
        low_k, partitions = np.zeros(of.kinds), list[Ints]()
        for kind, room in enumerate(room_ki[:, i].tolist()):
            most = float(of.steps.most(float(cutoff_i.max()), low_k, kind, beside_layers).max())
            low_k[kind], partition_k = fused_k[kind].within(room, most)
            if partition_k is None:
                break
            partitions.append(partition_k)
        low_i[i] = of.steps.of(low_k[:, None], beside_layers)[plan_i[i], 0]
        if len(partitions) == of.kinds:
            key = tuple(partition_k.tobytes() for partition_k in partitions)
            alike.setdefault(key, (partitions, []))[1].append(i)
    mappings = list[Priced]()
    for partitions, places in alike.values():
        chain_k = list(map(chain_of, of.arcs_k, partitions))
        mappings += best_of(of, plan_i[places], chain_k, lot.option_vk, cutoff_i[places], top, clock=clock).kept
    return sorted(mappings, key=lambda mapping: mapping.step_s)[:top], low_i


def best_fused(region: Region, cutoff: float, top: int, clock: Clock) -> list[Priced]:
    """The best mappings of a region with one vector of options, of different plans, below a cutoff.

    Parameters
    ----------
    region : Region
        Region with one option of every kernel.
    cutoff : float, s
        Only mappings below it are looked for.
    top : int
        Largest number of mappings.
    clock : Clock
        Limit on solves, if not all blocks are listed.
    """
    of, plan_i, vector_vk = region.of, region.plan_i, region.of.table.vectors(region.domain)
    cutoff_i = np.full(len(plan_i), cutoff)
    if region.complete:
        return best_of(of, plan_i, region.arcs_k, vector_vk, cutoff_i, top, clock=clock).kept
    return best_fusions(of, plan_i, vector_vk[0].tolist(), cutoff_i, clock, top)[0]


class _Fusions:
    """The best partitions of a kind of layer with some bytes for what waits between them.

    Those that are best with more room, and do with less, are best with less. So room is left out at first.
    """

    def __init__(self, of: PlanClass, kind: int, domain: Domain, clock: Clock) -> None:
        self._ask = partial(fused, of, kind, domain, clock=clock)
        self._of, self._kind, self._domain = of, kind, domain
        self._known = dict[float, tuple[Fused, float]]()  # by room: what was found, and the room that it needs

    def within(self, room: float, cutoff: float) -> Fused:
        """What is shown of partitions below a cutoff with so much room."""
        for most in sorted({np.inf, room, *(each for each in self._known if each > room)}, reverse=True):
            fusion, needed = self._with(most, cutoff)
            if needed <= room:
                break
        return fusion

    def _with(self, room: float, cutoff: float) -> tuple[Fused, float]:
        """The same whatever does with less, and the room that it needs; no more than there is if nothing was found."""
        earlier = self._known.get(room)
        if earlier is not None and (earlier[0].partition_k is not None or earlier[0].low >= cutoff):
            return earlier
        fusion, needed = self._ask(cutoff=cutoff, room=room), 0.0
        if fusion.partition_k is not None:
            stage, limits = self._of.stage(self._kind, self._domain), self._of.numbering_k[self._kind].limits
            needed = most_alive(stage, limits, fusion.partition_k)
        self._known[room] = fusion, needed
        return fusion, needed
