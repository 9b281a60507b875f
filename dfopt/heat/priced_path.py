"""Blocks that a better choice may use, out of all blocks of a stage: a shortest path under prices of time and heat.

The time of a throttled mapping excludes few blocks: at nominal speed most of them are faster. With the prices of a
relaxation over some blocks (:mod:`dfopt.heat.bound`) a block costs what its seconds and joules are worth at
its cheapest level, and what no path below a given cost uses is left out, exactly (Lagrangian bound).
"""

from __future__ import annotations

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.fusion.blocks import part_of, price_blocks
from dfopt.fusion.downsets import Lattice
from dfopt.fusion.lattice import ShortestPath
from dfopt.fusion.partitioning import IntraChipLimits, alive_bytes
from dfopt.heat.blocks import HotStage
from dfopt.heat.problem import HeatPrices


class PricedPath(ShortestPath):
    """Shortest-path search with the cost of each block at its cheapest clock level instead of seconds.

    Parameters
    ----------
    hot : HotStage
        The stage; its memory no slower than any mix of streams.
    limits, lattice
        Limits and lattice of the stage.
    upper : float
        Cost above which a path is of no interest.
    prices : HeatPrices
        Prices of seconds and joules, none below zero.
    """

    chunk = 50_000  # fewer than without heat: each has a power map

    def __init__(
        self, hot: HotStage, limits: IntraChipLimits, lattice: Lattice, upper: float, prices: HeatPrices
    ) -> None:
        super().__init__(hot.tables, limits, lattice, upper)
        self.hot, self.prices, heat = hot, prices, hot.heat
        # what a kernel costs at least, wherever it is: the cheapest second, and its own joules at the cheapest level
        least = float(prices.second_l.min())
        tiles = prices.joule_lk.shape[1] - heat.own.other_kx.shape[1]
        joule_k = prices.joule_lk.min(axis=0)
        own_k = heat.own.local_k * joule_k[:tiles].min(initial=np.inf) + heat.own.other_kx @ joule_k[tiles:]
        self.spent = lattice.member @ own_k
        self.terms = [least * term for term in self.terms]
        self.rest = least * self.rest + self.spent[-1] - self.spent

    def _least(self, i: Ints, j: Ints) -> Floats:
        """As in the plain search; a block's own joules count before it is priced."""
        least: Floats = super()._least(i, j) + self.spent[j] - self.spent[i]
        return least

    def _price(self, i: Ints, j: Ints, nearest: Floats) -> None:
        if not len(i):
            return
        member = self.lattice.member[j] & ~self.lattice.member[i]
        here = np.flatnonzero(member.any(axis=0)).astype(np.int64)
        exact = price_blocks(part_of(self.tables, here), member[:, here])
        # before the joules are placed: legal, and cheap enough with the seconds alone
        floor = float(self.prices.second_l.min()) * exact.time + self.spent[j] - self.spent[i]
        keep = exact.legal & (nearest + floor + self.rest[j] <= self.upper)
        i, j, nearest, member = i[keep], j[keep], nearest[keep], member[keep]
        if not len(i):
            return
        place, tokens = self.hot.ways(member)
        seconds, energy = self.hot.spent(member[place], tokens)
        cost = np.full(len(member), np.inf)  # in the cheapest way to run it
        np.minimum.at(cost, place, (seconds * self.prices.second_l + energy @ self.prices.joule_lk.T).min(axis=1))
        keep = nearest + cost + self.rest[j] <= self.upper
        if self.tables.bytes_g.sum() > self.limits.dram_left:
            past = self.lattice.member[i]
            keep &= alive_bytes(self.tables, self.limits, past, member) <= self.limits.dram_left
        i, j, cost, member = i[keep], j[keep], cost[keep], member[keep]
        if not len(i):
            return
        self._take(i, j, cost, member)
