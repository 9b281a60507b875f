"""How many blocks of tokens a block of kernels needs so that it fits SRAM: a part of the block rule.

The mode is described in :mod:`dfopt.physics.token_blocks`.

Suffixes: v vector of options (one of each kernel), b block of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.physics import ops
from dfopt.physics.token_blocks import most_blocks
from dfopt.terms.chip import Chip
from dfopt.terms.layer import Layer

__all__ = ["TokenRows", "blocks_needed", "shares_of", "token_rows"]

_ROUNDED: Final = 1e-12


@dataclass(frozen=True, slots=True)
class TokenRows:
    """What blocks of tokens are cut from.

    Attributes
    ----------
    rows : int
        Length of the shortest streamed axis of the graph. Blocks have whole rows of it.
    most : int
        Most blocks that it may be cut into.
    """

    rows: int
    most: int


def token_rows(layer: Layer) -> TokenRows | None:
    """What blocks of tokens are cut from in a layer. None where blocks of tokens are not allowed.

    A block has at least ``tile_rows`` rows, and one for each tensor-parallel chip where these may share tokens.

    Parameters
    ----------
    layer
        The layer: its graph, its assumptions, and the number of its tensor-parallel chips.
    """
    chosen = layer.assumptions
    if not chosen.blocks_tokens:
        return None
    rows, least = (
        ops.streamed_rows(layer.graph),
        max(chosen.tile_rows or 1, layer.degree if chosen.splits_tokens else 1),
    )
    return TokenRows(rows, most_blocks(rows, least))


def blocks_needed(chip: Chip, of: TokenRows, beside: Floats, cut: Floats) -> Floats:
    """Fewest blocks of tokens with which blocks of kernels fit SRAM.

    With ``n`` blocks the largest has ``ceil(rows / n)`` rows, and a block of kernels needs ``beside + cut * ceil(rows /
    n) / rows`` bytes. More of either sum never needs fewer blocks.

    Parameters
    ----------
    chip
        Its SRAM.
    of
        What blocks are cut from.
    beside : float array, B
        Bytes of SRAM that each block of kernels needs however many blocks of tokens there are. Of any shape.
    cut : float array, B
        Bytes of SRAM that it needs for what blocks of tokens cut, if one block had all tokens. Of the shape of
        ``beside``.

    Returns
    -------
    float array, no unit
        Of the shape of ``beside``. Whole numbers, at least 1. Infinite where it does not fit in ``of.most`` blocks.

    Examples
    --------
    >>> limits = {"sram": 10.0, "tiles": 4, "cuts_weights": True, "reads_again": True, "writes_again": False}
    >>> chip = Chip(dram_bandwidth=1.0, overlap="perfect", fused=True, library=False, **limits)
    >>> blocks_needed(chip, TokenRows(8, 8), np.array([2.0, 2.0, 9.5]), np.array([8.0, 20.0, 8.0])).tolist()
    [1.0, 3.0, inf]
    """
    room = chip.sram * (1 + _ROUNDED) - beside
    # rows of the largest block; of no bytes as many as there are
    fitting = np.floor(of.rows * np.minimum(room / np.where(cut > 0, cut, 1.0) + (cut <= 0), 1.0) * (1 + _ROUNDED))
    rows = np.clip(fitting, 1.0, of.rows)
    needed = np.ceil(of.rows / rows)
    fits = (room >= 0) & (fitting >= 1) & (needed <= of.most)
    return np.asarray(np.where(fits, needed, np.inf))


def shares_of(of: TokenRows, blocks: Floats) -> Floats:
    """Share of all tokens in the largest of so many blocks, which are whole numbers. Of the shape of ``blocks``."""
    return np.asarray(np.ceil(of.rows / blocks) / of.rows)
