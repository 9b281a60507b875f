"""What of a step is beside its layers, under many plans and vectors of options: messages, exchanges, the optimizer.

Suffixes: i plan, g group of plans that differ in layers of stages only, r distinct pipeline stage of a plan, k kind of
layer or kernel, v vector of options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.plan import Plan
from dfopt.physics.network import adds_up_at_once
from dfopt.setting.instance import Instance
from dfopt.setting.reads import ByReads
from dfopt.terms.bounds import PlanTable
from dfopt.terms.bounds.passes import PassSeconds
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.step.hops import hop_seconds, sent_once
from dfopt.terms.step.optimizer import optimizer_seconds
from dfopt.terms.step.overlap import exchanged_by_kind, hides_any

__all__ = ["Beside", "Messages", "OptionFigures"]


class Beside(NamedTuple):
    """Seconds beside the layers, for some vectors of options.

    Attributes
    ----------
    hop_rv : float array, s, shape (stages, vectors)
        Messages of a stage to its neighbours, for one microbatch.
    added_iv : float array, s, shape (plans, vectors)
        Exchange of gradients and the optimizer's step, once per step; 0 where passes may hide them.
    exchanged : three float arrays, s, shape (groups, kinds, vectors), optional
        The same where passes may hide them, see :func:`dfopt.terms.step.overlap.exchanged_by_kind`.
    moving : two float arrays, s, shape (groups, kinds, vectors), optional
        Moving beside each pass of a layer, where slower memories move anything.
    passes : PassSeconds, optional
        Both passes of a layer, where these decide anything. None: nothing is known of them.
    exact : bool
        Whether passes are those of known partitions.
    """

    hop_rv: Floats
    added_iv: Floats
    exchanged: tuple[Floats, ...] | None = None
    moving: tuple[Floats, Floats] | None = None
    passes: PassSeconds | None = None
    exact: bool = False


@dataclass(frozen=True, eq=False)
class OptionFigures:
    """What kernels send and exchange beside their blocks, under some vectors of options, or at least.

    Attributes
    ----------
    output_vk : float array, no unit, shape (vectors, kernels)
        Share of every kernel's output that one chip holds.
    gradient_vk, weight_vk : float arrays, B, shape (vectors, kernels)
        Bytes of the weight gradient of every kernel as copies add it up, and of its weight, on one chip.
    least : bool
        Whether each is the least over several options.
    """

    output_vk: Floats
    gradient_vk: Floats
    weight_vk: Floats
    least: bool


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages between stages, exchanges of copies and the optimizer's step, of plans that give a chip the same work.

    Attributes
    ----------
    table : PlanTable
        The plans, with the layers of their stages.
    """

    table: PlanTable

    def of(self, figures: OptionFigures) -> Beside:
        """Seconds beside the layers, for some vectors of options; without moving and passes."""
        hop_rv = np.zeros((len(self.table.plan_r), 1))
        if self.sends:
            share_vk, place_v = np.unique(figures.output_vk[:, self.handed], axis=0, return_inverse=True)
            hop_rv = np.stack([self._hops(row.tobytes(), figures.least) for row in share_vk], axis=1)[
                :, place_v.ravel()
            ]
        added_iv, exchanged = np.zeros((len(self.table.plans), 1)), None
        if self._trains:
            both_vk = np.concatenate([figures.gradient_vk, figures.weight_vk], axis=1)
            both_uk, place_v = np.unique(both_vk, axis=0, return_inverse=True)
            if self.hides:
                hidden = [self._hidden(row.tobytes()) for row in both_uk]
                exchanged = tuple(np.stack(of, axis=2)[:, :, place_v.ravel()] for of in zip(*hidden, strict=True))
            else:
                added_iv = np.stack([self._added(row.tobytes()) for row in both_uk], axis=1)[:, place_v.ravel()]
        return Beside(hop_rv, added_iv, exchanged)

    @property
    def hides(self) -> bool:
        """Whether passes may hide exchanges of copies."""
        return hides_any(self.table.setting.assumptions, self.table.setting.graph)

    @cached_property
    def sends(self) -> bool:
        """Whether messages between stages take time under some plan."""
        return any(plan.stages > 1 for plan in self.table.plans) and self.handed.size > 0

    @cached_property
    def handed(self) -> Ints:
        """Kernels that make what layers hand on to other stages, ascending."""
        graph = self.table.setting.graph
        if not graph.folded or sent_once(Instance(self.table.setting, self.table.plans[0])):
            return np.zeros(0, dtype=np.int64)
        index = graph.index()
        return np.array(sorted({index[one.src] for of in graph.handed_on for one in of}), dtype=np.int64)

    @cached_property
    def _trains(self) -> bool:
        return not adds_up_at_once(self.table.setting.assumptions) and self.table.setting.graph.trains

    @cached_property
    def _known(self) -> dict[tuple[str, bytes, bool], Floats]:
        return {}

    def _hops(self, shares: bytes, least: bool) -> Floats:
        """Seconds of messages of every stage, with some shares of what layers hand on."""
        if ("hops", shares, least) not in self._known:
            plain = LayerOptions.of(Instance(self.table.setting, self.table.plans[0])).plain
            output_k = np.ones(len(plain.names))
            output_k[self.handed] = np.frombuffer(shares)
            sharded = replace(plain, output_k=output_k)
            question = ByReads()

            def hops(plan: Plan) -> Floats:
                return hop_seconds(Instance(self.table.setting, plan), sharded, self.table.kind_k, least=least)

            found = [question.answer(plan, hops) for plan in self.table.plans]
            self._known["hops", shares, least] = np.concatenate(found)
        return self._known["hops", shares, least]

    @cached_property
    def _known_hidden(self) -> dict[bytes, tuple[Floats, ...]]:
        return {}

    def _hidden(self, figures: bytes) -> tuple[Floats, ...]:
        """Seconds of exchanges of a layer that passes may hide: three arrays, shape (groups, kinds)."""
        if figures not in self._known_hidden:
            gradient_k, weight_k = np.frombuffer(figures).reshape(2, -1)
            question = ByReads()

            def exchanged(plan: Plan) -> tuple[Floats, ...]:
                instance = Instance(self.table.setting, plan)
                step_k = optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
                return exchanged_by_kind(instance, gradient_k, weight_k, self.table.kind_k, step_k)

            found = [question.answer(one.plan, exchanged) for one in self.table.instances]
            self._known_hidden[figures] = tuple(np.array(each) for each in zip(*found, strict=True))
        return self._known_hidden[figures]

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
        instance = Instance(self.table.setting, plan)
        share = 1.0 / self.table.work.drawn_stages(instance)  # that of an average stage, where kernels are drawn once
        step_k = share * optimizer_seconds(instance, np.arange(len(weight_k)), weight_k)
        seconds = np.zeros(self.table.runs_rk.shape[1])
        for kind in range(len(seconds)):
            volume_k = np.where(self.table.kind_k == kind, share * gradient_k, 0.0)
            seconds[kind] = step_k[self.table.kind_k == kind].sum()
            seconds[kind] += sum(instance.exchanged_s(dims, share_k * volume_k) for dims, share_k in instance.adding)
        return seconds
