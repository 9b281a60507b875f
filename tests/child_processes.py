"""Processes that a process has started, and whether they have ended, as Linux shows them in /proc."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Processes that a process has started and that it has not yet asked about."""
    started: set[int] = set()
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        with suppress(OSError):  # a thread that ends while it is looked at has no children
            started |= {int(word) for word in path.read_text().split()}
    return sorted(started)


def gone(pid: int, within: float = 20.0) -> bool:
    """Whether a process ends within some seconds, be it that nobody has asked about it since."""
    until = time.perf_counter() + within
    while time.perf_counter() < until:
        try:
            os.kill(pid, 0)
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
