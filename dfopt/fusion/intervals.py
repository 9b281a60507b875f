"""Price every interval of a topological order at once: all blocks ``order[i:j]`` of bounded length.

What an interval stores, reads, buffers and pays as tolls is a sum of rectangles in the plane of (start, end), one or
two per tensor, so all prices of ``n`` kernels and ``T`` tensors cost ``n * longest + T`` instead of a
membership matrix. Same prices as :func:`dfopt.fusion.blocks.price_blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock
from dfopt.fusion import library
from dfopt.fusion.blocks import StageTables, latency_by, price_blocks
from dfopt.terms.chip import CROSSING_TILES, combine
from dfopt.terms.sram import keeps_chip

_ROWS = 512  # starts priced together: a few arrays of _ROWS x (_ROWS + longest)
_BAND, _PRICED = 10.0, 20  # units of work of a band of intervals, and intervals priced in a further one
_ROW: Final = 50.0  # units of work of one start of blocks that a kernel's tiles decide


@dataclass(frozen=True)
class Band:
    """Prices of intervals of an order: ``time[r, c]`` is the seconds of ``order[i:j]``, inf if illegal.

    Here ``i = first + r`` and ``j = first + 1 + c``.
    """

    first: int
    time: Floats


@dataclass(frozen=True)
class _Rectangles:
    """What tensors and tolls add to intervals: starts and ends (low, high, both included), and their figures.

    ``sides``: int array, shape (4, rectangles). ``figures``: float array, shape (3, rectangles): DRAM bytes, bytes of
    SRAM, and seconds of tolls.
    """

    sides: Ints
    figures: Floats

    @classmethod
    def of(cls, parts: Sequence[tuple[Ints | Floats | int | float, ...]]) -> _Rectangles:
        """Those of some parts: the four sides of each rectangle, and its three figures."""
        rows = np.concatenate([np.stack(np.broadcast_arrays(*part)) for part in parts], axis=1)
        return cls(rows[:4].astype(np.int64), rows[4:].astype(np.float64))

    def band(self, first: int, rows: int, columns: int) -> list[Floats]:
        """The figures of the intervals of one band."""
        top, bottom, left, right = self.sides
        top, bottom = np.clip(top - first, 0, rows), np.clip(bottom - first + 1, 0, rows)
        left, right = np.clip(left - first - 1, 0, columns), np.clip(right - first, 0, columns)
        some = (top < bottom) & (left < right)
        matrices = []
        for weight in self.figures:
            corner = np.zeros((rows + 1, columns + 1))
            for row, column, sign in ((top, left, 1.0), (bottom, left, -1.0), (top, right, -1.0), (bottom, right, 1.0)):
                np.add.at(corner, (row[some], column[some]), sign * weight[some])
            np.cumsum(corner, axis=0, out=corner)
            np.cumsum(corner, axis=1, out=corner)
            matrices.append(corner[:rows, :columns])
        return matrices


def _rectangles(tables: StageTables, order: Ints) -> _Rectangles:
    sharded, n = tables.sharded, tables.kernels
    place = np.append(np.argsort(order), n)
    src_g = np.where(tables.src_g < n, place[tables.src_g], -1)
    by_place = np.lexsort((place[sharded.dst_t], sharded.group_t))
    g, d = sharded.group_t[by_place], place[sharded.dst_t][by_place]
    fresh = np.append(True, g[1:] != g[:-1])[: len(g)]
    last = np.full(len(src_g), -1, dtype=np.int64)
    np.maximum.at(last, g, d)
    moved_g, crossing_g = tables.moved_g, CROSSING_TILES * tables.tile_g

    # stored: starts up to the source, ends behind the source but not behind the last consumer
    produced = np.flatnonzero(src_g >= 0)
    stored = (0, src_g[produced], src_g[produced] + 1, last[produced], moved_g[produced], crossing_g[produced], 0.0)
    # read: by the first consumer at or behind the start
    inside = d < n
    low = np.maximum(src_g[g], np.where(fresh, -1, np.roll(d, 1))) + 1
    of, to = g[inside], d[inside]
    read = (low[inside], to, to + 1, n, moved_g[of], crossing_g[of], 0.0)
    # buffered between fused kernels: as deep as the deepest consumer inside needs
    deepest = sharded.depth_t[by_place]
    for t in np.flatnonzero(~fresh).tolist():
        deepest[t] = max(deepest[t], deepest[t - 1])
    more = deepest - np.where(fresh, 0.0, np.roll(deepest, 1))
    both = inside & (src_g[g] >= 0)
    kept = (0, src_g[g[both]], d[both] + 1, n, 0.0, (more * tables.tile_g[g])[both], 0.0)
    # paid for the first payer at or behind the start
    x, p = np.nonzero(sharded.payers_xk[:, order])
    behind = np.where(np.append(True, x[1:] != x[:-1]), 0, np.roll(p, 1) + 1)
    return _Rectangles.of([stored, read, kept, (behind, p, p + 1, n, 0.0, 0.0, sharded.toll_x[x])])


def price_intervals(
    tables: StageTables, order: Ints, forward_backward: str, longest: int, clock: Clock = UNLIMITED
) -> Iterator[Band]:
    """Prices of all intervals of at most ``longest`` kernels of a topological order, in bands of starting points.

    Parameters
    ----------
    tables : StageTables
        The stage.
    order : int array, shape (kernels,)
        A topological order of its kernels.
    forward_backward : str
        Rule for passes in partitions: under ``separate`` blocks that mix passes are illegal.
    longest : int
        Largest number of kernels in a block.
    clock : Clock
        When it is over, :class:`OutOfTime` is raised.
    """
    sharded, chip, n = tables.sharded, tables.chip, tables.kernels
    longest = min(longest, n, chip.tiles if chip.fused else 1, library.largest(sharded) if chip.library else n)
    if sharded.token_charges is not None:
        yield from _one_by_one(tables, order, forward_backward, longest, clock)
        return
    rectangles, separate = _rectangles(tables, order), forward_backward == "separate"

    def prefix(per_k: Floats | Ints | Bools) -> Floats:
        return np.concatenate([[0.0], np.cumsum(per_k[order].astype(np.float64))])

    compute, memory, network = prefix(sharded.compute_k), prefix(tables.mem_k), prefix(sharded.net_k)
    steady = [prefix(seconds_k) for seconds_k in tables.steady_rk]
    sram, tiled, ahead = prefix(tables.sram_k), prefix(tables.parts_k > 1), prefix(sharded.forward_k)
    needed = np.cumsum(np.pad(tables.tiles_kl[order] if sharded.menus else tables.tiles_kl, ((1, 0), (0, 0))), axis=0)
    for first in range(0, n, _ROWS):
        rows = min(_ROWS, n - first)
        columns = min(rows - 1 + longest, n - first)
        clock.check(_BAND + rows * columns / _PRICED)
        i = first + np.arange(rows)[:, None]
        j = first + 1 + np.arange(columns)[None, :]
        length = j - i
        traffic, buffers, tolls = rectangles.band(first, rows, columns)
        held = buffers + sram[j] - sram[i]
        legal = (length >= 1) & (length <= longest)
        legal &= keeps_chip(chip, length, tiled[j] - tiled[i], held, ahead[j] - ahead[i] if separate else None)
        if chip.library:
            shared = [within[j] - within[i] == length for within in map(prefix, sharded.sets_k.T)]
            row, column = np.nonzero(legal & np.logical_or.reduce(shared) & (length > 1))
            place = np.argsort(order) - first
            member = (place >= row[:, None]) & (place <= column[:, None])
            legal &= length == 1
            legal[row, column] = library.allowed(sharded, member)
        work = compute[j] - compute[i]
        if sharded.menus:
            work = np.full(length.shape, np.inf)
            row, column = np.nonzero(legal)
            work[row, column] = _paces(tables, needed, row + first, column + first + 1)
        moved = chip.dram_seconds(traffic + memory[j] - memory[i])
        talk = tolls + network[j] - network[i]
        time = combine([work, moved, talk, *(seconds[j] - seconds[i] for seconds in steady)], chip)
        yield Band(first, np.where(legal, time, np.inf))


def _one_by_one(tables: StageTables, order: Ints, forward_backward: str, longest: int, clock: Clock) -> Iterator[Band]:
    """Price intervals as `price_intervals` where blocks may take their tokens in blocks: no sum over rectangles."""
    n, forward, separate = tables.kernels, tables.sharded.forward_k[order], forward_backward == "separate"
    for first in range(0, n, _ROWS):
        rows = min(_ROWS, n - first)
        time = np.full((rows, min(rows - 1 + longest, n - first)), np.inf)
        for row in range(rows):
            clock.check(_ROW)
            start = first + row
            ends = np.arange(start + 1, min(start + longest, n) + 1)
            if separate:
                ends = ends[: np.flatnonzero(np.append(forward[start : ends[-1]] != forward[start], True))[0]]
            member = np.zeros((len(ends), n), dtype=bool)
            for at, end in enumerate(ends.tolist()):
                member[at, order[start:end]] = True
            prices = price_blocks(tables, member)
            time[row, ends - first - 1] = np.where(prices.legal, prices.time, np.inf)
        yield Band(first, time)


def _paces(tables: StageTables, needed: Ints, i: Ints, j: Ints) -> Floats:
    """Least latency that the kernels of each interval can all reach with the tiles there are; inf if none."""
    latency, fits = latency_by(tables, lambda level_b: needed[j, level_b] - needed[i, level_b], len(i))
    return np.where(fits, latency, np.inf)
