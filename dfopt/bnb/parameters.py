"""Every constant and tolerance of a search, with its unit and its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SearchParameters:
    """Tolerances of a search and how it shares out its work.

    Attributes
    ----------
    gap : relative
        The search ends when no solution has a value below ``(1 - gap)`` of the last one that is kept. 0: nothing that
        is not kept is better.
    top : count
        Number of the best solutions to keep.
    limit : value
        Objective limit: only solutions below it count. Infinite: all do.
    tolerance : relative
        A bound below a value by less is equal to it: both are sums of the same terms in another order, and each
        addition rounds by about 1e-16.
    reached : relative
        A least bound within this of the cutoff has reached it, for the same reason; more, as a cutoff is a product.
    allowance : units of work
        Units of work that a relaxation may spend on its first answers about a region. Infinite: no limit.
    growth : factor
        Factor by which the budget grows on each return to a region. Well above 1, it keeps the repeated work a small
        part of the total.
    """

    gap: float = 0.0
    top: int = 1
    limit: float = math.inf
    tolerance: float = 1e-12
    reached: float = 1e-9
    allowance: float = math.inf
    growth: float = 8.0
