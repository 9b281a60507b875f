"""The command line: parse, call one function, print. Heavy imports stay inside the commands."""

from __future__ import annotations

import io
import os
import sys

from dfopt.cli import documents, mappings, sweeps  # noqa: F401 - they register their commands
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
    """Leave at once when a solver that hears no interrupt still runs: it would abort a dying interpreter."""
    engine = sys.modules.get("dfopt.milp.engine")
    if engine is None or not engine.still_running() or not isinstance(end, SystemExit):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
