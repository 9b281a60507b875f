"""Divisors of a whole number: degrees, microbatches and tiles are among them."""

from __future__ import annotations

import math


def divisors(n: int) -> list[int]:
    """All divisors of ``n`` in descending order.

    Examples
    --------
    >>> divisors(12)
    [12, 6, 4, 3, 2, 1]
    """
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)}, reverse=True)
