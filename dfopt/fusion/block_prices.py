"""Prices of blocks of kernels, in one way to run each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dfopt.terms.sharded_graph import Bools, Floats, Ints


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

    def of(self, blocks: Ints | Bools) -> BlockPrices:
        """Those of some of the blocks."""
        return BlockPrices(*(getattr(self, field.name)[..., blocks] for field in fields(BlockPrices)))

    @classmethod
    def joined(cls, parts: Sequence[BlockPrices]) -> BlockPrices:
        """Those of the blocks of all parts, one part after the other."""
        return cls(
            *(np.concatenate([getattr(part, field.name) for part in parts], axis=-1) for field in fields(BlockPrices))
        )

    def faster(self, other: BlockPrices, blocks: Ints) -> BlockPrices:
        """The same, but for some blocks those of another way to run them, where only that is legal, or it is faster.

        ``blocks``: numbers of the blocks that ``other`` is about.
        """
        take = other.legal & (~self.legal[blocks] | (other.time < self.time[blocks]))
        chosen = {field.name: getattr(self, field.name).copy() for field in fields(BlockPrices)}
        for name, of_all in chosen.items():
            of_all[..., blocks[take]] = getattr(other, name)[..., take]
        return BlockPrices(**chosen)
