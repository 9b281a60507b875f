"""Units of work, which say what is tried next, and a deadline, which only ends a run.

Two runs that count the same work take the same steps, on an idle machine or a busy one, unless the deadline ends one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

UNITS_PER_S: Final = 400_000.0
"""Units of work that a second of an idle processor is planned for: the median of ``benchmarks/speed/units.py``."""
_AT_LEAST: Final = 0.1
"""Share of the planned work that parts of a run are measured by where more is spent already: some is always left."""
_NO_TIME_S: Final = 0.05
"""Seconds that a step has at least, so that a start is always returned."""


class OutOfTime(Exception):
    """Raised where a step cannot end within its work or before the deadline."""


class Clock:
    """Counter of a search's work with limits on work and time; it can be split into sub-clocks.

    An entry of a search charges its work. One unit is about the cost of one step of an inner loop; the documentation of
    each entry states its charges.

    Parameters
    ----------
    deadline : float, s
        Reading of :func:`time.perf_counter` at which the run ends.
    work : float, units
        Work after which the run ends.
    planned : float, units
        Work that the run is planned for. It is no limit; the budgets of parts of a run are shares of it.

    Attributes
    ----------
    watch : callable, optional
        Callback on every check of the clock or of one of its sub-clocks, so that long steps can report progress.

    Examples
    --------
    >>> clock = Clock(work=100.0)
    >>> part = clock.allowance(30.0)
    >>> part.charge(40.0)
    >>> part.over, clock.over, clock.spent
    (True, False, 40.0)
    """

    def __init__(
        self,
        deadline: float = math.inf,
        work: float = math.inf,
        planned: float = math.inf,
        *,
        within: Clock | None = None,
    ) -> None:
        self.deadline, self.work, self.planned, self.spent = deadline, work, planned, 0.0
        self._within = within
        self.watch: Callable[[], None] | None = None

    @classmethod
    def of_limit(cls, seconds: float, began: float | None = None) -> Clock:
        """A clock for a run with a time limit, planned for the work that an idle machine does in that time.

        Parameters
        ----------
        seconds : float, s
            Time limit.
        began : float, s, optional
            Reading of :func:`time.perf_counter` at which the limit begins to count; by default now.
        """
        return cls((time.perf_counter() if began is None else began) + seconds, planned=seconds * UNITS_PER_S)

    def charge(self, units: float) -> None:
        """Add units of work to this clock and to all clocks that it is a part of."""
        self.spent += units
        if self._within is not None:
            self._within.charge(units)

    @property
    def over(self) -> bool:
        """Whether the work is spent or the deadline has passed, here or in a clock that this one is a part of."""
        return self.over_since(0.0)

    def over_since(self, seconds: float) -> bool:
        """Whether the work is spent, or the deadline passed at least ``seconds`` ago."""
        if self.watch is not None:
            self.watch()
        if self._within is not None and self._within.over_since(seconds):
            return True
        return self.spent >= self.work or time.perf_counter() > self.deadline + seconds

    def check(self, units: float = 1.0) -> None:
        """Charge units of work, or raise `OutOfTime` if the clock is over."""
        if self.over:
            raise OutOfTime
        self.charge(units)

    def allowance(self, work: float) -> Clock:
        """A sub-clock that is over after ``work`` units of work; its charges count here too."""
        return Clock(work=work, within=self)

    def share(self, part: float, most: float = math.inf) -> Clock:
        """A sub-clock that is over after a share of the planned work that is left.

        Parameters
        ----------
        part : float
            The share, from 0 to 1.
        most : float, units of work
            Upper limit of its work, in units.
        """
        return self.allowance(min(part * self.work_left, most))

    def sooner(self, part: float) -> Clock:
        """A sub-clock whose deadline is a share of the seconds that are left to this one.

        It is for steps that must leave time to others even on a busy machine, where seconds run out before the work.

        Parameters
        ----------
        part : float
            The share, from 0 to 1.
        """
        return Clock(time.perf_counter() + part * self.seconds_left, within=self)

    def end_earlier(self, seconds: float) -> None:
        """Move the deadline forward by ``seconds``, to leave time for what follows the run."""
        self.deadline -= seconds

    @property
    def work_left(self) -> float:
        """Units of planned work that are left, here and in the clocks that this one is a part of; at least a tenth.

        A run that exceeds its plan still has a tenth of the planned work left.
        """
        own = min(max(self.planned - self.spent, _AT_LEAST * self.planned), max(self.work - self.spent, 0.0))
        return own if self._within is None else min(own, self._within.work_left)

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, but never 0, so that a solver called late still returns its start."""
        return max(self.last - time.perf_counter(), _NO_TIME_S)

    @property
    def last(self) -> float:
        """The earlier of the deadlines of this clock and of those that it is a part of (`time.perf_counter`, s)."""
        return self.deadline if self._within is None else min(self.deadline, self._within.last)

    @property
    def units_left(self) -> float:
        """Units of work until the clock is over; infinite without a limit on work."""
        own = max(self.work - self.spent, 0.0)
        return own if self._within is None else min(own, self._within.units_left)


UNLIMITED: Final = Clock()
"""A clock that is never over, for callers that have no limit and do not ask what was spent."""
ENDED: Final = Clock(deadline=-math.inf)
"""A clock that is over: what gets it returns what it has."""
