"""Options and blocks of a long graph together, where there are too many blocks to list.

Any block may be cut into *pieces* (:mod:`dfopt.fusion.pieces`). What a piece takes depends on the options of few
kernels: its own, and those that it shares a tensor with. So the best of all options and pieces is found exactly
(:mod:`dfopt.regions.rests`).

Pieces that share no block with others take the largest of some sums of their resources. Others may wait for one
resource while their neighbours wait for another one, so together they take less than apart. But for any weights of the
sums that add up to 1, the weighted sums of the pieces of a block add up to no more than what the block takes.

Passes that share no block are worked out apart, each with its own choice of the options that they have in common.

Suffixes: p piece, k kernel of the graph, q sum of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.bnb import Clock, OutOfTime
from dfopt.regions.classes import PlanClass
from dfopt.regions.dual import between
from dfopt.regions.piece_prices import PassPieces, PiecePrices
from dfopt.regions.rests import Rests
from dfopt.terms.chip import ChipModel
from dfopt.terms.elimination import Factor
from dfopt.terms.table import Domain, Table

_FIRST = 1.01
"""Steps on ways up to so much longer than the least are looked at first: the others rarely matter."""
_ROUNDS = 3
"""Weights of the sums that are tried, at most."""
_SAME = 1 - 1e-9
"""A value that is less by a smaller share is the same one."""


class Attained(NamedTuple):
    """Bound of a kind of layer or pass, with options and blocks that attain it.

    Attributes
    ----------
    low : float, s
        No mapping takes less, unless it takes as much as the cutoff.
    option_k : dict of int to int
        Options of kernels, as places among their schemes, in such a mapping.
    blocks : list of int array
        Kernels of the graph in each block of a mapping below the cutoff, in the order in which they run. Empty: none
        was found.
    """

    low: float
    option_k: Mapping[int, int]
    blocks: Sequence[Ints]

    def partition_k(self, kernels: Ints) -> Ints:
        """Number of the block of each given kernel: int array."""
        number_k = {k: number for number, block in enumerate(self.blocks) for k in block.tolist()}
        return np.array([number_k[k] for k in kernels.tolist()], dtype=np.int64)


def best_together(of: PlanClass, kind: int, domain: Domain, cutoff: float, clock: Clock) -> Attained:
    """Least seconds of a kind of layer of a plan class over options and blocks; 0 where it cannot be cut into pieces.

    Parameters
    ----------
    of, kind : PlanClass, int
        The class of plans, and the kind of layer.
    domain, cutoff, clock
        See :func:`best_of_passes`.
    """
    try:
        passes = of.passes(kind, clock)
    except OutOfTime:
        passes = ()
    return best_of_passes(passes, of.table_of_blocks, domain, of.chip.bounding, cutoff, clock)


def best_of_passes(
    passes: Sequence[PassPieces], table: Table, domain: Domain, chip: ChipModel, cutoff: float, clock: Clock
) -> Attained:
    """The least seconds of a kind of layer over all options and blocks, by dynamic programming over pieces.

    Parameters
    ----------
    passes : sequence of PassPieces
        Pieces of passes that together have all kernels of the layer.
    table : Table
        Charges that decide the seconds of blocks, without those of blocks of tokens.
    domain : Domain
        Options that are left.
    chip : ChipModel
        Limits and rates, by which bytes take the same time in any block.
    cutoff : float, s
        Seconds of a layer from which on a mapping does not matter.
    clock : Clock
        When it is over, the bound reached so far is returned.
    """
    left = table.undominated(domain)
    low_i, all_attained, blocks = [each.pieces.low for each in passes], True, list[Ints]()
    option_k = {k: left[k][0] for each in passes for k in each.members.tolist()}  # the only ones but for those below
    for i, each in enumerate(passes):
        over = _PassBound(PiecePrices(each, table, left, chip, clock))
        try:
            attained = over.best(cutoff - sum(low_i[:i] + low_i[i + 1 :]))
        except OutOfTime:
            all_attained = False
            continue
        low_i[i] = max(low_i[i], attained.low)
        all_attained &= bool(attained.blocks)
        option_k |= {k: option for k, option in attained.option_k.items() if k in each.members}
        blocks += attained.blocks
    return Attained(sum(low_i), option_k, blocks if all_attained else [])  # no passes: no blocks


class _Found(NamedTuple):
    """The least sum of a pass; the pieces and places of options that have it, if it is below the cutoff."""

    low: float
    chosen: list[int]
    options: dict[int, int]


@dataclass(frozen=True, eq=False)
class _PassBound:
    """A pass with the options that are left."""

    prices: PiecePrices

    def best(self, cutoff: float) -> Attained:
        """What the pass takes at least, below a cutoff."""
        pieces, alone_p, n_sums = self.prices.of.pieces, self.prices.of.alone_p, len(self.prices.chip.rule.serial_sets)
        least = self._search(self.prices.time_p.__getitem__, pieces.time, cutoff)
        if alone_p.all() or n_sums == 1:
            return self._attained(least, least.low)
        met_q = self._of_others(least) if least.chosen else pieces.sides.sum(axis=1)
        weight_q, low = np.eye(n_sums)[met_q.argmax()], pieces.low
        with suppress(OutOfTime):
            for _ in range(_ROUNDS):
                weighted_p = np.where(alone_p, pieces.time, weight_q @ pieces.sides)
                priced = partial(self.prices.weighted, weight_q=weight_q)
                other = self._search(priced, weighted_p, cutoff, least.low if least.chosen else 0.0)
                before, low = low, max(low, other.low)
                if low <= before or low >= least.low * _SAME or not (least.chosen and other.chosen):
                    break
                others_q = self._of_others(other)
                weight_q, met_q = between(met_q[None], others_q[None])[0], others_q
        return self._attained(least, low)

    def _search(self, priced: Callable[[int], Factor], least_p: Floats, cutoff: float, near: float = 0.0) -> _Found:
        """The least sum of what pieces are taken for, or the cutoff.

        Parameters
        ----------
        priced : callable
            What a piece is taken for by the options of some kernels.
        least_p : float array, s, shape (pieces,)
            It is no less under any options.
        cutoff : float, s
            From which on a sum does not matter.
        near : float, s
            Ways up to so long are looked at first, if that is more than a little longer than the least.
        """
        pieces, prices = self.prices.of.pieces, self.prices
        least, ways, _ = pieces.through(least_p)
        most = min(max(least * _FIRST, near), cutoff)
        while least < cutoff:
            steps = [step for step, way in zip(pieces.steps, ways, strict=True) if way <= most]
            prices.price({p for _, p, _ in steps})
            rests = Rests(pieces.roots, steps, prices.shared_r, prices.sizes_k, priced, prices.clock)
            if rests.low <= most or len(steps) == len(ways):
                return _Found(rests.low, *rests.attained())
            if most >= cutoff:
                break
            most = min(rests.low, cutoff)
        return _Found(max(least, cutoff), [], {})

    def _of_others(self, least: _Found) -> Floats:
        """Sums of resources of those pieces of an answer that may share blocks: shape (sums,)."""
        met_q = np.zeros(len(self.prices.chip.rule.serial_sets))
        for p in least.chosen:
            if not self.prices.of.alone_p[p]:
                scope, sum_q = self.prices.sums_p[p]
                met_q += sum_q.reshape(len(met_q), -1)[:, self.prices.place(scope, least.options)]
        return met_q

    def _attained(self, least: _Found, low: float) -> Attained:
        """An answer with the options that pieces do not share."""
        of, left, options = self.prices.of, self.prices.left, least.options
        for p in least.chosen:
            options |= self.prices.best_options(p, options)
        blocks = of.pieces.lined_up([of.pieces.masks[p] for p in least.chosen])
        option_k = {k: left[k][place] for k, place in options.items()}
        return Attained(low, option_k, [of.members[of.pieces.kernels_of(block)] for block in blocks])
