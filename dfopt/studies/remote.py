"""What the workers of a cluster run: each task in a process of its own, with one solver thread.

So a solver that crashes or hears no limit costs one cell and no worker, as on one machine. The scheduler loads this
module too, which is why it imports little.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dfopt.studies.identity import identity
from dfopt.studies.process import SolverProcess, time_to_kill

if TYPE_CHECKING:
    from dfopt.studies.packing import Task

__all__ = ["difference", "greet", "solve_on_worker"]

# Processes that solve nothing at the moment, as many as the worker has threads.
_pool: list[SolverProcess] = []
_pool_lock = threading.Lock()


def solve_on_worker(task: Task, expected: Mapping[str, str]) -> dict[str, Any]:
    """What a worker runs: the record of a task, or ``refused`` where this is another dfopt than the client's.

    Examples
    --------
    >>> solve_on_worker({"cell": "c0ffee"}, {"dfopt": "9.9"})["refused"].split(", ")[1]
    'client 9.9'
    """
    if wrong := difference(identity(), expected):
        return {"cell": task["cell"], "refused": wrong}
    with _pool_lock:
        process = _pool.pop() if _pool else SolverProcess()
    try:
        return process.answer(task, time_to_kill(task))
    finally:
        with _pool_lock:
            _pool.append(process)


def greet(dask_worker: Any) -> dict[str, str]:
    """What a worker runs when a client connects: start the processes that will solve, and say which dfopt it has."""
    with _pool_lock:
        while len(_pool) < dask_worker.state.nthreads - dask_worker.state.executing_count:
            _pool.append(SolverProcess())
            _pool[-1].start()
    return identity()


def difference(there: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """What differs between the dfopt there and the expected one, in words; empty if nothing does."""
    said = [
        f"{name} here {there.get(name)}, client {value}" for name, value in expected.items() if there.get(name) != value
    ]
    return "; ".join(said)
