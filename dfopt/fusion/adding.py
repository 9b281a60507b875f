"""Sums over the kernels of sets, to the last digit the same on every processor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def added(weight_bk: NDArray[Any], figure_k: NDArray[Any]) -> NDArray[np.float64]:
    """Weighted sum of a figure for each row of a matrix, or sums over sets of kernels for rows of zeros and ones.

    A product of a matrix library adds in an order that depends on the processor. Of two blocks that take equally long
    one would then be faster in the last digit, here this and there that, and with it another mapping of the same value.

    Examples
    --------
    >>> added(np.array([[True, False, True], [True, True, True]]), np.array([0.5, 1.0, 2.0]))
    array([2.5, 3.5])
    """
    return np.asarray((weight_bk * figure_k).sum(axis=1), dtype=np.float64)
