"""One process that solves cells, and what is done when it dies or hears no time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # a Dask scheduler that is shown a task loads this module, and needs nothing of ours
    from dfopt.processes.packing import Task

_GRACE = 60.0  # seconds beyond twice the time limit that a solve may take before its process is ended
# One thread each for the solver and for linear algebra: the processes share the cores among them.
_THREADS = ("DFOPT_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TAIL = 400  # characters of a dead process's last words


class SolverProcess:
    """Handle of a worker process (`dfopt.processes.worker`) that starts on demand and restarts after a crash.

    Not for two threads at once, but for ``end``, which may come from any thread.

    Examples
    --------
    >>> process = SolverProcess()
    >>> process.end()
    >>> process.answer({"cell": "c0ffee"}, 60.0)["message"]
    'the sweep has ended'
    """

    def __init__(self) -> None:
        self.ended = False
        self._process: subprocess.Popen[str] | None = None
        self._words: IO[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the process early, so that its imports are done before the first task."""
        with suppress(OSError):  # the first task says so
            self._alive()

    def answer(self, task: Task, limit: float) -> dict[str, Any]:
        """Record of a task, or one that says how the process died; the process is ended after ``limit`` seconds."""
        began = time.perf_counter()
        try:
            process = self._alive()
        except OSError as error:
            return failed(task, began, f"no process can be started: {error}")
        if process is None:
            return failed(task, began, "the sweep has ended")
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
        except (OSError, ValueError):  # it died before it could read; ValueError: its pipes are closed
            line = ""
        finally:
            timer.cancel()
        if line.endswith("\n"):
            record: dict[str, Any] = json.loads(line)
            return record
        code = process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if late.is_set():
            how = f"ended after {limit:.0f} s, it heard no time limit"
        words = self._last_words()
        self.bury()
        return failed(task, began, f"the process of this cell {how}" + (f": {words}" if words else ""))

    def end(self) -> None:
        """End the process, whatever it does, for good."""
        with self._lock:
            self.ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def bury(self) -> None:
        """End the process and free its pipes; the next task starts another."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()
                for pipe in filter(None, (process.stdin, process.stdout)):
                    with suppress(OSError):  # what could not be written to a dead process
                        pipe.close()
            if self._words is not None:
                self._words.close()
                self._words = None

    def _alive(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self.ended:
                return None
            if self._process is None:
                self._words = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "dfopt.processes.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._words,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for the sweep, which then ends its processes
                    env={**os.environ, **dict.fromkeys(_THREADS, "1")},
                )
            return self._process

    def _last_words(self) -> str:
        if self._words is None:
            return ""
        self._words.seek(0)
        return " ".join(self._words.read()[-_TAIL:].split())


def time_to_kill(task: Task) -> float:
    """Seconds after which the process of a task is ended: twice its time limit plus a minute."""
    return 2.0 * float(task["options"]["time_limit"]) + _GRACE


def failed(task: Task, began: float, message: str) -> dict[str, Any]:
    """Record of a task that no process could answer.

    Parameters
    ----------
    task
        The task.
    began : float, s
        When it began, by ``time.perf_counter``.
    message : str
        Why there is no answer.
    """
    from dfopt import __version__

    spent = time.perf_counter() - began
    return {"cell": task["cell"], "status": "failed", "message": message, "seconds": spent, "dfopt": __version__}
