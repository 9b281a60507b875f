"""Ctrl-C that no part of Python loses."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Final

__all__ = ["hear_every_interrupt", "interrupt_after_imports"]

_SOON: Final = 0.01  # seconds; until then what swallowed an interrupt has returned


def hear_every_interrupt() -> None:
    """Interrupt once more where Python swallows a Ctrl-C; for a process that is the command line's own.

    In a destructor, or in a callback of a weak reference, a :class:`KeyboardInterrupt` can be raised to no one: Python
    says "Exception ignored" and goes on. Whatever else is ignored goes where it went before.
    """
    earlier = sys.unraisablehook

    def heard(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            earlier(ignored)
        elif not sys.is_finalizing():  # the process ends anyway, and starts no thread
            _again()

    sys.unraisablehook = heard
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt_after_imports)


def interrupt_after_imports(number: int, frame: FrameType | None) -> None:
    """Raise a :class:`KeyboardInterrupt`, once no module is half imported.

    Within the making of a class, Python and pydantic raise other errors instead of it.
    """
    outer = frame
    while outer is not None and not outer.f_code.co_filename.startswith("<frozen importlib"):
        outer = outer.f_back
    if outer is None:
        signal.default_int_handler(number, frame)
    _again()


def _again() -> None:
    again = threading.Timer(_SOON, _interrupt)
    again.daemon = True
    again.start()


def _interrupt() -> None:
    """A Ctrl-C for the main thread, also where it waits: raised in this hook, it would be ignored again."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:  # Windows
        signal.raise_signal(signal.SIGINT)
