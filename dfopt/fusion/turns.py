"""Two microbatches that take turns on a chip: while one of them communicates, the other one computes.

Both are worked through by the same partitions in the same order, cut into *pieces*: each is some partitions, of which
the last has kernels that communicate by themselves (dispatch, combine, gathers), and then that communication. Chip and
network change sides together, when both have done what they were given:

====================  ========  ========  ========  ===  =========  ========
the chip works on     A, C_1    B, C_1    A, C_2    ...  B, C_n
the network sends                         ...
of                              A, N_1    B, N_1    ...  A, N_n     B, N_n
====================  ========  ========  ========  ===  =========  ========

So both together take ``sum over pieces of max(C_i, N_{i-1}) + max(C_i, N_i)``, and N_n at the end: the first half
fills, the last one drains. ``C`` is all that partitions take besides, under any assumption about overlap, for one
microbatch: each of the two reads the weights. The sum grows with every C.

Source: two microbatches "simultaneously, overlapping the attention and MoE of one micro-batch with the dispatch and
combine of another", DeepSeek-V3 Technical Report (arXiv:2412.19437), sections 3.4.1 and 3.4.2. The formula is the
length of the schedule above; an implementation that does not wait for both sides can only be faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dfopt.bnb import Clock
from dfopt.terms.sharded_graph import Bools, Floats, Ints

_MOST = 200_000  # ways to down-sets
_AT_ONCE = 256  # of them that are compared together


@dataclass(frozen=True)
class Pieces:
    """What a layer gives chip and network in turns: ``busy`` ends with what comes after all that it sends."""

    busy: tuple[float, ...]
    sent: tuple[float, ...]


def pieces(busy: Sequence[float], sent: Sequence[float]) -> Pieces:
    """The pieces of a layer, from the seconds that its partitions compute and send.

    Examples
    --------
    >>> pieces([1.0, 2.0, 4.0], [0.0, 3.0, 0.0])
    Pieces(busy=(3.0, 4.0), sent=(3.0,))
    """
    cut, open_ = list[float](), 0.0
    for computing, sending in zip(busy, sent, strict=True):
        open_ += computing
        if sending > 0:
            cut.append(open_)
            open_ = 0.0
    return Pieces((*cut, open_), tuple(one for one in sent if one > 0))


def together(rows: Iterable[tuple[Pieces, int]]) -> float:
    """Seconds of two microbatches that take turns, given layers in their order and how often each comes in a row.

    Examples
    --------
    >>> together([(Pieces((2.0, 1.0), (2.5,)), 1)])  # 2 + 2.5 + 2.5 + 1: the second half waits for its message
    8.0
    >>> together([(Pieces((2.0, 1.0), (0.5,)), 10)])  # all that is sent is hidden
    60.0
    """
    total = open_ = before = 0.0
    for layer, times in rows:
        if not layer.sent:
            open_ += times * layer.busy[0]
            continue
        for done in range(times):
            was = total
            for computing, sending in zip(layer.busy, layer.sent, strict=False):
                open_ += computing
                total += max(open_, before) + max(open_, sending)
                open_, before = 0.0, sending
            open_ = layer.busy[-1]
            if done == 1:  # from here on all are alike
                total += (times - 2) * (total - was)
                break
    return total + max(open_, before) + open_


@dataclass(frozen=True)
class Way:
    """A way through the down-sets of a layer: its pieces, and its blocks by number."""

    pieces: Pieces
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class _Lot:
    """Ways to a down-set that send the same: seconds, pieces (the last is not sent yet), the way before, the block.

    ``waited``: seconds that both microbatches together take at least beside twice ``total``, see :func:`ways`.
    """

    total: Floats
    waited: Floats
    busy: Floats
    back: Ints
    block: Ints

    def take(self, rows: Ints) -> _Lot:
        return _Lot(self.total[rows], self.waited[rows], self.busy[rows], self.back[rows], self.block[rows])


def ways(
    before: Ints, after: Ints, seconds: Floats, sent: Floats, sets: int, room: float, clock: Clock
) -> list[Way] | None:
    """All ways through some blocks that none beats in every piece; none if there are too many to look at.

    Parameters
    ----------
    before, after : int arrays
        Down-sets that blocks lie between, numbered so that after comes later; all of them are 0 to ``sets`` - 1.
    seconds, sent : float arrays
        What each block computes, and what it sends behind that.
    room : float
        Seconds for one microbatch, half of what both take, above which a way is of no interest.

    Raises
    ------
    OutOfTime
        When the clock is over.

    Notes
    -----
    What the first piece C_1 of a layer is hidden behind depends on the layer before, and it may have worked on that
    one's last kernels; the pieces after it are its own. So both take no less than

    ``2 C_1 + sum over i > 1 of (max(C_i, N_{i-1}) + max(C_i, N_i)) + 2 C_rest``

    in every such layer, wherever it stands, and layers add up.
    """
    order = np.argsort(before, kind="stable")
    rest = np.full(sets, np.inf)
    rest[-1] = 0.0
    for block in order[::-1].tolist():
        rest[before[block]] = min(rest[before[block]], seconds[block] + rest[after[block]])
    lots: list[dict[tuple[float, ...], list[_Lot]]] = [{} for _ in range(sets)]
    nothing = np.full(1, -1)
    lots[0] = {(): [_Lot(np.zeros(1), np.zeros(1), np.zeros((1, 1)), nothing, nothing)]}
    known, count, made, here = list[_Lot](), 0, 0, -1
    open_: list[tuple[tuple[float, ...], _Lot, Ints]] = []  # at the down-set under way: their numbers too
    for block in [*order.tolist(), None]:
        start = sets - 1 if block is None else int(before[block])
        if start != here:
            clock.check(100.0)
            here, open_ = start, []
            for key, some in lots[start].items():
                lot = _unbeaten(some, clock)
                open_.append((key, lot, count + np.arange(len(lot.total))))
                known.append(lot)
                count += len(lot.total)
        if block is None:
            break
        end, computing, sending = int(after[block]), float(seconds[block]), float(sent[block])
        for key, lot, number in open_:
            total = lot.total + computing
            busy, waited = lot.busy.copy(), lot.waited
            busy[:, -1] += computing
            if sending > 0:
                if key:
                    waited = waited + sum(np.maximum(beside - busy[:, -1], 0.0) for beside in (key[-1], sending))
                busy = np.column_stack([busy, np.zeros(len(busy))])
            near = np.flatnonzero(total + waited / 2 + rest[end] <= room)
            if not len(near):
                continue
            made += len(near)
            entry = _Lot(total[near], waited[near], busy[near], number[near], np.full(len(near), block))
            lots[end].setdefault((*key, sending) if sending > 0 else key, []).append(entry)
        if made > _MOST:
            return None
    back = np.concatenate([lot.back for lot in known]).tolist()
    via = np.concatenate([lot.block for lot in known]).tolist()
    return [
        Way(Pieces(tuple(busy), key), _blocks(at, back, via))
        for key, lot, number in open_
        for busy, at in zip(lot.busy.tolist(), number.tolist(), strict=True)
    ]


def _unbeaten(lots: Sequence[_Lot], clock: Clock) -> _Lot:
    """Those of which no other one has less, or as much, in every piece."""
    if len(lots) == 1 == len(lots[0].total):
        return lots[0]
    parts = ("total", "waited", "busy", "back", "block")
    every = _Lot(*(np.concatenate([getattr(lot, part) for lot in lots]) for part in parts))
    # who beats another one comes first, or is its equal
    every = every.take(np.lexsort((*every.busy.T[::-1], every.total)))
    kept = np.zeros(0, dtype=np.int64)
    for start in range(0, len(every.total), _AT_ONCE):
        clock.check(20.0 + len(kept) / 10)
        mine = np.arange(start, min(start + _AT_ONCE, len(every.total)))
        mine = mine[~_beats(every.busy[kept], every.busy[mine]).any(axis=0)]
        mine = mine[~np.triu(_beats(every.busy[mine], every.busy[mine]), 1).any(axis=0)]
        kept = np.append(kept, mine)
    return every.take(kept)


def _beats(one: Floats, other: Floats) -> Bools:
    """Whether each of some rows is nowhere above each of others."""
    found = np.ones((len(one), len(other)), dtype=bool)
    for mine, theirs in zip(one.T, other.T, strict=True):
        found &= mine[:, None] <= theirs
    return found


def _blocks(at: int, back: list[int], via: list[int]) -> tuple[int, ...]:
    """The blocks of a way."""
    found = list[int]()
    while back[at] >= 0:
        found.append(via[at])
        at = back[at]
    return tuple(reversed(found))
