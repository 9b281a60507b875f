"""Sums of blocks over paths, for each pass of a layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dfopt.arrays import Floats, Ints
from dfopt.regions.arcs import Arcs
from dfopt.terms.blocks import BlockPrices
from dfopt.terms.bounds.passes import PassRule, PassSeconds


def seconds_of(priced: BlockPrices) -> Floats:
    """Seconds of every block: shape (vectors, blocks); infinite where a block does not fit the chip."""
    return np.where(priced.legal, priced.time, np.inf)


def of_block(priced: BlockPrices, vector: int, blocks: Ints) -> BlockPrices:
    """Prices of some blocks under one vector of options.

    Parameters
    ----------
    priced
        Prices by vector of options and block.
    vector : int
        Number of the vector.
    blocks : int array
        Numbers of the blocks.
    """
    return priced.each(lambda of_vb: of_vb[..., [vector], :]).of(blocks)


def fields_of(rule: PassRule, arcs: Arcs, priced: BlockPrices) -> tuple[Floats | None, ...]:
    """What every block adds to each field of :class:`PassSeconds`: arrays of shape (vectors, blocks).

    Parameters
    ----------
    rule, arcs : PassRule, Arcs
        Contribution of blocks to passes, and the lattice.
    priced : BlockPrices
        Prices of the blocks.
    """
    return rule.seconds(arcs.member_bk, priced, arcs.block_a.tolist() if arcs.only_path else ())


def least_passes(rule: PassRule, arcs_k: Sequence[Arcs], priced_k: Sequence[BlockPrices]) -> PassSeconds:
    """Lower bound on every field of `PassSeconds` over all paths; exact where each kind of layer has one path.

    Parameters
    ----------
    rule : PassRule
        Contribution of blocks to passes.
    arcs_k, priced_k : sequences of Arcs and BlockPrices
        Lattice and prices of its blocks, by kind of layer.
    """
    fields = [fields_of(rule, arcs, priced) for arcs, priced in zip(arcs_k, priced_k, strict=True)]

    def least(field: int) -> Floats:
        pairs = zip(arcs_k, (of[field] for of in fields), strict=True)
        least = [np.zeros(1) if of is None else arcs.distances(of)[:, -1] for arcs, of in pairs]
        return np.stack(least)[:, None]

    return PassSeconds(*map(least, range(6)))
