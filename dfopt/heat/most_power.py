"""The most power that a stack can have without any of its cells passing a limit, however it is spread over the tiles.

Temperatures are linear in power: with the influence matrix R of a stack (kelvin per watt, cells by tiles, none below 0)
and the rise that each cell may have, the most is a linear program, ``max 1'p, R p <= rise, p >= 0``. What is solved is
its dual: prices of cells, in watts per kelvin, under which no watt of any tile costs less than one. Any such prices
prove a bound, so those that the solver says are first made to be such: the bound does not rest on its tolerances.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import scipy

from dfopt.arrays import Floats
from dfopt.documents.stack import Stack
from dfopt.errors import SolverFailure
from dfopt.milp.linear import GrowingLp
from dfopt.technology.stack_models import body_of, heat_of
from dfopt.technology.thermal.cache import kept
from dfopt.technology.thermal.responses import digest

_SMALLEST = 1e-9


@dataclass(frozen=True, eq=False)
class MostPower:
    """Upper bound on power, with a power map that nearly reaches it.

    Attributes
    ----------
    watts : float
        No power map within the limits has more in the dies that were asked for; infinite if no limit bounds them.
    reached_w : float
        Power of ``power_t`` in those dies, W.
    power_t : float array, shape (tiles,)
        Watts of every tile, in the order of ``stack.tiles``, within all limits.
    price_c : float array, shape (dies * cells,)
        Watts per kelvin of every cell, as in ``Heat.cells_k_per_w``: times what each may rise they add up to ``watts``.
    """

    watts: float
    reached_w: float
    power_t: Floats
    price_c: Floats


def most_power(stack: Stack, die: str | None = None) -> MostPower:
    """Largest power of all dies, or of one, that keeps all temperature limits, W.

    All heat counts, including leakage and refresh; a stack's limit on power does not. The linear program is solved once
    for a stack, its limits and the die, and its solution is cached with the influence matrix; a cached solution is
    turned into a proof again.

    Parameters
    ----------
    stack : Stack
        Stack with its limits and its ambient temperature.
    die : str, optional
        Maximize the power of this die alone; the power of other dies is free, and only heats it.

    Raises
    ------
    ValueError
        If the stack has no such die with tiles.
    SolverFailure
        If the linear program could not be solved.

    Examples
    --------
    Of the logic die alone; the same everywhere on it, 512 W would be the most:

    >>> from dfopt.machines.stacks import load_stack
    >>> stack = load_stack("hybrid-vault")
    >>> found = most_power(stack, stack.logic_die.name)
    >>> round(found.watts, 1), round(found.reached_w, 1)
    (556.5, 556.5)
    """
    heat, tiles = heat_of(stack), stack.tiles
    if die is not None and die not in heat.dies:
        raise ValueError(f"die: found {die!r}, expected one with tiles: {', '.join(heat.dies)}")
    counts_t = np.array([die in (None, name) for name, _ in tiles], dtype=np.float64)
    response = heat.cells_k_per_w
    rise_d = [stack.most_k(name) - heat.ambient_k for name in heat.dies]
    rise_c = np.repeat(rise_d, len(response) // len(heat.dies))
    limited = np.isfinite(rise_c)
    share = response[limited] / rise_c[limited, None]  # of what a cell may rise, per watt
    if (share.max(axis=0, initial=0.0)[counts_t > 0] <= 0).any():
        return MostPower(np.inf, 0.0, np.zeros(len(tiles)), np.zeros(len(response)))
    digits = hashlib.sha256(repr((rise_d, die)).encode()).hexdigest()[:16]
    name = f"{digest(body_of(stack), stack.cells, stack.cells, tiles)}-most-power-{digits}"
    solution = kept(name, (1, len(share) + len(tiles)), lambda: _solved(share, counts_t))[0]
    # From here on whatever was kept or found is a proof, or none.
    price, power_t = np.maximum(solution[: len(share)], 0.0), np.maximum(solution[len(share) :], 0.0)
    covered = float((price @ share)[counts_t > 0].min())
    price = price / covered if covered > 0 else price
    power_t = power_t / max(1.0, float((share @ power_t).max(initial=0.0)))
    price_c = np.zeros(len(response))
    price_c[limited] = price / rise_c[limited]
    return MostPower(float(price.sum()) if covered > 0 else np.inf, float(counts_t @ power_t), power_t, price_c)


def _solved(share: Floats, counts_t: Floats) -> Floats:
    """Prices of cells and watts of tiles: one row. Few rows and many columns suit the simplex method."""
    program = GrowingLp(counts_t, np.full(len(counts_t), np.inf))
    # HiGHS takes no entries this small; whoever asks makes the prices cover them
    program.add_columns(np.ones(len(share)), scipy.sparse.csc_array(np.where(share > _SMALLEST, share, 0.0).T))
    point = program.solve()
    if not point.optimal:
        raise SolverFailure(f"the most power of a stack: the linear program ended as {point.status.value}")
    return np.concatenate([point.x, point.duals])[None]
