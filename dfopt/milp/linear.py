"""A linear program whose columns come and go between solves: the master of a column generation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dfopt.milp.arrays import BoolArray, FloatArray, least
from dfopt.milp.engine import set_options
from dfopt.milp.model import IntArray
from dfopt.milp.solution import Termination
from dfopt.milp.worker import Worker, supervise

_TOLERANCE = 1e-9  # what HiGHS is asked for
_CHECKED = 1e-6  # an answer worse than this is not called optimal

_WORDS = {
    "kOptimal": Termination.OPTIMAL,
    "kInfeasible": Termination.INFEASIBLE,
    "kUnbounded": Termination.UNBOUNDED,
    "kTimeLimit": Termination.LIMIT_NO_SOLUTION,
    "kInterrupt": Termination.LIMIT_NO_SOLUTION,
    "kHighsInterrupt": Termination.LIMIT_NO_SOLUTION,
}


@dataclass(frozen=True)
class LpPoint:
    """What one solve of a `GrowingLp` found.

    Parameters
    ----------
    optimal : bool
        Whether the rest is there; false means NaN in all numbers below.
    status : Termination
        OPTIMAL, INFEASIBLE, UNBOUNDED, LIMIT_NO_SOLUTION,
        INTERRUPTED_NO_SOLUTION (Ctrl-C does not raise) or FAILED.
    objective : float
        Least cost.
    x : ndarray
        One value per column.
    duals : ndarray
        One value per row: the reduced cost of a column is
        ``cost - duals @ column`` and at the optimum not negative for a column
        at its lower bound.  So a row that holds at its lower side has a
        nonnegative dual, one that holds at its upper side a nonpositive one.
    seconds : float
        Wall time of the solve.
    """

    optimal: bool
    status: Termination
    objective: float
    x: FloatArray
    duals: FloatArray
    seconds: float


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
    >>> lp.add_columns([1.0, 1.0], sp.csc_array([[3.0, 0.0], [0.0, 2.0]])).tolist()
    [0, 1]
    >>> point = lp.solve()
    >>> round(point.objective, 6), point.duals.round(6).tolist()
    (11.666667, [0.333333, 0.5])

    A bar with one of each has a reduced cost of 1 - 1/3 - 1/2 > 0 and does not
    help.  Were the bars of length 11, two pieces of 3 and one of 5 would fit:

    >>> lp.add_columns([1.0], sp.csc_array([[2.0], [1.0]])).tolist()
    [2]
    >>> round(lp.solve().objective, 6)
    10.0
    """

    def __init__(self, row_lower: ArrayLike, row_upper: ArrayLike) -> None:
        import highspy

        self._row_lower = np.array(row_lower, dtype=np.float64)
        self._row_upper = np.array(row_upper, dtype=np.float64)
        _check_pair("rows", self._row_lower, self._row_upper)
        self._cost = self._lower = self._upper = np.empty(0)
        self._parts: list[sp.csc_array] = []
        self._lost = False
        self._worker: _Solve | None = None
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        options = {
            "output_flag": False,
            # The simplex method of HiGHS does not gain from a second thread.
            "threads": 1,
            "solver": "simplex",
            # The primal simplex where the old basis stays feasible, as it does when columns are added.
            "simplex_strategy": 0,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
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
        """Number of columns at present."""
        return int(self._cost.size)

    # -------------------------------------------------------------- columns

    def add_columns(
        self, cost: ArrayLike, A: sp.csc_array, lower: ArrayLike = 0.0, upper: ArrayLike = math.inf
    ) -> IntArray:
        """Append columns and return their indices.

        Parameters
        ----------
        cost : array_like
            One number per new column.
        A : scipy.sparse.csc_array
            Rows times new columns; any other matrix is converted.
        lower, upper : array_like
            Bounds, broadcast to the new columns.
        """
        price = np.array(cost, dtype=np.float64)
        matrix = sp.csc_array(A, dtype=np.float64)
        if price.ndim != 1 or matrix.shape != (self.rows, price.size):
            raise ValueError(
                f"new columns: a matrix of shape {matrix.shape} and costs of shape {price.shape}, "
                f"expected ({self.rows}, n) and (n,)"
            )
        if not (np.isfinite(price).all() and np.isfinite(matrix.data).all()):
            raise ValueError("new columns: NaN or infinite cost or coefficient")
        low = np.broadcast_to(np.asarray(lower, dtype=np.float64), price.shape).copy()
        up = np.broadcast_to(np.asarray(upper, dtype=np.float64), price.shape).copy()
        _check_pair("new columns", low, up)
        self._ready()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        first = self.columns
        starts, index = matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        self._check(self._highs.addCols(price.size, price, low, up, matrix.nnz, starts, index, matrix.data))
        self._cost = np.concatenate([self._cost, price])
        self._lower, self._upper = np.concatenate([self._lower, low]), np.concatenate([self._upper, up])
        self._parts.append(matrix)
        # Few parts, and no entry copied more than a logarithm of times.
        while len(self._parts) > 1 and self._parts[-1].shape[1] >= self._parts[-2].shape[1]:
            self._parts[-2:] = [sp.csc_array(sp.hstack(self._parts[-2:], format="csc"))]
        return np.arange(first, self.columns, dtype=np.int64)

    def delete_columns(self, mask: ArrayLike) -> None:
        """Remove the columns where ``mask`` is true; the others move up in their order.

        The basis survives unless one of its columns goes.
        """
        gone: BoolArray = np.asarray(mask)
        if gone.dtype != np.bool_ or gone.shape != (self.columns,):
            raise ValueError(f"mask is {gone.dtype} of shape {gone.shape}, expected bool of ({self.columns},)")
        self._ready()
        if not gone.any():
            return
        import highspy

        basis = self._highs.getBasis()
        which = np.flatnonzero(gone).astype(np.int32)
        self._check(self._highs.deleteCols(which.size, which))
        kept = ~gone
        self._parts = [sp.csc_array(sp.hstack(self._parts, format="csc")[:, kept])]
        self._cost, self._lower, self._upper = self._cost[kept], self._lower[kept], self._upper[kept]
        basic = highspy.HighsBasisStatus.kBasic
        if basis.valid and not any(basis.col_status[i] == basic for i in which):
            # HiGHS forgets its basis here, though nothing of it was deleted.
            basis.col_status = [status for status, keep in zip(basis.col_status, kept, strict=True) if keep]
            self._check(self._highs.setBasis(basis))

    # ---------------------------------------------------------------- solve

    def solve(self, time_limit: float | None = None) -> LpPoint:
        """Solve with the columns there are.

        Parameters
        ----------
        time_limit : float, optional
            Wall seconds, kept even if HiGHS does not listen.
        """
        zero = time.perf_counter()
        if time_limit is not None and not time_limit >= 0.0:
            raise ValueError(f"time limit must not be negative, not {time_limit}")
        self._ready()
        deadline = math.inf if time_limit is None else zero + time_limit
        if self.columns == 0:
            fits = bool((self._row_lower <= 0.0).all() and (self._row_upper >= 0.0).all())
            status = Termination.OPTIMAL if fits else Termination.INFEASIBLE
            return self._point(status, np.empty(0), np.zeros(self.rows), zero)
        status, x, duals = self._run(deadline)
        if status is Termination.FAILED:
            # An old basis can be a bad place to start from; nothing else is known to help.
            self._check(self._highs.clearSolver())
            status, x, duals = self._run(deadline)
        return self._point(status, x, duals, zero)

    def _run(self, deadline: float) -> tuple[Termination, FloatArray, FloatArray]:
        """Run HiGHS once, and doubt its answer."""
        highs = self._highs
        # HiGHS counts its run time over all solves of an instance.
        limit = highs.getRunTime() + max(0.0, deadline - time.perf_counter())
        set_options(highs, {"time_limit": limit})
        self._worker = _Solve(highs)
        reason = supervise(self._worker, deadline)
        none = np.empty(0)
        if not self._worker.done.is_set():
            self._lost = True
        if reason == "interrupt":
            return Termination.INTERRUPTED_NO_SOLUTION, none, none
        if reason == "limit":
            return Termination.LIMIT_NO_SOLUTION, none, none
        word = highs.getModelStatus().name
        if word == "kUnboundedOrInfeasible":
            return self._which(deadline), none, none
        status = _WORDS.get(word, Termination.FAILED)
        if status is not Termination.OPTIMAL:
            return status, none, none
        found = highs.getSolution()
        x = np.clip(np.array(found.col_value, dtype=np.float64), self._lower, self._upper)
        duals = np.array(found.row_dual, dtype=np.float64)
        return (status if self._proves(x, duals) else Termination.FAILED), x, duals

    def _which(self, deadline: float) -> Termination:
        """Settle "unbounded or infeasible", which presolve says when it cannot tell."""
        set_options(self._highs, {"presolve": "off"})
        try:
            status, _, _ = self._run(deadline)
        finally:
            set_options(self._highs, {"presolve": "choose"})
        return status

    def _proves(self, x: FloatArray, duals: FloatArray) -> bool:
        """Whether x is feasible and the duals prove, by weak duality, that nothing is cheaper."""
        activity, reduced = np.zeros(self.rows), self._cost.copy()
        first = 0
        for part in self._parts:
            here = slice(first, first + part.shape[1])
            activity += part @ x[here]
            reduced[here] -= duals @ part
            first = here.stop
        worst = max(
            float((self._row_lower - activity).max(initial=0.0)), float((activity - self._row_upper).max(initial=0.0))
        )
        sides = np.abs(np.concatenate([activity, x]))
        if not worst <= _CHECKED * max(1.0, float(sides.max(initial=0.0))):
            return False
        objective = float(self._cost @ x)
        bound = least(duals, self._row_lower, self._row_upper, _CHECKED)
        bound += least(reduced, self._lower, self._upper, _CHECKED)
        return bool(objective - bound <= _CHECKED * max(1.0, abs(objective)))

    def _point(self, status: Termination, x: FloatArray, duals: FloatArray, zero: float) -> LpPoint:
        optimal = status is Termination.OPTIMAL
        if not optimal:
            x, duals = np.full(self.columns, math.nan), np.full(self.rows, math.nan)
        x.setflags(write=False)
        duals.setflags(write=False)
        objective = float(self._cost @ x) if optimal else math.nan
        return LpPoint(optimal, status, objective, x, duals, time.perf_counter() - zero)

    # -------------------------------------------------------------- plumbing

    def _on_interrupt(self, event: Any) -> None:
        # Also when it is False: HiGHS keeps the answer of the last solve.
        event.data_in.user_interrupt = self._worker is not None and self._worker.stop

    def _ready(self) -> None:
        if self._lost and self._worker is not None and not self._worker.done.is_set():
            raise RuntimeError("HiGHS has not come back from the last solve of this LP; build a new one")

    def _check(self, status: Any) -> None:
        if int(status) != 0:
            raise RuntimeError(f"HiGHS refused a change of the LP: {status}")


class _Solve(Worker):
    """One run of an LP that stays loaded."""

    def __init__(self, highs: Any) -> None:
        super().__init__()
        self.highs = highs

    def work(self) -> None:
        """Run, and give the scheduler of this thread back."""
        import highspy

        try:
            self.highs.run()
        finally:
            highspy.Highs.resetGlobalScheduler(False)


def _check_pair(what: str, lower: FloatArray, upper: FloatArray) -> None:
    if lower.ndim != 1 or lower.shape != upper.shape:
        raise ValueError(f"{what}: lower of shape {lower.shape} and upper of {upper.shape}, expected one vector each")
    if not (lower <= upper).all() or (lower == math.inf).any() or (upper == -math.inf).any():
        raise ValueError(f"{what}: NaN, lower above upper, lower of +inf or upper of -inf")
