"""Price every interval of a topological order at once: all blocks ``order[i:j]`` of bounded length.

What an interval stores, reads and buffers is a sum of rectangles in the plane of (start, end), one or
two per tensor, so all prices of ``n`` kernels and ``T`` tensors cost ``n * longest + T`` instead of a
membership matrix. Same prices as :func:`dfopt.fusion.blocks.price_blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dfopt.fusion.blocks import CROSSING_TILES, StageTables, Terms3, combine, keeps_chip, least_latency
from dfopt.fusion.clock import look
from dfopt.setting.tables import Bools, Floats, Ints

_ROWS = 512  # starts priced together: a few arrays of _ROWS x (_ROWS + longest)


@dataclass(frozen=True)
class Band:
    """Seconds of the blocks ``order[i:j]``, inf if illegal: ``time[r, c]`` for i = first + r and j = first + 1 + c."""

    first: int
    time: Floats


class Rectangles:
    """What the tensors add to an interval: sums over rectangles of (start, end), from an order."""

    def __init__(self, tables: StageTables, order: Ints) -> None:
        sharded, n = tables.sharded, tables.kernels
        place = np.full(n + 1, n, dtype=np.int64)
        place[order] = np.arange(n)
        groups = len(tables.bytes_g)
        src_g = np.where(tables.src_g < n, place[tables.src_g], -1)
        by_place = np.lexsort((place[sharded.dst_t], sharded.group_t))
        g, d = sharded.group_t[by_place], place[sharded.dst_t][by_place]
        depth = sharded.depth_t[by_place]
        fresh = np.concatenate([[True], g[1:] != g[:-1]]) if len(g) else np.zeros(0, dtype=bool)
        last = np.full(groups, -1, dtype=np.int64)
        np.maximum.at(last, g, d)
        # stored: starts up to the source, ends behind the source but not behind the last consumer
        own = src_g >= 0
        stored = (np.zeros(int(own.sum()), dtype=np.int64), src_g[own], src_g[own] + 1, last[own])
        # read: by the first consumer at or behind the start
        inside = d < n
        before = np.where(fresh, -1, np.concatenate([[-1], d[:-1]])) if len(d) else d
        low = np.maximum(src_g[g], before) + 1
        end = np.full(int(inside.sum()), n, dtype=np.int64)
        read = (low[inside], d[inside], d[inside] + 1, end)
        self._moved = [np.concatenate(pair) for pair in zip(stored, read, strict=True)]
        owner = np.concatenate([np.flatnonzero(own), g[inside]])
        self._bytes, self._tile = tables.bytes_g[owner], tables.tile_g[owner]
        # buffered between fused kernels: as deep as the deepest consumer inside needs
        deepest = _running_max(depth, fresh)
        more = deepest - np.where(fresh, 0.0, np.concatenate([[0.0], deepest[:-1]])) if len(g) else depth
        both = inside & (src_g[g] >= 0)
        zero, whole = np.zeros(int(both.sum()), dtype=np.int64), np.full(int(both.sum()), n, dtype=np.int64)
        self._kept = [zero, src_g[g][both], d[both] + 1, whole]
        self._depth = (more * tables.tile_g[g])[both] if len(g) else np.zeros(0)

    def traffic_and_buffers(self, first: int, rows: int, columns: int) -> tuple[Floats, Floats]:
        """DRAM bytes and SRAM buffer bytes of the intervals of one band."""
        window = (first, rows, columns)
        traffic = _filled(self._moved, self._bytes, *window)
        tiles = _filled(self._moved, self._tile, *window)
        return traffic, CROSSING_TILES * tiles + _filled(self._kept, self._depth, *window)


def _running_max(values: Floats, fresh: Bools) -> Floats:
    """Running maximum that starts anew where ``fresh``."""
    found = values.copy()
    for t in range(1, len(found)):
        if not fresh[t] and found[t - 1] > found[t]:
            found[t] = found[t - 1]
    return found


def _filled(rectangles: list[Ints], weight: Floats, first: int, rows: int, columns: int) -> Floats:
    """Sum of weighted rectangles (start low, start high, end low, end high; inclusive) over one band."""
    top, bottom, left, right = rectangles
    top, bottom = np.clip(top - first, 0, rows), np.clip(bottom - first + 1, 0, rows)
    left, right = np.clip(left - first - 1, 0, columns), np.clip(right - first, 0, columns)
    some = (top < bottom) & (left < right)
    corner = np.zeros((rows + 1, columns + 1))
    for row, column, sign in ((top, left, 1.0), (bottom, left, -1.0), (top, right, -1.0), (bottom, right, 1.0)):
        np.add.at(corner, (row[some], column[some]), sign * weight[some])
    np.cumsum(corner, axis=0, out=corner)
    np.cumsum(corner, axis=1, out=corner)
    return corner[:rows, :columns]


def price_intervals(
    tables: StageTables, order: Ints, forward_backward: str, longest: int, deadline: float = np.inf
) -> Iterator[Band]:
    """Price all blocks of consecutive kernels of an order, at most ``longest`` of them, band by band.

    Parameters
    ----------
    tables : StageTables
        The stage.
    order : int array
        A topological order of its kernels.
    forward_backward : str
        Under ``separate`` blocks that mix passes are illegal.
    longest : int
        Kernels in a block at most.
    deadline : float
        Of ``time.perf_counter``; past it the pricing is given up (:class:`OutOfTime`).

    Yields
    ------
    Band
        Seconds of the intervals, by start.
    """
    sharded, chip, n = tables.sharded, tables.chip, tables.kernels
    longest = min(longest, n, chip.tiles if chip.fused else 1)
    rectangles, separate = Rectangles(tables, order), forward_backward == "separate"

    def prefix(per_k: Floats | Ints | Bools) -> Floats:
        return np.concatenate([[0.0], np.cumsum(per_k[order].astype(np.float64))])

    compute, memory, network = prefix(tables.compute_k), prefix(tables.mem_k), prefix(sharded.net_k)
    sram, tiled, ahead = prefix(tables.sram_k), prefix(tables.parts_k > 1), prefix(sharded.forward_k)
    needed = np.cumsum(np.pad(tables.tiles_kl[order] if sharded.menus else tables.tiles_kl, ((1, 0), (0, 0))), axis=0)
    for first in range(0, n, _ROWS):
        look(deadline)
        rows = min(_ROWS, n - first)
        columns = min(rows - 1 + longest, n - first)
        i = first + np.arange(rows)[:, None]
        j = first + 1 + np.arange(columns)[None, :]
        length = j - i
        traffic, buffers = rectangles.traffic_and_buffers(first, rows, columns)
        held = buffers + sram[j] - sram[i]
        legal = (length >= 1) & (length <= longest)
        legal &= keeps_chip(chip, length, tiled[j] - tiled[i], held, ahead[j] - ahead[i] if separate else None)
        work = compute[j] - compute[i]
        if sharded.menus:
            work = np.full(length.shape, np.inf)
            row, column = np.nonzero(legal)
            work[row, column] = _paces(tables, needed, row + first, column + first + 1)
        moved = (traffic + memory[j] - memory[i]) / chip.dram_bandwidth
        time = combine(Terms3(work, moved, network[j] - network[i]), chip)
        yield Band(first, np.where(legal, time, np.inf))


def _paces(tables: StageTables, needed: Ints, i: Ints, j: Ints) -> Floats:
    """Least latency that the kernels of each interval can all reach with the tiles there are; inf if none."""
    latency, fits = least_latency(tables, lambda level: needed[j, level] - needed[i, level], len(i))
    return np.where(fits, latency, np.inf)
