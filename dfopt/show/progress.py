"""Progress of a running solve on stderr: incumbent, bound, gap, time."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, TextIO

from dfopt.show.grid import columns_of
from dfopt.units import format as show_unit


class ProgressLine:
    """Shows the newest report about once a second, starting after the first second.

    On a terminal one line is rewritten; elsewhere a line is added every five seconds, so that a log stays short.
    """

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._began = time.perf_counter()
        self._last = 0.0
        self._width = 0

    def __call__(self, report: Any) -> None:
        """Take a :class:`dfopt.search.Progress`."""
        now = time.perf_counter() - self._began
        terminal = self._stream.isatty()
        if self._quiet or now < 1.0 or now - self._last < (1.0 if terminal else 5.0):
            return
        self._last = now
        # the inter-chip problem may count bytes
        unit = "" if str(report.problem).startswith("interchip") else report.unit
        figures = _figures(report.incumbent, report.bound, unit)
        line = f"{now:6.1f} s  {report.plan}  {report.problem}:  {figures}"
        if terminal:
            line = line[: (columns_of(self._stream) or 80) - 1]  # a line that wraps cannot be rewritten
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Clear the line."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def _figures(incumbent: float, bound: float, unit: str) -> str:
    def figure(value: float) -> str:
        return show_unit(value, "time") if unit == "s" else f"{value:.6g} {unit}".rstrip()

    said = [f"best {figure(incumbent)}" if math.isfinite(incumbent) else "no solution yet"]
    said += [f"bound {figure(bound)}" if math.isfinite(bound) else "no bound yet"]
    if math.isfinite(incumbent) and math.isfinite(bound) and incumbent > 0:
        said += [f"gap {100 * max(0.0, (incumbent - bound) / incumbent):.2f} %"]
    return ", ".join(said)
