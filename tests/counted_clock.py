"""Clocks that end a search at a chosen point of it, on an idle machine or a busy one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dfopt.bnb import UNITS_PER_S, Clock

__all__ = ["over_when"]


class _Asked(Clock):
    """A clock that somebody else says is over."""

    is_over: Callable[[], bool]

    def over_since(self, seconds: float) -> bool:
        """What it is told, however long ago its deadline was."""
        return self.is_over()


def over_when(monkeypatch: pytest.MonkeyPatch, is_over: Callable[[], bool]) -> None:
    """Every clock of a time limit that is made from here on is over when something holds, and at no other time."""

    def of_limit(seconds: float, began: float | None = None) -> Clock:
        clock = _Asked((time.perf_counter() if began is None else began) + seconds, planned=seconds * UNITS_PER_S)
        clock.is_over = is_over
        return clock

    monkeypatch.setattr(Clock, "of_limit", of_limit)
