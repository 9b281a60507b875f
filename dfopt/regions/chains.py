"""Pipelines of kernels that are drawn once: which chain of cuts is the best, under given amounts of all charges.

A stage is what lies between two cuts (:mod:`dfopt.regions.cuts`). Its seconds are those of its shortest path and of its
messages, and it has to fit the memory. With least amounts everything is a lower bound.

Suffixes: i plan, v vector of options, u cut, p stage, k kernel, a arc, b block, n label, x figure of a pipeline that
is not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Floats, Ints
from dfopt.regions.classes import PlanClass
from dfopt.regions.cuts import Cuts
from dfopt.setting.reads import memoized
from dfopt.terms.bounds.cut_stages import CutStages
from dfopt.terms.bounds.transfers import OptionFigures


class Chain(NamedTuple):
    """The best pipeline of a plan: its step and its cuts.

    Attributes
    ----------
    step_s : float, s
        Seconds of a step.
    cuts : tuple of int
        The cuts in front of and behind its stages: one more than there are stages, from the first cut to the last.
    """

    step_s: float
    cuts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Pipelines:
    """Pipelines of a class of plans, priced for several vectors of options.

    Attributes
    ----------
    of : PlanClass
        The plans; each has several stages.
    amount_vc : float array, shape (vectors, columns)
        Amounts of all charges.
    figures : OptionFigures
        Bytes that kernels send and exchange, for the same vectors.
    slack : float
        Share of the capacity that is left open.
    """

    of: PlanClass
    amount_vc: Floats
    figures: OptionFigures
    slack: float = 0.0

    @property
    def _cuts(self) -> Cuts:
        assert self.of.cuts is not None
        return self.of.cuts

    @property
    def _stages(self) -> CutStages:
        return self.of.cut_stages

    @cached_property
    def price_vb(self) -> Floats:
        """Seconds of every block, shape (vectors, blocks); infinite where it does not fit the chip."""
        price = self.of.least_prices if self.figures.least else self.of.prices
        return price(self._cuts.arcs, self.amount_vc)

    @cached_property
    def work_vuu(self) -> Floats:
        """Seconds of the partitions of every stage, by the cuts around it: shape (vectors, cuts, cuts)."""
        return self._cuts.seconds(self.price_vb)

    @cached_property
    def _held_vhk(self) -> Floats:
        """What every kernel holds."""
        return self.of.held_by_kernel(self.amount_vc)

    @memoized
    def room(self, plan: int) -> Floats:
        """Bytes left for waiting tensors in the fastest memory of each stage: shape (vectors, cuts, cuts).

        :attr:`slack` widens it a little. Negative: the stage does not fit its memories.
        """
        holding, of = self.of.holding, self._stages
        if not holding.limited:
            return np.full(self.work_vuu.shape, np.inf)
        most_m = holding.capacity_m * (1 + self.slack)
        most_m[0] -= holding.reserved_r[of.steps.table.first_i[plan]]
        pairs = zip(most_m.tolist(), holding.bytes_by_kernel(plan, self._held_vhk), strict=True)
        fastest_vuu, *slower = [most - of.stage_totals(held_vk) for most, held_vk in pairs]
        return np.where(np.all([each >= 0 for each in slower], axis=0), fastest_vuu, -np.inf)

    @memoized
    def _hops(self, plan: int) -> Floats:
        """Seconds of messages under a plan."""
        return self._stages.hops(plan, self.figures.output_vk, least=self.figures.least)

    def busy(self, plan: int) -> Floats:
        """Seconds of every stage for one microbatch: shape (vectors, cuts, cuts); infinite where it does not fit."""
        return np.where(self.room(plan) >= 0, self._stages.busy(plan, self.work_vuu, self._hops(plan)), np.inf)

    def slowest(self, plan: int) -> Floats:
        """Lower bound on the slowest stage of a plan, s, over all ways to cut the pipeline: shape (vectors,).

        Costs that a step adds once, and those of the other stages, are not included.
        """
        busy_vuu = self.busy(plan)
        slowest_vu = np.where(np.arange(busy_vuu.shape[1]) == 0, 0.0, np.full(busy_vuu.shape[:2], np.inf))
        for _ in range(self.of.plans[plan].stages):
            after_vu = np.maximum(slowest_vu[:, :, None], busy_vuu).min(axis=1)
            if (after_vu == slowest_vu).all():  # no further stage changes anything
                break
            slowest_vu = after_vu
        return np.asarray(slowest_vu[:, -1])

    def least_steps(self, plan: int) -> Floats:
        """Lower bound on the step of a plan, s, from its slowest stage: shape (vectors,)."""
        of, slowest_v = self._stages, self.slowest(plan)
        endless_v, none_v = np.isinf(slowest_v), np.zeros(len(slowest_v))
        figure_vx = of.grown(plan, 0, of.no_stage + none_v[:, None], np.where(endless_v, 0.0, slowest_v))
        return np.where(endless_v, np.inf, of.step(plan, figure_vx, none_v))

    # -- exact --------------------------------------------------------------------------------------------------------

    def best(self, plan: int, v: int, cutoff: float) -> tuple[Chain, list[Ints]] | None:
        """Fastest pipeline of a plan for vector ``v`` with a step below ``cutoff`` (s), and the blocks of each stage.

        Tensors that wait between partitions fit. Blocks are numbers of ``cuts.arcs``, in the order in which they run.
        None:
        no pipeline is below the cutoff.

        Parameters
        ----------
        plan, v : int
            Numbers of the plan, and of the vector of options.
        cutoff : float, s
            Step time at or above which no pipeline is of interest.
        """
        work_uu, room_uu = self.work_vuu[v].copy(), self.room(plan)[v]
        added_uu = self._stages.added(plan, self.figures.gradient_vk[v], self.figures.weight_vk[v])
        within: dict[tuple[int, int], Ints] = {}

        def busy() -> Floats:
            busy_uu = self._stages.busy(plan, work_uu, self._hops(plan)[v])
            return np.where(room_uu >= 0, busy_uu, np.inf)

        while (chain := self._chain(plan, busy(), added_uu, cutoff)) is not None:
            stages = [pair for pair in pairwise(chain.cuts) if pair[0] != pair[1]]
            fresh = [pair for pair in stages if pair not in within]
            slower = False
            for pair in fresh:
                seconds, within[pair] = self._within(v, *pair, float(room_uu[pair]))
                if seconds > work_uu[pair] * (1 + ROUNDING):
                    work_uu[pair], slower = seconds, True
            if not slower:
                empty = np.zeros(0, dtype=np.int64)
                return chain, [within.get(pair, empty) for pair in pairwise(chain.cuts)]
        return None

    def _within(self, v: int, first: int, last: int, room: float) -> tuple[float, Ints]:
        """Seconds and blocks of a stage on the shortest path along which no more waits than there is room for."""
        arcs, price_b = self._cuts.stage(first, last), self.price_vb[v]
        seconds, path = arcs.shortest(price_b)
        if self.of.holding.counts_waiting:
            inside_k = self._stages.set_uk[last] & ~self._stages.set_uk[first]
            fits_a = self.of.waiting_inside(arcs, self.amount_vc[v], inside_k) <= room
            if not fits_a[path].all():
                seconds, path = arcs.shortest(price_b, fits_a)
        return seconds, arcs.block_a[path]

    def _chain(self, plan: int, busy_uu: Floats, added_uu: Floats, cutoff: float) -> Chain | None:
        """The best chain of cuts below a cutoff, by labels that no other one dominates."""
        stages, of = self.of.plans[plan].stages, self._stages
        cut_n, figure_nx, added_n = np.zeros(1, dtype=np.int64), of.no_stage, np.zeros(1)
        back = list[tuple[Ints, Ints]]()
        for behind in range(stages - 1, -1, -1):
            label, after = np.nonzero(np.isfinite(busy_uu[cut_n]))
            if behind == 0:
                ends = after == len(busy_uu) - 1
                label, after = label[ends], after[ends]
            figure_nx = of.grown(plan, behind, figure_nx[label], busy_uu[cut_n[label], after])
            added_n = np.maximum(added_n[label], added_uu[cut_n[label], after])
            low_n = of.step(plan, figure_nx, added_n)
            kept = np.flatnonzero(low_n < cutoff)
            kept = kept[pareto_fronts(after[kept], np.column_stack([figure_nx, added_n])[kept])]
            if not len(kept):
                return None
            back.append((label[kept], after[kept]))
            cut_n, figure_nx, added_n, low_n = after[kept], figure_nx[kept], added_n[kept], low_n[kept]
        place, cuts = int(low_n.argmin()), list[int]()
        step_s = float(low_n[place])
        for label, after in reversed(back):
            cuts.append(int(after[place]))
            place = int(label[place])
        return Chain(step_s, (0, *reversed(cuts)))


def pareto_fronts(group_n: Ints, figure_nx: Floats) -> Ints:
    """Indices of the Pareto-optimal labels of every group; of equal labels the first.

    Parameters
    ----------
    group_n : int array, shape (labels,)
        Group of every label.
    figure_nx : float array, shape (labels, figures)
        Figures of every label; smaller is better.

    Examples
    --------
    >>> pareto_fronts(np.array([0, 0, 0, 1]), np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0], [9.0, 9.0]])).tolist()
    [0, 1, 3]
    """
    varying = figure_nx[:, (figure_nx != figure_nx[:1]).any(axis=0)]
    order = np.lexsort((*varying.T[::-1], group_n))
    begins = np.flatnonzero(np.diff(group_n[order], prepend=-1))
    if varying.shape[1] <= 1:
        return order[begins]
    return np.array([n for some in np.split(order, begins[1:]) for n in _front(some, varying)], dtype=np.int64)


def _front(order: Ints, figure_nx: Floats) -> Iterator[int]:
    """Those of one group, sorted by their figures, that none before dominates."""
    kept = np.zeros((0, figure_nx.shape[1]))
    for n in order.tolist():
        if not (kept <= figure_nx[n]).all(axis=1).any():
            kept = np.concatenate([kept, figure_nx[[n]]])
            yield n
