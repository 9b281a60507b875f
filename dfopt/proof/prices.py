"""What the blocks of a component pay under the schemes that are left, and what the component takes then.

Suffixes: k kernel, i item, b block, r resource, n what an item adds of a resource, v choice of schemes.
"""

from __future__ import annotations

import copy
import math
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.judge.items import LayerItems
from dfopt.proof.blocks import Component
from dfopt.proof.dual import Domain
from dfopt.proof.factors import Factor

_EACH: Final = 50_000
"""Blocks of a component under all choices of schemes, at most, for which each is priced."""


class ItemAmounts:
    """Least amounts that cost items add to blocks, for all components of a layer.

    Parameters
    ----------
    items : LayerItems
        Cost items of blocks.
    """

    def __init__(self, items: LayerItems) -> None:
        self.items, self.table_i = items, [items.table(item) for item in items.items]
        self.resources_i = [np.flatnonzero(table.any(axis=(*range(table.ndim - 1),))) for table in self.table_i]
        self._least = dict[tuple[int, Domain], Floats]()

    def least(self, i: int, domain: Domain) -> Floats:
        """Least amounts of each resource that item ``i`` adds to a block, by kernel pattern: (patterns, resources)."""
        left = tuple([domain[k] for k in self.items.items[i].scope])
        if (i, left) not in self._least:
            self._least[i, left] = self.table_i[i][np.ix_(*left)].min(axis=tuple(range(len(left))))
        return self._least[i, left]


class BlockBounds:
    """Lower bounds on the costs and seconds of the blocks of a component.

    Parameters
    ----------
    component : Component
        Its blocks.
    amounts : ItemAmounts
        Amounts that items add to blocks.

    Attributes
    ----------
    deciding : list of int
        Kernels whose schemes decide the costs of the component.
    """

    def __init__(self, component: Component, amounts: ItemAmounts) -> None:
        self.component, self._amounts, self._items = component, amounts, amounts.items.items
        kernels = {*component.kernels}
        self._paid = [i for i, item in enumerate(self._items) if not kernels.isdisjoint(item.inside)]
        self.deciding = sorted({k for i in self._paid for k in self._items[i].scope})
        self._seconds, self._choices = dict[Domain, float](), dict[Domain, Factor]()

    def among(self, component: Component) -> BlockBounds:
        """The bounds for a component with fewer blocks."""
        if component is self.component:
            return self
        result = copy.copy(self)
        result.component, result._seconds, result._choices = component, {}, {}
        return result

    def least(self, domain: Domain) -> float:
        """The least total seconds of a partitioning of the component."""
        key = tuple([domain[k] for k in self.deciding])
        if key not in self._seconds:
            self._seconds[key] = self.component.least(self.seconds(domain))
        return self._seconds[key]

    def seconds(self, domain: Domain) -> Floats:
        """Lower bound on the seconds of every block: float array, shape (blocks,)."""
        sums_rb = self._zeros()
        for i in self._paid:
            self._add(sums_rb, i, self._amounts.least(i, domain))
        decided = all(len(domain[k]) == 1 for k in self.deciding)
        return self._amounts.items.seconds(sums_rb.T, self.component.count_b, decided=decided)

    def of_choices(self, domain: Domain) -> Factor | None:
        """Exact least total for each choice of schemes; None where there are too many choices."""
        of, scope = self.component, tuple([k for k in self.deciding if len(domain[k]) > 1])
        shape = tuple(len(domain[k]) for k in scope)
        choices, key = math.prod(shape), tuple([domain[k] for k in self.deciding])
        if not of.is_listed or choices * len(of.member_bk) > _EACH:
            return None
        if key in self._choices:
            return self._choices[key]
        scheme_k = [left[0] if len(left) == 1 else np.array(left) for left in domain]
        for k, place in zip(scope, np.indices(shape).reshape(len(scope), choices), strict=True):
            scheme_k[k] = np.array(domain[k])[place]
        differ = [not {*scope}.isdisjoint(self._items[i].scope) for i in self._paid]
        sums_rvb = self._zeros()[:, None]
        for i, differs in sorted(zip(self._paid, differ, strict=True), key=lambda pair: pair[1]):
            if differs and sums_rvb.shape[1] < choices:  # before these they are the same under all choices
                sums_rvb = np.repeat(sums_rvb, choices, axis=1)
            self._add(sums_rvb, i, self._amounts.table_i[i][tuple(scheme_k[k] for k in self._items[i].scope)])
        sums_br = sums_rvb.reshape(len(sums_rvb), -1).T
        price_b = self._amounts.items.seconds(sums_br, np.tile(of.count_b, choices), decided=True)
        self._choices[key] = Factor(scope, of.distances(price_b.reshape(choices, -1))[:, -1].reshape(shape))
        return self._choices[key]

    def _zeros(self) -> Floats:
        return np.zeros((len(self._amounts.items.resources), len(self.component.member_bk)))

    def _add(self, sums_rb: Floats, i: int, amount_pr: Floats) -> None:
        """Add what blocks pay of an item: between resources and blocks there may be an axis of choices."""
        pattern_b = self.component.pattern_b(self._items[i].inside)
        for r in self._amounts.resources_i[i].tolist():
            sums_rb[r] += amount_pr[..., r].take(pattern_b, axis=-1)
