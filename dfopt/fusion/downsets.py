"""The down-sets of a stage: sets of kernels that hold every predecessor of their kernels.

Partitions that run one after another visit down-sets ``{} = I_0 < I_1 < ... < I_P = all``. Layer graphs are
nearly chains and have few: 26 for a GPT layer forward, 2401 for 96 of them drawn one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import Bools, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.segments import order_by_rank, precedence

_LEVEL, _SETS = 10.0, 10  # units of work of one size of down-sets, and down-sets listed in a further one


class Steps(NamedTuple):
    """All arcs between down-sets that are a block of a library, sorted by the down-set before, then after.

    ``member``: the blocks, each once, as rows of kernels.
    """

    before: Ints
    after: Ints
    block: Ints
    member: Bools

    def of(self, before: Ints, after: Ints) -> Ints:
        """Indices in ``member`` of the blocks that lead from some down-sets to others: int array, shape (arcs,)."""
        count = int(self.after.max(initial=0)) + 1
        return self.block[np.searchsorted(self.before * count + self.after, before * count + after)]


@dataclass(frozen=True)
class Lattice:
    """Down-sets of a stage as rows of a membership matrix, by size; the first is empty, the last is complete."""

    member: Bools
    size: Ints
    _steps: dict[tuple[bytes, ...], Steps] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """Rows of ``member`` packed as bits: shape (down-sets, words)."""
        bits = np.packbits(self.member, axis=1)
        padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : bits.shape[1]] = bits
        return padded.view(np.uint64)

    def larger(self, some: Ints, first: int, end: int) -> tuple[Ints, Ints]:
        """Pairs (down-set, proper superset) of some down-sets, with supersets numbered ``first`` to ``end - 1``.

        Parameters
        ----------
        some : int array
            Numbers of the down-sets.
        first, end : int
            Range of the supersets.
        """
        inside: Bools = self.size[some][:, None] < self.size[None, first:end]
        for word in self.words.T:
            inside &= (word[some][:, None] & ~word[None, first:end]) == 0
        row, column = np.nonzero(inside)
        return some[row], column + first

    def smaller(self, some: Ints) -> tuple[Ints, Ints]:
        """Pairs (subset, down-set) of the proper subsets of some down-sets, sorted by the down-set."""
        end = int(some.max(initial=0))
        inside: Bools = self.size[:end] < self.size[some][:, None]
        for word in self.words.T:
            inside &= (word[:end] & ~word[some][:, None]) == 0
        row, column = np.nonzero(inside)
        return column, some[row]

    def steps(self, tables: StageTables, clock: Clock = UNLIMITED) -> Steps:
        """Arcs that a chip with a fusion library may use: few of all pairs of down-sets differ by one of its blocks.

        They depend on tensors and sets of kernels only, not on costs, and are cached by these.

        Raises
        ------
        OutOfTime
        """
        sharded = tables.sharded
        key = tuple(part.tobytes() for part in (sharded.sets_k, sharded.src_t, sharded.dst_t))
        if key not in self._steps:
            self._steps[key] = _steps(self, tables, clock)
        return self._steps[key]


def down_sets(
    tables: StageTables,
    forward_backward: str,
    budget: int,
    clock: Clock = UNLIMITED,
    order: Ints | None = None,
    skipped: int | None = None,
) -> Lattice | None:
    """Enumerate the down-sets of a stage, or None when there are more than ``budget``, or too many for the clock.

    Each set is made once, by adding its kernels in a topological order: any kernel after the last one may come next.
    Under ``forward_backward: separate`` every forward kernel precedes every other one, as the rule requires, which
    keeps the lattice small.

    Parameters
    ----------
    tables, forward_backward : StageTables, str
        The stage, and how passes share partitions.
    budget : int
        Largest number of down-sets.
    clock : Clock, optional
        Until when.
    order : int array, optional
        A topological order, forward kernels first.
    skipped : int, optional
        Only sets that are prefixes of the order except for at most this number of missing kernels.
    """
    n, forward = tables.kernels, tables.sharded.forward_k
    before, after = precedence(tables)
    if order is None:
        order = order_by_rank(before, [(not forward[k], k) for k in range(n)])
    most = n if skipped is None else skipped
    place = np.argsort(order)
    followers = [place[after[k]] for k in order.tolist()]
    waits = np.array([len(before[k]) for k in order.tolist()], dtype=np.int32)
    ahead = int(forward.sum())
    barrier = forward_backward == "separate" and 0 < ahead < n
    if barrier:  # one more predecessor: the whole forward pass
        waits[ahead:] += 1
    member, wait, last = np.zeros((1, n), dtype=bool), waits[None, :], np.array([-1])
    levels, count, label = [member], 1, np.arange(n)
    for size in range(1, n + 1):
        parent, last = np.nonzero((wait == 0) & (label > last[:, None]) & (label < size + most))
        count += len(parent)
        clock.charge(_LEVEL + len(parent) / _SETS)
        if count > budget or clock.over:
            return None
        member, wait = member[parent], wait[parent]
        rows = np.arange(len(parent))
        member[rows, last] = True
        for k in np.flatnonzero(np.bincount(last)).tolist():
            extended = rows[last == k]
            for b in followers[k].tolist():
                wait[extended, b] -= 1
        if barrier and size == ahead:
            wait[:, ahead:] -= 1
        levels.append(member)
    everything = np.concatenate(levels)[:, place]
    return Lattice(everything, everything.sum(axis=1).astype(np.int64))


def near_orders(tables: StageTables, forward_backward: str, orders: Sequence[Ints], budget: int) -> Lattice:
    """Down-sets near the prefixes of some topological orders, about ``budget`` in number, where all are too many.

    Each skips the same number of kernels of its order, the fewest that reach the budget, see :func:`down_sets`.

    Parameters
    ----------
    tables, forward_backward
        See :func:`down_sets`.
    orders : sequence of int array
        Topological orders of the kernels.
    budget : int
        Approximate number of down-sets.
    """
    most, member = max(budget, tables.kernels + 1), np.zeros((0, tables.kernels), dtype=bool)
    for skipped in range(tables.kernels):
        near = [down_sets(tables, forward_backward, most, order=order, skipped=skipped) for order in orders]
        larger = np.unique(np.concatenate([member, *(each.member for each in near if each is not None)]), axis=0)
        if len(larger) == len(member) or (skipped and len(larger) > budget):
            break
        member = larger
    member = member[np.argsort(member.sum(axis=1), kind="stable")]
    return Lattice(member, member.sum(axis=1).astype(np.int64))


def one_by_one(order: Ints) -> Lattice:
    """The chain of down-sets that a topological order visits one kernel at a time."""
    member = np.zeros((len(order) + 1, len(order)), dtype=bool)
    member[:, order] = np.tri(len(order) + 1, len(order), -1, dtype=bool)
    return Lattice(member, np.arange(len(order) + 1))


def _steps(lattice: Lattice, tables: StageTables, clock: Clock) -> Steps:
    """Every block behind every down-set that has what it needs and nothing of it, if the lattice has what results."""
    count, rows = tables.kernels, {row.tobytes(): number for number, row in enumerate(lattice.words)}
    before_k, _ = precedence(tables)
    blocks = [np.array([k]) for k in range(count)] + library.several(tables.sharded, clock)
    steps = list[tuple[Ints, Ints, Ints]]()
    member = np.zeros((len(blocks), count), dtype=bool)
    for b, kernels in enumerate(blocks):
        member[b, kernels] = True
        needed = sorted(set[int]().union(*(before_k[k] for k in kernels.tolist())) - {*kernels.tolist()})
        open_ = ~lattice.member[:, kernels].any(axis=1) & lattice.member[:, needed].all(axis=1)
        before = np.flatnonzero(open_)
        reached = Lattice(lattice.member[before] | member[b], lattice.size[before]).words
        after = np.array([rows.get(row.tobytes(), -1) for row in reached], dtype=np.int64)
        kept = after >= 0
        steps.append((before[kept], after[kept], np.full(int(kept.sum()), b)))
    before, after, block = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.lexsort((after, before))
    return Steps(before[order], after[order], block[order], member)
