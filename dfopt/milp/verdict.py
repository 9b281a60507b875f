"""What surrounds a run through either door: starts made feasible, answers polished, verified and named."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Final

import numpy as np

from dfopt.arrays import Floats
from dfopt.milp.arrays import ModelArrays, with_slack
from dfopt.milp.engine import HighsRun
from dfopt.milp.outcome import Ending, Runner, RunOutcome, Settings, slack, with_cutoff
from dfopt.milp.solution import Solution, Termination, TracePoint, relative_gap

FEASIBILITY = 1e-6  # a solution worse than this is not returned
_EXACT = 1e-9  # a solution better than this (scaled) needs no polishing
_PATIENCE = 2e6  # units of work for completing a partial start, about 5 seconds,
_PART = 0.2  # and the share of those that are left
_POLISHING = 2e5  # units of work for the last digits of an answer, about half a second
_GRACE_S = 0.5  # within which a start or an answer that the deadline caught is still made exact
_COARSE: Final = 0.05  # gap of a completed start: any completion will do, and the run itself improves it
_OF_GAP: Final = 1e-6  # relative: a solver that stops at a gap divides by a bound or an objective of its own


def without_solver(arrays: ModelArrays, cutoff: float | None) -> RunOutcome | None:
    """Outcome of degenerate models on which solvers disagree (violated empty rows, no columns); None for others."""
    empty = np.diff(arrays.A.indptr) == 0
    if (arrays.row_lower[empty] > FEASIBILITY).any() or (arrays.row_upper[empty] < -FEASIBILITY).any():
        return RunOutcome(Ending.INFEASIBLE)
    if arrays.cost.size > 0:
        return None
    if cutoff is not None and arrays.offset > cutoff + slack(cutoff):
        return RunOutcome(Ending.INFEASIBLE)
    return RunOutcome(Ending.OPTIMAL, np.empty(0), arrays.offset, arrays.offset)


# ------------------------------------------------------------------- starts


def complete(arrays: ModelArrays, settings: Settings, start: Floats) -> tuple[Floats | None, bool]:
    """Complete a partial start to a feasible point, or None; the flag says whether Ctrl-C was pressed.

    HiGHS would complete a partial start itself, but in a sub-MIP outside its own
    time limit whose bounds it reports as if they were ours.  So the set columns
    are fixed here and the rest is solved as a model of its own, on a budget.

    Parameters
    ----------
    arrays, settings : ModelArrays, Settings
        The model, and options of the run.
    start : float array, shape (columns,)
        Partial start; NaN for unset columns.
    """
    given = np.isfinite(start)
    x, integral = np.where(given, start, 0.0), arrays.integrality
    x = np.where(integral & (np.abs(x - np.round(x)) <= FEASIBILITY), np.round(x), x)
    if given.all() and arrays.violation(x) <= _EXACT * _scale(arrays, x):
        return x, False
    # A full but inexact start keeps its integers; its continuous part is solved for.
    pin = given & integral if given.all() else given
    lower, upper = arrays.col_lower.copy(), arrays.col_upper.copy()
    inside = (x >= lower - FEASIBILITY) & (x <= upper + FEASIBILITY)
    pin &= inside & (~integral | (x == np.round(x)))
    value = np.clip(x[pin], lower[pin], upper[pin])
    lower[pin] = upper[pin] = value
    fixed = replace(arrays, col_lower=lower, col_upper=upper)
    left = settings.clock.share(_PART, _PATIENCE)
    quick = replace(settings, gap=max(settings.gap, _COARSE), cutoff=None, clock=left, grace=_GRACE_S)
    outcome = HighsRun(fixed, quick, None).outcome()
    stopped = outcome.ending is Ending.INTERRUPTED
    if outcome.x is None:
        return None, stopped
    polished, again = polish(fixed, quick, outcome.x)
    return (polished if arrays.violation(polished) <= FEASIBILITY else None), stopped or again


# ------------------------------------------------------------------ answers


def _scale(arrays: ModelArrays, x: Floats) -> float:
    """Return the size of the largest number a row of this model adds up to."""
    sides = np.concatenate([arrays.row_lower, arrays.row_upper])
    sides = np.abs(sides[np.isfinite(sides)])
    return max(1.0, float(sides.max(initial=0.0)), float(np.abs(x).max(initial=0.0)))


def polish(arrays: ModelArrays, settings: Settings, x: Floats) -> tuple[Floats, bool]:
    """Round integers exactly and re-solve the continuous part if needed; the flag says whether Ctrl-C was pressed.

    Parameters
    ----------
    arrays, settings
        The model, and the settings of the solve.
    x : float array
        A solution with nearly integral integers.
    """
    integral = arrays.integrality
    near = np.round(x)
    snapped = np.where(integral & (np.abs(x - near) <= FEASIBILITY), near, x)
    snapped = np.clip(snapped, arrays.col_lower, arrays.col_upper)
    before = arrays.violation(snapped)
    if before <= _EXACT * _scale(arrays, snapped) or integral.all():
        return snapped, False
    lower, upper = arrays.col_lower.copy(), arrays.col_upper.copy()
    lower[integral] = upper[integral] = snapped[integral]
    if not integral.any():
        # Of a pure LP only the last digits are open, or it would be solved a second time.
        room = FEASIBILITY * np.maximum(1.0, np.abs(snapped))
        lower, upper = np.maximum(lower, snapped - room), np.minimum(upper, snapped + room)
    rest = replace(arrays, col_lower=lower, col_upper=upper, integrality=np.zeros_like(integral))
    until, short = max(settings.deadline, time.perf_counter() + _GRACE_S), settings.clock.allowance(_POLISHING)
    plain = replace(settings, cutoff=None, deadline=until, clock=short, grace=_GRACE_S)
    outcome = HighsRun(rest, plain, None).outcome()
    stopped = outcome.ending is Ending.INTERRUPTED
    if outcome.x is None or outcome.ending is not Ending.OPTIMAL:
        return snapped, stopped
    exact = np.clip(outcome.x, lower, upper)
    same = arrays.objective(exact) <= arrays.objective(snapped) + FEASIBILITY * max(1.0, abs(arrays.objective(snapped)))
    return (exact if same and arrays.violation(exact) < before else snapped), stopped


def settled(run: Runner, arrays: ModelArrays, settings: Settings, outcome: RunOutcome) -> RunOutcome:
    """Outcome of a solve without ambiguous endings, which a second solve for feasibility alone resolves.

    Parameters
    ----------
    run
        Runs a solver.
    arrays, settings
        The model, and the settings of the solve.
    outcome
        What the first solve ended with.
    """
    limited = with_cutoff(arrays, settings.cutoff)
    if outcome.ending is Ending.DOUBTFUL:
        # With rows that may give way there are solutions, and what they cost is a proof.
        under, over = (np.flatnonzero(np.isfinite(sides)) for sides in (limited.row_lower, limited.row_upper))
        elastic = with_slack(limited, under, over)
        probe = run(elastic, replace(settings, cutoff=None, gap=0.0, presolve=False), None).outcome()
        if probe.ending is Ending.OPTIMAL:
            proven = probe.objective > FEASIBILITY
            return replace(outcome, ending=Ending.INFEASIBLE if proven else Ending.BROKEN)
        return replace(outcome, ending=probe.ending, message=probe.message)
    # "Unbounded" of a MIP is said of its relaxation; the integers may still be infeasible.
    relaxed = outcome.ending is Ending.UNBOUNDED and arrays.integrality.any()
    if outcome.ending is not Ending.UNCLEAR and not relaxed:
        return outcome
    plain, asked = replace(limited, cost=np.zeros_like(arrays.cost), offset=0.0), replace(settings, cutoff=None)
    probe = settled(run, plain, asked, run(plain, asked, None).outcome())
    if probe.ending is Ending.OPTIMAL and probe.x is not None:
        return replace(outcome, ending=Ending.UNBOUNDED)
    if probe.ending is Ending.INFEASIBLE:
        return replace(outcome, ending=Ending.INFEASIBLE)
    return replace(outcome, ending=probe.ending, message=probe.message)


def finish(arrays: ModelArrays, settings: Settings, outcome: RunOutcome) -> Solution:
    """Polish and verify an outcome and return it as a solution.

    Parameters
    ----------
    arrays, settings
        The model, and the settings of the solve.
    outcome
        What the solve ended with.
    """
    termination, x, bound, message = _verdict(arrays, settings, outcome)
    objective, gap = math.inf, math.inf
    if x is not None:
        x = x.copy()
        x.setflags(write=False)
        objective = arrays.objective(x)
        gap = 0.0 if termination is Termination.OPTIMAL else relative_gap(objective, bound)
    elif termination is Termination.UNBOUNDED:
        objective = -math.inf
    seconds = time.perf_counter() - settings.began
    trace: list[TracePoint] = []
    if x is not None or termination in (Termination.LIMIT_NO_SOLUTION, Termination.INTERRUPTED_NO_SOLUTION):
        # Polishing moves the objective by its last digits, so earlier points are held to the final ones.
        trace = [TracePoint(p.seconds, max(p.objective, objective), min(p.bound, bound)) for p in outcome.points]
        trace.append(TracePoint(seconds, objective, bound))
    if outcome.note:
        message = f"{message}; {outcome.note}"
    size = (int(arrays.row_lower.size), int(arrays.cost.size), int(arrays.A.nnz))
    return Solution(termination, objective, bound, gap, seconds, outcome.nodes, *size, tuple(trace), x, message)


_Verdict = tuple[Termination, Floats | None, float, str]  # termination, solution, bound and message of an outcome


def _verdict(arrays: ModelArrays, settings: Settings, outcome: RunOutcome) -> _Verdict:
    """The verdict on an outcome, whose solution is polished and verified."""
    if outcome.ending is Ending.UNBOUNDED:
        return Termination.UNBOUNDED, None, -math.inf, "the objective has no lower limit"
    if outcome.x is None:
        return _without_solution(settings.cutoff, outcome)
    claimed = arrays.objective(outcome.x)
    if abs(claimed - outcome.objective) > FEASIBILITY * max(1.0, abs(claimed)):
        return _failed(f"the solver reports objective {outcome.objective!r} for a solution of {claimed!r}")
    x, stopped = polish(arrays, settings, outcome.x)
    objective, violation = arrays.objective(x), arrays.violation(x)
    if violation > FEASIBILITY:
        return _failed(f"the solution violates the model by {violation:.3g}")
    if outcome.bound > objective + FEASIBILITY * max(1.0, abs(objective)):
        return _failed(f"bound {outcome.bound!r} lies above the objective {objective!r} of a feasible point")
    bound = min(outcome.bound, objective)
    if stopped or outcome.ending is Ending.INTERRUPTED:
        return Termination.INTERRUPTED_WITH_SOLUTION, x, bound, "interrupted"
    if outcome.ending is Ending.OPTIMAL:
        return _optimal(settings.gap, x, objective, bound)
    if outcome.ending is Ending.LIMIT:
        return Termination.LIMIT_WITH_SOLUTION, x, bound, "stopped at a limit"
    return _failed(outcome.message)


def _without_solution(cutoff: float | None, outcome: RunOutcome) -> _Verdict:
    """The verdict on an outcome that has no solution."""
    if outcome.ending is Ending.INTERRUPTED:
        return Termination.INTERRUPTED_NO_SOLUTION, None, outcome.bound, "interrupted before a solution"
    if outcome.ending is Ending.LIMIT:
        return Termination.LIMIT_NO_SOLUTION, None, outcome.bound, "time limit before a solution"
    # HiGHS calls it optimal when everything below its objective bound is explored.
    if cutoff is not None and outcome.ending in (Ending.INFEASIBLE, Ending.OPTIMAL):
        return Termination.INFEASIBLE, None, cutoff, f"no solution at or below the cutoff {cutoff:g}"
    if outcome.ending is Ending.INFEASIBLE:
        return Termination.INFEASIBLE, None, math.inf, "no point satisfies all rows and bounds"
    return _failed(outcome.message)


def _optimal(gap: float, x: Floats, objective: float, bound: float) -> _Verdict:
    """The verdict on a solution that the solver calls optimal, by the gap to its bound."""
    unit = max(1.0, abs(objective))
    if objective - bound > max(gap * abs(objective), FEASIBILITY * unit) * (1.0 + _OF_GAP):
        return _failed(f"the solver says optimal between {bound!r} and {objective!r}")
    if gap == 0.0 or objective - bound <= _EXACT * unit:
        return Termination.OPTIMAL, x, bound, "proven optimal"
    return Termination.GAP_REACHED, x, bound, f"requested gap {gap:g} reached"


def _failed(why: str) -> _Verdict:
    return Termination.FAILED, None, -math.inf, why
