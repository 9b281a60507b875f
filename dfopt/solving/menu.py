"""The figures of every kernel under each of its sharding schemes, and the stage that no sharding beats.

Suffixes: o option (a kernel with one of its schemes), k kernel, t tensor (carried ones included), l layout (RR, SR,
RS).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.setting.instance import Instance
from dfopt.sharding.tables import InterChipTables
from dfopt.terms.figures import Figures
from dfopt.terms.layer import Layer
from dfopt.terms.rules import LEAST_TERMS, TERMS
from dfopt.terms.rules.network import has_many_readers
from dfopt.terms.sharded import LayerOptions
from dfopt.terms.sharded_graph import Bools, Ints, ShardedGraph, least_rows, tile_counts
from dfopt.terms.table import Domain, Table

__all__ = ["Menu"]


@dataclass(frozen=True, eq=False)
class Menu:
    """What the work of a chip costs before schemes are chosen.

    Parameters
    ----------
    instance : Instance
        Graph, plan and system.
    tables : InterChipTables
        Options, their communication, layouts and conversions.

    Notes
    -----
    :meth:`stage` takes the least of every figure over the schemes that are left. Prices of blocks grow with each of
    them, so no mapping under any of these schemes is faster than the best of that stage, and where nothing fits in it
    nothing fits at all. With one scheme left for every kernel it is exact.
    """

    instance: Instance
    tables: InterChipTables

    @cached_property
    def look(self) -> tuple[object, ...]:
        """What the work of a chip depends on beside the setting: degrees, and seconds on the dims."""
        tables, plan = self.tables, self.instance.plan
        network_o = self.figures.network_o[tables.place_o]
        seconds = (tables.network_o, network_o, tables.conversion_tll, tables.hop_tl)
        degrees = tuple((share.axis.name, share.degree) for share in plan.axes)
        return degrees, plan.placement, tables.scheme_o, *(part.tobytes() for part in seconds)

    @cached_property
    def is_listed(self) -> bool:
        """Whether all charges of a layer can be listed: not if a tensor has very many readers."""
        return not has_many_readers(self.figures.layer.at(1))

    @cached_property
    def _priced(self) -> dict[int, tuple[Layer, Table]]:
        return {}

    def priced(self, tiles: int | None = None) -> tuple[Layer, Table]:
        """The layer with so many tiles, or any number of them, and its table of charges.

        Where not all of them can be listed (:attr:`is_listed`), conversions have what they take at least.
        """
        if tiles is None:
            tiles = next(iter(self._priced), 1)
        if tiles not in self._priced:
            layer = self.figures.layer.at(tiles)
            self._priced[tiles] = layer, Table.of(layer, TERMS if self.is_listed else LEAST_TERMS)
        return self._priced[tiles]

    @cached_property
    def domain(self) -> Domain:
        """Options, from which pins have taken some, as places among those that kernels have in a layer."""
        return self.domain_of(np.ones(len(self.tables.kernel_o), dtype=bool))

    def domain_of(self, allowed_o: Bools) -> Domain:
        """Some of the options, at least one of every kernel, as places among those that kernels have in a layer."""
        left_ko = (self.tables.place_o[of[allowed_o[of]]] for of in self.tables.of_kernel)
        return tuple(tuple((o - first).tolist()) for o, first in zip(left_ko, self.figures.first_k, strict=True))

    def allowed(self, domain: Domain) -> Bools:
        """Which options a domain leaves: :meth:`domain_of` turned around."""
        pairs = zip(self.tables.of_kernel, self.figures.first_k, domain, strict=True)
        return np.concatenate([np.isin(self.tables.place_o[of] - first, left) for of, first, left in pairs])

    @cached_property
    def first_k(self) -> Ints:
        """First option of each kernel; those of one kernel lie together."""
        return np.searchsorted(self.tables.kernel_o, np.arange(self.tables.kernels)).astype(np.int64)

    @cached_property
    def layer(self) -> LayerOptions:
        """The layer under all options, those that pins have taken included."""
        return LayerOptions.of(self.instance)

    @cached_property
    def figures(self) -> Figures:
        """Figures of all options, those that pins have taken included."""
        return self.layer.figures

    def stage(self, allowed_o: Bools, tiles: int) -> ShardedGraph:
        """The layer with the least of every figure over some of the options.

        Parameters
        ----------
        allowed_o : bool array
            Options that are left, at least one of every kernel.
        tiles : int
            Tiles that the streamed axis is cut into.
        """
        every_o = np.zeros(len(self.figures.kernel_o), dtype=bool)
        every_o[self.tables.place_o[allowed_o]] = True
        return self.layer.least(every_o, tiles)

    @cached_property
    def shares_tiles(self) -> Bools:
        """Options under which chips share the rows of every tile."""
        kernels = self.instance.graph.kernels
        pairs = zip(self.tables.kernel_o.tolist(), self.tables.scheme_o, strict=True)
        return np.array([ops.splits_tiles(kernels[k], scheme) for k, scheme in pairs], dtype=bool)

    def tiled(self, schemes: Mapping[str, Sharding]) -> Iterator[tuple[int, Domain]]:
        """Numbers of tiles that go with a sharding, as schemes by name of kernels; each with these options alone."""
        graph = self.instance.graph
        scheme_k = [schemes[kernel.name] for kernel in graph.kernels]
        pairs = zip(self.tables.kernel_o.tolist(), self.tables.scheme_o, strict=True)
        chosen_o = np.array([scheme == scheme_k[k] for k, scheme in pairs], dtype=bool)
        for tiles in tile_counts(graph, self.instance.assumptions, least_rows(self.instance, scheme_k)):
            yield tiles, self.domain_of(chosen_o)
