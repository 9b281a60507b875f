"""The second door: any solver that PuLP knows, in a process of its own that can be killed.

PuLP is not believed: it says "optimal" at a time limit, drops options it does
not know without a word, and its time limit is a request.  So the clock, the
verification and the words are ours (`worker`, `verdict`); from PuLP come the
values of the columns.  What CBC is told and says beyond that is in `cbc`.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dfopt.arrays import Floats
from dfopt.errors import PlanError, did_you_mean
from dfopt.milp import cbc
from dfopt.milp.arrays import ModelArrays, least
from dfopt.milp.outcome import Ending, Settings, SolverRun, with_cutoff
from dfopt.milp.verdict import FEASIBILITY

_CHILD = Path(__file__).with_name("pulp_child.py")
_TICK = 0.02  # seconds between two looks at the process
_LATE = 0.3  # seconds after the limit until a solver is reminded: its own clock started after ours
_LAST_WORDS = 1.0  # seconds a solver gets to write its best solution after it should have stopped; less than GRACE
_WHOLE_SECONDS = ("GLPK_CMD", "XPRESS", "CHOCO_CMD", "MIPCL_CMD")  # what their time limits are written in
_NONSENSE = 1e-3  # a violation that no rounding of a solution file explains
_EXACT = 1e-9  # the gap asked for when the caller wants a proof; some interfaces take 0 as "not given"

# PuLP's LpStatus* codes, and LpSolution* of its status "optimal".  The solution status says
# "infeasible" also of what was not solved, and nothing of what is infeasible in integers only.
_INFEASIBLE, _UNBOUNDED, _PROVEN, _FEASIBLE = -1, -2, 1, 2


# ---------------------------------------------------------------- names


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PuLP and the solvers it tries warn and print; nobody asked them."""
    silent = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        warnings.simplefilter("ignore")
        yield


@cache
def _listed(only_available: bool) -> tuple[str, ...]:
    """Return the solvers that PuLP lists, asked once: looking for all of them takes a while."""
    with _quiet():
        import pulp

        return tuple(dict.fromkeys(pulp.listSolvers(onlyAvailable=only_available)))


def _short(name: str) -> str:
    """Return what a solver is called when it does not matter how it is reached."""
    bare = name.upper().removeprefix("PULP_")
    for ending in ("_CMD", "_PY", "_DLL"):
        bare = bare.removesuffix(ending)
    return {"COIN": "CBC"}.get(bare, bare)


def find_solver(name: str) -> str:
    """Return PuLP's name of an available solver called ``pulp:NAME``, or raise `PlanError`.

    Examples
    --------
    >>> find_solver("pulp:CBC"), find_solver("PuLP:pulp_cbc_cmd")
    ('PULP_CBC_CMD', 'PULP_CBC_CMD')
    """
    door, _, wanted = name.strip().partition(":")
    here = ", ".join(["highs", *(f"pulp:{solver}" for solver in _listed(True))])
    if door.lower() != "pulp" or not wanted:
        raise PlanError(f"solver: found {name!r}, expected highs or pulp:NAME; available here: {here}")
    wanted = wanted.strip().upper()
    exact = [solver for solver in _listed(False) if solver.upper() == wanted]
    fits = exact + [solver for solver in _listed(False) if _short(solver) == wanted and solver not in exact]
    if not fits:
        near = did_you_mean(wanted, dict.fromkeys([*_listed(False), *map(_short, _listed(False))]))
        raise PlanError(f"solver: PuLP knows no {name!r}; {near + ' ' if near else ''}available here: {here}")
    for solver in fits:
        if solver in _listed(True):
            return solver
    raise PlanError(f"solver: {name!r} is not installed on this machine; available here: {here}")


@cache
def _takes(solver: str) -> frozenset[str]:
    """Return the arguments that PuLP's class of a solver names; others it would swallow."""
    with _quiet():
        import pulp

        return frozenset(inspect.signature(type(pulp.getSolver(solver, msg=False)).__init__).parameters)


def as_data(arrays: ModelArrays) -> dict[str, Any]:
    """Return a model as JSON data for `pulp_child`; a further last column holds the objective's constant.

    PuLP's files drop the constant, and a relative gap without it is another gap.
    """
    return {
        "indptr": arrays.A.indptr,
        "indices": arrays.A.indices,
        "data": arrays.A.data,
        "row_lower": arrays.row_lower,
        "row_upper": arrays.row_upper,
        "cost": np.append(arrays.cost, arrays.offset),
        "col_lower": np.append(arrays.col_lower, 1.0),
        "col_upper": np.append(arrays.col_upper, 1.0),
        "integrality": np.append(arrays.integrality, False),
    }


# ------------------------------------------------------------------ run


class PulpRun(SolverRun):
    """One run of a PuLP solver in a child process, which is killed if it does not stop."""

    def __init__(self, solver: str, arrays: ModelArrays, settings: Settings, start: Floats | None) -> None:
        super().__init__(arrays, settings, start)
        self.solver, self.message = solver, f"{solver} did not end"
        self.is_cbc = _short(solver) == "CBC"
        self.options, self.note = self._options()

    def _options(self) -> tuple[dict[str, Any], str]:
        """Return what the solver is told, and in words what it cannot be told."""
        s = self.settings
        takes = _takes(self.solver)
        wanted: dict[str, Any] = {"gapRel": max(s.gap, _EXACT), "gapAbs": _EXACT, "threads": 1}
        if self.start_x is not None:
            wanted["warmStart"] = True
        if self.is_cbc:
            wanted |= cbc.options(self.arrays, s)
        options = {name: value for name, value in wanted.items() if name in takes and value is not None}
        if self.solver == "PULP_CBC_CMD":
            options["_skip_v4_deprecation"] = True
        self.takes_limit = "timeLimit" in takes
        untold = []
        if s.gap > 0.0 and "gapRel" not in options:
            untold.append("the gap")
        if not self.is_cbc:
            untold += ["the seed"] * (s.seed != 0) + ["presolve off"] * (not s.presolve)
        return options | {"msg": True}, f"{self.solver} cannot be told {' nor '.join(untold)}" if untold else ""

    # ------------------------------------------------------ worker thread

    def work(self) -> None:
        """Write the model, wait for the process and read the answer."""
        with tempfile.TemporaryDirectory(prefix="dfopt-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            self._write(folder)
            code = self._attend(folder)
            if code == 0:
                self._read(folder)
            elif not self.stop:
                words = (folder / "err").read_text(encoding="utf-8", errors="replace").split("\n")
                last = next((line for line in reversed(words) if line.strip()), f"exit code {code}")
                self.ending, self.message = Ending.BROKEN, f"{self.solver} broke: {last.strip()}"

    def _write(self, folder: Path) -> None:
        model = as_data(with_cutoff(self.arrays, self.settings.cutoff))
        if self.start_x is not None:
            model["start"] = np.append(self.start_x, 1.0)
        np.savez(folder / "model.npz", **model)
        until = None
        if math.isfinite(self.settings.deadline) and self.takes_limit:
            until = time.time() + self.settings.deadline - time.perf_counter()
        task = {"solver": self.solver, "options": self.options, "until": until, "whole": self.solver in _WHOLE_SECONDS}
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")

    def _attend(self, folder: Path) -> int:
        """Wait for the process, or end it when we are told to stop; return its exit code."""
        if self.stop:
            return -1
        # PuLP splits its command lines at blanks: a name relative to the folder has none.
        place = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), ".")
        with open(folder / "log", "wb") as log, open(folder / "err", "wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                cwd=folder,
                env=os.environ | place,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=err,
                start_new_session=True,  # Ctrl-C is heard by us alone, and the solver can be killed with all it started
            )
        try:
            signalled, asked = False, math.inf
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_TICK)
                now = time.perf_counter()
                if self.stop:
                    asked = min(asked, now)
                if self.stop and not signalled and (asked < self.settings.deadline or now - asked >= _LATE):
                    signalled = True
                    _signal(process, gently=True)
                if now - asked >= _LAST_WORDS:
                    return -1
        finally:
            _signal(process, gently=False)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def _read(self, folder: Path) -> None:
        with np.load(folder / "answer.npz") as answer:
            x, (status, solution) = answer["values"][:-1], answer["statuses"].tolist()
        a = self.arrays
        x = np.where(np.isfinite(x), x, np.clip(0.0, a.col_lower, a.col_upper))
        self.message = f"{self.solver} ended with status {status} and solution status {solution}"
        report = None
        if self.is_cbc:
            report = cbc.read((folder / "log").read_text(encoding="utf-8", errors="replace"))
            self.nodes = report.nodes
        in_time = not self.stop and time.perf_counter() < self.settings.deadline
        if status in (_INFEASIBLE, _UNBOUNDED):
            # Interfaces mix the two up; only a model that cannot be unbounded leaves no doubt.
            boxed = math.isfinite(least(a.cost, a.col_lower, a.col_upper))
            self.ending = Ending.INFEASIBLE if boxed and status == _INFEASIBLE else Ending.UNCLEAR
            if report is not None and report.hasty:
                self.ending = Ending.DOUBTFUL
            return
        if solution == _PROVEN:
            # Only a log can tell a proof from the time limit when the two come together.
            self.ending = Ending.OPTIMAL if (in_time if report is None else report.proven) else Ending.LIMIT
        elif solution != _FEASIBLE and in_time:
            self.ending = Ending.BROKEN
        # Some have a solution and do not say so.
        self._take(x, report)

    def _take(self, x: Floats, report: cbc.Report | None) -> None:
        """Note a solution and what is proven by it; whether it is one is for the verdict to find out."""
        a, gap = self.arrays, self.settings.gap
        objective, size = a.objective(x), max(1.0, float(np.abs(a.cost) @ np.abs(x)))
        bound = -math.inf if report is None else report.bound
        if self.ending is not Ending.OPTIMAL:
            self.lift(bound)
            if a.violation(np.where(a.integrality, np.round(x), x)) > _NONSENSE:
                return  # values of a relaxation or of nothing at all
        if report is not None and abs(report.objective - objective) > FEASIBILITY * size:
            objective = report.objective  # the verdict will see that the two differ
        # The solver has kept to the cutoff as to a row, with its tolerance and the digits of its file.
        self.room = FEASIBILITY
        if self.ending is Ending.OPTIMAL and not self.welcome(objective):
            self.ending, self.message = Ending.BROKEN, f"{self.solver} returned {objective!r}, above the cutoff"
        if self.ending is Ending.OPTIMAL:
            exact = gap == 0.0 or (report is not None and report.exact)
            bound = max(objective - (0.0 if exact else gap * abs(objective)), bound)
        self.improve(x, objective)
        self.lift(bound)


def _signal(process: subprocess.Popen[bytes], gently: bool) -> None:
    """Ask the process and all it started to end, or end them."""
    if process.poll() == 0:
        return
    if sys.platform == "win32":
        if not gently:
            process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT if gently else signal.SIGKILL)
