"""How far predictions are from what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["rank_correlation"]


def rank_correlation(ours: Sequence[float], measured: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values at the mean of their ranks; none of fewer than three or equal ones.

    Examples
    --------
    >>> round(rank_correlation([1.0, 2.0, 4.0], [3.0, 5.0, 4.0]), 3)
    0.5
    """
    if len(ours) < 3:
        return None
    ranks = [_ranks(np.asarray(values, dtype=float)) for values in (ours, measured)]
    if any(np.ptp(each) == 0 for each in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    smaller = (values[:, None] > values).sum(axis=1)
    alike = (values[:, None] == values).sum(axis=1)
    return np.asarray(smaller + (alike - 1) / 2, dtype=float)
