"""One HiGHS run: its options, its callbacks and its answer, in a thread of its own."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Final

import numpy as np

from dfopt.errors import PlanError
from dfopt.milp.arrays import ModelArrays
from dfopt.milp.outcome import Ending, SolverRun, slack

_ENDINGS = {
    "kOptimal": Ending.OPTIMAL,
    "kInfeasible": Ending.INFEASIBLE,
    "kObjectiveBound": Ending.INFEASIBLE,
    "kUnbounded": Ending.UNBOUNDED,
    "kUnboundedOrInfeasible": Ending.UNCLEAR,
} | dict.fromkeys(
    ("kTimeLimit", "kInterrupt", "kHighsInterrupt", "kIterationLimit", "kSolutionLimit", "kMemoryLimit"), Ending.LIMIT
)
_ABSOLUTE_GAP: Final = 1e-9  # of an objective in units: what is closer is rounding, and only the relative gap counts
_BOUND_ROOM: Final = 1e-7  # relative: more than the tolerance that HiGHS takes off its objective bound


def default_threads() -> int:
    """Return the thread count used when the caller names none: one, or what ``DFOPT_THREADS`` says.

    The models here are small: a second thread costs HiGHS more to wake than it saves.

    Raises
    ------
    PlanError
        If the variable is set to something else than a positive number.
    """
    stated = os.environ.get("DFOPT_THREADS", "1")
    if not stated.isdigit() or int(stated) < 1:
        raise PlanError(f"DFOPT_THREADS: found {stated!r}, expected a positive number of solver threads, or unset it")
    return int(stated)


def set_options(highs: Any, options: dict[str, Any]) -> None:
    """Set HiGHS options; raise an error if HiGHS rejects one."""
    for name, value in options.items():
        if int(highs.setOptionValue(name, value)) != 0:
            raise RuntimeError(f"HiGHS refused option {name}={value!r}")


def load(highs: Any, arrays: ModelArrays) -> None:
    """Pass a model to HiGHS."""
    import highspy

    a = arrays
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


def _takes_starts(highs: Any) -> bool:
    """Whether the objective of the presolved model has a continuous column, so that a start cannot hide the optimum.

    Else HiGHS 1.15 counts its values in whole steps, and leaves out what is less than one and a half below the start:
    it does not see that presolve may have given the start a better value.
    """
    highs.presolve()
    reduced = highs.getPresolvedLp()
    integrality = np.array([int(kind) for kind in reduced.integrality_], dtype=np.int64)
    cost = np.array(reduced.col_cost_, dtype=np.float64)
    return bool(cost[integrality == 0].any()) if integrality.size else bool(cost.any())


class HighsRun(SolverRun):
    """One run of HiGHS, which reports through callbacks."""

    # ------------------------------------------------ called inside HiGHS

    def _on_solution(self, event: Any) -> None:
        try:
            out = event.data_out
            point = np.array(out.mip_solution, dtype=np.float64)
            self.improve(point, float(out.objective_function_value))
            self.lift(float(out.mip_dual_bound))
        except BaseException as error:
            self.error, self.stop = error, True

    def _on_interrupt(self, event: Any) -> None:
        try:
            if self.integral:
                out = event.data_out
                self.nodes = max(self.nodes, int(out.mip_node_count))
                self.lift(float(out.mip_dual_bound))
                self.questions += 1
        except BaseException as error:
            self.error, self.stop = error, True
        if self.stop or self.questions >= self.most_questions:
            event.data_in.user_interrupt = True

    # ------------------------------------------------------ worker thread

    def work(self) -> None:
        """Load and solve the model, and read the answer."""
        import highspy

        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        set_options(highs, self._options())
        load(highs, self.arrays)
        if self.start_x is not None and self.integral and (not self.settings.presolves or _takes_starts(highs)):
            size = self.start_x.size
            if highs.setSolution(size, np.arange(size, dtype=np.int32), self.start_x) != highspy.HighsStatus.kOk:
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
            "threads": default_threads(),
            "random_seed": s.seed,
            "presolve": "on" if s.presolves else "off",
            # Both gaps explicitly: the defaults (1e-4, 1e-6) stop early and say "optimal".
            "mip_rel_gap": s.gap,
            "mip_abs_gap": _ABSOLUTE_GAP,
            "primal_feasibility_tolerance": s.tolerance,
            "dual_feasibility_tolerance": s.tolerance,
            "mip_feasibility_tolerance": s.tolerance,
        }
        if math.isfinite(s.deadline):
            options["time_limit"] = max(0.0, s.deadline - time.perf_counter())
        if not self.integral and math.isfinite(self.most_iterations):
            options["simplex_iteration_limit"] = int(self.most_iterations)
        if s.cutoff is not None and self.integral:
            options["objective_bound"] = s.cutoff + slack(s.cutoff, _BOUND_ROOM)
        return options

    def _read(self, highspy: Any, highs: Any) -> None:
        info = highs.getInfo()
        status = highs.getModelStatus().name
        self.iterations = max(self.iterations, int(info.simplex_iteration_count))
        solution = highs.getSolution()
        feasible = int(info.primal_solution_status) == int(highspy.SolutionStatus.kSolutionStatusFeasible)
        if solution.value_valid and feasible:
            point = np.array(solution.col_value, dtype=np.float64)
            self.settle(point, float(info.objective_function_value))
        if self.integral:
            self.nodes = max(self.nodes, int(info.mip_node_count))
            if status not in ("kInfeasible", "kUnbounded", "kUnboundedOrInfeasible"):
                self.lift(float(info.mip_dual_bound))
        elif status == "kOptimal":
            self.lift(float(info.objective_function_value))
        self.ending, self.message = _ENDINGS.get(status, Ending.BROKEN), f"HiGHS ended with {status}"
