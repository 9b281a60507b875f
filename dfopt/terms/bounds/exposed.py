"""Seconds of a step in which exchanges of data-parallel copies show, for many plans and vectors of options at once.

The backward pass hides exchanges where ``gradient_overlap`` says so: layer by layer (:mod:`dfopt.physics.overlap`), or
as Calculon counts it (:mod:`dfopt.physics.window`). From least seconds it is a lower bound. From those of partitions
that are known it is exact.

Suffixes: i plan, r distinct pipeline stage of a plan (those of all plans in a row), k kind of layer, p place in the
order in which a stage runs its layers, v vector of options. Arrays may have one vector for all.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.assumptions import Assumptions
from dfopt.documents.plan import Plan
from dfopt.physics.copies import reductions
from dfopt.physics.tiled import usage_of
from dfopt.physics.window import by_window, exposed_in_windows
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.setting.stages import PipelineStage, in_order
from dfopt.terms.bounds.hidden import Stages, behind_layers, in_windows
from dfopt.terms.bounds.pipelines import Pipelines
from dfopt.terms.step.overlap import in_the_way

__all__ = ["Exposed", "Exchanging"]

_LOT = 500_000
"""Stages times vectors that are worked out together: some arrays of 4 MB for each kind of layer."""


class Exchanging(NamedTuple):
    """Seconds of pipeline stages that decide what shows, at least or exact.

    Attributes
    ----------
    stage_rv : s, shape (stages, vectors)
        Time of all layers of a stage for one microbatch, and of the messages that it waits for.
    exchanges : three float arrays, s, shape (stages, kinds, vectors)
        ``reduce``, ``weights`` and ``gathers`` of :class:`dfopt.terms.bounds.hidden.Stages`.
    passes : four float arrays, s, shape (stages, kinds, vectors)
        Its ``forward`` and ``backward``; then memory time and compute time of the backward pass of a layer, as Calculon
        counts them.
    hop_rv : s, shape (stages, vectors)
        Messages of one chunk of layers for one microbatch, on and back together.
    waits_rv : s, shape (stages, vectors)
        What a stage waits for one microbatch beside the work of its layers, if exchanges hide layer by layer. What a
        layer waits in its backward pass, by Calculon's rule.
    """

    stage_rv: Floats
    exchanges: tuple[Floats, ...]
    passes: tuple[Floats, ...]
    hop_rv: Floats
    waits_rv: Floats

    @property
    def vectors(self) -> int:
        """Number of vectors."""
        return max(int(each.shape[-1]) for each in (self.stage_rv, *self.exchanges, *self.passes, self.hop_rv))

    def of_vectors(self, vectors: slice) -> Exchanging:
        """The same of some vectors."""

        def some(each: Floats) -> Floats:
            return each if each.shape[-1] == 1 else each[..., vectors]

        exchanges, passes = tuple(map(some, self.exchanges)), tuple(map(some, self.passes))
        return Exchanging(some(self.stage_rv), exchanges, passes, some(self.hop_rv), some(self.waits_rv))


class Plans(Protocol):
    """Plans as arrays, as :class:`dfopt.terms.bounds.PlanTable` has them."""

    plans: tuple[Plan, ...]
    instances: list[Instance]
    assumptions: Assumptions
    pipelines: Pipelines
    stages: list[PipelineStage]
    group_i: Ints
    plan_r: Ints
    runs_rk: Floats


@dataclass(frozen=True, eq=False)
class Exposed:
    """Figures of plans that decide how much of their exchanges shows.

    Attributes
    ----------
    table : Plans
        The plans, with their stages.
    """

    table: Plans

    def seconds(self, of: Exchanging, rows: Ints, first: Ints, *, exact: bool) -> Floats:
        """Seconds of a step beside the time of the slowest stage.

        Parameters
        ----------
        of : Exchanging
            Of the stages `rows`.
        rows, first : int arrays
            Stages of some plans, all of each, and where each of these plans begins among them.
        exact : bool
            Whether all seconds are of known partitions.

        Returns
        -------
        float array, s, shape (plans, vectors)
            With the optimizer's step, and at least 0.
        """
        vectors = of.vectors
        lot = max(_LOT // max(len(rows), 1), 1)
        if vectors > lot:
            parts = (of.of_vectors(slice(v, v + lot)) for v in range(0, vectors, lot))
            return np.concatenate([self.seconds(part, rows, first, exact=exact) for part in parts], axis=1)
        if not by_window(self.table.assumptions, self._setting.graph):
            shows_iv = np.maximum.reduceat(self._behind_layers(of, rows, first, vectors), first, axis=0)
        elif exact:
            shows_iv = self._in_windows(of, rows, first)
        else:
            shows_iv = np.maximum.reduceat(self._least_in_windows(of, rows, vectors), first, axis=0)
        some_i = self._some_g[self.table.group_i[self.table.plan_r[rows[first]]]]
        return np.where(some_i[:, None], np.maximum(shows_iv, 0.0), 0.0)

    def _behind_layers(self, of: Exchanging, rows: Ints, first: Ints, vectors: int) -> Floats:
        """What shows of every stage, hidden layer by layer: shape (stages, vectors)."""
        kind_rp, times_rp = self._order_rp
        slowest_iv = np.maximum.reduceat(of.stage_rv, first, axis=0)
        slowest_rv = slowest_iv[np.searchsorted(rows[first], rows, side="right") - 1]
        each_r, stages = np.repeat(rows, vectors), _flat(of, len(rows), vectors)
        often_r = self._reductions_g[self.table.group_i[self.table.plan_r[each_r]]]
        beside_r = _flat_rv(of.waits_rv, len(rows), vectors), often_r, _flat_rv(slowest_rv, len(rows), vectors)
        return behind_layers(stages, kind_rp[each_r], times_rp[each_r], *beside_r).reshape(len(rows), vectors)

    def _least_in_windows(self, of: Exchanging, rows: Ints, vectors: int) -> Floats:
        """The same at least by Calculon's rule."""
        table, each_r = self.table, np.repeat(rows, vectors)
        plan_r = table.plan_r[each_r]
        group_r, (usage_g, copies_g) = table.group_i[plan_r], self._copies_g
        memory_rv, compute_rv, hop_rv = (
            _flat_rv(each, len(rows), vectors) for each in (of.passes[2][:, 0], of.passes[3][:, 0], of.hop_rv)
        )
        pipelines = table.pipelines
        rounds_r = (pipelines.rounds_i + pipelines.fill_i)[plan_r]
        counts = table.runs_rk[each_r].sum(axis=1), pipelines.stages_i[plan_r], pipelines.interleave_i[plan_r]
        alone_r, optional = copies_g[group_r] == 1, table.assumptions.gradient_overlap == "calculon_or_none"
        once = memory_rv, compute_rv, usage_g[group_r]
        found = in_windows(_flat(of, len(rows), vectors), *once, *counts, rounds_r, hop_rv, alone_r, optional)
        return found.reshape(len(rows), vectors)

    def _in_windows(self, of: Exchanging, rows: Ints, first: Ints) -> Floats:
        """What shows under every plan by Calculon's rule, of known partitions: shape (plans, vectors).

        The stage that shows most counts for all.
        """
        table, plan_r = self.table, self.table.plan_r[rows]
        group_r, (usage_g, copies_g) = table.group_i[plan_r], self._copies_g
        size_r, chunks_r = table.runs_rk[rows].sum(axis=1), table.pipelines.interleave_i[plan_r]
        exchange_rv, once_rv = of.exchanges[0][:, 0], of.exchanges[1][:, 0]
        _, backward_rv, memory_rv, compute_rv = (each[:, 0] for each in of.passes)
        passes = backward_rv + of.waits_rv, memory_rv, compute_rv, of.hop_rv / 2
        plans_r = usage_g[group_r], self._crosses_g[group_r], table.pipelines.stages_i[plan_r], chunks_r, size_r
        microbatches_r = table.pipelines.microbatches_i[plan_r]
        shows_rv = exposed_in_windows(exchange_rv, *passes, *(each[:, None] for each in (*plans_r, microbatches_r)))
        shows_iv = np.maximum.reduceat(np.where(size_r[:, None] > 0, shows_rv, 0.0), first, axis=0)
        whole_iv, steps_iv = (
            np.maximum.reduceat(size_r[:, None] * each, first, axis=0) for each in (exchange_rv, once_rv)
        )
        if table.assumptions.gradient_overlap == "calculon_or_none":
            shows_iv = np.minimum(shows_iv, whole_iv)
        alone_i = copies_g[group_r[first]] == 1
        return np.where(alone_i[:, None], whole_iv, shows_iv) + steps_iv

    @property
    def _setting(self) -> Setting:
        return self.table.instances[0].setting

    @cached_property
    def monotone(self) -> bool:
        """Whether a step is non-decreasing in all seconds and bytes under every plan.

        By Calculon's rule it may be shorter with a longer pass, where messages to other stages are in the way of
        exchanges, or these take a share of the processor.
        """
        if not by_window(self.table.assumptions, self._setting.graph):
            return True
        interleaved_i = self.table.pipelines.interleave_i > 1
        waits_i = interleaved_i & self._crosses_g[self.table.group_i]
        return not (waits_i.any() or self._copies_g[0].any())

    @cached_property
    def _some_g(self) -> Bools:
        """Whether anything is exchanged, or an optimizer's step taken."""
        steps = self.table.assumptions.optimizer_step is not None
        return np.array([steps or bool(one.adding) for one in self.table.instances])

    @cached_property
    def _order_rp(self) -> tuple[Ints, Ints]:
        """What every stage runs, one after the other: kinds, and how often in a row; 0 times behind the end."""
        model, questions = self._setting.model, defaultdict[int, ByReads](ByReads)

        def one_by_one(plan: Plan, number: int) -> list[tuple[int, int]]:
            return [(kind, times) for kind, times in in_order(model, plan, number) if times]

        pairs = zip(self.table.plan_r.tolist(), self.table.stages, strict=True)
        orders = [
            questions[stage.number].answer(self.table.plans[i], partial(one_by_one, number=stage.number))
            for i, stage in pairs
        ]
        found = np.zeros((2, len(orders), max(1, *map(len, orders))), dtype=np.int64)
        for r, order in enumerate(orders):
            for p, one in enumerate(order):
                found[:, r, p] = one
        return found[0], found[1]

    @cached_property
    def _reductions_g(self) -> Floats:
        return np.array([reductions(one.plan) for one in self.table.instances], dtype=float)

    @cached_property
    def _crosses_g(self) -> Bools:
        return np.array([in_the_way(one.plan) for one in self.table.instances], dtype=bool)

    @cached_property
    def _copies_g(self) -> tuple[Floats, Floats]:
        """The share of a processor that takes part in an exchange of copies, and how many there are."""
        system, plans = self._setting.system, [one.plan for one in self.table.instances]
        usage = {dims: usage_of(system, dims) for dims in {plan.copy_dims for plan in plans}}
        usage_g = np.array([usage[plan.copy_dims] for plan in plans])
        return usage_g, np.array([plan.copies for plan in plans], dtype=float)


def _flat_rv(each_rv: Floats, rows: int, vectors: int) -> Floats:
    """An array of stages and vectors with one axis for both."""
    return np.broadcast_to(each_rv, (rows, vectors)).ravel()


def _flat(of: Exchanging, rows: int, vectors: int) -> Stages:
    """Stages under every vector below one another."""

    def kinds(each_rkv: Floats) -> Floats:
        shape = rows, each_rkv.shape[1], vectors
        return np.moveaxis(np.broadcast_to(each_rkv, shape), 1, 2).reshape(rows * vectors, -1)

    return Stages(_flat_rv(of.stage_rv, rows, vectors), *map(kinds, (*of.exchanges, *of.passes[:2])))
