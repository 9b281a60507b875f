"""The assembled form of a model: plain arrays, and checks that need no solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dfopt.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class ModelArrays:
    """A MILP as read-only arrays: ``min cost @ x + offset``, ``row_lower <= A x <= row_upper``, bounds, integrality.

    ``A`` has sorted, unique column indices and no stored zeros.
    """

    A: scipy.sparse.csr_array
    row_lower: Floats
    row_upper: Floats
    col_lower: Floats
    col_upper: Floats
    cost: Floats
    offset: float
    integrality: Bools

    def objective(self, x: ArrayLike) -> float:
        """Return the objective at ``x``."""
        return float(self.cost @ np.asarray(x, dtype=np.float64)) + self.offset

    def violation(self, x: ArrayLike) -> float:
        """Return the largest absolute violation of rows, bounds and integrality at ``x``; ``inf`` if it holds a NaN.

        Computed with numpy only, so a solver cannot vouch for itself.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != self.cost.shape:
            raise ValueError(f"x has shape {x.shape}, the model has {self.cost.size} columns")
        if not np.isfinite(x).all():
            return float("inf")
        activity = self.A @ x
        integers = x[self.integrality]
        parts = (
            self.row_lower - activity,
            activity - self.row_upper,
            self.col_lower - x,
            x - self.col_upper,
            np.abs(integers - np.round(integers)),
        )
        return max(float(part.max(initial=0.0)) for part in parts)


def check_bounds(what: str, lower: Floats, upper: Floats) -> None:
    """Check bounds of columns or rows.

    Parameters
    ----------
    what : str
        What they bound, for messages.
    lower, upper : float array
        Bounds, of one shape. Infinite ones are no bounds.

    Raises
    ------
    ValueError
        If a bound is NaN or infinite on the wrong side, or if bounds are crossed.
    """
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError(f"{what}: NaN bound")
    if (lower > upper).any():
        where = int(np.argmax((lower > upper).ravel()))
        raise ValueError(f"{what}: lower {lower.flat[where]:g} above upper {upper.flat[where]:g} at entry {where}")
    if (lower == math.inf).any() or (upper == -math.inf).any():
        raise ValueError(f"{what}: lower of +inf or upper of -inf")


def least(price: Floats, lower: Floats, upper: Floats, dust: float = 0.0) -> float:
    """Return the least of ``price @ v`` over a box.

    Parameters
    ----------
    price, lower, upper : float array, shape (n,)
        Prices of the numbers ``v``, and the sides of the box.
    dust : float
        Prices up to it are ignored where the side is infinite.

    Examples
    --------
    >>> least(np.array([1.0, -2.0]), np.zeros(2), np.array([np.inf, 3.0]))
    -6.0
    """
    side = np.where(price > 0.0, lower, upper)
    used = (price != 0.0) & (np.isfinite(side) | (np.abs(price) > dust))
    return float(price[used] @ side[used])


def with_slack(base: ModelArrays, under: Ints, over: Ints) -> ModelArrays:
    """Return the elastic form of a model: some rows may be violated, and total violation is the objective.

    The rows ``under`` get a slack column that lifts them, the rows ``over`` one
    that lowers them.  The sum of slacks, each divided by the largest coefficient
    of its row, is what is minimised.

    Parameters
    ----------
    base
        The model.
    under, over : int array
        Rows that may be below their lower bound, and above their upper bound.
    """
    rows, extra = base.row_lower.size, under.size + over.size
    sign = np.concatenate([np.ones(under.size), -np.ones(over.size)])
    where = np.concatenate([under, over])
    slack = scipy.sparse.csr_array((sign, (where, np.arange(extra))), shape=(rows, extra))
    size = np.ones(rows)
    lengths = np.diff(base.A.indptr)
    filled = lengths > 0
    if filled.any():
        # reduceat needs nonempty segments, so only the starts of filled rows are passed
        size[filled] = np.maximum.reduceat(np.abs(base.A.data), base.A.indptr[:-1][filled])
    return replace(
        base,
        A=scipy.sparse.hstack([base.A, slack], format="csr"),
        col_lower=np.concatenate([base.col_lower, np.zeros(extra)]),
        col_upper=np.concatenate([base.col_upper, np.full(extra, np.inf)]),
        cost=np.concatenate([np.zeros(base.cost.size), 1.0 / size[where]]),
        offset=0.0,
        integrality=np.concatenate([base.integrality, np.zeros(extra, dtype=np.bool_)]),
    )
