"""``solve``: a model in, a verified and frozen ``Solution`` out, through HiGHS or through PuLP."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dfopt.arrays import Floats
from dfopt.bnb import UNLIMITED, Clock
from dfopt.milp.arrays import ModelArrays
from dfopt.milp.engine import HighsRun
from dfopt.milp.model import Model
from dfopt.milp.outcome import Ending, Runner, RunOutcome, Settings
from dfopt.milp.pulp_door import PulpRun
from dfopt.milp.solution import Solution, Termination, TracePoint
from dfopt.milp.solvers import check_solver
from dfopt.milp.verdict import complete, finish, settled, without_solver


def solve(  # noqa: PLR0913 - a public function with options
    model: Model | ModelArrays,
    *,
    solver: str = "highs",
    gap: float = 0.0,
    time_limit: float | None = None,
    start: ArrayLike | None = None,
    progress: Callable[[TracePoint], None] | None = None,
    seed: int = 0,
    presolve: bool = True,
    cutoff: float | None = None,
    clock: Clock = UNLIMITED,
) -> Solution:
    """Minimise a model with HiGHS, or with any solver that PuLP knows.

    Parameters
    ----------
    model : Model or ModelArrays
        Not modified.
    solver : str
        "highs", or "pulp:NAME" with a name that `check_solver` takes.
    gap : float
        Relative gap at which to stop; 0 asks for a proven optimum.
    time_limit : float, optional
        Wall seconds.  Kept to about a second even if the solver does not listen.
    start : array_like, optional
        One value per column, NaN for "unset".  A partial start is completed
        first; a start that cannot be made feasible is dropped, and so is one
        for a model without integers.
    progress : callable, optional
        Called in the calling thread with a `TracePoint` at every improvement
        and about every half second in between.  A solver behind PuLP shows
        nothing between the start and its end.
    seed : int
        Random seed of the solver.
    presolve : bool
        Whether the solver may presolve.
    cutoff : float, optional
        Solutions above it are of no interest; INFEASIBLE then means that there
        is none at or below the cutoff, and the bound is the cutoff.
    clock : Clock, optional
        Counts the work of HiGHS, by iterations of the simplex method, and ends the solve when it is over. A solver
        behind PuLP knows its deadline only.

    Returns
    -------
    Solution
        Ctrl-C does not raise (a second one does): the best solution so far is returned as ``INTERRUPTED_*``. The
        message names options that a solver behind PuLP does not support.

    Raises
    ------
    PlanError
        If there is no such solver here.

    Examples
    --------
    >>> m = Model("knapsack")
    >>> x = m.binary("x", 3)
    >>> m.rows("weight", [(x[None, :], [2.0, 3.0, 4.0])], upper=6.0)
    >>> m.minimize([(x, [-3.0, -4.0, -6.0])])
    >>> s = solve(m)
    >>> s.termination.value, s.objective, m.value("x", s.x).tolist()
    ('optimal', -9.0, [1.0, 0.0, 1.0])
    >>> solve(m, solver="pulp:CBC").objective
    -9.0
    """
    if not (gap >= 0.0 and math.isfinite(gap)):
        raise ValueError(f"gap must be finite and not negative, not {gap}")
    if time_limit is not None and not time_limit >= 0.0:
        raise ValueError(f"time limit must not be negative, not {time_limit}")
    if cutoff is not None and not math.isfinite(cutoff):
        raise ValueError(f"cutoff must be finite, not {cutoff}")
    settings = Settings(float(gap), seed, presolve, cutoff, clock=clock, deadline=clock.last)
    if time_limit is not None:
        settings = replace(settings, deadline=min(clock.last, settings.began + time_limit))
    arrays = model.arrays() if isinstance(model, Model) else model
    vector = None if start is None else np.asarray(start, dtype=np.float64)
    if vector is not None and vector.shape != arrays.cost.shape:
        raise ValueError(f"start has shape {vector.shape}, the model has {arrays.cost.size} columns")
    run = _runner(solver)
    trivial = without_solver(arrays, cutoff)
    if trivial is not None:
        return finish(arrays, settings, trivial)
    ready: Floats | None = None
    if vector is not None and arrays.integrality.any():
        ready, interrupted = complete(arrays, settings, vector)
        if interrupted:
            objective = math.inf if ready is None else arrays.objective(ready)
            return finish(arrays, settings, RunOutcome(Ending.INTERRUPTED, ready, objective))
    outcome = run(arrays, settings, ready).outcome(progress)
    solution = finish(arrays, settings, settled(run, arrays, settings, outcome))
    failed = solution.termination is Termination.FAILED
    if failed and outcome.ending is not Ending.INTERRUPTED and time.perf_counter() < settings.deadline:
        once_more = replace(settings, again=True)
        outcome = run(arrays, once_more, ready).outcome(progress)
        second = finish(arrays, once_more, settled(run, arrays, once_more, outcome))
        if second.termination is not Termination.FAILED:
            return replace(second, message=f"second attempt: {second.message}")
    return solution


def _runner(name: str) -> Runner:
    """Return what runs a solver of this name once."""
    canonical = check_solver(name)
    if canonical == "highs":
        return HighsRun
    return partial(PulpRun, canonical.partition(":")[2])
