"""Small studies for the tests of sweeps: cells that take a tenth of a second; sweeps in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from dfopt.documents.study import Study

SMALL: dict[str, Any] = {
    "schema": "dfopt/study/1",
    "name": "small",
    "graphs": [{"graph": "gpt2-small", "parameters": {"batch": 8}}],
    "systems": [{"system": "sn10-8-ring", "label": "ring"}, {"system": "sn10-8-torus", "label": "torus"}],
    "options": {"tp": 8, "time_limit": "20 s"},
}


def study(**changes: Any) -> Study:
    """The small study with some keys replaced, validated as a file is."""
    return Study.from_data({**SMALL, **changes}, "study")


def degrees(*numbers: int) -> dict[str, Any]:
    """An axis of degrees of tensor parallelism; no plan has one of 3 on eight chips."""
    return {"degree": [{"label": n, "set": {"options.tp": n}} for n in numbers]}


def limits(count: int) -> dict[str, Any]:
    """An axis of time limits, none of which any cell needs."""
    return {"limit": [{"label": n, "set": {"options.time_limit": f"{20 + n} s"}} for n in range(count)]}


def figures(frame: Any) -> Any:
    """A frame without what may differ between two solves of the same cell."""
    return frame.drop(columns="solve_s")


CHILD = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background shell ignores it
    "from dfopt.cli import app\n"
    "app(['sweep', sys.argv[1], '--store', sys.argv[2], *sys.argv[3:]])"
)


def swept_apart(path: Path, store: Path, *words: str) -> subprocess.Popen[str]:
    """The command in another process, that Ctrl-C interrupts as one in a terminal."""
    asked = [sys.executable, "-c", CHILD, str(path), str(store), *words]
    return subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
