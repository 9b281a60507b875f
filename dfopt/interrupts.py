"""Ctrl-C, SIGTERM and the time limit: raised where a search hears them, and nowhere else.

A process of the command line has handlers for all three (:func:`hear_every_interrupt`). Each raises a
:class:`KeyboardInterrupt`, and :func:`cause` says which it was. Work that must not be cut in two is :class:`shielded`;
within it the parts that know what to do with an interrupt are :class:`interruptible`. Elsewhere, as in a notebook,
there are no such handlers, and Python does what it always does.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final, TypeVar

LIMIT: Final = "time limit"
FIRST_AFTER: Final = 3.0
"""First mappings took 1.2 to 2.6 times what led up to their search (the questions of benchmarks/speed/early.py)."""
T = TypeVar("T")
SIGNALS: Final = "Ctrl-C", "SIGTERM"
"""Causes of an interrupt that a person or a system sent, as :func:`cause` calls them."""
_EXIT: Final = dict(zip((*SIGNALS, LIMIT), (130, 143, 5), strict=True))
_CAUSES: Final = dict(zip((signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGALRM", None)), _EXIT, strict=True))
_HELD: Final = "<frozen importlib", f"{os.sep}pydantic{os.sep}"  # in the names of files where none is raised
_SOON: Final = 0.01  # seconds; until then what swallowed an interrupt has returned
_LATE: Final = 0.2, 0.03  # seconds, and part of the limit, that a step has to see by itself that its time is up


class _State:
    """Of this process: there is one of each signal."""

    ours = False  # it is the command line's own
    began: float | None = None
    last: int = signal.SIGINT
    shielded = False
    outer = False  # what is shielded again once an interrupt was raised
    pending: int | None = None
    limited = False  # a wall limit is running: an alarm that comes late, behind it, is nobody's
    hooked = False  # this very moment Python says what it ignored: raised now, an interrupt would be ignored again


def hear_every_interrupt() -> None:
    """Install handlers for Ctrl-C, SIGTERM and time limits in the command line's process.

    In a destructor, or in a callback of a weak reference, a :class:`KeyboardInterrupt` can be raised to no one: Python
    says "Exception ignored" and goes on. Then it is raised once more. Whatever else is ignored goes where it went
    before.
    """
    earlier = sys.unraisablehook

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            earlier(ignored)
        elif not sys.is_finalizing():  # the process ends anyway, and starts no thread
            _State.hooked = True
            _again(_State.last)
            _State.hooked = False

    sys.unraisablehook = hook
    _State.ours, _State.began = True, now() - _age()
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:  # not ignored, as behind nohup
            signal.signal(number, interrupt_after_imports)


def now() -> float:
    """Reading of the clock of time limits, s."""
    return time.perf_counter()


def process_start() -> float:
    """Reading of :func:`time.perf_counter` at the start of the command line, s; in other processes, now."""
    return now() if _State.began is None else _State.began


def seconds_since_start() -> float:
    """Seconds since the start of the command line; 0 in other processes."""
    return now() - process_start()


def seconds_left(time_limit: float) -> float:
    """Seconds left of a limit that counts from the start of the process, but never 0."""
    return max(time_limit - seconds_since_start(), 0.1)


def _age() -> float:
    """Seconds since this process began, where the system says so."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, AttributeError, ValueError, IndexError):  # not Linux
        return 0.0


def cause() -> str:
    """Cause of the last interrupt: ``Ctrl-C``, ``SIGTERM`` or ``time limit``."""
    return _CAUSES[signal.Signals(_State.last)]


def exit_code() -> int:
    """Exit status of a process that an interrupt ended without an answer."""
    return _EXIT[cause()]


class wall_limit:
    """Context manager that interrupts its block shortly after a time limit, if the block has not ended by itself.

    Only in the main thread of a process with the handlers of :func:`hear_every_interrupt`.

    Parameters
    ----------
    seconds : float, optional
        Time limit, s.
    began : float
        Reading of :func:`time.perf_counter` from which the limit counts.
    """

    def __init__(self, seconds: float | None, began: float) -> None:
        self.seconds, self.began = math.inf if seconds is None else seconds, began
        main = threading.current_thread() is threading.main_thread()
        self.armed = _State.ours and main and hasattr(signal, "setitimer") and math.isfinite(self.seconds)

    def __enter__(self) -> None:
        self.outer, _State.limited = _State.limited, _State.limited or self.armed
        if self.armed:
            signal.signal(signal.SIGALRM, interrupt_after_imports)
            left = self.began + self.seconds - now() + _LATE[0] + _LATE[1] * self.seconds
            if left <= _SOON:  # an alarm could come before the block has begun, where nobody hears it
                interrupt_after_imports(signal.SIGALRM, None)
            signal.setitimer(signal.ITIMER_REAL, max(left, _SOON))

    def __exit__(self, *_: object) -> None:
        _State.limited = self.outer
        if self.armed:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    @staticmethod
    def earlier(seconds: float) -> None:
        """Move the interrupt forward by ``seconds``, for work that follows the block."""
        if hasattr(signal, "setitimer") and (left := signal.getitimer(signal.ITIMER_REAL)[0]) and _State.ours:
            signal.setitimer(signal.ITIMER_REAL, max(left - seconds, 1e-3))


class shielded:
    """Context manager whose block no interrupt cuts short, except in :class:`interruptible` parts; others wait.

    ``final``: what still waits at its end is dropped, as the block has told what an interrupt would ask for.
    """

    def __init__(self, final: bool = False) -> None:
        self.final = final

    def __enter__(self) -> None:
        self.before, self.outer = _State.shielded, _State.outer
        _State.shielded = True

    def __exit__(self, *_: object) -> None:
        _State.shielded, _State.outer = self.before, self.outer
        if self.final:
            _State.pending = None
        elif not _State.shielded:
            _deliver()


class interruptible:
    """Context manager for a part of a shielded block in which interrupts are raised; use it within ``try``."""

    def __enter__(self) -> None:
        self.before, self.outer = _State.shielded, _State.outer
        _State.outer, _State.shielded = self.before, False
        try:
            _deliver()
        except KeyboardInterrupt:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        _State.shielded, _State.outer = self.before, self.outer

    @classmethod
    def steps(cls, items: Iterable[T]) -> Iterator[T]:
        """Iterate such that making an item is interruptible, and using it is not."""
        iterator = iter(items)
        while True:
            with cls():
                item = next(iterator, None)
            if item is None:
                return
            yield item


def _deliver() -> None:
    """Raise the interrupt that waits, if there is one."""
    if _State.pending is not None:
        number, _State.pending = _State.pending, None
        interrupt_after_imports(number, None)


def interrupt_after_imports(number: int, frame: FrameType | None) -> None:
    """Signal handler that raises :class:`KeyboardInterrupt`, but not within an import, class body or shielded block.

    Within the making of a class, Python and pydantic raise other errors instead of it.
    """
    if _CAUSES[signal.Signals(number)] == LIMIT and not _State.limited:
        return
    if _State.shielded:
        _State.pending = number
        return
    outer = frame
    while outer is not None and not any(part in outer.f_code.co_filename for part in _HELD):
        outer = outer.f_back
    if outer is None:
        # what is raised leaves the part that is interruptible, also where that has just come to its end
        _State.last, _State.shielded = number, _State.outer
        raise KeyboardInterrupt
    _again(number)


def _again(number: int) -> None:
    threading.Thread(target=_interrupt, args=(number,), daemon=True).start()


def _interrupt(number: int) -> None:
    """A signal for the main thread, also where it waits."""
    time.sleep(_SOON)
    while _State.hooked:
        time.sleep(_SOON)
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, number)
    else:  # Windows
        signal.raise_signal(number)
