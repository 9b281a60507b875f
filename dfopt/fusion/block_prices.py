"""Prices of blocks of kernels, in each way to run them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from dfopt.terms.sharded_graph import Bools, Floats


@dataclass(frozen=True)
class BlockPrices:
    """Per block: seconds by resource (as rows) and of the block, DRAM and SRAM bytes, whether it is legal.

    ``block_count``: how many blocks of tokens it takes one after another; 0 if it holds its weights.
    """

    terms: Floats
    time: Floats
    dram_bytes: Floats
    sram_bytes: Floats
    legal: Bools
    block_count: Floats

    @property
    def compute(self) -> Floats:
        """Seconds of compute."""
        return np.asarray(self.terms[0])

    @property
    def memory(self) -> Floats:
        """Seconds of DRAM."""
        return np.asarray(self.terms[1])

    @property
    def network(self) -> Floats:
        """Seconds of communication."""
        return np.asarray(self.terms[2])


class Ways(NamedTuple):
    """Prices of blocks in each way to run them.

    Attributes
    ----------
    holding : BlockPrices
        They hold their weights, or a kernel alone a part of its weight.
    by_tokens : BlockPrices, optional
        They take their tokens in the fewest blocks that fit, where some may.
    moved : float array, B, shape (blocks,)
        DRAM bytes, without any that are moved again.
    """

    holding: BlockPrices
    by_tokens: BlockPrices | None
    moved: Floats


def faster(first: BlockPrices, second: BlockPrices) -> BlockPrices:
    """Of two ways to run the same blocks the legal and faster one of each, the first where both are as fast."""
    take = second.legal & (~first.legal | (second.time < first.time))
    return BlockPrices(
        *(np.where(take, getattr(second, one.name), getattr(first, one.name)) for one in fields(BlockPrices))
    )
