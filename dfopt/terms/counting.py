"""How often blocks pay incidences as sparse columns, each worked out once however many tables of charges have it.

Suffixes: b block, k kernel, i incidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.terms.incidence import Incidence

if TYPE_CHECKING:
    import scipy

BlockNumbers = np.ndarray[tuple[int, ...], np.dtype[np.int32]]
"""Numbers of blocks: half the size of other integers, as there are millions."""

_FEW = 4
"""Vectors of amounts, up to which a product takes counts column by column."""
_SMALL = 4_096
"""Blocks times incidences times vectors, up to which sparse matrices gain nothing; to load them takes 0.1 s."""
_LOT = 65_536
"""Counts that are worked out together: half a megabyte, which stays in the processor's cache."""


class Incidences(tuple[Incidence, ...]):
    """A tuple of incidences whose hash is computed once, as a cache key."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class IncidenceCounts:
    """Sparse incidence counts of some blocks: how often each block pays a charge.

    Parameters
    ----------
    member_bk : bool array, shape (blocks, kernels)
        Whether each block holds each kernel.

    Examples
    --------
    >>> from dfopt.terms.incidence import AnyOf, Has
    >>> counting = IncidenceCounts(np.array([[True, False], [True, True]]))
    >>> counting.column(Has(1))[0].tolist()
    [1]
    >>> counting.matrix((Has(1), AnyOf((0, 1)))).toarray().tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """

    _unit_counts: ClassVar[Floats] = np.ones(0)

    def __init__(self, member_bk: Bools) -> None:
        self.member_bk = member_bk
        self._columns: dict[Incidence, tuple[BlockNumbers, Floats]] = {}
        self._together: dict[tuple[Incidence, ...], tuple[Floats, BlockNumbers, BlockNumbers]] = {}
        self._matrices: dict[tuple[Incidence, ...], scipy.sparse.csc_array] = {}
        self._rows: dict[tuple[Incidence, ...], scipy.sparse.csr_array] = {}
        self._among: dict[bytes, IncidenceCounts] = {}

    def column(self, incidence: Incidence) -> tuple[BlockNumbers, Floats]:
        """Blocks that pay an incidence, ascending, and the positive count of each."""
        self._count([incidence])
        return self._columns[incidence]

    def matrix(self, incidences: tuple[Incidence, ...]) -> scipy.sparse.csc_array:
        """Counts of some incidences as a sparse matrix, shape (blocks, incidences)."""
        if incidences not in self._matrices:
            import scipy  # not for those who never ask

            matrix: Any = scipy.sparse.csc_array((len(self.member_bk), len(incidences)))
            matrix.data, matrix.indices, matrix.indptr = self._compressed(incidences)  # as arguments they are copied
            self._matrices[incidences] = matrix
        return self._matrices[incidences]

    def block_totals(self, incidences: tuple[Incidence, ...], amount_vi: Floats, some: Ints | None = None) -> Floats:
        """Total of some amounts that each block pays: counts times amounts, summed over incidences.

        Most counts are 0. Libraries for dense matrices start several threads, which wait for each other longer than the
        product of a few vectors takes: 8 ms instead of 0.2 ms for one vector, 50 charges and 18,000 blocks.

        Parameters
        ----------
        incidences
            Rules that say how often a block pays.
        amount_vi : float array, shape (vectors, incidences)
            Amounts, in any unit.
        some : int array, optional
            The blocks; all if left out.

        Returns
        -------
        float array, shape (vectors, blocks)
            In the unit of the amounts.
        """
        vectors, count = len(amount_vi), len(self.member_bk)
        amount_iv = np.ascontiguousarray(amount_vi.T)
        if count * amount_vi.size <= _SMALL:
            times, blocks, ends = self._compressed(incidences)
            paid_vn = times * amount_vi.repeat(np.diff(ends), axis=1)
            place_vn = blocks + count * np.arange(vectors)[:, None]
            totals = np.bincount(place_vn.ravel(), paid_vn.ravel(), vectors * count)
            sum_vb = np.asarray(totals, dtype=np.float64).reshape(vectors, count)
        # rows are faster for many vectors, but to make them takes as long as twenty products with one
        elif vectors <= _FEW:
            sum_vb = np.asarray((self.matrix(incidences) @ amount_iv).T)
        else:
            if incidences not in self._rows:
                import scipy

                self._rows[incidences] = scipy.sparse.csr_array(self.matrix(incidences))
            counted = self._rows[incidences]
            return np.asarray(((counted if some is None else counted[some]) @ amount_iv).T)
        return sum_vb if some is None else sum_vb[:, some]

    @cached_property
    def size_b(self) -> Ints:
        """Number of kernels in each block: int array, shape (blocks,)."""
        return np.asarray(self.member_bk.sum(axis=1), dtype=np.int64)

    @property
    def alone(self) -> IncidenceCounts:
        """Counts of the blocks of a single kernel, for every kernel."""
        return single_kernels(self.member_bk.shape[1])

    def among(self, some_b: Bools) -> IncidenceCounts:
        """Counts of the blocks selected by a bool array, shape (blocks,)."""
        key = some_b.tobytes()
        if key not in self._among:
            self._among[key] = IncidenceCounts(self.member_bk[some_b])
        return self._among[key]

    def _compressed(self, incidences: tuple[Incidence, ...]) -> tuple[Floats, BlockNumbers, BlockNumbers]:
        """Counts above 0, the blocks that pay so often, and where the counts of each incidence end, from 0 on."""
        if incidences not in self._together:
            self._count(incidences)
            columns = [self._columns[each] for each in incidences]
            blocks = np.concatenate([np.zeros(0, dtype=np.int32), *(blocks for blocks, _ in columns)])
            times = self._times([times for _, times in columns])
            ends = np.cumsum([0, *(len(blocks) for blocks, _ in columns)], dtype=np.int32)
            for each, first, end in zip(incidences, ends.tolist(), ends[1:].tolist(), strict=False):
                self._columns[each] = blocks[first:end], times[first:end]  # kept once: there may be a gigabyte
            self._together[incidences] = times, blocks, ends
        return self._together[incidences]

    @cached_property
    def _by_kernel(self) -> Bools:
        """Members of all blocks, those of one kernel side by side."""
        return np.asfortranarray(self.member_bk)

    def _times(self, several: Sequence[Floats | Bools]) -> Floats:
        """Counts one behind the other. Most are 1: then an array is shared, as there may be a gigabyte of them."""
        if any(times.base is not IncidenceCounts._unit_counts and (times != 1).any() for times in several):
            return np.concatenate(several)
        count = sum(map(len, several))
        if count > len(IncidenceCounts._unit_counts):
            IncidenceCounts._unit_counts = np.ones(2 * count)
            IncidenceCounts._unit_counts.flags.writeable = False
        return IncidenceCounts._unit_counts[:count]

    def _count(self, incidences: Sequence[Incidence]) -> None:
        """Work out columns that are not known, some of one class at a time."""
        of_class: dict[type[Incidence], list[Incidence]] = {}
        for each in dict.fromkeys(incidences):
            if each not in self._columns:
                of_class.setdefault(type(each), []).append(each)
        lot = max(_LOT // max(len(self.member_bk), 1), 1)
        starts = np.arange(lot + 1) * len(self.member_bk)
        for kind, several in of_class.items():
            for first in range(0, len(several), lot):
                some = several[first : first + lot]
                count_n = kind.of_blocks(some, self._by_kernel).T.ravel()  # those of one incidence side by side
                paid, begins = np.flatnonzero(count_n.astype(bool, copy=False)), starts[: len(some) + 1]
                ends = np.searchsorted(paid, begins)
                blocks = (paid - begins[:-1].repeat(np.diff(ends))).astype(np.int32)
                times, ends = self._times([count_n[paid]]), ends.tolist()
                for each, start, end in zip(some, ends, ends[1:], strict=False):
                    self._columns[each] = blocks[start:end], times[start:end]


@lru_cache(maxsize=16)
def single_kernels(count: int) -> IncidenceCounts:
    """Counts of the blocks of a single kernel, equal for all layers with ``count`` kernels."""
    return IncidenceCounts(np.eye(count, dtype=bool))
