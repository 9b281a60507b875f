"""Both doors to solvers, Ctrl-C, and what processes leave behind."""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from busy import BUSY

from dfopt.milp import TracePoint

CBC = "pulp:CBC"


def by_both_doors(test: Callable[..., None]) -> Callable[..., None]:
    """Of HiGHS, and of CBC behind PuLP, which leaves nothing behind."""
    return pytest.mark.usefixtures("place")(pytest.mark.parametrize("solver", ["highs", CBC])(test))


def check_trace(trace: tuple[TracePoint, ...]) -> None:
    for a, b in itertools.pairwise(trace):
        assert a.seconds <= b.seconds and a.objective >= b.objective and a.bound <= b.bound


def press_ctrl_c(after: float) -> threading.Timer:
    timer = threading.Timer(after, _thread.interrupt_main)
    timer.start()
    return timer


def at_work(folder: Path) -> list[int]:
    """Return the processes whose working directory lies in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(entry / "cwd")
        except OSError:  # gone meanwhile, or not ours
            continue
        if where.startswith(str(folder)):
            found.append(int(entry.name))
    return found


def assert_nothing_left(folder: Path) -> None:
    assert list(folder.iterdir()) == []
    if sys.platform == "linux":
        until = time.perf_counter() + BUSY  # what was killed is gone when the kernel gets round to it
        while at_work(folder) and time.perf_counter() < until:
            time.sleep(0.02)
        assert at_work(folder) == []
