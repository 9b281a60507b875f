"""A mixed-integer linear model as named blocks over numpy index arrays.

This module knows numpy and nothing about any solver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dfopt.arrays import Bools, Floats, Ints
from dfopt.milp.arrays import ModelArrays, check_bounds

Shape = int | tuple[int, ...]
LinearTerm = tuple[ArrayLike, ArrayLike]
Terms = list[tuple[Ints, Floats | float]]
"""Columns with their coefficients, as rows and objectives take them."""

__all__ = ["Model", "ModelArrays", "Terms"]


def _broadcast(what: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return ``values`` as floats of ``shape``, with a message naming the culprit."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape == shape or not array.shape:  # most often, and numpy takes long for it
        return array if array.shape == shape else np.full(shape, array)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{what}: shape {array.shape} does not broadcast to {shape}") from None


class Model:
    """A minimisation model built block by block.

    Parameters
    ----------
    name : str
        Used in messages only.

    Examples
    --------
    Choose the two cheapest of three:

    >>> m = Model("pick")
    >>> take = m.binary("take", 3)
    >>> m.rows("two", [(take[None, :], 1.0)], lower=2.0)
    >>> m.minimize([(take, [3.0, 1.0, 2.0])])
    >>> m.arrays().objective([0.0, 1.0, 1.0]), m.arrays().violation([0.0, 1.0, 0.0])
    (3.0, 1.0)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.column_blocks: dict[str, Ints] = {}  # column indices of a block, in its shape
        self.row_blocks: dict[str, slice] = {}
        self._lower: Floats = np.empty(0)
        self._upper: Floats = np.empty(0)
        self._integral: Bools = np.empty(0, dtype=np.bool_)
        self._cost_cols: Ints = np.empty(0, dtype=np.int64)
        self._cost_vals: Floats = np.empty(0)
        self._offset = 0.0
        self._row_lower: list[Floats] = []
        self._row_upper: list[Floats] = []
        self._triplets: list[tuple[Ints, Ints, Floats]] = []
        self._row_count = 0
        self._matrix: scipy.sparse.csr_array | None = None
        self._assembled: ModelArrays | None = None

    # ------------------------------------------------------------ variables

    def binary(self, name: str, shape: Shape) -> Ints:
        """Add a block of 0/1 columns and return their indices in ``shape``."""
        return self._block(name, shape, 0.0, 1.0, True)

    def integer(self, name: str, shape: Shape, lower: ArrayLike = 0.0, upper: ArrayLike = math.inf) -> Ints:
        """Add a block of integer columns; the bounds broadcast to ``shape``.

        Parameters
        ----------
        name, shape
            Name of the block, and its shape.
        lower, upper : float or array
            Bounds; they broadcast to ``shape``.
        """
        return self._block(name, shape, lower, upper, True)

    def continuous(self, name: str, shape: Shape, lower: ArrayLike = 0.0, upper: ArrayLike = math.inf) -> Ints:
        """Add a block of continuous columns; the bounds broadcast to ``shape``.

        Parameters
        ----------
        name, shape
            Name of the block, and its shape.
        lower, upper : float or array
            Bounds; they broadcast to ``shape``.
        """
        return self._block(name, shape, lower, upper, False)

    def _block(self, name: str, shape: Shape, lower: ArrayLike, upper: ArrayLike, integral: bool) -> Ints:
        what = f"variable block {name!r}"
        dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if any(d < 0 for d in dims):
            raise ValueError(f"{what}: negative shape {dims}")
        if name in self.column_blocks:
            raise ValueError(f"{what} already exists in model {self.name!r}")
        low, up = _broadcast(what, lower, dims), _broadcast(what, upper, dims)
        check_bounds(what, low, up)
        first, size = self.columns, math.prod(dims)
        self._lower = np.concatenate([self._lower, low.ravel()])
        self._upper = np.concatenate([self._upper, up.ravel()])
        self._integral = np.concatenate([self._integral, np.full(size, integral)])
        self.column_blocks[name] = np.arange(first, first + size, dtype=np.int64).reshape(dims)
        self._matrix = self._assembled = None
        return self.column_blocks[name]

    # ---------------------------------------------------------- constraints

    def _columns(self, what: str, cols: ArrayLike) -> Ints:
        array = np.asarray(cols)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise ValueError(f"{what}: column indices must be integers, not {array.dtype}")
        if array.size and (array.min() < -1 or array.max() >= self.columns):
            raise ValueError(
                f"{what}: column index out of range: {array.min()}..{array.max()} with {self.columns} columns"
            )
        return array.astype(np.int64, copy=False)

    def _terms(self, what: str, terms: Sequence[LinearTerm]) -> Iterator[tuple[str, Bools, Ints, Floats]]:
        """Yield what each term is called, which of its entries count, and their columns and coefficients."""
        for number, (cols, coefs) in enumerate(terms):
            label = f"{what}, term {number}"
            index = self._columns(label, cols)
            used = index >= 0
            values = _broadcast(label, coefs, index.shape)[used]
            if not np.isfinite(values).all():
                raise ValueError(f"{label}: NaN or infinite coefficient")
            yield label, used, index[used], values

    def rows(
        self, name: str, terms: Sequence[LinearTerm], lower: ArrayLike = -math.inf, upper: ArrayLike = math.inf
    ) -> None:
        """Add one block of constraints ``lower <= sum of terms <= upper``.

        Parameters
        ----------
        name : str
            Name of the block, unique among row blocks.
        terms : sequence of (cols, coefs)
            ``cols`` has shape (r,) or (r, k, ...); row i holds every column
            ``cols[i, ...]``.  ``coefs`` broadcasts to the shape of ``cols`` by
            numpy's rules (trailing axes first; a coefficient per row of a
            (r, k) term has shape (r, 1)).  A column of -1 is skipped, its
            coefficient ignored.  A column named twice in a row is summed.
        lower, upper : array_like
            Broadcast to (r,).

        Examples
        --------
        Ragged rows: the second row has one column only.

        >>> m = Model("ragged")
        >>> x = m.continuous("x", 3)
        >>> m.rows("sums", [([[0, 1], [2, -1]], 1.0)], upper=[5.0, 6.0])
        >>> m.arrays().A.toarray().tolist()
        [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        what = f"row block {name!r}"
        if name in self.row_blocks:
            raise ValueError(f"{what} already exists in model {self.name!r}")
        pieces: list[tuple[Ints, Ints, Floats]] = []
        count: int | None = None
        for label, used, index, values in self._terms(what, terms):
            if used.ndim == 0:
                raise ValueError(f"{label}: columns need shape (rows,) or (rows, k), not ()")
            count = len(used) if count is None else count
            if len(used) != count:
                raise ValueError(f"{label}: {len(used)} rows where the first term has {count}")
            pieces.append((np.nonzero(used)[0] + self._row_count, index, values))
        if count is None:
            raise ValueError(f"{what}: no terms")
        low = _broadcast(what, lower, (count,)).copy()
        up = _broadcast(what, upper, (count,)).copy()
        check_bounds(what, low, up)
        self._triplets.extend(pieces)
        self._row_lower.append(low)
        self._row_upper.append(up)
        self.row_blocks[name] = slice(self._row_count, self._row_count + count)
        self._row_count += count
        self._matrix = self._assembled = None

    def minimize(self, terms: Sequence[LinearTerm], offset: float = 0.0) -> None:
        """Replace the objective by the sum of ``terms`` plus ``offset``.

        ``cols`` of a term may have any shape; -1 is skipped, duplicates add up.
        """
        what = f"objective of {self.name!r}"
        parts = [(index, values) for _, _, index, values in self._terms(what, terms)]
        if not math.isfinite(offset):
            raise ValueError(f"{what}: offset {offset}")
        self._cost_cols = np.concatenate([np.empty(0, dtype=np.int64), *(index for index, _ in parts)])
        self._cost_vals = np.concatenate([np.empty(0), *(values for _, values in parts)])
        self._offset = float(offset)
        self._assembled = None

    def bound(self, cols: ArrayLike, lower: ArrayLike | None = None, upper: ArrayLike | None = None) -> None:
        """Replace the bounds of some columns.

        Parameters
        ----------
        cols : int array
            Numbers of the columns; negative ones are passed over.
        lower, upper : float or array, optional
            New bounds; they broadcast to ``cols``. A side that is None stays as it is.
        """
        what = f"bounds in {self.name!r}"
        index = self._columns(what, cols)
        used = index >= 0
        target = index[used]
        low, up = self._lower.copy(), self._upper.copy()
        if lower is not None:
            low[target] = _broadcast(what, lower, index.shape)[used]
        if upper is not None:
            up[target] = _broadcast(what, upper, index.shape)[used]
        check_bounds(what, low[target], up[target])
        self._lower, self._upper = low, up
        self._assembled = None

    # ------------------------------------------------------------ questions

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self._lower.size)

    def index(self, name: str) -> Ints:
        """Return the column indices of a variable block in its shape."""
        if name not in self.column_blocks:
            raise ValueError(f"no variable block {name!r} in {self.name!r}: {sorted(self.column_blocks)}")
        return self.column_blocks[name]

    def value(self, name: str, x: Floats) -> Floats:
        """Return the part of ``x`` that belongs to a variable block, in its shape."""
        return x[self.index(name)]

    def start(self, values: Mapping[str, ArrayLike]) -> Floats:
        """Return a start vector from values per block; NaN means "unset".

        Columns whose bounds coincide are always filled in.

        Examples
        --------
        >>> m = Model("s")
        >>> a, b = m.binary("a", 2), m.continuous("b", 1)
        >>> m.start({"a": [1.0, float("nan")]}).tolist()
        [1.0, nan, nan]
        """
        x = np.full(self.columns, np.nan)
        for name, value in values.items():
            block = self.index(name)
            x[block] = _broadcast(f"start of {name!r}", value, block.shape)
        pinned = self._lower == self._upper
        x[pinned] = self._lower[pinned]
        return x

    def arrays(self) -> ModelArrays:
        """Return the assembled model; assembled once until something changes."""
        if self._assembled is None:
            if self._matrix is None:
                self._matrix = self._assemble_matrix()
            none = np.empty(0)
            self._assembled = result = ModelArrays(
                A=self._matrix,
                row_lower=np.concatenate([none, *self._row_lower]),
                row_upper=np.concatenate([none, *self._row_upper]),
                col_lower=self._lower.copy(),
                col_upper=self._upper.copy(),
                cost=np.bincount(self._cost_cols, weights=self._cost_vals, minlength=self.columns).astype(np.float64),
                offset=self._offset,
                integrality=self._integral.copy(),
            )
            # They are shared with every caller, so nobody may write into them.
            shared = (getattr(result, field.name) for field in fields(result) if field.name not in ("A", "offset"))
            for array in (*shared, result.A.data, result.A.indices, result.A.indptr):
                array.setflags(write=False)
        return self._assembled

    def _assemble_matrix(self) -> scipy.sparse.csr_array:
        none = np.empty(0, dtype=np.int64)
        triplets = zip((none, none, np.empty(0)), *self._triplets, strict=True)
        row, col, val = (np.concatenate(parts) for parts in triplets)
        matrix = scipy.sparse.csr_array((val, (row, col)), shape=(self._row_count, self.columns))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return matrix
