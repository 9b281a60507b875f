"""The command line: parse, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import NoReturn

from dfopt.cli import (  # noqa: F401 - they register their commands
    calibrate_command,
    collective_command,
    documents,
    explain_command,
    export_command,
    guide_command,
    mappings,
    new_command,
    plot_command,
    report_command,
    runs_command,
    solve_command,
    sweep_command,
    technology_commands,
)
from dfopt.cli.common import app
from dfopt.interrupts import hear_every_interrupt

__all__ = ["app", "run"]


def run() -> None:
    """Entry point of the ``dfopt`` command."""
    _open_streams()
    hear_every_interrupt()
    try:
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
