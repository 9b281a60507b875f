"""What a layer takes at least by weighted sums of resources: a dual, whose least over all schemes elimination finds.

For weights w of resources with w . x <= seconds(x) for all x, a block takes no less than the weighted sum of what it
pays. So the layer takes no less than the sum of all items, each spread over blocks in its cheapest way, and that is a
sum of costs which few kernels decide each (:mod:`dfopt.proof.factors`). Every component has weights of its own.

Suffixes: k kernel, r resource that takes time, c component, p pattern: which kernels of an item are in a block.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.judge.items import LayerItems
from dfopt.proof.blocks import Component, TooMany
from dfopt.proof.factors import Elimination, Factor
from dfopt.proof.weights import Weights

__all__ = ["Domain", "Dual", "Duals"]

Domain = tuple[tuple[int, ...], ...]
"""By kernel the schemes that are left, as places among those that it may have."""
_ROUNDS: Final = 6
"""Eliminations for a dual, at most."""
_CLOSE: Final = 1e-6
"""Share of a dual that better weights could add at most where it ends."""
_COVERS: Final = 300
"""Ways to spread the kernels of an item over blocks, at most: an item with more counts for nothing."""
_KEPT: Final = 32
"""Weights whose costs of all schemes are kept."""


class _Cover(NamedTuple):
    """A way to spread the kernels of an item over blocks: the component and the pattern of each block."""

    component_g: tuple[int, ...]
    pattern_g: tuple[int, ...]


class _Cost(NamedTuple):
    """What an item adds at least to a weighted sum, by the schemes of its scope, and by which cover."""

    least: Floats
    cover: Ints


class Dual(NamedTuple):
    """A bound: variables of the elimination are kernels, their values the schemes that are left.

    Its weights are there by component and by kernel.
    """

    elimination: Elimination
    weight_cr: Floats
    weight_kr: Floats

    @property
    def least(self) -> float:
        """Seconds that no mapping undercuts; infinite where no schemes can be together."""
        return self.elimination.least


class Duals:
    """Duals of the layers of one plan.

    Parameters
    ----------
    items : LayerItems
        What blocks pay.
    weights : Weights
        Of the resources that take time.
    components : sequence of Component
        Kernels that may share blocks.
    """

    def __init__(self, items: LayerItems, weights: Weights, components: Sequence[Component]) -> None:
        self._items, self._weights, self._components = items, weights, components
        self._costs = dict[bytes, list[_Cost | None]]()
        component_of = {k: c for c, of in enumerate(components) for k in of.kernels}
        self.component_k = [component_of[k] for k in range(len(component_of))]

    def best(
        self, domain: Domain, kernels: Collection[int], enough: float = math.inf, weight_kr: Floats | None = None
    ) -> Dual:
        """The dual of the components of some kernels together, with the best weights that a few rounds find.

        Parameters
        ----------
        domain : Domain
            Schemes that are left.
        kernels : collection of int
            With one of a component all of it counts.
        enough : s
            What is sought: a dual of no less. Steps are as long as it takes to get there, if costs stay what they are
            (Polyak, *Introduction to Optimization*, 1987).
        weight_kr : float array, shape (kernels, resources), optional
            Weights to begin with, such as those of a region that holds this one.
        """
        counts_c = self.counts(kernels)
        if weight_kr is None:
            weight_cr = counts_c * self._weights.greedy(self.least_sums(domain))
        else:
            weight_cr = weight_kr[[of.kernels[0] for of in self._components]]
        best: Dual | None = None
        for _ in range(_ROUNDS):
            dual = self.of(domain, weight_cr)
            if best is None or dual.least > best.least:
                best = dual
            if not dual.least < enough:
                break
            met_cr = self._met(domain, dual)
            better_cr = counts_c * self._weights.greedy(met_cr)
            more = float(((better_cr - weight_cr) * met_cr).sum())
            if more <= _CLOSE * best.least:
                break
            weight_cr = weight_cr + min((enough - dual.least) / more, 1.0) * (better_cr - weight_cr)
        assert best is not None
        return best

    def of(self, domain: Domain, weight_cr: Floats) -> Dual:
        """The dual with some weights: none of which blocks take less than their weighted sum."""
        elimination = Elimination(self._factors(domain, weight_cr), [len(left) for left in domain])
        return Dual(elimination, weight_cr, weight_cr[self.component_k])

    def counts(self, kernels: Collection[int]) -> Bools:
        """Which components have some kernels: shape (components, 1)."""
        return np.array([of.kernels[0] in kernels for of in self._components])[:, None]

    def _factors(self, domain: Domain, weight_cr: Floats) -> list[Factor]:
        """What every item adds at least to the weighted sum, by the schemes of its kernels."""
        pairs = zip(self._items.items, self._costs_of(weight_cr), strict=True)
        return [
            Factor(item.scope, cost.least[np.ix_(*(domain[k] for k in item.scope))])
            for item, cost in pairs
            if cost is not None
        ]

    def _costs_of(self, weight_cr: Floats) -> list[_Cost | None]:
        """The costs of all items under all schemes; none of one that counts for nothing."""
        key = weight_cr.tobytes()
        if key not in self._costs:
            if len(self._costs) >= _KEPT:
                del self._costs[next(iter(self._costs))]
            self._costs[key] = [self._cost(i, weight_cr) for i in range(len(self._items.items))]
        return self._costs[key]

    def _cost(self, i: int, weight_cr: Floats) -> _Cost | None:
        timed, legal = self._timed[i], self._legal[i]
        each = [
            sum(timed[..., p, :] @ weight_cr[c] + legal[..., p] for c, p in zip(*cover, strict=True))
            for cover in self._covers[i]
        ]
        if not each:
            return None
        every = np.stack(each)
        return _Cost(every.min(axis=0), every.argmin(axis=0))

    def _met(self, domain: Domain, dual: Dual) -> Floats:
        """Seconds of each resource of every component under the schemes that a dual meets, spread as it has them."""
        met_cr = np.zeros_like(dual.weight_cr)
        scheme_k = [left[value] for left, value in zip(domain, dual.elimination.values, strict=True)]
        costs = self._costs_of(dual.weight_cr)
        for i, (item, cost) in enumerate(zip(self._items.items, costs, strict=True)):
            if cost is not None:
                place = tuple(scheme_k[k] for k in item.scope)
                for c, pattern in zip(*self._covers[i][int(cost.cover[place])], strict=True):
                    met_cr[c] += self._timed[i][place][pattern]
        return met_cr

    def least_sums(self, domain: Domain) -> Floats:
        """Seconds of each resource of every component at least, each for itself: shape (components, resources)."""
        total_cr = np.zeros((len(self._components), len(self._weights.time)))
        for i, item in enumerate(self._items.items):
            part = np.ix_(*(domain[k] for k in item.scope))
            least_pr = self._timed[i][part].min(axis=tuple(range(len(item.scope))))
            each = np.zeros((len(self._covers[i]), *total_cr.shape))
            for number, cover in enumerate(self._covers[i]):
                for c, pattern in zip(*cover, strict=True):
                    each[number, c] += least_pr[pattern]
            if len(each):
                total_cr += each.min(axis=0)
        return total_cr

    @cached_property
    def _timed(self) -> list[Floats]:
        """By item its table in seconds of each resource: the last axes are patterns and resources that take time."""
        resources, rate_r = [*self._weights.time], np.array([*self._weights.time.values()])
        return [self._items.table(item)[..., resources] * rate_r for item in self._items.items]

    @cached_property
    def _legal(self) -> list[Floats]:
        """By item where its schemes cannot be together: infinite, else 0; the last axis is patterns."""
        r = self._items.resources.index("legal")
        return [self._items.table(item)[..., r] for item in self._items.items]

    @cached_property
    def _covers(self) -> list[list[_Cover]]:
        """By item all ways to spread its kernels over blocks; none if there are too many."""
        covers_i = []
        for item in self._items.items:
            patterns = [(c, p) for c, of in enumerate(self._components) for p in _patterns(of, item.inside)]
            try:
                covers_i.append(_spread((1 << len(item.inside)) - 1, patterns))
            except TooMany:
                covers_i.append([])
        return covers_i


def _patterns(of: Component, inside: tuple[int, ...]) -> list[int]:
    """Which of some kernels a block of a component may have, as bits: all of these patterns but none of them."""
    if of.is_listed:
        return [p for p in np.flatnonzero(np.bincount(of.pattern_b(inside))).tolist() if p]
    bits = [1 << place for place, k in enumerate(inside) if k in of.kernels]
    return [sum(few) for size in range(1, len(bits) + 1) for few in combinations(bits, size)]


def _spread(left: int, patterns: Sequence[tuple[int, int]]) -> list[_Cover]:
    """All ways to spread some kernels, as bits, over blocks of some components and patterns."""
    if not left:
        return [_Cover((), ())]
    covers = list[_Cover]()
    lowest = left & -left
    for c, pattern in patterns:
        if pattern & lowest and not pattern & ~left:
            for rest in _spread(left & ~pattern, patterns):
                covers.append(_Cover((c, *rest.component_g), (pattern, *rest.pattern_g)))
                if len(covers) > _COVERS:
                    raise TooMany(f"an item has more than {_COVERS} ways to spread its kernels over blocks")
    return covers
