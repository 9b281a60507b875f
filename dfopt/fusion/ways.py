"""All ways to run blocks of kernels: with their weights held, and in every number of blocks of tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.fusion.blocks import StageTables, holding, in_token_blocks, price_blocks
from dfopt.terms.blocks import BlockPrices


class BlockWays(NamedTuple):
    """Prices of blocks of kernels, once for every way to run each.

    Attributes
    ----------
    place_w : int array, shape (ways,)
        Index of the block of each way, ascending.
    prices : BlockPrices
        Prices of the ways; ``block_count`` distinguishes the ways of a block.
    """

    place_w: Ints
    prices: BlockPrices

    @property
    def tokens_w(self) -> Ints:
        """Number of blocks of tokens of each way, 0 where weights are held: int array, shape (ways,)."""
        return self.prices.block_count.astype(np.int64)

    def of(self, ways: Ints | Bools) -> BlockWays:
        """A selection of the ways, by numbers or a mask."""
        return BlockWays(self.place_w[ways], self.prices.of(ways))


def fastest_ways(tables: StageTables, member: Bools) -> BlockWays:
    """The way to run each block that :func:`dfopt.fusion.blocks.price_blocks` chooses."""
    return BlockWays(np.arange(len(member)), price_blocks(tables, member))


def every_way(tables: StageTables, member: Bools, most_s: Floats) -> BlockWays:
    """All legal ways to run some blocks within time limits.

    Numbers of blocks of tokens are those of :attr:`dfopt.terms.token_blocks.TokenRows.numbers`. More blocks read more
    again, which must never take less time, so bandwidth may not depend on bytes.

    Parameters
    ----------
    tables : StageTables
        The stage.
    member : bool array, shape (blocks, kernels)
        Kernels of the blocks.
    most_s : float array, s, shape (blocks,)
        Ways that take longer are left out.
    """
    held, charges = holding(tables, member), tables.sharded.token_charges
    some = np.flatnonzero(held.legal & (held.time <= most_s))
    ways = [BlockWays(some, held.of(some))]
    left = np.zeros(0, dtype=np.int64) if charges is None else np.flatnonzero(in_token_blocks(tables, member).legal)
    for count in () if charges is None else charges.rows.numbers.tolist():
        priced = in_token_blocks(tables, member[left], np.full(len(left), float(count)))
        fast = priced.time <= most_s[left]
        some = np.flatnonzero(fast & priced.legal)
        ways.append(BlockWays(left[some], priced.of(some)))
        left = left[fast]
    place_w = np.concatenate([each.place_w for each in ways])
    order = np.argsort(place_w, kind="stable")
    return BlockWays(place_w, BlockPrices.joined([each.prices for each in ways])).of(order)
