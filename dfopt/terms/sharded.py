"""One layer on one chip as its partitions are priced: figures of kernels and tensors under options that are left.

Every figure is the least over those options, each by itself: no block costs less under any of them, and with one option
of each kernel all of them are exact. What a figure is made of is said by the rules.

Suffixes: k kernel, o option (a kernel with one of its schemes), t tensor, x toll. The axis o has the options of all
kernels, see :mod:`dfopt.terms.figures`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.physics.library import sets_of
from dfopt.setting.instance import Instance
from dfopt.setting.reads import by_reads
from dfopt.terms.by_kernel import depths, fanout_groups
from dfopt.terms.charges import merged
from dfopt.terms.converted import network_seconds, tolls
from dfopt.terms.figures import Figures
from dfopt.terms.incidence import Has
from dfopt.terms.rules import HELD, TOKEN_BLOCKS
from dfopt.terms.rules.tensors import CARRIED, TENSORS
from dfopt.terms.sharded_graph import ShardedGraph
from dfopt.terms.table import Domain, Table, amounts_left
from dfopt.terms.token_blocks import TokenCharges, token_rows


@dataclass(frozen=True, eq=False)
class LayerOptions:
    """Bytes and seconds of a layer on one chip, under any subset of the legal sharding schemes (options) of kernels.

    Methods take the subset as a domain: by kernel the options that are left, as places among its own.

    Arrays with the suffix o have the shape (options,): an entry for each option of each kernel, in the order of kernels
    and schemes. Bytes and seconds are those of one chip in one evaluation of the graph, which is one microbatch.

    Attributes
    ----------
    instance
        Setting (graph, system and assumptions) and plan; of the plan only what decides the work of a chip is read.
    """

    instance: Instance

    @classmethod
    def of(cls, instance: Instance) -> LayerOptions:
        """The layer of an instance: plans under which a chip does the same work share one object.

        Parameters
        ----------
        instance
            Setting (graph, system and assumptions) and plan. Only the part
            :attr:`dfopt.setting.instance.Instance.shared` decides the layer.

        Returns
        -------
        LayerOptions
            A new object, or the one that an earlier call made for the same shared part.
        """
        shared = instance.shared
        return shared.memo.setdefault("layer options", cls(shared))  # type: ignore[no-any-return]

    @cached_property
    def figures(self) -> Figures:
        """Bytes, seconds and shares of every kernel under each of its options."""
        return Figures(self.instance)

    def least(self, domain: Domain, tiles: int) -> ShardedGraph:
        """Price the layer on one chip with the least of every figure over the options that are left.

        Each figure (bytes, seconds or share of a kernel or tensor) is the least by itself: another figure may be least
        under other options.

        Parameters
        ----------
        domain
            By kernel the options that are left, as places among its own, at least one of every kernel.
        tiles : int
            Tiles that the streamed axis (mostly that of tokens) is cut into.

        Returns
        -------
        ShardedGraph
            Exact with one option of each kernel. With more it is a bound: no block (on-chip partition) costs less under
            any of these options.

        Raises
        ------
        SystemSpecError
            If the chip states peak rates by data type, and none for a type that holds the operands of a kernel.
        AssertionError
            If the chip lacks lanes, stages or frequency under ``compute_model: cycle``, or a table under
            ``efficiency``. Questions to the optimiser refuse that before.
        """
        figures, layer, allowed_o = self.figures, self.figures.layer, self.figures.allowed(domain)
        tiled = layer.at(tiles)

        def lowest(figure_o: Floats) -> Floats:
            return figures.least(figure_o, allowed_o)

        output_k = lowest(figures.output_o)
        b_t = self.unsharded_t * output_k[self.plain.src_t]
        sram_traffic_k = lowest(figures.accessed_o)
        for fan in layer.fan_outs:
            np.add.at(sram_traffic_k, [fan.source, *fan.kernels], fan.bytes * output_k[fan.source])
        toll_x, sent_x, payers_xk = tolls(layer, domain)
        return replace(
            self.plain,
            compute_k=lowest(figures.by_option("compute_s")),
            stationary_k=lowest(figures.by_option("stationary_bytes")),
            weight_k=lowest(figures.weight_o),
            mem_k=lowest(figures.by_option("dram_bytes")) + self._of_tensors("dram_bytes", domain, tiles),
            sram_traffic_k=sram_traffic_k,
            fixed_buffer_k=lowest(figures.buffer_o(tiles)) + self._of_tensors("buffer_bytes", domain, tiles),
            net_k=network_seconds(figures, domain),
            b_t=b_t,
            moved_t=b_t * (layer.moves_tensors),
            tile_t=b_t * tiled.output_tile_k[self.plain.src_t],
            menus=self._menus(domain, tiles) if layer.by_cycles else (),
            tile_count=tiles,
            output_k=output_k,
            held_k=np.stack([lowest(figures.by_option(resource)) for resource in HELD], axis=1),
            gradient_k=lowest(figures.gradient_o),
            again_k=lowest(figures.by_option("reread_bytes")) + self._of_tensors("reread_bytes", domain, tiles),
            toll_x=toll_x,
            sent_x=sent_x,
            payers_xk=payers_xk,
            token_charges=self._token_charges(domain, tiles),
        )

    def _token_charges(self, domain: Domain, tiles: int) -> TokenCharges | None:
        """What partitions need and move that take their tokens in blocks.

        Charges of different kernels stay apart, so that sums are those of the least of each kernel and each tensor.
        """
        layer = self.figures.layer.at(tiles)
        if (rows := token_rows(layer)) is None:
            return None
        charges = merged((charge for term in TOKEN_BLOCKS for charge in term.of(layer)), 0)
        table = Table(tuple(map(len, layer.schemes_k)), charges)
        return TokenCharges.of(rows, table, table.least(domain))

    def _of_tensors(self, resource: str, domain: Domain, tiles: int) -> Floats:
        """What kernels have at least of tensors, in so many tiles, whatever blocks they are in."""
        layer, least_k = self.figures.layer.at(tiles), np.zeros(len(self.figures.layer.kernels))
        for charge in (*CARRIED.of(layer), *TENSORS.of(layer)):
            if charge.resource == resource and isinstance(charge.incidence, Has):
                least_k[charge.incidence.kernel] += amounts_left(charge, domain).min()
        return least_k

    @by_reads
    def unsharded_t(self) -> Floats:
        """Bytes of every tensor in one evaluation (one microbatch), before tensor-parallel chips share it out.

        Float array, shape (tensors,), in the order of the graph's tensors.
        """
        graph = self.figures.layer.graph
        return np.array([graph.bytes_of(tensor) for tensor in graph.tensors], dtype=float)

    @by_reads
    def plain(self) -> ShardedGraph:
        """The layer as a :class:`ShardedGraph` without costs: kernels, tensors, and which tensors are stored once.

        These depend on no sharding scheme. All bytes, seconds and shares that sharding decides are 0 as placeholders.
        There are no tolls, and the streamed axis is in one tile.
        """
        layer = self.figures.layer
        graph, assumptions, none = layer.graph, layer.assumptions, np.zeros(len(layer.kernels))
        index, empty_t = graph.index(), np.zeros(len(graph.tensors))
        forward_k = np.array([kernel.pass_ == "forward" for kernel in graph.kernels])
        src_t = np.array([index[t.src] for t in graph.tensors], dtype=np.int64)
        dst_t = np.array([index[t.dst] for t in graph.tensors], dtype=np.int64)
        kept_t = np.zeros(len(graph.tensors), dtype=bool)
        group_t = fanout_groups(graph, assumptions)
        for group, fan in enumerate(fan for fan in layer.fan_outs if not fan.carried):
            kept_t[group_t == group] = fan.kept
        return ShardedGraph(
            names=tuple(kernel.name for kernel in graph.kernels),
            forward_k=forward_k,
            compute_k=none, stationary_k=none, weight_k=none, mem_k=none, sram_traffic_k=none,
            fixed_buffer_k=none, net_k=none,
            src_t=src_t,
            dst_t=dst_t,
            b_t=empty_t, moved_t=empty_t, tile_t=empty_t,
            depth_t=np.array(depths(graph, assumptions), dtype=float),
            group_t=group_t,
            kept_t=kept_t,
            menus=(),
            tile_count=1,
            output_k=none, held_k=none, gradient_k=none, again_k=none,
            toll_x=np.zeros(0),
            sent_x=np.zeros(0),
            payers_xk=np.zeros((0, len(none)), dtype=bool),
            sets_k=np.array([sets_of(kernel) for kernel in graph.kernels]),
        )  # fmt: skip

    def _menus(self, domain: Domain, tiles: int) -> tuple[tuple[Ints, Floats], ...]:
        """Compute tiles and seconds that some option that is left reaches, without those that another one beats."""
        frontiers = []
        for menus, left in zip(self.figures.layer.at(tiles).menus_ko, domain, strict=True):
            used, seconds = (np.concatenate([menus[o][i] for o in left]) for i in (0, 1))
            order = np.lexsort((seconds, used))
            used, seconds = used[order], seconds[order]
            better = seconds < np.minimum.accumulate(np.append(np.inf, seconds))[:-1]
            frontiers.append((used[better].astype(np.int64), seconds[better]))
        return tuple(frontiers)
