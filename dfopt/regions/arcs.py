"""Paths through the lattice of down-sets as arrays: an arc is a block that leads from one down-set to a larger one.

Partitions that run one after another visit down-sets of the kernels (:mod:`dfopt.fusion.downsets`). So an order of
partitions is a path from the empty down-set to that of all kernels, and each of its arcs is a block. Blocks cost what
they cost wherever they are on a path. Here all arcs are listed at once, and shortest paths are found for many vectors
of prices together.

Suffixes: a arc, b block, j down-set, k kernel of the graph, v vector of options, i incidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints, stable_order
from dfopt.regions.factors import least_by_side
from dfopt.terms.counting import IncidenceCounts
from dfopt.terms.incidence import Has, Incidence

_LOT = 4_000_000
"""Most numbers in one array of prices by arc and vector, 32 MB: more vectors are taken in several lots."""
_CACHED = 65_536
"""The same of arcs into down-sets of one size: half a megabyte, which stays in the processor's cache."""
_MOSTLY = 0.75
"""Share of incidences, up to which another path for all that are left is worth it: each of them has one otherwise."""


@dataclass(frozen=True, eq=False)
class Arcs:
    """The lattice of down-sets as arrays: arcs, each a block that leads from one down-set to a larger one.

    Attributes
    ----------
    member_bk : bool array, shape (blocks, kernels of the graph)
        Kernels of every block.
    set_jk : bool array, shape (down-sets, kernels of the graph)
        Kernels of every down-set, smaller sets first: the first is empty, the last has all kernels of the layer. One
        set may be there several times, with different arcs that lead on (:mod:`dfopt.regions.numbering`), but for the
        first and the last.
    before_a, after_a, block_a : int arrays, shape (arcs,)
        The down-sets that an arc joins, and its block. Arcs are sorted by ``after_a``.
    apart_k : int array, shape (kernels of the graph,), optional
        Only for a lattice that is too large to list, of which these are some arcs: sides of the kernels, as of
        :attr:`side_k`. Every path is then a valid order of partitions, but paths that are not listed may be better.

    Examples
    --------
    Two kernels, one after the other, in one block or in two:

    >>> sets = np.array([[False, False], [True, False], [True, True]])
    >>> blocks = np.array([[True, False], [False, True], [True, True]])
    >>> arcs = Arcs(blocks, sets, np.array([0, 1, 0]), np.array([1, 2, 2]), np.array([0, 1, 2]))
    >>> distance = arcs.distances(np.array([[1.0, 1.0, 3.0], [1.0, 1.0, 1.5]]))
    >>> distance[:, -1].tolist()
    [2.0, 1.5]
    >>> arcs.path(distance[0], np.array([1.0, 1.0, 3.0])).tolist()
    [0, 1]
    """

    member_bk: Bools
    set_jk: Bools
    before_a: Ints
    after_a: Ints
    block_a: Ints
    apart_k: Ints | None = field(default=None, repr=False)

    @property
    def complete(self) -> bool:
        """Whether the lattice lists every arc that a path may use."""
        return self.apart_k is None

    def __post_init__(self) -> None:
        assert (np.diff(self.after_a) >= 0).all(), "arcs are sorted by the down-set that they lead to"

    @property
    def only_path(self) -> bool:
        """Whether the lattice has exactly one path."""
        return len(self.before_a) == len(self.set_jk) - 1

    @cached_property
    def kernels(self) -> Ints:
        """Kernels of the layer, as numbers of the graph: int array, ascending."""
        return np.flatnonzero(self.set_jk[-1]).astype(np.int64)

    @cached_property
    def levels(self) -> list[tuple[slice, Ints, Ints]]:
        """Arcs grouped by the size of the down-set that they enter: arcs, first arc of each down-set, down-sets.

        Smaller sizes come first. No arc joins two down-sets of equal size, so that all of one size are computed
        together.
        """
        size_a = self.set_jk.sum(axis=1)[self.after_a]
        firsts = np.flatnonzero(np.diff(size_a, prepend=-1))
        levels = []
        for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(size_a)], strict=True):
            begins = np.flatnonzero(np.diff(self.after_a[first:end], prepend=-1))
            levels.append((slice(first, end), begins, self.after_a[first + begins]))
        return levels

    def distances(self, price_vb: Floats, first_j: Sequence[int] | Ints = (0,)) -> Floats:
        """Least sum of prices over the paths from the empty down-set to each one, for many vectors of prices.

        Parameters
        ----------
        price_vb : float array, shape (vectors, blocks)
            Price of every block, in any unit. Infinite: the block may not be used.
        first_j : int array
            Down-sets to begin at, to which no arc leads, if there are several that are empty.

        Returns
        -------
        float array, shape (vectors, down-sets)
            In the unit of the prices. Infinite where no path leads.
        """
        vectors, most = len(price_vb), max((s.stop - s.start for s, _, _ in self.levels), default=1)
        if len(parts := lots(vectors, most, _CACHED)) > 1:
            return np.concatenate([self.distances(price_vb[part], first_j) for part in parts])
        price_bv = np.ascontiguousarray(price_vb.T)  # the prices of a block lie together
        distance_jv = np.full((len(self.set_jk), vectors), np.inf)
        distance_jv[np.asarray(first_j)] = 0.0
        for arcs, begins, sets in self.levels:
            reached_av = distance_jv.take(self.before_a[arcs], axis=0)
            reached_av += price_bv.take(self.block_a[arcs], axis=0)
            distance_jv[sets] = np.minimum.reduceat(reached_av, begins, axis=0)
        return np.ascontiguousarray(distance_jv.T)

    def least_peak(self, size_a: Floats) -> float:
        """Bottleneck path: the least possible largest arc size over paths from the empty to the full down-set.

        Parameters
        ----------
        size_a : float array, shape (arcs,)
            Size of every arc, not negative. Infinite: the arc may not be used.

        Returns
        -------
        float
            In the unit of the sizes. Infinite: there is no path.
        """
        peak_j = np.full(len(self.set_jk), np.inf)
        peak_j[0] = 0.0
        for arcs, begins, sets in self.levels:
            peak_j[sets] = np.minimum.reduceat(np.maximum(peak_j[self.before_a[arcs]], size_a[arcs]), begins)
        return float(peak_j[-1])

    @cached_property
    def _reversed(self) -> Arcs:
        """The same arcs the other way, from the full down-set to the empty one, which is then the last."""
        last = len(self.set_jk) - 1
        order = stable_order(last - self.before_a)
        before_a, after_a = last - self.after_a[order], last - self.before_a[order]
        set_jk = self.set_jk[-1] & ~self.set_jk[::-1]
        return Arcs(self.member_bk, set_jk, before_a, after_a, self.block_a[order])

    def remaining(self, price_b: Floats) -> Floats:
        """Least sum of prices over the paths from each down-set to that of all kernels.

        Parameters
        ----------
        price_b : float array, shape (blocks,)
            Price of every block, in any unit.

        Returns
        -------
        float array, shape (down-sets,)
            In the unit of the prices. Infinite where no path leads.
        """
        return self._reversed.distances(price_b[None])[0, ::-1]

    def through(self, price_b: Floats) -> tuple[Floats, Floats]:
        """Least sum of prices over the paths through each arc.

        Parameters
        ----------
        price_b : float array, shape (blocks,)
            Price of every block, in any unit.

        Returns
        -------
        (float array, shape (down-sets,), float array, shape (arcs,))
            Distances from the empty down-set, as of :meth:`distances`, and the sums by arc.
        """
        distance_j = self.distances(price_b[None])[0]
        through_a = distance_j[self.before_a] + price_b[self.block_a] + self.remaining(price_b)[self.after_a]
        return distance_j, through_a

    def path(self, distance_j: Floats, price_b: Floats) -> Ints:
        """Arcs of a shortest path, in their order.

        Parameters
        ----------
        distance_j : float array, shape (down-sets,)
            Distances under the prices: a row of :meth:`distances`. The last is finite.
        price_b : float array, shape (blocks,)
            Price of every block.

        Returns
        -------
        int array, shape (arcs of the path,)
        """
        place, arcs = len(self.set_jk) - 1, list[int]()
        while place > 0:
            first, end = np.searchsorted(self.after_a, [place, place + 1]).tolist()
            length_a = distance_j[self.before_a[first:end]] + price_b[self.block_a[first:end]]
            arcs.append(first + int(length_a.argmin()))
            place = int(self.before_a[arcs[-1]])
        return np.array(arcs[::-1], dtype=np.int64)

    def shortest(self, price_b: Floats, keep_a: Bools | None = None) -> tuple[float, Ints]:
        """The shortest path from the empty down-set to that of all kernels.

        Parameters
        ----------
        price_b : float array, shape (blocks,)
            Price of every block, in any unit. Infinite: the block may not be used.
        keep_a : bool array, shape (arcs,), optional
            Arcs that may be on it; left out, all.

        Returns
        -------
        (float, int array)
            The sum of its prices, and its arcs in their order. Infinite, and none, where there is no path.
        """
        if keep_a is not None and not keep_a.all():
            few = self.kept(keep_a)
            if few is None:
                return np.inf, np.zeros(0, dtype=np.int64)
            some, blocks, arc_a = few
            length, path = some.shortest(price_b[blocks])
            return length, arc_a[path]
        distance_j = self.distances(price_b[None])[0]
        if np.isinf(distance_j[-1]):
            return np.inf, np.zeros(0, dtype=np.int64)
        return float(distance_j[-1]), self.path(distance_j, price_b)

    def kept(self, keep_a: Bools) -> tuple[Arcs, Ints, Ints] | None:
        """The sub-lattice of some arcs, with its blocks and down-sets numbered anew.

        Arcs to which no path leads are left out.

        Parameters
        ----------
        keep_a : bool array, shape (arcs,)
            Mask of the arcs to keep.

        Returns
        -------
        (Arcs, int array, int array) or None
            These arcs, and the indices in the original of each of their blocks, and of each arc. None: no path is left.
        """
        reached_j = np.zeros(len(self.set_jk), dtype=bool)
        reached_j[0] = True
        for arcs, _, _ in self.levels:
            leads_a = keep_a[arcs] & reached_j[self.before_a[arcs]]
            reached_j[self.after_a[arcs][leads_a]] = True
        if not reached_j[-1]:
            return None
        keep_a = keep_a & reached_j[self.before_a]
        arc_a = np.flatnonzero(keep_a)
        blocks, number_b = _numbered(len(self.member_bk), self.block_a[arc_a])
        sets, number_j = _numbered(len(self.set_jk), self.before_a[arc_a], self.after_a[arc_a])
        ends = number_j[self.before_a[arc_a]], number_j[self.after_a[arc_a]]
        few = Arcs(self.member_bk[blocks], self.set_jk[sets], *ends, number_b[self.block_a[arc_a]], self.apart_k)
        return few, blocks, arc_a

    @cached_property
    def side_k(self) -> Ints:
        """Number of the side of each kernel, from 0: two sides never share a block. -1: kernels of other layers.

        Int array, shape (kernels of the graph,).
        """
        if self.apart_k is not None:
            return self.apart_k
        side_k = np.full(self.set_jk.shape[1], -1, dtype=np.int64)
        kernels = self.kernels
        member_bk = self.member_bk[:, kernels]
        label, before = np.arange(len(kernels), dtype=np.int16), np.full(len(kernels), -1)
        while (label != before).any():  # the least number that chains of kernels in blocks lead to
            label_b = np.where(member_bk, label, np.int16(len(kernels))).min(axis=1)
            before, label = label, np.where(member_bk, label_b[:, None], label).min(axis=0)
        side_k[kernels] = np.unique(label, return_inverse=True)[1]
        return side_k

    @cached_property
    def counting(self) -> IncidenceCounts:
        """Incidence counts of the blocks: how often each pays a charge."""
        return IncidenceCounts(self.member_bk)

    @cached_property
    def counting_of_sets(self) -> IncidenceCounts:
        """Incidence counts of the down-sets, as if each were a block."""
        return IncidenceCounts(self.set_jk)

    @cached_property
    def _least_counts(self) -> dict[Incidence, dict[int, float]]:
        return {}

    def least_counts(self, incidences: Iterable[Incidence]) -> dict[Incidence, dict[int, float]]:
        """Least number of times that the blocks of each side pay an incidence, over all paths.

        Parameters
        ----------
        incidences
            Incidences of charges.

        Returns
        -------
        dict of dict
            By incidence, and by number of a side, the least count, if it is above 0.
        """
        if not self.complete:
            return {each: least_by_side(each, self.side_k) for each in incidences}
        open_is = list[tuple[Incidence, int]]()
        for each in dict.fromkeys(incidences):
            if each not in self._least_counts:
                self._least_counts[each] = least_by_side(each, self.side_k)
                if not isinstance(each, Has):  # one block has the kernel, whatever the path
                    blocks, _ = self.counting.column(each)
                    open_is += [(each, side) for side in np.flatnonzero(np.bincount(self._side_b[blocks])).tolist()]
        while open_is:
            paid = self._paid_together(open_is)
            left = [pair for pair in open_is if paid[pair] > self._least_counts[pair[0]].get(pair[1], 0.0)]
            if len(left) > _MOSTLY * len(open_is):
                break
            open_is = left
        self._count_least(open_is)
        return self._least_counts

    @cached_property
    def _side_b(self) -> Ints:
        """Side of every block."""
        return np.asarray(self.side_k[self.member_bk.argmax(axis=1)])

    def _paid(self, incidence: Incidence, side: int) -> Floats:
        """How often each block of a side pays an incidence; those of other sides do not count."""
        blocks, times = self.counting.column(incidence)
        paid_b = np.zeros(len(self.member_bk))
        paid_b[blocks] = np.where(self._side_b[blocks] == side, times, 0.0)
        return paid_b

    def _paid_together(self, of: Sequence[tuple[Incidence, int]]) -> dict[tuple[Incidence, int], float]:
        """How often blocks pay incidences along a path with the least sum over some incidences and sides."""
        price_b = np.zeros(len(self.member_bk))
        for pair in of:
            price_b += self._paid(*pair)
        on_path = self.block_a[self.shortest(price_b)[1]]
        return {pair: float(self._paid(*pair)[on_path].sum()) for pair in of}

    def _count_least(self, of: Sequence[tuple[Incidence, int]]) -> None:
        """Find the least count of incidences and sides by a shortest path for each."""
        for part in lots(len(of), len(self.member_bk)):
            some = of[part]
            least_v = self.distances(np.stack([self._paid(*pair) for pair in some]))[:, -1]
            for (incidence, side), least in zip(some, least_v.tolist(), strict=True):
                if least > 0:
                    self._least_counts[incidence][side] = least


def lots(vectors: int, size: int, most: int = _LOT) -> list[slice]:
    """Slices of ``vectors`` vectors such that each slice, with ``size`` numbers a vector, has at most ``most`` numbers.

    Examples
    --------
    >>> lots(3, 2_000_000)
    [slice(0, 2, None), slice(2, 4, None)]
    """
    lot = max(most // max(size, 1), 1)
    return [slice(first, first + lot) for first in range(0, vectors, lot)]


def _numbered(count: int, *some: Ints) -> tuple[Ints, Ints]:
    """Which of so many numbers are among some, ascending, and the place there of each of them."""
    among = np.zeros(count, dtype=bool)
    for numbers in some:
        among[numbers] = True
    return np.flatnonzero(among), np.cumsum(among) - 1


def chain_of(arcs: Arcs, partition_k: Ints) -> Arcs:
    """The sub-lattice that has only the blocks of a given partitioning.

    Parameters
    ----------
    arcs : Arcs
        Lattice of the layer.
    partition_k : int array, shape (kernels of the graph,)
        Partition of every kernel.
    """
    numbers = np.unique(partition_k)
    member_bk = np.zeros((len(numbers), arcs.set_jk.shape[1]), dtype=bool)
    member_bk[:, arcs.kernels] = partition_k == numbers[:, None]
    set_jk = np.vstack([np.zeros_like(member_bk[:1]), np.logical_or.accumulate(member_bk)])
    places = np.arange(len(numbers))
    return Arcs(member_bk, set_jk, places, places + 1, places, arcs.apart_k)
