"""Who solves the cells of a sweep: the interface, and the processes of this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from dfopt.errors import PlanError
from dfopt.studies.packing import Task
from dfopt.studies.process import SolverProcess, time_to_kill

__all__ = ["INTERRUPTED", "Executor", "Processes", "Take", "cores"]

Take = Callable[[dict[str, Any]], None]
INTERRUPTED = "interrupted"


class Executor(Protocol):
    """Solves tasks, and hands each record over as it comes. ``dfopt.studies.cluster`` has another one."""

    def prepare(self, most: int) -> None:
        """Get ready for at most so many tasks while the study is still being expanded."""

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """Solve tasks, as :func:`dfopt.studies.worker.solve` takes them.

        ``take`` is called in the calling thread with each record, in the order in which the cells end. Returns why
        it ended before the last task, `INTERRUPTED` for Ctrl-C; the empty text if it did not.
        """

    def close(self) -> None:
        """Free what was prepared; also after an error, and more than once."""


def cores() -> int:
    """CPU cores that this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


class Processes:
    """Processes on this machine, each with one solver thread.

    A process that dies costs the cell that it was solving, and is replaced.

    Parameters
    ----------
    jobs : int, optional
        Processes at once; the cores of this machine by default.
    hard_limit : callable
        Seconds after which the process of a task is ended; twice its time limit and a minute by default.

    Raises
    ------
    PlanError
        If ``jobs`` is below one.

    Examples
    --------
    >>> Processes(jobs=2).run([], print)
    ''
    """

    def __init__(self, jobs: int | None = None, hard_limit: Callable[[Task], float] = time_to_kill) -> None:
        if jobs is not None and jobs < 1:
            raise PlanError(f"jobs: expected 1 or more, found {jobs}")
        self.jobs, self.hard_limit = jobs or cores(), hard_limit
        self._ready: list[SolverProcess] = []

    def prepare(self, most: int) -> None:
        """Start the processes."""
        while len(self._ready) < min(self.jobs, most):
            self._ready.append(SolverProcess())
            self._ready[-1].start()

    def run(self, tasks: Sequence[Task], take: Take) -> str:
        """See `Executor`."""
        waiting: SimpleQueue[int] = SimpleQueue()
        for number in range(len(tasks)):
            waiting.put(number)
        records: SimpleQueue[dict[str, Any] | BaseException] = SimpleQueue()
        while len(self._ready) < min(self.jobs, len(tasks)):
            self._ready.append(SolverProcess())
        lanes = [_Lane(process, tasks, waiting, records, self.hard_limit) for process in self._ready]
        done = 0
        try:
            for lane in lanes:
                lane.thread.start()
            while done < len(tasks):
                try:
                    # a wait with a limit, because one without hears no Ctrl-C on some systems
                    record = records.get(timeout=0.5)
                except Empty:
                    continue
                if isinstance(record, BaseException):
                    raise record
                take(record)
                done += 1
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            self.close()
            for lane in lanes:
                if lane.thread.is_alive():
                    lane.thread.join(5.0)
        return ""

    def close(self) -> None:
        """End the processes."""
        for process in self._ready:
            process.end()
        self._ready = []


class _Lane:
    """The thread that talks to one process."""

    def __init__(
        self,
        process: SolverProcess,
        tasks: Sequence[Task],
        waiting: SimpleQueue[int],
        records: SimpleQueue[dict[str, Any] | BaseException],
        hard_limit: Callable[[Task], float],
    ) -> None:
        self.process, self.tasks, self.waiting, self.records = process, tasks, waiting, records
        self.hard_limit = hard_limit
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        try:
            while not self.process.ended:
                try:
                    task = self.tasks[self.waiting.get_nowait()]
                except Empty:
                    return
                record = self.process.answer(task, self.hard_limit(task))
                if self.process.ended:
                    return
                self.records.put(record)
        except BaseException as error:  # a sweep must not wait for a thread that is gone
            self.records.put(error)
        finally:
            self.process.bury()
