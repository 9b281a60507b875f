"""A mixed-integer linear model as named blocks over numpy index arrays.

This module knows numpy and nothing about any solver.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dfopt.milp.arrays import BoolArray, FloatArray, ModelArrays

IntArray = NDArray[np.int64]
Shape = int | tuple[int, ...]
Term = tuple[ArrayLike, ArrayLike]

__all__ = ["IntArray", "Model", "ModelArrays"]


def _frozen(array: NDArray[np.generic]) -> None:
    array.setflags(write=False)


def _broadcast(what: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return ``values`` as floats of ``shape``, with a message naming the culprit."""
    array = np.asarray(values, dtype=np.float64)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{what}: shape {array.shape} does not broadcast to {shape}") from None


def _check_bounds(what: str, lower: FloatArray, upper: FloatArray) -> None:
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError(f"{what}: NaN bound")
    if (lower > upper).any():
        where = int(np.argmax((lower > upper).ravel()))
        raise ValueError(f"{what}: lower {lower.flat[where]:g} above upper {upper.flat[where]:g} at entry {where}")
    if (lower == math.inf).any() or (upper == -math.inf).any():
        raise ValueError(f"{what}: lower of +inf or upper of -inf")


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
    >>> m.objective([0.0, 1.0, 1.0]), m.violation([0.0, 1.0, 0.0])
    (3.0, 1.0)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._column_blocks: dict[str, slice] = {}
        self._row_blocks: dict[str, slice] = {}
        self._lower: FloatArray = np.empty(0)
        self._upper: FloatArray = np.empty(0)
        self._integral: BoolArray = np.empty(0, dtype=np.bool_)
        self._cost_cols: IntArray = np.empty(0, dtype=np.int64)
        self._cost_vals: FloatArray = np.empty(0)
        self._offset = 0.0
        self._row_lower: list[FloatArray] = []
        self._row_upper: list[FloatArray] = []
        self._triplets: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._row_count = 0
        self._matrix: sp.csr_array | None = None
        self._assembled: ModelArrays | None = None

    # ------------------------------------------------------------ variables

    def binary(self, name: str, shape: Shape) -> IntArray:
        """Add a block of 0/1 columns and return their indices in ``shape``."""
        return self._block(name, shape, 0.0, 1.0, True)

    def integer(self, name: str, shape: Shape, lower: ArrayLike = 0.0, upper: ArrayLike = math.inf) -> IntArray:
        """Add a block of integer columns; the bounds broadcast to ``shape``."""
        return self._block(name, shape, lower, upper, True)

    def continuous(self, name: str, shape: Shape, lower: ArrayLike = 0.0, upper: ArrayLike = math.inf) -> IntArray:
        """Add a block of continuous columns; the bounds broadcast to ``shape``."""
        return self._block(name, shape, lower, upper, False)

    def _block(self, name: str, shape: Shape, lower: ArrayLike, upper: ArrayLike, integral: bool) -> IntArray:
        dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if any(d < 0 for d in dims):
            raise ValueError(f"variable block {name!r}: negative shape {dims}")
        if name in self._column_blocks:
            raise ValueError(f"variable block {name!r} already exists in model {self.name!r}")
        what = f"variable block {name!r}"
        low, up = _broadcast(what, lower, dims), _broadcast(what, upper, dims)
        _check_bounds(what, low, up)
        first, size = self.columns, math.prod(dims)
        self._lower = np.concatenate([self._lower, low.ravel()])
        self._upper = np.concatenate([self._upper, up.ravel()])
        self._integral = np.concatenate([self._integral, np.full(size, integral)])
        self._shapes[name] = dims
        self._column_blocks[name] = slice(first, first + size)
        self._matrix = self._assembled = None
        return np.arange(first, first + size, dtype=np.int64).reshape(dims)

    # ---------------------------------------------------------- constraints

    def _columns(self, what: str, cols: ArrayLike) -> IntArray:
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

    def rows(
        self,
        name: str,
        terms: Sequence[Term],
        lower: ArrayLike = -math.inf,
        upper: ArrayLike = math.inf,
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
        if name in self._row_blocks:
            raise ValueError(f"{what} already exists in model {self.name!r}")
        if len(terms) == 0:
            raise ValueError(f"{what}: no terms")
        pieces: list[tuple[IntArray, IntArray, FloatArray]] = []
        count: int | None = None
        for number, (cols, coefs) in enumerate(terms):
            label = f"{what}, term {number}"
            index = self._columns(label, cols)
            if index.ndim == 0:
                raise ValueError(f"{label}: columns need shape (rows,) or (rows, k), not ()")
            if count is None:
                count = index.shape[0]
            if index.shape[0] != count:
                raise ValueError(f"{label}: {index.shape[0]} rows where the first term has {count}")
            values = _broadcast(label, coefs, index.shape)
            row = np.broadcast_to(
                np.arange(count, dtype=np.int64).reshape((count,) + (1,) * (index.ndim - 1)), index.shape
            )
            used = index >= 0
            value = values[used]
            if not np.isfinite(value).all():
                raise ValueError(f"{label}: NaN or infinite coefficient")
            pieces.append((row[used] + self._row_count, index[used], value))
        assert count is not None
        low = _broadcast(what, lower, (count,)).copy()
        up = _broadcast(what, upper, (count,)).copy()
        _check_bounds(what, low, up)
        self._triplets.extend(pieces)
        self._row_lower.append(low)
        self._row_upper.append(up)
        self._row_blocks[name] = slice(self._row_count, self._row_count + count)
        self._row_count += count
        self._matrix = self._assembled = None

    def minimize(self, terms: Sequence[Term], offset: float = 0.0) -> None:
        """Replace the objective by the sum of ``terms`` plus ``offset``.

        ``cols`` of a term may have any shape; -1 is skipped, duplicates add up.
        """
        all_cols = [np.empty(0, dtype=np.int64)]
        all_vals = [np.empty(0)]
        for number, (cols, coefs) in enumerate(terms):
            label = f"objective of {self.name!r}, term {number}"
            index = self._columns(label, cols)
            value = _broadcast(label, coefs, index.shape)
            used = index >= 0
            if not np.isfinite(value[used]).all():
                raise ValueError(f"{label}: NaN or infinite coefficient")
            all_cols.append(index[used])
            all_vals.append(value[used])
        if not math.isfinite(offset):
            raise ValueError(f"objective of {self.name!r}: offset {offset}")
        self._cost_cols, self._cost_vals = np.concatenate(all_cols), np.concatenate(all_vals)
        self._offset = float(offset)
        self._assembled = None

    def fix(self, cols: ArrayLike, values: ArrayLike) -> None:
        """Set lower = upper = ``values`` (broadcast to ``cols``); -1 is skipped."""
        self.bound(cols, values, values)

    def bound(self, cols: ArrayLike, lower: ArrayLike | None = None, upper: ArrayLike | None = None) -> None:
        """Replace the bounds of ``cols``; a side that is None stays as it is."""
        what = f"bounds in {self.name!r}"
        index = self._columns(what, cols)
        used = index >= 0
        target = index[used]
        low, up = self._lower.copy(), self._upper.copy()
        if lower is not None:
            low[target] = _broadcast(what, lower, index.shape)[used]
        if upper is not None:
            up[target] = _broadcast(what, upper, index.shape)[used]
        _check_bounds(what, low[target], up[target])
        self._lower, self._upper = low, up
        self._assembled = None

    # ------------------------------------------------------------ questions

    @property
    def columns(self) -> int:
        """Number of columns."""
        return int(self._lower.size)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self._row_count

    @property
    def nonzeros(self) -> int:
        """Number of nonzeros after duplicates are summed."""
        return int(self.arrays().A.nnz)

    @property
    def column_blocks(self) -> Mapping[str, slice]:
        """Variable block name to its slice of columns."""
        return MappingProxyType(self._column_blocks)

    @property
    def row_blocks(self) -> Mapping[str, slice]:
        """Row block name to its slice of rows."""
        return MappingProxyType(self._row_blocks)

    def _named(self, name: str) -> slice:
        if name not in self._column_blocks:
            raise ValueError(f"no variable block {name!r} in {self.name!r}: {sorted(self._column_blocks)}")
        return self._column_blocks[name]

    def index(self, name: str) -> IntArray:
        """Return the column indices of a variable block in its shape."""
        block = self._named(name)
        return np.arange(block.start, block.stop, dtype=np.int64).reshape(self._shapes[name])

    def value(self, name: str, x: ArrayLike) -> FloatArray:
        """Return the part of ``x`` that belongs to a variable block, in its shape."""
        block = self._named(name)
        return self._vector(x)[block].reshape(self._shapes[name])

    def start(self, values: Mapping[str, ArrayLike]) -> FloatArray:
        """Return a start vector from values per block; NaN means "unset".

        Columns whose bounds coincide are filled in, whatever was given.

        Examples
        --------
        >>> m = Model("s")
        >>> a, b = m.binary("a", 2), m.continuous("b", 1)
        >>> m.start({"a": [1.0, float("nan")]}).tolist()
        [1.0, nan, nan]
        """
        x = np.full(self.columns, np.nan)
        for name, value in values.items():
            block = self._named(name)
            x[block] = _broadcast(f"start of {name!r}", value, self._shapes[name]).ravel()
        pinned = self._lower == self._upper
        x[pinned] = self._lower[pinned]
        return x

    def _vector(self, x: ArrayLike) -> FloatArray:
        vector = np.asarray(x, dtype=np.float64)
        if vector.shape != (self.columns,):
            raise ValueError(f"x has shape {vector.shape}, model {self.name!r} has {self.columns} columns")
        return vector

    def arrays(self) -> ModelArrays:
        """Return the assembled model; assembled once until something changes."""
        if self._assembled is not None:
            return self._assembled
        if self._matrix is None:
            self._matrix = self._assemble_matrix()
        cost = np.bincount(self._cost_cols, weights=self._cost_vals, minlength=self.columns)
        empty = np.empty(0)
        result = ModelArrays(
            A=self._matrix,
            row_lower=np.concatenate([empty, *self._row_lower]),
            row_upper=np.concatenate([empty, *self._row_upper]),
            col_lower=self._lower.copy(),
            col_upper=self._upper.copy(),
            cost=cost.astype(np.float64),
            offset=self._offset,
            integrality=self._integral.copy(),
        )
        # The arrays are shared with every caller, so nobody may write into them.
        for array in (result.row_lower, result.row_upper, result.col_lower, result.col_upper):
            _frozen(array)
        for shared in (result.cost, result.integrality, result.A.data, result.A.indices, result.A.indptr):
            _frozen(shared)
        self._assembled = result
        return result

    def _assemble_matrix(self) -> sp.csr_array:
        shape = (self._row_count, self.columns)
        none = np.empty(0, dtype=np.int64)
        row = np.concatenate([none, *(t[0] for t in self._triplets)])
        col = np.concatenate([none, *(t[1] for t in self._triplets)])
        val = np.concatenate([np.empty(0), *(t[2] for t in self._triplets)])
        matrix = sp.csr_array(sp.coo_array((val, (row, col)), shape=shape))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return matrix

    def violation(self, x: ArrayLike) -> float:
        """Return the largest absolute violation of rows, bounds and integrality."""
        return self.arrays().violation(self._vector(x))

    def objective(self, x: ArrayLike) -> float:
        """Return the objective at ``x``, offset included."""
        return self.arrays().objective(self._vector(x))
