"""Blocks of tokens as rows of a MILP: in how many each block of kernels takes its tokens, and what it then reads again.

A block of kernels holds its weights, or takes its tokens in some number of blocks: one of some columns is 1. A sum that
counts only together with one of these is shared out over columns, one for each number, none of which exceeds its share.
So every product of a choice and a sum is linear, and exact wherever choices are 0 or 1. The rule of
:mod:`dfopt.terms.token_blocks` takes the fewest blocks that fit; here any number that fits may be taken.

Suffixes: b block of kernels, n number of blocks of tokens, f combination of classes, k kernel of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dfopt.arrays import LEAST_DIVISOR, ROUNDING, Bools, Floats, Ints
from dfopt.milp import Model, Terms
from dfopt.terms.chip import ChipModel
from dfopt.terms.incidence import AnyOf, Has, Incidence, Inside
from dfopt.terms.sram import FITS
from dfopt.terms.token_blocks import TOKEN_RESOURCES, TokenCharges, TokenRows, blocks_needed, shares_of


@dataclass(frozen=True)
class Sum:
    """A linear expression for every block of kernels, with an upper bound.

    Attributes
    ----------
    terms : Terms
        Columns and amounts, one row a block. Of the columns of a term that a row has, one at most is not 0.
    most_b : float array, shape (blocks,)
        Upper bound of the expression.
    """

    terms: Terms
    most_b: Floats

    def scaled(self, scale: float) -> Terms:
        """The terms of the expression in another unit, multiplied by ``scale``."""
        return [(columns, np.asarray(amounts) * scale) for columns, amounts in self.terms]

    def of(self, chosen_b: Ints | Bools) -> Sum:
        """The expression for some blocks."""
        terms: Terms = [
            (columns[chosen_b], np.broadcast_to(amounts, columns.shape)[chosen_b]) for columns, amounts in self.terms
        ]
        return Sum(terms, self.most_b[chosen_b])


def numbers_of_blocks(chip: ChipModel, of: TokenRows, uncut: Floats, cut: Floats) -> Ints:
    """Useful numbers of blocks of tokens, ascending, given upper bounds of what blocks of kernels need.

    No more of :attr:`dfopt.terms.token_blocks.TokenRows.numbers` are listed than suffice for the largest sums.

    Parameters
    ----------
    chip, of
        The SRAM, and the tokens that are cut into blocks.
    uncut, cut : float array, B, shape (blocks,)
        Largest numbers of bytes of blocks of kernels that are not cut, and that are cut.

    Returns
    -------
    int array, shape (numbers,)

    Examples
    --------
    >>> limits = {"sram": 10.0, "tiles": 4, "cuts_weights": True}
    >>> chip = ChipModel(dram_bandwidth=1.0, overlap="perfect", fused=True, library=False, **limits)
    >>> numbers_of_blocks(chip, TokenRows(8, 8), np.array([2.0]), np.array([100.0])).tolist()
    [1, 2, 3, 4, 8]
    >>> numbers_of_blocks(chip, TokenRows(8, 8), np.array([2.0]), np.array([20.0])).tolist()
    [1, 2, 3]
    """
    needed = float(np.max(blocks_needed(chip, of, uncut, cut)))
    return of.numbers[of.numbers <= needed]


def token_sums(model: Model, charges: TokenCharges, A_kb: Ints) -> dict[str, Sum]:
    """Expressions for what blocks of kernels need and move in blocks of tokens, under given options.

    Parameters
    ----------
    model : Model
        Gets columns and rows that count, from below, how often blocks pay.
    charges : TokenCharges
        Charges of the kernels of a stage.
    A_kb : int array, shape (kernels of the stage, blocks)
        Columns that are 1 where a block holds a kernel.

    Returns
    -------
    dict of str to Sum
        Expressions by name, for those of :data:`dfopt.terms.token_blocks.TOKEN_RESOURCES` that any block may have.
    """
    place, none = {k: row for row, k in enumerate(charges.kernels.tolist())}, Sum([], np.zeros(A_kb.shape[1]))
    by_resource = dict[str, Sum]()
    for i, incidence in enumerate(charges.incidences):
        columns_b = _counted(model, f"paid_{i}", incidence, place, A_kb) if charges.amount_ri[:, i].any() else None
        for resource, amount in zip(TOKEN_RESOURCES, charges.amount_ri[:, i].tolist(), strict=True):
            if columns_b is not None and amount:
                partial = by_resource.get(resource, none)
                by_resource[resource] = Sum([*partial.terms, (columns_b, amount)], partial.most_b + amount)
    return by_resource


def _counted(model: Model, name: str, incidence: Incidence, place: Mapping[int, int], A_kb: Ints) -> Ints | None:
    """Columns that are at least 1 where a block pays an incidence; none where no block ever does."""
    if isinstance(incidence, Has):
        return A_kb[place[incidence.kernel]] if incidence.kernel in place else None
    if isinstance(incidence, AnyOf):
        rows = [place[k] for k in incidence.kernels if k in place]
        if len(rows) < 2:
            return A_kb[rows[0]] if rows else None
        columns_b = model.continuous(name, A_kb.shape[1], 0.0, 1.0)
        for row in rows:
            model.rows(f"{name}_{row}", [(columns_b, 1.0), (A_kb[row], -1.0)], lower=0)
        return columns_b
    if not isinstance(incidence, Inside):
        raise TypeError(f"{type(incidence).__name__} has no rows for blocks of tokens")
    rows = [place[k] for k in incidence.readers if k in place and incidence.source in place]
    if not rows:
        return None
    columns_b = model.continuous(name, A_kb.shape[1], 0.0, 1.0)
    for row in rows:
        both: Terms = [(columns_b, 1.0), (A_kb[place[incidence.source]], -1.0), (A_kb[row], -1.0)]
        model.rows(f"{name}_{row}", both, lower=-1.0)
    return columns_b


class TokenBlockRows:
    """MILP rows that choose which blocks of kernels take their tokens in blocks, and in how many.

    Blocks of kernels that fit in any case hold their weights: they have no columns.

    Parameters
    ----------
    model : Model
        Gets columns and rows.
    chip, of : ChipModel, TokenRows
        The SRAM, and the tokens that are cut into blocks.
    held : Sum
        Bytes of SRAM of blocks of kernels that hold their weights, no kernel's in parts.
    by_resource : mapping of str to Sum
        Expressions of :data:`dfopt.terms.token_blocks.TOKEN_RESOURCES` by name; those that are zero are left out.
    """

    def __init__(self, model: Model, chip: ChipModel, of: TokenRows, held: Sum, by_resource: Mapping[str, Sum]) -> None:
        self.model, self._sram = model, chip.sram
        self._blocks = len(held.most_b)
        self._chosen_b = np.flatnonzero(held.most_b > chip.sram)
        none = Sum([], np.zeros(self._blocks))
        self._sums = {name: each.of(self._chosen_b) for name, each in by_resource.items()}
        uncut, cut = (by_resource.get(name, none).most_b for name in ("beside_token_bytes", "token_bytes"))
        self._number_n = numbers_of_blocks(chip, of, uncut, cut)
        self._share_n = shares_of(of, self._number_n.astype(float))
        self._way_bn = np.full((self._blocks, 1 + len(self._number_n)), -1, dtype=np.int64)
        if len(self._chosen_b):
            self._way_bn[self._chosen_b] = model.binary("token_blocks", (len(self._chosen_b), 1 + len(self._number_n)))
            model.rows("one_way", [(self._ways, 1.0)], 1, 1)
            self._fit()
            self._forbid()

    @property
    def _ways(self) -> Ints:
        """Columns of the ways of blocks that have any: that they hold their weights, then each number of blocks."""
        return np.asarray(self._way_bn[self._chosen_b])

    @cached_property
    def holds_b(self) -> Ints:
        """Columns that are 1 where a block of kernels holds its weights; -1 where it always does."""
        return np.asarray(self._way_bn[:, 0])

    def _fit(self) -> None:
        """Blocks of tokens that pass through fit SRAM, beside what is there for all of them."""
        uncut = self._sums.get("beside_token_bytes")
        terms: Terms = [] if uncut is None else uncut.scaled(1 / self._sram)
        if "token_bytes" in self._sums:
            most_b = self._sums["token_bytes"].most_b
            room = self._sram * (1 + FITS) / np.maximum(self._share_n * most_b[:, None], LEAST_DIVISOR)
            columns = self._shared_out("token_bytes", np.minimum(room, 1.0))
            terms.append((columns, self._share_n * most_b[:, None] / self._sram))
        if not terms:
            return
        if uncut is not None:
            terms.append((self._ways[:, 0], -np.maximum(uncut.most_b / self._sram - 1.0, 0.0)))
        self.model.rows("token_sram", terms, upper=1.0 + ROUNDING)

    def _forbid(self) -> None:
        """Blocks with a kernel that needs all tokens at once hold their weights."""
        if "all_tokens" in self._sums:
            for number, (columns, _) in enumerate(self._sums["all_tokens"].terms):
                self.model.rows(f"all_tokens_{number}", [(columns, 1.0), (self._ways[:, 0], -1.0)], upper=0)

    def _shared_out(self, resource: str, most_n: Floats) -> Ints:
        """Columns of the share of the most of a sum that it has in each number of blocks of tokens.

        ``most_n``: what the share may be at most if that number is taken.
        """
        ways, of = self._ways, self._sums[resource]
        unit_b = np.where(of.most_b > 0, of.most_b, 1.0)
        columns = self.model.continuous(f"share_{resource}", ways.shape, 0.0, 1.0)
        less: Terms = [
            (each, -np.asarray(amounts) / unit_b.reshape(-1, *(1,) * (each.ndim - 1))) for each, amounts in of.terms
        ]
        self.model.rows(f"share_{resource}", [(columns, 1.0), *less], 0, 0)
        most = np.concatenate([np.ones((len(ways), 1)), np.broadcast_to(most_n, ways[:, 1:].shape)], axis=1)
        self.model.rows(f"share_{resource}_most", [(columns.ravel(), 1.0), (ways.ravel(), -most.ravel())], upper=0)
        return columns[:, 1:]

    def again(self, resource: str) -> tuple[Ints, Floats] | None:
        """Columns and bytes of a resource that all blocks of tokens after the first read again; None if there are none.

        One row a block of kernels; at most one of its columns is not 0.
        """
        if resource not in self._sums or not len(self._chosen_b) or self._number_n[-1] == 1:
            return None
        columns = np.full((self._blocks, len(self._number_n)), -1, dtype=np.int64)
        columns[self._chosen_b] = self._shared_out(resource, np.ones(1))
        amounts = np.zeros(columns.shape)
        amounts[self._chosen_b] = self._sums[resource].most_b[:, None] * (self._number_n - 1)
        return columns, amounts

    def where_held(self, name: str, columns_fb: Ints) -> Ints:
        """Columns for the product of given columns with "the block of kernels holds its weights".

        Parameters
        ----------
        name
            Prefix of the names of columns and rows.
        columns_fb : int array, shape (combinations, blocks)
            Columns, at most one of which is 1 for a block of kernels. -1: never.
        """
        held_fb = columns_fb.copy()
        here = np.flatnonzero((columns_fb >= 0).any(axis=0) & (self.holds_b >= 0))
        if not len(here):
            return held_fb
        chosen, holds = columns_fb[:, here].T, self.holds_b[here]
        each = chosen >= 0
        shared = np.where(each, self.model.continuous(name, chosen.shape, 0.0, 1.0), -1)
        self.model.rows(f"{name}_each", [(shared[each], 1.0), (chosen[each], -1.0)], upper=0)
        self.model.rows(f"{name}_held", [(shared, 1.0), (holds, -1.0)], upper=0)
        self.model.rows(f"{name}_both", [(shared, 1.0), (chosen, -1.0), (holds, -1.0)], lower=-1.0)
        held_fb[:, here] = shared.T
        return held_fb

    def fits(self, name: str, held: Terms, most_b: Floats) -> None:
        """Add rows by which blocks of kernels that store their weights fit SRAM.

        Parameters
        ----------
        name : str
            Prefix of the rows.
        held : terms
            Bytes of every block, as shares of SRAM.
        most_b : float array, shape (blocks,), B
            Upper bounds of these bytes.
        """
        relaxed = np.maximum(most_b / self._sram - 1.0, 0.0)
        terms = [*held, (self.holds_b, np.where(self.holds_b >= 0, relaxed, 0.0))]
        self.model.rows(name, terms, upper=1.0 + FITS + np.where(self.holds_b >= 0, relaxed, 0.0))
