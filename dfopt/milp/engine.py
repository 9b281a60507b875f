"""One HiGHS run in a thread of its own, watched by the calling thread.

Why a thread: HiGHS looks at its time limit and at interrupt requests only at
certain points, and a long root relaxation can sit between two of them.  The
caller must come back on time whatever HiGHS does.  HiGHS releases the GIL
while it works, so the caller can wait, report progress and hear Ctrl-C.

Why a fresh thread per run: the task scheduler of HiGHS is thread-local and
refuses a second, different thread count.  A new thread starts without one.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfopt.milp.arrays import FloatArray, ModelArrays
from dfopt.milp.solution import TracePoint

GRACE = 1.5  # seconds HiGHS gets to come back after it was told to stop
_TICK = 0.05  # seconds between two looks of the calling thread
_REPORT_EVERY = 0.5  # seconds between two progress reports without improvement
_BOUND_EVERY = 0.1  # seconds between two trace points that only move the bound

Progress = Callable[[TracePoint], None]
_abandoned: list[threading.Thread] = []


def default_threads() -> int:
    """Return the thread count used when the caller names none.

    Examples
    --------
    >>> 1 <= default_threads() <= 2
    True
    """
    return min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Settings:
    """Options of one run; ``tolerance`` is the feasibility tolerance."""

    gap: float
    seed: int
    threads: int
    presolve: bool
    cutoff: float | None
    tolerance: float = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What a run left behind.

    ``status`` is the name of the HiGHS model status, "abandoned" when HiGHS did
    not come back in time; ``reason`` is "", "limit" or "interrupt", what we asked.
    """

    status: str
    reason: str
    x: FloatArray | None
    objective: float
    bound: float
    nodes: int
    points: tuple[TracePoint, ...]


class Run(threading.Thread):
    """The worker thread; its plain attributes are written by HiGHS callbacks."""

    def __init__(
        self, arrays: ModelArrays, settings: Settings, start: FloatArray | None, deadline: float, zero: float
    ) -> None:
        super().__init__(daemon=True, name="highs")
        self.arrays, self.settings, self.start_x = arrays, settings, start
        self.deadline, self.zero = deadline, zero
        self.done = threading.Event()
        self.stop = False
        self.error: BaseException | None = None
        self.status = "abandoned"
        self.points: list[TracePoint] = []
        # One tuple, so that a thread reading it never sees half an update.
        self.incumbent: tuple[FloatArray | None, float] = (None, math.inf)
        self.bound = -math.inf
        self.nodes = 0
        self.integral = bool(arrays.integrality.any())
        if start is not None:
            # The start is checked by the caller, so it is an incumbent already.
            self.improve(start, arrays.objective(start))

    @property
    def best(self) -> float:
        """Objective of the incumbent, inf without one."""
        return self.incumbent[1]

    # ------------------------------------------------ called inside HiGHS

    def improve(self, x: FloatArray, objective: float) -> None:
        """Note a better solution."""
        limit = self.settings.cutoff
        if objective < self.best and (limit is None or objective <= limit + _slack(limit)):
            self.incumbent = (x, objective)
            self.mark()

    def mark(self) -> None:
        """Append the present state to the trace."""
        now = time.perf_counter() - self.zero
        self.points.append(TracePoint(now, self.best, min(self.bound, self.best)))

    def lift(self, bound: float) -> None:
        """Note a proven bound; bounds never go down."""
        if self.settings.cutoff is not None:
            # Branches above the cutoff are dropped unexplored, so nothing beyond it is proven.
            bound = min(bound, self.settings.cutoff)
        if math.isfinite(bound) and bound > self.bound + 1e-12 * max(1.0, abs(bound)):
            self.bound = bound
            last = self.points[-1].seconds if self.points else -math.inf
            if time.perf_counter() - self.zero - last >= _BOUND_EVERY:
                self.mark()

    def _on_solution(self, event: Any) -> None:
        try:
            out = event.data_out
            self.improve(np.array(out.mip_solution, dtype=np.float64), float(out.objective_function_value))
            self.lift(float(out.mip_dual_bound))
        except BaseException as error:
            self.error, self.stop = error, True

    def _on_interrupt(self, event: Any) -> None:
        try:
            if self.integral:
                out = event.data_out
                self.nodes = max(self.nodes, int(out.mip_node_count))
                self.lift(float(out.mip_dual_bound))
        except BaseException as error:
            self.error, self.stop = error, True
        if self.stop:
            event.data_in.user_interrupt = True

    # ------------------------------------------------------ worker thread

    def run(self) -> None:
        """Load, solve and read the answer."""
        try:
            self._solve()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def _solve(self) -> None:
        import highspy

        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        ok = highspy.HighsStatus.kOk
        for name, value in self._options().items():
            if highs.setOptionValue(name, value) != ok:
                raise RuntimeError(f"HiGHS refused option {name}={value!r}")
        self._load(highspy, highs)
        if self.start_x is not None and self.integral:
            size = self.start_x.size
            if highs.setSolution(size, np.arange(size, dtype=np.int32), self.start_x) != ok:
                raise RuntimeError("HiGHS refused the start vector")
        highs.cbMipImprovingSolution.subscribe(self._on_solution)
        for hook in (highs.cbMipInterrupt, highs.cbSimplexInterrupt, highs.cbIpmInterrupt):
            hook.subscribe(self._on_interrupt)
        try:
            if self.stop:
                return
            highs.run()
            self._read(highspy, highs)
        finally:
            # Give the scheduler of this thread back; the next run has its own.
            highspy.Highs.resetGlobalScheduler(False)

    def _options(self) -> dict[str, Any]:
        s = self.settings
        options: dict[str, Any] = {
            "output_flag": False,
            "threads": s.threads,
            "random_seed": s.seed,
            "presolve": "on" if s.presolve else "off",
            # Both gaps explicitly: the defaults (1e-4, 1e-6) stop early and say "optimal".
            "mip_rel_gap": s.gap,
            "mip_abs_gap": 1e-9,
            "primal_feasibility_tolerance": s.tolerance,
            "dual_feasibility_tolerance": s.tolerance,
            "mip_feasibility_tolerance": s.tolerance,
        }
        if math.isfinite(self.deadline):
            options["time_limit"] = max(0.0, self.deadline - time.perf_counter())
        if s.cutoff is not None and self.integral:
            options["objective_bound"] = s.cutoff + _slack(s.cutoff)
        return options

    def _load(self, highspy: Any, highs: Any) -> None:
        a = self.arrays
        status = highs.passModel(
            a.cost.size,
            a.row_lower.size,
            a.A.nnz,
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),
            a.offset,
            a.cost,
            a.col_lower,
            a.col_upper,
            a.row_lower,
            a.row_upper,
            a.A.indptr.astype(np.int32),
            a.A.indices.astype(np.int32),
            a.A.data,
            a.integrality.astype(np.int32),
        )
        if status == highspy.HighsStatus.kError:
            raise RuntimeError("HiGHS refused the model")

    def _read(self, highspy: Any, highs: Any) -> None:
        info = highs.getInfo()
        status = highs.getModelStatus().name
        solution = highs.getSolution()
        feasible = int(info.primal_solution_status) == int(highspy.SolutionStatus.kSolutionStatusFeasible)
        if solution.value_valid and feasible:
            objective = float(info.objective_function_value)
            # Not "if better": at the end HiGHS's own solution is the one it vouches for.
            limit = self.settings.cutoff
            if objective <= self.best and (limit is None or objective <= limit + _slack(limit)):
                self.incumbent = (np.array(solution.col_value, dtype=np.float64), objective)
        if self.integral:
            self.nodes = max(self.nodes, int(info.mip_node_count))
            if status not in ("kInfeasible", "kUnbounded", "kUnboundedOrInfeasible"):
                self.lift(float(info.mip_dual_bound))
        elif status == "kOptimal":
            self.lift(float(info.objective_function_value))
        self.status = status


def _slack(value: float) -> float:
    return 1e-9 * max(1.0, abs(value))


def run_highs(
    arrays: ModelArrays,
    settings: Settings,
    start: FloatArray | None,
    deadline: float,
    zero: float,
    progress: Progress | None = None,
    grace: float = GRACE,
) -> Outcome:
    """Run HiGHS once and return by ``deadline + grace`` at the latest.

    Ctrl-C (one) stops the run and is reported in the outcome; a second one
    while HiGHS is winding down raises as usual.  ``deadline`` and ``zero`` are
    ``time.perf_counter`` readings; ``deadline`` may be inf.
    """
    run = Run(arrays, settings, start, deadline, zero)
    run.start()
    reason = ""
    try:
        reason = _watch(run, deadline, progress)
    except KeyboardInterrupt:
        reason = "interrupt"
    except BaseException:  # progress() failed: take HiGHS down with it
        run.stop = True
        run.done.wait(grace)
        raise
    if reason:
        run.stop = True
        if not run.done.wait(grace):
            _abandoned.append(run)
    finished = run.done.is_set()
    if run.error is not None:
        raise run.error
    status = run.status if finished else "abandoned"
    x, objective = run.incumbent
    return Outcome(status, reason, x, objective, run.bound, run.nodes, tuple(run.points))


def _watch(run: Run, deadline: float, progress: Progress | None) -> str:
    """Wait for the end of the run or the deadline, reporting on the way."""
    told, best, last = 0, math.inf, time.perf_counter()
    while True:
        now = time.perf_counter()
        wait = min(_TICK, max(0.0, deadline - now))
        finished = run.done.wait(wait)
        if progress is not None:
            known = len(run.points)
            for point in run.points[told:known]:
                if point.objective < best:
                    best, last = point.objective, time.perf_counter()
                    progress(point)
            told = known
            if not finished and time.perf_counter() - last >= _REPORT_EVERY:
                last = time.perf_counter()
                progress(TracePoint(last - run.zero, run.best, min(run.bound, run.best)))
        if finished:
            return ""
        if time.perf_counter() >= deadline:
            return "limit"


def still_running() -> bool:
    """Whether a HiGHS that was abandoned at a limit is still at work in its thread."""
    return any(thread.is_alive() for thread in _abandoned)


def _wait_for_abandoned() -> None:
    """Give abandoned runs a moment: a HiGHS callback into a dying interpreter aborts the process."""
    until = time.perf_counter() + 3.0
    for thread in _abandoned:
        thread.join(max(0.0, until - time.perf_counter()))


atexit.register(_wait_for_abandoned)
