"""What a block of kernels takes, from its sums: the one part of its price that does not add up.

Every sum has a sense: more of it never makes a block faster, nor legal. So least sums give a bound.

Suffixes: v vector of options (one of each kernel), b block, k kernel, c column of the table's amounts, i incidence, l
latency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.terms.chip import ChipModel, combine
from dfopt.terms.counting import IncidenceCounts, Incidences
from dfopt.terms.cycle import least_level
from dfopt.terms.incidence import Has, Incidence
from dfopt.terms.sram import keeps_chip, parts_of
from dfopt.terms.table import Table
from dfopt.terms.token_blocks import TOKEN_RESOURCES, TOKEN_SUMS, TokenRows, blocks_needed, shares_of

IN_PARTS: Final = frozenset({"stationary_bytes", "buffer_bytes", "cut_buffer_bytes", "reread_bytes"})
"""Resources that say into how many parts a weight is cut, and what each further part moves again."""

OF_DRAM: Final = frozenset({"dram_bytes", *IN_PARTS, *TOKEN_RESOURCES})
"""Resources that decide how many bytes a block moves to and from DRAM."""


@dataclass(frozen=True)
class BlockPrices:
    """Time, bytes and legality of blocks of kernels on one chip, for one or more choices of sharding schemes.

    A block is a set of kernels that run together on the chip. A vector of options has one option (a sharding scheme)
    for each kernel. Where options are given, arrays have no axis of vectors. Seconds and bytes are those of one
    evaluation, which is one microbatch.

    Attributes
    ----------
    seconds : s, shape (resources, vectors, blocks)
        Seconds of each resource, in the order of :attr:`dfopt.terms.chip.ChipModel.resources`.
    time : s, shape (vectors, blocks)
        Time of each block: its ``seconds``, combined by :func:`dfopt.terms.chip.combine` as the assumption ``overlap``
        says.
    dram_bytes : B, shape (vectors, blocks)
        Bytes that pass through DRAM, as its fastest memory counts them: a byte of a memory of half the bandwidth is
        two.
    sram_bytes : B, shape (vectors, blocks)
        Bytes that each block holds in SRAM at a time.
    legal : bool, shape (vectors, blocks)
        Whether the block keeps the limits of the chip (:func:`keeps_chip`), holds no kernel of infinite
        :meth:`Blocks.parts`, and, under the cycle model, has compute tiles enough for some latency. Not checked are the
        passes that it mixes, and which options may be together: the resource ``legal`` of the table says the latter.
    block_count : no unit, shape (vectors, blocks)
        Number of blocks of tokens that the kernels of each block take one after another, reading their weights again
        for each. 0 for a block that holds its weights in SRAM, and for every block if the mode is not priced.
    """

    seconds: Floats
    time: Floats
    dram_bytes: Floats
    sram_bytes: Floats
    legal: Bools
    block_count: Floats

    def each(self, of: Callable[[Any], Any]) -> BlockPrices:
        """Apply a function to each array of the prices."""
        return BlockPrices(*(of(getattr(self, part.name)) for part in fields(BlockPrices)))

    def of(self, blocks: Ints | Bools) -> BlockPrices:
        """Prices of some of the blocks, by their numbers or by a mask."""
        return self.each(lambda of_b: of_b[..., blocks])

    @classmethod
    def joined(cls, parts: Sequence[BlockPrices]) -> BlockPrices:
        """Concatenate the prices of several sets of blocks."""
        names = [part.name for part in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    def faster(self, other: BlockPrices, blocks: Ints, *, least: bool = False) -> BlockPrices:
        """Replace the prices of some blocks by those of another way to run them, where only that is legal or faster.

        Arrays are changed in place.

        Parameters
        ----------
        other : BlockPrices
            Prices of these blocks if they run in the other way, for the same vectors of options.
        blocks : int array, shape (blocks of ``other``,)
            Their numbers here.
        least : bool
            True: of a block that is legal in both ways, each resource has the seconds of the way that takes less of it.
            They are a lower bound on those of either way.

        Returns
        -------
        BlockPrices
            This object.
        """
        base = self.of(blocks)
        take = other.legal & (~base.legal | (other.time < base.time))
        for part in fields(BlockPrices):
            getattr(self, part.name)[..., blocks] = np.where(take, getattr(other, part.name), getattr(base, part.name))
        if least:
            seconds = np.minimum(base.seconds, other.seconds)
            both = base.legal & other.legal
            self.seconds[..., blocks] = np.where(both, seconds, self.seconds[..., blocks])
        return self


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks (sets of kernels that run together on a chip), with the costs and limits that give their time and bytes.

    A charge is a cost item of the table: an amount of one resource, such as DRAM bytes. How often a block pays it
    depends on the kernels of the block only. So it is worked out once for all choices of sharding schemes.

    Attributes
    ----------
    table
        All costs of the layer.
    chip
        Limits and rates of the chip.
    member_bk : bool array, shape (blocks, kernels)
        Whether each block holds each kernel. A block holds at least one.
    latency_l : float array, s, shape (levels,)
        Compute times that a block may have under the cycle model, ascending: those of
        :attr:`dfopt.terms.layer.Layer.latency_l`. Empty under other compute models.
    token_rows
        What blocks of tokens are cut from (:func:`dfopt.terms.token_blocks.token_rows`). None: no block takes its
        tokens in blocks.
    shared_counting : IncidenceCounts, optional
        Number of times that the blocks pay incidences, if it is shared by several objects with the same blocks.
    """

    table: Table
    chip: ChipModel
    member_bk: Bools
    latency_l: Floats = field(default_factory=lambda: np.zeros(0))
    token_rows: TokenRows | None = None
    shared_counting: IncidenceCounts | None = field(default=None, repr=False)

    @cached_property
    def counting(self) -> IncidenceCounts:
        """Incidence counts of the blocks: how often each pays a charge."""
        return IncidenceCounts(self.member_bk) if self.shared_counting is None else self.shared_counting

    def prices(self, amount_vc: Floats) -> BlockPrices:
        """Time, bytes and legality of every block, from the amounts of all charges.

        Exact amounts give exact results. The least amounts over a domain (sharding schemes that are left to each
        kernel) give lower bounds: under no schemes of the domain does a block take less time or fewer DRAM bytes, and a
        block that is not legal is legal under none of them. Such a bound needs a chip of which more bytes never take
        less time: :attr:`dfopt.terms.chip.ChipModel.rising` or :attr:`~dfopt.terms.chip.ChipModel.bounding`.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges of the table, a row for each vector of options: what
            :meth:`dfopt.terms.table.Table.exact` returns. Or what :meth:`~dfopt.terms.table.Table.least` returns, as
            the only row.

        Returns
        -------
        BlockPrices
            Arrays over these vectors, in their order, and over the blocks, in the order of :attr:`member_bk`. A block
            that may take its tokens in blocks does so where that is faster, or where it does not fit otherwise. Then
            its time and legality are bounds as above, but its bytes are not: they are those of the way chosen.
        """
        return self._best_way(amount_vc, least=False)

    def least(self, amount_vc: Floats) -> BlockPrices:
        """Lower bounds on block prices: each resource in the way to run the block that takes less of it.

        Where a block may run in one way only, these are :meth:`prices`. ``amount_vc``: as that takes it.
        """
        return self._best_way(amount_vc, least=True)

    def _best_way(self, amount_vc: Floats, least: bool) -> BlockPrices:
        """Prices of all blocks, each in its best way to run.

        A block that holds its weights, none of them in parts, moves no byte twice: however few or many blocks its
        tokens came in, no resource would take less of it. So only others are looked at. What blocks of tokens would
        save is SRAM, of weights and of activations, and a block that fits has no use for it. Where bandwidth depends on
        bytes, more of them may take less time, and all blocks are looked at.
        """
        rest_vk, cut_vk = self.fixed_and_cut(amount_vc)
        held = self.holding(amount_vc, rest_vk, cut_vk)
        if self.token_rows is None:
            return held
        other = ~held.legal if not self.chip.memory_rows else np.ones_like(held.legal)
        alone_b = np.flatnonzero(self.counting.size_b == 1)
        other[:, alone_b] |= parts_of(self.chip, rest_vk, cut_vk)[:, np.argmax(self.member_bk[alone_b], axis=1)] > 1
        blocks = np.flatnonzero(other.any(axis=0) & self.takes_blocks_b)
        return held.faster(self.in_token_blocks(amount_vc, blocks), blocks, least=least) if len(blocks) else held

    @cached_property
    def takes_blocks_b(self) -> Bools:
        """Whether each block has no kernel, and no tensor, that needs all tokens at once; no option decides that."""
        takes_b = np.ones(len(self.member_bk), dtype=bool)
        for incidence in self._paid("all_tokens"):
            takes_b[self.counting.column(incidence)[0]] = False
        return takes_b

    def holding(self, amount_vc: Floats, rest_vk: Floats, cut_vk: Floats) -> BlockPrices:
        """Prices of blocks that store their weights in SRAM; a kernel alone may store a part of its weight at a time.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges of the table, in their units, as :meth:`prices` takes them.
        rest_vk, cut_vk : float arrays, B, shape (vectors, kernels)
            SRAM bytes of each kernel that is alone in its block, outside what parts of its weight divide, and of what
            they divide: those of :meth:`fixed_and_cut`.

        Returns
        -------
        BlockPrices
            Over all blocks. Sums of bytes are bounds as times are.
        """
        compute, reached = self._compute(amount_vc)
        parts_vk = parts_of(self.chip, rest_vk, cut_vk)
        resources = "dram_bytes", "buffer_bytes", "stationary_bytes", "network_s", "sram_traffic_bytes"
        dram, sram, stationary, network, accessed = (self._block_totals(amount_vc, name) for name in resources)
        sram += stationary
        alone_b = np.flatnonzero(self.counting.size_b == 1)
        of_b = np.argmax(self.member_bk[alone_b], axis=1)
        finite_vk = np.where(np.isfinite(parts_vk), parts_vk, 1.0)
        dram[:, alone_b] += self.moved_again(amount_vc, parts_vk)[:, of_b]
        sram[:, alone_b] = (rest_vk + cut_vk / finite_vk)[:, of_b]
        terms = self._seconds(compute, dram, network, accessed)
        legal = self._legal(sram, parts_vk) & reached
        return BlockPrices(terms, combine(terms, self.chip), dram, sram, legal, np.zeros(sram.shape))

    def in_token_blocks(self, amount_vc: Floats, blocks: Ints) -> BlockPrices:
        """Prices of some blocks that take their tokens in as few blocks as fit, and read their weights again for each.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges of the table, in their units, as :meth:`prices` takes them.
        blocks : int array
            Numbers of the blocks. None has a kernel or a tensor that needs all tokens at once.

        Returns
        -------
        BlockPrices
            Over these blocks. Sums of bytes are bounds as times are.
        """
        assert self.token_rows is not None
        takes_b = self.takes_blocks_b
        counting, place = self.counting.among(takes_b), np.cumsum(takes_b)[blocks] - 1

        def total(resource: str) -> Floats:
            if resource not in self.table.of_resource:
                return np.zeros((len(amount_vc), len(blocks)))
            of, some = (counting, place) if resource in TOKEN_SUMS else (self.counting, blocks)
            return of.block_totals(self._paid(resource), self._amounts(amount_vc, resource), some)

        fixed, cut = total("beside_token_bytes"), total("token_bytes")
        count = blocks_needed(self.chip, self.token_rows, fixed, cut)
        legal = np.isfinite(count) & takes_b[blocks]
        count = np.where(legal, count, 1.0)
        dram = total("dram_bytes") + (count - 1) * total("block_reread_bytes")
        accessed = total("sram_traffic_bytes") + (count - 1) * total("block_access_bytes")
        sram = fixed + cut * shares_of(self.token_rows, count)
        legal &= keeps_chip(self.chip, self.counting.size_b[blocks], np.zeros(sram.shape), sram)
        terms = self._seconds(total("compute_s"), dram, total("network_s"), accessed)
        return BlockPrices(terms, combine(terms, self.chip), dram, sram, legal, count)

    def _seconds(self, compute: Floats, dram: Floats, network: Floats, accessed: Floats) -> Floats:
        """Seconds of each resource, shape (resources, vectors, blocks), from bytes of DRAM and of SRAM traffic."""
        seconds = [compute, self.chip.dram_seconds(dram), network]
        if "sram" in self.chip.resources:
            seconds.append(accessed / self.chip.sram_bandwidth)
        return np.stack(seconds)

    def _compute(self, amount_vc: Floats) -> tuple[Floats, Bools]:
        """Seconds of compute, and whether the chip has tiles enough; shape (vectors, blocks) both.

        Under the cycle model the least latency for which the tiles suffice.
        """
        shape = len(amount_vc), len(self.member_bk)
        if not len(self.latency_l):
            return self._block_totals(amount_vc, "compute_s"), np.ones(shape, dtype=bool)

        count_bc = np.asarray(self.counting.matrix(self._paid("compute_tiles")).todense())

        def suffice(level_vb: Ints) -> Bools:
            used = self.table.block_totals_at(amount_vc, count_bc, "compute_tiles", level_vb)
            return np.asarray(used <= self.chip.tiles)

        level, reached = least_level(suffice, shape, len(self.latency_l))
        return self.latency_l[level], reached

    def _legal(self, sram: Floats, parts_vk: Floats) -> Bools:
        """Whether blocks fit the chip, shape (vectors, blocks)."""
        tiled_vb, in_parts = np.zeros((len(parts_vk), 1)), parts_vk > 1
        if in_parts.any():
            tiled_vb = self.counting.block_totals(self._members, in_parts.astype(float))
        legal: Bools = keeps_chip(self.chip, self.counting.size_b, tiled_vb, sram)
        if (never := np.isinf(parts_vk)).any():
            legal &= self.counting.block_totals(self._members, never.astype(float)) == 0
        return legal

    @cached_property
    def _members(self) -> tuple[Incidence, ...]:
        return Incidences(Has(k) for k in range(self.member_bk.shape[1]))

    def parts(self, amount_vc: Floats) -> Floats:
        """Number of parts that the weight of each kernel is cut into if it is alone in its block (:func:`parts_of`).

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges of the table, in their units, as :meth:`prices` takes them.

        Returns
        -------
        float array, shape (vectors, kernels), no unit
            Whole numbers, 1 for a kernel that is not cut. Infinite where a kernel may be cut and still does not fit the
            chip.
        """
        return parts_of(self.chip, *self.fixed_and_cut(amount_vc))

    def moved_again(self, amount_vc: Floats, parts_vk: Floats) -> Floats:
        """DRAM bytes that each kernel, alone in its block, moves again because its weight is cut into parts.

        They are (parts - 1) times the bytes that it moves again for one further part (resource ``reread_bytes``). A
        *vector* is a choice of one option for each kernel.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges of the table, in their units, as :meth:`prices` takes them.
        parts_vk : float array, shape (vectors, kernels), no unit
            Number of parts of each weight, as :meth:`parts` returns it. Infinite counts as 1.

        Returns
        -------
        float array, shape (vectors, kernels), B
            Bytes of one evaluation, which is one microbatch. 0 for a kernel of one part.
        """
        finite_vk = np.where(np.isfinite(parts_vk), parts_vk, 1.0)
        return np.asarray((finite_vk - 1.0) * self._alone(amount_vc, "reread_bytes"))

    def fixed_and_cut(self, amount_vc: Floats) -> tuple[Floats, Floats]:
        """SRAM bytes of a kernel alone: not divided by weight parts, and divided; two arrays (vectors, kernels).

        What is stationary is never subtracted again: it may be a thousand times all else.
        """
        outputs = self._alone(amount_vc, "cut_buffer_bytes")
        rest = self._alone(amount_vc, "buffer_bytes") - outputs
        return rest, self._alone(amount_vc, "stationary_bytes") + outputs

    def _block_totals(self, amount_vc: Floats, resource: str, *, alone: bool = False) -> Floats:
        """Total of a resource that every block pays, or of kernels alone."""
        if resource not in self.table.of_resource:
            return np.zeros((len(amount_vc), self.member_bk.shape[int(alone)]))
        counting = self.counting.alone if alone else self.counting
        return counting.block_totals(self._paid(resource), self._amounts(amount_vc, resource))

    def _amounts(self, amount_vc: Floats, resource: str) -> Floats:
        """Amounts of the charges of a resource: shape (vectors, charges of it)."""
        return amount_vc[:, self.table.of_resource[resource][1][:, 0]]

    def _paid(self, resource: str) -> tuple[Incidence, ...]:
        """Incidence of every charge of a resource."""
        return self.table.paid.get(resource, ())

    def _alone(self, amount_vc: Floats, resource: str) -> Floats:
        return self._block_totals(amount_vc, resource, alone=True)
