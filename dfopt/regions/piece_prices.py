"""What the pieces of a pass take under the options of the few kernels that count for them.

Suffixes: p piece, r rest, k kernel of the graph, c charge, q sum of resources, v vector of options of a few kernels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dfopt.arrays import Bools, Floats, Ints
from dfopt.bnb import Clock
from dfopt.fusion.pieces import Pieces
from dfopt.regions.rests import given, least_of, least_over
from dfopt.terms.chip import ChipModel
from dfopt.terms.counting import IncidenceCounts
from dfopt.terms.elimination import Factor
from dfopt.terms.sram import FITS, parts_of
from dfopt.terms.table import Domain, Table, amounts_left

_VECTORS = 1 << 15
"""Vectors of options of one piece, at most: of more kernels some take the least of each charge."""
_LOT = 100_000
"""Figures of pieces that are worked out together, less than a megabyte: they stay in the processor's cache."""
_NEVER_FITS = 1e30
"""Bytes in place of infinitely many, which none are 0 times."""
_PER_UNIT = 40.0
"""Entries of tables that are worked out in a unit of work."""

_Varying = tuple[tuple[int, ...], tuple[int, ...], Floats]  # rows, scope and amounts of a charge


@dataclass(frozen=True, eq=False)
class PassPieces:
    """The pieces that a pass of a layer may be cut into, for any options.

    Attributes
    ----------
    members : int array
        Kernels of the pass, as numbers of the graph.
    kernels : int
        Number of kernels of the graph.
    pieces : Pieces
        Pieces of a stage with every figure at its least.
    """

    members: Ints
    kernels: int
    pieces: Pieces

    @cached_property
    def member_pk(self) -> Bools:
        """Kernels of every piece: shape (pieces, kernels of the graph)."""
        return self._of_graph(self.pieces.masks)

    @cached_property
    def member_rk(self) -> Bools:
        """Kernels of every rest: shape (rests, kernels of the graph)."""
        return self._of_graph([*self.pieces.rests])

    def _of_graph(self, masks: Sequence[int]) -> Bools:
        member = np.zeros((len(masks), self.kernels), dtype=bool)
        member[:, self.members] = self.pieces.members(masks)
        return member

    @cached_property
    def counting(self) -> IncidenceCounts:
        """Incidence counts of the pieces."""
        return IncidenceCounts(self.member_pk)

    @cached_property
    def alone_p(self) -> Bools:
        """Mask of the pieces that never share a block with another piece: shape (pieces,)."""
        return self.pieces.alone


@dataclass(frozen=True, eq=False)
class PiecePrices:
    """Seconds of the pieces of a pass over the remaining options, each computed on first use.

    Attributes
    ----------
    of : PassPieces
        The pieces.
    table : Table
        Charges that decide the seconds of blocks, without those of blocks of tokens.
    left : Domain
        Options that are left.
    chip : ChipModel
        Limits and rates, by which bytes take the same time in any block.
    clock : Clock
        Counts the work.
    """

    of: PassPieces
    table: Table
    left: Domain
    chip: ChipModel
    clock: Clock

    def weighted(self, p: int, weight_q: Floats) -> Factor:
        """Price of piece ``p``: its resources weighted by ``weight_q``, or its seconds if it shares no block."""
        if self.of.alone_p[p]:
            return self.time_p[p]
        scope, sum_q = self.sums_p[p]
        with np.errstate(invalid="ignore"):
            return scope, np.where(np.isinf(sum_q[0]), np.inf, np.tensordot(weight_q, sum_q, 1))

    @cached_property
    def time_p(self) -> dict[int, Factor]:
        """Seconds of pieces that form blocks of their own, over the options that they share; infinite: does not fit."""
        return {}

    @cached_property
    def sums_p(self) -> dict[int, Factor]:
        """For pieces that may share a block, the least of each resource sum (first axis) over the shared options."""
        return {}

    def best_options(self, p: int, options: Mapping[int, int]) -> dict[int, int]:
        """Best options of piece ``p`` as a block of its own, given the options of some kernels."""
        scope = self._scope_of([p])
        return least_of(given((scope, self._summed([p], scope)[0].max(axis=0)), options))

    def place(self, scope: Sequence[int], options: Mapping[int, int]) -> int:
        """Row-major index of some options in a table over the options of the kernels in ``scope``."""
        places, sizes = [options[k] for k in scope], [self.sizes_k[k] for k in scope]
        return int(np.ravel_multi_index(places, sizes)) if scope else 0

    @cached_property
    def sizes_k(self) -> list[int]:
        """Number of remaining options of each kernel."""
        return [len(left) for left in self.left]

    def price(self, some: Iterable[int]) -> None:
        """Compute the prices of some pieces, in batches that depend on the same kernels."""
        alike = defaultdict[tuple[bytes, bool], list[int]](list)
        for p in some:
            if p not in self.time_p:
                alike[self._concerns_pk[0][p].tobytes(), bool(self._is_single_p[p])].append(p)
        for together in alike.values():
            scope = self._scope_of(together)
            vectors = math.prod(self.sizes_k[k] for k in scope)
            lot = max(_LOT // vectors, 1)
            for few in (together[first : first + lot] for first in range(0, len(together), lot)):
                self.clock.check(len(few) * vectors / _PER_UNIT)
                for p, sum_q in zip(few, self._summed(few, scope), strict=True):
                    shared = self.shared(p)
                    self.time_p[p] = least_over((scope, sum_q.max(axis=0)), shared)
                    if not self.of.alone_p[p]:
                        kept, _ = self.time_p[p]
                        out = tuple(1 + axis for axis, k in enumerate(scope) if k not in kept)
                        self.sums_p[p] = kept, sum_q.min(axis=out)

    def _scope_of(self, some: Sequence[int]) -> tuple[int, ...]:
        """Kernels whose options count for some pieces. Of too many those whose options matter most: of all others every
        charge takes its least."""
        kernels = np.flatnonzero(self._concerns_pk[0][some[0]]).tolist()
        if math.prod(self.sizes_k[k] for k in kernels) <= _VECTORS:
            return tuple(kernels)
        spread, kept = dict.fromkeys(kernels, 0.0), list[int]()
        for c in np.unique(self._often[some].indices).tolist():
            rows, of, amount = self._charges[1][c]
            for axis, k in enumerate(of if min(rows) < len(self.chip.rule.serial_sets) else ()):
                spread[k] += float(np.ptp(amount, axis=axis).max())
        for k in sorted(kernels, key=lambda k: -spread[k]):
            if math.prod(self.sizes_k[other] for other in (*kept, k)) <= _VECTORS:
                kept.append(k)
        return tuple(sorted(kept))

    @cached_property
    def _is_single_p(self) -> Bools:
        """Pieces of one kernel, whose weight may be cut into parts."""
        return np.asarray(self.of.member_pk.sum(axis=1) == 1)

    @cached_property
    def _rows(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Rows of figures that each resource of charges adds to, and what a unit of it is there.

        A row for each sum, one for bytes in SRAM, and of those the stationary ones and the buffers that are cut with
        them, and bytes that are read again.
        """
        chip, rule_sums = self.chip, self.chip.rule.serial_sets
        names = "compute_s", "dram_bytes", "network_s", "sram_traffic_bytes"
        units = 1.0, 1.0 / chip.dram_bandwidth, 1.0, 1.0 / chip.sram_bandwidth
        seconds = zip(range(len(chip.resources)), names, units, strict=False)
        rows = {name: (tuple(q for q, each in enumerate(rule_sums) if r in each), unit) for r, name, unit in seconds}
        sram = len(rule_sums)
        rows |= {"buffer_bytes": ((sram,), 1.0), "stationary_bytes": ((sram, sram + 1), 1.0)}
        return rows | {
            "cut_buffer_bytes": ((sram + 2,), 1.0),
            "reread_bytes": ((sram + 3,), 1.0),
            "legal": ((sram,), 1.0),
        }

    @cached_property
    def _charges(self) -> tuple[Floats, list[_Varying], scipy.sparse.csr_array]:
        """Figures of pieces that no option changes, shape (rows, pieces); all other charges; and how often pieces pay
        these."""
        charges = [each for each in self.table.charges if each.resource in self._rows]
        paid = self.of.counting.matrix(tuple(each.incidence for each in charges))
        fixed = np.zeros((len(self.chip.rule.serial_sets) + 4, paid.shape[0]))
        others, columns = list[_Varying](), list[int]()
        for c, charge in enumerate(charges):
            rows, unit = self._rows[charge.resource]
            amount = np.minimum(amounts_left(charge, self.left) * unit, _NEVER_FITS)
            scope = tuple(k for k in charge.scope if self.sizes_k[k] > 1)
            if scope:
                others.append((rows, scope, amount.reshape([self.sizes_k[k] for k in scope])))
                columns.append(c)
            else:
                some = slice(paid.indptr[c], paid.indptr[c + 1])
                for row in rows:
                    fixed[row, paid.indices[some]] += paid.data[some] * float(amount.item())
        return fixed, others, paid[:, columns].tocsr()

    @property
    def _often(self) -> scipy.sparse.csr_array:
        return self._charges[2]

    def _summed(self, some: Sequence[int], scope: tuple[int, ...]) -> Floats:
        """The sums of resources of some pieces, infinite where they do not fit: shape (pieces, sums, options ...).

        All of them have one kernel, or all of them have several.
        """
        (fixed, others, _), n_sums, single = (
            self._charges,
            len(self.chip.rule.serial_sets),
            bool(self._is_single_p[some[0]]),
        )
        sizes, few = [self.sizes_k[k] for k in scope], self._often[some]
        used = [c for c in np.unique(few.indices).tolist() if single or min(others[c][0]) <= n_sums]
        often_pc, amount_cv = few[:, used].toarray(), np.empty((len(used), math.prod(sizes)))
        for place, c in enumerate(used):
            _, kernels, amount = others[c]
            least = amount.min(axis=tuple(axis for axis, k in enumerate(kernels) if k not in scope))
            shape = [self.sizes_k[k] if k in kernels else 1 for k in scope]
            amount_cv[place] = np.broadcast_to(least.reshape(shape), sizes).ravel()

        def figure(row: int) -> Floats:
            places = [place for place, c in enumerate(used) if row in others[c][0]]
            return fixed[row, some][:, None] + often_pc[:, places] @ amount_cv[places]

        seconds, sram = [figure(q) for q in range(n_sums)], figure(n_sums)
        if single:
            stationary, cut, again = map(figure, range(n_sums + 1, n_sums + 4))
            parts = parts_of(self.chip, rest := sram - stationary - cut, divided := stationary + cut)
            sram = np.where(np.isinf(parts), np.inf, rest + divided / parts)
            further = np.where(np.isinf(parts), 0.0, parts - 1.0) * again / self.chip.dram_bandwidth
            for q in self._rows["dram_bytes"][0]:
                seconds[q] += further
        fits = sram <= self.chip.sram * (1 + FITS)
        return np.stack([np.where(fits, each, np.inf) for each in seconds], axis=1).reshape(-1, n_sums, *sizes)

    # -- whose options count ------------------------------------------------------------------------------------------

    @cached_property
    def _concerned_kk(self) -> Bools:
        """Whether what a block with a kernel takes may depend on the option of another one."""
        concerned_kk = np.zeros((self.of.kernels, self.of.kernels), dtype=bool)
        for charge in self.table.charges:
            if charge.resource in self._rows and (free := [k for k in charge.scope if self.sizes_k[k] > 1]):
                concerned_kk[np.ix_(charge.incidence.payers, free)] = True
        return concerned_kk

    def _concerns(self, member: Bools) -> tuple[Bools, Bools]:
        """Kernels whose options count for sets of kernels, one in each row; and of these, those whose options count for
        other kernels of the pass, too."""
        concerned_kk = self._concerned_kk.astype(np.float32)
        often = member.astype(np.float32) @ concerned_kk
        return often > 0, (often > 0) & (concerned_kk[self.of.members].sum(axis=0) > often)

    @cached_property
    def _concerns_pk(self) -> tuple[Bools, Bools]:
        """The same of every piece."""
        return self._concerns(self.of.member_pk)

    def shared(self, p: int) -> list[int]:
        """Kernels whose options affect piece ``p`` and other pieces."""
        return list(np.flatnonzero(self._concerns_pk[1][p]).tolist())

    @cached_property
    def shared_r(self) -> list[tuple[int, ...]]:
        """By rest, the kernels whose options affect it and what runs before it."""
        return [tuple(np.flatnonzero(shared_k).tolist()) for shared_k in self._concerns(self.of.member_rk)[1]]
