"""What items add at least to a weighted sum under the schemes that are left: all items at once, in flat arrays.

An item is spread over blocks in one of its *covers*. Each *row* is what a block pays of it under some schemes.

Suffixes: i item, c component, r resource that takes time, n row, v schemes of an item, g block of a cover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.proof.factors import Factor


class Cover(NamedTuple):
    """One way to spread the kernels of an item over blocks.

    Attributes
    ----------
    component_g, pattern_g : tuple of int
        Component and kernel pattern (bit mask) of each block.
    """

    component_g: tuple[int, ...]
    pattern_g: tuple[int, ...]


class Spread(NamedTuple):
    """Costs that an item adds in each of its covers.

    Attributes
    ----------
    timed_nr : float array, s, shape (rows, resources)
        Seconds of each resource.
    legal_n : float array, shape (rows,)
        Infinite where schemes exclude each other, else 0.
    component_n : int array, shape (rows,)
        Component that pays.
    row_vg : int array, shape (schemes * covers, blocks)
        Rows of each cover, from 1 on; 0 where it has fewer blocks.
    covers : int
        Number of covers.
    """

    timed_nr: Floats
    legal_n: Floats
    component_n: Ints
    row_vg: Ints
    covers: int

    @staticmethod
    def of(timed: Floats, legal: Floats, covers: Sequence[Cover]) -> Spread:
        """Build from the costs of an item by schemes and pattern.

        Parameters
        ----------
        timed, legal : float arrays, shapes (schemes, patterns, resources) and (schemes, patterns)
            Seconds of each resource, and infinity where schemes exclude each other.
        covers : sequence of Cover
            Ways to spread the item's kernels over blocks.
        """
        pairs, row_cg = _rows(tuple(covers))
        patterns, count = [pattern for _, pattern in pairs], math.prod(legal.shape[:-1])
        row_vcg = np.where(row_cg, row_cg + len(pairs) * np.arange(count)[:, None, None], 0)
        return Spread(
            timed.reshape(count, *timed.shape[-2:])[:, patterns].reshape(count * len(pairs), timed.shape[-1]),
            legal.reshape(count, legal.shape[-1])[:, patterns].ravel(),
            np.tile(np.array([c for c, _ in pairs], dtype=np.int64), count),
            row_vcg.reshape(count * len(covers), row_cg.shape[1]),
            len(covers),
        )

    def least_sums(self, components: int) -> Floats:
        """Least seconds of each resource in every component, each minimized alone: shape (components, resources)."""
        rows = len(self.row_vg) // self.covers
        least_nr = self.timed_nr.reshape(rows, -1, self.timed_nr.shape[1]).min(axis=0)
        each = np.zeros((self.covers, components, least_nr.shape[1]))
        for number, row_g in enumerate(self.row_vg[: self.covers]):
            for row in row_g[row_g > 0] - 1:
                each[number, self.component_n[row]] += least_nr[row]
        return np.asarray(each.min(axis=0))


@lru_cache(maxsize=4096)
def _rows(covers: tuple[Cover, ...]) -> tuple[list[tuple[int, int]], Ints]:
    """Components and patterns of rows, and by cover the rows of its blocks."""
    pairs = sorted({pair for cover in covers for pair in zip(*cover, strict=True)})
    row_cg = np.zeros((len(covers), max(len(cover.pattern_g) for cover in covers)), dtype=np.int64)
    for number, cover in enumerate(covers):
        row_cg[number, : len(cover.pattern_g)] = [pairs.index(pair) + 1 for pair in zip(*cover, strict=True)]
    return pairs, row_cg


class Costs:
    """Costs of all items under the remaining schemes, as flat arrays.

    Parameters
    ----------
    spreads : sequence of Spread
        Spreads of every item with covers.
    scopes : sequence of tuples of int
        Kernels whose schemes decide of an item.
    sizes : sequence of int
        Number of schemes that are left of each kernel.
    """

    def __init__(self, spreads: Sequence[Spread], scopes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> None:
        self._timed_nr = np.concatenate([of.timed_nr for of in spreads])
        self._legal_n = np.concatenate([of.legal_n for of in spreads])
        self._component_n = np.concatenate([of.component_n for of in spreads])
        blocks, first = max(of.row_vg.shape[1] for of in spreads), 0
        self._row_vg = np.zeros((sum(len(of.row_vg) for of in spreads), blocks), dtype=np.int64)
        self._ends = [0]
        for of in spreads:
            place = self._ends[-1]
            self._ends.append(place + len(of.row_vg))
            self._row_vg[place : self._ends[-1], : of.row_vg.shape[1]] = of.row_vg + first * (of.row_vg > 0)
            first += len(of.legal_n)
        self._covers = [of.covers for of in spreads]
        choices = [len(of.row_vg) // of.covers for of in spreads]
        self._begin_v = np.cumsum([0, *np.repeat(self._covers, choices)])[:-1]
        self._strides = np.zeros((len(spreads), len(sizes)), dtype=np.int64)
        self._place_of = dict[tuple[int, ...], int]()  # of the costs that some kernels of several schemes decide
        self._entries, places = 0, list[int]()
        for i, scope in enumerate(scopes):
            stride, several = 1, tuple(k for k in scope if sizes[k] > 1)
            for k in reversed(several):
                self._strides[i, k] = stride
                stride *= sizes[k]
            if several not in self._place_of:
                self._place_of[several] = self._entries
                self._entries += stride
            places.append(self._place_of[several])
        inside_v = np.arange(len(self._begin_v)) - np.repeat(np.cumsum([0, *choices])[:-1], choices)
        self._entry_v, self._sizes = np.repeat(places, choices) + inside_v, sizes

    def factors(self, weight_cr: Floats) -> tuple[list[Factor], Floats]:
        """The costs weighted by ``weight_cr`` as factors over kernels, and the cost of each cover under all schemes."""
        cost_n = (self._timed_nr * weight_cr[self._component_n]).sum(axis=1) + self._legal_n
        cost_v = np.concatenate([[0.0], cost_n])[self._row_vg].sum(axis=1)
        entries: Floats = np.zeros(self._entries)
        entries += np.bincount(self._entry_v, np.minimum.reduceat(cost_v, self._begin_v), self._entries)
        factors = list[Factor]()
        for scope, place in self._place_of.items():
            shape = [self._sizes[k] for k in scope]
            factors.append(Factor(scope, entries[place : place + math.prod(shape)].reshape(shape)))
        return factors, cost_v

    def sums_with(self, values: Sequence[int], cost_v: Floats, components: int) -> Floats:
        """Seconds of each resource of every component for one scheme of each kernel, in the cheapest covers.

        Parameters
        ----------
        values : sequence of int
            Scheme of each kernel, as a place among those left.
        cost_v : float array
            Cost of each cover, as :meth:`factors` returns it.
        components : int
            Number of components.
        """
        chosen = list[int]()
        for end, covers, value in zip(self._ends, self._covers, (self._strides @ values).tolist(), strict=False):
            first = end + value * covers
            chosen.append(first + int(cost_v[first : first + covers].argmin()))
        rows = self._row_vg[chosen].ravel()
        rows = rows[rows > 0] - 1
        sum_cr = np.zeros((components, self._timed_nr.shape[1]))
        np.add.at(sum_cr, self._component_n[rows], self._timed_nr[rows])
        return sum_cr
