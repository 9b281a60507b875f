"""Blocks near a block: local search for blocks whose kernels are worth more than their time."""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import Clock
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.classes import KernelClasses
from dfopt.fusion.partitioning import IntraChipLimits

_STEPS = 8  # moves from one block at most: the prices change before long
_ENOUGH = 200  # blocks in one go: then the prices should be looked at again
_MOST = 3000  # kernels: the reachability matrix grows with their square
_STEP: Final = 50.0  # units of work of one step, beside one for each block it prices
_TAKEN: Final = 5  # best neighbours of a step that are kept: others are nearly the same blocks
_LESS_S: Final = 1e-12  # seconds that a step must gain: far below those of a kernel, and it ends where sums round


class Moves:
    """Local search over convex blocks: adds or removes a kernel with those that convexity requires."""

    def __init__(self, tables: StageTables, limits: IntraChipLimits, classes: KernelClasses, order: Ints) -> None:
        self.tables, self.classes = tables, classes
        self.pure = limits.forward_backward == "separate"
        n = tables.kernels
        self.usable = n <= _MOST
        if not self.usable:
            return
        own = (tables.sharded.src_t < n) & (tables.sharded.dst_t < n)
        edges = tables.sharded.src_t[own], tables.sharded.dst_t[own]
        joined = scipy.sparse.csr_array((np.ones(len(edges[0])), edges), shape=(n, n))
        # kernels that share a tensor with another one as producer, consumer or fellow consumer
        self.near = (joined + joined.T + joined.T @ joined + joined @ joined.T).toarray() > 0
        direct = joined.toarray() > 0
        self.reach = direct.copy()  # a path from row to column
        for k in order[::-1]:
            self.reach[k] |= self.reach[direct[k]].any(axis=0)

    def improve(self, blocks: list[Ints], price_k: Floats, fixed: float, clock: Clock) -> list[Ints]:
        """Blocks of negative reduced cost near the given ones, by steepest descent from each.

        Parameters
        ----------
        blocks : list of int arrays
            Kernels of each block.
        price_k : float array, s, shape (kernels,)
            Seconds that each kernel is worth.
        fixed : s
            Seconds that any block costs in addition to its time.
        clock : Clock
            Limit on the search.
        """
        improving: list[Ints] = []
        if not self.usable:
            return improving
        for kernels in blocks:
            if clock.over or len(improving) >= _ENOUGH:
                break
            block = np.zeros(self.tables.kernels, dtype=bool)
            block[kernels] = True
            value = np.inf
            for _ in range(_STEPS):
                if clock.over:
                    break
                near = self._neighbours(block)
                if not len(near):
                    break
                clock.charge(_STEP + len(near))
                prices = price_blocks(self.tables, near)
                reduced = np.where(prices.legal, prices.time - near @ price_k + fixed, np.inf)
                best = np.argsort(reduced)[:_TAKEN]
                improving += [np.flatnonzero(near[i]) for i in best if reduced[i] < 0]
                if not reduced[best[0]] < value - _LESS_S:
                    break
                value, block = float(reduced[best[0]]), near[best[0]]
        return improving

    def _neighbours(self, block: Bools) -> Bools:
        """Convex blocks one kernel larger or smaller, one for each kind of kernel that could come or go."""
        reach, forward = self.reach, self.tables.sharded.forward_k
        inside = np.flatnonzero(block)
        above, below = reach[:, inside].any(axis=1) & ~block, reach[inside].any(axis=0) & ~block
        touching = self.near[:, inside]
        addable = touching.any(axis=1) & ~block & ~(above & below)
        if self.pure:
            addable &= forward == forward[inside[0]]
        neighbours: list[Bools] = []
        for k in self._kinds(np.flatnonzero(addable), touching):
            larger = block | (reach[k] & above if above[k] else reach[:, k] & below)
            larger[k] = True
            if not self.pure or (forward[larger] == forward[k]).all():
                neighbours.append(larger)
        if len(inside) > 1:
            among = reach[np.ix_(inside, inside)]
            for k in self._kinds(inside[~(among.any(axis=0) & among.any(axis=1))], touching):
                neighbours.append(block.copy())
                neighbours[-1][k] = False
        return np.array(neighbours, dtype=bool).reshape(len(neighbours), len(block))

    def _kinds(self, kernels: Ints, touching: Bools) -> list[int]:
        """The first of some kernels that are interchangeable and share tensors with as many of a block."""
        alike = np.stack([self.classes.class_k[kernels], touching[kernels].sum(axis=1)])
        return list(kernels[np.sort(np.unique(alike, axis=1, return_index=True)[1])].tolist())
