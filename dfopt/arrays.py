"""Types of arrays, of which the suffix of a name says the axes, and the order of whole numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def stable_order(numbers: Ints) -> Ints:
    """Stable argsort of non-negative integers.

    NumPy sorts numbers of 16 bits by radix, a million of them eight times as fast as longer ones.

    Examples
    --------
    >>> stable_order(np.array([2, 0, 2, 1])).tolist()
    [1, 3, 0, 2]
    """
    short = numbers.max(initial=0) <= np.iinfo(np.uint16).max
    return np.argsort(numbers.astype(np.uint16) if short else numbers, kind="stable")
