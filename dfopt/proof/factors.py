"""The least of a sum of costs that few variables decide each, and the least with each value of a variable.

Variables are eliminated one after another (Bertele and Brioschi, *Nonserial Dynamic Programming*, 1972): all costs that
a variable is part of are added up, and its least is a cost of the others. What is sent back in the other direction
tells of each value what the sum comes to at least with it (min-marginals). Factors and eliminations mean the same in
:mod:`dfopt.terms.elimination`, of which nothing is used here: two codes for one notion do not have one fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import Floats

_LARGEST: Final = 1_000_000
"""Entries of the largest cost that is written down."""


class TooLarge(ValueError):
    """Raised where a cost would depend on too many variables to be tabulated."""


class Factor(NamedTuple):
    """A table of costs over the values of a few variables.

    Attributes
    ----------
    scope : tuple of int
        The variables, ascending.
    cost : float array
        One axis for each variable.
    """

    scope: tuple[int, ...]
    cost: Floats

    @property
    def open(self) -> Factor:
        """The factor without axes of length 1."""
        if 1 not in self.cost.shape:
            return self
        scope = tuple(v for v, size in zip(self.scope, self.cost.shape, strict=True) if size > 1)
        return Factor(scope, self.cost.squeeze())

    def over(self, scope: Sequence[int]) -> Floats:
        """The table broadcast to a larger scope: one axis for each of its variables."""
        if scope == self.scope:
            return self.cost
        return self.cost.reshape([self.cost.shape[self.scope.index(v)] if v in self.scope else 1 for v in scope])

    def without(self, variable: int) -> Factor:
        """The factor minimized over one variable."""
        axis = self.scope.index(variable)
        return Factor(self.scope[:axis] + self.scope[axis + 1 :], self.cost.min(axis=axis))


class _Bucket(NamedTuple):
    """Costs that are added up where a variable is eliminated: the last of them come from other buckets."""

    variable: int
    parts: list[Factor]
    total: Factor
    children: list[int]


class Elimination:
    """Bucket elimination: the least of a sum of factors over all values of their variables.

    Parameters
    ----------
    factors : iterable of Factor
        The costs. One without variables is a constant.
    sizes : sequence of int
        Number of values of every variable.

    Raises
    ------
    TooLarge
        If a cost of too many variables had to be written down.

    Examples
    --------
    >>> pair = Factor((0, 1), np.array([[0.0, 5.0], [4.0, 1.0]]))
    >>> found = Elimination([pair, Factor((0,), np.array([3.0, 0.0]))], [2, 2])
    >>> found.least, found.values, [marginal.tolist() for marginal in found.marginals]
    (1.0, (1, 1), [[3.0, 1.0], [3.0, 1.0]])
    """

    def __init__(self, factors: Iterable[Factor], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._buckets = list[_Bucket]()
        self._ends = self._run(list(factors))  # constants that are left, each with the bucket that it comes from

    @property
    def least(self) -> float:
        """The least sum; infinite where all values exclude each other."""
        return _total(value for _, value in self._ends)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Value of every variable in a minimizer."""
        value_of = dict.fromkeys(range(len(self._sizes)), 0)
        for bucket in reversed(self._buckets):
            scope, cost = bucket.total
            some = cost[tuple(slice(None) if v == bucket.variable else value_of[v] for v in scope)]
            value_of[bucket.variable] = int(np.argmin(some))
        return tuple(value_of.values())

    def _run(self, factors: list[Factor]) -> list[tuple[int, float]]:
        """Eliminate all variables but those that have one value: these decide nothing."""
        sent: list[tuple[Factor, int] | None] = []  # with the bucket that it comes from
        numbers_v: list[list[int]] = [[] for _ in self._sizes]

        def send(factor: Factor, origin: int) -> None:
            for v in factor.scope:
                numbers_v[v].append(len(sent))
            sent.append((factor, origin))

        open_ = [factor.open for factor in factors]
        for factor in open_:
            send(factor, -1)
        for variable in _order(tuple(factor.scope for factor in open_), tuple(self._sizes)):
            gathered = [each for number in numbers_v[variable] if (each := sent[number]) is not None]
            for number in numbers_v[variable]:
                sent[number] = None
            parts = [factor for factor, _ in gathered] or [Factor((variable,), np.zeros(self._sizes[variable]))]
            bucket = _Bucket(variable, parts, _sum(parts, self._sizes), [origin for _, origin in gathered])
            self._buckets.append(bucket)
            send(bucket.total.without(variable), len(self._buckets) - 1)
        return [(origin, float(factor.cost)) for factor, origin in filter(None, sent)]

    @cached_property
    def marginals(self) -> list[Floats]:
        """Min-marginals: by variable, the least sum for each of its values."""
        marginals = [np.full(size, self.least) for size in self._sizes]
        # what all that is not below a bucket comes to at least, by the variables that they have in common
        above: dict[int, Factor] = {}
        for origin, _ in self._ends:
            if origin >= 0:
                above[origin] = Factor((), np.array(_total(value for other, value in self._ends if other != origin)))
        for place in range(len(self._buckets) - 1, -1, -1):
            bucket, outside = self._buckets[place], above[place]
            total = _sum([bucket.total, outside], self._sizes)
            axis = total.scope.index(bucket.variable)
            marginals[bucket.variable] = total.cost.min(axis=tuple(a for a in range(total.cost.ndim) if a != axis))
            for number, child in enumerate(bucket.children):
                if child >= 0:
                    others = [part for other, part in enumerate(bucket.parts) if other != number]
                    scope = bucket.parts[number].scope
                    rest = _sum([*others, outside], self._sizes, bucket.total.scope)
                    for variable in [v for v in rest.scope if v not in scope]:
                        rest = rest.without(variable)
                    above[child] = rest
        return marginals


@lru_cache(maxsize=32)
def _order(scopes: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The variables of several values, the one first whose elimination then writes down the cost of fewest entries."""
    beside_v = [set[int]() for _ in sizes]
    for scope in scopes:
        for variable in scope:
            beside_v[variable].update(scope)
    entries_of = {v: math.prod(sizes[other] for other in beside_v[v]) for v, size in enumerate(sizes) if size > 1}
    order = list[int]()
    while entries_of:
        variable = min(entries_of, key=lambda v: (entries_of[v], v))
        order.append(variable)
        del entries_of[variable]
        others = beside_v[variable] - {variable}
        for v in others:
            beside_v[v] = (beside_v[v] | others) - {variable}
            entries_of[v] = math.prod(sizes[other] for other in beside_v[v])
    return tuple(order)


def _total(costs: Iterable[float]) -> float:
    """The sum of some costs, infinite if one of them is."""
    every = list(costs)
    return math.fsum(every) if all(map(math.isfinite, every)) else math.inf


def _sum(factors: Sequence[Factor], sizes: Sequence[int], scope: tuple[int, ...] | None = None) -> Factor:
    """The sum of some costs, over given variables if it has to have an axis for each."""
    together = scope if scope is not None else tuple(sorted({v for factor in factors for v in factor.scope}))
    shape = [sizes[v] for v in together]
    if math.prod(shape) > _LARGEST:
        raise TooLarge(f"a cost of {len(together)} kernels together has {math.prod(shape)} entries")
    total = np.zeros(shape)
    for factor in factors:
        total += factor.over(together)
    return Factor(together, total)
