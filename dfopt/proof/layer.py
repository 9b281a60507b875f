"""What the kernels of a layer take at least, whatever their partitions are, with the schemes that are left.

By paths: every block pays each item at the least over the schemes that are left, and the best blocks are a shortest
path. That sees what a block hides. A dual (:mod:`dfopt.proof.dual`) sees that one scheme is not the cheapest for all
tensors of a kernel.

Suffixes: k kernel, b block, r resource, c component, p pattern: which kernels of an item are in a block.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain

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
from dfopt.proof.prices import BlockBounds, ItemAmounts
from dfopt.proof.weights import Weights


class LayerBounds:
    """Lower bounds on the layers of one plan, with a given number of tiles, for any partitions.

    Parameters
    ----------
    items : LayerItems
        Cost items of blocks, from the judge.
    pins : dict, optional
        Schemes of kernels that are fixed, by name.
    component_lists : dict, optional
        Components of graphs on one system under one set of assumptions, which are kept there.
    """

    def __init__(
        self,
        items: LayerItems,
        pins: Dict[str, Sharding] | None = None,
        component_lists: dict[Same[Graph], list[Component]] | None = None,
    ) -> None:
        self.items, self._pins = items, pins or {}
        self._component_lists = {} if component_lists is None else component_lists

    @cached_property
    def components(self) -> list[Component]:
        """The components of the layer: sets of kernels that may share blocks."""
        graph = Same(self.items.graph)
        if graph not in self._component_lists:
            self._component_lists[graph] = components_of(self.items.graph, self.items.allowed, self.key_k)
        return self._component_lists[graph]

    @cached_property
    def duals(self) -> Duals:
        """Lagrangean bounds from weighted sums of resources."""
        return Duals(self.items, self.weights, [*chain(*(of.parts for of in self.components))])

    @cached_property
    def weights(self) -> Weights:
        """Weights of the resources that take time, for the duals."""
        return Weights(self.items)

    @cached_property
    def key_k(self) -> list[tuple[int, bool]]:
        """By kernel its kind of layer, and whether it is in the forward pass.

        Where blocks have kernels of both passes, all count as of the forward pass.
        """
        graph, mixed = self.items.graph, self.items.mixes_passes
        kinds = (graph.kind_of(kernel) if graph.folded else 0 for kernel in graph.kernels)
        return [(kind, mixed or kernel.pass_ == "forward") for kind, kernel in zip(kinds, graph.kernels, strict=True)]

    @cached_property
    def domain(self) -> Domain:
        """All schemes of all kernels, restricted by pins."""
        pairs = zip(self.items.graph.kernels, self.items.schemes_k, strict=True)
        return tuple(
            tuple(o for o, scheme in enumerate(schemes) if self._pins.get(kernel.name, scheme) == scheme)
            for kernel, schemes in pairs
        )

    def own(self) -> dict[tuple[int, bool], float]:
        """Lower bound on the seconds of each pass and kind of layer, from every kernel separately."""
        sum_of = dict[tuple[int, bool], Floats]()
        for key, own_zr in zip(self.key_k, self.items.own_kz, strict=True):
            least_r = own_zr[:, [*self.weights.time]].min(axis=0) * [*self.weights.time.values()]
            sum_of[key] = sum_of.get(key, 0.0) + least_r
        return dict(zip(sum_of, self.weights.seconds(np.array([*sum_of.values()])).tolist(), strict=True))

    # -- paths ------------------------------------------------------------------------------------------------------

    def seconds(self, domain: Domain) -> list[float]:
        """Path bound on the seconds of every component; infinite where no blocks fit.

        For a component whose blocks are not listed, each resource is bounded separately.
        """
        alone_c = [] if all(of.is_listed for of in self.components) else self.alone(domain)
        pairs = enumerate(zip(self.components, self._prices, strict=True))
        return [prices.least(domain) if of.is_listed else alone_c[c] for c, (of, prices) in pairs]

    def alone(self, domain: Domain) -> list[float]:
        """Bound on the seconds of every component, each resource minimized alone: cheaper than the path bound."""
        sums_pr, part_k = self.duals.least_sums(domain), self.duals.component_k
        seconds_p = self.weights.seconds(sums_pr).tolist()
        return [math.fsum(seconds_p[part] for part in {part_k[k] for k in of.kernels}) for of in self.components]

    def mapping(self, plan: Plan, domain: Domain) -> Mapping | None:
        """The mapping of the shortest paths, with one scheme for every kernel; None if its blocks have no order.

        Neither the tensors that wait between its partitions nor limits on their number are checked.
        """
        prices = (each.seconds(domain) for each in self._prices)
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
        """Exact seconds of some components for each choice of schemes; None where there are too many choices."""
        factors = list[Factor]()
        for c in components:
            if (factor := self._prices[c].of_choices(domain)) is None:
                return None
            factors.append(factor)
        return Elimination(factors, [len(left) for left in domain])

    def within(self, domain: Domain, most_c: Sequence[float]) -> LayerBounds:
        """Bounds for mappings whose components take less than ``most_c``: only blocks on such paths remain.

        Parameters
        ----------
        domain : Domain
            Schemes that are left.
        most_c : s
            Upper limit of each component's seconds, above its lower bound.
        """
        triples = zip(self.components, self._prices, most_c, strict=True)
        smaller = [of.within(prices.seconds(domain), most) if of.is_listed else of for of, prices, most in triples]
        return self if smaller == self.components else self._of(smaller)

    def with_few_blocks(self, most: int) -> int | None:
        """The kernel with the fewest blocks, to branch on; None if all components are larger or decided.

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
        """Branch on a kernel: bounds for the mappings with each of its blocks."""
        c = next(c for c, of in enumerate(self.components) if kernel in of.kernels)
        each = self.components[c].with_each(kernel)
        return [self._of([*self.components[:c], some, *self.components[c + 1 :]]) for some in each]

    def _of(self, components: list[Component]) -> LayerBounds:
        """The same with other blocks of the same kernels: all that does not depend on blocks is shared."""
        result = copy.copy(self)
        result.__dict__.pop("duals", None)
        result.components = components
        result._prices = [prices.among(of) for prices, of in zip(self._prices, components, strict=True)]
        return result

    @cached_property
    def _prices(self) -> list[BlockBounds]:
        """By component what its blocks pay and take."""
        return [BlockBounds(of, self._amounts) for of in self.components]

    @cached_property
    def _amounts(self) -> ItemAmounts:
        return ItemAmounts(self.items)

    # -- dominance --------------------------------------------------------------------------------------------------

    def replaces(self, k: int, o: int, other: int, domain: Domain) -> bool:
        """Whether scheme ``o`` of kernel ``k`` dominates scheme ``other``: no block ever pays more.

        Parameters
        ----------
        k, o, other : int
            Kernel, and two of its schemes.
        domain : Domain
            Schemes left to all kernels.
        """
        if self.items.time.by_bytes:  # more bytes may take less time
            return False
        for i in self._of_kernel[k]:
            scope = self.items.items[i].scope
            axis = scope.index(k)
            left = [domain[each] for each in scope]
            table = self._amounts.table_i[i]
            amounts, others = (table[np.ix_(*left[:axis], (place,), *left[axis + 1 :])] for place in (o, other))
            if (amounts > others).any():
                return False
        return True

    @cached_property
    def _of_kernel(self) -> list[list[int]]:
        """By kernel the items that its scheme decides."""
        items = self.items.items
        return [[i for i, item in enumerate(items) if k in item.scope] for k in range(len(self.items.graph.kernels))]

    @property
    def blocks(self) -> int:
        """Total number of blocks over all components."""
        return sum(len(of.member_bk) for of in self.components)
