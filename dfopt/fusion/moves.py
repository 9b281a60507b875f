"""Blocks near a block: local search for blocks whose kernels are worth more than their time."""

from __future__ import annotations

import numpy as np

from dfopt.bnb import Clock
from dfopt.fusion.blocks import StageTables, price_blocks
from dfopt.fusion.classes import Classes
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.fusion.segments import precedence
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_STEPS = 8  # moves from one block at most: the prices change before long
_ENOUGH = 200  # blocks in one go: then the prices should be looked at again
_MOST = 3000  # kernels: the reachability matrix grows with their square


class Moves:
    """Grows and shrinks convex blocks by a kernel, together with what convexity asks for."""

    def __init__(self, tables: StageTables, limits: IntraChipLimits, classes: Classes, order: Ints) -> None:
        self.tables, self.classes = tables, classes
        self.pure = limits.forward_backward == "separate"
        n = tables.kernels
        self.usable = n <= _MOST
        if not self.usable:
            return
        before, after = precedence(tables)
        self.reach = np.zeros((n, n), dtype=bool)  # a path from row to column
        for k in order[::-1]:
            for b in after[k]:
                self.reach[k] |= self.reach[b]
                self.reach[k, b] = True
        self.near = np.zeros((n, n), dtype=bool)
        for k in range(n):
            # kernels that share a tensor with it as producer, consumer or fellow consumer
            self.near[k, after[k]] = self.near[after[k], k] = True
            for b in before[k]:
                self.near[k, after[b]] = True
            for b in after[k]:
                self.near[k, before[b]] = True

    def improve(self, blocks: list[Ints], price_k: Floats, fixed: float, clock: Clock) -> list[Ints]:
        """Blocks found on the way down from the given ones that are worth more than their time."""
        found: list[Ints] = []
        if not self.usable:
            return found
        for kernels in blocks:
            if clock.over or len(found) >= _ENOUGH:
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
                clock.charge(50.0 + len(near))
                prices = price_blocks(self.tables, near)
                reduced = np.where(prices.legal, prices.time - near @ price_k + fixed, np.inf)
                best = np.argsort(reduced)[:5]
                found += [np.flatnonzero(near[i]) for i in best if reduced[i] < 0]
                if not reduced[best[0]] < value - 1e-12:
                    break
                value, block = float(reduced[best[0]]), near[best[0]]
        return found

    def _neighbours(self, block: Bools) -> Bools:
        """Convex blocks one kernel larger or smaller, one for each kind of kernel that could come or go."""
        reach, kind, forward = self.reach, self.classes.class_k, self.tables.sharded.forward_k
        inside = np.flatnonzero(block)
        above, below = reach[:, inside].any(axis=1) & ~block, reach[inside].any(axis=0) & ~block
        touching = self.near[:, inside]
        found: list[Bools] = []
        seen: set[tuple[int, int]] = set()
        for k in np.flatnonzero(touching.any(axis=1) & ~block & ~(above & below)).tolist():
            alike = (int(kind[k]), int(touching[k].sum()))
            if alike in seen or (self.pure and forward[k] != forward[inside[0]]):
                continue
            seen.add(alike)
            larger = block.copy()
            larger[k] = True
            between = (reach[k] & above) if above[k] else (reach[:, k] & below) if below[k] else None
            if between is not None:
                larger |= between
                if self.pure and (forward[larger] != forward[k]).any():
                    continue
            found.append(larger)
        if len(inside) > 1:
            first, last = ~reach[inside][:, inside].any(axis=0), ~reach[inside][:, inside].any(axis=1)
            seen.clear()
            for at in np.flatnonzero(first | last).tolist():
                k = int(inside[at])
                alike = (int(kind[k]), int(touching[k].sum()))
                if alike not in seen:
                    seen.add(alike)
                    smaller = block.copy()
                    smaller[k] = False
                    found.append(smaller)
        return np.array(found, dtype=bool).reshape(len(found), len(block))
