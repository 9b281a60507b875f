"""Temperatures of tiles whose leakage they feed: the lowest solution of ``T = T_a + R (P + leak(T))``.

R has no negative entry and ``leak`` is convex and rises. From below, ``T <- T_a + R (P + leak(T))`` rises to the lowest
solution, and so do Newton's steps (Ortega and Rheinboldt, "Iterative Solution of Nonlinear Equations", section 13.3):
every iterate is a lower bound on it. Once the loop gain, the spectral radius of ``R diag(leak')``, reaches 1 below a
solution, there is none: thermal runaway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dfopt.arrays import Bools, Floats, Ints
from dfopt.technology.power import HOTTEST_EXPONENT, PowerModel
from dfopt.technology.stack_models import Heat

Enough = Callable[[Floats, Floats], bool]
"""Whether lower bounds on the temperatures and the watts of all tiles already say what is asked."""

CONVERGED_K = 1e-8
# No chip works at 1000 degC: silicon turns intrinsic far below (Sze, "Physics of Semiconductor Devices", section 1.4).
SANE_K = 1273.15
# A step of Newton's costs as much as five plain ones, of which a chip far from runaway needs ten.
_PLAIN, _ROUNDS = 12, 100
# Rounds after which it is asked whether the bounds are enough: the steps shrink by the loop gain each time, so that a
# decision which does not fall early seldom falls before the end.
_LOOKS = (1, 3, 6)


@dataclass(frozen=True, eq=False)
class Feedback:
    """Leakage feedback of a stack of I tiles, of which L leak.

    Attributes
    ----------
    leaky : int array (L,)
        Positions of the leaking tiles.
    matrix, all_tiles : float arrays (L, L) and (I, L), K/W
        Temperature response of leaking tiles, and of all tiles, to power in leaking tiles.
    beta, at, nominal : float arrays (L,), 1/K, K and W
        Leakage law ``nominal * exp(beta * (T - at))``.
    on_logic : bool array (L,)
        Whether a leaking tile is on the logic die.
    """

    leaky: Ints
    matrix: Floats
    all_tiles: Floats
    beta: Floats
    at: Floats
    nominal: Floats
    on_logic: Bools

    @classmethod
    def of(cls, model: PowerModel, heat: Heat) -> Self:
        """Leakage feedback of a stack."""
        leaky = model.leaky
        columns = np.ascontiguousarray(heat.means_k_per_w[:, leaky])
        own = (model.leakage_beta[leaky], model.leakage_at_k[leaky], model.leakage_w[leaky])
        return cls(leaky, columns[leaky], columns, *own, model.on_logic[leaky])


@dataclass(frozen=True, eq=False)
class Leaking:
    """Result of the leakage iteration.

    Attributes
    ----------
    temperature, watts : float arrays, K and W
        Temperature of the tiles, and their power with leakage; lower bounds if ``enough``.
    runaway : bool
        Whether there is no steady state (thermal runaway).
    change : float, K
        Change of temperatures in the last round.
    rounds : int
        Number of rounds.
    enough : bool
        Whether the iteration stopped early because the caller needed no more.
    """

    temperature: Floats
    watts: Floats
    runaway: bool
    change: float
    rounds: int
    enough: bool = False


def leaking(heat: Heat, feedback: Feedback, watts: Floats, voltage: float, enough: Enough | None = None) -> Leaking:
    """Least fixed point of T = T_a + R (watts + leak(T)), or detection of thermal runaway.

    Parameters
    ----------
    heat, feedback
        R, and the tiles that leak.
    watts : array (I,)
        Power of each tile, without leakage.
    voltage : float
        Voltage of the logic that leaks, as a share of the nominal one.
    enough : callable, optional
        Called from time to time with the lower bounds so far; the search ends when it returns true.

    Returns
    -------
    Leaking
        Kelvin and watts of each tile, (I,).

    Examples
    --------
    A watt that leaks at 300 K and a tenth more of it for each kelvin, at half a kelvin per watt:

    >>> heat = Heat(np.full((1, 1), 0.5), np.full((1, 1), 0.5), ("logic",), 300.0)
    >>> one = np.ones(1)
    >>> feedback = Feedback(np.array([0]), 0.5 * one[:, None], 0.5 * one[:, None], 0.1 * one, 300 * one, one, one > 0)
    >>> found = leaking(heat, feedback, 0 * one, 1.0)
    >>> float(found.temperature[0].round(6)), float(300 + 0.5 * np.exp(0.1 * (found.temperature[0] - 300)).round(6))
    (300.52706, 300.52706)
    """
    base, leaky = heat.ambient_k + heat.means_k_per_w @ watts, feedback.leaky
    if not len(leaky):
        return Leaking(base, watts, False, 0.0, 1)
    matrix, beta, start = feedback.matrix, feedback.beta, base[leaky]
    nominal = np.where(feedback.on_logic, voltage, 1.0) * feedback.nominal
    steepest = float(beta.max())
    rises = bool(beta.any())
    now, leak, change, rounds, runaway = start, np.zeros(len(leaky)), 0.0, 0, False

    def all_tiles() -> tuple[Floats, Floats]:
        watts_t = watts.copy()
        watts_t[leaky] += leak
        return base + feedback.all_tiles @ leak, watts_t

    for rounds in range(1, _ROUNDS + 1):
        after = nominal * np.exp(np.minimum(beta * (now - feedback.at), HOTTEST_EXPONENT))
        warmed = matrix @ after
        step = start + warmed - now
        change = float(np.abs(step).max())
        # A row sum is at least the spectral radius, which is looked for only where it may be 1; and no row sum of
        # R diag(beta leak) is more than the largest beta times that of R diag(leak).
        if change > CONVERGED_K and steepest * float(warmed.max()) > 1 - 1e-9:
            slope = beta * after
            if float((matrix @ slope).max()) >= 1 and gain(matrix, slope, np.arange(len(leaky))) >= 1:
                runaway = True
                break
        if rounds > _PLAIN:  # close to runaway the plain steps become too small to wait for
            solved = np.linalg.solve(np.eye(len(now)) - matrix * (beta * after), step)
            step = np.asarray(solved, dtype=np.float64)
        then = now + step
        if rises and float(then.max()) > SANE_K:
            runaway = True
            break
        now, leak = then, after  # `leak` is what brings `now` about, after a step of Newton's a little less
        if change < CONVERGED_K:
            break
        if enough is not None and rounds in _LOOKS and enough(*all_tiles()):
            return Leaking(*all_tiles(), False, change, rounds, enough=True)
    return Leaking(*all_tiles(), runaway, change, rounds)


def gain(columns: Floats, slope: Floats, leaky: Ints) -> float:
    """Loop gain: the spectral radius of the positive matrix R diag(slope), between the bounds of Collatz and Wielandt.

    The slope of tiles that are not leaky is 0.
    Source: Varga, "Matrix Iterative Analysis", theorem 2.2; the vector is that of the power method.

    Parameters
    ----------
    columns : float array, shape (tiles, leaky tiles), K/W
        Columns of R of the leaky tiles.
    slope : float array, shape (leaky tiles,), W/K
        Leakage of these tiles by their temperature.
    leaky : int array
        Numbers of the leaky tiles.

    Examples
    --------
    >>> round(gain(np.array([[0.5, 0.25], [0.25, 0.5]]), np.ones(2), np.arange(2)), 6)
    0.75
    """
    if not slope.any():
        return 0.0
    vector, most = np.ones(len(columns)), 0.0
    for _ in range(100):
        after = columns @ (slope * vector[leaky])
        ratio = after / vector
        most = float(ratio.max())
        if most - float(ratio.min()) <= 1e-7 * most:
            break
        vector = after / after.max()
    return most
