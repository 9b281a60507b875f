"""What the stages of many plans hold at least, each state by itself: :mod:`dfopt.terms.step.ledger` as arrays.

Suffixes: r pipeline stage of a plan (the stages of many plans below one another), g plans that differ in how stages
hold layers only, k kind of layer, c state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from dfopt.documents.assumptions import Assumptions
from dfopt.documents.placement import Item
from dfopt.documents.plan import Plan
from dfopt.documents.system import Chip
from dfopt.physics.offload import buffered
from dfopt.physics.states import capacities
from dfopt.setting.instance import Instance
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage
from dfopt.terms.bounds.work import LeastWork
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.step.ledger import OF_LAYERS, State, chips_of, in_flight, offloaded, reserved

__all__ = ["Held", "copied", "held_at_least"]


@dataclass(frozen=True, eq=False)
class Held:
    """Lower bounds on the bytes of each state (weights, gradients and others) on one chip of each pipeline stage.

    A :class:`~dfopt.terms.step.ledger.State` is data that stays in a memory, such as optimizer state or saved
    activations. Each state has its least bytes by itself: they need not all be reached under the same sharding schemes.

    Attributes
    ----------
    states : tuple of State
        Which states there are: the axis c. Their field ``bytes`` is 0 and has no meaning here.
    bytes_rc : B, shape (stages, states)
        Bytes of each state on one chip, of all layers of a stage and all microbatches in flight.
    beside_r : B, shape (stages,)
        Bytes of the fastest memory that `bytes_rc` does not include: copies of offloaded states for the layers at work,
        and buckets of gradients.
    tier_rc : int, shape (stages, states)
        Number of the memory that each state lies in: its place in ``chip.tiers``, where 0 is the fastest.
    """

    states: tuple[State, ...]
    bytes_rc: Floats
    beside_r: Floats
    tier_rc: Ints

    def used(self, chip: Chip, reserve: float | None = None) -> Floats:
        """Lower bound on the filled share of the fullest memory of each stage's chips. Above 1 a stage does not fit.

        Parameters
        ----------
        chip : Chip
            The chip that all stages run on.
        reserve : float, optional
            Share of every memory that a model cannot use (``memory_reserve``), at least 0 and below 1. None: 0.

        Returns
        -------
        float array, no unit, shape (stages,)
            Least bytes over usable bytes, the largest of all memories with a limit. 0 where no memory has a limit.
        """
        found, limits = np.zeros(len(self.bytes_rc)), capacities(chip, reserve)
        for tier, name in enumerate(chip.tiers):
            if name in limits:
                size = np.where(self.tier_rc == tier, self.bytes_rc, 0.0).sum(axis=1)
                size += self.beside_r * (name == chip.fastest_tier)
                found = np.maximum(found, size / limits[name])
        return found


def held_at_least(
    work: LeastWork,
    instances: Sequence[Instance],
    group_r: Ints,
    plans: Sequence[Plan],
    stages: Sequence[PipelineStage],
    runs_rk: Floats,
) -> Held:
    """Lower bounds on the bytes that one chip of each pipeline stage holds, for the stages of many plans at once.

    Bytes of a state are the sum over kinds of layer of ``count * bytes / chips``: how many times the stage holds it for
    layers of the kind (such as for all layers and all microbatches in flight, or for the layer at work only: see
    :class:`~dfopt.terms.step.ledger.State`), least bytes of one layer, and number of chips that share these out.

    Parameters
    ----------
    work : LeastWork
        Least bytes of the weights, saved activations and other states of the kernels of the graph.
    instances : sequence of Instance
        One instance (setting and plan) for each group of plans. Plans of a group are equal but for how their stages
        hold layers.
    group_r : int array, shape (stages,)
        Place in `instances` of the group that the plan of each stage is in.
    plans, stages : sequences of Plan and of PipelineStage, each of length (stages,)
        For each row r its plan and its pipeline stage. A plan comes once for each of its distinct stages.
    runs_rk : float array, shape (stages, kinds)
        How many layers of each kind (distinct layer of the model) a stage runs for one microbatch.

    Returns
    -------
    Held
        Least bytes of each state (``bytes_rc``, B, shape (stages, states)), the memory that it lies in (``tier_rc``),
        and bytes of the fastest memory beside them (``beside_r``). Rows r are those of `stages`.

    Raises
    ------
    ValueError
        If `plans` and `stages` differ in length.
    """
    columns, once_skc, shared_g = _once(work, instances)
    chip = work.setting.system.chip
    tiers = list(chip.tiers)
    away_g = [offloaded(one) for one in instances]
    chips_gc = _by_state([[chips_of(one, state) for state in columns] for one in instances]).astype(float)
    tier_gc = _by_state([[tiers.index(one.plan.tier_of(state.item, chip)) for state in columns] for one in instances])
    away_gc = _by_state([[state.item in away for state in columns] for away in away_g]) > 0
    microbatches_r = np.array([one.plan.microbatches for one in instances])[group_r]
    zero_r = np.array([one.plan.zero or 0 for one in instances])[group_r]
    once_rkc, chips_rc, away_rc = once_skc[shared_g[group_r]], chips_gc[group_r], away_gc[group_r]
    waiting_rk = _waiting(work, plans, stages, runs_rk)
    bytes_rc = np.zeros((len(group_r), len(columns)))
    for c, state in enumerate(columns):
        count_rk = runs_rk
        if state.lifetime == "microbatch":
            count_rk = runs_rk * waiting_rk
        elif state.lifetime == "sequences":
            count_rk = runs_rk * microbatches_r[:, None]
        elif state.lifetime in OF_LAYERS:  # of the layer that has most of all these
            same = [d for d, one in enumerate(columns) if (one.name, one.lifetime) == (state.name, state.lifetime)]
            sums_rk = (once_rkc[:, :, same] / chips_rc[:, None, same]).sum(axis=2)
            most_r = np.where(runs_rk > 0, sums_rk, -1.0).argmax(axis=1)
            largest_rk = (np.arange(runs_rk.shape[1]) == most_r[:, None]).astype(float)
            count_rk = runs_rk - largest_rk if state.lifetime == "others" else largest_rk
            if state.lifetime == "exchange":
                layers_r = np.minimum(work.setting.assumptions.layers_exchanged or 1, runs_rk.sum(axis=1))
                count_rk = largest_rk * (layers_r * (zero_r >= state.exists_from))[:, None]
            count_rk = np.where(away_rc[:, [c]], runs_rk, count_rk)
        bytes_rc[:, c] = (count_rk * once_rkc[:, :, c]).sum(axis=1) / chips_rc[:, c]
    tier_rc, beside_r = tier_gc[group_r], np.array([reserved(one) for one in instances])[group_r]
    for item in dict.fromkeys(chain(*away_g)):
        mine_rc = away_rc & np.array([one.item == item for one in columns], dtype=bool)
        total_r = np.where(mine_rc, bytes_rc, 0.0).sum(axis=1)
        layer_r = _of_layer(once_rkc / chips_rc[:, None, :], mine_rc, runs_rk)
        beside_r += copied(total_r, layer_r, item, work.setting.assumptions)
    return Held(tuple(columns), bytes_rc, beside_r, tier_rc)


def copied(total: Floats, of_a_layer: Floats, item: Item, assumptions: Assumptions) -> Floats:
    """Bytes of the fastest memory for what lies elsewhere: :func:`dfopt.physics.offload.buffered` as arrays.

    So many layers, and where that is the rule, no more than there are.
    """
    layers, capped = (buffered(each, 1.0, item, assumptions) for each in (np.inf, 0.0))
    return np.minimum(total, layers * of_a_layer) if capped == 0.0 else layers * of_a_layer


def _of_layer(once_rkc: Floats, mine_rc: Bools, runs_rk: Floats) -> Floats:
    """The most bytes that a layer of any kind that a stage runs has of some states together, shape (stages,)."""
    of_kind_rk = np.where(mine_rc[:, None, :], once_rkc, 0.0).sum(axis=2)
    found: Floats = np.where(runs_rk > 0, of_kind_rk, 0.0).max(axis=1)
    return found


def _once(work: LeastWork, instances: Sequence[Instance]) -> tuple[list[State], Floats, Ints]:
    """States, bytes of each of a layer of every kind on all chips that share it out, and whose those are."""
    columns: dict[State, int] = {}
    known: dict[int, int] = {}
    of_shared = list[dict[int, Sequence[State]]]()
    shared_g = list[int]()
    for instance in instances:
        states = work.states(instance)  # the same object for plans that share it
        if id(states) not in known:
            known[id(states)] = len(of_shared)
            of_shared.append(states)
        shared_g.append(known[id(states)])
    for states in of_shared:
        for one in chain(*states.values()):
            columns.setdefault(replace(one, bytes=0.0), len(columns))
    once_skc = np.zeros((len(of_shared), len(work.kinds), len(columns)))
    for s, states in enumerate(of_shared):
        for kind, mine in states.items():
            for one in mine:
                once_skc[s, kind, columns[replace(one, bytes=0.0)]] += one.bytes
    return list(columns), once_skc, np.array(shared_g, dtype=np.int64)


def _by_state(of_instances: Sequence[Sequence[int]]) -> Ints:
    return np.array(of_instances, dtype=np.int64).reshape(len(of_instances), -1)


def _waiting(work: LeastWork, plans: Sequence[Plan], stages: Sequence[PipelineStage], runs_rk: Floats) -> Floats:
    """Microbatches whose saved activations each stage holds of each kind of layer."""
    kinds, questions = range(runs_rk.shape[1]), defaultdict[int, ByReads](ByReads)

    def waiting(plan: Plan, stage: PipelineStage) -> list[float]:
        return [in_flight(Instance(work.setting, plan), stage, kind) for kind in kinds]

    # of a stage its number is all that counts
    pairs = zip(plans, stages, strict=True)
    found = [questions[stage.number].answer(plan, partial(waiting, stage=stage)) for plan, stage in pairs]
    return np.array(found).reshape(runs_rk.shape)
