"""The least sum over all ways to cut a pass into pieces, over the options of few kernels at a time.

What a piece takes is a table over options of some kernels. So is the least sum of a *rest*, kernels that have not run:
over the options that it shares with what ran before. Of a piece that may run next, and of the rests that are left then,
the tables are added up, and of the sum only the least over the options of all other kernels is kept. That is
elimination (:mod:`dfopt.terms.elimination`) along a choice of blocks.

Suffixes: p piece, r rest, k kernel of the graph.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dfopt.bnb import Clock
from dfopt.fusion.pieces import RestSplit
from dfopt.terms.elimination import Factor

_ENTRIES = 1 << 20
"""Entries of a table that are added up, at most: of more kernels the tables take the least over the options of some."""
_STEP = 25.0
"""Units of work of one step."""


class Rests:
    """Dynamic program over the rests of a pass: least sums over the options shared with what ran before.

    Parameters
    ----------
    roots : sequence of int
        Rests in front of all pieces.
    steps : sequence of RestSplit
        Rests in the order of the dynamic program; larger ones first.
    shared_r : sequence of tuple of int
        For every rest, the kernels whose options it shares with what ran before.
    sizes_k : sequence of int
        Options of each kernel.
    priced : callable
        Seconds of a piece, over the options that it shares with others.
    clock : Clock
        Counts the work.

    Attributes
    ----------
    low : float
        The least sum; infinite if there is no way.
    """

    def __init__(
        self,
        roots: Sequence[int],
        steps: Sequence[RestSplit],
        shared_r: Sequence[tuple[int, ...]],
        sizes_k: Sequence[int],
        priced: Callable[[int], Factor],
        clock: Clock,
    ) -> None:
        self._roots, self._sizes_k, self._priced = roots, sizes_k, priced
        self._steps = defaultdict[int, list[RestSplit]](list)
        self._of_rest = dict[int, Factor]()
        for step in reversed(steps):
            rest, p, left = step
            if not all(other in self._of_rest for other in left):
                continue
            shared = shared_r[rest]
            scope, total = least_over(self._sum(self._parts(p, left), shared), shared)
            if scope != shared:  # options of some kernels were left out
                total = total.reshape([self._sizes_k[k] if k in scope else 1 for k in shared])
                total = np.broadcast_to(total, [self._sizes_k[k] for k in shared])
            clock.check(_STEP)
            if rest in self._of_rest:
                total = np.minimum(total, self._of_rest[rest][1])
            self._of_rest[rest] = shared, total
            self._steps[rest].append(step)
        self.low, self._options = np.inf, dict[int, int]()
        if all(root in self._of_rest for root in roots):
            together = self._sum([self._of_rest[root] for root in roots])
            self.low, self._options = float(together[1].min()), least_of(together)

    def _parts(self, p: int, left: Sequence[int]) -> list[Factor]:
        """What a step adds up: its piece, and the rests that it leaves."""
        return [self._priced(p), *(self._of_rest[rest] for rest in left)]

    def _sum(self, parts: Sequence[Factor], shared: Sequence[int] = ()) -> Factor:
        """The sum of parts. Of too many kernels the least of each part over their options is taken, not of those that
        are shared."""
        order = sorted({k for scope, _ in parts for k in scope})
        while math.prod(self._sizes_k[k] for k in order) > _ENTRIES and not set(order) <= {*shared}:
            order.remove(next(k for k in order if k not in shared))
            parts = [least_over(part, order) for part in parts]
        total = np.zeros(())
        for scope, amount in parts:
            total = total + amount.reshape([self._sizes_k[k] if k in scope else 1 for k in order])
        return tuple(order), total

    def attained(self) -> tuple[list[int], dict[int, int]]:
        """The pieces of a partitioning with the least sum, and its options; empty if there is none."""
        chosen, options = list[int](), dict(self._options)
        stack = [*self._roots] if np.isfinite(self.low) else []
        while stack:
            rest = stack.pop()
            ways = (
                self._sum([given(part, options) for part in self._parts(p, left)]) for _, p, left in self._steps[rest]
            )
            total, (_, p, left) = min(zip(ways, self._steps[rest], strict=True), key=lambda way: float(way[0][1].min()))
            options |= least_of(total)
            chosen.append(p)
            stack += left
        return chosen, options


def least_of(part: Factor) -> dict[int, int]:
    """Options of the kernels of a factor at which it is least."""
    scope, amount = part
    return dict(zip(scope, map(int, np.unravel_index(amount.argmin(), amount.shape)), strict=True))


def least_over(part: Factor, kept: Sequence[int]) -> Factor:
    """Minimize a factor over the options of all kernels but those in ``kept``."""
    scope, amount = part
    out = tuple(axis for axis, k in enumerate(scope) if k not in kept)
    return (tuple(k for k in scope if k in kept), amount.min(axis=out)) if out else part


def given(part: Factor, options: Mapping[int, int]) -> Factor:
    """A factor with the options of some kernels fixed."""
    scope, amount = part
    return tuple(k for k in scope if k not in options), amount[tuple(options.get(k, slice(None)) for k in scope)]
