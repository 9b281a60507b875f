"""Blocks on a chip that runs a library's kernels: one kernel alone, or several that one of the library does at once.

Those lie in one set (:mod:`dfopt.physics.library`), and tensors join them. Suffixes: k kernel, s set, b block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.terms.sharded_graph import ShardedGraph

_GROWN: Final = 10.0  # units of work of looking for all kernels that a block can grow by


def largest(sharded: ShardedGraph) -> int:
    """Number of kernels in the largest block that the library fuses."""
    return int(sharded.sets_k.sum(axis=0).max(initial=1))


def in_one_set(sets_k: Bools, member: Bools) -> Bools:
    """Mask of the blocks whose kernels are all in one set of the library, or that hold at most one kernel."""
    count = member.sum(axis=1)
    inside_bs = member.astype(np.int64) @ sets_k
    return np.asarray((count <= 1) | (inside_bs == count[:, None]).any(axis=1))


def allowed(sharded: ShardedGraph, member: Bools) -> Bools:
    """Mask of the blocks that the library has a single fused kernel for: bool array, shape (blocks,)."""
    legal = in_one_set(sharded.sets_k, member)
    more = np.flatnonzero(legal & (member.sum(axis=1) > 1))
    inside = np.pad(member[more].T, ((0, 1), (0, 0)))  # the last is the virtual kernel
    reached = np.zeros_like(inside)
    reached[np.argmax(inside, axis=0), np.arange(len(more))] = True
    both, before = inside[sharded.src_t] & inside[sharded.dst_t], -1
    while before != (before := int(reached.sum())):
        for tail, head in ((sharded.src_t, sharded.dst_t), (sharded.dst_t, sharded.src_t)):
            np.logical_or.at(reached, head, both & reached[tail])
    legal[more] = (reached == inside).all(axis=0)
    return legal


def several(sharded: ShardedGraph, clock: Clock = UNLIMITED) -> list[Ints]:
    """All convex blocks of more than one kernel that the library fuses; raises `OutOfTime` when the clock is over."""
    return convex(sharded.src_t, sharded.dst_t, sharded.sets_k, clock)


def convex(src_t: Ints, dst_t: Ints, sets_k: Bools, clock: Clock = UNLIMITED) -> list[Ints]:
    """All convex connected blocks of more than one kernel within one set of the library.

    Kernels are added one by one: a block that tensors join is one still without a first or a last of its kernels.

    Parameters
    ----------
    src_t, dst_t : int array, shape (tensors,)
        Kernels at both ends of each tensor; from ``len(sets_k)`` on: outside.
    sets_k : bool array, shape (kernels, sets)
        Sets of each kernel.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.
    """
    n = len(sets_k)
    reach, near = np.eye(n, dtype=bool), [set[int]() for _ in range(n)]
    for a, b in zip(src_t.tolist(), dst_t.tolist(), strict=True):
        if max(a, b) < n:
            reach[a, b] = True
            near[a].add(b)
            near[b].add(a)
    for k in range(n):
        clock.check()
        reach |= reach[:, k : k + 1] & reach[k]

    def grown(block: frozenset[int]) -> Iterator[frozenset[int]]:
        for k in set[int]().union(*(near[member] for member in block)) - block:
            larger = sorted(block | {k})
            between = reach[larger].any(axis=0) & reach[:, larger].any(axis=1)
            if between.sum() == len(larger) and sets_k[larger].all(axis=0).any():
                yield frozenset(larger)

    blocks: dict[frozenset[int], None] = {}
    last = [frozenset([k]) for k in range(n) if near[k]]
    while last:
        clock.check(_GROWN * len(last))
        last = [larger for larger in dict.fromkeys(g for block in last for g in grown(block)) if larger not in blocks]
        blocks |= dict.fromkeys(last)
    return [np.array(sorted(block), dtype=np.int64) for block in blocks]
