"""Cuts of a topological order into consecutive blocks: fast starts for the exact formulations."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from dfopt.arrays import Bools, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion.blocks import StageTables
from dfopt.fusion.intervals import price_intervals

_LONGEST = 2048  # kernels in a block of a start: longer ones are left to the exact searches


def precedence(tables: StageTables) -> tuple[list[list[int]], list[list[int]]]:
    """Distinct predecessors and successors of every kernel of a stage."""
    sharded = tables.sharded
    n = tables.kernels
    before: list[list[int]] = [[] for _ in range(n)]
    after: list[list[int]] = [[] for _ in range(n)]
    for a, b in sorted(set(zip(sharded.src_t.tolist(), sharded.dst_t.tolist(), strict=True))):
        if a < n and b < n:
            before[b].append(a)
            after[a].append(b)
    return before, after


def topological_orders(tables: StageTables) -> list[Ints]:
    """Several topological orders to cut, forward kernels first: as listed, sinks early, and branch by branch."""
    forward = tables.sharded.forward_k
    before, after = precedence(tables)
    sink = np.array([not heads for heads in after])
    orders: list[Ints] = []
    for order in (
        order_by_rank(before, [(not forward[k], k) for k in range(tables.kernels)]),
        order_by_rank(before, [(not forward[k], not sink[k], k) for k in range(tables.kernels)]),
        _depth_first(before, after, forward),
    ):
        if not any(np.array_equal(order, other) for other in orders):
            orders.append(order)
    return orders


def order_by_rank(before: list[list[int]], rank: Sequence[tuple[Any, ...]]) -> Ints:
    """Topological order that always takes the ready kernel of the lowest rank; ``before`` has predecessors."""
    waiting, ready, order = TopologicalSorter(dict(enumerate(before))), list[int](), list[int]()
    waiting.prepare()
    while waiting:
        ready = sorted([*ready, *waiting.get_ready()], key=lambda k: (rank[k], k), reverse=True)
        order.append(ready.pop())
        waiting.done(order[-1])
    return np.array(order, dtype=np.int64)


def _depth_first(before: list[list[int]], after: list[list[int]], forward: Bools) -> Ints:
    """A kernel right after all it needs, so that a branch is finished before the next is begun."""
    # a pass ends in the kernels that nothing of the same pass needs
    needed = [any(forward[b] == forward[k] for b in heads) for k, heads in enumerate(after)]
    stack = sorted(range(len(after)), key=lambda k: (not forward[k], needed[k], k), reverse=True)
    order = dict[int, None]()
    while stack:
        waits_for = next((b for b in before[stack[-1]] if b not in order), None)
        if waits_for is None:
            order.setdefault(stack.pop())
        else:
            stack.append(waits_for)
    return np.array([*order], dtype=np.int64)


def best_segmentation(
    tables: StageTables, order: Ints, p_max: int, exactly: bool, forward_backward: str, clock: Clock = UNLIMITED
) -> tuple[float, Ints] | None:
    """Cheapest cut of an order into at most (or exactly) ``p_max`` blocks by dynamic programming.

    Parameters
    ----------
    tables : StageTables
        The stage.
    order : int array, shape (kernels,)
        A topological order of its kernels.
    p_max, exactly : int, bool
        Blocks at most, or exactly.
    forward_backward : str
        Rule for passes in partitions.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.

    Returns
    -------
    (s, int array of shape (kernels,)) or None
        Seconds, and the partition of each kernel; None when no cut is legal.
    """
    n = len(order)
    forward = tables.sharded.forward_k[order]
    halves = forward_backward == "halves" and bool(forward.any()) and not forward.all()
    counted = exactly or halves or p_max < n
    layers = p_max if counted else 0
    best = np.full((layers + 1, n + 1), np.inf)
    back = np.full((layers + 1, n + 1), -1, dtype=np.int64)
    best[0, 0] = 0.0
    ahead = np.concatenate([[0], np.cumsum(forward)])
    early = np.arange(layers)[:, None] < p_max // 2  # partitions that may hold no backward kernel
    late = np.arange(layers)[:, None] >= (p_max + 1) // 2  # ... no forward one
    for band in price_intervals(tables, order, forward_backward, _LONGEST, clock):
        for row, seconds in enumerate(band.time):
            if counted:
                clock.check()
            i = band.first + row
            if halves and not exactly:  # a number has a meaning there: a partition may stay empty between two others
                for layer in range(layers):
                    if best[layer, i] < best[layer + 1, i]:
                        best[layer + 1, i], back[layer + 1, i] = best[layer, i], i
            end = i + 1 + np.flatnonzero(np.isfinite(seconds[row:]))
            cost = seconds[end - band.first - 1]
            if not counted:
                total = best[0, i] + cost
                shorter = total < best[0, end]
                best[0, end[shorter]], back[0, end[shorter]] = total[shorter], i
                continue
            totals = best[:-1, i, None] + cost
            if halves:
                some = ahead[end] - ahead[i]
                totals = np.where((late & (some > 0)) | (early & (some < end - i)), np.inf, totals)
            part = best[1:, end]
            less = totals < part
            best[1:, end] = np.where(less, totals, part)
            back[1:, end] = np.where(less, i, back[1:, end])
    layer = layers if exactly else int(np.argmin(best[:, n]))
    if not np.isfinite(best[layer, n]):
        return None
    partition_k = np.empty(n, dtype=np.int64)
    value, at = float(best[layer, n]), n
    cuts: list[tuple[int, Ints]] = []
    while at > 0:
        start = int(back[layer, at])
        if start < at:
            cuts.append((layer - 1, order[start:at]))
        at, layer = start, layer - 1 if counted else 0
    for partition, (number, kernels) in enumerate(reversed(cuts)):
        partition_k[kernels] = number if counted else partition
    return value, partition_k
