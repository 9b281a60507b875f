"""Many plans of one graph as arrays: how often their stages run each kind of layer, and what a step takes at least.

Suffixes: i plan; g group of plans that differ only in how stages hold layers (chunks, layers, which are recomputed); s
group of those that give a chip the same work; r distinct pipeline stage, of all plans in a row; k kind of layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from dfopt.documents.plan import Plan
from dfopt.physics.fill import Line, chains
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage
from dfopt.terms.bounds.exposed import Exchanging, Exposed
from dfopt.terms.bounds.memory import Held, held_at_least
from dfopt.terms.bounds.passes import with_moving
from dfopt.terms.bounds.pipelines import Pipelines
from dfopt.terms.bounds.work import LeastWork
from dfopt.terms.layer import counts_training
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.step.optimizer import optimizer_seconds
from dfopt.terms.step.overlap import hides_any

__all__ = ["PlanTable"]


class PlanTable:
    """Lower bounds on step time and memory for many plans at once, under all of which chips see the same graph.

    Make it with ``PlanTable(work, plans)``. *Kinds* are the distinct layers of the model, by number (axis k). Bounds
    hold for every *mapping*: sharding schemes and on-chip partitions of all kernels.

    Attributes
    ----------
    work, plans, assumptions : LeastWork, tuple of Plan, Assumptions
        Least work of the kernels of that graph, the plans (axis i, at least one), and the assumptions of the setting.
    pipelines : Pipelines
        How the stages of each plan follow one another.
    instances, group_i : list of Instance, int array, shape (plans,)
        One instance for each group g, and the group of each plan. Plans of a group differ in layers of stages only.
    shared, shared_g : dict of Instance to int, int array, shape (groups g,)
        Number s of every distinct :attr:`~dfopt.setting.instance.Instance.shared` of the instances; s of each group.
    stages, plan_r, first_i : list of PipelineStage, int array, shape (stages,), int array, shape (plans,)
        Distinct stages of all plans in a row (axis r), the plan of each, and the place of each plan's first stage.
    runs_rk : float array, shape (stages, kinds)
        How many layers of each kind a stage runs for one microbatch.
    """

    def __init__(self, work: LeastWork, plans: Iterable[Plan]) -> None:
        self.work, self.plans, self.assumptions = work, tuple(plans), work.setting.assumptions
        self.pipelines = Pipelines(work.setting, self.plans)
        setting, groups, group_i = work.setting, dict[Any, int](), list[int]()
        self.instances: list[Instance] = []
        for plan in self.plans:
            key = plan.apart_from_stages
            if key not in groups:
                groups[key] = len(self.instances)
                self.instances.append(Instance(setting, plan))
            group_i.append(groups[key])
        self.group_i = np.array(group_i, dtype=np.int64)
        self.shared: dict[Instance, int] = {}
        numbers = [self.shared.setdefault(one.shared, len(self.shared)) for one in self.instances]
        self.shared_g = np.array(numbers, dtype=np.int64)
        self._held_layers = ByReads()
        held = [self._stages(plan) for plan in self.plans]
        counts = [len(runs_rk) for _, runs_rk in held]
        self.stages: list[PipelineStage] = [stage for stages, _ in held for stage in stages]
        self.runs_rk: Floats = np.concatenate([runs_rk for _, runs_rk in held])
        self.first_i: Ints = np.cumsum([0, *counts])[:-1]
        self.plan_r: Ints = np.repeat(np.arange(len(counts)), counts)

    @property
    def setting(self) -> Setting:
        """Graph, system and resolved assumptions."""
        return self.work.setting

    @cached_property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel: int array, shape (kernels of the graph,)."""
        return np.asarray(self.work.kind_k, dtype=np.int64)

    def _stages(self, plan: Plan) -> tuple[tuple[PipelineStage, ...], Floats]:
        """The distinct pipeline stages of a plan, and how often each runs each kind of layer."""
        return self._held_layers.answer(plan, self._held_by)  # type: ignore[no-any-return]

    def _held_by(self, plan: Plan) -> tuple[tuple[PipelineStage, ...], Floats]:
        stages = self.work.stages(Instance(self.work.setting, plan))
        runs_rk = np.zeros((len(stages), len(self.work.kinds)))
        for row, stage in enumerate(stages):
            for kind, times in stage.runs:
                runs_rk[row, kind] += times
        return stages, runs_rk

    @cached_property
    def share_r(self) -> Floats:
        """Share of the kernels of the graph that a stage has on average: 1 but for kernels drawn once, (stages,)."""
        drawn_i = np.array([self.work.drawn_stages(Instance(self.work.setting, plan)) for plan in self.plans])
        return np.asarray(1.0 / drawn_i[self.plan_r])

    @cached_property
    def average_rk(self) -> Floats:
        """How many layers of each kind a stage runs: of kernels drawn once its average share, shape (stages, kinds)."""
        return self.runs_rk * self.share_r[:, None]

    def of_shared(self, shared: Instance) -> Ints:
        """Places in :attr:`plans` of those with this key of :attr:`shared`, ascending; KeyError for any other key."""
        return np.flatnonzero(self.shared_g[self.group_i] == self.shared[shared])

    @cached_property
    def exposed(self) -> Exposed:
        """What shows of exchanges of data-parallel copies."""
        return Exposed(self)

    @cached_property
    def held(self) -> Held:
        """Lower bounds on bytes of each state, such as weights, on a chip of each stage: rows as in :attr:`stages`."""
        plans = [self.plans[i] for i in self.plan_r.tolist()]
        groups = self.group_i[self.plan_r]
        return held_at_least(self.work, self.instances, groups, plans, self.stages, self.runs_rk)

    @cached_property
    def used_i(self) -> Floats:
        """Least share in use of a plan's fullest memory, over stages: shape (plans,). Above 1: no fit. 0: no limit."""
        setting = self.work.setting
        used_r = self.held.used(setting.system.chip, setting.assumptions.memory_reserve)
        return np.maximum.reduceat(used_r, self.first_i)

    def seconds(
        self,
        which: Ints | None = None,
        low_k: Floats | float = 0.0,
        hop_i: Floats | float = 0.0,
        end_i: Floats | float = 0.0,
    ) -> Floats:
        """Lower bounds on the seconds per step of some plans, valid for every mapping: float array, shape of `which`.

        Parameters
        ----------
        which : int array, optional
            Places of these plans in :attr:`plans`, ascending. None: all plans.
        low_k : float array, s, shape (kinds,), or float
            Another lower bound on the seconds of a layer of each kind for one microbatch: the larger of it and that of
            the table is taken. If infinite, the result is infinite for plans with such layers.
        hop_i, end_i : float arrays, s, shape of `which`, or floats
            Least seconds in which a chunk of layers sends to other stages for one microbatch: `hop_i` if it has two
            neighbours, `end_i` if it is the pipeline's first or last, which sends one way.
        """
        if hides_any(self.assumptions, self.work.setting.graph):
            return self._overlapped(which, low_k, hop_i, end_i)
        rows, first, which = self._rows(which)
        added_rk = self._gradients_gk[self.group_i[self.plan_r[rows]]]
        added_i = self._slowest(rows, first, added_rk)
        once = self.assumptions.step_overhead or 0.0
        if self.pipelines.lines is not None:
            through_i = self._through(self.pipelines.lines, self._busy(rows, which, low_k, hop_i, end_i), first, which)
            return through_i + added_i + once
        busy_i = np.maximum.reduceat(self._busy(rows, which, low_k, hop_i, end_i), first)
        fill_i = self.pipelines.fill_i[which]
        filling_i = np.multiply(busy_i, fill_i, where=fill_i > 0, out=np.zeros(len(busy_i)))  # what never ends, too
        found: Floats = busy_i * self.pipelines.rounds_i[which] + filling_i + added_i + once
        return found

    def intervals(self, low_k: Floats | float = 0.0, hop_i: Floats | float = 0.0) -> Floats:
        """Least seconds of the slowest pipeline stage of every plan for one microbatch: float array, shape (plans,).

        With ``two_batch_overlap`` for two, which take turns. `low_k`, s, shape (kinds,), and `hop_i`, s, shape
        (plans,), are those of :meth:`seconds`, with 0 as its `end_i`. A float is for all kinds or plans.
        """
        rows, first, which = self._rows(None)
        found: Floats = np.maximum.reduceat(self._busy(rows, which, low_k, hop_i, 0.0), first)
        return found

    def _rows(self, which: Ints | None) -> tuple[Ints, Ints, Ints]:
        """Pipeline stages of some plans, below one another, where each plan begins, and the plans."""
        if which is None:
            return np.arange(len(self.plan_r)), self.first_i, np.arange(len(self.plans))
        taken = np.zeros(len(self.plans), dtype=bool)
        taken[which] = True
        rows = np.flatnonzero(taken[self.plan_r])
        return rows, np.searchsorted(self.plan_r[rows], which), which

    def _slowest(self, rows: Ints, first: Ints, each_rk: Floats) -> Floats:
        """Seconds of the slowest stage of each plan, from those of each kind of layer."""
        found: Floats = np.maximum.reduceat((self.runs_rk[rows] * each_rk).sum(axis=1), first)
        return found

    def _busy(
        self, rows: Ints, which: Ints, low_k: Floats | float, hop_i: Floats | float, end_i: Floats | float
    ) -> Floats:
        """Seconds of pipeline stages for one microbatch, or two that are taken together."""
        busy, plan_r = self._work(rows, low_k, hop_i, which), self.plan_r[rows]
        sent_sk = self._layers_sk[1]
        if sent_sk.any():
            sent_rk = sent_sk[self.shared_g[self.group_i[plan_r]]]
            busy = np.maximum(busy, (self.runs_rk[rows] * sent_rk).sum(axis=1))
        hops = self._hops(rows, which, hop_i, end_i)
        busy = np.where(self.pipelines.hides_hops_i[plan_r], np.maximum(busy, hops), busy + hops)
        return self.pipelines.at_once_i[plan_r] * busy

    def _hops(self, rows: Ints, which: Ints, hop_i: Floats | float, end_i: Floats | float) -> Floats:
        """Seconds in which pipeline stages hand on what others get of a microbatch."""
        plan_r = self.plan_r[rows]
        hop_r, end_r = (np.broadcast_to(one, which.shape)[np.searchsorted(which, plan_r)] for one in (hop_i, end_i))
        found: Floats = hop_r * self.pipelines.interleave_i[plan_r]
        if self.assumptions.point_to_point == "per_neighbour":
            found = np.where(self._at_ends_r[rows], np.maximum(found - hop_r + end_r, 0.0), found)
        return found

    @cached_property
    def _at_ends_r(self) -> Bools:
        """Whether a stage is the first or the last of several that are not all alike."""
        last_i = np.append(self.first_i[1:], len(self.plan_r)) - 1
        alone_i = self.first_i == last_i
        found = np.zeros(len(self.plan_r), dtype=bool)
        found[self.first_i[~alone_i]] = found[last_i[~alone_i]] = True
        return found

    def _through(self, lines: tuple[Line, ...], busy: Floats, first: Ints, which: Ints) -> Floats:
        """Seconds in which all microbatches are through, from those of the pipeline stages of some plans."""
        row_iq, count_iq = (each[which] for each in self.pipelines.runs_iq)
        options = self.pipelines.rounds_i[which], self.pipelines.interleave_i[which]
        through = chains(busy[first[:, None] + row_iq], count_iq, *options, turns=lines[0].turns)
        return np.asarray(through.max(axis=1))

    def _work(self, rows: Ints, low_k: Floats | float, hop_i: Floats | float, which: Ints) -> Floats:
        """Seconds of the layers of pipeline stages for one microbatch, with what is moved beside them."""
        runs_rk, group_r = self.runs_rk[rows], self.group_i[self.plan_r[rows]]
        once_rk = np.maximum(self._layers_sk[0][self.shared_g[group_r]], low_k)
        if not self._moved_gk6.any():
            return _times(runs_rk, once_rk)
        hop_r = np.broadcast_to(hop_i, which.shape)[np.searchsorted(which, self.plan_r[rows])]
        # of Calculon's count, the message to the next stage beside the last layer of a chunk
        shown_r = ~self.pipelines.hides_hops_i[self.plan_r[rows]] & (self.assumptions.offload == "calculon")
        hop_r = np.where(shown_r & (self._stages_g[group_r] > 1), hop_r / 2, 0.0)
        chunks_r = self.pipelines.interleave_i[self.plan_r[rows]]
        last_rk = np.minimum(chunks_r[:, None], runs_rk) * (hop_r > 0)[:, None]
        moved_rk = self._moved_gk6[group_r]
        pairs = (
            (moved_rk[..., 0], moved_rk[..., 1]),
            (moved_rk[..., 2], moved_rk[..., 3]),
            (moved_rk[..., 4], moved_rk[..., 5]),
        )
        own_rk, less_rk = with_moving(once_rk, *pairs), with_moving(once_rk, *pairs, hop_r[:, None])
        return _times(runs_rk - last_rk, own_rk) + _times(last_rk, less_rk)

    @cached_property
    def _moved_gk6(self) -> Floats:
        """Of every kind of layer the figures of :class:`dfopt.physics.offload.Layer`; 0 where nothing is moved."""
        return np.array([self.work.moved(one) for one in self.instances])

    @cached_property
    def _layers_sk(self) -> tuple[Floats, Floats]:
        """Least seconds of each kind of layer: a microbatch, and what it sends beside that."""
        firsts = np.unique(self.shared_g, return_index=True)[1]
        once, sent = zip(*(self.work.layers(self.instances[g]) for g in firsts.tolist()), strict=True)
        return np.array(once), np.array(sent)

    @cached_property
    def _gradients_gk(self) -> Floats:
        """Least seconds of each kind of layer in which gradients are added up after a step, and the optimizer's."""
        if not counts_training(self.work.setting.graph, self.assumptions):
            return np.zeros((len(self.instances), len(self.work.kinds)))
        return np.array([self.work.known("gradients", one, self._gradients) for one in self.instances])

    def _gradients(self, instance: Instance) -> Floats:
        kind_k, drawn, seconds = self.work.kind_k, self.work.drawn_stages(instance), np.zeros(len(self.work.kinds))
        for kind, least in enumerate(self.work.of(instance)):
            mine = np.flatnonzero(kind_k == kind)
            seconds[kind] = optimizer_seconds(instance, mine, least.weight_k).sum() / drawn
            for dims, share_k in instance.adding:
                volume_k = np.zeros(len(kind_k))
                volume_k[mine] = share_k[mine] * least.gradient_k / drawn
                seconds[kind] += instance.exchanged_s(dims, volume_k)
        return seconds

    def _overlapped(
        self, which: Ints | None, low_k: Floats | float, hop_i: Floats | float, end_i: Floats | float
    ) -> Floats:
        """Seconds per step where gradients are added up behind the backward pass, from the least of every part."""
        rows, first, which = self._rows(which)
        plan_r, group_r = self.plan_r[rows], self.group_i[self.plan_r[rows]]
        hop_r = np.broadcast_to(hop_i, which.shape)[np.searchsorted(which, plan_r)]
        stage_r = self._work(rows, low_k, hop_i, which)
        hops_r, hidden_r = self._hops(rows, which, hop_i, end_i), self.pipelines.hides_hops_i[plan_r]
        stage_r = np.where(hidden_r, np.maximum(stage_r, hops_r), stage_r + hops_r)
        endless_r, stage_r = np.isinf(stage_r), np.where(np.isinf(stage_r), 0.0, stage_r)
        slowest_i = np.maximum.reduceat(stage_r, first)
        exchanges = tuple(each_gk[group_r][:, :, None] for each_gk in self._exchanged_gk)
        passes = tuple(each_sk[self.shared_g[group_r]][:, :, None] for each_sk in self._passes_sk)
        waits_rv = np.where(hidden_r, 0.0, hops_r)[:, None]
        stages = Exchanging(stage_r[:, None], exchanges, passes, hop_r[:, None], waits_rv)
        exposed_i = self.exposed.seconds(stages, rows, first, exact=False)[:, 0]
        once_s = self.assumptions.step_overhead or 0.0
        through_i = slowest_i * self.pipelines.rounds_i[which] + slowest_i * self.pipelines.fill_i[which]
        if self.pipelines.lines is not None:
            through_i = self._through(self.pipelines.lines, stage_r, first, which)
        found = through_i + exposed_i + once_s
        return np.where(np.maximum.reduceat(endless_r, first), np.inf, found)

    @cached_property
    def _exchanged_gk(self) -> tuple[Floats, ...]:
        """What copies exchange of every kind of layer at least, see :class:`dfopt.terms.step.overlap.Exchanges`."""
        return tuple(map(np.array, zip(*(self.work.exchanged(one) for one in self.instances), strict=True)))

    @cached_property
    def _passes_sk(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Least seconds of both passes of every kind of layer, and of what is in the way of exchanges."""
        firsts = np.unique(self.shared_g, return_index=True)[1]
        found = [self.work.passes(self.instances[g]) for g in firsts.tolist()]
        ahead, back, memory, compute, _ = zip(*found, strict=True)
        return np.array(ahead), np.array(back), np.array(memory), np.array(compute)

    @cached_property
    def _stages_g(self) -> Floats:
        return np.array([one.plan.stages for one in self.instances], dtype=float)


def _times(count_rk: Floats, each_rk: Floats) -> Floats:
    """Seconds of layers of every kind; what never ends takes none where it is not run."""
    found: Floats = np.multiply(count_rk, each_rk, where=count_rk > 0, out=np.zeros(count_rk.shape)).sum(axis=1)
    return found
