"""Seconds of a step in which exchanges of data-parallel copies show, for many plans and vectors of options at once.

The backward pass hides exchanges where ``gradient_overlap`` says so: layer by layer (:mod:`dfopt.physics.overlap`), or
as Calculon counts it (:mod:`dfopt.physics.window`). From least seconds it is a lower bound. From those of partitions
that are known it is exact.

Suffixes: i plan, r distinct pipeline stage of a plan (those of all plans in a row), k kind of layer, p place in the
order in which a stage runs its layers: a row of equal layers, v vector of options. Arrays may have one vector for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.physics.copies import reductions
from dfopt.physics.tiled import usage_of
from dfopt.physics.window import by_window, exposed_in_windows
from dfopt.setting.stages import in_order
from dfopt.terms.bounds.plan_arrays import PlanArrays
from dfopt.terms.step.overlap import in_the_way


class Exchanging(NamedTuple):
    """Seconds of pipeline stages from which exposed exchanges are computed, exact or as lower bounds.

    Copies exchange gradients and weights. *Calculon's rule* is :mod:`dfopt.physics.window`, under ``gradient_overlap:
    calculon`` and ``calculon_or_none``; under ``backward`` exchanges of a layer run while the backward pass computes
    the layers behind it. Arrays have one stage for all where the seconds of a layer are the same in all of them.

    Attributes
    ----------
    stage_rv : s, shape (stages, vectors)
        Time of all layers of a stage for one microbatch, and of the messages that it waits for.
    exchanges : three float arrays, s, shape (stages, kinds, vectors)
        Of one layer of every kind, see :func:`dfopt.terms.step.overlap.exchanged_by_kind`.
    passes : four float arrays, s, shape (stages, kinds, vectors)
        Of one layer of every kind for one microbatch: partitions with a kernel of the forward pass, all others, then
        memory time and compute time of the backward pass, as Calculon counts them.
    hop_rv : s, shape (stages, vectors)
        Messages of one chunk of layers for one microbatch, on and back together.
    waits_rv : s, shape (stages, vectors)
        Seconds that a stage waits for one microbatch in addition to the work of its layers, if exchanges hide layer by
        layer; under Calculon's rule those that a layer waits in its backward pass.
    """

    stage_rv: Floats
    exchanges: tuple[Floats, ...]
    passes: tuple[Floats, ...]
    hop_rv: Floats
    waits_rv: Floats


@dataclass(frozen=True, eq=False)
class Exposed:
    """Computes how much of the exchanges of replicas is exposed, for many plans.

    Attributes
    ----------
    table : PlanArrays
        The plans, with their stages.
    """

    table: PlanArrays

    def seconds(self, of: Exchanging, *, exact: bool) -> Floats:
        """Seconds of a step in addition to the slowest stage: exposed exchanges and the optimizer.

        Parameters
        ----------
        of : Exchanging
            Seconds of all stages.
        exact : bool
            Whether all seconds are of known partitions.

        Returns
        -------
        float array, s, shape (plans, vectors)
            With the optimizer's step, and at least 0.
        """
        if not by_window(self.table.assumptions, self.table.setting.graph):
            shows_iv = self.table.slowest(self._behind_layers(of))
        elif exact:
            shows_iv = self._in_windows(of)
        else:
            shows_iv = self.table.slowest(self._least_in_windows(of))
        some_i = self._some_g[self.table.group_i]
        return np.where(some_i[:, None], np.maximum(shows_iv, 0.0), 0.0)

    def _behind_layers(self, of: Exchanging) -> Floats:
        """Seconds per step that exchanges add beside the slowest stage, if hidden layer by layer: (stages, vectors).

        The rule is that of :mod:`dfopt.physics.overlap`: ``weights_s + n * (max(stage_s + last_s, ends_s) -
        slowest_s)``, with these figures of the stage:

        - ``weights_s``: seconds per step that no pass hides. They include the optimizer's step.
        - ``n``: reductions of gradients in a step.
        - ``stage_s``: seconds of its work for one microbatch. ``slowest_s``: those of the slowest stage of the plan.
        - ``last_s``: seconds of the exchanges of its first layer, which the backward pass reaches last.
        - ``ends_s``: seconds from the start of the stage's work for one microbatch until the last exchange of one
          reduction ends. It is the sum of what the stage waits, the forward pass and the backward pass. In the forward
          pass weights of the layers are gathered one after another, and a layer starts when its own are there. In the
          backward pass gradients of the layers are reduced one after another, each not before its layer is done.

        Negative where a stage finishes all of this before the slowest stage finishes its work: it adds nothing.
        """
        kind_rp, times_rp = self._order_rp
        times_rpv, stages = times_rp[:, :, None], np.arange(len(kind_rp))[:, None]
        reduce_rpv, weights_rpv, gathers_rpv, forward_rpv, backward_rpv = (
            np.broadcast_to(each_rkv, (len(stages), *each_rkv.shape[1:]))[stages, kind_rp]
            for each_rkv in (*of.exchanges, *of.passes[:2])
        )
        ahead_rv = _after(gathers_rpv, forward_rpv, times_rpv)
        ends_rv = ahead_rv + _after(backward_rpv[:, ::-1], reduce_rpv[:, ::-1], times_rpv[:, ::-1]) + of.waits_rv
        last_rv = np.where(times_rp[:, :1] > 0, reduce_rpv[:, 0] + gathers_rpv[:, 0], 0.0)
        often_g = np.array([reductions(instance.plan) for instance in self.table.instances], dtype=float)
        often_r = often_g[self.table.group_r]
        until_rv = (times_rpv * weights_rpv).sum(axis=1)
        until_rv = until_rv + often_r[:, None] * np.maximum(of.stage_rv + last_rv, ends_rv)
        slowest_rv = self.table.slowest(of.stage_rv)[self.table.plan_r]
        return np.asarray(until_rv - often_r[:, None] * slowest_rv)

    def _least_in_windows(self, of: Exchanging) -> Floats:
        """Seconds per step that exchanges of each stage add at least by Calculon's rule: shape (stages, vectors).

        The rule (:mod:`dfopt.physics.window`) hides exchanges of all layers but the last behind the backward pass. All
        layers are of one kind. The result is the optimizer's step plus the largest of up to four linear functions ``a +
        b * stage_s`` of the time of the stage for one microbatch, with ``b`` at most 0. Each
        function adds up some of three parts:

        1. the exchange of the last layer, which nothing hides;
        2. the least by which exchanges of the last chunk exceed the backward pass that may hide them;
        3. the same of all other chunks.

        The four functions have the parts 1; 1 and 2; 1 and 3; and all three. Those with part 3 count only if a stage
        has several chunks. A function with which the time of the step would fall as that of the stage grows is left
        out: a lower bound on the latter would give none on the step. The others remain a bound.

        With one data-parallel copy exchanges of chips of the second axis are charged in full, none hidden. 0 for a
        stage without layers.
        """
        table, plan_r = self.table, self.table.plan_r
        rounds_rv = (table.rounds_i + table.fill_i)[plan_r, None]
        exchange_rv, once_rv = of.exchanges[0][:, 0], of.exchanges[1][:, 0]
        forward_rv, _, memory_rv, compute_rv = (each[:, 0] for each in of.passes)
        usage_g, copies_g = self._copies_g
        size_rv, stages_rv = table.runs_rk.sum(axis=1)[:, None], table.stages_i[plan_r, None]
        chunks_rv = table.interleave_i[plan_r, None]
        each_rv, some_rv = np.maximum(size_rv / chunks_rv, 1.0), np.maximum(size_rv, 1.0)
        lost_rv, slowed_rv = forward_rv + memory_rv, compute_rv * usage_g[table.group_r, None]
        open_rv = stages_rv * (of.hop_rv / 2 - each_rv * lost_rv)
        over_rv = (chunks_rv - 1) * (each_rv * exchange_rv + stages_rv * each_rv * slowed_rv - open_rv)
        last_rv = (each_rv - 1) * exchange_rv + slowed_rv
        last_rv = last_rv + np.where(each_rv > 1, (each_rv - 1) * lost_rv + memory_rv + of.hop_rv / 4, 0.0)
        shows_rv = np.full((1, 1), -np.inf)
        for over, last in ((0, 0), (0, 1), (1, 0), (1, 1)):
            slope_rv = (over * (1 - chunks_rv) * stages_rv * each_rv + last * (1 - each_rv)) / some_rv
            line_rv = size_rv * once_rv + exchange_rv + over * over_rv + last * last_rv
            line_rv = line_rv + slope_rv * (of.stage_rv - chunks_rv * of.hop_rv)
            counts_rv = (rounds_rv + slope_rv >= 0) & ((chunks_rv > 1) | (over == 0))
            shows_rv = np.maximum(shows_rv, np.where(counts_rv, line_rv, -np.inf))
        after_rv = size_rv * (exchange_rv + once_rv)
        if table.assumptions.gradient_overlap == "calculon_or_none":
            shows_rv = np.minimum(shows_rv, after_rv)
        alone_rv = (copies_g == 1)[table.group_r, None]
        return np.where(alone_rv, after_rv, np.where(size_rv > 0, shows_rv, 0.0))

    def _in_windows(self, of: Exchanging) -> Floats:
        """What shows under every plan by Calculon's rule, of known partitions: shape (plans, vectors).

        The stage that shows most counts for all.
        """
        table, plan_r, group_r = self.table, self.table.plan_r, self.table.group_r
        usage_g, copies_g = self._copies_g
        size_r = table.runs_rk.sum(axis=1)
        exchange_rv, once_rv = of.exchanges[0][:, 0], of.exchanges[1][:, 0]
        _, backward_rv, memory_rv, compute_rv = (each[:, 0] for each in of.passes)
        passes = backward_rv + of.waits_rv, memory_rv, compute_rv, of.hop_rv / 2
        network = (each_g[group_r, None] for each_g in (self._crosses_g, usage_g))
        stages_r, chunks_r = table.stages_i[plan_r], table.interleave_i[plan_r]
        of_plans = (each_r[:, None] for each_r in (stages_r, chunks_r, size_r, table.microbatches_i[plan_r]))
        shows_rv = exposed_in_windows((exchange_rv, *passes, *network), *of_plans)
        shows_iv = table.slowest(np.where(size_r[:, None] > 0, shows_rv, 0.0))
        exchanged_iv, steps_iv = (table.slowest(size_r[:, None] * each_rv) for each_rv in (exchange_rv, once_rv))
        if table.assumptions.gradient_overlap == "calculon_or_none":
            shows_iv = np.minimum(shows_iv, exchanged_iv)
        return np.where((copies_g == 1)[table.group_i, None], exchanged_iv, shows_iv) + steps_iv

    @cached_property
    def monotone(self) -> bool:
        """Whether the step never falls when seconds or bytes grow, under every plan.

        By Calculon's rule it may be shorter with a longer pass, where messages to other stages are in the way of
        exchanges, or these take a share of the processor.
        """
        if not by_window(self.table.assumptions, self.table.setting.graph):
            return True
        interleaved_i = self.table.interleave_i > 1
        waits_i = interleaved_i & self._crosses_g[self.table.group_i]
        return not (waits_i.any() or self._copies_g[0].any())

    @cached_property
    def _some_g(self) -> Bools:
        """Whether anything is exchanged, or an optimizer's step taken."""
        steps = self.table.assumptions.optimizer_step is not None
        return np.array([steps or bool(instance.adding) for instance in self.table.instances])

    @cached_property
    def _order_rp(self) -> tuple[Ints, Ints]:
        """What every stage runs, one after the other: kinds, and how often in a row; 0 times behind the end."""

        model, ran = self.table.setting.model, self.table.run
        orders = [[run for run in in_order(model, instance.plan, stage.number) if run[1]] for instance, stage in ran]
        runs = np.zeros((2, len(orders), max(1, *map(len, orders))), dtype=np.int64)
        for row, order in enumerate(orders):
            runs[:, row, : len(order)] = np.reshape(order, (-1, 2)).T
        return runs[0][self.table.row_r], runs[1][self.table.row_r]

    @cached_property
    def _crosses_g(self) -> Bools:
        return np.array([in_the_way(instance.plan) for instance in self.table.instances], dtype=bool)

    @cached_property
    def _copies_g(self) -> tuple[Floats, Floats]:
        """The share of a processor that takes part in an exchange of copies, and how many there are."""
        system, plans = self.table.setting.system, [instance.plan for instance in self.table.instances]
        usage = {dims: usage_of(system, dims) for dims in {plan.copy_dims for plan in plans}}
        usage_g = np.array([usage[plan.copy_dims] for plan in plans])
        return usage_g, np.array([plan.copies for plan in plans], dtype=float)


def _after(first_rpv: Floats, then_rpv: Floats, times_rpv: Ints) -> Floats:
    """The closed form of :mod:`dfopt.physics.overlap` for many stages: of every layer one thing, and then the other."""
    passed_rv = finished_rv = np.zeros((len(times_rpv), 1))
    for p in range(times_rpv.shape[1]):
        times_rv, own_rv, after_rv = times_rpv[:, p], first_rpv[:, p], then_rpv[:, p]
        begun_rv = np.maximum(finished_rv, passed_rv + own_rv) + times_rv * after_rv
        passed_rv = passed_rv + times_rv * own_rv
        finished_rv = np.where(times_rv > 0, np.maximum(begun_rv, passed_rv + after_rv), finished_rv)
    return finished_rv
