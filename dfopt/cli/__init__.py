"""The command line: parse, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import io
import os
import sys

from dfopt.cli import (  # noqa: F401 - they register their commands
    documents,
    heat_command,
    mappings,
    plot_command,
    report_command,
    runs_command,
    sweeps,
)
from dfopt.cli.common import app

__all__ = ["app", "run"]


def run() -> None:
    """Entry point of the ``dfopt`` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII terminal gets escapes, not a traceback
    try:
        app()
    finally:
        _leave(sys.exc_info()[1])


def _leave(end: BaseException | None) -> None:
    """Leave at once when a dying interpreter would spoil the exit code.

    A solver that hears no interrupt and still runs would abort it. And after a Ctrl-C inside an ``exec``, as in the
    making of a dataclass while modules are imported, CPython ends as if killed by the signal although it was handled.
    """
    if not isinstance(end, SystemExit):
        return
    engine = sys.modules.get("dfopt.milp.engine")
    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if code == 5 or (engine is not None and engine.still_running()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
