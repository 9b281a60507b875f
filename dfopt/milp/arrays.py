"""The assembled form of a model: plain arrays, and checks that need no solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class ModelArrays:
    """``min cost @ x + offset``, ``row_lower <= A x <= row_upper``, bounds, integrality.

    Parameters
    ----------
    A : scipy.sparse.csr_array
        Constraint matrix with sorted, unique column indices and no stored zeros.
    row_lower, row_upper, col_lower, col_upper, cost : ndarray of float
        Read-only arrays.
    offset : float
        Constant of the objective.
    integrality : ndarray of bool
        True where the column must take an integer value.
    """

    A: sp.csr_array
    row_lower: FloatArray
    row_upper: FloatArray
    col_lower: FloatArray
    col_upper: FloatArray
    cost: FloatArray
    offset: float
    integrality: BoolArray

    def objective(self, x: FloatArray) -> float:
        """Return the objective at ``x``."""
        return float(self.cost @ x) + self.offset

    def violation(self, x: FloatArray) -> float:
        """Return the largest absolute violation of rows, bounds and integrality at ``x``.

        Computed with numpy only, so a solver cannot vouch for itself.  A vector
        holding a NaN violates everything (``inf``).
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != self.cost.shape:
            raise ValueError(f"x has shape {x.shape}, the model has {self.cost.size} columns")
        if not np.isfinite(x).all():
            return float("inf")
        activity = self.A @ x
        whole = x[self.integrality]
        parts = (
            self.row_lower - activity,
            activity - self.row_upper,
            self.col_lower - x,
            x - self.col_upper,
            np.abs(whole - np.round(whole)),
        )
        return max(0.0, *(float(part.max()) for part in parts if part.size), 0.0)
