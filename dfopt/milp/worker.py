"""One solver call in a thread of its own, watched by the calling thread.

Why a thread: HiGHS looks at its time limit and at interrupt requests only at
certain points, and a long root relaxation can sit between two of them.  The
caller must come back on time whatever HiGHS does.  HiGHS releases the GIL
while it works, so the caller can wait, report progress and hear Ctrl-C.
A solver that is a process of its own is watched in the same way.

Why a fresh thread per run: the task scheduler of HiGHS is thread-local and
refuses a second, different thread count.  A new thread starts without one.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

GRACE = 1.5  # seconds a solver gets to come back after it was told to stop
_TICK = 0.05  # seconds between two looks of the calling thread

_abandoned: list[threading.Thread] = []


class Worker(threading.Thread):
    """A thread that runs ``work`` once; ``stop`` asks it to end early, and errors are re-raised in the caller."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(target=work, daemon=True, name="solver")
        self.done = threading.Event()
        self.stop = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run ``work`` and signal its end."""
        try:
            super().run()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()


def supervise(
    worker: Worker, deadline: float, report: Callable[[bool], None] = lambda finished: None, grace: float = GRACE
) -> str:
    """Start a worker and wait for it until ``deadline + grace`` at the latest.

    Returns "" if the worker ended by itself, otherwise the reason why it was stopped: "limit" or "interrupt". One
    Ctrl-C stops the worker; a second one while it is stopping raises as usual.

    Parameters
    ----------
    worker
        The worker, not started yet.
    deadline : float, s
        When it must end, by ``time.perf_counter``.
    report : callable
        Called repeatedly in the calling thread with False, and once with True at the end.
    grace : float, s
        How long the worker may overrun before it is stopped.
    """
    worker.start()
    try:
        reason = _wait(worker, deadline, report)
    except KeyboardInterrupt:
        reason = "interrupt"
    except BaseException:  # report() failed: take the worker down with it
        _halt(worker, grace)
        raise
    if reason:
        _halt(worker, grace)
    if worker.error is not None:
        raise worker.error
    report(True)
    return reason


def _halt(worker: Worker, grace: float) -> None:
    """Tell a worker to stop and wait for it; one that does not come is remembered, also after a second Ctrl-C."""
    worker.stop = True
    _abandoned.append(worker)
    if worker.done.wait(grace):
        _abandoned.remove(worker)


def _wait(worker: Worker, deadline: float, report: Callable[[bool], None]) -> str:
    """Wait for the end of the worker or the deadline."""
    while not worker.done.wait(min(_TICK, max(0.0, deadline - time.perf_counter()))):
        report(False)
        if time.perf_counter() >= deadline:
            return "limit"
    return ""


def still_running() -> bool:
    """Whether a solver abandoned at a limit is still running in its thread."""
    return any(thread.is_alive() for thread in _abandoned)


def _wait_for_abandoned() -> None:
    """Give abandoned runs a moment: a HiGHS callback into a dying interpreter aborts the process."""
    until = time.perf_counter() + 3.0
    for thread in _abandoned:
        thread.join(max(0.0, until - time.perf_counter()))


atexit.register(_wait_for_abandoned)
