"""What the workers of a cluster run: the cells of a batch in a process of their own, with one solver thread.

So a solver that crashes or hears no limit costs one cell and no worker, as on one machine. The scheduler loads this
module too, which is why it imports little.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dfopt.processes.batches import SECONDS
from dfopt.processes.identity import identity
from dfopt.processes.process import SolverProcess, time_to_kill

if TYPE_CHECKING:
    from dfopt.processes.packing import Task

_LONGEST = 2 * SECONDS  # after which a batch starts no further cell
_pool: deque[SolverProcess] = deque()  # those that solve nothing at the moment, as many as the worker has threads


def solve_on_worker(batch: bytes, expected: Mapping[str, str]) -> dict[str, Any]:
    """Entry point on a Dask worker: ``records`` of a batch, or ``refused`` if the client runs another dfopt.

    Cells that take longer than expected must not keep their batch for long: those that it could not start in time
    have no record. The first always has one.

    Examples
    --------
    >>> solve_on_worker(pickle.dumps([{"cell": "c0ffee"}]), {"dfopt": "9.9"})["refused"].split(", ")[1]
    'client 9.9'
    """
    if wrong := difference(identity(), expected):
        return {"refused": wrong}
    tasks: list[Task] = pickle.loads(batch)
    until = time.monotonic() + _LONGEST
    records: list[dict[str, Any]] = []
    try:
        process = _pool.pop()
    except IndexError:
        process = SolverProcess()
    try:
        for task in tasks:
            if records and time.monotonic() > until:
                break
            records.append(process.answer(task, time_to_kill(task)))
    finally:
        _pool.append(process)
    return {"records": records}


def greet(dask_worker: Any) -> dict[str, str]:
    """Entry point on a Dask worker when a client connects: start the processes and return their identity."""
    while len(_pool) < dask_worker.state.nthreads - dask_worker.state.executing_count:
        process = SolverProcess()
        process.start()
        _pool.append(process)
    return identity()


def difference(there: Mapping[str, str], expected: Mapping[str, str]) -> str:
    """Difference between two identities of dfopt in words; empty if equal."""
    differences = [
        f"{name} here {there.get(name)}, client {value}" for name, value in expected.items() if there.get(name) != value
    ]
    return "; ".join(differences)
