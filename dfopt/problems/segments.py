"""Cuts of a topological order into consecutive blocks: fast starts for the exact formulations."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from dfopt.problems.blocks import StageTables, price_blocks

Ints = NDArray[np.int64]
# Blocks longer than this are not priced for a start on large graphs: n * longest rows of n bools.
_LONGEST = 160


def topological_orders(tables: StageTables) -> list[Ints]:
    """Orders to cut: forward kernels first; sinks such as weight updates as listed, or as early as they can."""
    sharded = tables.sharded
    n = len(sharded.names)
    own = (sharded.src_t < n) & (sharded.dst_t < n)
    after: list[list[int]] = [[] for _ in range(n)]
    waiting = np.zeros(n, dtype=np.int64)
    for a, b in {(int(a), int(b)) for a, b in zip(sharded.src_t[own], sharded.dst_t[own], strict=True)}:
        after[a].append(b)
        waiting[b] += 1
    sink = np.array([not after[k] for k in range(n)])
    listed = np.arange(n)
    found = []
    for eager in (False, True):
        rank = [(not sharded.forward_k[k], not (eager and sink[k]), int(listed[k])) for k in range(n)]
        left = waiting.copy()
        ready = [(rank[k], k) for k in range(n) if left[k] == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            _, k = heapq.heappop(ready)
            order.append(k)
            for b in after[k]:
                left[b] -= 1
                if left[b] == 0:
                    heapq.heappush(ready, (rank[b], b))
        found.append(np.array(order, dtype=np.int64))
    return found if not np.array_equal(found[0], found[1]) else found[:1]


def best_segmentation(
    tables: StageTables, order: Ints, p_max: int, exactly: bool, forward_backward: str
) -> tuple[float, Ints] | None:
    """Cheapest cut of an order into at most (or exactly) ``p_max`` blocks by dynamic programming.

    Returns
    -------
    (seconds, partition of each kernel) or None
        None when no cut is legal.
    """
    n = len(order)
    longest = min(n, _LONGEST)
    starts, lengths = [], []
    for i in range(n):
        for j in range(i + 1, min(i + longest, n) + 1):
            starts.append(i)
            lengths.append(j)
    first, last = np.array(starts), np.array(lengths)
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    member = (position[None, :] >= first[:, None]) & (position[None, :] < last[:, None])
    prices = price_blocks(tables, member)
    forward = tables.sharded.forward_k
    cost = np.where(prices.legal, prices.time, np.inf)
    has_forward = np.asarray((member & forward).any(axis=1))
    has_backward = np.asarray((member & ~forward).any(axis=1))
    if forward_backward == "separate":
        cost = np.where(has_forward & has_backward, np.inf, cost)
    halves = forward_backward == "halves" and forward.any() and not forward.all()
    by_end: list[list[int]] = [[] for _ in range(n + 1)]
    for found in np.flatnonzero(np.isfinite(cost)):
        by_end[int(last[found])].append(int(found))
    counted = exactly or halves or p_max < n
    layers = p_max if counted else 1
    best = np.full((layers + 1, n + 1), np.inf)
    back = np.full((layers + 1, n + 1), -1, dtype=np.int64)
    best[0, 0] = 0.0
    for end in range(1, n + 1):
        rows = np.array(by_end[end], dtype=np.int64)
        if not len(rows):
            continue
        if not counted:
            total = np.where(first[rows] == 0, 0.0, best[1, first[rows]]) + cost[rows]
            pick = int(np.argmin(total))
            best[1, end], back[1, end] = total[pick], rows[pick]
            continue
        for count in range(1, layers + 1):
            total = best[count - 1, first[rows]] + cost[rows]
            if halves:  # partition count-1 may hold forward kernels below the middle, backward above
                total = np.where(has_forward[rows] & (count - 1 >= (p_max + 1) // 2), np.inf, total)
                total = np.where(has_backward[rows] & (count - 1 < p_max // 2), np.inf, total)
            pick = int(np.argmin(total))
            if total[pick] < best[count, end]:
                best[count, end], back[count, end] = total[pick], rows[pick]
    counts = [layers] if exactly else list(range(1, layers + 1))
    count = min(counts, key=lambda c: best[c, n])
    if not np.isfinite(best[count, n]):
        return None
    cuts, end, level = [], n, count
    while end > 0:
        row = int(back[level, end])
        cuts.append((int(first[row]), end))
        end = int(first[row])
        level -= 1 if counted else 0
    partition_k = np.empty(n, dtype=np.int64)
    for partition, (a, b) in enumerate(reversed(cuts)):
        partition_k[order[a:b]] = partition
    return float(best[count, n]), partition_k
