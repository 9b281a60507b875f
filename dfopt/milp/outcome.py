"""What every solver run is asked for and leaves behind, whichever door it went through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

import numpy as np
import scipy

from dfopt.arrays import ROUNDING, Floats
from dfopt.bnb import UNLIMITED, Clock
from dfopt.milp.arrays import ModelArrays
from dfopt.milp.solution import TracePoint
from dfopt.milp.worker import GRACE, Worker, supervise

_REPORT_EVERY = 0.5  # seconds between two progress reports without improvement
_ITERATIONS = 6.0  # of the simplex method between two questions of a MIP, which does not say how many; about
_BOUND_EVERY = 0.1  # seconds between two trace points that only move the bound

ProgressCallback = Callable[[TracePoint], None]
TOLERANCE: Final = 1e-9
"""Feasibility that HiGHS is asked for, a hundredth of its default: the judge adds up the same mapping by itself."""
_DEFAULT_TOLERANCE: Final = 1e-7  # of HiGHS: for a model that was not solved with less
_AT_CUTOFF: Final = 1e-9  # relative: a solution that costs what the cutoff says is one, though both are rounded sums
_PER_ITERATION: Final = 10.0  # units of work of a simplex iteration without entries,
_ENTRIES: Final = 500.0  # entries of a matrix that an iteration goes over in a further one,
_PER_RUN: Final = 200.0  # and units of work of a run of an empty model


class Ending(Enum):
    """How a solver says that a run ended, before any check."""

    OPTIMAL = auto()  # proven to the gap it was asked for
    INFEASIBLE = auto()
    UNBOUNDED = auto()  # perhaps of the relaxation only
    UNCLEAR = auto()  # infeasible or unbounded
    DOUBTFUL = auto()  # infeasible, by a word not to be relied on
    LIMIT = auto()
    INTERRUPTED = auto()
    BROKEN = auto()


@dataclass(frozen=True)
class Settings:
    """Options of one run; ``again`` marks the second attempt after a wrong answer.

    Times are readings of ``time.perf_counter``: a run that began at ``began`` returns at the latest ``grace`` seconds
    after the ``deadline``. ``clock`` counts its work, and ends it at its limit; see :func:`per_iteration`.

    ``gap``, ``seed``, ``presolve`` and ``cutoff`` are options of :func:`dfopt.milp.solve`.
    """

    gap: float = 0.0
    seed: int = 0
    presolve: bool = True
    cutoff: float | None = None
    again: bool = False
    began: float = field(default_factory=time.perf_counter)
    deadline: float = math.inf
    grace: float = GRACE
    clock: Clock = UNLIMITED

    @property
    def presolves(self) -> bool:
        """Whether to presolve; the second attempt inverts the setting."""
        return self.presolve is not self.again

    @property
    def tolerance(self) -> float:
        """Feasibility tolerance: 1e-9, or the solver's default in the second attempt."""
        return _DEFAULT_TOLERANCE if self.again else TOLERANCE


@dataclass(frozen=True)
class RunOutcome:
    """Raw outcome of a solver run, before any check.

    Attributes
    ----------
    ending : Ending
        Reason why the run ended.
    x : float array, optional
        Solution.
    objective, bound : float
        Its objective, and the proven bound.
    nodes : int
        Branch-and-bound nodes.
    points : tuple of TracePoint
        Improvements of both.
    message, note : str
        The solver's own text, and options that it was not given.
    """

    ending: Ending
    x: Floats | None = None
    objective: float = math.inf
    bound: float = -math.inf
    nodes: int = 0
    points: tuple[TracePoint, ...] = ()
    message: str = ""
    note: str = ""


def per_iteration(nonzeros: int) -> float:
    """Units of work (:class:`dfopt.bnb.Clock`) of one simplex iteration, for a matrix of ``nonzeros`` entries."""
    return _PER_ITERATION + nonzeros / _ENTRIES


def per_run(arrays: ModelArrays) -> float:
    """Units of work of a run without any simplex iteration: reading, presolve and checks."""
    return _PER_RUN + arrays.A.nnz / 2.0


def slack(value: float, room: float = _AT_CUTOFF) -> float:
    """Return the tolerance above a cutoff within which a value counts as at the cutoff."""
    return room * max(1.0, abs(value))


def with_cutoff(arrays: ModelArrays, cutoff: float | None) -> ModelArrays:
    """Return the model with a further row that keeps the objective at or below the cutoff."""
    if cutoff is None:
        return arrays
    limit = cutoff + slack(cutoff) - arrays.offset
    return replace(
        arrays,
        A=scipy.sparse.vstack([arrays.A, scipy.sparse.csr_array(arrays.cost[None, :])], format="csr"),
        row_lower=np.append(arrays.row_lower, -math.inf),
        row_upper=np.append(arrays.row_upper, limit),
    )


class SolverRun(Worker):
    """One run of a solver in a thread, with monotone incumbent, bound and trace."""

    def __init__(self, arrays: ModelArrays, settings: Settings, start: Floats | None) -> None:
        super().__init__(self.work)
        self.arrays, self.settings = arrays, settings
        self.integral = bool(arrays.integrality.any())
        self.room = _AT_CUTOFF  # what a solution may cost above the cutoff, relative to it
        self.points: list[TracePoint] = []
        # One tuple, so that a thread reading it never sees half an update.
        self.incumbent: tuple[Floats | None, float] = (None, math.inf)
        self.bound = -math.inf
        self.ending, self.nodes, self.message, self.note = Ending.LIMIT, 0, "", ""
        self.iterations = self.questions = 0  # the latter: how often a MIP asked whether to go on
        self.most_iterations = max(settings.clock.units_left - per_run(arrays), 0.0) / per_iteration(arrays.A.nnz)
        self.most_questions = self.most_iterations / _ITERATIONS
        if start is not None:
            # The start is checked by the caller, so it is an incumbent already.
            self.improve(start, arrays.objective(start))
        self.start_x = self.incumbent[0]

    def work(self) -> None:
        """Run the solver and read its answer, in its own thread."""
        raise NotImplementedError

    def outcome(self, progress: ProgressCallback | None = None) -> RunOutcome:
        """Run the solver once and return its raw outcome."""
        reason = supervise(self, self.settings.deadline, self._reporter(progress), self.settings.grace)
        self.settings.clock.charge(per_run(self.arrays) + self.iterations * per_iteration(self.arrays.A.nnz))
        ending = Ending.INTERRUPTED if reason == "interrupt" else self.ending
        x, objective = self.incumbent
        return RunOutcome(ending, x, objective, self.bound, self.nodes, tuple(self.points), self.message, self.note)

    def welcome(self, objective: float) -> bool:
        """Whether a solution with this objective is within the cutoff."""
        cutoff = self.settings.cutoff
        return cutoff is None or objective <= cutoff + slack(cutoff, self.room)

    def improve(self, x: Floats, objective: float) -> None:
        """Record a better solution."""
        if objective < self.incumbent[1] and self.welcome(objective):
            self.incumbent = (x, objective)
            self.points.append(self._state())

    def settle(self, x: Floats, objective: float) -> None:
        """Record the final solution, which wins over an equal earlier one."""
        if objective <= self.incumbent[1] and self.welcome(objective):
            self.incumbent = (x, objective)

    def lift(self, bound: float) -> None:
        """Record a proven bound; bounds never decrease."""
        if self.settings.cutoff is not None:
            # Branches above the cutoff are dropped unexplored, so nothing beyond it is proven.
            bound = min(bound, self.settings.cutoff)
        if math.isfinite(bound) and bound > self.bound + slack(bound, ROUNDING):
            self.bound = bound
            state = self._state()
            if not self.points or state.seconds - self.points[-1].seconds >= _BOUND_EVERY:
                self.points.append(state)

    def _state(self) -> TracePoint:
        best = self.incumbent[1]
        return TracePoint(time.perf_counter() - self.settings.began, best, min(self.bound, best))

    def _reporter(self, progress: ProgressCallback | None) -> Callable[[bool], None]:
        """Return what passes improvements, and every quiet half second, on to ``progress``."""
        reported, best, last = 0, math.inf, time.perf_counter()

        def report(finished: bool) -> None:
            nonlocal reported, best, last
            if progress is None:
                return
            count = len(self.points)
            for point in self.points[reported:count]:
                if point.objective < best:
                    best, last = point.objective, time.perf_counter()
                    progress(point)
            reported = count
            if not finished and time.perf_counter() - last >= _REPORT_EVERY:
                last = time.perf_counter()
                progress(self._state())

        return report


Runner = Callable[[ModelArrays, Settings, Floats | None], SolverRun]
