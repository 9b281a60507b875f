"""Types of arrays, of which the suffix of a name says the axes, the order of whole numbers, and limits of rounding."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ROUNDING: Final = 1e-12
"""Share by which a sum may be off: an addition rounds by 1e-16 of it, and sums here have up to thousands of terms."""
LEAST_UNIT: Final = 1e-30
"""Least unit in which figures are counted: it divides all of them, also where each is 0, and is far below any other."""
LEAST_DIVISOR: Final = 1e-300
"""Least divisor where it may be 0: near the least of all floats, so that no other divisor is changed."""


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
