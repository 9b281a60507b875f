"""The command line: parse, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module
from typing import Any, Final, NoReturn

from dfopt.cli import common
from dfopt.documents.uncollected import SELDOM
from dfopt.interrupts import hear_every_interrupt

_COMMANDS: Final = {
    "calibrate_command": ("calibrate",),
    "collective_command": ("collective",),
    "documents": ("list", "show", "check", "schema"),
    "explain_command": (),  # it explains the options of all others
    "export_command": ("export",),
    "guide_command": ("guide",),
    "mappings": ("score", "heat", "compare"),
    "new_command": ("new",),
    "plot_command": ("plot",),
    "report_command": ("report",),
    "runs_command": ("runs",),
    "solve_command": ("solve",),
    "sweep_command": ("sweep",),
    "technology_commands": ("derive", "explore"),
}
"""Modules, and the commands that need no other one; ``import`` and ``explain`` need all, as help does."""


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'dfopt.cli' has no attribute {name!r}")
    return _app()


def _app(word: str = "") -> Any:
    """The app with the command of a word, or else with all: to make all of them takes 0.05 s."""
    for module in [module for module, commands in _COMMANDS.items() if word in commands] or _COMMANDS:
        import_module(f"dfopt.cli.{module}")
    return common.app


def run() -> None:
    """Entry point of the ``dfopt`` command."""
    gc.set_threshold(*SELDOM)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # to look for some in all packages takes 8 ms
    _open_streams()
    hear_every_interrupt()
    try:
        with common.importing():
            app = _app("".join(sys.argv[1:2]))
        app()
    except OSError as error:
        if error.filename is not None:  # not of what was printed
            raise
        _unprinted(error)
    except SystemExit as end:
        try:
            sys.stdout.flush()
        except OSError as error:
            _unprinted(error)
        _leave(end)
        gc.freeze()  # a dying interpreter looks for cycles among all that there is: 0.1 s and more
        raise


def _open_streams() -> None:
    """Have all three streams open, so that no other file gets their numbers; what was closed takes no text."""
    while (number := os.open(os.devnull, os.O_RDONLY)) < 3:
        if number == 1:
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process runs
    os.close(number)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal gets escapes, not a traceback


def _unprinted(error: OSError) -> NoReturn:
    """End because standard output takes no more, as of a full disk; what it holds back must not fail once more."""
    if sys.stderr is not None:
        print(f"dfopt: the answer cannot be printed: {error.strerror or error}", file=sys.stderr, flush=True)
    os._exit(1)


def _leave(end: SystemExit) -> None:
    """Leave at once when a dying interpreter would spoil the exit code.

    A solver that hears no interrupt and still runs would abort it. And after a Ctrl-C inside an ``exec``, as in the
    making of a dataclass while modules are imported, CPython ends as if killed by the signal although it was handled.
    """
    solvers = sys.modules.get("dfopt.milp.worker")
    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if code in (5, 130, 143) or (solvers is not None and solvers.still_running()):
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(code)
