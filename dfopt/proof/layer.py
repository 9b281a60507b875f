"""What the kernels of a layer take at least, whatever their partitions are, with the schemes that are left.

By paths: every block pays each item at the least over the schemes that are left, and the best blocks are a shortest
path. That sees what a block hides. A dual (:mod:`dfopt.proof.dual`) sees that one scheme is not the cheapest for all
tensors of a kernel.

Suffixes: k kernel, b block, r resource, c component, p pattern: which kernels of an item are in a block.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.documents.graph import Graph
from dfopt.documents.mapping import Mapping, Sharding
from dfopt.documents.plan import Plan
from dfopt.judge.items import LayerItems
from dfopt.physics.identity import Same
from dfopt.proof.blocks import Component, components_of
from dfopt.proof.dual import Domain, Duals
from dfopt.proof.weights import Weights

__all__ = ["LayerBounds"]


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
        return Duals(self.items, self.weights, self.components, self._patterns)

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
                seconds_c.append(self.weights.seconds(sums_cr[c]))
        return seconds_c

    def _of_component(self, c: int, domain: Domain) -> float:
        key = c, tuple(domain[k] for k in self._deciding[c])
        if key not in self._seconds:
            decided = all(len(left) == 1 for left in key[1])
            self._seconds[key] = self.components[c].least(self._prices(c, domain, decided=decided))
        return self._seconds[key]

    def _prices(self, c: int, domain: Domain, *, decided: bool) -> Floats:
        """Seconds of every block of a component at least."""
        of = self.components[c]
        sums_br = np.zeros((len(of.member_bk), len(self.items.resources)))
        for i, pattern_b in self._patterns[c]:
            sums_br += self._least_of(i, domain)[pattern_b]
        return self.items.seconds(sums_br, of.member_bk.sum(axis=1), decided=decided)

    def mapping(self, plan: Plan, domain: Domain) -> Mapping | None:
        """The mapping of shortest paths where every kernel has one scheme left; none if their blocks have no order.

        Nothing is known of what waits between its partitions, or of what is asked of their number.
        """
        prices = (self._prices(c, domain, decided=True) for c in range(len(self.components)))
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

    @cached_property
    def _patterns(self) -> list[list[tuple[int, Ints]]]:
        """By component the items that its blocks pay, with the pattern of each block."""
        patterns_c = []
        for of in self.components:
            mine = list[tuple[int, Ints]]()
            for i, item in enumerate(self.items.items):
                if set(item.inside) & set(of.kernels):
                    bits = 1 << np.arange(len(item.inside))
                    mine.append((i, of.member_bk[:, list(item.inside)].astype(np.int64) @ bits))
            patterns_c.append(mine)
        return patterns_c

    @cached_property
    def _deciding(self) -> list[list[int]]:
        """By component the kernels whose schemes decide what it pays."""
        items = self.items.items
        return [sorted({k for i, _ in patterns for k in items[i].scope}) for patterns in self._patterns]

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
    def work(self) -> int:
        """Units of work for a region: one, and one for every thousand blocks."""
        return 1 + sum(len(of.member_bk) for of in self.components) // 1000
