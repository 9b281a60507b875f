"""What a solve returns: a termination word, an answer, a bound and a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from dfopt.arrays import Floats
from dfopt.errors import NoSolution, SolverFailure

_LEAST_OBJECTIVE: Final = 1e-12  # of models in units, whose objectives are about 1: below it is rounding of 0


class Termination(str, Enum):
    """Reason for the end of a solve."""

    OPTIMAL = "optimal"
    GAP_REACHED = "gap reached"
    LIMIT_WITH_SOLUTION = "limit with solution"
    INTERRUPTED_WITH_SOLUTION = "interrupted with solution"
    LIMIT_NO_SOLUTION = "limit without solution"
    INTERRUPTED_NO_SOLUTION = "interrupted without solution"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"


@dataclass(frozen=True)
class TracePoint:
    """State of a solve at one moment.

    Attributes
    ----------
    seconds : float, s
        Since the start.
    objective, bound : float
        Incumbent and proven bound, in units of the problem.
    """

    seconds: float  # wall seconds since the call of ``solve``
    objective: float  # the best known by then, ``inf`` before the first solution
    bound: float  # the lower bound proven by then, ``-inf`` before the first one


@dataclass(frozen=True)
class Solution:
    """Frozen result of one solve of a minimisation model.

    Parameters
    ----------
    objective : float
        Objective of ``x`` (``inf`` without solution, ``-inf`` if unbounded).
    bound : float
        Proven lower bound on every feasible objective (``inf`` if infeasible).
    gap : float
        ``|objective - bound| / max(|objective|, 1e-12)``; 0.0 when optimal and
        ``inf`` without solution.
    seconds : float
        Wall time of the whole call.
    nodes : int
        Branch-and-bound nodes.
    rows, columns, nonzeros : int
        Size of the model.
    trace : tuple of TracePoint
        Improvements of objective and bound, monotone in all three fields.
    x : ndarray or None
        The read-only solution vector, integers exact.
    """

    termination: Termination
    objective: float
    bound: float
    gap: float
    seconds: float
    nodes: int
    rows: int
    columns: int
    nonzeros: int
    trace: tuple[TracePoint, ...]
    x: Floats | None
    message: str

    @property
    def proven(self) -> bool:
        """Whether the requested gap is proven."""
        return self.termination in (Termination.OPTIMAL, Termination.GAP_REACHED)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the solve."""
        return self.termination in (Termination.INTERRUPTED_WITH_SOLUTION, Termination.INTERRUPTED_NO_SOLUTION)

    def in_units(self, unit: float) -> Solution:
        """Return the solution with objective, bound and trace multiplied by ``unit``."""
        trace = tuple(TracePoint(p.seconds, p.objective * unit, p.bound * unit) for p in self.trace)
        return replace(self, objective=self.objective * unit, bound=self.bound * unit, trace=trace)


def relative_gap(objective: float, bound: float) -> float:
    """Return ``|objective - bound| / max(|objective|, 1e-12)``, inf if either is infinite.

    Examples
    --------
    >>> relative_gap(10.0, 9.0)
    0.1
    >>> relative_gap(float("inf"), 9.0)
    inf
    """
    if not (math.isfinite(objective) and math.isfinite(bound)):
        return math.inf
    return abs(objective - bound) / max(abs(objective), _LEAST_OBJECTIVE)


def unanswered(solution: Solution) -> BaseException:
    """The exception for a solve without a solution and without a proof of infeasibility.

    INFEASIBLE each problem explains in its own words. In units of the problem; objectives are not negative.
    """
    if solution.termination is Termination.INTERRUPTED_NO_SOLUTION:
        return KeyboardInterrupt()
    if solution.termination is Termination.LIMIT_NO_SOLUTION:
        return NoSolution(max(solution.bound, 0.0), solution.seconds)
    return SolverFailure(solution.message or solution.termination.value)


def closed_form(value: float, seconds: float, message: str) -> Solution:
    """A proven solution that needed no solver.

    Parameters
    ----------
    value : float
        Its objective value, which is also its bound.
    seconds : float, s
        Time that it took.
    message : str
        How it was found.
    """
    sizes = {"nodes": 0, "rows": 0, "columns": 0, "nonzeros": 0}
    return Solution(Termination.OPTIMAL, value, value, 0.0, seconds, **sizes, trace=(), x=None, message=message)
