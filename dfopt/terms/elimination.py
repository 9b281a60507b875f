"""The least of a sum of factors over all vectors of options, by eliminating one kernel after another.

A *factor* is an amount that the options of a few kernels decide, such as that of a charge. A sum of factors over few
kernels each has a least value that is found exactly without looking at all vectors: the factors of one kernel are
added up, and of the sum only the least over its options is kept, by the options of the kernels beside it (R. Dechter,
"Bucket elimination", Artificial Intelligence 113, 1999). Layers are nearly chains, so these tables are small. Going
back over them gives the *min-marginals*: for each option of a kernel the least of all vectors that have it.

Suffixes: k kernel, o option of a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dfopt.arrays import Floats, Ints

Factor = tuple[tuple[int, ...], Floats]
"""Scope and amounts: numbers of kernels, ascending and each once, and an axis for each of them over its options."""
_Structure = tuple[tuple[int, ...], ...]  # scopes


@dataclass(frozen=True, eq=False)
class _Step:
    """One kernel eliminated: the sum of its factors, with the kernel's axis first, and the earlier rests among them."""

    scope: tuple[int, ...]
    joined: Floats
    rests: tuple[tuple[int, tuple[int, ...], Floats], ...]  # step that left it, scope, amounts


@dataclass(frozen=True, eq=False)
class Elimination:
    """Least value of a sum of terms over all choices of one option for each kernel, and a choice that has it.

    An option is one of a kernel's alternatives, such as a sharding scheme. The terms are *factors* (:data:`Factor`),
    each decided by the options of a few kernels. A vector of options has one option for each kernel. Call
    :func:`eliminated` to make an object.

    Attributes
    ----------
    least : float, in the unit of the factors
        No vector of options has a smaller sum. Infinite only if every vector has an infinite factor.
    exact : bool
        True: the sum of some vector is ``least``. False: some tables would have been too large and were split, so
        ``least`` is a lower bound, and the sum of every vector may be larger.
    """

    least: float
    exact: bool
    _sizes_k: tuple[int, ...]
    _steps: tuple[_Step, ...]

    @cached_property
    def options_k(self) -> Ints:
        """Option of every kernel in a vector with the least sum: int array, shape (kernels,).

        Options are numbered from 0 for each kernel. If the elimination is not exact, the sum of this vector may be
        larger than :attr:`least` and than that of another vector. If ``least`` is infinite, it is any vector.
        """
        options = [0] * len(self._sizes_k)
        for step in reversed(self._steps):
            index: Any = (slice(None), *(options[k] for k in step.scope[1:]))
            options[step.scope[0]] = int(step.joined[index].argmin())
        return np.array(options, dtype=np.int64)

    @cached_property
    def marginals_ko(self) -> tuple[Floats, ...]:
        """For each option of each kernel, the least sum that a vector with this option has (its *min-marginal*).

        A vector is a choice of one option for each kernel, and its sum that of the factors. The tuple has a float array
        for each kernel, shape (options of the kernel,), in the unit of the factors. If :attr:`exact` is false, entries
        are lower bounds on these sums. No entry is below :attr:`least`. An option whose entry is above a cutoff is in
        no vector whose sum is at most the cutoff. All entries are infinite if :attr:`least` is.
        """
        marginals = [np.full(size, self.least) for size in self._sizes_k]
        if not math.isfinite(self.least):
            return tuple(marginals)
        messages: dict[int, Floats] = {}  # by step, the least of all that is not in its table, over the rest's scope
        for number in range(len(self._steps) - 1, -1, -1):
            step = self._steps[number]
            rest = messages.get(number)
            marginal = step.joined + (self.least - step.joined.min()) if rest is None else step.joined + rest[None]
            for axis, kernel in enumerate(step.scope):
                others = tuple(other for other in range(marginal.ndim) if other != axis)
                marginals[kernel] = np.maximum(marginals[kernel], marginal.min(axis=others))
            for earlier, scope, amount in step.rests:
                out = tuple(axis for axis, kernel in enumerate(step.scope) if kernel not in scope)
                order = [kernel for kernel in step.scope if kernel in scope]
                less = marginal.min(axis=out).transpose([order.index(kernel) for kernel in scope])
                finite = np.isfinite(amount)
                messages[earlier] = np.where(finite, less - np.where(finite, amount, 0), np.inf)
        return tuple(marginals)


def eliminated(factors: Sequence[Factor], sizes_k: Sequence[int], most: int = 1 << 16) -> Elimination:
    """The least sum of some terms over all choices of one option for each kernel, by bucket elimination.

    An option is one of a kernel's alternatives, such as a sharding scheme. The result is the least over o of the sum of
    f(o of the kernels in the scope of f) over all factors f, where o has an option for each kernel. One kernel after
    another is minimised out (R. Dechter, Artificial Intelligence 113, 1999).

    Parameters
    ----------
    factors : sequence of (tuple of int, float array)
        The terms. A scope has the numbers of the kernels whose options decide the term, ascending and each once.
        Amounts have an axis for each of them, over its options, and all factors have one unit. They may be infinite,
        where options cannot be together.
    sizes_k : sequence of int
        Number of options of each kernel, at least 1.
    most : int
        Most entries of a table that several factors are added up to. Where more are needed, the factors of a kernel are
        minimised in several groups, each of which may take another option. Then the result is a lower bound.

    Returns
    -------
    Elimination
        The least sum, whether it is exact, and a vector of options.

    Examples
    --------
    Two kernels with two options each. The second option costs the first kernel 2 and the second kernel 1. Both together
    pay 5 if they have the same option.

    >>> alone = np.array([0.0, 1.0])
    >>> found = eliminated([((0,), 2 * alone), ((1,), alone), ((0, 1), 5.0 * np.eye(2))], (2, 2))
    >>> found.least, found.exact, found.options_k.tolist()
    (1.0, True, [0, 1])
    >>> [marginal_o.tolist() for marginal_o in found.marginals_ko]
    [[1.0, 2.0], [2.0, 1.0]]
    """
    sizes = tuple(sizes_k)
    together: dict[tuple[int, ...], Floats] = {}  # kernels with one option decide nothing
    for scope, amount in factors:
        free = tuple(kernel for kernel in scope if sizes[kernel] > 1)
        part = amount.reshape([sizes[kernel] for kernel in free])
        together[free] = together[free] + part if free in together else part
    left = [(-1, scope, amount) for scope, amount in together.items()]  # -1: a factor, not the rest of a step
    steps, exact = list[_Step](), True
    for kernel in _order(tuple(together), sizes):
        bucket = [part for part in left if kernel in part[1]]
        left = [part for part in left if kernel not in part[1]]
        groups = _groups(bucket, sizes, most)
        exact &= len(groups) == 1
        for group in groups:
            scope = (kernel, *sorted({k for _, of, _ in group for k in of} - {kernel}))
            joined = np.zeros([sizes[k] for k in scope])
            for _, of, amount in group:
                joined += _spread(of, amount, scope)
            rest: Floats = joined.min(axis=0)
            left.append((len(steps), scope[1:], rest))
            steps.append(_Step(scope, joined, tuple(part for part in group if part[0] >= 0)))
    least = sum(float(amount) for _, scope, amount in left if not scope)
    return Elimination(least, exact, sizes, tuple(steps))


def _groups(
    parts: Sequence[tuple[int, tuple[int, ...], Floats]], sizes: tuple[int, ...], most: int
) -> list[list[tuple[int, tuple[int, ...], Floats]]]:
    """Factors whose sum is a table of a size that is allowed, the largest first."""
    groups: list[list[tuple[int, tuple[int, ...], Floats]]] = []
    for part in sorted(parts, key=lambda each: -each[2].size):
        for group in groups:
            kernels = {k for _, scope, _ in (part, *group) for k in scope}
            if math.prod(sizes[k] for k in kernels) <= most:
                group.append(part)
                break
        else:
            groups.append([part])
    return groups


def _spread(scope: tuple[int, ...], amount: Floats, larger: tuple[int, ...]) -> Floats:
    """A factor with an axis of length one for every kernel of a larger scope that it does not have."""
    order = sorted(range(len(scope)), key=lambda axis: larger.index(scope[axis]))
    lengths = dict(zip(scope, amount.shape, strict=True))
    return amount.transpose(order).reshape([lengths.get(kernel, 1) for kernel in larger])


@lru_cache(maxsize=256)
def _order(scopes: _Structure, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Kernels in the order in which each leaves the smallest table, of those that are left."""
    neighbours: dict[int, set[int]] = {k: set() for scope in scopes for k in scope}
    for scope in scopes:
        for k in scope:
            neighbours[k] |= {*scope} - {k}
    order = list[int]()
    while neighbours:
        kernel = min(neighbours, key=lambda k: (math.prod(sizes[other] for other in neighbours[k]), k))
        others = neighbours.pop(kernel)
        for other in others:
            neighbours[other] |= others - {other}
            neighbours[other].discard(kernel)
        order.append(kernel)
    return tuple(order)
