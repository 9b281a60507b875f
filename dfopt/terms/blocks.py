"""What a block of kernels takes, from its sums: the one part of its price that does not add up.

Every sum has a sense: more of it never makes a block faster, nor legal. So least sums give a bound.

Suffixes: v vector of options (one of each kernel), b block, k kernel, c column of the table's amounts, i incidence, l
latency.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.terms.chip import Chip, combine
from dfopt.terms.cycle import least_level
from dfopt.terms.incidence import counts
from dfopt.terms.table import Table

__all__ = ["FITS", "BlockPrices", "Blocks", "keeps_chip", "parts_of"]

FITS = 1e-9
"""Share of the SRAM by which a block may exceed it: sums of bytes are rounded."""
_ROUNDED = 1e-12


def parts_of(chip: Chip, rest: Floats, cut: Floats) -> Floats:
    """Parts that the weights of kernels are cut into, infinite where nothing makes them fit.

    A kernel that is alone in its block and does not fit SRAM runs in parts of its weight. Its stationary bytes and its
    outputs are cut into so many parts. All else that it needs is in SRAM all the time.

    Parameters
    ----------
    chip
        Its SRAM, and whether it may cut weights (``weight_tiling`` other than ``forbid``).
    rest : float array, B
        Bytes in SRAM that a kernel alone in its block needs whatever its parts. Of any shape.
    cut : float array, B
        Bytes in SRAM that are cut with its weight. Of the shape of ``rest``.

    Returns
    -------
    float array, no unit
        Of the shape of ``rest``. A whole number: 1 where the kernel fits as a whole, has nothing to cut, or may not be
        cut. Infinite where it may be cut, but ``rest`` alone takes all of SRAM.

    Examples
    --------
    >>> limits = {"sram": 10.0, "tiles": 4, "cuts_weights": True, "reads_again": True, "writes_again": False}
    >>> chip = Chip(dram_bandwidth=1.0, overlap="perfect", fused=True, library=False, **limits)
    >>> parts_of(chip, np.array([4.0, 4.0, 10.0]), np.array([6.0, 18.0, 1.0])).tolist()
    [1.0, 3.0, inf]
    """
    may_cut = (cut > 0) & (chip.cuts_weights)
    short = (rest + cut > chip.sram * (1 + _ROUNDED)) & may_cut
    room = np.where(short & (rest < chip.sram), chip.sram - rest, np.inf)
    parts = np.maximum(np.ceil(cut / room - _ROUNDED), 1.0)
    return np.asarray(np.where(short & (rest >= chip.sram), np.inf, parts))


def keeps_chip(
    chip: Chip, count: Ints, tiled: Ints | Floats, sram: Floats, ahead: Ints | Floats | None = None
) -> Bools:
    """Whether blocks keep the limits of the chip: its SRAM, its compute tiles, and how many kernels it fuses.

    Whether a library has one kernel for the kernels of a block is not checked.

    Parameters
    ----------
    chip
        The limits. If it is not ``fused``, a block may have one kernel only.
    count : int array, shape (blocks,)
        Kernels of each block. A block with more kernels than the chip has compute tiles is not legal.
    tiled : array, shape (blocks,) or (vectors, blocks)
        How many of them load their weight in parts. A block with such a kernel and any other is not legal.
    sram : float array, B
        Bytes that each block holds in SRAM at a time. Of the shape of ``tiled``. They may exceed the SRAM by its share
        :data:`FITS`.
    ahead : array, shape (blocks,), optional
        Forward kernels of each block. If given, a block that has both forward kernels and others is not legal. None:
        blocks may mix passes.

    Returns
    -------
    bool array
        Of the shape of ``sram``: true where a block keeps all limits.
    """
    legal: Bools = (sram <= chip.sram * (1 + FITS)) & (count <= chip.tiles) & ((tiled == 0) | (count <= 1))
    if not chip.fused:
        legal &= count <= 1
    if ahead is not None:
        legal &= (ahead == 0) | (ahead == count)
    return legal


@dataclass(frozen=True)
class BlockPrices:
    """Time, bytes and legality of blocks under vectors of options, on one chip in one evaluation.

    A vector of options has one option of each kernel.

    Attributes
    ----------
    seconds : s, shape (resources, vectors, blocks)
        Seconds of each resource, in the order of :attr:`dfopt.terms.chip.Chip.resources`.
    time : s, shape (vectors, blocks)
        Time of the block, where resources overlap as assumed (``overlap``).
    dram_bytes : B, shape (vectors, blocks)
        Bytes that pass through DRAM, as its fastest memory counts them: a byte of a memory of half the bandwidth is
        two.
    sram_bytes : B, shape (vectors, blocks)
        Bytes in SRAM at a time.
    legal : bool, shape (vectors, blocks)
        Whether the block keeps the limits of the chip (:func:`keeps_chip`; which passes it mixes is not checked), holds
        no kernel of infinite parts, and reaches some latency under the cycle model. Which options may be together is
        not checked: the resource ``legal`` of the table says that.
    parts : no unit, shape (vectors, kernels)
        Parts that the weight of each kernel is cut into; above 1 its kernel must be alone. Infinite: the kernel does
        not fit the chip, and no block that holds it is legal.
    """

    seconds: Floats
    time: Floats
    dram_bytes: Floats
    sram_bytes: Floats
    legal: Bools
    parts: Floats


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of kernels, with the table of charges and the chip that price them.

    How often each block pays each charge depends on its kernels only. So it is worked out once, for all vectors of
    options.

    Attributes
    ----------
    table
        Charges of the layer.
    chip
        Limits and rates.
    member_bk : bool array, shape (blocks, kernels)
        Which kernels a block holds, at least one.
    latency_l : s, shape (levels,)
        Latencies that a block may have under the cycle model: :attr:`dfopt.terms.layer.Layer.latency_l` of the layer.
        Empty under other compute models.
    """

    table: Table
    chip: Chip
    member_bk: Bools
    latency_l: Floats = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def count_bi(self) -> Floats:
        """How often each block pays each incidence of the table: float array, shape (blocks, incidences)."""
        return counts(self.table.incidences, self.member_bk)

    @cached_property
    def count_ki(self) -> Floats:
        """How often each kernel, in a block of its own, pays each incidence of the table.

        Float array, shape (kernels, incidences).
        """
        return counts(self.table.incidences, np.eye(self.member_bk.shape[1], dtype=bool))

    def prices(self, amount_vc: Floats) -> BlockPrices:
        """Time, bytes and legality of all blocks under vectors of amounts: exact amounts, or the least of a domain.

        Least amounts give a bound: under no options of the domain does a block take less time or fewer DRAM bytes, and
        a block that is not legal is legal under none of them. That holds if the chip has no
        :attr:`~dfopt.terms.chip.Chip.memory_rows`, as :attr:`dfopt.terms.chip.Chip.bounding` has none.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Amounts of all charges: what :meth:`dfopt.terms.table.Table.exact` returns, or what
            :meth:`~dfopt.terms.table.Table.least` returns as the only row.

        Returns
        -------
        BlockPrices
            Arrays for these vectors, in their order, and for the blocks in the order of :attr:`member_bk`.
        """
        parts_vk = self.parts(amount_vc)
        dram, sram = self._sums(amount_vc, "dram_bytes"), self._sums(amount_vc, "buffer_bytes")
        sram += self._sums(amount_vc, "stationary_bytes")
        alone_b = np.flatnonzero(self.member_bk.sum(axis=1) == 1)
        of_b = np.argmax(self.member_bk[alone_b], axis=1)
        rest_vk, cut_vk = self._whole_and_cut(amount_vc)
        finite_vk = np.where(np.isfinite(parts_vk), parts_vk, 1.0)
        dram[:, alone_b] += self.moved_again(amount_vc, parts_vk)[:, of_b]
        sram[:, alone_b] = (rest_vk + cut_vk / finite_vk)[:, of_b]
        compute, reached = self._compute(amount_vc)
        seconds = [compute, self.chip.dram_seconds(dram), self._sums(amount_vc, "network_s")]
        if "sram" in self.chip.resources:
            seconds.append(self._sums(amount_vc, "sram_traffic_bytes") / self.chip.sram_bandwidth)
        terms = np.stack(seconds)
        legal = self._legal(sram, parts_vk) & reached
        return BlockPrices(terms, combine(terms, self.chip), dram, sram, legal, parts_vk)

    def _compute(self, amount_vc: Floats) -> tuple[Floats, Bools]:
        """Seconds of compute, and whether the chip has tiles enough; shape (vectors, blocks) both.

        Under the cycle model the least latency for which the tiles suffice.
        """
        shape = len(amount_vc), len(self.member_bk)
        if not len(self.latency_l):
            return self._sums(amount_vc, "compute_s"), np.ones(shape, dtype=bool)

        def suffice(level_vb: Ints) -> Bools:
            used = self.table.sums_at(amount_vc, self.count_bi, "compute_tiles", level_vb)
            return np.asarray(used <= self.chip.tiles)

        level, reached = least_level(suffice, shape, len(self.latency_l))
        return self.latency_l[level], reached

    def _legal(self, sram: Floats, parts_vk: Floats) -> Bools:
        """Whether blocks fit the chip, shape (vectors, blocks)."""
        count_b = self.member_bk.sum(axis=1)
        in_parts, never = (parts_vk > 1).astype(float), np.isinf(parts_vk).astype(float)
        legal: Bools = keeps_chip(self.chip, count_b, in_parts @ self.member_bk.T, sram)
        legal &= never @ self.member_bk.T == 0
        return legal

    def parts(self, amount_vc: Floats) -> Floats:
        """Parts that the weight of each kernel is cut into if it is alone in its block, see :func:`parts_of`.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            As for :meth:`prices`.

        Returns
        -------
        float array, shape (vectors, kernels), no unit
            Infinite where a kernel may be cut and still does not fit the chip.
        """
        return parts_of(self.chip, *self._whole_and_cut(amount_vc))

    def moved_again(self, amount_vc: Floats, parts_vk: Floats) -> Floats:
        """DRAM bytes that each kernel moves again for every part of its weight after the first.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            As for :meth:`prices`.
        parts_vk : float array, shape (vectors, kernels)
            What :meth:`parts` returns. Kernels of infinite parts count as whole ones.

        Returns
        -------
        float array, shape (vectors, kernels), B
        """
        finite_vk = np.where(np.isfinite(parts_vk), parts_vk, 1.0)
        return np.asarray((finite_vk - 1.0) * self._alone(amount_vc, "reread_bytes"))

    def _whole_and_cut(self, amount_vc: Floats) -> tuple[Floats, Floats]:
        """Bytes that a kernel alone has in SRAM whatever its parts, and those that are cut; shape (vectors, kernels).

        What is stationary is never subtracted again: it may be a thousand times all else.
        """
        outputs = self._alone(amount_vc, "cut_buffer_bytes")
        rest = self._alone(amount_vc, "buffer_bytes") - outputs
        return rest, self._alone(amount_vc, "stationary_bytes") + outputs

    def _sums(self, amount_vc: Floats, resource: str) -> Floats:
        return self.table.sums(amount_vc, self.count_bi, resource)

    def _alone(self, amount_vc: Floats, resource: str) -> Floats:
        return self.table.sums(amount_vc, self.count_ki, resource)
