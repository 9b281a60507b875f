"""What the kernels of a layer take at least, whatever their partitions are, with the schemes that are left.

By paths: every block pays each item at the least over the schemes that are left, and the best blocks are a shortest
path. That sees what a block hides. A dual (:mod:`dfopt.proof.dual`) sees that one scheme is not the cheapest for all
tensors of a kernel.

Suffixes: k kernel, b block, r resource, c component, p pattern: which kernels of an item are in a block.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.judge.items import LayerItems
from dfopt.physics.identity import Same
from dfopt.proof.blocks import Component, components_of
from dfopt.proof.dual import Domain, Duals
from dfopt.proof.factors import Elimination, Factor
from dfopt.proof.weights import Weights

__all__ = ["LayerBounds"]

_EACH: Final = 50_000
"""Blocks of a component under all choices of schemes, at most, for which each is priced."""


class LayerBounds:
    """Bounds of the layers of one plan, in one number of tiles.

    Parameters
    ----------
    items : LayerItems
        What blocks pay, by the judge.
    pins : dict, optional
        Schemes of kernels that are fixed, by name.
    known : dict, optional
        Components of graphs on one system under one set of assumptions, which are kept there.
    """

    def __init__(
        self,
        items: LayerItems,
        pins: Dict[str, Sharding] | None = None,
        known: dict[Same[Graph], list[Component]] | None = None,
    ) -> None:
        self.items, self._pins, self._known = items, pins or {}, {} if known is None else known
        self._least = dict[tuple[int, Domain], Floats]()
        self._seconds = dict[tuple[int, Domain], float]()

    @cached_property
    def components(self) -> list[Component]:
        """Kernels that may share blocks."""
        graph = Same(self.items.graph)
        if graph not in self._known:
            self._known[graph] = components_of(self.items.graph, self.items.allowed, self.key_k)
        return self._known[graph]

    @cached_property
    def duals(self) -> Duals:
        """Bounds by weighted sums of resources."""
        return Duals(self.items, self.weights, [*chain(*(of.parts for of in self.components))])

    @cached_property
    def weights(self) -> Weights:
        """Weights of the resources that take time."""
        return Weights(self.items)

    @cached_property
    def key_k(self) -> list[tuple[int, bool]]:
        """By kernel the kind of layer that it belongs to, and whether to the forward pass: where blocks have kernels of
        both passes, all count as of that one."""
        graph, mixed = self.items.graph, self.items.mixes_passes
        kinds = (graph.kind_of(kernel) if graph.folded else 0 for kernel in graph.kernels)
        return [(kind, mixed or kernel.pass_ == "forward") for kind, kernel in zip(kinds, graph.kernels, strict=True)]

    @cached_property
    def domain(self) -> Domain:
        """All schemes of all kernels, but for those that pins leave out."""
        pairs = zip(self.items.graph.kernels, self.items.schemes_k, strict=True)
        return tuple(
            tuple(o for o, scheme in enumerate(schemes) if self._pins.get(kernel.name, scheme) == scheme)
            for kernel, schemes in pairs
        )

    def own(self) -> dict[tuple[int, bool], float]:
        """Seconds of the passes of every kind of layer at least, by what each kernel does whatever others do."""
        sums = dict[tuple[int, bool], Floats]()
        for key, own_zr in zip(self.key_k, self.items.own_kz, strict=True):
            least_r = own_zr[:, [*self.weights.time]].min(axis=0) * [*self.weights.time.values()]
            sums[key] = sums.get(key, 0.0) + least_r
        return {key: self.weights.seconds(sum_r) for key, sum_r in sums.items()}

    # -- paths ------------------------------------------------------------------------------------------------------

    def seconds(self, domain: Domain) -> list[float]:
        """Seconds of every component at least, by paths; infinite where it fits no blocks.

        Of one whose blocks are not listed, by each resource for itself.
        """
        sums_cr = None if all(of.is_listed for of in self.components) else self.duals.least_sums(domain)
        seconds_c = []
        for c, of in enumerate(self.components):
            if of.is_listed:
                seconds_c.append(self._of_component(c, domain))
            else:
                assert sums_cr is not None
                seconds_c.append(self.weights.seconds(sums_cr[self.duals.component_k[of.kernels[0]]]))
        return seconds_c

    def _of_component(self, c: int, domain: Domain) -> float:
        key = c, tuple(domain[k] for k in self._deciding[c])
        if key not in self._seconds:
            self._seconds[key] = self.components[c].least(self._price_b(c, domain))
        return self._seconds[key]

    def _price_b(self, c: int, domain: Domain) -> Floats:
        """Seconds of the blocks of a component at least."""
        of = self.components[c]
        sums_rb = np.zeros((len(self.items.resources), len(of.member_bk)))
        for inside, numbers in self._paid[c].items():
            least_pr = sum((self._least_of(i, domain) for i in numbers), start=np.zeros(()))
            for r in np.flatnonzero(least_pr.any(axis=0)).tolist():
                sums_rb[r] += least_pr[:, r].take(of.pattern_b(inside))
        decided = all(len(domain[k]) == 1 for k in self._deciding[c])
        return self.items.seconds(sums_rb.T, of.count_b, decided=decided)

    def mapping(self, plan: Plan, domain: Domain) -> Mapping | None:
        """The mapping of shortest paths where every kernel has one scheme left; none if their blocks have no order.

        Nothing is known of what waits between its partitions, or of what is asked of their number.
        """
        prices = (self._price_b(c, domain) for c in range(len(self.components)))
        pairs = zip(self.components, prices, strict=True)
        blocks = [block for component, price_b in pairs for block in component.shortest(price_b)]
        block_k = {k: number for number, block in enumerate(blocks) for k in block}
        index, kernels = self.items.graph.index(), self.items.graph.kernels
        order = TopologicalSorter[int]({number: () for number in range(len(blocks))})
        for tensor in self.items.graph.tensors:
            before, after = block_k[index[tensor.src]], block_k[index[tensor.dst]]
            if before != after:
                order.add(after, before)
        try:
            order.prepare()
        except CycleError:
            return None
        ready, place_of = list[int](), dict[int, int]()
        while order.is_active():  # forward passes come first, as far as they can
            ready += order.get_ready()
            first = min(ready, key=lambda number: sum(kernels[k].pass_ != "forward" for k in blocks[number]))
            ready.remove(first)
            place_of[first] = len(place_of)
            order.done(first)
        partition_k = [place_of[block_k[k]] for k in range(len(block_k))]
        return self.items.mapping(plan, [left[0] for left in domain], partition_k)

    def each(self, domain: Domain, components: Sequence[int]) -> Elimination | None:
        """Seconds of some components under each choice of schemes, exactly; nothing where these are too many."""
        factors = list[Factor]()
        for c in components:
            scope = tuple(k for k in self._deciding[c] if len(domain[k]) > 1)
            choices = math.prod(len(domain[k]) for k in scope)
            if not self.components[c].is_listed or choices * len(self.components[c].member_bk) > _EACH:
                return None
            factors.append(Factor(scope, self._each(c, scope, domain)))
        return Elimination(factors, [len(left) for left in domain])

    def _each(self, c: int, scope: tuple[int, ...], domain: Domain) -> Floats:
        """Seconds of a component under each choice for some kernels: an axis for each of these."""
        of, shape = self.components[c], tuple(len(domain[k]) for k in scope)
        choices = math.prod(shape)
        scheme_k = [left[0] if len(left) == 1 else np.array(left) for left in domain]
        for k, place in zip(scope, np.indices(shape).reshape(len(scope), choices), strict=True):
            scheme_k[k] = np.array(domain[k])[place]
        sums_rvb = np.zeros((len(self.items.resources), choices, len(of.member_bk)))
        for inside, numbers in self._paid[c].items():
            amount_vpr = np.zeros((1, 2 ** len(inside), len(sums_rvb)))
            for i in numbers:  # the same under all choices where none is left
                amount_vpr = amount_vpr + self._tables[i][tuple(scheme_k[k] for k in self.items.items[i].scope)]
            for r in np.flatnonzero(amount_vpr.any(axis=(0, 1))).tolist():
                sums_rvb[r] += amount_vpr[..., r].take(of.pattern_b(inside), axis=1)
        sums_br = sums_rvb.reshape(len(sums_rvb), -1).T
        price_b = self.items.seconds(sums_br, np.tile(of.count_b, choices), decided=True)
        return of.distances(price_b.reshape(choices, -1))[:, -1].reshape(shape)

    def within(self, domain: Domain, most_c: Sequence[float]) -> LayerBounds:
        """The same for mappings of which every component takes less than so many seconds: with blocks of these only.

        Parameters
        ----------
        domain : Domain
            Schemes that are left.
        most_c : s
            By component, above what it takes at least.
        """
        pairs = enumerate(zip(self.components, most_c, strict=True))
        smaller = [of.within(self._price_b(c, domain), most) if of.is_listed else of for c, (of, most) in pairs]
        return self if smaller == self.components else self._of(smaller)

    def with_few_blocks(self, most: int) -> int | None:
        """The kernel with the fewest blocks; none where no component has so few, or there is but one of each.

        Parameters
        ----------
        most : int
            Number of blocks of a component.
        """
        counts = [
            (int(count), c, k)
            for c, of in enumerate(self.components)
            if len(of.member_bk) <= most
            for k, count in enumerate(of.member_bk.sum(axis=0))
            if count > 1
        ]
        return min(counts)[2] if counts else None

    def by_blocks(self, kernel: int) -> list[LayerBounds]:
        """The same for mappings with each block of a kernel."""
        c = next(c for c, of in enumerate(self.components) if kernel in of.kernels)
        each = self.components[c].with_each(kernel)
        return [self._of([*self.components[:c], some, *self.components[c + 1 :]]) for some in each]

    def _of(self, components: list[Component]) -> LayerBounds:
        """The same with other blocks of the same kernels: all that does not depend on blocks is shared."""
        result = copy.copy(self)
        result.__dict__.pop("duals", None)
        result.components, result._seconds = components, {}
        return result

    @cached_property
    def _paid(self) -> list[dict[tuple[int, ...], list[int]]]:
        """By component the items that its blocks pay, by the kernels that decide how much by being in a block."""
        paid_c = []
        for of in self.components:
            numbers = defaultdict[tuple[int, ...], list[int]](list)
            for i, item in enumerate(self.items.items):
                if not {*of.kernels}.isdisjoint(item.inside):
                    numbers[item.inside].append(i)
            paid_c.append(dict(numbers))
        return paid_c

    @cached_property
    def _deciding(self) -> list[list[int]]:
        """By component the kernels whose schemes decide what it pays."""
        items = self.items.items
        return [sorted({k for i in chain(*paid.values()) for k in items[i].scope}) for paid in self._paid]

    def _least_of(self, i: int, domain: Domain) -> Floats:
        """What an item adds at least to a block, by pattern: shape (patterns, resources)."""
        item = self.items.items[i]
        left = tuple(domain[k] for k in item.scope)
        if (i, left) not in self._least:
            self._least[i, left] = self.items.table(item)[np.ix_(*left)].min(axis=tuple(range(len(left))))
        return self._least[i, left]

    # -- dominance --------------------------------------------------------------------------------------------------

    def replaces(self, k: int, o: int, other: int, domain: Domain) -> bool:
        """Whether no block pays more where a kernel has a scheme and not another, whatever is left of all others."""
        if self.items.time.by_bytes:  # more bytes may take less time
            return False
        for i in self._of_kernel[k]:
            scope = self.items.items[i].scope
            axis = scope.index(k)
            left = [domain[each] for each in scope]
            mine, theirs = (self._tables[i][np.ix_(*left[:axis], (place,), *left[axis + 1 :])] for place in (o, other))
            if (mine > theirs).any():
                return False
        return True

    @cached_property
    def _of_kernel(self) -> list[list[int]]:
        """By kernel the items that its scheme decides."""
        items = self.items.items
        return [[i for i, item in enumerate(items) if k in item.scope] for k in range(len(self.items.graph.kernels))]

    @cached_property
    def _tables(self) -> list[Floats]:
        return [self.items.table(item) for item in self.items.items]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return sum(len(of.member_bk) for of in self.components)
