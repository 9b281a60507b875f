"""Progress of a running search on stderr: the best so far, its bound and gap, how much is open, the time."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, TextIO

from dfopt.errors import visible
from dfopt.show.grid import columns_of
from dfopt.units import show_unit


class ProgressLine:
    """Progress display: shows the newest report about once a second, after the first second.

    On a terminal one line is rewritten; elsewhere a line is added every five seconds, so that a log stays short.
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._began = time.perf_counter()
        self._last = -math.inf
        self._width = 0
        self._report: Any = None  # the newest of all that is searched

    def __call__(self, report: Any) -> None:
        """Take a :class:`dfopt.search.Progress`."""
        now = time.perf_counter() - self._began
        terminal = self._stream.isatty()
        if not report.part:
            self._report = report
        if self._quiet or self._report is None or now < 1.0 or now - self._last < (1.0 if terminal else 5.0):
            return
        self._last = now
        line = f"{now:6.1f} s  {visible(_written(self._report))}"
        if terminal:
            line = line[: (columns_of(self._stream) or 80) - 1]  # a line that wraps cannot be rewritten
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Clear the progress line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def _written(report: Any) -> str:
    """What is known of a search, or of an exploration."""

    def figure(value: float) -> str:
        return show_unit(value, "time") if report.unit == "s" else f"{value:.6g} {report.unit}".rstrip()

    solved, proven = math.isfinite(report.incumbent), math.isfinite(report.bound) and report.bound > 0
    figures = [f"best {figure(report.incumbent)}" if solved else report.plan]
    figures += [f"bound {figure(report.bound)}" if proven else "no bound yet"]
    if solved and proven and report.incumbent > 0:
        low, high = sorted((report.incumbent, report.bound))  # which of them is better depends on the objective
        figures += [f"gap {100 * (1 - low / high):.2f} %"]
    return ", ".join([*figures, report.problem]) + (f": {report.plan}" if solved else "")
