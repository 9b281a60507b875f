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

    A kernel alone that does not fit SRAM runs in parts of its weight: its stationary bytes and its outputs are cut, and
    what else it needs is there all the time.

    Parameters
    ----------
    chip
        Its SRAM, and whether it may cut weights.
    rest : float array, B
        Bytes in SRAM that a kernel alone needs whatever its parts. Of any shape.
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

    Which kernels a library has one kernel for is not looked at.

    Parameters
    ----------
    chip
        The limits.
    count : int array, shape (blocks,)
        Kernels of each block. A block has no more kernels than the chip has compute tiles.
    tiled : array, shape (blocks,) or (vectors, blocks)
        How many of them load their weight in parts. Such a kernel must be alone.
    sram : float array, B
        What each block holds at a time. Of the shape of ``tiled``. It may exceed the SRAM by a share of :data:`FITS`.
    ahead : array, shape (blocks,), optional
        Forward kernels of each block. If given, no block mixes forward kernels with others.

    Returns
    -------
    bool array
        Of the shape of ``sram``.
    """
    legal: Bools = (sram <= chip.sram * (1 + FITS)) & (count <= chip.tiles) & ((tiled == 0) | (count <= 1))
    if not chip.fused:
        legal &= count <= 1
    if ahead is not None:
        legal &= (ahead == 0) | (ahead == count)
    return legal


@dataclass(frozen=True)
class BlockPrices:
    """What blocks take under vectors of options.

    Attributes
    ----------
    seconds : s, shape (resources, vectors, blocks)
        Seconds of each resource, in the order of :attr:`dfopt.terms.chip.Chip.resources`.
    time : s, shape (vectors, blocks)
        Time of the block, where resources overlap as assumed.
    dram_bytes : B, shape (vectors, blocks)
        Bytes that pass through DRAM, as its fastest memory counts them.
    sram_bytes : B, shape (vectors, blocks)
        Bytes in SRAM at a time.
    legal : bool, shape (vectors, blocks)
        Whether the block keeps the limits of the chip, see :func:`keeps_chip`. Which options may be together is not
        looked at: the resource ``legal`` of the table says it.
    parts : no unit, shape (vectors, kernels)
        Parts that the weight of each kernel is cut into; above 1 its kernel must be alone. Infinite: it does not fit
        the chip, and no block that holds it is legal.
    """

    seconds: Floats
    time: Floats
    dram_bytes: Floats
    sram_bytes: Floats
    legal: Bools
    parts: Floats


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks that a table prices, and how often each pays what: the same whatever anything costs.

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
        """How often each kernel, as a block of its own, pays each incidence of the table.

        Float array, shape (kernels, incidences).
        """
        return counts(self.table.incidences, np.eye(self.member_bk.shape[1], dtype=bool))

    def prices(self, amount_vc: Floats) -> BlockPrices:
        """Prices of all blocks under vectors of amounts: exact ones, or the least of a domain.

        Prices of least amounts are a bound for all options of the domain, if the chip has no
        :attr:`~dfopt.terms.chip.Chip.memory_rows`: see :attr:`dfopt.terms.chip.Chip.bounding`.

        Parameters
        ----------
        amount_vc : float array, shape (vectors, columns)
            Of :meth:`dfopt.terms.table.Table.exact`; or :meth:`~dfopt.terms.table.Table.least` as its only row.

        Returns
        -------
        BlockPrices
            Arrays for these vectors, in their order, and for the blocks in the order of :attr:`member_bk`.
        """
        parts_vk = self._parts(amount_vc)
        dram, sram = self._sums(amount_vc, "dram_bytes"), self._sums(amount_vc, "buffer_bytes")
        sram += self._sums(amount_vc, "stationary_bytes")
        alone_b = np.flatnonzero(self.member_bk.sum(axis=1) == 1)
        of_b = np.argmax(self.member_bk[alone_b], axis=1)
        rest_vk, cut_vk = self._whole_and_cut(amount_vc)
        again_vk = self._alone(amount_vc, "reread_bytes")
        finite_vk = np.where(np.isfinite(parts_vk), parts_vk, 1.0)
        dram[:, alone_b] += ((finite_vk - 1.0) * again_vk)[:, of_b]
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

    def _parts(self, amount_vc: Floats) -> Floats:
        """Parts of each kernel's weight, see :func:`parts_of`; shape (vectors, kernels)."""
        return parts_of(self.chip, *self._whole_and_cut(amount_vc))

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
