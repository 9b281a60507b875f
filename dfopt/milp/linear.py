"""A linear program whose columns come and go between solves: the master of a column generation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dfopt.arrays import Floats
from dfopt.bnb import UNLIMITED, Clock
from dfopt.milp.arrays import check_bounds, least
from dfopt.milp.engine import set_options
from dfopt.milp.outcome import TOLERANCE, per_iteration
from dfopt.milp.solution import Termination
from dfopt.milp.worker import Worker, supervise

_CHECKED = 1e-6  # an answer worse than this is not called optimal
_STOPPED = ("kTimeLimit", "kInterrupt", "kHighsInterrupt")
_PER_SOLVE: Final = 10.0  # units of work of a solve without any iteration: HiGHS is called, and its point checked


@dataclass(frozen=True)
class LpPoint:
    """Outcome of one solve of a `GrowingLp`.

    Parameters
    ----------
    status : Termination
        OPTIMAL, LIMIT_NO_SOLUTION, INTERRUPTED_NO_SOLUTION (Ctrl-C does not raise) or FAILED, as when no point is
        feasible or the cost has no end; all but the first mean NaN in all numbers below.
    objective : float
        Least cost.
    x : ndarray
        One value per column.
    duals : ndarray
        One value per row: the reduced cost of a column is
        ``cost - duals @ column`` and at the optimum not negative for a column
        at its lower bound.  So a row that holds at its lower side has a
        nonnegative dual, one that holds at its upper side a nonpositive one.
    """

    status: Termination
    objective: float
    x: Floats
    duals: Floats

    @property
    def optimal(self) -> bool:
        """Whether the solve found an optimum, so that all numbers are set."""
        return self.status is Termination.OPTIMAL


class GrowingLp:
    """Minimise ``cost @ x`` with ``row_lower <= A x <= row_upper``, adding columns as they are found.

    Each solve starts at the basis of the one before.

    Parameters
    ----------
    row_lower, row_upper : array_like
        Sides of the rows, which stay; -inf and inf where there is none.

    Examples
    --------
    Cut 20 pieces of 3 and 10 pieces of 5 from as few bars of length 10 as can be:

    >>> lp = GrowingLp([20.0, 10.0], [np.inf, np.inf])
    >>> lp.add_columns([1.0, 1.0], scipy.sparse.csc_array([[3.0, 0.0], [0.0, 2.0]]))
    >>> point = lp.solve()
    >>> round(point.objective, 6), point.duals.round(6).tolist()
    (11.666667, [0.333333, 0.5])

    A bar with one of each has a reduced cost of 1 - 1/3 - 1/2 > 0 and does not
    help.  Were the bars of length 11, two pieces of 3 and one of 5 would fit:

    >>> lp.add_columns([1.0], scipy.sparse.csc_array([[2.0], [1.0]]))
    >>> round(lp.solve().objective, 6)
    10.0
    """

    def __init__(self, row_lower: ArrayLike, row_upper: ArrayLike) -> None:
        import highspy

        self._row_lower = np.array(row_lower, dtype=np.float64)
        self._row_upper = np.array(row_upper, dtype=np.float64)
        check_bounds("rows", self._row_lower, self._row_upper)
        self._cost, self._lower = np.empty(0), np.empty(0)
        self._A = scipy.sparse.csc_array((self.rows, 0))
        self._worker: Worker | None = None
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {
            "output_flag": False,
            # The simplex method of HiGHS does not gain from a second thread.
            "threads": 1,
            "solver": "simplex",
            # The primal simplex where the old basis stays feasible, as it does when columns are added.
            "simplex_strategy": 0,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }
        set_options(self._highs, options)
        none = np.empty(0, dtype=np.int32)
        self._check(self._highs.addRows(self.rows, self._row_lower, self._row_upper, 0, none, none, np.empty(0)))
        self._highs.cbSimplexInterrupt.subscribe(self._on_interrupt)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._row_lower.size)

    @property
    def columns(self) -> int:
        """Current number of columns."""
        return int(self._cost.size)

    def add_columns(self, cost: ArrayLike, A: scipy.sparse.csc_array, lower: float = 0.0) -> None:
        """Append columns without an upper bound.

        Parameters
        ----------
        cost : array_like
            One number per new column.
        A : scipy.sparse.csc_array
            Rows times new columns; any other matrix is converted.
        lower : float
            Their lower bound.
        """
        price = np.array(cost, dtype=np.float64)
        matrix = scipy.sparse.csc_array(A, dtype=np.float64)
        if price.ndim != 1 or matrix.shape != (self.rows, price.size):
            raise ValueError(
                f"new columns: a matrix of shape {matrix.shape} and costs of shape {price.shape}, "
                f"expected ({self.rows}, n) and (n,)"
            )
        if not (np.isfinite(price).all() and np.isfinite(matrix.data).all()):
            raise ValueError("new columns: NaN or infinite cost or coefficient")
        self._ready()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        low, up = np.full(price.size, lower), np.full(price.size, math.inf)
        starts, index = matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        self._check(self._highs.addCols(price.size, price, low, up, matrix.nnz, starts, index, matrix.data))
        self._cost, self._lower = np.concatenate([self._cost, price]), np.concatenate([self._lower, low])
        self._A = scipy.sparse.hstack([self._A, matrix], format="csc")

    def solve(self, clock: Clock = UNLIMITED) -> LpPoint:
        """Solve with the current columns, at most until the clock's deadline.

        Each iteration of the simplex method is charged as that of a MILP.
        """
        self._ready()
        deadline = clock.last
        point = self._run(deadline)
        if point.status is Termination.FAILED:
            # An old basis can be a bad place to start from; nothing else is known to help.
            self._check(self._highs.clearSolver())
            point = self._run(deadline)
        if self._worker is not None and self._worker.done.is_set():  # a deaf solver is left alone
            iterations = max(int(self._highs.getInfo().simplex_iteration_count), 0)
            clock.charge(_PER_SOLVE + iterations * per_iteration(self._A.nnz))
        return point

    def _run(self, deadline: float) -> LpPoint:
        """Run HiGHS once, and doubt its answer."""
        highs = self._highs
        # HiGHS counts its run time over all solves of an instance.
        set_options(highs, {"time_limit": highs.getRunTime() + max(0.0, deadline - time.perf_counter())})
        self._worker = Worker(self._work)
        reason = supervise(self._worker, deadline)
        x, duals = np.full(self.columns, math.nan), np.full(self.rows, math.nan)
        word = highs.getModelStatus().name if not reason else ""
        status = Termination.FAILED
        if reason == "interrupt":
            status = Termination.INTERRUPTED_NO_SOLUTION
        elif reason == "limit" or word in _STOPPED:
            status = Termination.LIMIT_NO_SOLUTION
        elif word == "kOptimal":
            solution = highs.getSolution()
            best = np.maximum(np.array(solution.col_value, dtype=np.float64), self._lower)
            prices = np.array(solution.row_dual, dtype=np.float64)
            if self._proves(best, prices):
                status, x, duals = Termination.OPTIMAL, best, prices
        x.setflags(write=False)
        duals.setflags(write=False)
        return LpPoint(status, float(self._cost @ x), x, duals)

    def _work(self) -> None:
        """Run HiGHS in a thread of its own, and give the scheduler of that thread back."""
        import highspy

        try:
            self._highs.run()
        finally:
            highspy.Highs.resetGlobalScheduler(False)

    def _proves(self, x: Floats, duals: Floats) -> bool:
        """Whether x is feasible and the duals prove, by weak duality, that nothing is cheaper."""
        activity, reduced = self._A @ x, self._cost - duals @ self._A
        worst = np.maximum(self._row_lower - activity, activity - self._row_upper).max(initial=0.0)
        sides = np.abs(np.concatenate([activity, x]))
        if not worst <= _CHECKED * sides.max(initial=1.0):
            return False
        objective = float(self._cost @ x)
        bound = least(duals, self._row_lower, self._row_upper, _CHECKED)
        bound += least(reduced, self._lower, np.full_like(x, math.inf), _CHECKED)
        return objective - bound <= _CHECKED * max(1.0, abs(objective))

    def _on_interrupt(self, event: Any) -> None:
        # Also when it is False: HiGHS keeps the answer of the last solve.
        event.data_in.user_interrupt = self._worker is not None and self._worker.stop

    def _ready(self) -> None:
        if self._worker is not None and not self._worker.done.is_set():
            raise RuntimeError("HiGHS has not come back from the last solve of this LP; build a new one")

    def _check(self, status: Any) -> None:
        if int(status) != 0:
            raise RuntimeError(f"HiGHS refused a change of the LP: {status}")
