"""What a step takes under many plans and many vectors of options at once, from the seconds of their layers.

The plans give a chip the same work, so a layer takes the same under all of them. They differ in how many layers a
pipeline stage holds, in how stages are joined, and in how many copies of the batch exchange gradients. Everything here
is non-decreasing in the seconds of layers, in shares of outputs that are sent on, and in bytes of gradients: least
figures give a lower bound.

Suffixes: i plan, r distinct pipeline stage of a plan (those of all plans in a row), k kind of layer or kernel, v vector
of options, q run of equal stages in a pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.plan import Plan
from dfopt.physics.fill import chains
from dfopt.physics.network import adds_up_at_once
from dfopt.setting.instance import Instance, Setting
from dfopt.setting.reads import ByReads
from dfopt.terms.bounds import PlanTable
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.step.hops import hop_seconds, per_step_hops, sent_once
from dfopt.terms.step.optimizer import optimizer_seconds

__all__ = ["Beside", "Steps"]

_HALVINGS = 60
"""Steps in which the step rule is turned around: each halves the interval, so 1e-18 of it are left."""
_ROUNDED = 1e-12
"""Share that is added to what is turned around, so that rounding excludes nothing."""


class Beside(NamedTuple):
    """Seconds beside the layers, for some vectors of options.

    Attributes
    ----------
    hop_rv : float array, s, shape (stages, vectors)
        Messages of a stage to its neighbours, for one microbatch.
    added_iv : float array, s, shape (plans, vectors)
        Exchange of gradients and the optimizer's step, once per step.
    """

    hop_rv: Floats
    added_iv: Floats


@dataclass(frozen=True, eq=False)
class Steps:
    """Plans that give a chip the same work, as arrays.

    Attributes
    ----------
    table : PlanTable
        The plans, with the layers of their stages.
    """

    table: PlanTable

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans: the axis i."""
        return self.table.plans

    @property
    def setting(self) -> Setting:
        """Graph, system and resolved assumptions."""
        return self.table.work.setting

    @cached_property
    def kind_k(self) -> Ints:
        """Kind of layer of every kernel: int array, shape (kernels of the graph,)."""
        return np.asarray(self.table.work.kind_k, dtype=np.int64)

    # -- what a step makes of its layers ------------------------------------------------------------------------------

    def of(self, layer_kv: Floats, beside: Beside) -> Floats:
        """Seconds of a step under every plan, for each vector of options.

        Parameters
        ----------
        layer_kv : float array, s, shape (kinds, vectors)
            Seconds of a layer of every kind for one microbatch. They may be infinite.
        beside : Beside
            All else, for the same vectors, or for one that stands for all.

        Returns
        -------
        float array, s, shape (plans, vectors)
            Lower bounds, if the arguments are.
        """
        return self.of_stages(self.stages(layer_kv), beside)

    def stages(self, layer_kv: Floats) -> Floats:
        """Seconds of the layers of every stage for one microbatch: shape (stages, vectors)."""
        return self._stages(layer_kv[:, None, :])

    def _of_each(self, layer_ki: Floats, beside: Beside) -> Floats:
        """The same with seconds of layers for each plan, shape (kinds, plans), and one vector: shape (plans,)."""
        return self.of_stages(self._stages(layer_ki[:, self.table.plan_r, None]), beside)[:, 0]

    def _stages(self, layer_krv: Floats) -> Floats:
        """Seconds of the layers of every stage; what never ends takes none where it is not run.

        Of kernels that are drawn once an average stage has its share, and the slowest no less.
        """
        runs_rk, total = self.table.average_rk, np.zeros((len(self.table.runs_rk), layer_krv.shape[2]))
        for k, each_rv in enumerate(layer_krv):
            total += np.multiply(runs_rk[:, k, None], each_rv, where=runs_rk[:, k, None] > 0, out=np.zeros_like(total))
        return total

    def of_stages(self, work_rv: Floats, beside: Beside) -> Floats:
        """Seconds of a step under every plan, from those of the layers of every stage: shape (plans, vectors)."""
        hides_r = self.table.pipelines.hides_hops_i[self.table.plan_r, None]
        busy_rv = np.where(hides_r, np.maximum(work_rv, beside.hop_rv), work_rv + beside.hop_rv)
        pipelines = self.table.pipelines
        if pipelines.lines is not None:
            through_iv = self._through(busy_rv, pipelines.lines[0].turns)
        else:
            slowest_iv = np.maximum.reduceat(busy_rv, self.table.first_i, axis=0)
            through_iv = slowest_iv * (pipelines.rounds_i + pipelines.fill_i)[:, None]
        found: Floats = through_iv + beside.added_iv + self.once_i[:, None]
        return found

    def _through(self, busy_rv: Floats, turns: bool) -> Floats:
        """Seconds in which all microbatches are through, where the time of every stage is charged."""
        row_iq, count_iq = self.table.pipelines.runs_iq
        seconds = np.moveaxis(busy_rv[self.table.first_i[:, None] + row_iq], 2, 1)  # (plans, vectors, runs)
        endless_iv: Bools = np.asarray(np.isinf(np.where(count_iq[:, None] > 0, seconds, 0.0)).any(axis=2))
        options = self.table.pipelines.rounds_i[:, None], self.table.pipelines.interleave_i[:, None]
        seconds = np.where(endless_iv[:, :, None], 0.0, seconds)
        through_ivc = chains(seconds, count_iq[:, None], *options, turns=turns)
        return np.where(endless_iv, np.inf, through_ivc.max(axis=2))

    def most(self, cutoff: float, layer_k: Floats, kind: int, beside: Beside) -> Floats:
        """Seconds of a layer of some kind above which a step is not below a cutoff, by plan.

        The step rule is turned around by halving intervals, so it is stated once.

        Parameters
        ----------
        cutoff : float, s
        layer_k : float array, s, shape (kinds,)
            Least seconds of the layers of every kind; that of ``kind`` is not read.
        kind : int
            The kind of layer that is asked about.
        beside : Beside
            Of one vector: least figures.

        Returns
        -------
        float array, s, shape (plans,)
            A little more, so that rounding excludes nothing. Negative: no step of the plan is below the cutoff.
            Infinite where no cutoff is known, or a plan has no such layer.
        """
        if not np.isfinite(cutoff):
            return np.full(len(self.plans), np.inf)

        def step(seconds_i: Floats) -> Floats:
            layer_ki = np.repeat(layer_k[:, None], len(seconds_i), axis=1)
            layer_ki[kind] = seconds_i
            return self._of_each(layer_ki, beside)

        low_i, high_i = np.zeros(len(self.plans)), np.full(len(self.plans), max(cutoff, 0.0) + 1.0)
        never_i, always_i = step(low_i) > cutoff, step(high_i) <= cutoff
        for _ in range(_HALVINGS):
            middle_i = (low_i + high_i) / 2
            over_i = step(middle_i) > cutoff
            low_i, high_i = np.where(over_i, low_i, middle_i), np.where(over_i, middle_i, high_i)
        found = np.where(always_i, np.inf, high_i * (1 + _ROUNDED))
        return np.where(never_i, -1.0, found)

    # -- beside the layers --------------------------------------------------------------------------------------------

    def beside(self, output_vk: Floats, gradient_vk: Floats, weight_vk: Floats, *, least: bool) -> Beside:
        """Seconds beside the layers, for some vectors of options.

        Parameters
        ----------
        output_vk : float array, no unit, shape (vectors, kernels)
            Share of every kernel's output that one chip holds.
        gradient_vk, weight_vk : float arrays, B, shape (vectors, kernels)
            Bytes of the weight gradient of every kernel as copies add it up, and of its weight, on one chip.
        least : bool
            Whether these are the least over several options, so that the result is a lower bound.
        """
        hop_rv = np.zeros((len(self.table.plan_r), 1))
        if self.sends:
            share_vk, place_v = np.unique(output_vk[:, self.handed], axis=0, return_inverse=True)
            hop_rv = np.stack([self._hops(row.tobytes(), least) for row in share_vk], axis=1)[:, place_v.ravel()]
        added_iv = np.zeros((len(self.plans), 1))
        if self._trains:
            both_vk = np.concatenate([gradient_vk, weight_vk], axis=1)
            both_uk, place_v = np.unique(both_vk, axis=0, return_inverse=True)
            added_iv = np.stack([self._added(row.tobytes()) for row in both_uk], axis=1)[:, place_v.ravel()]
        return Beside(hop_rv, added_iv)

    @cached_property
    def sends(self) -> bool:
        """Whether messages between stages take time under some plan."""
        return any(plan.stages > 1 for plan in self.plans) and self.handed.size > 0

    @cached_property
    def handed(self) -> Ints:
        """Kernels that make what layers hand on to other stages, ascending."""
        graph = self.setting.graph
        if not graph.folded or sent_once(Instance(self.setting, self.plans[0])):
            return np.zeros(0, dtype=np.int64)
        index = graph.index()
        return np.array(sorted({index[one.src] for of in graph.handed_on for one in of}), dtype=np.int64)

    @cached_property
    def _trains(self) -> bool:
        return not adds_up_at_once(self.setting.assumptions) and self.setting.graph.trains

    @cached_property
    def _known(self) -> dict[tuple[str, bytes, bool], Floats]:
        return {}

    def _hops(self, shares: bytes, least: bool) -> Floats:
        """Seconds of messages of every stage, with some shares of what layers hand on."""
        if ("hops", shares, least) not in self._known:
            plain = LayerOptions.of(Instance(self.setting, self.plans[0])).plain
            output_k = np.ones(len(plain.names))
            output_k[self.handed] = np.frombuffer(shares)
            sharded = replace(plain, output_k=output_k)
            question = ByReads()

            def hops(plan: Plan) -> Floats:
                return hop_seconds(Instance(self.setting, plan), sharded, self.kind_k, least=least)

            found = [question.answer(plan, hops) for plan in self.plans]
            self._known["hops", shares, least] = np.concatenate(found)
        return self._known["hops", shares, least]

    def _added(self, figures: bytes) -> Floats:
        """Seconds of exchanges and of the optimizer's step, once per step, by plan."""
        if ("added", figures, False) not in self._known:
            gradient_k, weight_k = np.frombuffer(figures).reshape(2, -1)
            once_gk, question = list[Floats](), ByReads()
            work = partial(self._exchanged, gradient_k=gradient_k, weight_k=weight_k)
            for instance in self.table.instances:
                once_gk.append(question.answer(instance.plan, work))
            each_rk = np.array(once_gk)[self.table.group_i[self.table.plan_r]]
            stage_r = (self.table.runs_rk * each_rk).sum(axis=1)
            self._known["added", figures, False] = np.maximum.reduceat(stage_r, self.table.first_i)
        return self._known["added", figures, False]

    def _exchanged(self, plan: Plan, gradient_k: Floats, weight_k: Floats) -> Floats:
        """Seconds per layer of every kind, as :func:`dfopt.terms.step.hops.gradient_seconds` has them."""
        instance = Instance(self.setting, plan)
        share = 1.0 / self.table.work.drawn_stages(instance)  # that of an average stage, where kernels are drawn once
        step_k = share * optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        seconds = np.zeros(self.table.runs_rk.shape[1])
        for kind in range(len(seconds)):
            volume_k = np.where(self.kind_k == kind, share * gradient_k, 0.0)
            seconds[kind] = step_k[self.kind_k == kind].sum()
            seconds[kind] += sum(instance.exchanged_s(dims, share_k * volume_k) for dims, share_k in instance.adding)
        return seconds

    # -- figures of plans ---------------------------------------------------------------------------------------------

    @cached_property
    def once_i(self) -> Floats:
        """Seconds of messages that are charged once, and of the overhead of a step."""
        question, overhead = ByReads(), self.setting.assumptions.step_overhead or 0.0

        def hops(plan: Plan) -> float:
            return per_step_hops(Instance(self.setting, plan))

        return np.array([question.answer(plan, hops) + overhead for plan in self.plans], dtype=np.float64)
