"""Layers with more down-sets than are listed: bounds and partitions from blocks that are generated on demand.

The solves are those of :mod:`dfopt.fusion.intrachip`. With every figure at its least over the options of a region they
bound its members; with one option of every kernel they find the best partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Clock
from dfopt.errors import Infeasible, NoSolution
from dfopt.fusion.intrachip import CutOff, greedy, optimize_intrachip
from dfopt.fusion.partitioning import numbered
from dfopt.regions.arcs import Arcs, chain_of
from dfopt.regions.classes import PlanClass
from dfopt.regions.pricing import Lot, Priced, best_of
from dfopt.terms.table import Domain

__all__ = ["Fused", "best_fusions", "fused"]


class Fused(NamedTuple):
    """What is shown of the partitions of a kind of layer.

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
    """The best partitions of a kind of layer with every figure at its least over the options that are left.

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
        Of this solve.
    room : float, B
        DRAM for what waits between partitions, at most.

    Raises
    ------
    KeyboardInterrupt
        If the solve was interrupted.
    """
    try:
        stage = of.stage(kind, domain)
        limits = replace(of.numbering_k[kind].limits, dram_left=room)
        most = cutoff if np.isfinite(cutoff) else None
        found = optimize_intrachip(stage, limits, clock=clock, start=greedy(stage, limits, clock), cutoff=most)
    except CutOff as proof:
        return Fused(proof.seconds)
    except Infeasible:
        return Fused(np.inf)
    except NoSolution as error:
        return Fused(error.bound)
    if found.solution.interrupted:
        raise KeyboardInterrupt
    return Fused(found.bound, numbered(stage, limits, found.partition_k))


def best_fusions(
    of: PlanClass, plan_i: Ints, option_k: Sequence[int], cutoff_i: Floats, clock: Clock
) -> tuple[list[Priced], Floats]:
    """Mappings with given options under each of some plans, with the best partitions that are found.

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
        Of all solves.

    Returns
    -------
    (list of Priced, float array, shape (plans,))
        A mapping for each plan with one below its cutoff, the best first; and by plan the seconds that none with these
        options is below. They end at the largest cutoff.
    """
    lot = Lot(of, plan_i, of.arcs_k, np.array([option_k], dtype=np.int64))
    room_ki, domain = lot.room_kiv[:, :, 0], tuple((option,) for option in option_k)
    beside = of.beside_of(lot.option_vk, lot.amount_vc)
    if of.by_pass is not None:
        beside = beside._replace(passes=of.least_passes(of.arcs_k, lot.priced_k, domain))
    if not of.holding.counts_waiting:
        room_ki = np.full_like(room_ki, np.inf)
    known, found, low_i = dict[tuple[int, float], Fused](), list[Priced](), np.full(len(plan_i), np.inf)
    for i in np.flatnonzero(lot.may[:, 0]).tolist():
        low_k, chain_k = np.zeros(of.kinds), list[Arcs]()
        for kind, room in enumerate(room_ki[:, i].tolist()):
            if (kind, room) not in known:
                most = float(of.steps.most(float(cutoff_i.max()), low_k, kind, beside).max())
                known[kind, room] = fused(of, kind, domain, most, clock, room)
            low_k[kind], partition_k = known[kind, room]
            if partition_k is None:
                break
            chain_k.append(chain_of(of.arcs_k[kind], partition_k))
        low_i[i] = of.steps.of(low_k[:, None], beside)[plan_i[i], 0]
        if len(chain_k) == of.kinds:
            found += best_of(of, plan_i[[i]], chain_k, lot.option_vk, cutoff_i[[i]], clock=clock).kept
    return sorted(found, key=lambda one: one.step_s), low_i
