"""Relaxed prices of blocks in each way to run them, to which the cells of :mod:`dfopt.joint.cells` add.

A time is the largest of some *terms*, each a sum over kernels and groups: which, the overlap assumption says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dfopt.fusion.block_prices import BlockPrices
from dfopt.fusion.blocks import StageTables, ways_of
from dfopt.joint.choices import ACCESS, COMPUTE, DRAM, GRADIENT, NETWORK, SRAM
from dfopt.terms.chip import Chip
from dfopt.terms.sharded_graph import Bools, Floats, Ints
from dfopt.terms.token_blocks import TOKEN_SUMS, TokenRows, blocks_needed

_FIGURES = {"compute": COMPUTE, "memory": DRAM, "network": NETWORK, "sram": ACCESS}


def terms_of(figures: Floats, chip: Chip) -> Floats:
    """Seconds of each term from figures of shape (rows, figures), those before SRAM bytes at least."""
    seconds = figures[:, :SRAM].copy()
    seconds[:, DRAM] /= chip.dram_bandwidth
    figure = [_FIGURES[name] for name in chip.resources]
    return np.stack(
        [seconds[:, [*(figure[one] for one in parts), GRADIENT]].sum(axis=1) for parts in chip.rule.sums], axis=1
    )


def _terms(prices: BlockPrices, dram: Floats, chip: Chip) -> Floats:
    """Terms of blocks at their relaxed prices, with so many bytes of DRAM."""
    figures = np.zeros((len(prices.time), SRAM))
    for name, seconds in zip(chip.resources, prices.terms, strict=True):
        figures[:, _FIGURES[name]] = seconds
    figures[:, DRAM] = dram
    return terms_of(figures, chip)


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Blocks at their relaxed figures.

    Attributes
    ----------
    terms, sram : float, shape (blocks, terms) and (blocks,)
        If they hold their weights; SRAM is infinite where they cannot.
    plain : float, shape (blocks, terms)
        Terms without anything that is moved again.
    tokens : float, shape (blocks, sums)
        Sums of :data:`~dfopt.terms.token_blocks.TOKEN_SUMS`, infinite where they cannot take blocks of tokens.
    """

    terms: Floats
    sram: Floats
    plain: Floats
    tokens: Floats

    @classmethod
    def of(cls, tables: StageTables, member: Bools, *, in_parts: bool = False) -> Relaxed:
        """Of blocks of a stage. ``in_parts``: a weight may still be cut, so that SRAM says nothing yet."""
        held, other, moved = ways_of(tables, member)
        tokens = np.full((len(member), len(TOKEN_SUMS)), np.inf)
        if other is not None:
            assert tables.sharded.token_charges is not None
            *sums, all_tokens = tables.sharded.token_charges.sums(member)
            tokens = np.where(all_tokens[:, None] == 0, np.stack(sums, axis=1), np.inf)
            tokens[member.sum(axis=1) > tables.chip.tiles] = np.inf
        sram = held.sram_bytes if in_parts else np.where(held.legal, held.sram_bytes, np.inf)
        return cls(_terms(held, held.dram_bytes, tables.chip), sram, _terms(held, moved, tables.chip), tokens)

    @classmethod
    def joined(cls, parts: Sequence[Relaxed]) -> Relaxed:
        """Blocks of some parts, one after another."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def rows(self, some: Ints) -> Relaxed:
        """Some of the blocks."""
        return Relaxed(*(getattr(self, one.name)[some] for one in fields(self)))


def by_tokens(relaxed: Relaxed, plain: Floats, tokens: Floats, chip: Chip, rows: TokenRows) -> Floats:
    """Seconds of blocks that take their tokens in blocks, under every cell; infinite where they cannot.

    ``plain``, ``tokens``: what cells add to both. Float array, shape (blocks, cells).
    """
    beside, cut, again, accessed = np.moveaxis(relaxed.tokens[:, None, :] + tokens[None, :, :], 2, 0)
    possible = np.isfinite(beside)
    beside, cut, again, accessed = (np.where(possible, each, 0.0) for each in (beside, cut, again, accessed))
    blocks = blocks_needed(chip, rows, beside, cut)
    possible &= np.isfinite(blocks)
    more = np.where(possible, blocks, 1.0) - 1.0
    figures = np.zeros((more.size, SRAM))
    figures[:, DRAM] = (more * again).ravel()
    figures[:, ACCESS] = (more * accessed).ravel() / chip.sram_bandwidth
    terms = relaxed.plain[:, None, :] + plain[None, :, :] + terms_of(figures, chip).reshape(*more.shape, -1)
    return np.where(possible, terms.max(axis=2), np.inf)
