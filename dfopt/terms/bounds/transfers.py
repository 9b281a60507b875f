"""Transfers of a step beside its layers, under many plans and vectors of options: messages, exchanges, the optimizer.

Suffixes: i plan, g group of plans that differ in layers of stages only, r distinct pipeline stage of a plan, k kind of
layer or kernel, v vector of options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.setting.instance import Instance
from dfopt.setting.reads import memoized
from dfopt.terms.bounds.passes import PassSeconds
from dfopt.terms.bounds.plan_arrays import PlanArrays, drawn_stages
from dfopt.terms.layer import counts_training
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.step.hops import added_by_kind, hop_seconds, sent_once
from dfopt.terms.step.overlap import exchanged_by_kind, hides_any


class Transfers(NamedTuple):
    """Seconds of transfers in addition to the layers, for some vectors of options.

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
    """What kernels send and exchange outside of their blocks, under vectors of options or at least.

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
class TransferBounds:
    """Messages between stages, exchanges of replicas and the optimizer step, for plans with equal work of chips.

    Attributes
    ----------
    table : PlanArrays
        The plans, with the layers of their stages.
    """

    table: PlanArrays

    def of(self, figures: OptionFigures) -> Transfers:
        """Seconds of transfers for some vectors of options, without offload transfers and passes."""
        hop_rv = np.zeros((len(self.table.plan_r), 1))
        if self.sends:
            shares, place_v = _distinct(figures.output_vk[:, self.handed])
            hop_rv = np.stack([self._hops(each, figures.least) for each in shares], axis=1)[:, place_v]
        added_iv, exchanged = np.zeros((len(self.table.plans), 1)), None
        if self.trains:
            sizes, place_v = _distinct(np.concatenate([figures.gradient_vk, figures.weight_vk], axis=1))
            if self.hides:
                hidden = zip(*map(self._hidden, sizes), strict=True)
                exchanged = tuple(np.stack(each, axis=2)[:, :, place_v] for each in hidden)
            else:
                added_iv = np.stack(list(map(self._added, sizes)), axis=1)[:, place_v]
        return Transfers(hop_rv, added_iv, exchanged)

    @property
    def hides(self) -> bool:
        """Whether passes may hide exchanges of replicas."""
        return hides_any(self.table.assumptions, self.table.setting.graph)

    @cached_property
    def sends(self) -> bool:
        """Whether messages between stages take time under some plan."""
        return any(plan.stages > 1 for plan in self.table.plans) and self.handed.size > 0

    @cached_property
    def handed(self) -> Ints:
        """Numbers of the kernels whose output layers send to other stages, ascending."""
        graph = self.table.setting.graph
        if not graph.folded or sent_once(Instance(self.table.setting, self.table.plans[0])):
            return np.zeros(0, dtype=np.int64)
        index = graph.index()
        return np.array(sorted({index[tensor.src] for of in graph.handed_on for tensor in of}), dtype=np.int64)

    @cached_property
    def trains(self) -> bool:
        """Whether replicas exchange gradients at the end of a step."""
        return counts_training(self.table.setting.graph, self.table.assumptions)

    def slowest(self, added_gk: Floats) -> Floats:
        """Seconds per step of the slowest stage of each plan, (plans,), from seconds of a layer by group and kind."""
        return self.table.slowest((self.table.runs_rk * added_gk[self.table.group_r]).sum(axis=1))

    @memoized
    def _hops(self, shares: bytes, least: bool) -> Floats:
        """Seconds of messages of every stage, with some shares of what layers hand on, which may be the least."""
        plain = LayerOptions.of(Instance(self.table.setting, self.table.plans[0])).plain
        output_k = np.ones(len(plain.names))
        output_k[self.handed] = np.frombuffer(shares)
        sharded, kind_k = replace(plain, output_k=output_k), self.table.kind_k
        return np.concatenate(self.table.of_plans(lambda instance: hop_seconds(instance, sharded, kind_k, least=least)))

    @memoized
    def _hidden(self, sizes: bytes) -> tuple[Floats, ...]:
        """Seconds of exchanges of a layer that passes may hide: three arrays, shape (groups, kinds)."""
        (gradient_k, weight_k), kind_k = np.frombuffer(sizes).reshape(2, -1), self.table.kind_k
        each = self.table.of_groups(lambda instance: exchanged_by_kind(instance, gradient_k, weight_k, kind_k))
        return tuple(map(np.array, zip(*each, strict=True)))

    @memoized
    def _added(self, sizes: bytes) -> Floats:
        """Seconds of exchanges and of the optimizer's step, once per step, by plan."""
        (gradient_k, weight_k), kind_k = np.frombuffer(sizes).reshape(2, -1), self.table.kind_k

        def of_layers(instance: Instance) -> Floats:
            return added_by_kind(instance, gradient_k, weight_k, kind_k, 1.0 / drawn_stages(instance))

        return self.slowest(np.array(self.table.of_groups(of_layers)))


def _distinct(figure_vx: Floats) -> tuple[list[bytes], Ints]:
    """The distinct vectors of some figures, and the place among these of each."""
    place_of = dict[bytes, int]()
    place_v = np.array([place_of.setdefault(row.tobytes(), len(place_of)) for row in figure_vx], dtype=np.int64)
    return [*place_of], place_v
