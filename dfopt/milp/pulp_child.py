"""The process in which PuLP and its solver work: a model from a folder, the answer back into it.

Run as a script by `pulp_door`, with the folder as working directory and nothing
of dfopt imported, so that it starts fast.  ``task.json`` holds::

    solver    PuLP's name of the solver
    options   keyword arguments for it
    until     reading of time.time() at which the time limit is over, or null
    whole     whether the solver understands whole seconds only

``model.npz`` holds the arrays of the model, a fixed column for the objective
constant among them, and perhaps a start.  ``answer.npz`` gets PuLP's two
statuses and one value per column, NaN for none.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from typing import Any, Final

import numpy as np

_LEAST_S: Final = 0.01  # seconds: the limit that a solver is given has to be above 0


def main() -> None:
    """Entry point of the child process: solve the model of ``task.json`` with PuLP and write the answer."""
    _die_with_the_parent()
    # A solver that listens ends early with what it has; the default of Python would end this process instead.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    warnings.simplefilter("ignore")
    import pulp

    with open("task.json", encoding="utf-8") as file:
        task = json.load(file)
    with np.load("model.npz") as arrays:
        model = dict(arrays)
    problem, columns = build(pulp, model)
    if "start" in model:
        for column, value in zip(columns, model["start"].tolist(), strict=True):
            column.setInitialValue(value)
    options = task["options"]
    if task["until"] is not None:
        left = max(_LEAST_S, task["until"] - time.time())
        options["timeLimit"] = math.ceil(left) if task["whole"] else left
    solver = pulp.getSolver(task["solver"], **options)
    problem.solve(solver)
    values = [math.nan if column.varValue is None else column.varValue for column in columns]
    statuses = [problem.status, problem.sol_status]
    np.savez("answer.npz", values=values, statuses=statuses)


def build(
    pulp: Any, model: dict[str, Any], columns: list[str] | None = None, rows: list[str] | None = None
) -> tuple[Any, list[Any]]:
    """Return a ``pulp.LpProblem`` and its columns.

    Parameters
    ----------
    pulp
        The module.
    model : dict
        Arrays of the model, by their names.
    columns, rows : list of str, optional
        Names of columns and rows; x0, x1, ... and r0, r1, ... if not given.
    """
    problem = pulp.LpProblem("dfopt", pulp.LpMinimize)
    integrality, cost = model["integrality"].tolist(), model["cost"].tolist()
    names = columns or [f"x{i}" for i in range(len(cost))]
    bounds = zip(names, _sides(model["col_lower"]), _sides(model["col_upper"]), integrality, strict=True)
    x = [pulp.LpVariable(name, *pair, pulp.LpInteger if w else pulp.LpContinuous) for name, *pair, w in bounds]
    # With its zeros, so that PuLP keeps columns that occur nowhere.
    problem.setObjective(pulp.LpAffineExpression(list(zip(x, cost, strict=True))))
    starts, index, data = (model[name].tolist() for name in ("indptr", "indices", "data"))
    sides = zip(_sides(model["row_lower"]), _sides(model["row_upper"]), strict=True)
    for i, (low, up) in enumerate(sides):
        here = slice(starts[i], starts[i + 1])
        # A row without columns is still a condition.
        terms = [(x[j], value) for j, value in zip(index[here], data[here], strict=True)] or [(x[0], 0.0)]
        name = rows[i] if rows else f"r{i}"
        if low == up:
            parts = [(name, pulp.LpConstraintEQ, low)]
        else:
            # PuLP has no rows with two different sides.
            two = low is not None and up is not None
            parts = [
                (name + ".lower" * two, pulp.LpConstraintGE, low),
                (name + ".upper" * two, pulp.LpConstraintLE, up),
            ]
        for part, sense, side in parts:
            if side is not None:
                problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, part, side))
    return problem, x


def _sides(values: Any) -> list[float | None]:
    """Return bounds as PuLP wants them, None for an infinite one."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _die_with_the_parent() -> None:
    """When the parent is gone, the pipe to standard input closes: then nobody waits for an answer any more."""
    pipe = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # the solver must not read from the pipe
    os.close(null)

    def watch() -> None:
        pipe.read()
        shutil.rmtree(os.getcwd(), ignore_errors=True)
        if sys.platform != "win32":
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
