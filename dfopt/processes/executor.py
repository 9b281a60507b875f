"""Who solves the cells of a sweep: the interface, and the processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any, Protocol

from dfopt.errors import PlanError
from dfopt.processes.packing import Task
from dfopt.processes.process import SolverProcess, time_to_kill

Take = Callable[[dict[str, Any]], None]
INTERRUPTED = "interrupted"


class Executor(Protocol):
    """Interface of executors, which solve tasks and return each record as it arrives.

    ``jobs``: number of tasks that it solves at the same time, if known.
    """

    jobs: int

    def prepare(self, most: int) -> None:
        """Prepare for at most ``most`` tasks, while the study is still being expanded."""

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """Solve tasks, as :func:`dfopt.processes.worker.solve` takes them.

        ``take`` is called in the calling thread with each record, in the order in which the cells end. Returns why
        it ended before the last task, `INTERRUPTED` for Ctrl-C; the empty text if it did not.
        """

    def close(self) -> None:
        """Free all resources; may be called after an error, and repeatedly."""


def cores() -> int:
    """Number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Processes:
    """Executor with local processes of one solver thread each, by default one for each core.

    If a process dies, its cell fails and the process is replaced. A process that exceeds the hard limit of a task, in
    seconds, is killed. Processes end with a run or, with ``stay``, when they are closed.

    Examples
    --------
    >>> Processes(jobs=2).run([], print)
    ''
    """

    def __init__(
        self, jobs: int | None = None, hard_limit: Callable[[Task], float] = time_to_kill, stay: bool = False
    ) -> None:
        if jobs is not None and jobs < 1:
            raise PlanError(f"jobs: expected 1 or more, found {jobs}")
        self.jobs, self.hard_limit, self.stay = jobs or cores(), hard_limit, stay
        self._ready: list[SolverProcess] = []

    def prepare(self, most: int) -> None:
        """Start the worker processes."""
        while len(self._ready) < min(self.jobs, most):
            self._ready.append(SolverProcess())
            self._ready[-1].start()

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """Solve tasks in the worker processes and call ``take`` with each record; see `Executor`."""
        self.prepare(len(tasks))
        free: SimpleQueue[SolverProcess] = SimpleQueue()
        for process in self._ready:
            free.put(process)

        def solve(number: int) -> dict[str, Any]:
            process = free.get()
            try:
                task = tasks[number]
                return process.answer(task, self.hard_limit(task))
            finally:
                free.put(process)

        lanes = ThreadPoolExecutor(max(len(self._ready), 1))  # a thread talks to one process at a time
        complete = False
        try:
            for done in as_completed([lanes.submit(solve, number) for number in range(len(tasks))]):
                take(done.result())
            complete = True
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            if not (complete and self.stay):
                for process in self._ready:
                    process.end()  # which also answers for the threads that still wait
            lanes.shutdown(cancel_futures=True)
            if not (complete and self.stay):
                self.close()
        return ""

    def close(self) -> None:
        """End the worker processes."""
        for process in self._ready:
            process.end()
            process.bury()
        self._ready = []
