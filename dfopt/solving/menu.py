"""The figures of every kernel under each of its sharding schemes, and the stage that no sharding beats.

Suffix: o option of a kernel (a sharding scheme).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from dfopt.documents.mapping import Sharding
from dfopt.setting.instance import Instance
from dfopt.setting.reads import memoized
from dfopt.sharding.tables import InterChipTables, build, options_left
from dfopt.terms.charges import Term
from dfopt.terms.figures import Figures
from dfopt.terms.layer import Layer
from dfopt.terms.rules import LEAST_TERMS, TERMS, UNTILED
from dfopt.terms.rules.network import has_many_readers
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.sharded_graph import least_rows, tile_counts
from dfopt.terms.table import Domain, Table


@dataclass(frozen=True, eq=False)
class Menu:
    """Costs of all sharding options of a layer, before any scheme is chosen.

    Parameters
    ----------
    instance : Instance
        Graph, plan and system.
    pins : mapping
        Schemes that are fixed, by name of the kernel.

    Notes
    -----
    ``menu.layer.least`` has the least of every figure over the remaining schemes. Costs of blocks are non-decreasing in
    each figure, so no mapping under any of these schemes is faster than the best of that stage, and if nothing fits
    there, nothing fits at all. With one scheme left for every kernel it is exact.
    """

    instance: Instance
    pins: Mapping[str, Sharding]

    @cached_property
    def tables(self) -> InterChipTables:
        """Options, communication, layouts and conversions, in the form of the sharding MILP."""
        return build(self.instance, self.pins)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Key of all that the costs depend on in addition to the setting: degrees, and seconds over the dims."""
        layer, plan = self.figures.layer, self.instance.plan
        seconds = self.figures.network_o, *(layer.conversion(wanted)[0] for wanted in layer.wanted)
        degrees = tuple((share.axis.name, share.degree) for share in plan.axes)
        return degrees, plan.placement, *(part.tobytes() for part in seconds)

    @cached_property
    def is_listed(self) -> bool:
        """Whether all charges can be listed; False if a tensor has too many readers."""
        return not has_many_readers(self.figures.layer)

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        """All rules; where not all charges can be listed, conversions have what they take at least."""
        return TERMS if self.is_listed else LEAST_TERMS

    @cached_property
    def untiled(self) -> Table:
        """Table of the charges that do not depend on the number of tiles."""
        return Table.of(self.figures.layer, [term for term in self._terms if term in UNTILED])

    @memoized
    def priced(self, tiles: int) -> tuple[Layer, Table]:
        """The layer with ``tiles`` tiles, and its table of charges."""
        layer = self.figures.layer.at(tiles)
        return layer, Table.of(layer, self._terms)

    @cached_property
    def domain(self) -> Domain:
        """Options that pins leave to each kernel, as places among its own."""
        return options_left(self.figures.layer, self.pins)

    @cached_property
    def unshared(self) -> Domain:
        """By kernel, the options under which chips do not share the rows of a tile; may be empty."""
        shares_ko = self.figures.layer.shares_rows_ko
        pairs = zip(self.domain, shares_ko, strict=True)
        return tuple(tuple(o for o in left if not shares_o[o]) for left, shares_o in pairs)

    @cached_property
    def layer(self) -> LayerOptions:
        """The layer under all options, including those excluded by pins."""
        return LayerOptions.of(self.instance)

    @property
    def figures(self) -> Figures:
        """Figures of all options, including those excluded by pins."""
        return self.layer.figures

    def tiled(self, schemes: Mapping[str, Sharding]) -> Iterator[tuple[int, Domain]]:
        """Numbers of tiles that suit a sharding (scheme by kernel name), each with its options."""
        graph, layer = self.instance.graph, self.figures.layer
        scheme_k = [schemes[kernel.name] for kernel in graph.kernels]
        chosen = zip(self.domain, layer.schemes_k, scheme_k, strict=True)
        domain = tuple(tuple(o for o in left if of_kernel[o] == scheme) for left, of_kernel, scheme in chosen)
        for tiles in tile_counts(graph, self.instance.assumptions, least_rows(self.instance, scheme_k)):
            yield tiles, domain
