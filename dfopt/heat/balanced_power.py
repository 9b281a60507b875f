"""Prices of a kelvin where compute is spread: kernels that share a chip in balance cannot all be on its cool tiles.

Time takes for granted that the kernels of a partition share the compute tiles in proportion to their own times, and
`dfopt.fusion.blocks.tiles_of` gives each at least its part of ``T - n`` of the ``T`` tiles that ``n`` kernels share
(the rest is rounding, and one tile for each). Where the judge lays them side by side, a kernel with part ``s`` of the
time is on ``s (1 - n/T)`` of the area or more; so where all compute at one rate, no spot has more than ``T / (T - n)``
times the watts that the partition has in the mean. That is the *crowding* of a partition; that of one kernel, or of
kernels that are interleaved, is 1: it is even. It bounds means over partitions too. A mapping written by hand whose
tiles are out of balance, so that some of them would have to work above their rate, is not bounded by this.

So p watts of compute are spread with ``p_i <= crowding a_i p`` on tiles of parts ``a_i`` of the area, and cost at the
prices ``w_i`` of tiles no less than on the cheapest tiles that hold them. The best prices for that are those of ::

    max 1'p,   R p <= rise - R b,   p_i <= crowding a_i 1'p,   p >= 0

with watts b that always flow. They are proven by nothing: any prices bound what chips can be rid of, these well.
"""

from __future__ import annotations

import hashlib

import numpy as np
import scipy

from dfopt.arrays import Floats
from dfopt.documents.stack import Stack
from dfopt.errors import SolverFailure
from dfopt.milp.linear import GrowingLp
from dfopt.technology.stack_models import body_of, heat_of, power_of
from dfopt.technology.thermal.cache import kept
from dfopt.technology.thermal.responses import digest

CROWDINGS = (1.0, 1.03, 1.1)  # a program for each: prices that are good for one are good for those near it
_SMALLEST = 1e-9


def crowding(kernels: int, tiles: int) -> float:
    """Largest ratio of local to mean power of a partition, for kernels with balanced tiles.

    Parameters
    ----------
    kernels : int
        That are in one partition at most.
    tiles : int
        Compute tiles of the chip, in the count of mappings.

    Examples
    --------
    >>> crowding(1, 132), crowding(12, 132), crowding(4, 4)
    (1.0, 1.1, inf)
    """
    if kernels <= 1:
        return 1.0
    return tiles / (tiles - kernels) if kernels < tiles else np.inf


def cheapest_spread(price: Floats, share: Floats, most: float) -> float:
    """Least price of one watt spread over tiles, none with more than ``most`` times its area share.

    Parameters
    ----------
    price : float array
        Price of one watt on each tile.
    share : float array
        Parts of the area; their sum is 1.
    most : float
        1 or more; infinite where all may be on one tile.

    Examples
    --------
    >>> price, share = np.array([3.0, 1.0]), np.array([0.5, 0.5])
    >>> [cheapest_spread(price, share, most) for most in (1.0, 1.5, 2.0, np.inf)]
    [2.0, 1.5, 1.0, 1.0]
    """
    order = np.argsort(price)
    filled = np.minimum(np.cumsum(np.minimum(most * share[order], 1.0)), 1.0)
    return float(np.diff(filled, prepend=0.0) @ price[order])


def balanced_prices(stack: Stack, most: float, beside_t: Floats, rise_c: Floats) -> Floats:
    """Good dual prices of cell temperatures, W/K, shape (dies * cells,), for compute crowded by at most ``most``.

    The program is solved once for a stack and kept where the influence matrix is.

    Parameters
    ----------
    stack : Stack
        Stack with its limits and its ambient temperature.
    most : float
        Crowding, 1 or more.
    beside_t : float array, shape (tiles,)
        Power that flows in addition to that of compute, W.
    rise_c : float array, shape (dies * cells,)
        Kelvin that every cell may be above the ambient; infinite without a limit.

    Raises
    ------
    SolverFailure
        If the linear program could not be solved.
    """
    heat, power = heat_of(stack), power_of(stack)
    share = power.areas[power.compute] / power.areas[power.compute].sum()
    left = rise_c - heat.cells_k_per_w @ beside_t
    limited = np.isfinite(left)
    price_c = np.zeros(len(left))
    if not limited.any() or left.min() <= 0:  # nothing bounds compute, or nothing is left for it
        return price_c
    of_rise = heat.cells_k_per_w[np.ix_(limited, power.compute)] / left[limited, None]
    digits = hashlib.sha256(repr((most, left.tolist(), share.tolist())).encode()).hexdigest()[:16]
    name = f"{digest(body_of(stack), stack.cells, stack.cells, stack.tiles)}-balanced-{digits}"
    prices = kept(name, (1, len(of_rise)), lambda: _solved(of_rise, share, most)[None])[0]
    price_c[limited] = np.maximum(prices, 0.0) / left[limited]
    return price_c


def _solved(of_rise: Floats, share: Floats, most: float) -> Floats:
    """The prices of cells of the dual program: few rows and many columns suit the simplex method."""
    count = len(share)
    if most == 1:  # all is even: the cell that is warmest has all of the price
        warmth = of_rise @ share
        return np.asarray((np.arange(len(of_rise)) == warmth.argmax()) / warmth.max(), dtype=np.float64)
    program = GrowingLp(np.ones(count), np.full(count, np.inf))
    cells = scipy.sparse.csc_array(np.where(of_rise > _SMALLEST, of_rise, 0.0).T)
    program.add_columns(np.ones(len(of_rise)), cells)
    spread = scipy.sparse.csc_array(np.eye(count) - most * share[None, :].repeat(count, axis=0))
    program.add_columns(np.zeros(count), spread)
    point = program.solve()
    if not point.optimal:
        raise SolverFailure(f"power that is spread over a stack: the linear program ended as {point.status.value}")
    return point.x[: len(of_rise)]
