"""Blocks that kernels may run in, one after another, and the least sum of their prices: a shortest path over down-sets.

A down-set has all that its kernels read from. Every partitioning of a layer is a chain of down-sets, each of which has
the kernels of one block more than the one before. Kernels that can share no block, not even through others, are bounded
apart: the order between them is left out, which can only lower a bound.

Suffixes: k kernel, b block, j down-set, a arc from one down-set to another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.documents.graph import Graph

_SETS: Final = 1500
"""Down-sets of one component, at most: all pairs of them are looked at."""
_ASKED: Final = 4000
"""Blocks of a component up to which each is asked about; of more none is, and all count as allowed."""
_BITS: Final = 62
"""Kernels of a component, at most: a set of them is a word of 64 bits with a sign, of which one is kept free."""


class TooManyBlocks(ValueError):
    """Raised where kernels can share blocks in more ways than are listed."""


@dataclass(frozen=True, eq=False)
class Component:
    """A connected set of kernels that may share blocks, with all its blocks and down-sets.

    Attributes
    ----------
    kernels : tuple of int
        The kernels, ascending.
    member_bk : bool array, shape (blocks, kernels of the graph)
        Kernels of every block.
    before_a, after_a, block_a : int array, shape (arcs,)
        Down-sets that an arc joins, and its block. Arcs are in the order of ``after_a``, and no arc leads back.
    sets : int
        Number of down-sets: the first is empty, the last has all kernels. 0 where there are too many to list them, and
        the blocks: then nothing is known of these.
    """

    kernels: tuple[int, ...]
    member_bk: Bools
    before_a: Ints
    after_a: Ints
    block_a: Ints
    sets: int
    _patterns: dict[tuple[int, ...], Ints] = field(default_factory=dict, init=False, repr=False)

    @property
    def is_listed(self) -> bool:
        """Whether all blocks are listed."""
        return self.sets > 0

    @cached_property
    def count_b(self) -> Ints:
        """Number of kernels of every block."""
        count_b: Ints = self.member_bk.sum(axis=1)
        return count_b

    def pattern_b(self, kernels: tuple[int, ...]) -> Ints:
        """For each block a bit mask of the given kernels that it holds: bit ``i`` stands for ``kernels[i]``."""
        if kernels not in self._patterns:
            self._patterns[kernels] = self.member_bk[:, list(kernels)] @ (1 << np.arange(len(kernels)))
        return self._patterns[kernels]

    def least(self, price_b: Floats) -> float:
        """Least total price of a partitioning: blocks that together have every kernel once.

        Parameters
        ----------
        price_b : float array, shape (blocks,), s
            Infinite where a block cannot be.
        """
        return float(self.distances(price_b)[-1])

    def distances(self, price_b: Floats) -> Floats:
        """Shortest-path distances, s, from the empty down-set to each one.

        Parameters
        ----------
        price_b : float array, shape (..., blocks), s
            Infinite where a block cannot be.

        Returns
        -------
        float array, shape (..., down-sets), s
        """
        distance_j, price_a = np.full((*price_b.shape[:-1], self.sets), np.inf), price_b[..., self.block_a]
        distance_j[..., 0] = 0.0
        for arcs, begin_j, after_j in self._levels:
            through = distance_j[..., self.before_a[arcs]] + price_a[..., arcs]
            distance_j[..., after_j] = np.minimum.reduceat(through, begin_j, axis=-1)
        return distance_j

    @cached_property
    def _levels(self) -> list[tuple[slice, Ints, Ints]]:
        """Arcs into down-sets none of which leads to another, where those into each begin, and these down-sets."""
        after_j, begin_j = np.unique(self.after_a, return_index=True)
        last_j = np.maximum.reduceat(self.before_a, begin_j).tolist() if len(begin_j) else []
        firsts = [0]
        for place, last in enumerate(last_j):
            if last >= after_j[firsts[-1]]:
                firsts.append(place)
        ends = [*begin_j.tolist(), len(self.after_a)]
        return [
            (slice(ends[first], ends[end]), begin_j[first:end] - ends[first], after_j[first:end])
            for first, end in pairwise([*firsts, len(after_j)])
            if first < end
        ]

    @cached_property
    def _backwards(self) -> Component:
        """The same from the last down-set to the first."""
        order_a, last = np.argsort(-self.before_a, kind="stable"), self.sets - 1
        arcs = last - self.after_a[order_a], last - self.before_a[order_a], self.block_a[order_a]
        return Component(self.kernels, self.member_bk, *arcs, self.sets)

    def shortest(self, price_b: Floats) -> list[list[int]]:
        """Kernels of each block on the cheapest partitioning, whose total price must be finite."""
        distance_j, blocks, j = self.distances(price_b), list[list[int]](), self.sets - 1
        through_a = distance_j[self.before_a] + price_b[self.block_a]
        while j:
            into_j = np.flatnonzero(self.after_a == j)
            a = into_j[through_a[into_j].argmin()]
            blocks.append(np.flatnonzero(self.member_bk[self.block_a[a]]).tolist())
            j = int(self.before_a[a])
        return blocks

    def within(self, price_b: Floats, most: float) -> Component:
        """The component with only those blocks that some partitioning cheaper than ``most`` uses.

        Parameters
        ----------
        price_b : float array, shape (blocks,), s
            Price of every block.
        most : float, s
            Upper limit of the total, above the least total.
        """
        behind_j = self._backwards.distances(price_b)[::-1]
        left_a = self.distances(price_b)[self.before_a] + price_b[self.block_a] + behind_j[self.after_a] < most
        if left_a.all():
            return self
        sets, ends = np.unique([self.before_a[left_a], self.after_a[left_a]], return_inverse=True)
        before_a, after_a = ends.reshape(2, -1)
        blocks, block_a = np.unique(self.block_a[left_a], return_inverse=True)
        return Component(self.kernels, self.member_bk[blocks], before_a, after_a, block_a, len(sets))

    def with_each(self, kernel: int) -> list[Component]:
        """Branch on a kernel: for each block with it, the component without other blocks that overlap that block."""
        return [self._with(b) for b in np.flatnonzero(self.member_bk[:, kernel]).tolist()]

    def _with(self, b: int) -> Component:
        left_b: Bools = np.asarray(~self.member_bk[:, self.member_bk[b]].any(axis=1))
        left_b[b] = True
        left_a = left_b[self.block_a]
        block_a = (np.cumsum(left_b) - 1)[self.block_a[left_a]]
        arcs = self.before_a[left_a], self.after_a[left_a], block_a
        return Component(self.kernels, self.member_bk[left_b], *arcs, self.sets)

    @cached_property
    def parts(self) -> list[Component]:
        """The connected sub-components: kernels that share blocks directly or through others, blocks in any order."""
        member_bk = self.member_bk[:, self.kernels].astype(np.float32)
        shared_kk = (member_bk.T @ member_bk > 0) | np.eye(len(self.kernels), dtype=bool)
        part_k, before_k = np.array(self.kernels), np.zeros(0, dtype=np.int64)
        while not np.array_equal(part_k, before_k):  # the first kernel that is shared with, be it through others
            before_k, part_k = part_k, np.where(shared_kk, part_k, self.kernels[-1]).min(axis=1)
        each = [tuple(np.array(self.kernels)[part_k == part].tolist()) for part in np.unique(part_k).tolist()]
        if len(each) == 1 or not self.is_listed:
            return [self]
        none = np.zeros(0, dtype=np.int64)
        return [Component(few, self.member_bk[self.member_bk[:, few].any(axis=1)], none, none, none, 1) for few in each]


def components_of(
    graph: Graph, allowed: Callable[[Sequence[int]], bool], group_k: Sequence[Hashable] | None = None
) -> list[Component]:
    """Components of a graph: sets of kernels that may share blocks, each with its blocks.

    Parameters
    ----------
    graph : Graph
        Its tensors order the kernels.
    allowed : callable
        Whether some kernels may be a block. Where two may, and either with a third, all three are in one part.
    group_k : sequence, optional
        Group of every kernel; the parts of a group are put in one order, unless there are too many down-sets. Left out:
        all kernels are one group.
    """
    count = len(graph.kernels)
    part_k = list(range(count))
    for k in range(count):
        for other in range(k):
            if part_k[k] != part_k[other] and allowed((other, k)):
                gone, stays = part_k[k], part_k[other]
                part_k = [stays if part == gone else part for part in part_k]
    before, components = _before(graph), list[Component]()
    together: dict[Hashable, list[list[int]]] = {}
    for part in sorted(set(part_k)):
        kernels = [k for k in range(count) if part_k[k] == part]
        groups = {None if group_k is None else group_k[k] for k in kernels}
        together.setdefault(groups.pop() if len(groups) == 1 else ("several", part), []).append(kernels)
    for parts in together.values():
        several = [kernels for kernels in parts if len(kernels) > 1]
        components += [_component([kernels], before, count, allowed) for kernels in parts if len(kernels) == 1]
        try:
            components += [_component(several, before, count, allowed)] if several else []
        except TooManyBlocks:
            components += [_alone(kernels, before, count, allowed) for kernels in several]
    return components


def _alone(
    kernels: Sequence[int], before: Sequence[int], count: int, allowed: Callable[[Sequence[int]], bool]
) -> Component:
    """A part by itself, with its blocks unless there are too many."""
    try:
        return _component([kernels], before, count, allowed)
    except TooManyBlocks:
        none = np.zeros(0, dtype=np.int64)
        return Component(tuple(kernels), np.zeros((0, count), dtype=bool), none, none, none, 0)


def _before(graph: Graph) -> list[int]:
    """By kernel the kernels that run before it or with it, as bits."""
    index = graph.index()
    direct = [0] * len(graph.kernels)
    for tensor in graph.tensors:
        direct[index[tensor.dst]] |= 1 << index[tensor.src]
    bits_k = list(direct)
    for _ in direct:  # as often as a chain may be long
        longer = [_union(of, bits_k) for of in bits_k]
        if longer == bits_k:
            break
        bits_k = longer
    return bits_k


def _union(bits: int, before: Sequence[int]) -> int:
    together = bits
    for k, of in enumerate(before):
        if bits >> k & 1:
            together |= of
    return together


def _component(
    parts: Sequence[Sequence[int]], before: Sequence[int], count: int, allowed: Callable[[Sequence[int]], bool]
) -> Component:
    """Some parts with the blocks of each, in one order."""
    kernels = sorted(k for part in parts for k in part)
    member_bk = np.concatenate([_blocks(part, before, count, allowed) for part in parts])
    set_j = _down_sets(kernels, before)
    bits_b = member_bk[:, kernels] @ (1 << np.arange(len(kernels)))
    order_b = np.argsort(bits_b)
    arcs = list[Ints]()
    for j in range(1, len(set_j)):
        before_a = np.flatnonzero(set_j[:j] & ~set_j[j] == 0)
        joins_a = set_j[before_a] ^ set_j[j]
        place_a = np.minimum(np.searchsorted(bits_b, joins_a, sorter=order_b), len(bits_b) - 1)
        there = bits_b[order_b[place_a]] == joins_a
        arcs.append(np.stack([before_a[there], np.full(int(there.sum()), j), order_b[place_a[there]]]))
    before_a, after_a, block_a = np.concatenate(arcs, axis=1)
    return Component(tuple(kernels), member_bk, before_a, after_a, block_a, len(set_j))


def _blocks(
    kernels: Sequence[int], before: Sequence[int], count: int, allowed: Callable[[Sequence[int]], bool]
) -> Bools:
    """All blocks of kernels that may share some: shape (blocks, kernels of the graph)."""
    set_j = _down_sets(kernels, before)
    members_j = [set_j[j] & ~set_j[:j][set_j[:j] & ~set_j[j] == 0] for j in range(1, len(set_j))]
    member_b = np.unique(np.concatenate(members_j))
    member_bk = np.zeros((len(member_b), count), dtype=bool)
    member_bk[:, list(kernels)] = member_b[:, None] >> np.arange(len(kernels)) & 1
    if len(member_b) > _ASKED:
        return member_bk
    each_b = (tuple(np.flatnonzero(row).tolist()) for row in member_bk)
    return member_bk[[_is_convex(few, before) and allowed(few) for few in each_b]]


def _is_convex(kernels: Sequence[int], before: Sequence[int]) -> bool:
    """Whether no other kernel has to run behind one of these and before another."""
    bits = sum(1 << k for k in kernels)
    ahead = 0
    for k in kernels:
        ahead |= before[k]
    ahead &= ~bits
    return not any(ahead >> k & 1 and of & bits for k, of in enumerate(before))


def _down_sets(kernels: Sequence[int], before: Sequence[int]) -> Ints:
    """All down-sets of some kernels as bits of these, small ones first."""
    if len(kernels) > _BITS:
        raise TooManyBlocks(f"{len(kernels)} kernels may share blocks")
    place = {k: number for number, k in enumerate(kernels)}
    need = [sum(1 << place[other] for other in kernels if before[k] >> other & 1) for k in kernels]
    sets, level = [0], {0}
    while level:
        level = {of | 1 << k for of in level for k, needed in enumerate(need) if not of >> k & 1 and needed & ~of == 0}
        sets += sorted(level)
        if len(sets) > _SETS:
            raise TooManyBlocks(f"{len(need)} kernels have more than {_SETS} down-sets")
    return np.array(sets, dtype=np.int64)
