"""The clock of a search: what takes long looks at it, and gives up when the time is up."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The deadline of a step came before its end."""


def look(deadline: float) -> None:
    """Give up a step (:class:`OutOfTime`) when its deadline (``time.perf_counter``) has passed."""
    if time.perf_counter() > deadline:
        raise OutOfTime
