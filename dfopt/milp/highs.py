"""``solve``: a model in, a verified and frozen ``Solution`` out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dfopt.milp.arrays import FloatArray, ModelArrays
from dfopt.milp.engine import Outcome, Settings, default_threads, run_highs
from dfopt.milp.model import Model
from dfopt.milp.solution import Solution, Termination, TracePoint, relative_gap

FEASIBILITY = 1e-6  # a solution worse than this is not returned
_EXACT = 1e-9  # a solution better than this (scaled) needs no polishing
_PATIENCE = 5.0  # seconds for completing a partial start when there is no limit

_LIMITS = frozenset(
    {"kTimeLimit", "kInterrupt", "kHighsInterrupt", "kIterationLimit", "kSolutionLimit", "kMemoryLimit"}
)


def solve(
    model: Model,
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
    start: ArrayLike | None = None,
    progress: Callable[[TracePoint], None] | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    cutoff: float | None = None,
) -> Solution:
    """Minimise a model with HiGHS.

    Parameters
    ----------
    model : Model
        Not modified.
    gap : float
        Relative gap at which to stop; 0 asks for a proven optimum.
    time_limit : float, optional
        Wall seconds.  Kept to about a second even if HiGHS does not listen.
    start : array_like, optional
        One value per column, NaN for "unset".  A partial start is completed
        first; a start that cannot be made feasible is dropped.
    progress : callable, optional
        Called in the calling thread with a `TracePoint` at every improvement
        and about every half second in between.
    seed : int
        Random seed of HiGHS.
    threads : int, optional
        Solver threads, by default at most two.
    presolve : bool
        Whether HiGHS may presolve.
    cutoff : float, optional
        Solutions above it are of no interest; INFEASIBLE then means that there
        is none at or below the cutoff, and the bound is the cutoff.

    Returns
    -------
    Solution
        Ctrl-C does not raise (a second one does): the best solution so far
        comes back as ``INTERRUPTED_*``.

    Examples
    --------
    >>> m = Model("knapsack")
    >>> x = m.binary("x", 3)
    >>> m.rows("weight", [(x[None, :], [2.0, 3.0, 4.0])], upper=6.0)
    >>> m.minimize([(x, [-3.0, -4.0, -6.0])])
    >>> s = solve(m)
    >>> s.termination.value, s.objective, m.value("x", s.x).tolist()
    ('optimal', -9.0, [1.0, 0.0, 1.0])
    """
    vector = None if start is None else np.asarray(start, dtype=np.float64)
    return solve_arrays(
        model.arrays(),
        gap=gap,
        time_limit=time_limit,
        start=vector,
        progress=progress,
        seed=seed,
        threads=threads,
        presolve=presolve,
        cutoff=cutoff,
    )


def solve_arrays(
    arrays: ModelArrays,
    *,
    gap: float = 0.0,
    time_limit: float | None = None,
    start: FloatArray | None = None,
    progress: Callable[[TracePoint], None] | None = None,
    seed: int = 0,
    threads: int | None = None,
    presolve: bool = True,
    cutoff: float | None = None,
) -> Solution:
    """Do what `solve` does on an already assembled model."""
    zero = time.perf_counter()
    if not (gap >= 0.0 and math.isfinite(gap)):
        raise ValueError(f"gap must be finite and not negative, not {gap}")
    if time_limit is not None and not time_limit >= 0.0:
        raise ValueError(f"time limit must not be negative, not {time_limit}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be positive, not {threads}")
    if cutoff is not None and not math.isfinite(cutoff):
        raise ValueError(f"cutoff must be finite, not {cutoff}")
    if start is not None and start.shape != arrays.cost.shape:
        raise ValueError(f"start has shape {start.shape}, the model has {arrays.cost.size} columns")
    deadline = math.inf if time_limit is None else zero + time_limit
    settings = Settings(float(gap), seed, threads or default_threads(), presolve, cutoff)
    if arrays.cost.size == 0:
        return _without_columns(arrays, zero)
    ready: FloatArray | None = None
    if start is not None and arrays.integrality.any():
        ready, interrupted = _complete(arrays, settings, start, deadline, zero)
        if interrupted:
            return _finish(arrays, settings, _no_run("interrupt", arrays, ready), zero)
    outcome = run_highs(arrays, settings, ready, deadline, zero, progress)
    solution = _judge(arrays, settings, outcome, deadline, zero)
    if solution.termination is Termination.FAILED and not outcome.reason:
        # Tolerances of 1e-9 are at the edge of what HiGHS can do; its habitual ones
        # may still give an answer that passes the checks.
        again = run_highs(arrays, replace(settings, tolerance=1e-7), ready, deadline, zero, progress)
        second = _judge(arrays, settings, again, deadline, zero)
        if second.termination is not Termination.FAILED:
            return replace(second, message=f"second attempt: {second.message}")
    return solution


def _no_run(reason: str, arrays: ModelArrays, x: FloatArray | None) -> Outcome:
    objective = math.inf if x is None else arrays.objective(x)
    return Outcome("kInterrupt", reason, x, objective, -math.inf, 0, ())


def _without_columns(arrays: ModelArrays, zero: float) -> Solution:
    """Answer a model without columns: HiGHS has no opinion on its rows."""
    x = np.empty(0)
    if arrays.violation(x) > FEASIBILITY:
        return _pack(arrays, zero, Termination.INFEASIBLE, None, math.inf, 0, (), "a constant row is violated")
    return _pack(arrays, zero, Termination.OPTIMAL, x, arrays.offset, 0, (), "the model has no columns")


# ------------------------------------------------------------------- starts


def _complete(
    arrays: ModelArrays, settings: Settings, start: FloatArray, deadline: float, zero: float
) -> tuple[FloatArray | None, bool]:
    """Turn a start into a feasible point, or drop it.

    HiGHS would complete a partial start itself, but in a sub-MIP outside its own
    time limit whose bounds it reports as if they were ours.  So the set columns
    are fixed here and the rest is solved as a model of its own, on a budget.
    """
    given = np.isfinite(start)
    x = np.where(given, start, 0.0)
    whole = arrays.integrality
    x[whole] = np.where(np.abs(x[whole] - np.round(x[whole])) <= FEASIBILITY, np.round(x[whole]), x[whole])
    if given.all() and arrays.violation(x) <= _EXACT * _scale(arrays, x):
        return x, False
    # A full but inexact start keeps its integers; its continuous part is solved for.
    pin = given & whole if given.all() else given
    lower, upper = arrays.col_lower.copy(), arrays.col_upper.copy()
    inside = (x >= lower - FEASIBILITY) & (x <= upper + FEASIBILITY)
    pin &= inside & (~whole | (x == np.round(x)))
    value = np.clip(x[pin], lower[pin], upper[pin])
    lower[pin] = upper[pin] = value
    now = time.perf_counter()
    budget = _PATIENCE if math.isinf(deadline) else min(_PATIENCE, 0.2 * (deadline - now))
    fixed = replace(arrays, col_lower=lower, col_upper=upper)
    # Any completion will do, so a coarse gap is enough.
    quick = replace(settings, gap=max(settings.gap, 0.05), cutoff=None)
    outcome = run_highs(fixed, quick, None, now + budget, zero, grace=min(budget, 0.5))
    stopped = outcome.reason == "interrupt"
    if outcome.x is None:
        return None, stopped
    found, again = _polish(fixed, quick, outcome.x, zero)
    return (found if arrays.violation(found) <= FEASIBILITY else None), stopped or again


# ------------------------------------------------------------------ answers


def _scale(arrays: ModelArrays, x: FloatArray) -> float:
    """Return the size of the largest number a row of this model adds up to."""
    sides = np.concatenate([arrays.row_lower, arrays.row_upper])
    sides = np.abs(sides[np.isfinite(sides)])
    return max(1.0, float(sides.max(initial=0.0)), float(np.abs(x).max(initial=0.0)))


def _polish(arrays: ModelArrays, settings: Settings, x: FloatArray, zero: float) -> tuple[FloatArray, bool]:
    """Make integers exact and, only if that hurts, solve the continuous rest again.

    The flag says whether Ctrl-C was pressed meanwhile.
    """
    whole = arrays.integrality
    near = np.round(x)
    snapped = np.where(whole & (np.abs(x - near) <= FEASIBILITY), near, x)
    snapped = np.clip(snapped, arrays.col_lower, arrays.col_upper)
    before = arrays.violation(snapped)
    if before <= _EXACT * _scale(arrays, snapped) or whole.all() or not whole.any():
        return snapped, False
    lower, upper = arrays.col_lower.copy(), arrays.col_upper.copy()
    lower[whole] = upper[whole] = snapped[whole]
    rest = replace(arrays, col_lower=lower, col_upper=upper, integrality=np.zeros_like(whole))
    plain = replace(settings, cutoff=None)
    outcome = run_highs(rest, plain, None, time.perf_counter() + 0.5, zero, grace=0.5)
    stopped = outcome.reason == "interrupt"
    if outcome.x is None or outcome.status != "kOptimal":
        return snapped, stopped
    exact = np.clip(outcome.x, lower, upper)
    same = arrays.objective(exact) <= arrays.objective(snapped) + 1e-6 * max(1.0, abs(arrays.objective(snapped)))
    return (exact if same and arrays.violation(exact) < before else snapped), stopped


def _judge(arrays: ModelArrays, settings: Settings, outcome: Outcome, deadline: float, zero: float) -> Solution:
    """Settle the statuses that need a second question, then finish."""
    unclear = outcome.status == "kUnboundedOrInfeasible"
    # "Unbounded" of a MIP is said of its relaxation; the integers may still be infeasible.
    if unclear or (outcome.status == "kUnbounded" and arrays.integrality.any()):
        plain = replace(arrays, cost=np.zeros_like(arrays.cost), offset=0.0)
        probe = run_highs(plain, replace(settings, cutoff=None), None, deadline, zero)
        if probe.status == "kOptimal" and probe.x is not None:
            outcome = replace(outcome, status="kUnbounded", reason=probe.reason)
        elif probe.status == "kInfeasible":
            outcome = replace(outcome, status="kInfeasible", reason=probe.reason)
        else:
            outcome = probe
            if probe.x is not None:
                outcome = replace(probe, x=None, objective=math.inf, bound=-math.inf)
    return _finish(arrays, settings, outcome, zero)


def _finish(arrays: ModelArrays, settings: Settings, outcome: Outcome, zero: float) -> Solution:
    """Polish, verify and name the outcome."""

    def pack(termination: Termination, x: FloatArray | None, bound: float, message: str) -> Solution:
        return _pack(arrays, zero, termination, x, bound, outcome.nodes, outcome.points, message)

    status, bound, cutoff = outcome.status, outcome.bound, settings.cutoff
    stopped = outcome.reason == "interrupt"
    if status in ("kInfeasible", "kUnbounded", "kObjectiveBound") and outcome.x is None and not stopped:
        if status == "kUnbounded":
            return pack(Termination.UNBOUNDED, None, -math.inf, "the objective has no lower limit")
        if cutoff is None:
            return pack(Termination.INFEASIBLE, None, math.inf, "no point satisfies all rows and bounds")
        return pack(Termination.INFEASIBLE, None, cutoff, f"no solution at or below the cutoff {cutoff:g}")
    if status == "kUnbounded" and not stopped:
        return pack(Termination.UNBOUNDED, None, -math.inf, "the objective has no lower limit")
    ended = status == "kOptimal"
    if outcome.x is None:
        if stopped:
            return pack(Termination.INTERRUPTED_NO_SOLUTION, None, bound, "interrupted before a solution")
        if status in _LIMITS or status == "abandoned":
            return pack(Termination.LIMIT_NO_SOLUTION, None, bound, "time limit before a solution")
        if ended and cutoff is not None:
            # HiGHS calls it optimal when everything below its objective bound is explored.
            return pack(Termination.INFEASIBLE, None, cutoff, f"no solution at or below the cutoff {cutoff:g}")
        return pack(Termination.FAILED, None, -math.inf, f"HiGHS ended with {status}")
    claimed = arrays.objective(outcome.x)
    if abs(claimed - outcome.objective) > FEASIBILITY * max(1.0, abs(claimed)):
        text = f"HiGHS reports objective {outcome.objective!r} for a solution of {claimed!r}"
        return pack(Termination.FAILED, None, -math.inf, text)
    x, again = _polish(arrays, settings, outcome.x, zero)
    stopped = stopped or again
    objective, violation = arrays.objective(x), arrays.violation(x)
    if violation > FEASIBILITY:
        return pack(Termination.FAILED, None, -math.inf, f"the solution violates the model by {violation:.3g}")
    unit = max(1.0, abs(objective))
    if bound > objective + FEASIBILITY * unit:
        text = f"bound {bound!r} lies above the objective {objective!r} of a feasible point"
        return pack(Termination.FAILED, None, -math.inf, text)
    bound = min(bound, objective)
    if stopped:
        return pack(Termination.INTERRUPTED_WITH_SOLUTION, x, bound, "interrupted")
    if ended:
        if objective - bound > max(settings.gap * abs(objective), FEASIBILITY * unit) * (1.0 + 1e-6):
            text = f"HiGHS says optimal between {bound!r} and {objective!r}"
            return pack(Termination.FAILED, None, -math.inf, text)
        if settings.gap == 0.0 or objective - bound <= _EXACT * unit:
            return pack(Termination.OPTIMAL, x, bound, "proven optimal")
        return pack(Termination.GAP_REACHED, x, bound, f"requested gap {settings.gap:g} reached")
    if status in _LIMITS or status == "abandoned":
        return pack(Termination.LIMIT_WITH_SOLUTION, x, bound, "stopped at a limit")
    return pack(Termination.FAILED, None, -math.inf, f"HiGHS ended with {status}")


def _pack(
    arrays: ModelArrays,
    zero: float,
    termination: Termination,
    x: FloatArray | None,
    bound: float,
    nodes: int,
    points: tuple[TracePoint, ...],
    message: str,
) -> Solution:
    """Build the frozen result; the trace ends in exactly what the result says."""
    objective = math.inf if x is None else arrays.objective(x)
    if termination is Termination.UNBOUNDED:
        objective = -math.inf
    gap = math.inf if x is None else relative_gap(objective, bound)
    if termination is Termination.OPTIMAL:
        gap = 0.0
    trace: list[TracePoint] = []
    if x is not None or termination in (Termination.LIMIT_NO_SOLUTION, Termination.INTERRUPTED_NO_SOLUTION):
        # Polishing moves the objective by its last digits, so earlier points are held to the final ones.
        trace = [TracePoint(p.seconds, max(p.objective, objective), min(p.bound, bound)) for p in points]
        trace.append(TracePoint(time.perf_counter() - zero, objective, bound))
    if x is not None:
        x = x.copy()
        x.setflags(write=False)
    size = (int(arrays.row_lower.size), int(arrays.cost.size), int(arrays.A.nnz))
    seconds = time.perf_counter() - zero
    return Solution(termination, objective, bound, gap, seconds, nodes, *size, tuple(trace), x, message)


def solver_version() -> str:
    """Version of the HiGHS that `solve` uses, for provenance."""
    import highspy

    return str(highspy.Highs().version())  # type: ignore[no-untyped-call]
