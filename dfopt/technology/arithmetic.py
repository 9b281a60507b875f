"""One set of rules for one design and for many: the functions of numbers, for floats and for arrays.

numpy takes about a microsecond for each step, however short the array; a chip is a few hundred steps. So one design is
computed with Python's own floats, and the rules are written once, in what both kinds of numbers have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TINY = 1e-200
"""What is divided by this or more stays finite."""
Numbers = Any
"""A float, or an array of them: one entry for each design."""


@dataclass(frozen=True)
class Functions:
    """Mathematical functions for floats or for arrays; conditions are joined with ``&``."""

    sqrt: Callable[[Numbers], Numbers]
    sin: Callable[[Numbers], Numbers]
    asin: Callable[[Numbers], Numbers]
    cosh: Callable[[Numbers], Numbers]
    acosh: Callable[[Numbers], Numbers]
    floor: Callable[[Numbers], Numbers]
    minimum: Callable[[Numbers, Numbers], Numbers]
    maximum: Callable[[Numbers, Numbers], Numbers]
    where: Callable[[Any, Numbers, Numbers], Numbers]


def _either(condition: bool, yes: Numbers, no: Numbers) -> Numbers:
    return yes if condition else no


SCALARS = Functions(math.sqrt, math.sin, math.asin, math.cosh, math.acosh, math.floor, min, max, _either)
ARRAYS = Functions(
    np.sqrt, np.sin, np.arcsin, np.cosh, np.arccosh, np.floor, np.minimum, np.maximum, np.where
)  # fmt: skip


_PLAIN = (float, int)  # asked some thirty times a chip: a union takes three times as long as a tuple


def arithmetic_of(*values: Numbers) -> Functions:
    """Mathematical functions for these numbers: NumPy's if any of them is an array.

    Examples
    --------
    >>> arithmetic_of(1.0, 2) is SCALARS, arithmetic_of(1.0, np.zeros(3)) is ARRAYS
    (True, True)
    """
    for value in values:
        if not isinstance(value, _PLAIN):
            return ARRAYS
    return SCALARS
