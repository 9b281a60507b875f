"""What a layer takes at least by weighted sums of resources: a dual, whose least over all schemes elimination finds.

For weights w of resources with w . x <= seconds(x) for all x, a block takes no less than the weighted sum of what it
pays. So the layer takes no less than the sum of all items, each spread over blocks in its cheapest way, and that is a
sum of costs which few kernels decide each (:mod:`dfopt.proof.factors`). Every component has weights of its own.
Domains and duals mean the same in :mod:`dfopt.terms.table` and :mod:`dfopt.regions.dual`, whose code is another one.

Suffixes: k kernel, r resource that takes time, c component, p pattern: which kernels of an item are in a block.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats
from dfopt.judge.items import LayerItems
from dfopt.proof.blocks import Component, TooManyBlocks
from dfopt.proof.costs import Costs, Cover, Spread
from dfopt.proof.factors import Elimination
from dfopt.proof.weights import Weights

Domain = tuple[tuple[int, ...], ...]
"""By kernel the schemes that are left, as places among those that it may have."""
_ROUNDS: Final = 6
"""Eliminations for a dual, at most."""
_CLOSE: Final = 1e-6
"""Share of a dual that better weights could add at most where it ends."""
_COVERS: Final = 300
"""Ways to spread the kernels of an item over blocks, at most: an item with more counts for nothing."""


class Dual(NamedTuple):
    """A Lagrangean bound, as an elimination over kernels whose values are their remaining schemes.

    Attributes
    ----------
    elimination : Elimination
        The weighted costs.
    weight_cr, weight_kr : float arrays, shapes (components, resources) and (kernels, resources)
        The weights by component, and by kernel.
    cover_v : float array
        Cost of each cover, as :class:`Costs` gives it.
    """

    elimination: Elimination
    weight_cr: Floats
    weight_kr: Floats
    cover_v: Floats

    @property
    def least(self) -> float:
        """Lower bound on the seconds of any mapping; infinite where all schemes exclude each other."""
        return self.elimination.least


class Duals:
    """Lagrangean bounds of the layers of one plan.

    Parameters
    ----------
    items : LayerItems
        Cost items of blocks.
    weights : Weights
        Weights of the resources that take time.
    components : sequence of Component
        Kernels that may share blocks.
    """

    def __init__(self, items: LayerItems, weights: Weights, components: Sequence[Component]) -> None:
        self._items, self._weights, self._components = items, weights, components
        self._spread_of = dict[tuple[int, Domain], Spread]()
        self._least_of = dict[tuple[int, Domain], Floats]()
        self._costs_of = lru_cache(maxsize=4)(self._costs)
        component_of = {k: c for c, of in enumerate(components) for k in of.kernels}
        self.component_k = [component_of[k] for k in range(len(component_of))]

    def best(
        self, domain: Domain, kernels: Collection[int], enough: float = math.inf, weight_kr: Floats | None = None
    ) -> Dual:
        """The joint dual of the components of some kernels, after a few rounds of improving its weights.

        Parameters
        ----------
        domain : Domain
            Schemes that are left.
        kernels : collection of int
            A component counts if any of its kernels is among these.
        enough : s
            Target value: the improvement stops once the dual reaches it. It sets the step lengths, as in Polyak's
            subgradient method (*Introduction to Optimization*, 1987).
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
            sum_cr = self._costs_of(domain).sums_with(dual.elimination.values, dual.cover_v, len(counts_c))
            better_cr = counts_c * self._weights.greedy(sum_cr)
            more = float(((better_cr - weight_cr) * sum_cr).sum())
            if more <= _CLOSE * best.least:
                break
            weight_cr = weight_cr + min((enough - dual.least) / more, 1.0) * (better_cr - weight_cr)
        assert best is not None
        return best

    def of(self, domain: Domain, weight_cr: Floats) -> Dual:
        """The dual with given weights, shape (components, resources), which never exceed the seconds of a block."""
        factors, cover_v = self._costs_of(domain).factors(weight_cr)
        elimination = Elimination(factors, [len(left) for left in domain])
        return Dual(elimination, weight_cr, weight_cr[self.component_k], cover_v)

    def counts(self, kernels: Collection[int]) -> Bools:
        """Mask of the components that have any of the kernels: shape (components, 1)."""
        return np.array([of.kernels[0] in kernels for of in self._components])[:, None]

    def _costs(self, domain: Domain) -> Costs:
        """What items add under the schemes of a domain; one with too many covers counts for nothing."""
        scopes = [item.scope for item, covers in zip(self._items.items, self._covers, strict=True) if covers]
        nothing = Spread.of(np.zeros((1, len(self._weights.time))), np.zeros(1), [Cover((), ())])
        spreads = [nothing, *(of for _, of in self._spreads(domain))]
        return Costs(spreads, [(), *scopes], [len(left) for left in domain])

    def _spreads(self, domain: Domain) -> Iterator[tuple[tuple[int, Domain], Spread]]:
        for i, item in enumerate(self._items.items):
            key = i, tuple(domain[k] for k in item.scope)
            if key not in self._spread_of and self._covers[i]:
                part = np.ix_(*key[1])
                self._spread_of[key] = Spread.of(self._timed[i][part], self._legal[i][part], self._covers[i])
            if self._covers[i]:
                yield key, self._spread_of[key]

    def least_sums(self, domain: Domain) -> Floats:
        """Least seconds of each resource in every component, each minimized alone: shape (components, resources)."""
        total_cr = np.zeros((len(self._components), len(self._weights.time)))
        for key, spread in self._spreads(domain):
            if key not in self._least_of:
                self._least_of[key] = spread.least_sums(len(total_cr))
            total_cr += self._least_of[key]
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
    def _covers(self) -> list[list[Cover]]:
        """By item all ways to spread its kernels over blocks; none if there are too many."""
        covers_i = []
        for item in self._items.items:
            having = sorted({self.component_k[k] for k in item.inside})
            patterns = [(c, p) for c in having for p in _patterns(self._components[c], item.inside)]
            try:
                covers_i.append(_spread((1 << len(item.inside)) - 1, patterns))
            except TooManyBlocks:
                covers_i.append([])
        return covers_i


@lru_cache(maxsize=1024)
def _patterns(of: Component, inside: tuple[int, ...]) -> list[int]:
    """Which of some kernels a block of a component may have, as bits: all of these patterns but none of them."""
    if of.is_listed:
        return [p for p in np.flatnonzero(np.bincount(of.pattern_b(inside))).tolist() if p]
    bits = [1 << place for place, k in enumerate(inside) if k in of.kernels]
    return [sum(few) for size in range(1, len(bits) + 1) for few in combinations(bits, size)]


def _spread(left: int, patterns: Sequence[tuple[int, int]]) -> list[Cover]:
    """All ways to spread some kernels, as bits, over blocks of some components and patterns."""
    if not left:
        return [Cover((), ())]
    covers = list[Cover]()
    lowest = left & -left
    for c, pattern in patterns:
        if pattern & lowest and not pattern & ~left:
            for rest in _spread(left & ~pattern, patterns):
                covers.append(Cover((c, *rest.component_g), (pattern, *rest.pattern_g)))
                if len(covers) > _COVERS:
                    raise TooManyBlocks(f"an item has more than {_COVERS} ways to spread its kernels over blocks")
    return covers
