"""Solves cells in processes on this machine, and hands each record over as it comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import IO, Any

from dfopt.errors import PlanError

__all__ = ["cores", "run"]

Task = Mapping[str, Any]
_GRACE = 60.0  # seconds beyond twice the time limit that a solve may take before its process is ended
_TAIL = 400  # characters of a dead process's last words


def cores() -> int:
    """CPU cores that this process may use.

    Examples
    --------
    >>> cores() >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def run(
    tasks: Sequence[Task],
    take: Callable[[dict[str, Any]], None],
    jobs: int | None = None,
    hard_limit: Callable[[Task], float] | None = None,
) -> bool:
    """Solve tasks in ``jobs`` processes.

    Parameters
    ----------
    tasks : sequence of mappings
        As :func:`dfopt.studies.worker.solve` takes them.
    take : callable
        Called in this thread with each record, in the order in which the cells end.
    jobs : int, optional
        Processes at once; the cores of this machine by default. Each solves with one thread.
    hard_limit : callable, optional
        Seconds after which the process of a task is ended; twice its time limit and a minute by default.

    Returns
    -------
    bool
        False when Ctrl-C ended it early: what was being solved is not recorded.

    Raises
    ------
    PlanError
        If ``jobs`` is below one.
    """
    if jobs is not None and jobs < 1:
        raise PlanError(f"jobs: expected 1 or more, found {jobs}")
    waiting: SimpleQueue[Task] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    records: SimpleQueue[dict[str, Any]] = SimpleQueue()
    count = min(jobs or cores(), len(tasks))
    lanes = [_Lane(waiting, records, hard_limit or _twice) for _ in range(count)]
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
            take(record)
            done += 1
    except KeyboardInterrupt:
        return False
    finally:
        for lane in lanes:
            lane.end()
    return True


def _twice(task: Task) -> float:
    return 2.0 * float(task["options"]["time_limit"]) + _GRACE


class _Lane:
    """One process at a time, and the thread that talks to it. A process that dies is replaced by a new one."""

    def __init__(
        self,
        waiting: SimpleQueue[Task],
        records: SimpleQueue[dict[str, Any]],
        hard_limit: Callable[[Task], float],
    ) -> None:
        self.waiting, self.records, self.hard_limit = waiting, records, hard_limit
        self.thread = threading.Thread(target=self._work, daemon=True)
        self._process: subprocess.Popen[str] | None = None
        self._words: IO[str] | None = None
        self._lock = threading.Lock()
        self._ended = False

    def end(self) -> None:
        """End the process, and with it the thread."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
        if self.thread.is_alive():
            self.thread.join(5.0)

    def _work(self) -> None:
        try:
            while not self._ended:
                try:
                    task = self.waiting.get_nowait()
                except Empty:
                    return
                record = self._answer(task)
                if self._ended:
                    return
                self.records.put(record)
        finally:
            self._bury()

    def _answer(self, task: Task) -> dict[str, Any]:
        """The record of a task, or one that says how its process died."""
        began = time.perf_counter()
        try:
            process = self._alive()
        except OSError as error:
            return _failed(task, began, f"no process can be started: {error}")
        if process is None:
            return _failed(task, began, "the sweep has ended")
        limit = self.hard_limit(task)
        late = threading.Event()

        def overdue() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, overdue)
        timer.daemon = True
        timer.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:  # it died before it could read
            line = ""
        finally:
            timer.cancel()
        if line.endswith("\n"):
            record: dict[str, Any] = json.loads(line)
            return record
        code = process.wait()
        how = f"ended after {limit:.0f} s, it heard no time limit" if late.is_set() else _how(code)
        words = self._last_words()
        self._bury()
        return _failed(task, began, f"the process of this cell {how}" + (f": {words}" if words else ""))

    def _alive(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._ended:
                return None
            if self._process is None:
                self._words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "dfopt.studies.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._words,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for the sweep, which then ends its processes
                    env=_environment(),
                )
            return self._process

    def _last_words(self) -> str:
        if self._words is None:
            return ""
        self._words.seek(0)
        return " ".join(self._words.read()[-_TAIL:].split())

    def _bury(self) -> None:
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    try:
                        if pipe is not None:
                            pipe.close()
                    except OSError:  # what could not be written to a dead process
                        pass
            if self._words is not None:
                self._words.close()
                self._words = None


def _environment() -> dict[str, str]:
    """One thread each for the solver and for linear algebra: the processes share the cores among them."""
    threads = ("DFOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(threads, "1")}


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _failed(task: Task, began: float, message: str) -> dict[str, Any]:
    from dfopt import __version__

    return {
        "cell": task["cell"],
        "status": "failed",
        "message": message,
        "seconds": time.perf_counter() - began,
        "dfopt": __version__,
    }
