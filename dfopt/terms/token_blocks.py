"""How many blocks of tokens a block of kernels needs so that it fits SRAM: a part of the block rule.

The mode is described in :mod:`dfopt.physics.token_blocks`.

Suffixes: k kernel, b block of kernels, i incidence, r resource.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from dfopt.arrays import ROUNDING, Bools, Floats, Ints
from dfopt.physics import ops
from dfopt.physics.token_blocks import most_blocks
from dfopt.terms.chip import ChipModel
from dfopt.terms.incidence import Has, Incidence, counts
from dfopt.terms.layer import Layer
from dfopt.terms.table import Table

TOKEN_SUMS: Final = "beside_token_bytes", "token_bytes", "block_reread_bytes", "block_access_bytes"
"""Resources that say what blocks of kernels need and move in blocks of tokens, beside those of every block."""
TOKEN_RESOURCES: Final = (*TOKEN_SUMS, "all_tokens")
"""These, and the one that says which blocks of kernels cannot."""


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Rows that blocks of tokens divide, and the largest number of blocks.

    Attributes
    ----------
    rows : int
        Length of the shortest streamed axis of the graph. Blocks have whole rows of it.
    most : int
        Most blocks that it may be cut into.
    """

    rows: int
    most: int

    @property
    def numbers(self) -> Ints:
        """Useful numbers of blocks of tokens, ascending: of those with equally large largest blocks, the least.

        More blocks with as many rows need as much SRAM, and read more again.

        Examples
        --------
        >>> TokenRows(8, 8).numbers.tolist()
        [1, 2, 3, 4, 8]
        """
        number = np.arange(1, self.most + 1)
        rows = -(-self.rows // number)
        return number[np.diff(rows, prepend=np.inf) < 0]


def token_rows(layer: Layer) -> TokenRows | None:
    """Rows of a layer that blocks of tokens divide; None where such blocks are not allowed.

    A block has at least ``tile_rows`` rows, and one for each tensor-parallel chip where these may share tokens.

    Parameters
    ----------
    layer
        The layer: its graph, its assumptions, and the number of its tensor-parallel chips.
    """
    chosen = layer.assumptions
    if not chosen.blocks_tokens:
        return None
    rows = ops.streamed_rows(layer.graph)
    least = max(chosen.tile_rows or 1, layer.degree if chosen.splits_tokens else 1)
    return TokenRows(rows, most_blocks(rows, least))


def blocks_needed(chip: ChipModel, of: TokenRows, fixed: Floats, cut: Floats) -> Floats:
    """Fewest blocks of tokens with which blocks of kernels fit SRAM.

    With ``n`` blocks the largest has ``ceil(rows / n)`` rows, and a block of kernels needs ``fixed + cut * ceil(rows /
    n) / rows`` bytes. More of either sum never needs fewer blocks.

    Parameters
    ----------
    chip
        Its SRAM.
    of
        What blocks are cut from.
    fixed : float array, B
        Bytes of SRAM that each block of kernels needs however many blocks of tokens there are. Of any shape.
    cut : float array, B
        Bytes of SRAM that it needs for what blocks of tokens cut, if one block had all tokens. Of the shape of
        ``fixed``.

    Returns
    -------
    float array, no unit
        Of the shape of ``fixed``. Whole numbers, at least 1. Infinite where it does not fit in ``of.most`` blocks.

    Examples
    --------
    >>> limits = {"sram": 10.0, "tiles": 4, "cuts_weights": True}
    >>> chip = ChipModel(dram_bandwidth=1.0, overlap="perfect", fused=True, library=False, **limits)
    >>> blocks_needed(chip, TokenRows(8, 8), np.array([2.0, 2.0, 9.5]), np.array([8.0, 20.0, 8.0])).tolist()
    [1.0, 3.0, inf]
    """
    room = chip.sram * (1 + ROUNDING) - fixed
    # rows of the largest block; of no bytes as many as there are
    fitting = np.floor(of.rows * np.minimum(room / np.where(cut > 0, cut, 1.0) + (cut <= 0), 1.0) * (1 + ROUNDING))
    rows = np.clip(fitting, 1.0, of.rows)
    needed = np.ceil(of.rows / rows)
    fits = (room >= 0) & (fitting >= 1) & (needed <= of.most)
    return np.asarray(np.where(fits, needed, np.inf))


def shares_of(of: TokenRows, blocks: Floats) -> Floats:
    """Share of all tokens in the largest of ``blocks`` blocks (whole numbers), in the shape of ``blocks``."""
    return np.asarray(np.ceil(of.rows / blocks) / of.rows)


class TokenNeeds(NamedTuple):
    """Needs of blocks of kernels for given numbers of blocks of tokens.

    Attributes
    ----------
    legal : bool, shape (blocks of kernels,)
        Whether they can take their tokens in blocks, and fit in so many of them.
    blocks : no unit, shape (blocks of kernels,)
        Number of blocks of tokens. 1 where it is not legal.
    sram : B, shape (blocks of kernels,)
        Bytes that they hold in SRAM at a time.
    read_again, accessed_again : B, shape (blocks of kernels,)
        Bytes that all blocks of tokens after the first read from DRAM again, and from SRAM.
    """

    legal: Bools
    blocks: Floats
    sram: Floats
    read_again: Floats
    accessed_again: Floats


@dataclass(frozen=True, eq=False)
class TokenCharges:
    """Charges of a stage's kernels in blocks of tokens, under given options.

    Attributes
    ----------
    rows
        Tokens that are cut into blocks.
    incidences : tuple of Incidence
        Rules by which blocks of kernels pay, over the kernels of the layer.
    amount_ri : float array, shape (resources, incidences)
        Amounts of :data:`TOKEN_RESOURCES`: of given options, or the least over those that are left.
    kernels : int array, shape (kernels of the stage,)
        Their numbers in the layer.
    size : int
        Number of kernels of the layer.
    """

    rows: TokenRows
    incidences: tuple[Incidence, ...]
    amount_ri: Floats
    kernels: Ints
    size: int

    @classmethod
    def of(cls, rows: TokenRows, table: Table, least_c: Floats) -> TokenCharges:
        """Charges of a layer in blocks of tokens, from a table of them.

        Parameters
        ----------
        rows : TokenRows
            Tokens that are cut into blocks.
        table : Table
            Charges of :data:`TOKEN_RESOURCES` only, none of which has levels.
        least_c : float array, shape (columns of the table,)
            Amounts in the units of their resources: of given options, or the least over those that are left.
        """
        size, incidences = len(table.sizes_k), table.incidences
        amount_ri = np.zeros((len(TOKEN_RESOURCES), len(incidences)))
        for charge, column, i in zip(table.charges, least_c, table.incidence_c, strict=True):
            amount_ri[TOKEN_RESOURCES.index(charge.resource), i] += column
        return cls(rows, incidences, amount_ri, np.arange(size, dtype=np.int64), size)

    def part(self, members: Ints) -> TokenCharges:
        """The charges of a subset of the stage's kernels, given by places."""
        return replace(self, kernels=self.kernels[members])

    def needs(self, chip: ChipModel, member_bk: Bools, count_b: Floats | None = None) -> TokenNeeds:
        """SRAM, traffic and legality of blocks of kernels in blocks of tokens.

        Parameters
        ----------
        chip : ChipModel
            Its SRAM limits how many tokens a block has.
        member_bk : bool array, shape (blocks, kernels of the stage)
            Whether each block holds each kernel.
        count_b : float array, shape (blocks,), optional
            Number of blocks of tokens of each, whole. The fewest that fit SRAM if left out.
        """
        fixed, cut, again, accessed, all_tokens = self.block_totals(member_bk)
        fewest = blocks_needed(chip, self.rows, fixed, cut)
        blocks = fewest if count_b is None else count_b
        legal = (fewest <= blocks) & (blocks <= self.rows.most) & (all_tokens == 0)
        blocks = np.where(legal, blocks, 1.0)
        sram = fixed + cut * shares_of(self.rows, blocks)
        return TokenNeeds(legal, blocks, sram, (blocks - 1) * again, (blocks - 1) * accessed)

    @property
    def own_again_k(self) -> Floats:
        """DRAM bytes that each further block of tokens reads again for a kernel, in any partition.

        Float array, shape (kernels of the stage,). They are those of its weight, its caches, and inputs of the graph.
        """
        own_k, amount_i = np.zeros(self.size), self.amount_ri[TOKEN_RESOURCES.index("block_reread_bytes")]
        for incidence, amount in zip(self.incidences, amount_i.tolist(), strict=True):
            if isinstance(incidence, Has):
                own_k[incidence.kernel] += amount
        return own_k[self.kernels]

    def block_totals(self, member_bk: Bools) -> Floats:
        """Totals of :data:`TOKEN_RESOURCES` for blocks of kernels: float array, shape (resources, blocks).

        ``member_bk``: whether each block holds each kernel of the stage.
        """
        member = np.zeros((len(member_bk), self.size), dtype=bool)
        member[:, self.kernels] = member_bk
        return np.asarray(self.amount_ri @ counts(self.incidences, member).T)
