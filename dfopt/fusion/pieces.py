"""Exact fusion of long graphs: what is left of one falls apart, and kernels that share no tensor need not run together.

A *piece* is a block whose kernels hang together by tensors. Any block may be cut into its pieces: they are legal, run
in any order, and add up to its compute, traffic and network. Kernels that have not run form *rests* that hang together
likewise; what they take at least is a sum over them. So a weight update that nothing waits for is a rest of its own,
alike in every layer: where the lattice of two training layers has 514,156 down-sets, 234 rests can be left.

Pieces of one block gain by balance alone: one waits for compute while another waits for DRAM. So the least sum of one
*side* of pieces (memory seconds, say) bounds all partitionings, and the least sum of their times is that of one. Where
they differ a MILP decides over steps that are shorter than that by their side, and every block of several pieces that
may be in anything better: pieces whose time is above their side, then others while the time of the block still is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import UNLIMITED, Clock, OutOfTime
from dfopt.fusion.blocks import StageTables, part_of, price_each
from dfopt.fusion.lattice import PathResult
from dfopt.fusion.partitioning import TIES, IntraChipLimits, objective
from dfopt.fusion.segments import precedence, topological_orders
from dfopt.milp import Model, solve
from dfopt.terms.sram import FITS

_LONG = 0.4  # share of the kernels that lie on one path, at least: other graphs are more wide than long
_WIDE, _MOST = 100, 2000  # blocks looked at per kernel, for one rest and for all
_MERGED = 50_000  # blocks of several pieces in the MILP
_SURE = 1e-7  # relative: the MILP looks for what is better by more than this
_NOTHING = 1e-12  # relative: rounding of a sum
# pieces of one block, kernels that fit none of them, SRAM and seconds to spare, totals by side, and of one side
_Chosen = tuple[tuple[int, ...], NDArray[np.uint64], float, float, Floats, float]
RestSplit = tuple[int, int, tuple[int, ...]]  # of this rest this piece runs, and these rests are left
_SCALE: Final = 10  # units of the sum that is to be beaten: some for each piece of a partitioning
_EXTENDED: Final = 20.0  # units of work of one more piece in a block


class TooWide(Exception):
    """Raised where a graph has too many ways to split it into blocks, or no cover by them."""


class Pieces:
    """Exact partitioning of one pass of a long stage by dynamic programming over its connected pieces.

    Sets of kernels are bits of a number, in a topological ``order``.
    """

    def __init__(self, tables: StageTables, clock: Clock) -> None:
        self.tables, self.order, n = tables, topological_orders(tables)[0].tolist(), tables.kernels
        place = np.argsort(self.order).tolist()
        before, after = ([sum(1 << place[a] for a in ways[k]) for k in self.order] for ways in precedence(tables))
        self.before, self.after, depth = before, after, list[int]()
        for heads in before:
            depth.append(1 + max((depth[a] for a in _bits(heads)), default=0))
        if max(depth) < _LONG * n:
            raise TooWide
        touch = [0] * len(tables.bytes_g)  # who makes or reads a tensor, or pays the same toll
        for ends in (tables.sharded.src_t, tables.sharded.dst_t):
            for k, group in zip(ends.tolist(), tables.sharded.group_t.tolist(), strict=True):
                touch[group] |= 1 << place[k] if k < n else 0
        touch += [sum(1 << place[k] for k in np.flatnonzero(payers)) for payers in tables.sharded.payers_xk]
        self.near = [_all(touch, sum(1 << g for g, of in enumerate(touch) if of >> k & 1)) | 1 << k for k in range(n)]
        self.rests: dict[int, int] = {}  # with their numbers
        self.roots = self._fall_apart((1 << n) - 1)
        steps, masks = self._go_on(clock)
        fits = self._price(masks)
        number, size = (np.cumsum(fits) - 1).tolist(), [rest.bit_count() for rest in self.rests]
        self.steps: list[RestSplit] = [(rest, number[p], left) for rest, p, left in steps if fits[p]]
        self.steps.sort(key=lambda step: -size[step[0]])
        self.masks = [mask for mask, fit in zip(masks, fits, strict=True) if fit]
        self.time, bounds = self.sides.max(axis=0), [(*self._least(side), side) for side in self.sides]
        self.low, _, _, self.side = max(bounds, key=lambda bound: bound[0])
        (self.high, _, chosen) = self._least(self.time)
        self.blocks = [self.masks[p] for p in chosen]

    def _parts(self, mask: int) -> Iterator[int]:
        """Parts of a set of kernels that hang together."""
        while mask:
            part, new = 0, mask & -mask
            while new:
                part |= new
                new = _all(self.near, new) & mask & ~part
            yield part
            mask &= ~part

    def _fall_apart(self, mask: int) -> tuple[int, ...]:
        """Numbers of the rests that kernels form."""
        return tuple(self.rests.setdefault(part, len(self.rests)) for part in self._parts(mask))

    def _go_on(self, clock: Clock) -> tuple[list[RestSplit], list[int]]:
        """All steps from all rests that can be reached, and the pieces in them."""
        tables, n = self.tables, self.tables.kernels
        tiled, held = (tables.parts_k[self.order] > 1).tolist(), tables.sharded.stationary_k[self.order].tolist()
        connected: dict[int, bool] = {}
        falls: dict[int, tuple[int, ...]] = {}
        pieces: dict[int, int] = {}
        steps, looked, at = list[RestSplit](), 0, 0
        while at < len(self.rests):
            clock.check()
            rest, most = list(self.rests)[at], min(looked + _WIDE * n, _MOST * n)
            before = [of & rest for of in self.before]
            # every block comes up once: what may be added stands behind the last of its kernels in the order
            stack = [(0, 0.0, sum(1 << k for k in _bits(rest) if not before[k]))]
            while stack:
                block, bytes_, ready = stack.pop()
                for k in _bits(ready):
                    larger, more = block | 1 << k, bytes_ + held[k]
                    if block if tiled[k] else more > tables.chip.sram * (1 + FITS):
                        continue
                    looked += 1
                    if not tiled[k]:
                        fresh = sum(1 << b for b in _bits(self.after[k] & rest) if not before[b] & ~larger)
                        stack.append((larger, more, ready >> k + 1 << k + 1 | fresh))
                    if larger not in connected:
                        connected[larger] = next(self._parts(larger)) == larger
                    if connected[larger]:
                        behind = rest & ~larger
                        if behind not in falls:
                            falls[behind] = self._fall_apart(behind)
                        steps.append((at, pieces.setdefault(larger, len(pieces)), falls[behind]))
                if looked > most:
                    raise TooWide
            at += 1
        return steps, list(pieces)

    def _price(self, masks: list[int]) -> list[bool]:
        """Sides and SRAM of the pieces that are legal, and which are."""
        prices = price_each(self.tables, [self.kernels_of(mask) for mask in masks])
        # the time of a block is the largest of these sums of its terms, each picked by a row of ones and zeros
        selection = np.zeros((len(self.tables.chip.rule.serial_sets), len(prices.seconds)))
        for selected, summed in zip(selection, self.tables.chip.rule.serial_sets, strict=True):
            selected[[*summed]] = 1.0
        self.sides: Floats = (selection @ prices.seconds)[:, prices.legal]
        self.sram = prices.sram_bytes[prices.legal]
        return list(prices.legal.tolist())

    def kernels_of(self, mask: int) -> Ints:
        """Kernel numbers of a set given as a bit mask: int array."""
        return np.array([self.order[k] for k in _bits(mask)], dtype=np.int64)

    def _least(self, cost: Floats) -> tuple[float, list[float], list[int]]:
        """Least sum of a cost of pieces, that of each rest, and the pieces."""
        value, first, price = [np.inf] * len(self.rests), dict[int, RestSplit](), cost.tolist()
        for step in reversed(self.steps):
            rest, p, left = step
            total = price[p] + sum([value[r] for r in left])
            if total < value[rest]:
                value[rest], first[rest] = total, step
        stack, pieces = list(self.roots), []
        if np.isinf([value[root] for root in stack]).any():  # beside a library's kernels some may not fit alone
            raise TooWide
        while stack:
            _, p, left = first[stack.pop()]
            pieces.append(p)
            stack += left
        return sum(value[root] for root in self.roots), value, pieces

    def through(self, cost: Floats) -> tuple[float, list[float], list[float]]:
        """Least cost of a partitioning of the pass, by pieces.

        Parameters
        ----------
        cost : float array, shape (pieces,)
            Cost of every piece, in any unit.

        Returns
        -------
        (float, list of float, list of float)
            The least sum over all ways; by step, that over the ways with it; and the excess of the step over the least
            of its rest.
        """
        total, value, _ = self._least(cost)
        behind = {root: total - value[root] for root in self.roots}  # least of all that is not in a rest
        price, ways, above = cost.tolist(), list[float](), list[float]()
        for rest, p, left in self.steps:
            least = price[p] + sum([value[r] for r in left])
            before = behind.get(rest, np.inf)
            for r in left:
                behind[r] = min(behind.get(r, np.inf), before + least - value[r])
            ways.append(before + least)
            above.append(max(least - value[rest], 0.0))
        return total, ways, above

    def improve(self, below: float, clock: Clock, seed: int) -> None:
        """Raise the lower bound ``low`` to ``below`` (s), or find a better partitioning."""
        most, unit = below * (1 + TIES), below / _SCALE
        extra: dict[int, float] = {}  # what a piece adds at least to the least: over the pieces of a way they add up
        steps, goes, comes, uses, joins = list[RestSplit](), *(defaultdict[int, list[int]](list) for _ in range(4))
        for step, way, above in zip(self.steps, *self.through(self.side)[1:], strict=True):
            if way > most:
                continue
            rest, p, left = step
            extra[p] = min(extra.get(p, np.inf), above)
            goes[rest].append(len(steps))
            uses[p].append(len(steps))
            for r in left:
                comes[r].append(len(steps))
            steps.append(step)
        merged = self._merged(extra, most - self.low, clock)
        model = Model("pieces")
        x, y = model.binary("step", (len(steps),)), model.binary("merged", (len(merged),))
        for number, chosen in zip(y.tolist(), merged, strict=True):
            for p in chosen:
                joins[p].append(number)
        for rest in {*goes, *comes}:
            once = float(rest in self.roots)
            model.rows(f"rest_{rest}", [(np.array([goes[rest]]), 1.0), (np.array([comes[rest]]), -1.0)], once, once)
        for p in joins:
            model.rows(f"joined_{p}", [(np.array([joins[p]]), 1.0), (np.array([uses[p]]), -1.0)], upper=0.0)
        gain = [self.time[[*chosen]].sum() - self.sides[:, chosen].sum(axis=1).max() for chosen in merged]
        model.minimize([(x, self.time[[p for _, p, _ in steps]] / unit), (y, -np.array(gain) / unit)])
        cutoff = below * (1 - _SURE) / unit
        solution = solve(model, clock=clock, cutoff=cutoff, seed=seed, presolve=False).in_units(unit)
        if solution.interrupted:
            raise KeyboardInterrupt
        self.low = max(self.low, min(solution.bound, below))
        if solution.x is not None:
            together = [merged[at] for at in np.flatnonzero(model.value("merged", solution.x) > 0.5)]
            taken = {steps[at][1] for at in np.flatnonzero(model.value("step", solution.x) > 0.5)}
            alone = [(p,) for p in taken.difference(*together)]
            with suppress(CycleError):  # blocks may wait for each other: then the bound holds, the blocks do not
                blocks = self.lined_up([sum(self.masks[p] for p in chosen) for chosen in [*together, *alone]])
                if price_each(self.tables, [self.kernels_of(block) for block in blocks]).legal.all():
                    self.blocks, self.high = blocks, solution.objective

    def _merged(self, extra: dict[int, float], spare: float, clock: Clock) -> list[tuple[int, ...]]:
        """Pieces of every block of several that a better partitioning may hold."""
        chip, nothing = self.tables.chip, _NOTHING * self.high
        single = self.tables.parts_k[self.order] > 1 if chip.fused and not chip.library else np.ones(len(self.order))
        tiled = sum(1 << at for at in np.flatnonzero(single).tolist())
        above = self.time - self.side > nothing
        fused = (p for p in extra if not self.masks[p] & tiled)
        usable = np.array(sorted(fused, key=lambda p: not above[p]), dtype=np.int64)
        waiting, masks = int(above[usable].sum()), [self.masks[p] for p in usable]
        sides, side, sram = self.sides[:, usable], self.side[usable], self.sram[usable]
        added, size = np.array([extra[p] for p in usable]), np.array([mask.bit_count() for mask in masks])
        words = _words(masks, len(self.order))
        combinations, promised = list[tuple[int, ...]](), 0
        none, room = _words([0], len(self.order)), chip.sram * (1 + FITS)
        stack: list[_Chosen] = [((), none, room, spare, np.zeros(len(sides)), 0.0)]
        while stack:
            clock.check(_EXTENDED)
            chosen, blocked, room, rest, totals, base = stack.pop()
            over = totals.max() - base
            if len(chosen) > 1 and over <= rest:
                combinations.append(tuple(usable[[*chosen]].tolist()))
            if chosen:
                blocked = blocked | _words([self._away(masks[chosen[-1]])], len(self.order))
            later = slice(chosen[-1] + 1 if chosen else 0, len(usable) if over > nothing else waiting)
            fits = (sram[later] <= room) & (added[later] <= rest) & (size[[*chosen]].sum() + size[later] <= chip.tiles)
            fits[fits] = ~(words[later][fits] & blocked).any(axis=1)
            more = later.start + np.flatnonzero(fits)
            larger, left, bases = totals[:, None] + sides[:, more], rest - added[more], base + side[more]
            # counted before they are looked into: there may be very many
            promised += int((larger.max(axis=0) - bases <= left).sum()) if chosen else 0
            if promised > _MERGED:
                raise TooWide
            for at, p in enumerate(more.tolist()):
                stack.append(((*chosen, p), blocked, room - sram[p], left[at], larger[:, at], bases[at]))
        return combinations

    def _away(self, mask: int) -> int:
        """Kernels that share a tensor with those of a piece, or run before or after: in no other piece of its block."""
        away = _all(self.near, mask)
        for ways in (self.before, self.after):
            new = mask
            while new := _all(ways, new):
                away |= new
        return away

    def lined_up(self, blocks: Sequence[int]) -> list[int]:
        """Blocks, as bit masks, in an order in which every block follows those that it reads from.

        Raises
        ------
        CycleError
            If some blocks wait for each other.
        """
        owner = {k: block for block in blocks for k in _bits(block)}
        needs = {block: {owner[k] for k in _bits(_all(self.before, block) & ~block)} for block in blocks}
        return list(TopologicalSorter(needs).static_order())

    def members(self, masks: Sequence[int]) -> Bools:
        """Sets given as bit masks as rows of a membership matrix: bool array, shape (sets, kernels)."""
        count, size = self.tables.kernels, -(-self.tables.kernels // 8)
        written = np.frombuffer(b"".join(mask.to_bytes(size, "little") for mask in masks), dtype=np.uint8)
        member = np.empty((len(masks), count), dtype=bool)
        member[:, self.order] = np.unpackbits(written.reshape(-1, size), axis=1, count=count, bitorder="little")
        return member

    @property
    def alone(self) -> Bools:
        """Mask of the pieces that fit into a block with no other piece: bool array, shape (pieces,)."""
        member_pk, chip = self.members(self.masks), self.tables.chip
        away_kk = self.members([self._away(1 << at) for at in np.argsort(self.order).tolist()])
        single_k = (self.tables.parts_k > 1) | (not chip.fused) | chip.library
        room_p = chip.sram * (1 + FITS) - self.sram
        blocked_pk = member_pk.astype(np.float32) @ away_kk.astype(np.float32) > 0
        beside_pk = ~blocked_pk & ~single_k & (self.tables.sharded.stationary_k <= room_p[:, None])
        return np.asarray((member_pk & single_k).any(axis=1) | ~beside_pk.any(axis=1))

    def partitions(self) -> list[Ints]:
        """Kernels of the best blocks, in the order in which these run."""
        return [self.kernels_of(block) for block in self.lined_up(self.blocks)]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _words(masks: Sequence[int], kernels: int) -> NDArray[np.uint64]:
    """Sets of kernels, each as a row of words of 64 bits."""
    size = -(-kernels // 64) * 8
    written = b"".join(mask.to_bytes(size, "little") for mask in masks)
    return np.frombuffer(written, dtype="<u8").reshape(len(masks), size // 8)


def _all(sets: Sequence[int], mask: int) -> int:
    """Union of the sets of some kernels."""
    union = 0
    for k in _bits(mask):
        union |= sets[k]
    return union


def pieces_of(tables: StageTables, limits: IntraChipLimits, clock: Clock) -> list[tuple[Ints, Pieces]]:
    """For each group of passes that share no block: its kernels and its pieces.

    Raises
    ------
    TooWide
        Also where times of pieces do not add up: under the cycle model, and in blocks of tokens, of which two pieces
        together may take more than each.
    """
    sharded = tables.sharded
    if sharded.token_charges is not None or sharded.menus:
        raise TooWide
    forward, every = sharded.forward_k, [np.arange(tables.kernels)]
    ends = [np.append(kernels, False) for kernels in (~forward, forward)]
    if limits.forward_backward == "separate":
        if (ends[0][sharded.src_t] & ends[1][sharded.dst_t]).any():
            raise TooWide  # the backward pass cannot come after the forward pass
        every = [members for members in (np.flatnonzero(forward), np.flatnonzero(~forward)) if len(members)]
    return [(members, Pieces(part_of(tables, members), clock)) for members in every]


def piecewise(
    tables: StageTables, limits: IntraChipLimits, upper: float, clock: Clock = UNLIMITED, seed: int = 0
) -> PathResult | None:
    """The best partitioning of a long graph by its pieces, with a lower bound on all others.

    Parameters
    ----------
    tables, limits : StageTables, IntraChipLimits
        The stage.
    upper : s
        Seconds of the best known partitioning, which limit the bound.
    clock : Clock
        Limit on the search.
    seed : int
        Random seed of the MILP.

    Returns
    -------
    PathResult or None
        None where partitions are counted, pinned or short of DRAM, where times of pieces do not add up (cycle model,
        blocks of tokens), for graphs more wide than long, and when the clock is over before there is any.
    """
    forward = tables.sharded.forward_k
    if limits.are_counted(tables.kernels, forward) or tables.bytes_g.sum() > limits.dram_left:
        return None
    try:
        passes, parts = zip(*pieces_of(tables, limits, clock), strict=True)
    except (TooWide, OutOfTime):
        return None
    for part in parts:
        below = min(part.high, upper - sum(other.low for other in parts if other is not part))
        try:
            if part.low < below * (1 - _SURE):
                part.improve(below, clock, seed)
        except (TooWide, OutOfTime):
            break
    blocks = [members[block] for members, part in zip(passes, parts, strict=True) for block in part.partitions()]
    partition_k = np.empty(len(forward), dtype=np.int64)
    for number, block in enumerate(blocks):
        partition_k[block] = number
    value = objective(tables, partition_k)
    bound = min(sum(part.low for part in parts), value)
    note = f"{sum(len(part.masks) for part in parts)} pieces of {sum(len(part.rests) for part in parts)} rests"
    return PathResult(bound >= min(value, upper) * (1 - 2 * _SURE), partition_k, value, bound, note, ())
