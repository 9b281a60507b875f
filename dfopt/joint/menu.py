"""The figures of every kernel under each of its sharding schemes, and the stage that no sharding beats.

Suffixes: o option (a kernel with one of its schemes), k kernel, t tensor (carried ones included), g fan-out group,
e end (bytes that a kernel moves to or from DRAM whatever its partition), l layout (RR, SR, RS).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dfopt.documents.mapping import Sharding
from dfopt.physics import ops
from dfopt.physics.efficiency import memory_rows
from dfopt.setting.conversions import LAYOUTS, overhead_of_kernels
from dfopt.setting.instance import Instance
from dfopt.setting.ledger import saved_bytes
from dfopt.setting.tables import Bools, Floats, Ints, ShardedGraph, boundary, shard, with_tiles
from dfopt.sharding.tables import InterChipTables
from dfopt.terms.chip import Chip, chip_of
from dfopt.terms.layer import Layer
from dfopt.terms.rules import TERMS
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
    nothing fits at all. With one scheme left for every kernel it is what :func:`dfopt.setting.tables.shard` makes.
    """

    instance: Instance
    tables: InterChipTables

    @cached_property
    def look(self) -> tuple[object, ...]:
        """What the work of a chip depends on beside the setting: degrees, and seconds on the dims."""
        tables, plan = self.tables, self.instance.plan
        seconds = (tables.network_o, self.network_o, tables.conversion_tll, tables.hop_tl)
        degrees = tuple((share.axis.name, share.degree) for share in plan.axes)
        return degrees, plan.placement, tables.scheme_o, *(part.tobytes() for part in seconds)

    @cached_property
    def _priced(self) -> dict[int, tuple[Layer, Table]]:
        return {}

    def priced(self, tiles: int | None = None) -> tuple[Layer, Table]:
        """The layer with so many tiles, or any number of them, and its table of charges."""
        if tiles is None:
            tiles = next(iter(self._priced), 1)
        if tiles not in self._priced:
            layer = Layer(self.instance, tiles)
            self._priced[tiles] = layer, Table.of(layer, TERMS)
        return self._priced[tiles]

    @cached_property
    def domain(self) -> Domain:
        """Options, from which pins have taken some, as places among those that kernels have in a layer."""
        layer, _ = self.priced()
        options = zip(layer.schemes_k, self.tables.of_kernel, strict=True)
        return tuple(tuple(schemes.index(self.tables.scheme_o[o]) for o in left) for schemes, left in options)

    @cached_property
    def first_k(self) -> Ints:
        """First option of each kernel; those of one kernel lie together."""
        return np.searchsorted(self.tables.kernel_o, np.arange(self.tables.kernels)).astype(np.int64)

    @cached_property
    def number_o(self) -> Ints:
        """Number of each option among those of its kernel."""
        return np.arange(len(self.tables.kernel_o)) - self.first_k[self.tables.kernel_o]

    @cached_property
    def rounds(self) -> tuple[tuple[Sharding, ...], ...]:
        """Shardings in which every scheme of every kernel occurs: the first of each kernel, the second, and so on."""
        counts = np.diff(np.append(self.first_k, len(self.tables.kernel_o)))
        picked = (self.first_k + np.minimum(number, counts - 1) for number in range(int(counts.max())))
        return tuple(tuple(self.tables.scheme_o[o] for o in options) for options in picked)

    @cached_property
    def sharded(self) -> tuple[ShardedGraph, ...]:
        """The layer under each of :attr:`rounds`: what depends on a kernel's own scheme is taken from here."""
        names = [kernel.name for kernel in self.instance.graph.kernels]
        picked = (dict(zip(names, schemes, strict=True)) for schemes in self.rounds)
        return tuple(shard(self.instance, sharding, alone=True) for sharding in picked)

    @cached_property
    def _known(self) -> dict[str, Floats]:
        return {}

    def by_option(self, name: str) -> Floats:
        """A figure of kernels, for each of their options."""
        if name not in self._known:
            figures = np.stack([getattr(one, name) for one in self.sharded])
            self._known[name] = np.asarray(figures[self.number_o, self.tables.kernel_o])
        return self._known[name]

    @cached_property
    def ends(self) -> tuple[Ints, Ints, Bools, Floats]:
        """Of every end: the kernel that moves it, that whose scheme decides, whether it is written; bytes by option."""
        listed = [list(boundary(self.instance, schemes)) for schemes in self.rounds]
        kernel_e = np.array([end.kernel for end in listed[0]], dtype=np.int64)
        of_e = np.array([end.of for end in listed[0]], dtype=np.int64)
        write_e = np.array([end.write for end in listed[0]], dtype=bool)
        bytes_je = np.array([[end.bytes for end in ends] for ends in listed]).reshape(len(listed), -1)
        return kernel_e, of_e, write_e, np.asarray(bytes_je[self.number_o])

    def buffer_e(self, tiles: int) -> Floats:
        """Share of every end that is buffered in SRAM: two tiles."""
        ends = boundary(self.instance, self.rounds[0])
        return 2.0 * np.array([end.tile_share(self.instance.graph, tiles) for end in ends], dtype=float)

    @cached_property
    def full_t(self) -> Floats:
        """Bytes of every tensor, whole."""
        graph = self.instance.graph
        return np.array([graph.bytes_of(tensor) for tensor in graph.tensors], dtype=float)

    @cached_property
    def own_bytes_o(self) -> Floats:
        """DRAM bytes of each option beside those of its ends."""
        return self._without_ends("mem_k")

    @cached_property
    def own_accessed_o(self) -> Floats:
        """SRAM traffic of each option beside that of tensors and ends."""
        return self._without_ends("accessed_k")

    @cached_property
    def saved_o(self) -> Floats:
        """Bytes on a chip of what the backward pass needs of each option's output."""
        found = np.stack([saved_bytes(one) for one in self.sharded])
        return np.asarray(found[self.number_o, self.tables.kernel_o])

    def _without_ends(self, name: str) -> Floats:
        found = np.stack([getattr(one, name) for one in self.sharded]) - self._ends_jk
        return np.asarray(found[self.number_o, self.tables.kernel_o])

    @cached_property
    def _ends_jk(self) -> Floats:
        """Bytes of the ends of each kernel under each of :attr:`rounds`."""
        moved = ([end.bytes for end in boundary(self.instance, schemes)] for schemes in self.rounds)
        return np.stack([np.bincount(self.ends[0], ends, self.tables.kernels) for ends in moved])

    def least(self, figure_o: Floats, allowed_o: Bools) -> Floats:
        """The least of a figure over the options that are left, by kernel."""
        return np.asarray(np.minimum.reduceat(np.where(allowed_o, figure_o, np.inf), self.first_k))

    def beyond(self, figure_o: Floats, allowed_o: Bools) -> Floats:
        """What each option has of a figure beside the least of its kernel."""
        return figure_o - self.least(figure_o, allowed_o)[self.tables.kernel_o]

    def conversions(self, allowed_o: Bools) -> Floats:
        """Seconds by group and produced layout that no choice of its readers avoids.

        What readers whose schemes all need one layout have converted together, or with one of the others more.
        """
        tables = self.tables
        found = np.zeros((int(tables.group_t.max(initial=-1)) + 1, len(LAYOUTS)))
        for g in range(len(found)):
            paid = np.flatnonzero((tables.group_t == g) & ~tables.again_t)
            for bill in np.unique(tables.bill_t[paid]).tolist():
                found[g] += self._bill(paid[tables.bill_t[paid] == bill], allowed_o)
        return found

    def _bill(self, paid: Ints, allowed_o: Bools) -> Floats:
        """The same of tensors that are converted together, by produced layout."""
        tables, sure, others = self.tables, 0, list[list[int]]()
        for t in paid.tolist():
            layout_o = tables.required_to[t]
            asks = set((1 << layout_o[allowed_o & (layout_o >= 0)]).tolist())
            if len(asks) == 1:
                sure |= asks.pop()
            else:
                others.append(sorted(asks))
        seconds_ls = tables.conversion_tls[paid[0]]
        more = [seconds_ls[:, [sure | one for one in asks]].min(axis=1) for asks in others]
        return np.asarray(np.max([seconds_ls[:, sure], *more], axis=0))

    def tolls(self, allowed_o: Bools) -> tuple[Floats, Bools]:
        """What blocks that read a saved tensor pay at least, as steps that add up to the most of their readers."""
        tables = self.tables
        toll_x, payers_xk = [], []
        for bill in np.unique(tables.group_t[tables.again_t]).tolist():
            read = np.flatnonzero((tables.group_t == bill) & tables.again_t)
            makes = np.unique(tables.produced_o[(tables.kernel_o == tables.src_t[read[0]]) & allowed_o])
            least_k = np.zeros(tables.kernels)
            for t in read.tolist():
                asks = tables.required_to[t, allowed_o]
                seconds = tables.conversion_tls[t][makes][:, 1 << asks[asks >= 0]].min()
                least_k[tables.dst_t[t]] = max(least_k[tables.dst_t[t]], seconds)
            steps = np.unique(np.append(least_k, 0.0))
            for low, high in itertools.pairwise(steps):
                toll_x.append(high - low)
                payers_xk.append(least_k >= high)
        chosen = self.instance.assumptions
        if chosen.kernel_overhead and not overhead_of_kernels(chosen):
            toll_x.append(chosen.kernel_overhead)
            payers_xk.append(np.ones(tables.kernels, dtype=bool))
        return np.array(toll_x), np.array(payers_xk, dtype=bool).reshape(len(toll_x), tables.kernels)

    @cached_property
    def network_o(self) -> Floats:
        """Seconds of communication of each option, without the conversions of its output."""
        of_options = zip(self.tables.kernel_o.tolist(), self.by_option("gradient_k").tolist(), strict=True)
        amortized = [self.instance.amortized_gradient_s(k, volume) for k, volume in of_options]
        return np.asarray(self.tables.network_o + np.array(amortized))

    def network_k(self, allowed_o: Bools) -> Floats:
        """Seconds of communication of each kernel, with the conversions of its outputs, at least."""
        tables = self.tables
        seconds_o = self.network_o.copy()
        src_g = np.zeros(int(tables.group_t.max(initial=-1)) + 1, dtype=np.int64)
        src_g[tables.group_t] = tables.src_t
        for src, cost_l in zip(src_g, self.conversions(allowed_o), strict=True):
            mine = tables.kernel_o == src
            seconds_o[mine] += cost_l[tables.produced_o[mine]]
        return self.least(seconds_o, allowed_o)

    def stage(self, allowed_o: Bools, tiles: int) -> ShardedGraph:
        """The layer with the least of every figure over some of the options.

        Parameters
        ----------
        allowed_o : bool array
            Options that are left, at least one of every kernel.
        tiles : int
            Tiles that the streamed axis is cut into.
        """
        first = self.sharded[0]
        output_k = self.least(self.by_option("output_k"), allowed_o)
        mem_k, between_k = self.least(self.own_bytes_o, allowed_o), np.zeros(self.tables.kernels)
        accessed_k = self.least(self.own_accessed_o, allowed_o)
        fixed_buffer_k = np.zeros(self.tables.kernels)
        kernel_e, of_e, write_e, bytes_oe = self.ends
        for e, buffer in enumerate(self.buffer_e(tiles).tolist()):
            mine = (self.tables.kernel_o == of_e[e]) & allowed_o
            size = float(bytes_oe[mine, e].min())
            mem_k[kernel_e[e]] += size
            accessed_k[kernel_e[e]] += size
            between_k[kernel_e[e]] += 0.0 if write_e[e] else size
            fixed_buffer_k[kernel_e[e]] += buffer * size
        b_t = self.full_t * output_k[first.src_t]
        tile_k = self.tile_k(tiles)
        toll_x, payers_xk = self.tolls(allowed_o)
        return replace(
            first,
            compute_k=self.least(self.by_option("compute_k"), allowed_o),
            stationary_k=self.least(self.by_option("stationary_k"), allowed_o),
            weight_k=self.least(self.by_option("weight_k"), allowed_o),
            read_k=self.least(self.by_option("read_k"), allowed_o),
            cached_k=self.least(self.by_option("cached_k"), allowed_o),
            mem_k=mem_k,
            accessed_k=accessed_k,
            fixed_buffer_k=fixed_buffer_k,
            net_k=self.network_k(allowed_o),
            b_t=b_t,
            moved_t=b_t * (self.instance.assumptions.operand_traffic is None),
            tile_t=b_t * tile_k[first.src_t],
            menus=self._menus(allowed_o, tiles) if first.menus else (),
            tile_count=tiles,
            output_k=output_k,
            kept_k=self.least(self.by_option("kept_k"), allowed_o),
            working_k=self.least(self.by_option("working_k"), allowed_o),
            gradient_k=self.least(self.by_option("gradient_k"), allowed_o),
            added_k=self.least(self.by_option("added_k"), allowed_o),
            between_k=between_k,
            toll_x=toll_x,
            sent_x=np.zeros_like(toll_x),
            payers_xk=payers_xk,
        )

    def tile_k(self, tiles: int) -> Floats:
        """Share of each kernel's output in one of so many tiles."""
        return np.array([ops.tile_share(kernel, tiles) for kernel in self.instance.graph.kernels])

    @cached_property
    def slower(self) -> Chip | None:
        """The chip as it is where its memory is slower when few bytes are moved, which bounds leave out."""
        system, assumptions = self.instance.system, self.instance.assumptions
        return chip_of(system, assumptions) if memory_rows(system.chip, assumptions) else None

    @cached_property
    def shares_tiles(self) -> Bools:
        """Options under which chips share the rows of every tile."""
        kernels = self.instance.graph.kernels
        pairs = zip(self.tables.kernel_o.tolist(), self.tables.scheme_o, strict=True)
        return np.array([ops.splits_tiles(kernels[k], scheme) for k, scheme in pairs], dtype=bool)

    def options_of(self, schemes: Mapping[str, Sharding]) -> Ints:
        """The option of every kernel that has the scheme given for its name."""
        pairs = zip(self.instance.graph.kernels, self.tables.of_kernel, strict=True)
        picked = [next(o for o in of if self.tables.scheme_o[o] == schemes[kernel.name]) for kernel, of in pairs]
        return np.array(picked, dtype=np.int64)

    def own_ends(self, allowed_o: Bools, tiles: int) -> tuple[Floats, Floats]:
        """What inputs and outputs of the graph move: DRAM bytes, SRAM bytes of buffers, bytes that are read.

        Returns
        -------
        (by option, least by kernel)
            Both with three columns. The least is that of each end for itself, as in :meth:`stage`.
        """
        _, of_e, write_e, bytes_oe = self.ends
        inner = np.arange(len(of_e)) >= 2 * len(self.instance.graph.carried)
        mine_oe = np.where(inner & (of_e == self.tables.kernel_o[:, None]), bytes_oe, 0.0)
        least_ke = np.minimum.reduceat(np.where(allowed_o[:, None], mine_oe, np.inf), self.first_k, axis=0)
        weights_e = np.stack([np.ones(len(of_e)), self.buffer_e(tiles), ~write_e], axis=1).reshape(len(of_e), 3)
        return mine_oe @ weights_e, least_ke @ weights_e

    def undominated(self, among_o: Bools) -> Bools:
        """Of some options those that no other one of them, of the same kernel, replaces at no cost whatever else is.

        Looked at are kernels whose output nobody reads, such as weight updates: one of their schemes is as good as
        another if no figure is larger, and if it asks for each input as the other does, or for what is there anyway.
        """
        tables = self.tables
        kept = among_o.copy()
        if self.sharded[0].menus:  # two menus of compute tiles are rarely comparable
            return kept
        names: tuple[str, ...] = (
            "compute_k",
            "stationary_k",
            "weight_k",
            "cached_k",
            "kept_k",
            "working_k",
            "mem_k",
            "output_k",
            "gradient_k",
            "between_k",
        )
        if self.instance.system.chip.sram.bandwidth is not None:
            names += ("accessed_k",)
        figures = np.stack([self.network_o, *(self.by_option(name) for name in names)], axis=1)
        bound = {*tables.src_t.tolist(), *(k for pair in tables.partial_kk for k in pair)}
        produced_kl = np.zeros((tables.kernels, len(LAYOUTS)), dtype=bool)
        produced_kl[tables.kernel_o, tables.produced_o] = True
        # [t, l]: whether a reader gets layout l for nothing, whatever the source does
        free_tl = np.all(~produced_kl[tables.src_t][:, :, None] | (tables.conversion_tll <= 0), axis=1)
        for k in set(range(tables.kernels)) - bound:
            mine = np.flatnonzero((tables.kernel_o == k) & among_o)
            for o in mine.tolist():
                for other in mine[kept[mine] & (mine != o)].tolist():
                    read = np.flatnonzero(tables.dst_t == k)
                    asks, instead = tables.required_to[read, o], tables.required_to[read, other]
                    as_cheap = (asks == instead) | free_tl[read, instead]
                    if as_cheap.all() and (figures[other] <= figures[o]).all():
                        kept[o] = False
                        break
        return kept

    def menu_o(self, tiles: int) -> list[tuple[Ints, Floats]]:
        """Compute tiles and seconds of every option, under the cycle model."""
        names = [kernel.name for kernel in self.instance.graph.kernels]
        cut = [
            with_tiles(one, self.instance, dict(zip(names, schemes, strict=True)), tiles).menus
            for one, schemes in zip(self.sharded, self.rounds, strict=True)
        ]
        return [cut[j][k] for j, k in zip(self.number_o, self.tables.kernel_o, strict=True)]

    def _menus(self, allowed_o: Bools, tiles: int) -> tuple[tuple[Ints, Floats], ...]:
        """Compute tiles and seconds that some option that is left reaches, without those that another one beats."""
        menu_o, found = self.menu_o(tiles), []
        for k in range(self.tables.kernels):
            mine = np.flatnonzero((self.tables.kernel_o == k) & allowed_o)
            used, seconds = (np.concatenate([menu_o[o][i] for o in mine]) for i in (0, 1))
            order = np.lexsort((seconds, used))
            used, seconds = used[order], seconds[order]
            better = seconds < np.minimum.accumulate(np.append(np.inf, seconds))[:-1]
            found.append((used[better].astype(np.int64), seconds[better]))
        return tuple(found)
