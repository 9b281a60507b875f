"""Arcs of a lattice whose paths keep to numbers of partitions: at most or exactly so many, pins, halves.

Which partition may follow depends on the down-set that a path has reached and on the number that comes next. Down-sets
with numbers are the states of an automaton that reads blocks. States of one down-set from which the same blocks lead to
the same states are one state. So numbers are told apart only as far as they make a difference: where they make none,
the lattice is what it was. Source: minimization of acyclic automata from their ends (Revuz, Theoretical Computer
Science 92 (1992)).

Suffixes: a arc, b block, j down-set, n number of the next partition, k kernel of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfopt.arrays import Bools, Ints, stable_order
from dfopt.fusion.partitioning import IntraChipLimits
from dfopt.regions.arcs import Arcs

_NEVER = -1
"""Instead of a state: no path that keeps the limits leads on from there."""


@dataclass(frozen=True, eq=False)
class Numbering:
    """Legal partition numbers of a kind of layer, under limits on their count, pins and passes.

    A block has the least number that it may have behind those before it: of all numbers that it may have, this one
    leaves the blocks that follow most.

    Attributes
    ----------
    limits : IntraChipLimits
        Limits on the partitions. Pins are those of the layer's kernels.
    forward_k : bool array, shape (kernels of the layer,)
        Kernels of the forward pass.
    """

    limits: IntraChipLimits
    forward_k: Bools

    def along(self, member: Bools) -> list[int]:
        """Numbers of partitions that run in the given order.

        Parameters
        ----------
        member : bool array, shape (partitions, kernels of the layer)
            Kernels of every partition.
        """
        first, _ = self.limits.numbers(member, self.forward_k)
        numbers, following = list[int](), 0
        for least in first.tolist():
            numbers.append(max(following, least) if self.limits.may_skip else following)
            following = numbers[-1] + 1
        return numbers

    def kept_by(self, member: Bools) -> Ints | None:
        """Numbers of partitions that run in the given order; None where no numbers keep the limits.

        Parameters
        ----------
        member : bool array, shape (partitions, kernels of the layer)
            Kernels of every partition.
        """
        numbers, (_, last) = np.array(self.along(member)), self.limits.numbers(member, self.forward_k)
        too_few = self.limits.exactly and numbers.max() + 1 < self.limits.p_max
        return None if too_few or (numbers > last).any() else numbers

    def most(self, kernels: int) -> int:
        """Upper bound on how many copies of a down-set are needed to distinguish partition numbers."""
        counts = self.limits.exactly or self.limits.p_max < kernels or self.limits.pins
        return min(self.limits.p_max, kernels) if counts else 1

    def kept(self, arcs: Arcs) -> Arcs | None:
        """The lattice of all paths that keep the limits, with down-sets copied where numbers differ.

        Parameters
        ----------
        arcs : Arcs
            All arcs of the layer; every down-set is there once.

        Returns
        -------
        Arcs or None
            The same ones where nothing is counted. None: no path keeps the limits.
        """
        if not self.limits.are_counted(len(arcs.kernels), self.forward_k):
            return arcs
        next_bn = self._next(arcs)
        state_jn, states = _states(arcs, next_bn, self._ends(), _reached(arcs, next_bn))
        return None if state_jn[0, 0] == _NEVER else _joined(arcs, next_bn, state_jn, states)

    def _next(self, arcs: Arcs) -> Ints:
        """By block and number, the number behind it; :data:`_NEVER` where the block may not come there."""
        limits = self.limits
        first_b, last_b = limits.numbers(arcs.member_bk[:, arcs.kernels], self.forward_k)
        number_n = np.arange(limits.p_max + 1)
        taken_bn = np.maximum(number_n, first_b[:, None]) if limits.may_skip else number_n + 0 * first_b[:, None]
        may_bn = (first_b[:, None] <= taken_bn) & (taken_bn <= last_b[:, None])
        return np.where(may_bn, taken_bn + 1, _NEVER)

    def _ends(self) -> Bools:
        """By number, whether a path may end before the partition that would have it."""
        number_n = np.arange(self.limits.p_max + 1)
        return number_n == self.limits.p_max if self.limits.exactly else number_n > 0


def _reached(arcs: Arcs, next_bn: Ints) -> Bools:
    """Which numbers may be next at every down-set."""
    reached_jn = np.zeros((len(arcs.set_jk), next_bn.shape[1]), dtype=bool)
    reached_jn[0, 0] = True
    for some, _, _ in arcs.levels:
        next_an = np.where(reached_jn[arcs.before_a[some]], next_bn[arcs.block_a[some]], _NEVER)
        arc, number = np.nonzero(next_an != _NEVER)
        reached_jn[arcs.after_a[some][arc], next_an[arc, number]] = True
    return reached_jn


def _states(arcs: Arcs, next_bn: Ints, ends_n: Bools, reached_jn: Bools) -> tuple[Ints, list[tuple[int, int]]]:
    """The state of every down-set with every number, and a down-set and a number of each state, the end as state 0."""
    last = len(arcs.set_jk) - 1
    state_jn = np.full(reached_jn.shape, _NEVER)
    state_jn[last, reached_jn[last] & ends_n] = 0
    states = [(last, int(np.flatnonzero(ends_n)[0]))]
    order = stable_order(arcs.before_a)
    begins = np.searchsorted(arcs.before_a[order], np.arange(last + 1))
    for j in range(last - 1, -1, -1):
        leaving = order[begins[j] : begins[j + 1]]
        numbers = np.flatnonzero(reached_jn[j])
        next_na = next_bn[arcs.block_a[leaving]][:, numbers].T
        onward_na = np.where(next_na == _NEVER, _NEVER, state_jn[arcs.after_a[leaving], next_na])
        alike = dict[bytes, int]()
        for number, onward_a, lives in zip(numbers.tolist(), onward_na, (onward_na != _NEVER).any(axis=1), strict=True):
            if lives:
                state = alike.setdefault(onward_a.tobytes(), len(states))
                if state == len(states):
                    states.append((j, number))
                state_jn[j, number] = state
    return state_jn, states


def _joined(arcs: Arcs, next_bn: Ints, state_jn: Ints, states: list[tuple[int, int]]) -> Arcs:
    """Arcs between states, the start first and the end last."""
    order = stable_order(arcs.before_a)
    begins = np.searchsorted(arcs.before_a[order], np.arange(len(arcs.set_jk) + 1))
    leaving_s = [order[begins[j] : begins[j + 1]] for j, _ in states[1:]]
    arc_a = np.concatenate(leaving_s)
    place_a = np.repeat(np.arange(1, len(states)), list(map(len, leaving_s)))
    next_a = next_bn[arcs.block_a[arc_a], np.array([number for _, number in states])[place_a]]
    onward_a = np.where(next_a == _NEVER, _NEVER, state_jn[arcs.after_a[arc_a], next_a])
    lives = onward_a != _NEVER
    # states were listed from the end on: turned round, smaller sets come first
    before_a, after_a = (len(states) - 1 - each[lives] for each in (place_a, onward_a))
    sort = stable_order(after_a)
    blocks, block_a = np.unique(arcs.block_a[arc_a[lives]][sort], return_inverse=True)
    set_jk = arcs.set_jk[[j for j, _ in reversed(states)]]
    return Arcs(arcs.member_bk[blocks], set_jk, before_a[sort], after_a[sort], block_a.astype(np.int64), arcs.apart_k)
